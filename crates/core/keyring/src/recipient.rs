//! Who slots of kind 4 are for: a certificate, which seals, and private keys, which open.
//!
//! Both stand behind [`Recipient`], so that an opener does not name them: what never makes one of
//! them (an extension inside somebody's program) links to no libcrypto.
//!
//! Must not: read a keyring, or know a header.

use strongroom_crypto::{Certificate, OpenError, PrivateKey, SecretKey};
use strongroom_format::code;
use strongroom_format::slot::CERTIFICATE_ID_LEN;

use crate::error::Error;
use crate::purpose::Label;

/// Encrypts a slot's secret, or opens it.
pub(crate) trait Recipient: Send + Sync {
    /// Whether the private key of this certificate is here.
    fn holds(&self, id: &[u8; CERTIFICATE_ID_LEN]) -> bool;

    /// Encrypts `secret` for the certificate: its id, and the encrypted secret. Errors: SR-2019 for
    /// what only opens.
    fn encrypted(
        &self,
        secret: &SecretKey,
        label: &[u8],
    ) -> Result<([u8; CERTIFICATE_ID_LEN], Vec<u8>), Error>;

    /// The secret, with the private key of `id`; `None` when there is none, or it does not open.
    fn opened(
        &self,
        id: &[u8; CERTIFICATE_ID_LEN],
        encrypted: &[u8],
        label: &[u8],
    ) -> Option<SecretKey>;
}

/// Label of RSAES-OAEP: 25 letters, then the object's id (docs/spec/header.md, "Key slots").
pub(crate) fn label(object_id: [u8; 16]) -> Vec<u8> {
    [Label::Certificate.info(), &object_id].concat()
}

/// A public key alone: seals, and opens nothing.
pub(crate) struct Public(pub(crate) Certificate);

impl Recipient for Public {
    fn holds(&self, _: &[u8; CERTIFICATE_ID_LEN]) -> bool {
        false
    }

    fn encrypted(
        &self,
        secret: &SecretKey,
        label: &[u8],
    ) -> Result<([u8; CERTIFICATE_ID_LEN], Vec<u8>), Error> {
        Ok((self.0.id(), self.0.wrap(secret, label)?))
    }

    fn opened(&self, _: &[u8; CERTIFICATE_ID_LEN], _: &[u8], _: &[u8]) -> Option<SecretKey> {
        None
    }
}

/// Private keys: open, and seal nothing.
pub(crate) struct Private(pub(crate) Vec<PrivateKey>);

impl Recipient for Private {
    fn holds(&self, id: &[u8; CERTIFICATE_ID_LEN]) -> bool {
        self.0.iter().any(|key| key.id() == *id)
    }

    fn encrypted(
        &self,
        _: &SecretKey,
        _: &[u8],
    ) -> Result<([u8; CERTIFICATE_ID_LEN], Vec<u8>), Error> {
        let detail = "private keys only open; name the certificate to seal for";
        Err(Error::new(&code::KEY_OPTION, detail))
    }

    fn opened(
        &self,
        id: &[u8; CERTIFICATE_ID_LEN],
        encrypted: &[u8],
        label: &[u8],
    ) -> Option<SecretKey> {
        let ours = self.0.iter().find(|key| key.id() == *id)?;
        let opened: Result<SecretKey, OpenError> = ours.unwrap(encrypted, label);
        opened.ok()
    }
}
