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
    pub(super) beside: Vec<String>,
    pub(super) entropy_bits_per_byte: Option<f64>,
    pub(super) body_offset_bytes: u64,
    pub(super) body_entropy_bits_per_byte: Option<f64>,
    pub(super) png: Option<Png>,
    pub(super) error: Option<ErrorJson>,
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

/// The picture that was drawn.
#[derive(Serialize)]
pub(super) struct Png {
    pub(super) path: String,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) bytes_per_pixel: u64,
}
