//! Why a command's connection to PostgreSQL could not do something.

use std::fmt;
use std::io;

use crate::proxy::wire::Fields;

/// Why a connection or statement failed.
#[derive(Debug)]
pub enum Error {
    /// The connection has failed.
    Io(io::Error),
    /// An error of the server.
    Server {
        /// SQLSTATE.
        state: String,
        /// Its message.
        message: String,
    },
    /// An answer that the protocol does not allow here.
    Protocol(&'static str),
    /// The server asks for more than was given, or has not proved that it knows the password.
    Login(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the connection to the server: {error}"),
            Self::Server { state, message } => write!(f, "{message} (SQLSTATE {state})"),
            Self::Protocol(what) => write!(f, "the server's answer: {what}"),
            Self::Login(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Error {
    /// The SQLSTATE, if it is an error of the server.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Server { state, .. } => Some(state),
            _ => None,
        }
    }
}

/// The error of an `ErrorResponse`.
pub(super) fn server_error(body: &[u8]) -> Error {
    let field = |tag: u8| {
        let mut fields = Fields(body);
        while let Some(found) = fields.byte().filter(|found| *found != 0) {
            let text = fields.string()?;
            if found == tag {
                return Some(String::from_utf8_lossy(text).into_owned());
            }
        }
        None
    };
    Error::Server {
        state: field(b'C').unwrap_or_default(),
        message: field(b'M').unwrap_or_default(),
    }
}
