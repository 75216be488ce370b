//! Why a call failed: a kind by which callers decide, a stable code, and what happened at each
//! server.
//!
//! Invariant N6: no message holds key material, a token or a private key. A server's own text is
//! cut short and has no control characters.

use std::fmt;

use strongroom_format::code::{self, Code};

/// What this crate's functions return.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// What sort of failure it is. Callers that have an alternative decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The configuration cannot be used. Nothing was sent.
    Config,
    /// A text is not the address of a server. Nothing was sent.
    Address,
    /// A file that the configuration names cannot be used. Nothing was sent.
    NodeFile,
    /// No server responded within the total time.
    Unreachable,
    /// All servers are absent: the connection is refused, or the host is not known. Only for a
    /// client that does not wait for that to change ([`crate::Client::not_waiting`]).
    Absent,
    /// A server does not accept this node's certificate.
    NotAccepted,
    /// A trusted server refuses this node.
    Denied,
    /// Nothing has that name, or it is not granted to this node.
    NotFound,
    /// The key is disabled.
    Disabled,
    /// The key is destroyed.
    Destroyed,
    /// The servers are sealed, and remained so until the time was over.
    Sealed,
    /// The servers asked to wait until the time was over.
    Busy,
    /// The server does not have a certificate of the configured authority.
    NotTrusted,
    /// The response does not fit the request.
    Malformed,
    /// Something of that name exists already.
    Exists,
    /// The server does not accept the request, also because a state does not allow it.
    Refused,
    /// A request for a change was sent, and no response says whether it took effect: the connection
    /// broke, or the server failed.
    Uncertain,
    /// The one-time token was not accepted.
    Token,
    /// The host failed: no memory, no random numbers.
    Host,
}

impl Kind {
    /// Returns the stable code of a kind, which an error has unless a server gave another one.
    fn code(self) -> &'static Code {
        match self {
            Self::Config => &code::NODE_CONFIG,
            Self::Address => &code::KEYSERVER_ADDRESS,
            Self::Absent => &code::KEYSERVER_NOBODY,
            Self::NodeFile => &code::NODE_FILE,
            Self::Unreachable | Self::Sealed | Self::Busy => &code::KEYSERVER_UNREACHABLE,
            Self::NotTrusted => &code::KEYSERVER_NOT_TRUSTED,
            Self::Malformed => &code::KEYSERVER_ANSWER,
            Self::Uncertain => &code::KEYSERVER_UNCERTAIN,
            Self::NotAccepted => &code::KEYSERVER_NOT_ACCEPTED,
            Self::Denied
            | Self::NotFound
            | Self::Disabled
            | Self::Destroyed
            | Self::Exists
            | Self::Refused
            | Self::Token => &code::KEYSERVER_REFUSED,
            Self::Host => &code::IO,
        }
    }
}

/// A failed call.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    code: &'static Code,
    detail: String,
}

impl Error {
    /// Makes an error of this kind with the kind's own code. `detail` must not hold a secret.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            code: kind.code(),
            detail: detail.into(),
        }
    }

    /// Replaces the code by the one that a server gave. `None` leaves it.
    pub(crate) fn with_code(self, code: Option<&'static Code>) -> Self {
        Self {
            code: code.unwrap_or(self.code),
            ..self
        }
    }

    /// Returns the same error as another kind. The code and the text stay.
    pub(crate) fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// What sort of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the stable code: the one that a server gave, else that of the kind.
    #[must_use]
    pub fn code(&self) -> &'static Code {
        self.code
    }

    /// Returns the text that says what happened, and at which server. Never a secret.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Error {
    /// Writes `SR-nnnn: what happened (detail)`, as for every error; the detail names the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code;
        write!(f, "SR-{:04}: {} ({})", code.number, code.what, self.detail)
    }
}

impl std::error::Error for Error {}

impl From<Error> for strongroom_keyring::Error {
    /// Keeps code and detail; the kind is lost.
    fn from(error: Error) -> Self {
        Self::new(error.code, error.detail)
    }
}

impl From<strongroom_crypto::CryptoError> for Error {
    /// Makes an error of [`Kind::Host`] (SR-5001).
    fn from(error: strongroom_crypto::CryptoError) -> Self {
        Self::new(Kind::Host, error.to_string())
    }
}
