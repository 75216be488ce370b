//! The TLS and HTTP clients of the whole product are built here.
//!
//! Invariants: primitives come from ring; TLS 1.2 with ciphers that authenticate is the oldest
//! version; nothing is read from the environment; an HTTP client follows no redirection and uses no
//! proxy. What differs between the clients is an option: see docs/internals/clients.md.
//!
//! Must not: open a connection; name a file; have a way to accept any certificate.
#![forbid(unsafe_code)]

mod client;
#[cfg(feature = "http")]
pub mod http;
mod pem;

use std::sync::Arc;

pub use client::{ServerCheck, TlsClient, Versions, authorities, usable_authorities};
pub use pem::{Identity, PemError, certificates};
pub use rustls;

/// Returns the implementation of TLS's primitives, which is ring's, as a new object.
#[must_use]
pub fn crypto_provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads the certificates of the authorities that the operating system trusts, anew at each call.
/// Those that cannot be read are left out without an error; the list may be empty.
#[must_use]
pub fn system_certificates() -> Vec<rustls::pki_types::CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}
