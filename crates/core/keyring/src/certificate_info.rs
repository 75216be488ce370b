//! What is known of a certificate of a keyring without its private key.
//!
//! Invariant K17: a certificate is used only after it has been read and has the id that the keyring
//! knows it by.
//!
//! Must not: print a warning (see [`CertificateInfo::export_warning`]).

use strongroom_crypto::{Certificate, CertificateError};
use strongroom_format::certificate::CertificateRecord;
use strongroom_format::code::{self, Code};
use strongroom_format::keyring::KeyState;
use strongroom_format::slot::CERTIFICATE_ID_LEN;

use crate::error::Error;
use crate::fresh::{Fresh, System};

/// A certificate of a keyring, without its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The certificate's name in the keyring.
    pub name: String,
    /// Whether new objects may be sealed for it.
    pub state: KeyState,
    /// When it came into the keyring, in seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// When a copy of the private key was last proved to open, in seconds since the Unix epoch.
    pub exported_unix_s: Option<u64>,
    /// SHA-256 of the `SubjectPublicKeyInfo`, by which key slots name it.
    pub id: [u8; CERTIFICATE_ID_LEN],
    /// The certificate, in DER.
    pub der: Vec<u8>,
    /// Whether the keyring holds the private key.
    pub has_private_key: bool,
}

impl CertificateInfo {
    /// Copies what is public in a certificate's record.
    pub(crate) fn of(record: &CertificateRecord) -> Self {
        Self {
            name: record.name.clone(),
            state: record.state,
            created_unix_s: record.created_unix_s,
            exported_unix_s: (record.exported_unix_s > 0).then_some(record.exported_unix_s),
            id: record.id,
            der: record.der.clone(),
            has_private_key: record.key.is_some(),
        }
    }

    /// Whether the private key is in this keyring and, as far as is known, nowhere else. Without
    /// the keyring, everything that is sealed for it is lost; a program that seals for it warns
    /// each time (SR-2033).
    #[must_use]
    pub fn needs_export(&self) -> bool {
        self.has_private_key && self.exported_unix_s.is_none()
    }

    /// Returns code (SR-2033) and detail of the warning that the private key was never exported;
    /// `None` unless [`CertificateInfo::needs_export`]. Prints nothing.
    #[must_use]
    pub fn export_warning(&self) -> Option<(&'static Code, String)> {
        let detail = format!(
            "{name}; strongroom cert export {name} --out FILE",
            name = self.name
        );
        self.needs_export()
            .then_some((&code::CERT_NOT_EXPORTED, detail))
    }

    /// Whether the certificate's period of validity includes this moment. False when its dates
    /// cannot be read. Sealing and opening do not depend on it.
    #[must_use]
    pub fn is_valid_now(&self) -> bool {
        let validity = Certificate::from_der(&self.der)
            .ok()
            .and_then(|read| read.validity_unix_s());
        let now = i64::try_from(System.now_unix_s()).unwrap_or(i64::MAX);
        validity.is_some_and(|(from, to)| (from..=to).contains(&now))
    }

    /// Parses the certificate, and checks that it has the id that the keyring has noted.
    ///
    /// # Errors
    /// SR-2005 when it has another id or cannot be parsed; SR-2027 when its key is weak; SR-5001
    /// when the system reports an error.
    pub fn certificate(&self) -> Result<Certificate, Error> {
        let certificate = Certificate::from_der(&self.der).map_err(|error| match error {
            CertificateError::Malformed => {
                Error::damaged_keyring(&format!("certificate {}", self.name))
            }
            other => Error::from(other).about(&self.name),
        })?;
        match certificate.id() == self.id {
            true => Ok(certificate),
            false => Err(Error::damaged_keyring(&format!(
                "the id of certificate {}",
                self.name
            ))),
        }
    }
}
