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
    /// Writes what is wrong with the PEM text. Nothing of the key is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates(why) => write!(f, "certificates: {why}"),
            Self::NoCertificate => f.write_str("there is no certificate in it"),
            Self::PrivateKey => f.write_str("the private key is not in PEM, or has a passphrase"),
        }
    }
}

impl std::error::Error for PemError {}

/// Parses all certificates of a PEM text, in their order. Other PEM sections are skipped.
///
/// # Errors
/// [`PemError::Certificates`] if the text cannot be parsed, [`PemError::NoCertificate`] if it holds
/// none.
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
    /// Makes an identity of a certificate chain and a private key in PEM. Whether they belong
    /// together is not checked here: see [`Identity::check`] and [`crate::TlsClient::build`].
    ///
    /// # Errors
    /// [`PemError::PrivateKey`] if there is no private key, or it has a passphrase.
    pub fn new(chain: Vec<CertificateDer<'static>>, key_pem: &[u8]) -> Result<Self, PemError> {
        // The parser's own error may quote the key.
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| PemError::PrivateKey)?;
        Ok(Self { chain, key })
    }

    /// Makes an identity of a certificate chain and a private key, both in PEM. Whether they belong
    /// together is not checked.
    ///
    /// # Errors
    /// Those of [`certificates`] and of [`Identity::new`].
    pub fn from_pem(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, PemError> {
        Self::new(certificates(certificate_pem)?, key_pem)
    }

    /// Checks that the private key belongs to the first certificate.
    ///
    /// # Errors
    /// If it does not, or if the certificate or the key cannot be used.
    pub fn check(&self) -> Result<(), rustls::Error> {
        let (chain, key) = (self.chain.clone(), self.key.clone_key());
        let provider = crate::crypto_provider();
        rustls::sign::CertifiedKey::from_der(chain, key, &provider).map(drop)
    }
}
