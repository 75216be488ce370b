//! One replication connection: opening it, sending a command, taking results.
//!
//! Invariants:
//! - Q11: a connection is ready, busy, or given up. Only the server's `ReadyForQuery` makes it
//!   ready again, so that messages of a dropped stream or a failed command are never taken for the
//!   answer to a later command.
//! - Q7: a result is at most [`RESULT_MAX`], and 64 notices and 256 parameters are kept.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use postgres_protocol::message::frontend;

use crate::auth::Authenticator;
use crate::config::Config;
use crate::error::{Error, Result, ServerError};
use crate::reply::{self, Reply, Row};
use crate::tls;
use crate::transport::{FAREWELL, Socket, Transport};
use crate::wire::{Patience, Wire};

/// Largest result of a command, in bytes.
const RESULT_MAX: usize = 16 << 20;

const NOTICES_MAX: usize = 64;
const PARAMETERS_MAX: usize = 256;

/// The oldest version that speaks the forms of `BASE_BACKUP` that are used here.
const OLDEST: u32 = 15;

/// Messages that are looked through for the reason of a connection's end.
const LAST_WORDS_MAX: usize = 10_000;

/// A notice of the server, usually a warning.
pub type Notice = ServerError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Busy,
    GivenUp,
}

/// A connection to a server's sender of backups and log.
#[derive(Debug)]
pub struct Connection {
    pub(crate) wire: Wire,
    pub(crate) state: State,
    silence: Option<Duration>,
    parameters: BTreeMap<String, String>,
    notices: VecDeque<Notice>,
    major: u32,
}

/// Ends a connection from another thread.
#[derive(Debug)]
pub struct Interrupter(Socket);

impl Interrupter {
    /// Whatever the connection is waiting for ends with [`Error::EndedEarly`], now and later.
    ///
    /// # Errors
    /// The system's; a connection that has ended already is none.
    pub fn interrupt(&self) -> std::io::Result<()> {
        match self.0.shut_down() {
            Err(error) if error.kind() != std::io::ErrorKind::NotConnected => Err(error),
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// Connects and authenticates.
    ///
    /// # Errors
    /// Every kind but [`Error::GivenUp`].
    pub fn open(config: &Config) -> Result<Self> {
        let deadline = config.connect_timeout.map(|wait| Instant::now() + wait);
        let socket = Socket::connect(config, deadline)?;
        Self::begin_on(socket, config, deadline)
    }

    /// Authenticates on a local socket that is connected already.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn on_socket(socket: UnixStream, config: &Config) -> Result<Self> {
        let deadline = config.connect_timeout.map(|wait| Instant::now() + wait);
        Self::begin_on(Socket::Local(socket), config, deadline)
    }

    fn begin_on(socket: Socket, config: &Config, deadline: Option<Instant>) -> Result<Self> {
        let transport = Transport::agree(socket, config, deadline)?;
        let mut connection = Self {
            wire: Wire::new(transport),
            state: State::Busy,
            silence: None,
            parameters: BTreeMap::new(),
            notices: VecDeque::new(),
            major: 0,
        };
        connection.start(config, deadline)?;
        connection.major = connection.told_version();
        if connection.major < OLDEST {
            let version = connection.parameter("server_version").unwrap_or("unknown");
            return Err(Error::Unsupported(format!(
                "PostgreSQL {version}; it has to be {OLDEST} or later"
            )));
        }
        connection.state = State::Ready;
        Ok(connection)
    }

    fn start(&mut self, config: &Config, deadline: Option<Instant>) -> Result<()> {
        let during = "the connection was being set up";
        let mut parameters = vec![
            ("user", config.user.as_str()),
            ("replication", "true"),
            ("application_name", config.application_name.as_str()),
            ("client_encoding", "UTF8"),
        ];
        for (name, value) in [("database", &config.database), ("options", &config.options)] {
            if !value.is_empty() {
                parameters.push((name, value));
            }
        }
        frontend::startup_message(parameters, &mut self.wire.output)
            .map_err(|_| Error::Misuse("a setting with a zero byte"))?;
        let wait = deadline.map(crate::transport::left);
        self.wire.send(wait, during)?;
        let transport = self.wire.transport();
        let end_point = transport.tls().and_then(tls::server_end_point);
        let (private, is_tls) = (transport.is_private(), transport.tls().is_some());
        let mut authenticator = Authenticator::new(config, private, is_tls, end_point);
        let patience = deadline.map_or(Patience::Silence(None), Patience::Until);
        loop {
            let reply = self.reply_in_time(patience, during).map_err(whose_fault)?;
            match reply.ok_or(Error::TimedOut(during))? {
                Reply::Authentication(request) => {
                    authenticator.step(&request, &mut self.wire.output)?;
                    if !self.wire.output.is_empty() {
                        self.wire.send(wait, during)?;
                    }
                }
                Reply::Ready if authenticator.is_done() => return Ok(()),
                _ => return Err(Error::protocol("an answer before there was a question")),
            }
        }
    }

    fn told_version(&self) -> u32 {
        let version = self.parameter("server_version").unwrap_or_default();
        let digits = version.split(|character: char| !character.is_ascii_digit());
        digits
            .into_iter()
            .next()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    }

    /// The server's major version.
    #[must_use]
    pub const fn major(&self) -> u32 {
        self.major
    }

    /// A parameter that the server reports by itself, such as `server_version` or `in_hot_standby`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.wire.transport().tls().is_some()
    }

    /// Whether a command can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// The notices that came since this was last called; the oldest go when there are many.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.drain(..).collect()
    }

    /// How long the server may be silent in a command or a backup before that is
    /// [`Error::TimedOut`]. `None`, which is so at the beginning: for ever, because a backup waits
    /// for a checkpoint, and may wait for the archive.
    pub fn set_silence_limit(&mut self, limit: Option<Duration>) {
        self.silence = limit;
    }

    /// What can end this connection from another thread.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn interrupter(&self) -> Result<Interrupter> {
        let socket = self.wire.transport().socket().try_clone();
        socket.map(Interrupter).map_err(Error::Io)
    }

    pub(crate) const fn silence(&self) -> Option<Duration> {
        self.silence
    }

    /// Sends a command. The connection is busy until `ReadyForQuery` has come.
    pub(crate) fn send(&mut self, command: &str, during: &'static str) -> Result<()> {
        if self.state != State::Ready {
            return Err(Error::GivenUp);
        }
        self.state = State::Busy;
        frontend::query(command, &mut self.wire.output)
            .map_err(|_| Error::Misuse("a command with a zero byte"))?;
        self.flush(during)
    }

    /// Sends what is in the output buffer.
    pub(crate) fn flush(&mut self, during: &'static str) -> Result<()> {
        match self.flush_unless_done(during)? {
            Sent::Whole => Ok(()),
            Sent::AfterTheEnd => Err(Error::EndedEarly(during)),
        }
    }

    /// Sends what is in the output buffer, to a server that may have carried the command out and
    /// gone by now.
    pub(crate) fn flush_unless_done(&mut self, during: &'static str) -> Result<Sent> {
        match self.wire.send(self.silence, during) {
            Ok(()) => Ok(Sent::Whole),
            Err(error) => {
                self.state = State::GivenUp;
                self.last_words(error)
            }
        }
    }

    /// Why the server ended the connection, if it said so before and it can still be read; else the
    /// error itself. Bytes of a copy that are met on the way are lost, and a command that ended
    /// behind them has not ended well.
    fn last_words(&mut self, error: Error) -> Result<Sent> {
        let patience = Patience::Silence(Some(FAREWELL));
        let mut lost = false;
        for _ in 0..LAST_WORDS_MAX {
            match self.reply_in_time(patience, "its end was being read") {
                Ok(Some(Reply::Complete)) if !lost => return Ok(Sent::AfterTheEnd),
                Ok(Some(Reply::CopyData(body))) => lost |= !self.wire.bytes(body).starts_with(b"k"),
                Ok(Some(_)) => {}
                Err(said @ Error::Server(_)) => return Err(said),
                Ok(None) | Err(_) => break,
            }
        }
        Err(error)
    }

    /// The next message of the command that is being carried out. Any error gives the connection
    /// up.
    pub(crate) fn reply(&mut self, during: &'static str) -> Result<Reply> {
        let patience = Patience::Silence(self.silence);
        let reply = self.reply_within(patience, during)?;
        reply.ok_or_else(|| {
            self.state = State::GivenUp;
            Error::TimedOut(during)
        })
    }

    /// As [`Self::reply`]; `None` when the patience ended, after which it can be called again.
    pub(crate) fn reply_within(
        &mut self,
        patience: Patience,
        during: &'static str,
    ) -> Result<Option<Reply>> {
        if self.state != State::Busy {
            return Err(Error::GivenUp);
        }
        let reply = self.reply_in_time(patience, during);
        match &reply {
            Ok(Some(Reply::Ready)) => self.state = State::Ready,
            Ok(_) => {}
            Err(_) => self.state = State::GivenUp,
        }
        reply
    }

    /// The next message that is not for this connection itself.
    fn reply_in_time(&mut self, patience: Patience, during: &'static str) -> Result<Option<Reply>> {
        loop {
            let Some(frame) = self.wire.frame(patience, during)? else {
                return Ok(None);
            };
            match reply::read(&self.wire, &frame)? {
                Reply::Nothing => {}
                Reply::Notice(notice) => {
                    if self.notices.len() == NOTICES_MAX {
                        self.notices.pop_front();
                    }
                    self.notices.push_back(notice);
                }
                Reply::Parameter(name, value) => {
                    let known = self.parameters.contains_key(&name);
                    if known || self.parameters.len() < PARAMETERS_MAX {
                        self.parameters.insert(name, value);
                    }
                }
                Reply::Error(error) => return Err(Error::Server(Box::new(error))),
                other => return Ok(Some(other)),
            }
            if patience.is_over() {
                return Ok(None);
            }
        }
    }

    /// Gives the connection up because of an unexpected message.
    pub(crate) fn out_of_place<T>(&mut self, text: impl Into<String>) -> Result<T> {
        self.state = State::GivenUp;
        Err(Error::protocol(text))
    }

    /// Carries out a command that answers with result sets. After an error of the server that is
    /// not fatal the connection can be used again.
    pub(crate) fn results(&mut self, command: &str, during: &'static str) -> Result<Vec<Vec<Row>>> {
        self.send(command, during)?;
        let results = self.take_results(during);
        if let Err(Error::Server(error)) = &results
            && !error.is_fatal()
        {
            self.recover(during);
        }
        results
    }

    fn take_results(&mut self, during: &'static str) -> Result<Vec<Vec<Row>>> {
        let mut sets: Vec<Vec<Row>> = Vec::new();
        let mut bytes = 0;
        loop {
            match self.reply(during)? {
                Reply::Columns if sets.len() < 16 => sets.push(Vec::new()),
                Reply::Row(row) => {
                    bytes += row_bytes(&row);
                    match sets.last_mut() {
                        Some(set) if bytes <= RESULT_MAX => set.push(row),
                        _ => return self.out_of_place("a result that is too large"),
                    }
                }
                Reply::Complete => {}
                Reply::Ready => return Ok(sets),
                _ => return self.out_of_place("an answer that is not a result"),
            }
        }
    }

    /// Reads up to the server's "ready" after an error of a command.
    pub(crate) fn recover(&mut self, during: &'static str) {
        self.state = State::Busy;
        // Whatever else it says makes the connection given up, and that is seen by the next
        // command.
        if !matches!(self.reply(during), Ok(Reply::Ready)) {
            self.state = State::GivenUp;
        }
    }
}

/// Whether bytes were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// They went out.
    Whole,
    /// They did not: the server had said that the command is done, and ended the connection.
    AfterTheEnd,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.state == State::Ready {
            frontend::terminate(&mut self.wire.output);
            // The server notices an end without a word too.
            drop(
                self.wire
                    .send(Some(FAREWELL), "the connection was being closed"),
            );
        }
        self.wire.close();
    }
}

/// What a row takes in memory, roughly.
pub(crate) fn row_bytes(row: &Row) -> usize {
    let values = row
        .iter()
        .map(|value| 32 + value.as_ref().map_or(0, Vec::len));
    values.sum::<usize>() + 32
}

/// An error of class 28 during the setup of a connection is one of authentication.
fn whose_fault(error: Error) -> Error {
    match error {
        Error::Server(told) if told.sqlstate.starts_with("28") => {
            Error::Authentication(told.to_string())
        }
        other => other,
    }
}
