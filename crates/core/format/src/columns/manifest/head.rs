//! The head of the manifest: its version and counter, and how its body is sealed.
//!
//! Invariant: the version is looked at before anything else, so that a store of another version is
//! not taken for a damaged one. Must not: seal anything.

use super::{MANIFEST_MAGIC, MANIFEST_VERSION, MANIFEST_VERSION_OLDEST, manifest_layout};
use crate::aad::{AssociatedData, Role, aad_layout};
use crate::header::Cipher;
use crate::layout::{array, put, u16_at, u64_at, zero_at};

/// The head of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestHead {
    /// The manifest's version: from [`MANIFEST_VERSION_OLDEST`] to [`MANIFEST_VERSION`], which is
    /// the one to write.
    pub version: u16,
    /// Raised at each checkpoint; the freshness anchor must have the same.
    pub counter: u64,
    /// Length of the sealed bytes that follow the head.
    pub length: u64,
    /// GCM's nonce, random.
    pub nonce: [u8; 12],
    /// GCM's tag.
    pub tag: [u8; 16],
}

/// Why the head of a manifest cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestError {
    /// A later version of Strongroom has written it.
    Newer(u16),
    /// An early version of Strongroom has written it, in a form that this code does not read.
    Older(u16),
    /// It is cut short, or a field has a value that no writer gives it.
    Malformed,
}

impl ManifestHead {
    /// Parses the head of `file`, which is exactly one manifest. Nothing is authenticated.
    ///
    /// # Errors
    /// In this order: [`ManifestError::Malformed`] without the magic, [`ManifestError::Newer`] and
    /// [`ManifestError::Older`] for another version, [`ManifestError::Malformed`] for the rest.
    pub fn parse(file: &[u8]) -> Result<Self, ManifestError> {
        use manifest_layout as at;
        let magic: Option<[u8; 8]> = array(file, at::MAGIC);
        match u16_at(file, at::VERSION).filter(|_| magic == Some(MANIFEST_MAGIC)) {
            Some(known @ MANIFEST_VERSION_OLDEST..=MANIFEST_VERSION) => {
                Self::parse_known(file, known).ok_or(ManifestError::Malformed)
            }
            Some(newer) if newer > MANIFEST_VERSION => Err(ManifestError::Newer(newer)),
            Some(0) | None => Err(ManifestError::Malformed),
            Some(older) => Err(ManifestError::Older(older)),
        }
    }

    /// Parses the head of a manifest of a version that this code reads. `None` when it is cut
    /// short, or a field has a value that no writer gives it.
    fn parse_known(file: &[u8], version: u16) -> Option<Self> {
        use manifest_layout as at;
        let head = Self {
            version,
            counter: u64_at(file, at::COUNTER)?,
            length: u64_at(file, at::LENGTH)?,
            nonce: array(file, at::NONCE)?,
            tag: array(file, at::TAG)?,
        };
        let behind = file.len().checked_sub(manifest_layout::SIZE)?;
        let sound = zero_at(file, at::RESERVED_A)
            && zero_at(file, at::RESERVED_B)
            && usize::try_from(head.length).ok() == Some(behind);
        sound.then_some(head)
    }

    /// Returns the head's bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; manifest_layout::SIZE] {
        use manifest_layout as at;
        let mut out = [0; manifest_layout::SIZE];
        let fields = [
            put(&mut out, at::MAGIC, &MANIFEST_MAGIC),
            put(&mut out, at::VERSION, &self.version.to_le_bytes()),
            put(&mut out, at::COUNTER, &self.counter.to_le_bytes()),
            put(&mut out, at::LENGTH, &self.length.to_le_bytes()),
            put(&mut out, at::NONCE, &self.nonce),
            put(&mut out, at::TAG, &self.tag),
        ];
        assert!(fields.iter().all(Option::is_some), "manifest layout");
        out
    }

    /// The associated data: the counter as position, the length as extra, and as the size of a unit
    /// by how much the version is higher than the oldest.
    #[must_use]
    pub fn associated_data(&self, object_id: [u8; 16], epoch: u32) -> [u8; aad_layout::SIZE] {
        let place = AssociatedData {
            role: Role::ZoneManifest,
            cipher: Cipher::Aes256Gcm.number(),
            unit_size: u32::from(self.version.saturating_sub(MANIFEST_VERSION_OLDEST)),
            epoch,
            object_id,
        };
        place.at_with(self.counter, self.length)
    }
}
