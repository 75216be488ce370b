//! Why a call failed: a kind that callers decide by, a stable code, and what happened at each
//! server.
//!
//! Invariant N6: no message holds key material, a token or a private key. A server's own words are
//! shown cut short and without control characters.

use std::fmt;

use strongroom_format::code::{self, Code};

/// What this crate's functions return.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// What sort of failure it is. Callers with something to fall back on decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The configuration cannot be used. Nothing was sent.
    Config,
    /// A text that was given as the address of a server is not one. Nothing was sent.
    Address,
    /// A file that the configuration names cannot be used. Nothing was sent.
    NodeFile,
    /// No server answered in the whole of the time.
    Unreachable,
    /// At every address there is nobody: the connection is refused, or the host is not known. Only
    /// for a client that does not wait for that to change ([`crate::Client::not_waiting`]).
    Nobody,
    /// A server does not accept this node's certificate.
    NotAccepted,
    /// A server that was trusted refuses this node.
    Denied,
    /// There is nothing of that name, or it is not granted to this node.
    NotFound,
    /// The key is disabled.
    Disabled,
    /// The key is destroyed.
    Destroyed,
    /// The servers are sealed, and were until the time was over.
    Sealed,
    /// The servers asked to wait until the time was over.
    Busy,
    /// Who answered is not a server that the configured authority vouches for.
    NotTrusted,
    /// What was answered is not an answer to what was asked.
    Malformed,
    /// There is something of that name already.
    Exists,
    /// The server does not accept the request.
    Refused,
    /// The connection broke after a change was sent: whether it was made is not known.
    Uncertain,
    /// The one-time token was not accepted.
    Token,
    /// The host failed: no memory, no random numbers.
    Host,
}

impl Kind {
    /// The stable code where no server named one.
    fn code(self) -> &'static Code {
        match self {
            Self::Config => &code::NODE_CONFIG,
            Self::Address => &code::KEYSERVER_ADDRESS,
            Self::Nobody => &code::KEYSERVER_NOBODY,
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
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            code: kind.code(),
            detail: detail.into(),
        }
    }

    /// With the code that a server named, if it did.
    pub(crate) fn with_code(self, code: Option<&'static Code>) -> Self {
        Self {
            code: code.unwrap_or(self.code),
            ..self
        }
    }

    /// The same told as another kind.
    pub(crate) fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// What sort of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static Code {
        self.code
    }

    /// What it was about. Never a secret.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code;
        write!(f, "SR-{:04}: {} ({})", code.number, code.what, self.detail)
    }
}

impl std::error::Error for Error {}

impl From<Error> for strongroom_keyring::Error {
    fn from(error: Error) -> Self {
        Self::new(error.code, error.detail)
    }
}

impl From<strongroom_crypto::CryptoError> for Error {
    fn from(error: strongroom_crypto::CryptoError) -> Self {
        Self::new(Kind::Host, error.to_string())
    }
}
