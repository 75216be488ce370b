//! The file beside a DuckDB database while its key is changed: a plan of the rekey, and an undo
//! copy of the units that are being overwritten. The format is Strongroom's own.
//!
//! Must not: hold a key, or anything that was decrypted.

use alloc::vec;
use alloc::vec::Vec;

use super::{
    DUCKDB_BLOCK_MAX, DUCKDB_BLOCK_MIN, DUCKDB_HEADER_LEN, DUCKDB_UNDO_AT, DUCKDB_UNDO_SLOTS_AT,
    DUCKDB_UNDO_UNITS, DUCKDB_UNIT_CLEAR, MainHeader,
};
use crate::layout::{array, bytes, layout, put, u32_at, u64_at, zero_at};

layout! {
    /// Layout of the plan, at the beginning of the file.
    rekey_plan_layout, 8256, {
        MAGIC @ 0, 8;
        VERSION @ 8, 4;
        BLOCK_SIZE @ 12, 4;
        BLOCKS @ 16, 8;
        RESERVED @ 24, 8;
        OLD_HEADER @ 32, 4096;
        NEW_HEADER @ 4128, 4096;
        DIGEST @ 8224, 32;
    }
}

layout! {
    /// Layout of the fixed part of the undo copy's head; 32 bytes for each unit follow.
    rekey_undo_layout, 64, {
        DIGEST @ 0, 32;
        PLAN @ 32, 16;
        KIND @ 48, 4;
        COUNT @ 52, 4;
        FIRST @ 56, 8;
    }
}

/// First bytes of the rekey's file.
pub const REKEY_MAGIC: [u8; 8] = *b"SRDUCKRK";
/// Version of the rekey's file.
pub const REKEY_VERSION: u32 = 1;

/// The plan of a rekey. It is written whole before the database is touched.
#[derive(Clone, PartialEq, Eq)]
pub struct RekeyPlan {
    /// Length of a block, in bytes.
    pub block_size: u32,
    /// Whole blocks in the file.
    pub blocks: u64,
    /// The main header as it was, with its checksum right.
    pub old_header: MainHeader,
    /// The main header as it will be.
    pub new_header: MainHeader,
    /// SHA-256 of all before it.
    pub digest: [u8; 32],
}

impl RekeyPlan {
    /// Parses a plan. `None` when the bytes are not a plan of this version. The caller verifies the
    /// digest.
    #[must_use]
    pub fn parse(file: &[u8]) -> Option<Self> {
        use rekey_plan_layout as at;
        let plan = file.get(..at::SIZE)?;
        let known = bytes(plan, at::MAGIC)? == REKEY_MAGIC
            && u32_at(plan, at::VERSION)? == REKEY_VERSION
            && zero_at(plan, at::RESERVED);
        known.then_some(())?;
        let block_size = u32_at(plan, at::BLOCK_SIZE)?;
        let sizes = DUCKDB_BLOCK_MIN..=DUCKDB_BLOCK_MAX;
        (block_size.is_power_of_two() && sizes.contains(&block_size.into())).then_some(())?;
        Some(Self {
            block_size,
            blocks: u64_at(plan, at::BLOCKS)?,
            old_header: MainHeader::parse(bytes(plan, at::OLD_HEADER)?)?,
            new_header: MainHeader::parse(bytes(plan, at::NEW_HEADER)?)?,
            digest: array(plan, at::DIGEST)?,
        })
    }

    /// The plan's bytes. `digest` is written as it is; it should be that of all bytes before it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        use rekey_plan_layout as at;
        let mut plan = vec![0; at::SIZE];
        // The lengths are those of the layout.
        let _ = put(&mut plan, at::MAGIC, &REKEY_MAGIC);
        let _ = put(&mut plan, at::VERSION, &REKEY_VERSION.to_le_bytes());
        let _ = put(&mut plan, at::BLOCK_SIZE, &self.block_size.to_le_bytes());
        let _ = put(&mut plan, at::BLOCKS, &self.blocks.to_le_bytes());
        let _ = put(&mut plan, at::OLD_HEADER, self.old_header.as_bytes());
        let _ = put(&mut plan, at::NEW_HEADER, self.new_header.as_bytes());
        let _ = put(&mut plan, at::DIGEST, &self.digest);
        plan
    }
}

/// What the copied units are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoKind {
    /// Blocks.
    Blocks,
    /// The two database headers.
    DatabaseHeaders,
}

/// The head of the undo copy: which units it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoHead {
    /// SHA-256 of all after it, to the last unit's bytes.
    pub digest: [u8; 32],
    /// The first 16 bytes of the plan's digest.
    pub plan: [u8; 16],
    /// What the units are.
    pub kind: UndoKind,
    /// Number of the first unit.
    pub first: u64,
    /// The part of each unit that is in clear: its first 32 bytes.
    pub units: Vec<[u8; DUCKDB_UNIT_CLEAR]>,
}

impl UndoHead {
    /// Parses the head of an undo copy. `None` when the bytes are not one. The caller verifies the
    /// digest.
    #[must_use]
    pub fn parse(area: &[u8]) -> Option<Self> {
        use rekey_undo_layout as at;
        let count = usize::try_from(u32_at(area, at::COUNT)?).ok()?;
        (1..=DUCKDB_UNDO_UNITS).contains(&count).then_some(())?;
        let kind = match u32_at(area, at::KIND)? {
            0 => UndoKind::Blocks,
            1 => UndoKind::DatabaseHeaders,
            _ => return None,
        };
        let table = area.get(at::SIZE..)?.as_chunks::<DUCKDB_UNIT_CLEAR>().0;
        Some(Self {
            digest: array(area, at::DIGEST)?,
            plan: array(area, at::PLAN)?,
            kind,
            first: u64_at(area, at::FIRST)?,
            units: table.get(..count)?.to_vec(),
        })
    }

    /// The head's bytes: the fixed part, then 32 bytes for each unit.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        use rekey_undo_layout as at;
        let kind: u32 = match self.kind {
            UndoKind::Blocks => 0,
            UndoKind::DatabaseHeaders => 1,
        };
        let count = u32::try_from(self.units.len()).unwrap_or(u32::MAX);
        let mut head = vec![0; at::SIZE];
        // The lengths are those of the layout.
        let _ = put(&mut head, at::DIGEST, &self.digest);
        let _ = put(&mut head, at::PLAN, &self.plan);
        let _ = put(&mut head, at::KIND, &kind.to_le_bytes());
        let _ = put(&mut head, at::COUNT, &count.to_le_bytes());
        let _ = put(&mut head, at::FIRST, &self.first.to_le_bytes());
        head.extend_from_slice(self.units.as_flattened());
        head
    }
}

/// The undo copy's head ends before its units begin, the plan before that head.
const _: () = {
    let units = (DUCKDB_UNDO_UNITS as u64).saturating_mul(DUCKDB_UNIT_CLEAR as u64);
    let head = units.saturating_add(rekey_undo_layout::SIZE as u64);
    assert!(rekey_plan_layout::SIZE as u64 <= DUCKDB_UNDO_AT);
    assert!(DUCKDB_UNDO_AT.saturating_add(head) <= DUCKDB_UNDO_SLOTS_AT);
    assert!(rekey_plan_layout::OLD_HEADER.len == DUCKDB_HEADER_LEN);
};
