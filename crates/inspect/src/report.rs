//! What is said of a file. Field names are a stable contract: docs/reference/exit-codes.md.
//!
//! Must not: change a name or a meaning; fields may be added.
#![expect(
    missing_docs,
    reason = "docs/reference/exit-codes.md says what each field means"
)]

use serde::Serialize;

/// What a file is. The names in JSON are those of the variants, in lower case with hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    SealedSqlite,
    SealedKeyring,
    SealedPostgres,
    SealedZone,
    SealedBackup,
    SealedUnknown,
    SealedContainer,
    SealedStream,
    SealedDamaged,
    SealedNewer,
    SealedWal,
    SealedJournal,
    SealedSuperJournal,
    SealedLogDamaged,
    Luks2,
    Luks2Damaged,
    Luks1,
    Duckdb,
    DuckdbEncrypted,
    DuckdbDamaged,
    Sqlite,
    SqliteOtherCipher,
    SqliteWal,
    SqliteJournal,
    Empty,
    Unknown,
}

/// Everything that is said of a file.
#[derive(Serialize)]
pub struct Report {
    pub path: String,
    pub size_bytes: u64,
    pub kind: FileKind,
    pub sealed: bool,
    pub header: Option<HeaderReport>,
    pub log: Option<LogReport>,
    pub sqlite: Option<SqliteReport>,
    pub luks: Option<LuksReport>,
    pub duckdb: Option<DuckdbReport>,
    pub beside: Vec<String>,
    pub entropy_bits_per_byte: Option<f64>,
    pub body_offset_bytes: u64,
    pub body_entropy_bits_per_byte: Option<f64>,
    /// Whether byte values are as evenly spread as random ones; `null` for what is too short to
    /// tell.
    pub uniform: Option<bool>,
    /// What another product has encrypted, or may have.
    pub foreign: Option<ForeignReport>,
    pub png: Option<Png>,
}

/// A database that another product has encrypted.
#[derive(Serialize)]
pub struct ForeignReport {
    pub product: &'static str,
    pub page_size: u32,
    /// False: a guess by length and noise.
    pub certain: bool,
}

/// A sealed object's header, not authenticated.
#[derive(Serialize)]
pub struct HeaderReport {
    pub version: u16,
    pub object_kind: &'static str,
    pub object_id: String,
    pub created: String,
    pub created_unix_s: u64,
    pub cipher: &'static str,
    pub page_size: u32,
    pub page_reserve: u32,
    pub epoch: u32,
    pub previous_epoch: Option<u32>,
    pub rekey_under_way: bool,
    pub sequence: u64,
    pub checksum_ok: bool,
    pub slots: Vec<SlotReport>,
    pub anchors: Vec<AnchorReport>,
}

/// One key slot.
#[derive(Serialize)]
pub struct SlotReport {
    pub index: usize,
    pub kind: &'static str,
    pub key_id: Option<String>,
    pub key_version: Option<u32>,
    pub argon2id: Option<Argon2Report>,
    pub certificate_id: Option<String>,
}

/// What a passphrase guess costs.
#[derive(Serialize)]
pub struct Argon2Report {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

/// One of the two anchors, if it was written.
#[derive(Serialize)]
pub struct AnchorReport {
    pub sequence: u64,
    pub epoch: u32,
    pub wal_generation: String,
    /// An estimate of the pages that were sealed under this epoch's data key.
    pub seals: u64,
    /// How many pages one data key may seal.
    pub seals_limit: u64,
}

/// The prologue of a sealed log or journal.
#[derive(Serialize)]
pub struct LogReport {
    pub unit_bytes: u32,
    pub epoch: u32,
    pub object_id: String,
    pub generation: String,
}

/// A plain SQLite database.
#[derive(Serialize)]
pub struct SqliteReport {
    pub page_size: u32,
    pub page_reserve: u8,
}

/// A LUKS2 header, not authenticated.
#[derive(Serialize)]
pub struct LuksReport {
    pub uuid: String,
    pub label: Option<String>,
    pub subsystem: Option<String>,
    pub sequence: u64,
    pub primary: String,
    pub secondary: String,
    pub used: &'static str,
    pub warning: Option<String>,
    pub segments: Vec<LuksSegmentReport>,
    pub slots: Vec<LuksSlotReport>,
    pub tokens: Vec<LuksTokenReport>,
    pub flags: Vec<String>,
    pub requirements: Vec<String>,
    pub reencryption: bool,
}

/// A piece of the device.
#[derive(Serialize)]
pub struct LuksSegmentReport {
    pub offset_bytes: u64,
    pub size_bytes: Option<u64>,
    pub cipher: String,
    pub sector_size: Option<u32>,
    pub integrity: Option<String>,
}

/// A key slot of a LUKS2 volume.
#[derive(Serialize)]
pub struct LuksSlotReport {
    pub slot: u32,
    pub opener: String,
    pub key_bits: u64,
    pub kdf: Option<String>,
    pub priority: u32,
    pub opens_data: bool,
}

/// A token: hints, which anyone who can write to the device may have written.
#[derive(Serialize)]
pub struct LuksTokenReport {
    pub token: u32,
    pub kind: String,
    pub slots: Vec<u32>,
    pub object_id: Option<String>,
    pub key_id: Option<String>,
    pub key_version: Option<u32>,
    pub provider: Option<String>,
    pub servers: Option<Vec<String>>,
    /// Registers to whose values a TPM sealed it.
    pub pcrs: Option<Vec<u8>>,
}

/// A DuckDB database's main header, which nothing authenticates.
#[derive(Serialize)]
pub struct DuckdbReport {
    pub storage_version: u64,
    pub written_by: String,
    pub source_id: String,
    pub encryption_version: Option<u8>,
    pub cipher: &'static str,
    pub key_bits: Option<u64>,
    pub identifier: String,
    pub checksum_ok: bool,
    pub rekey_under_way: bool,
    /// Units whose place does not depend on the block size.
    pub units_looked_at: u64,
    /// Of these, units with something other than zeros in bytes that DuckDB does not use.
    pub unused_bytes_set: u64,
    /// Whether these can be all units of the file.
    pub usual_block_size_fits: bool,
    pub wal: Option<DuckdbWalReport>,
    pub rekey_file: Option<String>,
}

/// The first record of DuckDB's write-ahead log.
#[derive(Serialize)]
pub struct DuckdbWalReport {
    pub path: String,
    pub size_bytes: u64,
    pub kind: &'static str,
    /// Whether it names this database.
    pub belongs: Option<bool>,
    pub checkpoint_iteration: Option<u64>,
}

/// The picture that was drawn.
#[derive(Serialize)]
pub struct Png {
    pub path: String,
    pub width: u32,
    pub height: u32,
    pub bytes_per_pixel: u64,
}
