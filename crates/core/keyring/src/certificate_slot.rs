//! Key slots for certificates (kind 4): a certificate encrypts the slot's secret with RSAES-OAEP,
//! its private key decrypts it.
//!
//! Openers and recipients hold either of them as a trait object and do not name its type: a
//! program that never makes one, as the extension inside somebody's program, links to no libcrypto.
//!
//! Must not: read a keyring, or know a header.

use strongroom_crypto::{Certificate, OpenError, PrivateKey, SecretKey};
use strongroom_format::slot::CERTIFICATE_ID_LEN;

use crate::error::Error;
use crate::purpose::Label;

/// The id of a certificate: SHA-256 of its `SubjectPublicKeyInfo`.
pub(crate) type CertificateId = [u8; CERTIFICATE_ID_LEN];

/// A certificate, which encrypts the secret of a slot.
pub(crate) trait EncryptSecret: Send + Sync {
    /// Encrypts `secret` for the certificate, bound to `label`. Returns the certificate's id and
    /// the ciphertext. Errors: SR-5001 without memory for keys; SR-9001 when libcrypto fails.
    fn encrypt(&self, secret: &SecretKey, label: &[u8]) -> Result<(CertificateId, Vec<u8>), Error>;
}

/// Private keys, which decrypt the secret of a slot.
pub(crate) trait DecryptSecret: Send + Sync {
    /// Whether the private key of this certificate is among them.
    fn holds(&self, id: &CertificateId) -> bool;

    /// Decrypts a secret with the private key of this certificate. `None` when that key is not
    /// among them, or when it does not decrypt.
    fn decrypt(&self, id: &CertificateId, encrypted: &[u8], label: &[u8]) -> Option<SecretKey>;
}

impl EncryptSecret for Certificate {
    /// Encrypts `secret` for the certificate with RSAES-OAEP, bound to `label`. Returns the
    /// certificate's id and the ciphertext. Errors: SR-5001 without memory for keys; SR-9001 when
    /// libcrypto fails.
    fn encrypt(&self, secret: &SecretKey, label: &[u8]) -> Result<(CertificateId, Vec<u8>), Error> {
        Ok((self.id(), self.wrap(secret, label)?))
    }
}

impl DecryptSecret for Vec<PrivateKey> {
    /// Whether the private key of this certificate is among them.
    fn holds(&self, id: &CertificateId) -> bool {
        self.iter().any(|key| key.id() == *id)
    }

    /// Decrypts a secret with the private key of this certificate. `None` when that key is not
    /// among them, or when it does not decrypt.
    fn decrypt(&self, id: &CertificateId, encrypted: &[u8], label: &[u8]) -> Option<SecretKey> {
        let own = self.iter().find(|key| key.id() == *id)?;
        let opened: Result<SecretKey, OpenError> = own.unwrap(encrypted, label);
        opened.ok()
    }
}

/// Returns the label of RSAES-OAEP: 25 letters, then the object's id (docs/spec/header.md, "Key
/// slots").
pub(crate) fn oaep_label(object_id: [u8; 16]) -> Vec<u8> {
    [Label::Certificate.info(), &object_id].concat()
}
