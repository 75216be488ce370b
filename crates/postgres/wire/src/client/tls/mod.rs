//! The TLS client of a connection, made from its settings.
//!
//! Invariants: Q3 and Q4 (see `verifier.rs`); a private key that others may read is refused, as
//! libpq does.

mod der;
mod verifier;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, version};
use sha2::Digest as _;

use self::der::Hash;
use super::config::{Config, Roots, SslMode, TlsSettings};
use super::error::{Error, Result};

pub use self::verifier::{Check, Verifier};

/// A client for the host of these settings, before its handshake.
pub(crate) fn client(config: &Config) -> Result<ClientConnection> {
    let settings = &config.tls;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: &[_] = match settings.only_13 {
        true => &[&version::TLS13],
        false => &[&version::TLS13, &version::TLS12],
    };
    let (roots, pinned) = roots(settings)?;
    let verifier = Verifier {
        check: check(settings),
        roots,
        pinned,
        provider: Arc::clone(&provider),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| Error::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let tls = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let key = private_key(key)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| Error::Config(format!("{}: {error}", certificate.display())))?
        }
    };
    let name = name(config)?;
    ClientConnection::new(Arc::new(tls), name).map_err(|error| Error::Tls(error.to_string()))
}

fn check(settings: &TlsSettings) -> Check {
    match settings.mode {
        SslMode::VerifyFull => Check::ChainAndName,
        SslMode::VerifyCa => Check::Chain,
        // As libpq: an existing file of root certificates is used.
        SslMode::Require if settings.roots.is_some() => Check::Chain,
        SslMode::Disable | SslMode::Prefer | SslMode::Require => Check::Nothing,
    }
}

fn name(config: &Config) -> Result<ServerName<'static>> {
    if let Ok(name) = ServerName::try_from(config.host.clone()) {
        return Ok(name);
    }
    // A directory beside `hostaddr`, say. Only a mode that looks at names needs one.
    match (config.tls.mode, config.address) {
        (SslMode::VerifyFull, _) | (_, None) => Err(Error::Config(String::from(
            "the host is not a name that a certificate could have",
        ))),
        (_, Some(address)) => Ok(ServerName::from(address)),
    }
}

fn roots(settings: &TlsSettings) -> Result<(RootCertStore, Vec<CertificateDer<'static>>)> {
    let mut store = RootCertStore::empty();
    if check(settings) == Check::Nothing {
        return Ok((store, Vec::new()));
    }
    match &settings.roots {
        None => Ok((store, Vec::new())),
        Some(Roots::System) => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = store.add_parsable_certificates(found.certs);
            if added == 0 {
                let text = "the system has no trusted certificates";
                return Err(Error::Config(String::from(text)));
            }
            Ok((store, Vec::new()))
        }
        Some(Roots::File(path)) => {
            let pinned = certificates(path)?;
            // A certificate that cannot be an anchor can still be the server's own.
            let _: (usize, usize) = store.add_parsable_certificates(pinned.iter().cloned());
            Ok((store, pinned))
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::Config(format!("certificates in {}: {error}", path.display()))
    };
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| wrong(&error))?;
    match found.is_empty() {
        true => Err(wrong(&"there are none")),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let wrong = |text: String| Error::Config(format!("private key {}: {text}", path.display()));
    let about = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    // A key of root's that a group may read is how distributions hand one to services.
    let allowed = if about.uid() == 0 { 0o740 } else { 0o700 };
    if about.permissions().mode() & 0o777 & !allowed != 0 {
        return Err(wrong(String::from("others may read it; give it mode 0600")));
    }
    // The parser's own error may quote the file.
    PrivateKeyDer::from_pem_file(path)
        .map_err(|_| wrong(String::from("is not a PEM key without a passphrase")))
}

/// The hash of the server's certificate that SCRAM is bound to (`tls-server-end-point` of RFC
/// 5929). `None` where the standard names no hash.
pub(crate) fn server_end_point(client: &ClientConnection) -> Option<Vec<u8>> {
    let certificate = client.peer_certificates()?.first()?;
    Some(match der::binding_hash(certificate)? {
        Hash::Sha256 => sha2::Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => sha2::Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => sha2::Sha512::digest(certificate).to_vec(),
    })
}
