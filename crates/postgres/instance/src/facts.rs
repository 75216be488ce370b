//! The header of an instance in words, the same for every verb that shows it.
//!
//! Must not: claim that a header is authentic. Only a caller that opened it with the key may say
//! so.

use serde::Serialize;
use strongroom_format::header::Header;
use strongroom_format::hex::hex;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::Error;
use strongroom_postgres_shield::instance;

use crate::directory::Directory;

/// A header in words. Field names are a stable contract: docs/reference/exit-codes.md.
#[derive(Clone, Serialize)]
pub struct Facts {
    /// Cipher of the blocks.
    pub cipher: &'static str,
    /// Tells data keys apart: equal for two instances if and only if their data keys are.
    pub fingerprint: String,
    /// Who can open it.
    pub openers: Vec<String>,
    /// A rotation was begun and not finished.
    pub rotation_under_way: bool,
    /// Zeros that somebody writes into transaction status files are found.
    pub sealed_zeros: bool,
    /// A small sealed file that was put in the place of another is found.
    pub bound_names: bool,
}

impl Facts {
    /// Reads the header in a sealed directory, without a key and unauthenticated.
    ///
    /// # Errors
    /// SR-3003 for a header that is damaged, SR-3006 for one that is cut short; SR-5001 when the
    /// system reports an error.
    pub fn read(directory: &Directory) -> Result<Self, Error> {
        let about = |error: Error| error.with_prefix(&format!("{}: ", directory.shown()));
        let bytes = instance::header(&directory.path).map_err(about)?;
        let header = Header::parse(&bytes);
        header.map(|header| Self::of(&header)).map_err(|error| {
            let code = &strongroom_format::code::HEADER_DAMAGED;
            directory.failure(code, &format!("{error:?}").to_lowercase())
        })
    }

    /// Describes a parsed header.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        Self {
            cipher: header.cipher.name(),
            // A data key belongs to one object id and epoch: these are its name.
            fingerprint: format!("{}/{}", hex(&header.object_id), header.epoch),
            openers: header.slots.iter().map(|slot| opener(&slot.kind)).collect(),
            rotation_under_way: header.previous_epoch != 0,
            sealed_zeros: header.sealed_zeros,
            bound_names: header.bound_names,
        }
    }

    /// Returns every opener in one line.
    #[must_use]
    pub fn openers_text(&self) -> String {
        self.openers.join("; ")
    }
}

/// Describes in words what opens a slot: a passphrase, a raw key, a key of a keyring with name and
/// version, or a certificate with its id in hexadecimal digits.
#[must_use]
pub fn opener(kind: &SlotKind) -> String {
    match kind {
        SlotKind::Passphrase(_) => String::from("passphrase"),
        SlotKind::Raw => String::from("raw key"),
        SlotKind::Keyring { id, version } => format!("key {id}, version {version}"),
        SlotKind::Certificate { id, .. } => format!("certificate {}", hex(id)),
        other => String::from(other.name()),
    }
}
