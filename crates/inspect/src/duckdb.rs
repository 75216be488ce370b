//! The main header of a DuckDB database, which nothing authenticates.
//!
//! Must not: show unused bytes, only the number of units in which they are set.

use std::path::Path;

use strongroom_duckdb::Inspection;
use strongroom_format::code;
use strongroom_format::duckdb::HeaderState;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use crate::report::{DuckdbReport, DuckdbWalReport, FileKind};

/// Reads the file at `path` as a DuckDB database and returns kind, header and problem (`None` when
/// the header has none). A file that cannot be read as one has the kind `duckdb-damaged` and no
/// header; for a format of an unknown version the problem is SR-2203, and there is a header.
pub(crate) fn describe(path: &Path) -> (FileKind, Option<DuckdbReport>, Option<Error>) {
    let found = match strongroom_duckdb::inspect(path) {
        Ok(found) => found,
        Err(error) => return (FileKind::DuckdbDamaged, None, Some(error)),
    };
    let kind = if found.header.is_encrypted() {
        FileKind::DuckdbEncrypted
    } else {
        FileKind::Duckdb
    };
    let shown = path.display();
    let refusal = found.refusal.map(|(field, value)| {
        Error::new(&code::DUCKDB_FORMAT, format!("{shown}: {field} {value}"))
    });
    (kind, Some(report(&found)), refusal)
}

/// Returns the main header's fields as they are reported.
fn report(found: &Inspection) -> DuckdbReport {
    let header = &found.header;
    let encrypted = header.is_encrypted();
    DuckdbReport {
        storage_version: header.storage_version(),
        written_by: header.library(),
        source_id: header.source_id(),
        encryption_version: encrypted.then(|| header.encryption_version()),
        cipher: match (encrypted, header.cipher_number()) {
            (false, _) => "none",
            (true, 1) => "aes-256-gcm",
            (true, 2) => "aes-256-ctr",
            (true, _) => "unknown",
        },
        key_bits: encrypted.then(|| u64::from(header.key_length()) * 8),
        identifier: hex(&header.identifier()),
        checksum_ok: header.state() == HeaderState::Whole,
        rekey_under_way: header.state() == HeaderState::Rekeying,
        units_looked_at: found.units,
        unused_bytes_set: found.unused_set,
        usual_block_size_fits: found.usual_blocks_fit,
        wal: found.wal.as_ref().map(|wal| DuckdbWalReport {
            path: wal.path.display().to_string(),
            size_bytes: wal.len,
            kind: wal.kind,
            belongs: wal.belongs,
            checkpoint_iteration: wal.iteration,
        }),
        rekey_file: found
            .rekey_file
            .as_ref()
            .map(|path| path.display().to_string()),
    }
}
