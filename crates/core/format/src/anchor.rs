//! The anchors of a database: state that changes while it is in use, in sectors of their own.
//! docs/spec/header.md, "Anchors".
//!
//! Must not: compute a MAC.

use crate::header::{anchor_layout, header_layout};
use crate::layout::{array, put, u32_at, u64_at, zero_at};

/// By how much the estimate of seals grows each time a random nonce begins with two zero bytes, as
/// one nonce in 65 536 does.
pub const SEALS_STEP: u64 = 1 << 16;
/// How many pages one data key may seal under random nonces (NIST SP 800-38D, section 8.3).
pub const SEALS_LIMIT: u64 = 1 << 32;
/// From this many seals on, opening the database gives a warning.
pub const SEALS_WARN: u64 = SEALS_LIMIT / 4;

/// The changing state kept beside the header, in two alternating sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The anchor with the higher sequence is in force.
    pub sequence: u64,
    /// Key epoch under which the MAC is made.
    pub epoch: u32,
    /// First 16 bytes of the write-ahead log's salt; zero when no log is valid.
    pub wal_generation: [u8; 16],
    /// The sealed freshness state of a database that keeps one ([`crate::freshness`]); else zero.
    pub freshness: [u8; anchor_layout::FRESHNESS.len],
    /// An estimate of how many pages were sealed under the data key of `epoch` ([`SEALS_STEP`]).
    pub seals: u64,
    /// HMAC-SHA256 over the anchor's first 480 bytes.
    pub mac: [u8; 32],
}

impl Anchor {
    /// Parses one sector. `None` when it is shorter than an anchor, was never written, or has
    /// reserved bytes that are not zero. The MAC is not verified.
    #[must_use]
    pub fn parse(sector: &[u8]) -> Option<Self> {
        use anchor_layout as at;
        let canonical = zero_at(sector, at::RESERVED_A) && zero_at(sector, at::RESERVED_B);
        let anchor = Self {
            sequence: u64_at(sector, at::SEQUENCE)?,
            epoch: u32_at(sector, at::EPOCH)?,
            wal_generation: array(sector, at::WAL_GENERATION)?,
            freshness: array(sector, at::FRESHNESS)?,
            seals: u64_at(sector, at::SEALS)?,
            mac: array(sector, at::MAC)?,
        };
        (canonical && anchor.sequence > 0).then_some(anchor)
    }

    /// The sector's 512 bytes. Nothing is computed: `mac` is written as it is in `self`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; anchor_layout::SIZE] {
        use anchor_layout as at;
        let mut out = [0; anchor_layout::SIZE];
        let done = [
            put(&mut out, at::SEQUENCE, &self.sequence.to_le_bytes()),
            put(&mut out, at::EPOCH, &self.epoch.to_le_bytes()),
            put(&mut out, at::WAL_GENERATION, &self.wal_generation),
            put(&mut out, at::FRESHNESS, &self.freshness),
            put(&mut out, at::SEALS, &self.seals.to_le_bytes()),
            put(&mut out, at::MAC, &self.mac),
        ];
        assert!(done.iter().all(Option::is_some), "anchor layout");
        out
    }

    /// The estimate of the seals under the data key of `epoch`; 0 when this anchor is of another
    /// epoch.
    #[must_use]
    pub const fn seals_under(&self, epoch: u32) -> u64 {
        if self.epoch == epoch { self.seals } else { 0 }
    }

    /// Offset, within the header, of the sector that an anchor of this sequence is written to.
    #[must_use]
    pub const fn offset(sequence: u64) -> usize {
        if sequence % 2 == 1 {
            header_layout::ANCHOR_A.offset
        } else {
            header_layout::ANCHOR_B.offset
        }
    }
}
