//! The keys of a store, and what is sealed under which.
//!
//! Invariants: S2 (a block is bound to partition, extent, block and version), L3 (a redo record's key is its incarnation's, its
//! nonce a counter). Must not: do I/O; keep an opened image outside locked memory.

use strongroom_crypto::{CryptoError, GcmKey, OpenError, SecretKey, hkdf, nonce12, random32};
use strongroom_format::columns::block::{block_bound, sealed_block_layout};
use strongroom_format::columns::manifest::ManifestHead;
use strongroom_keyring::{Error, Object, Purpose};

/// Bytes of a block's nonce.
pub(super) const NONCE: usize = sealed_block_layout::SIZE;

/// The keys of one store.
pub struct Keys {
    object_id: [u8; 16],
    epoch: u32,
    blocks: SecretKey,
    redo: SecretKey,
    manifest: GcmKey,
}

impl Keys {
    /// The keys of the store whose header this is.
    ///
    /// # Errors
    /// SR-5001 when there is no locked memory for keys.
    pub fn of(object: &Object) -> Result<Self, Error> {
        let epoch = object.epoch();
        Ok(Self {
            object_id: object.object_id(),
            epoch,
            blocks: object.subkey(epoch, Purpose::ZoneBlocks)?,
            redo: object.subkey(epoch, Purpose::ZoneRedo)?,
            manifest: GcmKey::new(&object.subkey(epoch, Purpose::ZoneManifest)?)?,
        })
    }

    /// The key of an incarnation's redo records.
    pub(super) fn incarnation(&self, incarnation: [u8; 16]) -> Result<GcmKey, CryptoError> {
        GcmKey::new(&hkdf(&self.redo, &incarnation, b"")?)
    }

    pub(super) fn object_id(&self) -> [u8; 16] {
        self.object_id
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Seals a manifest's body in place; gives the head.
    pub(super) fn seal_manifest(
        &self,
        counter: u64,
        body: &mut [u8],
    ) -> Result<ManifestHead, CryptoError> {
        let mut head = ManifestHead {
            counter,
            length: body.len() as u64,
            // Random: two manifests of one counter can exist, after a crash or a restore.
            nonce: nonce12()?,
            tag: [0; 16],
        };
        let bound = head.bound(self.object_id, self.epoch);
        head.tag = self.manifest.seal(&head.nonce, &bound, body)?;
        Ok(head)
    }

    /// Opens a manifest's body in place.
    pub(super) fn open_manifest(
        &self,
        head: &ManifestHead,
        body: &mut [u8],
    ) -> Result<(), OpenError> {
        let bound = head.bound(self.object_id, self.epoch);
        self.manifest.open(&head.nonce, &bound, body, &head.tag)
    }
}

/// The key of one partition's blocks. Dropping it, and the manifest that has its salt, makes its blocks unreadable.
pub(super) struct PartitionKey {
    salt: [u8; 32],
    key: GcmKey,
    object_id: [u8; 16],
    epoch: u32,
}

impl PartitionKey {
    pub(super) fn new(keys: &Keys) -> Result<Self, CryptoError> {
        Self::of(keys, random32()?)
    }

    pub(super) fn of(keys: &Keys, salt: [u8; 32]) -> Result<Self, CryptoError> {
        Ok(Self {
            salt,
            key: GcmKey::new(&hkdf(&keys.blocks, &salt, b"")?)?,
            object_id: keys.object_id,
            epoch: keys.epoch,
        })
    }

    pub(super) fn salt(&self) -> [u8; 32] {
        self.salt
    }

    /// Seals `nonce | image` in place: draws the nonce, gives the tag. `first` is the FID of the first slot, generation 0.
    pub(super) fn seal(
        &self,
        first: u64,
        version: u64,
        sealed: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        let bound = block_bound(self.object_id, self.epoch, first, version);
        let drawn = nonce12()?;
        let (nonce, image) = sealed
            .split_at_mut_checked(NONCE)
            .ok_or(CryptoError::Length)?;
        nonce.copy_from_slice(&drawn);
        self.key.seal(&drawn, &bound, image)
    }

    /// Opens `nonce | image` in place.
    pub(super) fn open(
        &self,
        first: u64,
        version: u64,
        tag: &[u8; 16],
        sealed: &mut [u8],
    ) -> Result<(), OpenError> {
        let bound = block_bound(self.object_id, self.epoch, first, version);
        let (nonce, image) = sealed.split_first_chunk_mut::<NONCE>().ok_or(OpenError)?;
        self.key.open(nonce, &bound, image, tag)
    }
}
