//! One replication connection: opens it, sends a command, collects its results.
//!
//! Invariants:
//! - Q11: a connection is ready, busy, or given up. Only the server's `ReadyForQuery` makes a busy
//!   connection ready again, so that messages of a dropped stream or of a failed command are never
//!   taken for the answer to a later command.
//! - Q7: a message is at most 1 MiB, a result at most [`RESULT_MAX`].

use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use strongroom_postgres_wire::client::{
    AuthenticationPolicy, CLOSE_TIMEOUT, Config, Error, Reply, Result, Row, ServerError, Session,
    SessionOptions, Socket, WaitLimit, unexpected_message,
};

/// Largest result of a command, in bytes.
const RESULT_MAX: usize = 16 << 20;

/// Longest message that is accepted, type and length included, in bytes. The server's longest are
/// 128 KiB of the log and 32 KiB of a backup; history files and lists of tablespaces are far below.
const MESSAGE_MAX: usize = 1 << 20;

/// What a replication connection is beside its settings.
const OPTIONS: SessionOptions = SessionOptions {
    parameters: &[("replication", "true")],
    body_max: MESSAGE_MAX - 5,
    authentication: AuthenticationPolicy {
        accepts_md5: true,
        rounds_max: 100_000,
    },
};

/// The oldest major version of PostgreSQL whose `BASE_BACKUP` has the syntax that is used here.
const OLDEST: u32 = 15;

/// The most messages that are searched for the reason why the server ended a connection.
const END_MESSAGES_MAX: usize = 10_000;

/// A notice of the server, usually a warning.
pub type Notice = ServerError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A command can be sent.
    Ready,
    /// A command is being executed; `ReadyForQuery` has not come yet.
    Busy,
    /// A failure left unread messages: every further use is [`Error::GivenUp`].
    GivenUp,
}

/// A connection to a WAL sender, the server process that sends base backups and the log.
#[derive(Debug)]
pub struct Connection {
    pub(crate) session: Session,
    pub(crate) state: State,
    /// How long the server may send nothing during a command or a backup.
    silence: Option<Duration>,
    major: u32,
}

/// Ends a connection from another thread.
#[derive(Debug)]
pub struct Interrupter(Socket);

impl Interrupter {
    /// Shuts the socket down: the call that waits on the connection, and every later one, fails
    /// with [`Error::EndedEarly`].
    ///
    /// # Errors
    /// The system's. A connection that has ended already is no error.
    pub fn interrupt(&self) -> std::io::Result<()> {
        match self.0.shut_down() {
            Err(error) if error.kind() != std::io::ErrorKind::NotConnected => Err(error),
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// Connects to the server as a physical replication client, and authenticates.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a server before PostgreSQL 15; every other kind but
    /// [`Error::GivenUp`].
    pub fn open(config: &Config) -> Result<Self> {
        Self::begin(Session::open(config, &OPTIONS)?)
    }

    /// Authenticates as a physical replication client on a local socket that is connected already.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a server before PostgreSQL 15; every other kind but
    /// [`Error::GivenUp`].
    pub fn on_socket(socket: UnixStream, config: &Config) -> Result<Self> {
        Self::begin(Session::on_socket(Socket::Local(socket), config, &OPTIONS)?)
    }

    /// Takes over an authenticated session. [`Error::Unsupported`] for a server that is too old.
    fn begin(session: Session) -> Result<Self> {
        let mut connection = Self {
            session,
            state: State::Ready,
            silence: None,
            major: 0,
        };
        connection.major = connection.parse_version();
        if connection.major < OLDEST {
            // A server that is not spoken to gets no message of the end either.
            connection.state = State::GivenUp;
            let version = connection.parameter("server_version").unwrap_or("unknown");
            return Err(Error::Unsupported(format!(
                "PostgreSQL {version}; it has to be {OLDEST} or later"
            )));
        }
        Ok(connection)
    }

    /// Returns the major version that the server reports; 0 when it reports none.
    fn parse_version(&self) -> u32 {
        let version = self.parameter("server_version").unwrap_or_default();
        let digits = version.split(|character: char| !character.is_ascii_digit());
        digits
            .into_iter()
            .next()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    }

    /// Returns the server's major version.
    #[must_use]
    pub const fn major(&self) -> u32 {
        self.major
    }

    /// Returns a parameter that the server reports by itself, such as `server_version` or
    /// `in_hot_standby`. `None` when it has not reported it.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.session.parameter(name)
    }

    /// Returns whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.session.is_tls()
    }

    /// Returns whether a command can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Removes and returns the notices that came since this was last called, oldest first; the
    /// oldest are dropped when there are many.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.session.take_notices()
    }

    /// Sets how long the server may send nothing during a command or a backup before the call fails
    /// with [`Error::TimedOut`]. The default is `None`, no limit, because a backup waits for a
    /// checkpoint, and may wait until the server has archived its log.
    pub fn set_silence_limit(&mut self, limit: Option<Duration>) {
        self.silence = limit;
    }

    /// Returns a handle that ends this connection from another thread.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn interrupter(&self) -> Result<Interrupter> {
        let socket = self.session.socket().try_clone();
        socket.map(Interrupter).map_err(Error::Io)
    }

    /// Returns how long the server may send nothing during a command or a backup; `None` is without
    /// limit.
    pub(crate) const fn silence(&self) -> Option<Duration> {
        self.silence
    }

    /// Sends a command. The connection is busy until `ReadyForQuery` has come. [`Error::GivenUp`]
    /// unless the connection is ready; [`Error::Misuse`] for a command with a zero byte or one that
    /// is too long, after which it is still ready; as [`Self::flush`].
    pub(crate) fn send(&mut self, command: &str, during: &'static str) -> Result<()> {
        if self.state != State::Ready {
            return Err(Error::GivenUp);
        }
        let output = self.session.output();
        let before = output.len();
        if frontend::query(command, output).is_err() {
            // The beginning of the message is there already.
            output.truncate(before);
            let text = "a command with a zero byte, or one that is too long";
            return Err(Error::Misuse(text));
        }
        self.state = State::Busy;
        self.flush(during)
    }

    /// Sends the messages of the output buffer. Any failure gives the connection up: the server's
    /// error if it sent one before it closed the connection, [`Error::EndedEarly`] when it had
    /// completed the command, otherwise that of the write.
    pub(crate) fn flush(&mut self, during: &'static str) -> Result<()> {
        match self.flush_or_end(during)? {
            Sent::Whole => Ok(()),
            Sent::AfterTheEnd => Err(Error::EndedEarly(during)),
        }
    }

    /// Sends the messages of the output buffer to a server that may have completed the command and
    /// closed the connection by now, which is [`Sent::AfterTheEnd`]. That and any error give the
    /// connection up; the error is the server's, if it sent one.
    pub(crate) fn flush_or_end(&mut self, during: &'static str) -> Result<Sent> {
        match self.session.send(self.silence, during) {
            Ok(()) => Ok(Sent::Whole),
            Err(error) => {
                self.state = State::GivenUp;
                self.reason_of_end(error)
            }
        }
    }

    /// Looks for the reason of a failed write in the messages that the server sent before it closed
    /// the connection: returns its error if there is one, else `error`. A `CommandComplete` among
    /// them is [`Sent::AfterTheEnd`], unless data of a copy came before it: that data is lost.
    fn reason_of_end(&mut self, error: Error) -> Result<Sent> {
        let limit = WaitLimit::Silence(Some(CLOSE_TIMEOUT));
        let mut lost = false;
        for _ in 0..END_MESSAGES_MAX {
            match self.next_reply(limit, "its end was being read") {
                Ok(Some(Reply::Complete(_))) if !lost => return Ok(Sent::AfterTheEnd),
                Ok(Some(Reply::CopyData(body))) => {
                    lost |= !self.session.bytes(body).starts_with(b"k");
                }
                Ok(Some(_)) => {}
                Err(said @ Error::Server(_)) => return Err(said),
                Ok(None) | Err(_) => break,
            }
        }
        Err(error)
    }

    /// Waits for the next message of the answer to the current command, and returns it. Any error,
    /// and a server that is silent for longer than the limit ([`Error::TimedOut`]), gives the
    /// connection up.
    pub(crate) fn reply(&mut self, during: &'static str) -> Result<Reply> {
        let limit = WaitLimit::Silence(self.silence);
        let reply = self.reply_within(limit, during)?;
        reply.ok_or_else(|| {
            self.state = State::GivenUp;
            Error::TimedOut(during)
        })
    }

    /// Waits for the next message of the answer to the current command, within this limit. `None`
    /// when the limit was reached, after which the call can be repeated. `ReadyForQuery` makes the
    /// connection ready.
    ///
    /// Any error, that of the server included, gives the connection up; [`Error::GivenUp`] when no
    /// command is being executed.
    pub(crate) fn reply_within(
        &mut self,
        limit: WaitLimit,
        during: &'static str,
    ) -> Result<Option<Reply>> {
        if self.state != State::Busy {
            return Err(Error::GivenUp);
        }
        let reply = self.next_reply(limit, during);
        match &reply {
            Ok(Some(Reply::Ready)) => self.state = State::Ready,
            Ok(_) => {}
            Err(_) => self.state = State::GivenUp,
        }
        reply
    }

    /// Waits for the next message of the server within this limit; `None` when the limit was
    /// reached. [`Error::Server`] for an error message of the server; [`Error::Protocol`] for
    /// messages that only the extended protocol has; the errors of the connection.
    fn next_reply(&mut self, limit: WaitLimit, during: &'static str) -> Result<Option<Reply>> {
        match self.session.reply(limit, during)? {
            Some(Reply::Step(tag)) => Err(unexpected_message(tag)),
            reply => Ok(reply),
        }
    }

    /// Returns the buffer of messages that [`Self::flush`] sends.
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        self.session.output()
    }

    /// Gives the connection up because of a message that the protocol does not allow here, and
    /// returns [`Error::Protocol`] with this text.
    pub(crate) fn fail_protocol<T>(&mut self, text: impl Into<String>) -> Result<T> {
        self.state = State::GivenUp;
        Err(Error::protocol(text))
    }

    /// Executes a command whose answer is result sets, and returns the rows of each. After an error
    /// of the server that is not fatal the connection can be used again; any other error gives it
    /// up.
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

    /// Reads result sets until the server is ready, and returns the rows of each.
    /// [`Error::Protocol`] for more than 16 sets, for rows of more than [`RESULT_MAX`] bytes
    /// together, and for any other message.
    fn take_results(&mut self, during: &'static str) -> Result<Vec<Vec<Row>>> {
        let mut sets: Vec<Vec<Row>> = Vec::new();
        let mut bytes = 0;
        loop {
            match self.reply(during)? {
                Reply::Columns(_) if sets.len() < 16 => sets.push(Vec::new()),
                Reply::Row(row) => {
                    bytes += row_bytes(&row);
                    match sets.last_mut() {
                        Some(set) if bytes <= RESULT_MAX => set.push(row),
                        _ => return self.fail_protocol("a result that is too large"),
                    }
                }
                Reply::Complete(_) => {}
                Reply::Ready => return Ok(sets),
                _ => return self.fail_protocol("an answer that is not a result"),
            }
        }
    }

    /// Reads the `ReadyForQuery` that follows an error of a command, after which the connection is
    /// ready again. Any other message gives the connection up, which the next command reports.
    pub(crate) fn recover(&mut self, during: &'static str) {
        self.state = State::Busy;
        if !matches!(self.reply(during), Ok(Reply::Ready)) {
            self.state = State::GivenUp;
        }
    }
}

/// The outcome of a write that the server need not have waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All bytes were sent.
    Whole,
    /// Not all were sent: the server had completed the command and closed the connection.
    AfterTheEnd,
}

impl Drop for Connection {
    /// Tells the server that the connection ends, when no command is being executed, and waits for
    /// a limited time until that is sent.
    fn drop(&mut self) {
        if self.state == State::Ready {
            frontend::terminate(self.session.output());
            // The server notices a connection that is closed without this message too.
            drop(
                self.session
                    .send(Some(CLOSE_TIMEOUT), "the connection was being closed"),
            );
        }
    }
}

/// Returns the memory that a row occupies, estimated, in bytes.
pub(crate) fn row_bytes(row: &Row) -> usize {
    let values = row
        .iter()
        .map(|value| 32 + value.as_ref().map_or(0, Vec::len));
    values.sum::<usize>() + 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_command_that_cannot_be_written_leaves_the_connection_ready() {
        let (client, mut peer) = UnixStream::pair().unwrap();
        // AuthenticationOk, a version, ReadyForQuery.
        peer.write_all(b"R\0\0\0\x08\0\0\0\0").unwrap();
        peer.write_all(b"S\0\0\0\x18server_version\x0017.1\0")
            .unwrap();
        peer.write_all(b"Z\0\0\0\x05I").unwrap();
        let config = Config::without_tls("u", "", None);
        let mut connection = Connection::on_socket(client, &config).unwrap();
        let refused = connection.send("SELECT '\0'", "it was tested");
        assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
        assert!(connection.is_ready());
        connection.send("IDENTIFY_SYSTEM", "it was tested").unwrap();
        assert!(!connection.is_ready());
        drop(connection);
        let mut sent = Vec::new();
        peer.read_to_end(&mut sent).unwrap();
        // The startup packet, and nothing of the first command.
        assert_eq!(sent[..3], [0; 3]);
        let startup = usize::from(sent[3]);
        assert_eq!(&sent[startup..], b"Q\0\0\0\x14IDENTIFY_SYSTEM\0");
    }
}
