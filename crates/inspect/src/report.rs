//! The shape of inspect's result. Field names are a stable contract: docs/reference/exit-codes.md.
//!
//! Must not: change a name or a meaning; fields may be added.

use serde::Serialize;

use crate::failure::ErrorJson;

/// Everything that `inspect` says.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) path: String,
    pub(super) size_bytes: u64,
    pub(super) kind: &'static str,
    pub(super) sealed: bool,
    pub(super) header: Option<HeaderReport>,
    pub(super) log: Option<LogReport>,
    pub(super) sqlite: Option<SqliteReport>,
    pub(super) luks: Option<LuksReport>,
    pub(super) duckdb: Option<DuckdbReport>,
    pub(super) beside: Vec<String>,
    pub(super) entropy_bits_per_byte: Option<f64>,
    pub(super) body_offset_bytes: u64,
    pub(super) body_entropy_bits_per_byte: Option<f64>,
    /// Whether byte values are as evenly spread as random ones; `null` for what is too short to
    /// tell.
    pub(super) uniform: Option<bool>,
    /// What another product has encrypted, or may have.
    pub(super) foreign: Option<ForeignReport>,
    pub(super) png: Option<Png>,
    pub(super) error: Option<ErrorJson>,
}

/// A database that another product has encrypted.
#[derive(Serialize)]
pub(super) struct ForeignReport {
    pub(super) product: &'static str,
    pub(super) page_size: u32,
    /// False: a guess by length and noise.
    pub(super) certain: bool,
}

/// A sealed object's header, not authenticated.
#[derive(Serialize)]
pub(super) struct HeaderReport {
    pub(super) version: u16,
    pub(super) object_kind: &'static str,
    pub(super) object_id: String,
    pub(super) created: String,
    pub(super) created_unix_s: u64,
    pub(super) cipher: &'static str,
    pub(super) page_size: u32,
    pub(super) page_reserve: u32,
    pub(super) epoch: u32,
    pub(super) previous_epoch: Option<u32>,
    pub(super) rekey_under_way: bool,
    pub(super) sequence: u64,
    pub(super) checksum_ok: bool,
    pub(super) slots: Vec<SlotReport>,
    pub(super) anchors: Vec<AnchorReport>,
}

/// One key slot.
#[derive(Serialize)]
pub(super) struct SlotReport {
    pub(super) index: usize,
    pub(super) kind: &'static str,
    pub(super) key_id: Option<String>,
    pub(super) key_version: Option<u32>,
    pub(super) argon2id: Option<Argon2Report>,
    pub(super) certificate_id: Option<String>,
}

/// What a passphrase guess costs.
#[derive(Serialize)]
pub(super) struct Argon2Report {
    pub(super) memory_kib: u32,
    pub(super) passes: u32,
    pub(super) lanes: u32,
}

/// One of the two anchors, if it was written.
#[derive(Serialize)]
pub(super) struct AnchorReport {
    pub(super) sequence: u64,
    pub(super) epoch: u32,
    pub(super) wal_generation: String,
    /// An estimate of the pages that were sealed under this epoch's data key.
    pub(super) seals: u64,
    /// How many pages one data key may seal.
    pub(super) seals_limit: u64,
}

/// The prologue of a sealed log or journal.
#[derive(Serialize)]
pub(super) struct LogReport {
    pub(super) unit_bytes: u32,
    pub(super) epoch: u32,
    pub(super) object_id: String,
    pub(super) generation: String,
}

/// A plain SQLite database.
#[derive(Serialize)]
pub(super) struct SqliteReport {
    pub(super) page_size: u32,
    pub(super) page_reserve: u8,
}

/// A LUKS2 header, not authenticated.
#[derive(Serialize)]
pub(super) struct LuksReport {
    pub(super) uuid: String,
    pub(super) label: Option<String>,
    pub(super) subsystem: Option<String>,
    pub(super) sequence: u64,
    pub(super) primary: String,
    pub(super) secondary: String,
    pub(super) used: &'static str,
    pub(super) warning: Option<String>,
    pub(super) segments: Vec<LuksSegmentReport>,
    pub(super) slots: Vec<LuksSlotReport>,
    pub(super) tokens: Vec<LuksTokenReport>,
    pub(super) flags: Vec<String>,
    pub(super) requirements: Vec<String>,
    pub(super) reencryption: bool,
}

/// A piece of the device.
#[derive(Serialize)]
pub(super) struct LuksSegmentReport {
    pub(super) offset_bytes: u64,
    pub(super) size_bytes: Option<u64>,
    pub(super) cipher: String,
    pub(super) sector_size: Option<u32>,
    pub(super) integrity: Option<String>,
}

/// A key slot of a LUKS2 volume.
#[derive(Serialize)]
pub(super) struct LuksSlotReport {
    pub(super) slot: u32,
    pub(super) opener: String,
    pub(super) key_bits: u64,
    pub(super) kdf: Option<String>,
    pub(super) priority: u32,
    pub(super) opens_data: bool,
}

/// A token: hints, which anyone who can write to the device may have written.
#[derive(Serialize)]
pub(super) struct LuksTokenReport {
    pub(super) token: u32,
    pub(super) kind: String,
    pub(super) slots: Vec<u32>,
    pub(super) object_id: Option<String>,
    pub(super) key_id: Option<String>,
    pub(super) key_version: Option<u32>,
    pub(super) provider: Option<String>,
    pub(super) servers: Option<Vec<String>>,
    /// Registers to whose values a TPM sealed it.
    pub(super) pcrs: Option<Vec<u8>>,
}

/// A DuckDB database's main header, which nothing authenticates.
#[derive(Serialize)]
pub(super) struct DuckdbReport {
    pub(super) storage_version: u64,
    pub(super) written_by: String,
    pub(super) source_id: String,
    pub(super) encryption_version: Option<u8>,
    pub(super) cipher: &'static str,
    pub(super) key_bits: Option<u64>,
    pub(super) identifier: String,
    pub(super) checksum_ok: bool,
    pub(super) rekey_under_way: bool,
    /// Units whose place does not depend on the block size.
    pub(super) units_looked_at: u64,
    /// Of these, units with something other than zeros in bytes that DuckDB does not use.
    pub(super) unused_bytes_set: u64,
    /// Whether these can be all units of the file.
    pub(super) usual_block_size_fits: bool,
    pub(super) wal: Option<DuckdbWalReport>,
    pub(super) rekey_file: Option<String>,
}

/// The first record of DuckDB's write-ahead log.
#[derive(Serialize)]
pub(super) struct DuckdbWalReport {
    pub(super) path: String,
    pub(super) size_bytes: u64,
    pub(super) kind: &'static str,
    /// Whether it names this database.
    pub(super) belongs: Option<bool>,
    pub(super) checkpoint_iteration: Option<u64>,
}

/// The picture that was drawn.
#[derive(Serialize)]
pub(super) struct Png {
    pub(super) path: String,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) bytes_per_pixel: u64,
}
