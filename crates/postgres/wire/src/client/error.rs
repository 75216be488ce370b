//! The error type of this crate.
//!
//! Invariant Q1: no message holds a password or a private key. Text of the server is passed on as
//! it came, with control characters taken out; the server never has the password in clear unless it
//! was sent for that purpose.

use std::fmt;
use std::io;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. After any but [`Error::Config`], [`Error::Misuse`] and a [`Error::Server`]
/// that is not fatal, the connection is given up.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The connection string, the environment or a file that they name cannot be used.
    Config(String),
    /// No connection to the server's address could be made.
    Connect {
        /// Host and port, or the path of the socket.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// TLS was refused, failed, or the certificate is not the one that was asked for.
    Tls(String),
    /// Authentication failed, or the server could not prove that it knows the password.
    Authentication(AuthenticationError),
    /// The server answered with an error.
    Server(Box<ServerError>),
    /// The server sent what the protocol does not allow here.
    Protocol(String),
    /// The connection ended before the server had said that it was done: what was received is not
    /// whole.
    EndedEarly(&'static str),
    /// The server was silent for longer than was allowed.
    TimedOut(&'static str),
    /// The system failed while reading or writing.
    Io(io::Error),
    /// The server's version is not one that this crate knows how to speak to, or it lacks what was
    /// asked for.
    Unsupported(String),
    /// An argument that cannot be sent. A defect of the caller.
    Misuse(&'static str),
    /// This connection was given up after an earlier failure, or a stream on it was dropped before
    /// its end.
    GivenUp,
}

/// Why authentication failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum AuthenticationError {
    /// The server asks for a password. There is none, for this reason if there is a password file
    /// that is not used.
    NoPassword(Option<String>),
    /// The server asks for this over a connection that is neither TLS nor a local socket.
    NotPrivate(&'static str),
    /// The server asks for a method that is not supported, or that the caller does not accept.
    Unsupported(&'static str),
    /// The server offers SASL without SCRAM-SHA-256.
    NoScram,
    /// A message of SCRAM that is refused.
    Scram(&'static str),
    /// The server's proof that it knows the password is wrong.
    NotProven,
    /// The server ended SCRAM before it had proved that it knows the password.
    EndedWithoutProof,
    /// `channel_binding=require`, and the server cannot bind, or did not.
    NotBound(&'static str),
    /// The server offers channel binding on a connection without TLS.
    BindingWithoutTls,
    /// The server refused the login.
    Refused(Box<ServerError>),
    /// The system lacks locked memory or random numbers.
    System(&'static str),
}

impl From<AuthenticationError> for Error {
    fn from(error: AuthenticationError) -> Self {
        Self::Authentication(error)
    }
}

impl fmt::Display for AuthenticationError {
    /// Writes why the login was not possible, without any password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let no_password = "the server asks for a password and none is given";
        match self {
            Self::NoPassword(None) => f.write_str(no_password),
            Self::NoPassword(Some(why)) => write!(f, "{no_password}: {why}"),
            Self::NotPrivate(what) => write!(
                f,
                "the server wants {what}, which is sent over TLS or a local socket only; \
                 use scram-sha-256 or TLS"
            ),
            Self::Unsupported(method) => write!(
                f,
                "the server asks for {method}, which this program cannot do"
            ),
            Self::NoScram => f.write_str("the server has no SCRAM-SHA-256"),
            Self::Scram(what) => write!(f, "SCRAM: {what}"),
            Self::NotProven => f.write_str("the server did not prove that it knows us"),
            Self::EndedWithoutProof => f.write_str("the server ends SCRAM without its own proof"),
            Self::NotBound(what) => write!(f, "channel_binding=require, and the server {what}"),
            Self::BindingWithoutTls => {
                f.write_str("the server offers to bind to TLS that there is not")
            }
            Self::Refused(error) => error.fmt(f),
            Self::System(what) => write!(f, "the system has {what}"),
        }
    }
}

/// An error as the server reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// `ERROR`, `FATAL` or `PANIC`, never translated.
    pub severity: String,
    /// Five characters, by which errors are told apart (PostgreSQL documentation, appendix A).
    pub sqlstate: String,
    /// One line, perhaps translated.
    pub message: String,
    /// May be empty.
    pub detail: String,
    /// May be empty.
    pub hint: String,
}

impl ServerError {
    /// Returns whether the server closes the connection after this error: for FATAL and PANIC. Like
    /// them, every severity but ERROR counts as fatal.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.severity != "ERROR"
    }
}

impl fmt::Display for ServerError {
    /// Writes severity, message and SQLSTATE, then detail and hint where there are any. The server
    /// may quote data in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.severity, self.message, self.sqlstate)?;
        for (name, text) in [("detail", &self.detail), ("hint", &self.hint)] {
            if !text.is_empty() {
                write!(f, "; {name}: {text}")?;
            }
        }
        Ok(())
    }
}

impl Error {
    /// Returns the SQLSTATE of an [`Error::Server`]. `None` for every other error, also for a
    /// refused login.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Server(error) => Some(&error.sqlstate),
            _ => None,
        }
    }

    /// Makes the error of a read or write that failed with `error` while `during` was going on: a
    /// timeout becomes [`Error::TimedOut`], a connection that has ended [`Error::EndedEarly`],
    /// `InvalidData` [`Error::Tls`], and everything else [`Error::Io`].
    #[must_use]
    pub fn transfer(error: io::Error, during: &'static str) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TimedOut(during),
            // A server that is killed, or that shuts down, resets connections.
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof => Self::EndedEarly(during),
            io::ErrorKind::InvalidData => Self::Tls(error.to_string()),
            _ => Self::Io(error),
        }
    }

    /// Returns [`Error::Protocol`] with this text.
    #[must_use]
    pub fn protocol(text: impl Into<String>) -> Self {
        Self::Protocol(text.into())
    }
}

impl fmt::Display for Error {
    /// Writes what failed, with the server's own text where it gave one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) => write!(f, "connection settings: {text}"),
            Self::Connect { address, source } => write!(f, "no connection to {address}: {source}"),
            Self::Tls(text) => write!(f, "TLS: {text}"),
            Self::Authentication(error) => write!(f, "authentication: {error}"),
            Self::Server(error) => write!(f, "the server reports {error}"),
            Self::Protocol(text) => {
                write!(f, "the server does not keep to the protocol: {text}")
            }
            Self::EndedEarly(during) => {
                write!(f, "the connection ended early, while {during}")
            }
            Self::TimedOut(during) => write!(f, "the server was silent too long, while {during}"),
            Self::Io(error) => write!(f, "reading or writing failed: {error}"),
            Self::Unsupported(text) => write!(f, "not supported: {text}"),
            Self::Misuse(text) => write!(f, "cannot be sent: {text}"),
            Self::GivenUp => write!(f, "the connection was given up earlier"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } | Self::Io(source) => Some(source),
            _ => None,
        }
    }
}
