//! The 4 KiB object header: what every sealed object begins with. Specified in docs/spec/header.md.
//!
//! [`Header::parse`] checks structure only; nothing in a parsed header is to be believed until the
//! MAC has been verified under the data key (strongroom-keyring does that). The anchors live in
//! sectors of their own in the same 4 KiB and are not covered by the header's MAC: they change
//! while the database is in use, the header does not.
//!
//! Must not: compute a checksum or a MAC, or know how a slot is opened.

use alloc::vec;
use alloc::vec::Vec;

use crate::FORMAT_VERSION;
pub use crate::anchor::{Anchor, SEALS_LIMIT, SEALS_STEP, SEALS_WARN};
pub use crate::cipher::Cipher;
use crate::layout::{array, bytes, is_zero, layout, put, u16_at, u32_at, u64_at, zero_at};
use crate::slot::Slot;

/// Length of the object header, in bytes. The object's data begins at this offset.
pub const HEADER_LEN: usize = 4096;
/// First bytes of every sealed object. The high first byte and the line ends show up a transfer in
/// text mode.
pub const MAGIC: [u8; 16] = *b"\x89STRONGROOM\r\n\x1a\n\0";
/// The greatest number of key slots.
pub const SLOTS_MAX: usize = 8;
/// The value sealed in the canary.
pub const CANARY_PLAINTEXT: [u8; 16] = *b"strongroom/canar";

layout! {
    /// Layout of the object header.
    header_layout, 4096, {
        MAGIC @ 0, 16;
        VERSION @ 16, 2;
        KIND @ 18, 2;
        HEADER_LEN @ 20, 4;
        OBJECT_ID @ 24, 16;
        CREATED @ 40, 8;
        CIPHER @ 48, 2;
        AAD_MODE @ 50, 2;
        UNIT_SIZE @ 52, 4;
        UNIT_RESERVE @ 56, 4;
        EPOCH @ 60, 4;
        PREVIOUS_EPOCH @ 64, 4;
        DATA_KDF @ 68, 2;
        SLOT_COUNT @ 70, 2;
        SEQUENCE @ 72, 8;
        FEATURES @ 80, 4;
        RESERVED_A @ 84, 44;
        PREVIOUS_KEY @ 128, 60;
        RESERVED_B @ 188, 4;
        CANARY @ 192, 44;
        RESERVED_C @ 236, 20;
        SLOTS @ 256, 2752;
        MAC @ 3008, 32;
        CHECKSUM @ 3040, 32;
        ANCHOR_A @ 3072, 512;
        ANCHOR_B @ 3584, 512;
    }
}

layout! {
    /// Layout of a key wrapped with AES-256-GCM.
    wrapped_layout, 60, {
        NONCE @ 0, 12;
        KEY @ 12, 32;
        TAG @ 44, 16;
    }
}

layout! {
    /// Layout of the canary.
    canary_layout, 44, {
        NONCE @ 0, 12;
        VALUE @ 12, 16;
        TAG @ 28, 16;
    }
}

layout! {
    /// Layout of an anchor: state that changes with the database, in a sector of its own.
    anchor_layout, 512, {
        SEQUENCE @ 0, 8;
        EPOCH @ 8, 4;
        RESERVED_A @ 12, 4;
        WAL_GENERATION @ 16, 16;
        FRESHNESS @ 32, 168;
        SEALS @ 200, 8;
        RESERVED_B @ 208, 272;
        MAC @ 480, 32;
    }
}

/// Bit of `FEATURES`: the anchors of this database keep a digest over its pages.
pub const FEATURE_FRESHNESS: u32 = 1;
/// Bit of `FEATURES`: the transaction status files of this instance hold no zeros.
pub const FEATURE_SEALED_ZEROS: u32 = 2;
/// Bit of `FEATURES`: the containers of this instance are bound to their names.
pub const FEATURE_BOUND_NAMES: u32 = 4;
/// Every bit of `FEATURES` that has a meaning.
const FEATURES_KNOWN: u32 = FEATURE_FRESHNESS | FEATURE_SEALED_ZEROS | FEATURE_BOUND_NAMES;

/// Offset up to which the MAC covers the header.
pub const MAC_COVERS: usize = header_layout::MAC.offset;
/// Offset up to which the checksum covers the header.
pub const CHECKSUM_COVERS: usize = header_layout::CHECKSUM.offset;
/// Length of the part that is rewritten when slots or keys change (all but the anchors).
pub const FIXED_LEN: usize = header_layout::ANCHOR_A.offset;

/// What kind of object the header belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectKind {
    /// A SQLite database file.
    Sqlite,
    /// A keyring.
    Keyring,
    /// A PostgreSQL instance.
    Postgres,
    /// The store of a privacy zone.
    Zone,
    /// A backup set.
    Backup,
}

impl ObjectKind {
    /// The number in the header.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Sqlite => 1,
            Self::Keyring => 2,
            Self::Postgres => 3,
            Self::Zone => 4,
            Self::Backup => 5,
        }
    }

    /// The kind of this number. `None` for a number that no kind has.
    fn from_number(number: u16) -> Option<Self> {
        [
            Self::Sqlite,
            Self::Keyring,
            Self::Postgres,
            Self::Zone,
            Self::Backup,
        ]
        .into_iter()
        .find(|kind| kind.number() == number)
    }

    /// The word used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Keyring => "keyring",
            Self::Postgres => "postgres",
            Self::Zone => "zone",
            Self::Backup => "backup",
        }
    }
}

/// A 32-byte key wrapped with AES-256-GCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// GCM nonce.
    pub nonce: [u8; 12],
    /// The wrapped key.
    pub key: [u8; 32],
    /// GCM tag.
    pub tag: [u8; 16],
}

impl WrappedKey {
    /// All zero: no key.
    pub const NONE: Self = Self {
        nonce: [0; 12],
        key: [0; 32],
        tag: [0; 16],
    };

    /// Reads a wrapped key from the first 60 bytes of `record`. `None` when there are fewer.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        Some(Self {
            nonce: array(record, wrapped_layout::NONCE)?,
            key: array(record, wrapped_layout::KEY)?,
            tag: array(record, wrapped_layout::TAG)?,
        })
    }

    /// The 60 bytes: nonce, wrapped key, tag.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; wrapped_layout::SIZE] {
        let mut out = [0; wrapped_layout::SIZE];
        let done = [
            put(&mut out, wrapped_layout::NONCE, &self.nonce),
            put(&mut out, wrapped_layout::KEY, &self.key),
            put(&mut out, wrapped_layout::TAG, &self.tag),
        ];
        assert!(done.iter().all(Option::is_some), "wrapped key layout");
        out
    }
}

/// The sealed canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canary {
    /// GCM nonce.
    pub nonce: [u8; 12],
    /// [`CANARY_PLAINTEXT`], sealed.
    pub value: [u8; 16],
    /// GCM tag.
    pub tag: [u8; 16],
}

/// Why bytes are not a header that this code reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The magic is not there: not a sealed object.
    NotSealed,
    /// Fewer than [`FIXED_LEN`] bytes.
    Truncated,
    /// Written by a newer version; the number is the version found.
    Newer(u16),
    /// A field has a value that no version writes; the name is the field's.
    Malformed(&'static str),
}

/// A structurally valid object header. Not authenticated: see the module comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the object is.
    pub kind: ObjectKind,
    /// Random id; also the salt of the data key's sub-keys.
    pub object_id: [u8; 16],
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// Cipher of pages or chunks.
    pub cipher: Cipher,
    /// Page size in bytes (SQLite), data unit (PostgreSQL), 0 where there is none.
    pub unit_size: u32,
    /// Bytes at the end of each page that hold nonce, tag and epoch.
    pub unit_reserve: u32,
    /// Key epoch of new writes, from 1.
    pub epoch: u32,
    /// The epoch being replaced while a rekey is under way, else 0.
    pub previous_epoch: u32,
    /// Raised by one at each rewrite of the header.
    pub sequence: u64,
    /// Whether the anchors keep a digest over the pages ([`FEATURE_FRESHNESS`]; databases only).
    pub freshness: bool,
    /// Of a PostgreSQL instance: its transaction status files hold no zeros, because zeros too were
    /// sealed whenever they were written. Never changes.
    pub sealed_zeros: bool,
    /// Of a PostgreSQL instance: each of its containers is bound to its name, and a container
    /// that is not is refused. Never changes.
    pub bound_names: bool,
    /// Data key of `previous_epoch`, wrapped under the current data key.
    pub previous_key: WrappedKey,
    /// A known value under the current data key.
    pub canary: Canary,
    /// Key slots, in order.
    pub slots: Vec<Slot>,
    /// HMAC-SHA256 over bytes `0..MAC_COVERS`.
    pub mac: [u8; 32],
    /// SHA-256 over bytes `0..CHECKSUM_COVERS`: tells damage from a wrong key.
    pub checksum: [u8; 32],
}

/// Whether `bytes` begin with the magic of a sealed object, of any kind. False when they are
/// shorter. Nothing else is checked.
#[must_use]
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

impl Header {
    /// Parses the beginning of an object, of which the first [`FIXED_LEN`] bytes are needed.
    /// Neither MAC nor checksum is verified.
    ///
    /// # Errors
    /// In this order: [`HeaderError::NotSealed`] without the magic, [`HeaderError::Truncated`] for
    /// fewer bytes, [`HeaderError::Newer`] for a later version, [`HeaderError::Malformed`] with the
    /// name of a field whose value is not allowed.
    pub fn parse(record: &[u8]) -> Result<Self, HeaderError> {
        use header_layout as at;
        if !is_sealed(record) {
            return Err(HeaderError::NotSealed);
        }
        // Only the fixed part is needed: a redo copy of the header carries no anchors.
        if record.len() < FIXED_LEN {
            return Err(HeaderError::Truncated);
        }
        let version = u16_at(record, at::VERSION).ok_or(HeaderError::Truncated)?;
        if version > FORMAT_VERSION {
            return Err(HeaderError::Newer(version));
        }
        let bad = HeaderError::Malformed;
        if version == 0 {
            return Err(bad("VERSION"));
        }
        if u32_at(record, at::HEADER_LEN) != u32::try_from(HEADER_LEN).ok() {
            return Err(bad("HEADER_LEN"));
        }
        for (name, value) in [("AAD_MODE", at::AAD_MODE), ("DATA_KDF", at::DATA_KDF)] {
            if u16_at(record, value) != Some(1) {
                return Err(bad(name));
            }
        }
        for field in [at::RESERVED_A, at::RESERVED_B, at::RESERVED_C] {
            if !zero_at(record, field) {
                return Err(bad(field.name));
            }
        }
        let features = u32_at(record, at::FEATURES).ok_or(HeaderError::Truncated)?;
        if features & !FEATURES_KNOWN != 0 {
            return Err(bad("FEATURES"));
        }
        let kind = u16_at(record, at::KIND).and_then(ObjectKind::from_number);
        let cipher = u16_at(record, at::CIPHER).and_then(Cipher::from_number);
        let header = Self {
            kind: kind.ok_or_else(|| bad("KIND"))?,
            object_id: array(record, at::OBJECT_ID).ok_or(HeaderError::Truncated)?,
            created_unix_s: u64_at(record, at::CREATED).ok_or(HeaderError::Truncated)?,
            cipher: cipher.ok_or_else(|| bad("CIPHER"))?,
            unit_size: u32_at(record, at::UNIT_SIZE).ok_or(HeaderError::Truncated)?,
            unit_reserve: u32_at(record, at::UNIT_RESERVE).ok_or(HeaderError::Truncated)?,
            epoch: u32_at(record, at::EPOCH).ok_or(HeaderError::Truncated)?,
            previous_epoch: u32_at(record, at::PREVIOUS_EPOCH).ok_or(HeaderError::Truncated)?,
            sequence: u64_at(record, at::SEQUENCE).ok_or(HeaderError::Truncated)?,
            freshness: features & FEATURE_FRESHNESS != 0,
            sealed_zeros: features & FEATURE_SEALED_ZEROS != 0,
            bound_names: features & FEATURE_BOUND_NAMES != 0,
            previous_key: bytes(record, at::PREVIOUS_KEY)
                .and_then(WrappedKey::parse)
                .ok_or(HeaderError::Truncated)?,
            canary: bytes(record, at::CANARY)
                .and_then(parse_canary)
                .ok_or(HeaderError::Truncated)?,
            slots: parse_slots(record)?,
            mac: array(record, at::MAC).ok_or(HeaderError::Truncated)?,
            checksum: array(record, at::CHECKSUM).ok_or(HeaderError::Truncated)?,
        };
        header.check()?;
        Ok(header)
    }

    /// Checks the rules between the fields. Errors: [`HeaderError::Malformed`] with the name of the
    /// field that breaks one.
    fn check(&self) -> Result<(), HeaderError> {
        let bad = HeaderError::Malformed;
        if self.epoch == 0 {
            return Err(bad("EPOCH"));
        }
        let rekeying = self.previous_epoch != 0;
        if rekeying && self.previous_epoch.checked_add(1) != Some(self.epoch) {
            return Err(bad("PREVIOUS_EPOCH"));
        }
        if rekeying == (self.previous_key == WrappedKey::NONE) {
            return Err(bad("PREVIOUS_KEY"));
        }
        if !self.cipher.is_allowed_in(self.kind) {
            return Err(bad("CIPHER"));
        }
        let features_ok = match self.kind {
            ObjectKind::Sqlite => !self.sealed_zeros && !self.bound_names,
            ObjectKind::Postgres => !self.freshness,
            _ => !self.freshness && !self.sealed_zeros && !self.bound_names,
        };
        if !features_ok {
            return Err(bad("FEATURES"));
        }
        let sizes_ok = match self.kind {
            ObjectKind::Sqlite => {
                self.unit_size.is_power_of_two()
                    && (512..=65536).contains(&self.unit_size)
                    && self.unit_reserve == crate::sqlite::PAGE_RESERVE
            }
            ObjectKind::Keyring | ObjectKind::Zone | ObjectKind::Backup => {
                self.unit_size == 0 && self.unit_reserve == 0
            }
            ObjectKind::Postgres => {
                self.unit_size == crate::postgres::BLOCK && self.unit_reserve == 0
            }
        };
        if sizes_ok {
            Ok(())
        } else {
            Err(bad("UNIT_SIZE"))
        }
    }

    /// The fixed part of the header, `FIXED_LEN` bytes, without the anchors. Nothing is computed:
    /// `mac` and `checksum` are written as they are in `self`.
    ///
    /// # Errors
    /// [`HeaderError::Malformed`] with the name of a field when the slots do not fit, there are
    /// more than [`SLOTS_MAX`], or fields contradict each other.
    pub fn to_bytes(&self) -> Result<Vec<u8>, HeaderError> {
        use header_layout as at;
        self.check()?;
        let mut out = vec![0; FIXED_LEN];
        let slots = self.slots_bytes()?;
        let slot_count =
            u16::try_from(self.slots.len()).map_err(|_| HeaderError::Malformed("SLOT_COUNT"))?;
        let header_len = u32::try_from(HEADER_LEN).map_err(|_| HeaderError::Truncated)?;
        let bit = |set, bit| if set { bit } else { 0 };
        let features = bit(self.freshness, FEATURE_FRESHNESS)
            | bit(self.sealed_zeros, FEATURE_SEALED_ZEROS)
            | bit(self.bound_names, FEATURE_BOUND_NAMES);
        let mut canary = [0; canary_layout::SIZE];
        let written = [
            put(&mut canary, canary_layout::NONCE, &self.canary.nonce),
            put(&mut canary, canary_layout::VALUE, &self.canary.value),
            put(&mut canary, canary_layout::TAG, &self.canary.tag),
            put(&mut out, at::MAGIC, &MAGIC),
            put(&mut out, at::VERSION, &FORMAT_VERSION.to_le_bytes()),
            put(&mut out, at::KIND, &self.kind.number().to_le_bytes()),
            put(&mut out, at::HEADER_LEN, &header_len.to_le_bytes()),
            put(&mut out, at::OBJECT_ID, &self.object_id),
            put(&mut out, at::CREATED, &self.created_unix_s.to_le_bytes()),
            put(&mut out, at::CIPHER, &self.cipher.number().to_le_bytes()),
            put(&mut out, at::AAD_MODE, &1_u16.to_le_bytes()),
            put(&mut out, at::UNIT_SIZE, &self.unit_size.to_le_bytes()),
            put(&mut out, at::UNIT_RESERVE, &self.unit_reserve.to_le_bytes()),
            put(&mut out, at::EPOCH, &self.epoch.to_le_bytes()),
            put(
                &mut out,
                at::PREVIOUS_EPOCH,
                &self.previous_epoch.to_le_bytes(),
            ),
            put(&mut out, at::DATA_KDF, &1_u16.to_le_bytes()),
            put(&mut out, at::SLOT_COUNT, &slot_count.to_le_bytes()),
            put(&mut out, at::SEQUENCE, &self.sequence.to_le_bytes()),
            put(&mut out, at::FEATURES, &features.to_le_bytes()),
            put(&mut out, at::PREVIOUS_KEY, &self.previous_key.to_bytes()),
            put(&mut out, at::CANARY, &canary),
            put(&mut out, at::SLOTS, &slots),
            put(&mut out, at::MAC, &self.mac),
            put(&mut out, at::CHECKSUM, &self.checksum),
        ];
        assert!(written.iter().all(Option::is_some), "header layout");
        Ok(out)
    }

    /// The area of the slots: one after the other, then zeros to the area's full length. Errors:
    /// [`HeaderError::Malformed`] when there are more than [`SLOTS_MAX`] slots, when they do not
    /// fit the area, or when one cannot be serialised.
    fn slots_bytes(&self) -> Result<Vec<u8>, HeaderError> {
        if self.slots.len() > SLOTS_MAX {
            return Err(HeaderError::Malformed("SLOT_COUNT"));
        }
        let mut out = Vec::new();
        for slot in &self.slots {
            out.extend_from_slice(&slot.to_bytes().ok_or(HeaderError::Malformed("SLOTS"))?);
        }
        if out.len() > header_layout::SLOTS.len {
            return Err(HeaderError::Malformed("SLOTS"));
        }
        out.resize(header_layout::SLOTS.len, 0);
        Ok(out)
    }
}

/// Reads the canary's nonce, sealed value and tag, without opening it. `None` when `record` is
/// shorter than a canary.
fn parse_canary(record: &[u8]) -> Option<Canary> {
    Some(Canary {
        nonce: array(record, canary_layout::NONCE)?,
        value: array(record, canary_layout::VALUE)?,
        tag: array(record, canary_layout::TAG)?,
    })
}

/// Parses the slots of a whole header. [`HeaderError::Malformed`] when there are more than a header
/// may have, when one has a value that no writer gives it, or when something other than zeros
/// follows the last one; [`HeaderError::Truncated`] when `record` ends before the slots do.
fn parse_slots(record: &[u8]) -> Result<Vec<Slot>, HeaderError> {
    let bad = HeaderError::Malformed;
    let count = u16_at(record, header_layout::SLOT_COUNT).ok_or(HeaderError::Truncated)?;
    if usize::from(count) > SLOTS_MAX {
        return Err(bad("SLOT_COUNT"));
    }
    let mut rest = bytes(record, header_layout::SLOTS).ok_or(HeaderError::Truncated)?;
    let mut slots = Vec::new();
    for _ in 0..count {
        let (slot, tail) = Slot::parse(rest).ok_or_else(|| bad("SLOTS"))?;
        slots.push(slot);
        rest = tail;
    }
    // Canonical: whatever follows the last slot is zero.
    if is_zero(rest) {
        Ok(slots)
    } else {
        Err(bad("SLOTS"))
    }
}
