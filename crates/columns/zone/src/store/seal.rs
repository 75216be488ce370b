//! The keys of a store: which key seals blocks, redo records and manifests.
//!
//! Invariants: S2 (a block is bound to partition, extent, block and version), L3 (a redo record's
//! key is its incarnation's and run's, its nonce random). Must not: do I/O; keep an opened image
//! outside locked memory.

use strongroom_crypto::{
    CryptoError, GcmKey, MacKey, OpenError, SecretKey, hkdf, random16, random32,
};
use strongroom_format::columns::block::{
    BLOCK_NONCE_LABEL, block_associated_data, sealed_block_layout,
};
use strongroom_format::columns::manifest::{MANIFEST_NONCE_LABEL, MANIFEST_VERSION, ManifestHead};
use strongroom_format::columns::redo::REDO_NONCE_LABEL;
#[cfg(doc)]
use strongroom_format::columns::redo::RedoHead;
use strongroom_keyring::{Error, Object, Purpose};

/// Bytes of a block's nonce.
pub(super) const NONCE: usize = sealed_block_layout::SIZE;

/// The keys of one store.
pub struct Keys {
    object_id: [u8; 16],
    epoch: u32,
    blocks: SecretKey,
    redo: SecretKey,
    equality: SecretKey,
    manifest: GcmKey,
    manifest_nonces: Nonces,
}

impl Keys {
    /// Derives the keys of the store whose header this is.
    ///
    /// # Errors
    /// SR-5001 if there is no locked memory for keys.
    pub fn derive(object: &Object) -> Result<Self, Error> {
        let epoch = object.epoch();
        let manifest = object.subkey(epoch, Purpose::ZoneManifest)?;
        Ok(Self {
            object_id: object.object_id(),
            epoch,
            blocks: object.subkey(epoch, Purpose::ZoneBlocks)?,
            redo: object.subkey(epoch, Purpose::ZoneRedo)?,
            equality: object.subkey(epoch, Purpose::ZoneEquality)?,
            manifest: GcmKey::new(&manifest)?,
            manifest_nonces: Nonces::under(&manifest, b"", MANIFEST_NONCE_LABEL)?,
        })
    }

    /// Derives the key that seals the redo records of `incarnation` with the key number `number`
    /// ([`RedoHead::key_number`]). Fails without locked memory for it.
    pub(super) fn redo_key(
        &self,
        incarnation: [u8; 16],
        number: u64,
    ) -> Result<GcmKey, CryptoError> {
        GcmKey::new(&hkdf(&self.redo, &incarnation, &number.to_le_bytes())?)
    }

    /// A new generator of nonces for an incarnation's records. Fails without locked memory for its
    /// key.
    pub(super) fn redo_nonces(&self, incarnation: [u8; 16]) -> Result<Nonces, CryptoError> {
        Nonces::under(&self.redo, &incarnation, REDO_NONCE_LABEL)
    }

    /// The key that the keys of columns of class equality are derived from.
    pub(super) fn equality(&self) -> &SecretKey {
        &self.equality
    }

    /// The store's object id.
    pub(super) fn object_id(&self) -> [u8; 16] {
        self.object_id
    }

    /// The epoch of the data key that these keys are derived from.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Encrypts a manifest's body in place, under a fresh nonce; returns the head, which has
    /// counter, nonce and tag. Fails without random numbers.
    pub(super) fn seal_manifest(
        &self,
        counter: u64,
        body: &mut [u8],
    ) -> Result<ManifestHead, CryptoError> {
        let mut head = ManifestHead {
            version: MANIFEST_VERSION,
            counter,
            length: body.len() as u64,
            // Two manifests of one counter can exist, after a crash or a restore.
            nonce: self.manifest_nonces.draw(body)?,
            tag: [0; 16],
        };
        let bound = head.associated_data(self.object_id, self.epoch);
        head.tag = self.manifest.seal(&head.nonce, &bound, body)?;
        Ok(head)
    }

    /// Authenticates and decrypts a manifest's body in place. Fails if it is damaged, or of another
    /// store.
    pub(super) fn open_manifest(
        &self,
        head: &ManifestHead,
        body: &mut [u8],
    ) -> Result<(), OpenError> {
        let bound = head.associated_data(self.object_id, self.epoch);
        self.manifest.open(&head.nonce, &bound, body, &head.tag)
    }
}

/// Nonces of redo records, blocks and manifests, computed from random bytes and from the content
/// that is sealed. A machine that is resumed from a snapshot may repeat its random numbers, but one
/// nonce still seals one content only.
pub(super) struct Nonces(MacKey);

impl Nonces {
    /// A generator whose key is derived from `key` (HKDF-SHA256, `label` as info). Fails without
    /// locked memory for it.
    fn under(key: &SecretKey, salt: &[u8], label: &str) -> Result<Self, CryptoError> {
        MacKey::new(&hkdf(key, salt, label.as_bytes())?).map(Self)
    }

    /// A fresh nonce for this content, from new random bytes and the content. Fails without random
    /// numbers.
    pub(super) fn draw(&self, body: &[u8]) -> Result<[u8; 12], CryptoError> {
        self.draw_with(&random16()?, body)
    }

    /// The nonce for these random bytes and this content: another content gives another nonce, even
    /// with the same random bytes. Never fails in practice.
    fn draw_with(&self, random: &[u8; 16], body: &[u8]) -> Result<[u8; 12], CryptoError> {
        let mac = self.0.mac(&[random, body]);
        mac.first_chunk().copied().ok_or(CryptoError::Length)
    }
}

/// The key of one partition's blocks. Dropping it, and the manifest that has its salt, makes its
/// blocks unreadable.
pub(super) struct PartitionKey {
    salt: [u8; 32],
    key: GcmKey,
    nonces: Nonces,
    object_id: [u8; 16],
    epoch: u32,
}

impl PartitionKey {
    /// A key for a new partition, under a random salt. Fails without random numbers, or locked
    /// memory for it.
    pub(super) fn new(keys: &Keys) -> Result<Self, CryptoError> {
        Self::derive(keys, random32()?)
    }

    /// The key of the partition with this salt. Fails without locked memory for it.
    pub(super) fn derive(keys: &Keys, salt: [u8; 32]) -> Result<Self, CryptoError> {
        Ok(Self {
            salt,
            key: GcmKey::new(&hkdf(&keys.blocks, &salt, b"")?)?,
            nonces: Nonces::under(&keys.blocks, &salt, BLOCK_NONCE_LABEL)?,
            object_id: keys.object_id,
            epoch: keys.epoch,
        })
    }

    /// The salt, which a manifest keeps in place of the key.
    pub(super) fn salt(&self) -> [u8; 32] {
        self.salt
    }

    /// Encrypts `nonce | image` in place: fills in a fresh nonce, and returns the tag. Binds it to
    /// `first`, the bits of the identifier of the block's first slot in generation 0, and to
    /// `version`. Fails without random numbers, or if there is no room for the nonce.
    pub(super) fn seal(
        &self,
        first: u64,
        version: u64,
        sealed: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        let bound = block_associated_data(self.object_id, self.epoch, first, version);
        let (nonce, image) = sealed
            .split_at_mut_checked(NONCE)
            .ok_or(CryptoError::Length)?;
        let drawn = self.nonces.draw(image)?;
        nonce.copy_from_slice(&drawn);
        self.key.seal(&drawn, &bound, image)
    }

    /// Authenticates and decrypts `nonce | image` in place, bound as by [`Self::seal`]. Fails if it
    /// is damaged, or of another place or version.
    pub(super) fn open(
        &self,
        first: u64,
        version: u64,
        tag: &[u8; 16],
        sealed: &mut [u8],
    ) -> Result<(), OpenError> {
        let bound = block_associated_data(self.object_id, self.epoch, first, version);
        let (nonce, image) = sealed.split_first_chunk_mut::<NONCE>().ok_or(OpenError)?;
        self.key.open(nonce, &bound, image, tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_other_nonces_even_where_random_numbers_come_again() {
        let nonces = Nonces(MacKey::new(&SecretKey::take(&mut [1; 32]).unwrap()).unwrap());
        let again = [7; 16];
        let of = |body: &[u8]| nonces.draw_with(&again, body).unwrap();
        assert_ne!(of(b"one"), of(b"another"));
        assert_eq!(of(b"one"), of(b"one"), "the same record");
        let drawn = |body: &[u8]| nonces.draw(body).unwrap();
        assert_ne!(drawn(b"one"), drawn(b"one"));
    }
}
