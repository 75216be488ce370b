//! Which authorities a server's certificate must come from, and with what this client identifies
//! itself: the files that a provider's argument names.
//!
//! Invariants: a server is always checked by chain, name and dates; only the certificates of the
//! provider's `ca` are trusted or, where none is given, those of the system. TLS 1.2 and 1.3.
//!
//! Must not: have a way to go on without a check.

use std::fs;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_tls::rustls::pki_types::CertificateDer;
use strongroom_tls::rustls::{self, AlertDescription, ClientConfig};
use strongroom_tls::{
    Identity, PemError, ServerCheck, TlsClient, system_certificates, usable_authorities,
};

use super::credential::read_file;

/// The files for TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    /// File of trusted certificates; none: the system's.
    pub(crate) authority: Option<PathBuf>,
    /// File of the client's certificate, and of its private key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Reads the trusted certificates: those of the provider's `ca`, or else the system's, of which
    /// there may be none.
    ///
    /// # Errors
    /// SR-2123 when the file cannot be read, or contains no certificate.
    pub(crate) fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        match &self.authority {
            Some(path) => read_certificates(path),
            None => Ok(system_certificates()),
        }
    }

    /// Reads the client's certificate and private key, and checks that they belong together. `None`
    /// when the argument names none.
    ///
    /// # Errors
    /// SR-2123 when a file cannot be read or used, or others may read the private key; SR-5001 when
    /// the system reports an error.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, Error> {
        let Some((certificate, key)) = &self.identity else {
            return Ok(None);
        };
        let key_pem = read_file(key)?;
        let chain = read_certificates(certificate)?;
        let identity = Identity::new(chain, key_pem.as_slice()).map_err(|_| {
            let detail = format!("{}: is not a PEM key without a passphrase", key.display());
            Error::new(&code::PROVIDER_CREDENTIALS, detail)
        })?;
        identity
            .check()
            .map_err(|error| unusable_identity(&error))?;
        Ok(Some(identity))
    }

    /// Reads the files, and returns the settings of a TLS client. Without a file of authorities
    /// they are built even if the system trusts none, because an address without TLS does not need
    /// any.
    ///
    /// # Errors
    /// SR-2123 when a file cannot be used, or the `ca` has no usable certificate.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        let authorities = usable_authorities(self.authorities()?);
        if authorities.is_empty() && self.authority.is_some() {
            let detail = "no trusted certificate";
            return Err(Error::new(&code::PROVIDER_CREDENTIALS, detail));
        }
        TlsClient::new(ServerCheck::Authorities(authorities))
            .identity(self.identity()?)
            .build()
            .map_err(|error| unusable_identity(&error))
    }
}

/// Reads the certificates of a PEM file. Errors: SR-2123 when it cannot be read, or contains none.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |what: &str| {
        let detail = format!("{}: {what}", path.display());
        Error::new(&code::PROVIDER_CREDENTIALS, detail)
    };
    let pem = fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    strongroom_tls::certificates(&pem).map_err(|_: PemError| wrong("holds no certificate in PEM"))
}

/// Makes the error SR-2123 for a certificate and private key of ours that cannot be used.
fn unusable_identity(given: &rustls::Error) -> Error {
    let what = match given {
        rustls::Error::InconsistentKeys(_) => "the private key does not belong to the certificate",
        _ => "the certificate or its private key cannot be used",
    };
    Error::new(&code::PROVIDER_CREDENTIALS, what)
}

/// The ciphers that this client offers, for whoever configures the server.
const OFFERED: &str = "This client takes TLS 1.3, and TLS 1.2 with ECDHE and AES-GCM or \
    ChaCha20-Poly1305. Some servers, PyKMIP among them, have these ciphers of TLS 1.2 for a \
    certificate with an ECDSA key only, and none for one with an RSA key";

/// Makes the error that a failure of TLS means: SR-2120 when the server's certificate is not
/// trusted, SR-2102 when the server refuses the client's, SR-2124 when they have no TLS version,
/// cipher or protocol in common, and SR-2105 for anything else.
pub(crate) fn translate_tls_error(given: &rustls::Error) -> Error {
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
            Error::new(&code::PROVIDER_TRUST, why)
        }
        rustls::Error::NoCertificatesPresented => Error::new(&code::PROVIDER_TRUST, "it has none"),
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
            Error::new(&code::PROVIDER_DENIED, detail)
        }
        rustls::Error::AlertReceived(alert) => {
            let detail = format!("it refused the handshake ({alert:?}). {OFFERED}");
            Error::new(&code::PROVIDER_TLS, detail)
        }
        rustls::Error::PeerIncompatible(why) => {
            let detail = format!("{why:?}. {OFFERED}");
            Error::new(&code::PROVIDER_TLS, detail)
        }
        rustls::Error::NoApplicationProtocol => {
            Error::new(&code::PROVIDER_TLS, "it does not speak HTTP/1.1")
        }
        // Not TLS at all, or changed on the way.
        _ => Error::new(&code::PROVIDER_ANSWER, "the server does not speak valid TLS"),
    }
}
