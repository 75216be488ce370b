//! Certificates and private keys in PEM.
//!
//! Must not: quote a private key in an error.

use std::fmt;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why PEM cannot be used.
#[derive(Debug)]
pub enum PemError {
    /// A certificate cannot be read, with the parser's words.
    Certificates(String),
    /// There is no certificate.
    NoCertificate,
    /// There is no private key, or it has a passphrase.
    PrivateKey,
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates(why) => write!(f, "certificates: {why}"),
            Self::NoCertificate => f.write_str("there is no certificate in it"),
            Self::PrivateKey => f.write_str("the private key is not in PEM, or has a passphrase"),
        }
    }
}

impl std::error::Error for PemError {}

/// All certificates of a PEM text, at least one.
///
/// # Errors
/// [`PemError::Certificates`], [`PemError::NoCertificate`].
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| PemError::Certificates(error.to_string()))?;
    match found.is_empty() {
        true => Err(PemError::NoCertificate),
        false => Ok(found),
    }
}

/// With what a client identifies itself: its certificate with the chain, and its private key.
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// An identity of these certificates, and of a private key in PEM. Whether they belong together
    /// is checked by [`Identity::check`], and when a client is built.
    ///
    /// # Errors
    /// [`PemError::PrivateKey`].
    pub fn new(chain: Vec<CertificateDer<'static>>, key_pem: &[u8]) -> Result<Self, PemError> {
        // The parser's own error may quote the key.
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| PemError::PrivateKey)?;
        Ok(Self { chain, key })
    }

    /// An identity of certificates and private key, both in PEM.
    ///
    /// # Errors
    /// As [`certificates`] and [`Identity::new`].
    pub fn from_pem(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, PemError> {
        Self::new(certificates(certificate_pem)?, key_pem)
    }

    /// Whether the private key is that of the first certificate.
    ///
    /// # Errors
    /// Why they cannot be used together.
    pub fn check(&self) -> Result<(), rustls::Error> {
        let (chain, key) = (self.chain.clone(), self.key.clone_key());
        let provider = crate::crypto_provider();
        rustls::sign::CertifiedKey::from_der(chain, key, &provider).map(drop)
    }
}
