//! The keys of one instance at one epoch, ready for use.
//!
//! Invariants: each group of classes has a key of its own, derived from the instance's data key by
//! label; temporary files have keys that are drawn here and exist in this process and its forked
//! children only.
//!
//! Must not: be copied, printed, or built from anything but an authenticated header.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use strongroom_crypto::{CtrKey, GcmKey, SecretBytes, SecretKey, XtsKey, fill_random};
use strongroom_format::code;
use strongroom_keyring::{Error, Object, Purpose};

use crate::layout::BlockKey;

/// The keys of one instance at one epoch.
pub struct Keys {
    relation: XtsKey,
    wal: XtsKey,
    slru: XtsKey,
    control: XtsKey,
    map: XtsKey,
    temporary: XtsKey,
    stream: CtrKey,
    boot_stream: CtrKey,
    container: GcmKey,
    zeros_are_sealed: bool,
    names_are_bound: bool,
}

impl Keys {
    /// Derives the keys of `epoch` from the instance's data key, and draws new random keys for
    /// temporary files.
    ///
    /// # Errors
    /// SR-4008 when the header knows no such epoch; SR-5001 when there is no memory for keys;
    /// SR-9001 when the object is not an instance.
    pub fn open(object: &Object, epoch: u32) -> Result<Self, Error> {
        let xts = |purpose| Ok::<_, Error>(XtsKey::new(&object.xts_subkey(epoch, purpose)?)?);
        let len = object.header().cipher.xts_key_len();
        let len = len.ok_or_else(|| Error::new(&code::BUG, "an instance without XTS"))?;
        Ok(Self {
            relation: xts(Purpose::PgRelation)?,
            wal: xts(Purpose::PgWal)?,
            slru: xts(Purpose::PgSlru)?,
            control: xts(Purpose::PgControl)?,
            map: xts(Purpose::PgMap)?,
            temporary: XtsKey::new(&random(len)?)?,
            stream: CtrKey::new(&object.subkey(epoch, Purpose::PgStream)?)?,
            boot_stream: CtrKey::new(&SecretKey::generate()?)?,
            container: GcmKey::new(&object.subkey(epoch, Purpose::PgContainer)?)?,
            zeros_are_sealed: object.header().sealed_zeros,
            names_are_bound: object.header().bound_names,
        })
    }

    /// Returns the XTS key of a block file.
    #[must_use]
    pub const fn block(&self, which: BlockKey) -> &XtsKey {
        match which {
            BlockKey::Relation => &self.relation,
            BlockKey::Wal => &self.wal,
            BlockKey::Slru => &self.slru,
            BlockKey::Control => &self.control,
            BlockKey::Map => &self.map,
            BlockKey::Temporary => &self.temporary,
        }
    }

    /// Returns the key of streams: with `this_boot` the one that was drawn at this start of the
    /// server, for temporary files, else the persistent one.
    #[must_use]
    pub const fn stream(&self, this_boot: bool) -> &CtrKey {
        if this_boot {
            &self.boot_stream
        } else {
            &self.stream
        }
    }

    /// Returns the key of containers.
    #[must_use]
    pub const fn container(&self) -> &GcmKey {
        &self.container
    }

    /// Whether all bytes of transaction status files under these keys are sealed, zeros too.
    #[must_use]
    pub const fn zeros_are_sealed(&self) -> bool {
        self.zeros_are_sealed
    }

    /// Whether every container under these keys is bound to its name: one that is not is refused.
    #[must_use]
    pub const fn names_are_bound(&self) -> bool {
        self.names_are_bound
    }
}

/// Draws `len` random bytes into locked memory. SR-5001 when there is no such memory, or there are
/// no random bytes.
fn random(len: usize) -> Result<SecretBytes, Error> {
    let mut key = SecretBytes::with_capacity(len)?;
    fill_random(key.as_mut_slice())?;
    Ok(key)
}
