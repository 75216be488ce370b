//! What the providers with a server share: arguments, credentials, TLS, HTTP, and how a sealed root
//! key is stored.
//!
//! Invariants:
//! - R1: every wait has an end that is known before it begins: name resolution, connection,
//!   handshake, request and response.
//! - R2: no text of a server gets into an error: it could repeat what it was sent or asked for.
//! - R3: a response is bounded before it is read, and accepted only when it is exactly what was
//!   requested.
//! - R4: a root key that a server returns is the one that was sealed, or an error: see [`sealing`].
//!
//! Must not: retry without end; follow a redirection; use a proxy that only the environment names;
//! keep a credential longer than a request.

pub(crate) mod credential;
pub(crate) mod http;
pub(crate) mod locator;
pub(crate) mod sealing;
pub(crate) mod tls;
