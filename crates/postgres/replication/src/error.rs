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
    Authentication(String),
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
    /// Whether the server closes the connection after it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.severity != "ERROR"
    }
}

impl fmt::Display for ServerError {
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
    /// The server's SQLSTATE, where it is the server that failed.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Server(error) => Some(&error.sqlstate),
            _ => None,
        }
    }

    /// What reading or writing failed with, while `during` was going on.
    pub(crate) fn transfer(error: io::Error, during: &'static str) -> Self {
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

    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::Protocol(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) => write!(f, "connection settings: {text}"),
            Self::Connect { address, source } => write!(f, "no connection to {address}: {source}"),
            Self::Tls(text) => write!(f, "TLS: {text}"),
            Self::Authentication(text) => write!(f, "authentication: {text}"),
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
