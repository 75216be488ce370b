//! The signature of a backup set, an object beside the set's families. Specified in
//! docs/spec/backup.md, "Signatures".
//!
//! Must not: sign or verify.

use alloc::vec::Vec;

use crate::FORMAT_VERSION;
use crate::backup::{RecordError, check_version};
use crate::layout::{array, layout, put, u16_at, zero_at};

layout! {
    /// Layout of the signature of a set.
    signature_layout, 128, {
        MAGIC @ 0, 8;
        VERSION @ 8, 2;
        ALGORITHM @ 10, 2;
        RESERVED @ 12, 4;
        SET_ID @ 16, 16;
        KEY_ID @ 32, 32;
        SIGNATURE @ 64, 64;
    }
}

/// First bytes of the signature of a set.
pub const SIGNATURE_MAGIC: [u8; 8] = *b"SRBKSIG\x1a";
/// Begins everything that is signed for a set; a zero byte follows it.
pub const SIGNATURE_LABEL: &str = "strongroom/v1/backup-signature";

/// The number of Ed25519, the only algorithm.
const ED25519: u16 = 1;

/// The signature of a set, an object of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureRecord {
    /// The set's id.
    pub set_id: [u8; 16],
    /// SHA-256 of the signer's `SubjectPublicKeyInfo`.
    pub key_id: [u8; 32],
    /// Over [`SignatureRecord::message`].
    pub signature: [u8; 64],
}

impl SignatureRecord {
    /// Parses a signature from exactly its 128 bytes. Nothing is verified.
    ///
    /// # Errors
    /// [`RecordError::Newer`] for a later version; [`RecordError::Malformed`] for another length,
    /// magic or algorithm, and for reserved bytes that are not zero.
    pub fn parse(record: &[u8]) -> Result<Self, RecordError> {
        use signature_layout as at;
        let bad = RecordError::Malformed;
        if array(record, at::MAGIC) != Some(SIGNATURE_MAGIC) {
            return Err(bad);
        }
        check_version(u16_at(record, at::VERSION))?;
        let canonical = record.len() == at::SIZE
            && u16_at(record, at::ALGORITHM) == Some(ED25519)
            && zero_at(record, at::RESERVED);
        if !canonical {
            return Err(bad);
        }
        Ok(Self {
            set_id: array(record, at::SET_ID).ok_or(bad)?,
            key_id: array(record, at::KEY_ID).ok_or(bad)?,
            signature: array(record, at::SIGNATURE).ok_or(bad)?,
        })
    }

    /// Returns its 128 bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; signature_layout::SIZE] {
        use signature_layout as at;
        let mut out = [0; at::SIZE];
        let done = [
            put(&mut out, at::MAGIC, &SIGNATURE_MAGIC),
            put(&mut out, at::VERSION, &FORMAT_VERSION.to_le_bytes()),
            put(&mut out, at::ALGORITHM, &ED25519.to_le_bytes()),
            put(&mut out, at::SET_ID, &self.set_id),
            put(&mut out, at::KEY_ID, &self.key_id),
            put(&mut out, at::SIGNATURE, &self.signature),
        ];
        assert!(done.iter().all(Option::is_some), "signature layout");
        out
    }

    /// What is signed: the label, this record without its signature, and `head`, which is the set's
    /// record and its description.
    #[must_use]
    pub fn message(&self, head: &[u8]) -> Vec<u8> {
        let record = self.to_bytes();
        let unsigned = record.get(..signature_layout::SIGNATURE.offset);
        let parts = [
            SIGNATURE_LABEL.as_bytes(),
            &[0],
            unsigned.unwrap_or_default(),
            head,
        ];
        parts.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: SignatureRecord = SignatureRecord {
        set_id: [1; 16],
        key_id: [2; 32],
        signature: [3; 64],
    };

    #[test]
    fn only_what_a_writer_makes_is_parsed() {
        let bytes = RECORD.to_bytes();
        assert_eq!(SignatureRecord::parse(&bytes), Ok(RECORD));
        for length in 0..bytes.len() {
            let cut = SignatureRecord::parse(&bytes[..length]);
            assert!(cut.is_err(), "{length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(SignatureRecord::parse(&longer).is_err());
        // Of the first 16 bytes each bit has one value.
        for bit in 0..128 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SignatureRecord::parse(&bad).is_err(), "{bit}");
        }
    }

    #[test]
    fn a_newer_version_is_told_as_such() {
        let mut bytes = RECORD.to_bytes();
        bytes[8] = 2;
        let read = SignatureRecord::parse(&bytes);
        assert_eq!(read, Err(RecordError::Newer(2)));
    }

    #[test]
    fn everything_but_the_signature_is_signed() {
        let message = RECORD.message(b"head");
        let label = SIGNATURE_LABEL.len();
        assert_eq!(message.len(), label + 1 + 64 + 4);
        assert_eq!(&message[label + 1..label + 65], &RECORD.to_bytes()[..64]);
        assert!(message.ends_with(b"head"));
    }
}
