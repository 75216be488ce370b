//! A client's connection that the server has authenticated: startup, then messages one by one.
//!
//! Invariant Q7: 64 notices and 256 parameters are kept. Must not: know which message a command
//! expects; that is the caller's.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::authentication::{AuthenticationPolicy, Authenticator};
use super::config::Config;
use super::error::{AuthenticationError, Error, Result, ServerError};
use super::message_stream::{MessageStream, WaitLimit};
use super::reply::{self, Reply};
use super::socket::{Socket, time_left};
use super::tls;
use super::transport::Transport;

const NOTICES_MAX: usize = 64;
const PARAMETERS_MAX: usize = 256;

/// What a kind of client needs beside the settings of the connection.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Parameters of the startup packet beside those that the settings name.
    pub parameters: &'static [(&'static str, &'static str)],
    /// Longest body of a message that is accepted, in bytes.
    pub body_max: usize,
    /// What is accepted of a server that asks for a password.
    pub authentication: AuthenticationPolicy,
}

/// A connection. Dropped, it ends TLS, and the socket is closed without a message of the protocol.
#[derive(Debug)]
pub struct Session {
    stream: MessageStream,
    parameters: BTreeMap<String, String>,
    notices: VecDeque<ServerError>,
}

impl Session {
    /// Connects to the server of the settings and authenticates, within `connect_timeout` of the
    /// settings, if they have one. Reads the files that the settings name.
    ///
    /// # Errors
    /// Every kind but [`Error::GivenUp`] and [`Error::Unsupported`].
    pub fn open(config: &Config, options: &SessionOptions) -> Result<Self> {
        let deadline = config.connect_timeout.map(|wait| Instant::now() + wait);
        let socket = Socket::connect(config, deadline)?;
        Self::begin(socket, config, options, deadline)
    }

    /// Authenticates on a socket that is connected already, within `connect_timeout` of the
    /// settings. TLS is begun first, if the settings ask for it and the socket is not local.
    ///
    /// # Errors
    /// Every kind but [`Error::GivenUp`] and [`Error::Unsupported`].
    pub fn on_socket(socket: Socket, config: &Config, options: &SessionOptions) -> Result<Self> {
        let deadline = config.connect_timeout.map(|wait| Instant::now() + wait);
        Self::begin(socket, config, options, deadline)
    }

    /// Begins TLS where it is to be used, and authenticates, until the deadline. Fails as
    /// [`Self::open`] does.
    fn begin(
        socket: Socket,
        config: &Config,
        options: &SessionOptions,
        deadline: Option<Instant>,
    ) -> Result<Self> {
        let transport = Transport::agree(socket, config, deadline)?;
        let mut session = Self {
            stream: MessageStream::new(transport, options.body_max),
            parameters: BTreeMap::new(),
            notices: VecDeque::new(),
        };
        session.start(config, options, deadline)?;
        Ok(session)
    }

    /// Sends the startup packet and authenticates; returns when the server is ready for commands.
    /// Fails with [`Error::TimedOut`] at the deadline, with [`Error::Authentication`], with the
    /// server's error, and with those of the protocol and the connection.
    fn start(
        &mut self,
        config: &Config,
        options: &SessionOptions,
        deadline: Option<Instant>,
    ) -> Result<()> {
        let during = "the connection was being set up";
        let mut parameters = vec![("user", config.user.as_str())];
        parameters.extend_from_slice(options.parameters);
        parameters.extend([
            ("application_name", config.application_name.as_str()),
            ("client_encoding", "UTF8"),
        ]);
        for (name, value) in [("database", &config.database), ("options", &config.options)] {
            if !value.is_empty() {
                parameters.push((name, value));
            }
        }
        frontend::startup_message(parameters, &mut self.stream.output)
            .map_err(|_| Error::Misuse("a setting with a zero byte"))?;
        let wait = deadline.map(time_left);
        self.send(wait, during)?;
        let transport = self.stream.transport();
        let end_point = transport.tls().and_then(tls::server_end_point);
        let (private, is_tls) = (transport.is_private(), transport.tls().is_some());
        let policy = options.authentication;
        let mut authenticator = Authenticator::new(config, policy, private, is_tls, end_point);
        let limit = deadline.map_or(WaitLimit::Silence(None), WaitLimit::Until);
        loop {
            let reply = self.reply(limit, during).map_err(refused_login)?;
            match reply.ok_or(Error::TimedOut(during))? {
                Reply::Authentication(request) => {
                    authenticator.step(&request, &mut self.stream.output)?;
                    if !self.stream.output.is_empty() {
                        self.send(wait, during)?;
                    }
                }
                Reply::Ready if authenticator.is_done() => return Ok(()),
                Reply::Step(tag) => return Err(reply::unexpected_message(tag)),
                _ => return Err(Error::protocol("an answer before there was a question")),
            }
        }
    }

    /// Returns the value of a parameter that the server reports by itself, such as `server_version`
    /// or `in_hot_standby`. `None` if it has not reported one of this name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Returns whether the connection uses TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.stream.transport().tls().is_some()
    }

    /// Removes and returns the notices that have come since the last call, oldest first. Only the
    /// newest 64 are kept.
    pub fn take_notices(&mut self) -> Vec<ServerError> {
        self.notices.drain(..).collect()
    }

    /// Returns the connection's socket. To write to it, or to read from it, breaks the connection.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        self.stream.transport().socket()
    }

    /// Returns the buffer of the messages that [`Self::send`] sends.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.stream.output
    }

    /// Sends the messages in the output buffer, each part within `wait`, and overwrites and removes
    /// them, also after an error. `during` says in an error what was going on.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when nothing could be sent within `wait`; those of the connection.
    pub fn send(&mut self, wait: Option<Duration>, during: &'static str) -> Result<()> {
        self.stream.send(wait, during)
    }

    /// Waits for the next message and returns it. Notices and parameters are kept for
    /// [`Self::take_notices`] and [`Self::parameter`] and not returned. `None` when the limit was
    /// reached first; a message of which a part has come is not lost.
    ///
    /// # Errors
    /// [`Error::Server`] for an error message of the server; those of the protocol and of the
    /// connection.
    pub fn reply(&mut self, limit: WaitLimit, during: &'static str) -> Result<Option<Reply>> {
        loop {
            let Some(frame) = self.stream.frame(limit, during)? else {
                return Ok(None);
            };
            let body = self.stream.bytes(frame.body.clone());
            match reply::parse(frame.tag, body, frame.body.start)? {
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
            if limit.has_passed() {
                return Ok(None);
            }
        }
    }

    /// Returns the bytes of a range that a reply named. The next call of [`Self::reply`] may
    /// overwrite them. Empty for a range outside the buffer.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.stream.bytes(range)
    }
}

impl Drop for Session {
    /// Sends the end of TLS, if the connection uses it, and waits at most [`super::CLOSE_TIMEOUT`]
    /// for that. Sends no `Terminate` message.
    fn drop(&mut self) {
        self.stream.close();
    }
}

/// Turns a server's error of SQLSTATE class 28 into [`AuthenticationError::Refused`]; returns every
/// other error as it is.
fn refused_login(error: Error) -> Error {
    match error {
        Error::Server(error) if error.sqlstate.starts_with("28") => {
            AuthenticationError::Refused(error).into()
        }
        other => other,
    }
}
