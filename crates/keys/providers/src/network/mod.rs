//! What the providers with a server share: a deadline, options, TLS, HTTP, and how a sealed root
//! key is stored.
//!
//! Invariants:
//! - R1: every wait has an end that is known before it begins: name resolution, connection,
//!   handshake, question and answer.
//! - R2: nothing that a server says in words of its own gets into an error: it could be what it was
//!   told or asked for.
//! - R3: an answer is bounded before it is read, and believed only when it is exactly what was
//!   asked for.
//! - R4: a root key that a server gives back is the one that was sealed, or an error: see
//!   [`wrapped`].
//!
//! Must not: retry without end; follow a redirection; use a proxy that only the environment names;
//! keep a credential longer than a request.

pub(crate) mod credential;
pub(crate) mod deadline;
pub(crate) mod http;
pub(crate) mod locator;
pub(crate) mod tls;
pub(crate) mod wrapped;

use strongroom_format::code::Code;
use strongroom_keyring::Error;

/// An error of this code.
pub(crate) fn error(code: &'static Code, detail: impl Into<String>) -> Error {
    Error::new(code, detail)
}

/// A name from outside for an error: kept if it is a short word of an API, and not told otherwise
/// (R2).
pub(crate) fn word_of<'a>(given: &str, known: &[&'a str]) -> &'a str {
    let found = known.iter().find(|known| **known == given);
    found.copied().unwrap_or("an error that is not known")
}
