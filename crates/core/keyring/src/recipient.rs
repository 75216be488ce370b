//! A recipient: whoever a key slot is sealed for, so that they can open the object.
//!
//! A recipient is made of a certificate, or of an opener ([`crate::Opener::recipient`]) when a
//! secret is to open what it seals. age makes the same distinction between recipient and identity.
//!
//! Must not: open a slot.

use std::sync::Arc;

use strongroom_crypto::{Argon2Params, Certificate, SecretKey};
use strongroom_format::code;
use strongroom_format::slot::{Argon2Cost, Slot, SlotKind};

use crate::certificate_slot::{EncryptSecret, oaep_label};
use crate::error::Error;
use crate::fresh::Fresh;
use crate::slot::{HeldSlot, slot_kek};
use crate::symmetric_key::SymmetricKey;

/// Whoever a key slot is sealed for: a certificate, or the holder of a passphrase, of a raw key or
/// of a keyring.
pub struct Recipient(Target);

enum Target {
    Symmetric {
        key: Arc<SymmetricKey>,
        cost: Argon2Cost,
    },
    Certificate(Box<dyn EncryptSecret>),
}

impl Recipient {
    /// Makes a recipient of a certificate: the holder of its private key. The certificate alone is
    /// enough to seal a slot.
    #[must_use]
    pub fn certificate(certificate: Certificate) -> Self {
        Self(Target::Certificate(Box::new(certificate)))
    }

    /// Makes a recipient of a secret: its holder. A passphrase slot gets the recommended cost of
    /// Argon2id (RFC 9106, second choice).
    pub(crate) fn symmetric(key: Arc<SymmetricKey>) -> Self {
        let cost = argon2_cost(Argon2Params::RECOMMENDED);
        Self(Target::Symmetric { key, cost })
    }

    /// Sets the Argon2id cost of the slots that are sealed for a passphrase. Has no effect on any
    /// other recipient.
    ///
    /// # Errors
    /// SR-2019 when the cost is out of bounds, for every recipient.
    pub fn with_argon2(self, params: Argon2Params) -> Result<Self, Error> {
        params
            .check()
            .map_err(|error| Error::new(&code::KEY_OPTION, error.to_string()))?;
        let cost = argon2_cost(params);
        Ok(match self.0 {
            Target::Symmetric { key, .. } => Self(Target::Symmetric { key, cost }),
            certificate @ Target::Certificate(_) => Self(certificate),
        })
    }

    /// Returns `passphrase`, `raw`, `keyring` or `certificate`.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match &self.0 {
            Target::Symmetric { key, .. } => key.kind_name(),
            Target::Certificate(_) => "certificate",
        }
    }

    /// Seals a slot around `data_key`, with a fresh salt and nonce, and returns it with its KEK.
    /// For a passphrase this runs Argon2id. Errors: SR-2012 when every version of a keyring's key
    /// is retired; SR-5001 when the system reports an error.
    pub(crate) fn seal(
        &self,
        fresh: &mut dyn Fresh,
        epoch: u32,
        object_id: [u8; 16],
        data_key: &SecretKey,
    ) -> Result<(Slot, HeldSlot), Error> {
        let salt = fresh.salt()?;
        let (kind, kek) = match &self.0 {
            Target::Certificate(certificate) => {
                let secret = fresh.key()?;
                let (id, encrypted) = certificate.encrypt(&secret, &oaep_label(object_id))?;
                let kind = SlotKind::Certificate {
                    id,
                    secret: encrypted,
                };
                (kind, slot_kek(&secret, &salt)?)
            }
            Target::Symmetric { key, cost } => {
                let kind = key.new_slot_kind(*cost)?;
                let kek = key.kek_for(&kind, &salt)?;
                (kind, kek.ok_or_else(|| Error::new(&code::BUG, "no KEK"))?)
            }
        };
        let held = HeldSlot { kind, salt, kek };
        let slot = held.seal(fresh, epoch, object_id, data_key)?;
        Ok((slot, held))
    }
}

/// Converts an Argon2 cost from the form of the crypto crate to that of the header.
fn argon2_cost(params: Argon2Params) -> Argon2Cost {
    Argon2Cost {
        m_kib: params.m_kib,
        t: params.t,
        p: params.p,
    }
}
