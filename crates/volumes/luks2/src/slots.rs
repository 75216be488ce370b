//! What opens each key slot, and which slots open the volume.
//!
//! Must not: believe a token beyond the choice of the slots that a secret is tried on.

use crate::metadata::{Kdf, KeyslotKind, Metadata};
use crate::token::{
    Contents, RECOVERY_TYPE, STRONGROOM_TYPE, StrongroomToken, TPM_TYPE, TokenError,
};

/// The requirement of a volume whose re-encryption has begun. A version may follow.
const REENCRYPTION: &str = "online-reencrypt";
/// Iterations of PBKDF2 for a passphrase that a machine made, and that needs no stretching: the
/// fewest that LUKS2 allows.
pub const MACHINE_ITERATIONS: u32 = 1000;

/// What opens a key slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenedBy {
    /// A key of a key server or keyring: a Strongroom token names the slot.
    Strongroom,
    /// A recovery key, ours or systemd's.
    Recovery,
    /// This machine's TPM: a Strongroom token of a TPM names the slot.
    Tpm,
    /// Another program, whose token names the slot.
    Foreign,
    /// A passphrase: no token names the slot.
    Passphrase,
    /// Nothing: the slot holds no key, but how far a re-encryption is.
    Reencrypt,
}

impl OpenedBy {
    /// Returns the opener's name as messages and JSON have it, in lower case, as `strongroom` or
    /// `tpm`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Strongroom => "strongroom",
            Self::Recovery => "recovery",
            Self::Tpm => "tpm",
            Self::Foreign => "foreign",
            Self::Passphrase => "passphrase",
            Self::Reencrypt => "reencrypt",
        }
    }
}

impl Metadata {
    /// Returns what opens this slot, by the types of the tokens that name it. When several tokens
    /// do, the first in the order of [`OpenedBy`] counts; when none does, it is a passphrase.
    #[must_use]
    pub fn opened_by(&self, slot: u32) -> OpenedBy {
        let kind = self.keyslots.get(&slot).map(|slot| &slot.kind);
        if matches!(kind, Some(KeyslotKind::Reencrypt(_))) {
            return OpenedBy::Reencrypt;
        }
        let tokens = self.tokens.values();
        let tokens = tokens.filter(|token| token.keyslots.contains(&slot));
        let openers = tokens.map(|token| match token.kind.as_str() {
            STRONGROOM_TYPE => OpenedBy::Strongroom,
            RECOVERY_TYPE => OpenedBy::Recovery,
            TPM_TYPE => OpenedBy::Tpm,
            _ => OpenedBy::Foreign,
        });
        openers.min().unwrap_or(OpenedBy::Passphrase)
    }

    /// Returns the Strongroom token and its number. `None` when there is none.
    ///
    /// # Errors
    /// [`TokenError::Newer`] or [`TokenError::Member`] when it cannot be read;
    /// [`TokenError::Several`] when there are several, because nothing says which is right.
    pub fn strongroom_token(&self) -> Result<Option<(u32, StrongroomToken)>, TokenError> {
        let mut tokens = self.tokens.iter().filter_map(|(number, token)| {
            let Contents::Strongroom(token) = &token.contents else {
                return None;
            };
            Some((*number, token))
        });
        match (tokens.next(), tokens.next()) {
            (None, _) => Ok(None),
            (Some((number, token)), None) => Ok(Some((number, token.clone()?))),
            (Some(_), Some(_)) => Err(TokenError::Several),
        }
    }

    /// Returns the slots that open the volume and that the Strongroom token names: its key is tried
    /// on these.
    ///
    /// # Errors
    /// As [`Metadata::strongroom_token`]; [`TokenError::NoSlot`] when there is no token, or it
    /// names no slot that opens the volume.
    pub fn token_slots(&self) -> Result<Vec<u32>, TokenError> {
        let (_, token) = self.strongroom_token()?.ok_or(TokenError::NoSlot)?;
        let mut slots = self.bound_slots();
        slots.retain(|slot| token.slots.contains(slot));
        if slots.is_empty() {
            return Err(TokenError::NoSlot);
        }
        Ok(slots)
    }

    /// Returns the number of the token of recovery keys, and the slots that it names. `None` when
    /// there is none.
    #[must_use]
    pub fn recovery_token(&self) -> Option<(u32, Vec<u32>)> {
        let mut tokens = self.tokens.iter();
        let (number, token) = tokens.find(|(_, token)| token.kind == RECOVERY_TYPE)?;
        Some((*number, token.keyslots.clone()))
    }

    /// Returns the numbers of the slots that hold a key, in ascending order: all but those of a
    /// re-encryption and of unknown types.
    #[must_use]
    pub fn key_slots(&self) -> Vec<u32> {
        let slots = self.keyslots.iter();
        let keys = slots.filter(|(_, slot)| matches!(slot.kind, KeyslotKind::Luks2(_)));
        keys.map(|(number, _)| *number).collect()
    }

    /// Returns the numbers of the slots whose passphrase a program made: those with PBKDF2 of at
    /// most [`MACHINE_ITERATIONS`] iterations.
    #[must_use]
    pub fn machine_slots(&self) -> Vec<u32> {
        let machine = self.keyslots.iter().filter(|(_, slot)| {
            let KeyslotKind::Luks2(slot) = &slot.kind else {
                return false;
            };
            matches!(&slot.kdf, Kdf::Pbkdf2 { iterations, .. } if iterations.get() <= MACHINE_ITERATIONS)
        });
        machine.map(|(number, _)| *number).collect()
    }

    /// Returns the slots that open the volume: those whose key encrypts at least one segment.
    #[must_use]
    pub fn bound_slots(&self) -> Vec<u32> {
        let mut slots = self.key_slots();
        slots.retain(|slot| {
            let digest = self.digest_of_keyslot(*slot);
            digest.is_some_and(|(_, digest)| !digest.segments.is_empty())
        });
        slots
    }

    /// Returns the slots whose key encrypts no segment, as those of a re-encryption that was
    /// prepared and has not begun.
    #[must_use]
    pub fn unbound_slots(&self) -> Vec<u32> {
        let bound = self.bound_slots();
        let mut slots = self.key_slots();
        slots.retain(|slot| !bound.contains(slot));
        slots
    }

    /// Returns whether a re-encryption was begun and is not finished, by the header's requirements.
    #[must_use]
    pub fn is_reencrypting(&self) -> bool {
        let mut required = self.config.requirements.iter();
        required.any(|name| name.starts_with(REENCRYPTION))
    }
}
