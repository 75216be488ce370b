//! TLS: what the server shows and whom it believes.
//!
//! Invariants: T1, only the server's own authority is believed; T2, TLS 1.2 with authenticated ciphers is the least; T3, no session is
//! resumed, so every connection's certificate was verified at its own time.
//!
//! Must not: decide what a client may do. A handshake without a certificate is let through; the service refuses what needs one.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::config::Config;

/// Reads the files that the configuration names.
///
/// # Errors
/// SR-8440, SR-5001.
pub fn server_config(config: &Config) -> Result<Arc<ServerConfig>, Error> {
    let (certificate, key) = (
        config.path(&config.tls.certificate),
        config.path(&config.tls.key),
    );
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let authority = config.path(&config.tls.authority);
    for one in certificates(&authority)? {
        roots
            .add(one)
            .map_err(|error| unusable(&authority, &error))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| unusable(&authority, &error))?;
    let about = std::fs::metadata(&key);
    let about = about.map_err(|error| Error::io(key.display().to_string(), error))?;
    if about.mode() & 0o077 != 0 {
        return Err(unusable(&key, &"others than its owner may use it"));
    }
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| unusable(&key, &error))?;
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| unusable(&certificate, &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(&certificate)?, private)
        .map_err(|error| unusable(&certificate, &error))?;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let read: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(path, &error))?;
    match read.is_empty() {
        true => Err(unusable(path, &"no certificate in it")),
        false => Ok(read),
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::new(&code::SERVER_TLS, format!("{}: {error}", path.display()))
}
