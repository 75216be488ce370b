//! Who a server must be, and who we are to it.
//!
//! Invariants: a server is checked by chain, name and dates, always; trusted are the certificates
//! of the provider's `ca` and no others, or those of the system where none is given. TLS 1.2 and
//! 1.3.
//!
//! Must not: have a way to go on without a check.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::credential::from_file;
use super::error;

/// Whom to trust, and with what to identify.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// File of trusted certificates; none: the system's.
    pub(crate) authority: Option<PathBuf>,
    /// File of the client's certificate, and of its private key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// A certificate chain and its private key.
pub(crate) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Trust {
    /// The trusted certificates.
    ///
    /// # Errors
    /// SR-2123.
    pub(crate) fn roots(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        match &self.authority {
            Some(path) => certificates(path),
            None => Ok(rustls_native_certs::load_native_certs().certs),
        }
    }

    /// The client's certificates and private key.
    ///
    /// # Errors
    /// SR-2123.
    pub(crate) fn pair(&self) -> Result<Option<Pair>, Error> {
        let Some((certificate, key)) = &self.identity else {
            return Ok(None);
        };
        let held = from_file(key)?;
        // The parser's own error may quote the file.
        let parsed = PrivateKeyDer::from_pem_slice(held.as_slice()).map_err(|_| {
            let detail = format!("{}: is not a PEM key without a passphrase", key.display());
            error(&code::PROVIDER_CREDENTIALS, detail)
        })?;
        Ok(Some((certificates(certificate)?, parsed)))
    }

    /// The file of the client's private key.
    ///
    /// # Errors
    /// SR-2123.
    pub(crate) fn private_key(&self) -> Result<Option<SecretBytes>, Error> {
        let key = self.identity.as_ref().map(|(_, key)| from_file(key));
        key.transpose()
    }

    /// A client's settings, for a protocol that is not HTTP.
    ///
    /// # Errors
    /// SR-2123.
    pub(crate) fn config(&self) -> Result<ClientConfig, Error> {
        let wrong = |error: rustls::Error| local(&error);
        let mut store = RootCertStore::empty();
        let _: (usize, usize) = store.add_parsable_certificates(self.roots()?);
        if store.is_empty() {
            return Err(error(&code::PROVIDER_CREDENTIALS, "no trusted certificate"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_root_certificates(store);
        match self.pair()? {
            None => Ok(builder.with_no_client_auth()),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(wrong),
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |what: &str| {
        let detail = format!("{}: {what}", path.display());
        error(&code::PROVIDER_CREDENTIALS, detail)
    };
    let pem = fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(wrong("holds no certificate in PEM")),
    }
}

/// What is wrong with our own certificate or key.
fn local(given: &rustls::Error) -> Error {
    let what = match given {
        rustls::Error::InconsistentKeys(_) => "the private key does not belong to the certificate",
        _ => "the certificate or its private key cannot be used",
    };
    error(&code::PROVIDER_CREDENTIALS, what)
}

/// The ciphers that this client offers, in words for whoever configures the server.
const TAKEN: &str = "This client takes TLS 1.3, and TLS 1.2 with ECDHE and AES-GCM or \
    ChaCha20-Poly1305. Some servers, PyKMIP among them, have these ciphers of TLS 1.2 for a \
    certificate with an ECDSA key only, and none for one with an RSA key";

/// What a failure of TLS means: who is at fault.
pub(crate) fn failure(given: &rustls::Error) -> Error {
    use AlertDescription as Alert;
    match given {
        rustls::Error::InvalidCertificate(why) => {
            use rustls::CertificateError as Why;
            let why = match why {
                Why::Expired | Why::ExpiredContext { .. } => "it has expired",
                Why::NotValidYet | Why::NotValidYetContext { .. } => "it is not valid yet",
                Why::NotValidForName | Why::NotValidForNameContext { .. } => {
                    "it is for another name"
                }
                Why::UnknownIssuer => "its issuer is not trusted",
                _ => "it is not valid",
            };
            error(&code::PROVIDER_TRUST, why)
        }
        rustls::Error::NoCertificatesPresented => error(&code::PROVIDER_TRUST, "it has none"),
        rustls::Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            // Of a certificate whose issuer has the name of a known one.
            | Alert::DecryptError
            | Alert::AccessDenied,
        ) => {
            let detail = "it does not accept the client's certificate";
            error(&code::PROVIDER_DENIED, detail)
        }
        rustls::Error::AlertReceived(alert) => {
            let detail = format!("it refused the handshake ({alert:?}). {TAKEN}");
            error(&code::PROVIDER_TLS, detail)
        }
        rustls::Error::PeerIncompatible(why) => {
            let detail = format!("{why:?}. {TAKEN}");
            error(&code::PROVIDER_TLS, detail)
        }
        rustls::Error::NoApplicationProtocol => {
            error(&code::PROVIDER_TLS, "it does not speak HTTP/1.1")
        }
        // Not TLS at all, or changed on the way.
        _ => error(&code::PROVIDER_ANSWER, "the server does not speak valid TLS"),
    }
}
