//! TLS of the server: its certificate, and the authority that it trusts.
//!
//! Invariants:
//! - T1: Only the server's own authority is trusted.
//! - T2: TLS 1.2 with authenticated ciphers is the oldest version that is accepted.
//! - T3: No session is resumed, so that the certificate of every connection is verified.
//!
//! Must not: decide what a client may do. A handshake without a certificate succeeds; the service
//! refuses requests that need one.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use strongroom_format::code;
use strongroom_keyring::Error;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::{Config, OTHERS_MAY_WRITE, WRITABLE_BY_OTHERS, unusable};
use crate::offline;

/// Builds the TLS configuration with the files that `config` names.
///
/// # Errors
/// SR-8440 for a file that cannot be used, an authority that others may write, a private key that
/// others may use, or one that does not belong to the certificate; SR-5001 when the system reports
/// an error.
pub fn server_config(config: &Config) -> Result<Arc<ServerConfig>, Error> {
    build_config(config, None)
}

/// Builds the TLS configuration with this certificate and key, in PEM, instead of those on the
/// disk. The authority, by which client certificates are verified, is read from its file.
///
/// # Errors
/// SR-8440 if one of the three cannot be used, the key does not belong to the certificate, or
/// others may write the authority's file.
pub fn server_config_with(
    config: &Config,
    certificate: &str,
    key: &str,
) -> Result<Arc<ServerConfig>, Error> {
    build_config(config, Some((certificate.as_bytes(), key.as_bytes())))
}

/// A certificate with its chain, and its private key.
type CertifiedPair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads the certificate and the key from the disk. Repeats that up to four times, with pauses of
/// 20 ms, if they do not fit or cannot be read, because they may have been replaced in between. The
/// result of the last try may be a pair that does not fit. SR-8440, SR-5001 when the system reports
/// an error.
fn read_fitting_pair(config: &Config) -> Result<CertifiedPair, Error> {
    const TRIES: usize = 4;
    let mut last = None;
    for _ in 0..TRIES {
        match read_pair(config) {
            Ok((chain, key)) if fits(&chain, &key) => return Ok((chain, key)),
            Ok(other) => last = Some(Ok(other)),
            Err(error) => last = Some(Err(error)),
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The caller refuses a pair that does not fit, with the names of the files.
    last.unwrap_or_else(|| Err(Error::new(&code::SERVER_TLS, "")))
}

/// Reads the certificate with its chain, and the private key, once: from `KEY.next` if a renewal
/// left it, else from the two configured files. SR-8440 if one cannot be used, or others than its
/// owner may use the key; SR-5001 if the key is missing.
fn read_pair(config: &Config) -> Result<CertifiedPair, Error> {
    let next = offline::certificate_files(config).next();
    let (certificate, key) = match next.symlink_metadata() {
        Ok(_) => (next.clone(), next),
        Err(_) => (
            config.path(&config.tls.certificate),
            config.path(&config.tls.key),
        ),
    };
    let about = std::fs::metadata(&key);
    let about = about.map_err(|error| Error::io(key.display().to_string(), error))?;
    if about.mode() & 0o077 != 0 {
        return Err(unusable(&key, &"others than its owner may use it"));
    }
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| unusable(&key, &error))?;
    Ok((read_certificates(&certificate)?, private))
}

/// Whether a private key belongs to the first certificate of the chain.
fn fits(chain: &[CertificateDer<'static>], key: &PrivateKeyDer<'static>) -> bool {
    let provider = rustls::crypto::ring::default_provider();
    rustls::sign::CertifiedKey::from_der(chain.to_vec(), key.clone_key(), &provider).is_ok()
}

/// Reads from when to when the server's certificate on the disk is valid, in seconds since the Unix
/// epoch.
///
/// # Errors
/// SR-8440 for a file that cannot be used; SR-5001 when the system reports an error.
pub fn validity(config: &Config) -> Result<(u64, u64), Error> {
    let (chain, _) = read_fitting_pair(config)?;
    let path = config.path(&config.tls.certificate);
    let first = chain.first().map(AsRef::as_ref).unwrap_or_default();
    let read = X509Certificate::from_der(first);
    let (_, read) = read.map_err(|error| unusable(&path, &error))?;
    let unix = |at: x509_parser::time::ASN1Time| u64::try_from(at.timestamp()).unwrap_or(0);
    let validity = read.validity();
    Ok((unix(validity.not_before), unix(validity.not_after)))
}

/// The inode number and the modification time of each file of the certificate and the key. It
/// changes when a file is replaced.
pub type FileStamp = Vec<Option<(u64, i64, i64)>>;

/// Reads the file stamp of certificate, key and `KEY.next`. A file that is missing is `None` in it.
#[must_use]
pub fn file_stamp(config: &Config) -> FileStamp {
    let next = offline::certificate_files(config).next();
    let [certificate, key] =
        [&config.tls.certificate, &config.tls.key].map(|path| config.path(path));
    let of = |path: &Path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.ino(), about.mtime(), about.mtime_nsec()))
    };
    [certificate, key, next]
        .iter()
        .map(|path| of(path))
        .collect()
}

/// Parses the certificates of a PEM text, perhaps none. SR-8440, with the name of `path`, if one is
/// malformed.
fn parse_chain(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    read.map_err(|error| unusable(path, &error))
}

/// Parses a private key in PEM. SR-8440, with the name of `path`, if there is none.
fn parse_private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| unusable(path, &error))
}

/// Builds the TLS configuration: TLS 1.2 or 1.3, no resumption, and client certificates of the
/// configured authority, which are optional. `given`: certificate and key in PEM; without them,
/// they are read from the disk. SR-8440, SR-5001 when the system reports an error.
fn build_config(
    config: &Config,
    given: Option<(&[u8], &[u8])>,
) -> Result<Arc<ServerConfig>, Error> {
    let (certificate, key) = (
        config.path(&config.tls.certificate),
        config.path(&config.tls.key),
    );
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let authority = config.path(&config.tls.authority);
    for one in read_authority(&authority)? {
        roots
            .add(one)
            .map_err(|error| unusable(&authority, &error))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| unusable(&authority, &error))?;
    let (chain, private) = match given {
        Some((chain, private)) => (
            parse_chain(&certificate, chain)?,
            parse_private_key(&key, private)?,
        ),
        None => read_fitting_pair(config)?,
    };
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| unusable(&certificate, &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, private)
        .map_err(|error| unusable(&certificate, &error))?;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

/// Reads the certificates of the authority's file, at least one. SR-8440 if it cannot be read, has
/// none, or others may write to it: they could put another authority there.
fn read_authority(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let about = std::fs::metadata(path).map_err(|error| unusable(path, &error))?;
    match about.mode() & WRITABLE_BY_OTHERS {
        0 => read_certificates(path),
        _ => Err(unusable(path, &OTHERS_MAY_WRITE)),
    }
}

/// Reads the certificates of a PEM file, at least one. SR-8440 if it cannot be read or has none.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let read: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(path, &error))?;
    match read.is_empty() {
        true => Err(unusable(path, &"no certificate in it")),
        false => Ok(read),
    }
}
