//! DuckDB's encrypted database files, and the file that Strongroom keeps beside one while it
//! changes its key. Specified in docs/spec/duckdb.md.
//!
//! The format is DuckDB's own; only [`RekeyPlan`] and [`UndoHead`] are Strongroom's.
//!
//! Must not: take a header for authentic: nothing authenticates DuckDB's main header.

mod main_header;
mod rekey;
mod wal;

pub use main_header::{
    Cipher, EncryptionVersion, Format, HeaderState, MainHeader, Refusal, duckdb_main_layout,
};
pub use rekey::{
    REKEY_MAGIC, REKEY_VERSION, RekeyPlan, UndoHead, UndoKind, rekey_plan_layout, rekey_undo_layout,
};
pub use wal::{WalHead, WalVersion};

use crate::layout::{layout, u64_at};

layout! {
    /// Layout of what comes before the data of a database header or block: encryption version 0.
    duckdb_unit0_layout, 40, {
        NONCE @ 0, 16;
        TAG @ 16, 16;
        INNER_CHECKSUM @ 32, 8;
    }
}

layout! {
    /// Layout of what comes before the data of a database header or block: encryption version 1.
    duckdb_unit1_layout, 40, {
        NONCE @ 0, 12;
        TAG @ 12, 16;
        UNUSED @ 28, 4;
        INNER_CHECKSUM @ 32, 8;
    }
}

layout! {
    /// Layout of the beginning of a database header, decrypted; the first field is the inner
    /// checksum.
    duckdb_database_layout, 64, {
        INNER_CHECKSUM @ 0, 8;
        ITERATION @ 8, 8;
        META_BLOCK @ 16, 8;
        FREE_LIST @ 24, 8;
        BLOCK_COUNT @ 32, 8;
        BLOCK_SIZE @ 40, 8;
        VECTOR_SIZE @ 48, 8;
        SERIALIZATION @ 56, 8;
    }
}

/// First bytes of a DuckDB database, at offset 8.
pub const DUCKDB_MAGIC: [u8; 4] = *b"DUCK";
/// The plaintext of the canary.
pub const DUCKDB_CANARY: [u8; 8] = *b"DUCKKEY\0";
/// Length of the main header and of each database header, in bytes.
pub const DUCKDB_HEADER_LEN: usize = 4096;
/// Where the first block is.
pub const DUCKDB_BLOCKS_AT: u64 = 12_288;
/// Length of what comes before the data of a unit, in bytes.
pub const DUCKDB_UNIT_OVERHEAD: usize = 40;
/// Bytes of a unit that are in clear: nonce and tag.
pub const DUCKDB_UNIT_CLEAR: usize = 32;
/// Smallest block, in bytes.
pub const DUCKDB_BLOCK_MIN: u64 = 16_384;
/// Largest block, in bytes; also what DuckDB makes unless told otherwise.
pub const DUCKDB_BLOCK_MAX: u64 = 262_144;
/// Most units whose old bytes the rekey's file holds at once.
pub const DUCKDB_UNDO_UNITS: usize = 1024;
/// Where the undo copy's head is in the rekey's file.
pub const DUCKDB_UNDO_AT: u64 = 12_288;
/// Where the first old unit is in the rekey's file.
pub const DUCKDB_UNDO_SLOTS_AT: u64 = 49_152;

/// DuckDB's unkeyed checksum over whole 64-bit words: main header, database headers, blocks. Bytes
/// that do not fill a word at the end are left out (`src/common/checksum.cpp` has a rule for them
/// that none of these needs).
#[must_use]
pub fn duckdb_checksum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;
    let words = bytes.as_chunks::<8>().0.iter();
    words.fold(5381, |sum, word| {
        sum ^ u64::from_le_bytes(*word).wrapping_mul(FACTOR)
    })
}

/// Whether these are the first bytes of a DuckDB database, encrypted or not.
#[must_use]
pub fn is_duckdb(head: &[u8]) -> bool {
    head.get(8..12) == Some(&DUCKDB_MAGIC[..])
}

/// What a database header says, after it was decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// Raised at each checkpoint; the header with the larger one counts.
    pub iteration: u64,
    /// Block of the metadata; 2^64 - 1 for none.
    pub meta_block: u64,
    /// Block of the list of free blocks; 2^64 - 1 for none.
    pub free_list: u64,
    /// Blocks that the database has.
    pub block_count: u64,
    /// Length of a block with all that comes before its data, in bytes.
    pub block_size: u64,
    /// Rows that DuckDB works on at a time.
    pub vector_size: u64,
    /// 6 for DuckDB 1.4, 7 for 1.5, 69 for 2.0.
    pub serialization: u64,
}

impl DatabaseHeader {
    /// Parses a decrypted header, which begins with the inner checksum. `None` when that checksum
    /// is wrong for all bytes after it, or when bytes are missing.
    #[must_use]
    pub fn parse(decrypted: &[u8]) -> Option<Self> {
        use duckdb_database_layout as at;
        let data = decrypted.get(at::ITERATION.offset..)?;
        (u64_at(decrypted, at::INNER_CHECKSUM)? == duckdb_checksum(data)).then_some(())?;
        Some(Self {
            iteration: u64_at(decrypted, at::ITERATION)?,
            meta_block: u64_at(decrypted, at::META_BLOCK)?,
            free_list: u64_at(decrypted, at::FREE_LIST)?,
            block_count: u64_at(decrypted, at::BLOCK_COUNT)?,
            block_size: u64_at(decrypted, at::BLOCK_SIZE)?,
            vector_size: u64_at(decrypted, at::VECTOR_SIZE)?,
            serialization: u64_at(decrypted, at::SERIALIZATION)?,
        })
    }

    /// Whether DuckDB has blocks of this length: a power of two within its bounds.
    #[must_use]
    pub fn block_size_is_known(&self) -> bool {
        self.block_size.is_power_of_two()
            && (DUCKDB_BLOCK_MIN..=DUCKDB_BLOCK_MAX).contains(&self.block_size)
    }
}

/// For fuzzing and property tests: parses the bytes as each of the structures, and asserts what
/// must hold for any bytes.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    if let Some(header) = MainHeader::parse(bytes) {
        let same = header.to_bytes();
        let whole = bytes.get(..DUCKDB_HEADER_LEN);
        assert_eq!(Some(same.as_slice()), whole, "a main header is kept whole");
        if let Ok(format) = header.supported_format() {
            assert!(format.identifier == header.identifier());
        }
    }
    if let Some(head) = WalHead::parse(bytes) {
        assert!(head.len <= bytes.len(), "a record lies within its bytes");
        assert!(bytes.get(..head.len).and_then(WalHead::parse).as_ref() == Some(&head));
    }
    if let Some(header) = DatabaseHeader::parse(bytes) {
        assert!(!header.block_size_is_known() || header.block_size >= DUCKDB_BLOCK_MIN);
    }
    if let Some(plan) = RekeyPlan::parse(bytes) {
        let whole = bytes.get(..rekey_plan_layout::SIZE);
        assert_eq!(Some(plan.to_bytes().as_slice()), whole, "a plan");
    }
    if let Some(head) = UndoHead::parse(bytes) {
        let again = head.to_bytes();
        assert_eq!(bytes.get(..again.len()), Some(again.as_slice()), "an undo");
    }
}
