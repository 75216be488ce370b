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

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, RootCertStore};
use sha2::Digest as _;
use strongroom_tls::{
    Identity, ServerCheck, TlsClient, Versions, certificates, crypto_provider, system_certificates,
    usable_authorities,
};
use zeroize::Zeroizing;

use self::der::Hash;
use super::config::{Config, Roots, SslMode, TlsSettings};
use super::error::{Error, Result};

pub use self::verifier::{Check, Verifier};

/// Makes a TLS client for the host of these settings; its handshake has not begun. Reads the files
/// of certificates and of the private key. Fails with [`Error::Config`] if one of them, or the
/// host's name, cannot be used, and with [`Error::Tls`] if the TLS library refuses the settings.
pub(crate) fn client(config: &Config) -> Result<ClientConnection> {
    let settings = &config.tls;
    let (roots, pinned) = roots(settings)?;
    let verifier = Verifier {
        check: check(settings),
        roots,
        pinned,
        provider: crypto_provider(),
    };
    let files = settings.identity.as_ref();
    let identity = files.map(|(certificate, key)| identity(certificate, key));
    let tls = TlsClient::new(ServerCheck::Custom(Arc::new(verifier)))
        .identity(identity.transpose()?)
        .versions(match settings.only_13 {
            true => Versions::Only13,
            false => Versions::Both,
        })
        .build()
        .map_err(|error| match files {
            Some((certificate, _)) => Error::Config(format!("{}: {error}", certificate.display())),
            None => Error::Tls(error.to_string()),
        })?;
    let name = name(config)?;
    ClientConnection::new(Arc::new(tls), name).map_err(|error| Error::Tls(error.to_string()))
}

/// Returns how strictly `sslmode` wants the server's certificate to be verified. As in libpq,
/// `require` verifies the chain if there is a file of root certificates.
fn check(settings: &TlsSettings) -> Check {
    match settings.mode {
        SslMode::VerifyFull => Check::ChainAndName,
        SslMode::VerifyCa => Check::Chain,
        // As libpq: an existing file of root certificates is used.
        SslMode::Require if settings.roots.is_some() => Check::Chain,
        SslMode::Disable | SslMode::Prefer | SslMode::Require => Check::Nothing,
    }
}

/// Returns the server's name for TLS: the host, or the address if the host is not a name and the
/// mode does not verify names. Fails with [`Error::Config`] if there is neither.
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

/// Reads the trusted certificates: returns the authorities, and all certificates of the file, which
/// are also trusted as a server's own. Both are empty where nothing is verified. Fails with
/// [`Error::Config`] if the file cannot be read, or if the system trusts no authority.
fn roots(settings: &TlsSettings) -> Result<(RootCertStore, Vec<CertificateDer<'static>>)> {
    let none = || (RootCertStore::empty(), Vec::new());
    if check(settings) == Check::Nothing {
        return Ok(none());
    }
    match &settings.roots {
        None => Ok(none()),
        Some(Roots::System) => {
            let roots = usable_authorities(system_certificates());
            if roots.is_empty() {
                let text = "the system has no trusted certificates";
                return Err(Error::Config(String::from(text)));
            }
            Ok((roots, Vec::new()))
        }
        Some(Roots::File(path)) => {
            let pinned = read_certificates(path)?;
            // A certificate that cannot be an anchor can still be the server's own.
            Ok((usable_authorities(pinned.iter().cloned()), pinned))
        }
    }
}

/// Reads all certificates of a PEM file. Fails with [`Error::Config`] if it cannot be read or holds
/// none.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::Config(format!("certificates in {}: {error}", path.display()))
    };
    let pem = fs::read(path).map_err(|error| wrong(&error))?;
    certificates(&pem).map_err(|error| wrong(&error))
}

/// Reads the client's certificate and private key. Fails with [`Error::Config`] if a file cannot be
/// read or used, or if others may read the private key; the group may read one that root owns.
fn identity(certificate: &Path, key: &Path) -> Result<Identity> {
    let chain = read_certificates(certificate)?;
    let wrong = |text: String| Error::Config(format!("private key {}: {text}", key.display()));
    let about = fs::metadata(key).map_err(|error| wrong(error.to_string()))?;
    // A key of root's that a group may read is how distributions hand one to services.
    let allowed = if about.uid() == 0 { 0o740 } else { 0o700 };
    if about.permissions().mode() & 0o777 & !allowed != 0 {
        return Err(wrong(String::from("others may read it; give it mode 0600")));
    }
    let pem = fs::read(key).map(Zeroizing::new);
    let pem = pem.map_err(|error| wrong(error.to_string()))?;
    Identity::new(chain, &pem)
        .map_err(|_| wrong(String::from("is not a PEM key without a passphrase")))
}

/// Computes the hash of the server's certificate that SCRAM is bound to (`tls-server-end-point` of
/// RFC 5929). `None` where the standard names no hash, and before the server has shown a
/// certificate.
pub(crate) fn server_end_point(client: &ClientConnection) -> Option<Vec<u8>> {
    let certificate = client.peer_certificates()?.first()?;
    Some(match der::binding_hash(certificate)? {
        Hash::Sha256 => sha2::Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => sha2::Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => sha2::Sha512::digest(certificate).to_vec(),
    })
}
