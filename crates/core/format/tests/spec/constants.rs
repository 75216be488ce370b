//! Constants of backups and of DuckDB's databases that the specification must state.

use super::*;

/// Those of DuckDB's databases.
pub(super) fn duckdb_constants() -> BTreeMap<&'static str, String> {
    let number = |value: usize| value.to_string();
    BTreeMap::from([
        ("DUCKDB_BLOCKS_AT", duckdb::DUCKDB_BLOCKS_AT.to_string()),
        ("DUCKDB_BLOCK_MAX", duckdb::DUCKDB_BLOCK_MAX.to_string()),
        ("DUCKDB_BLOCK_MIN", duckdb::DUCKDB_BLOCK_MIN.to_string()),
        ("DUCKDB_CANARY", spaced_hex(&duckdb::DUCKDB_CANARY)),
        ("DUCKDB_HEADER_LEN", number(duckdb::DUCKDB_HEADER_LEN)),
        ("DUCKDB_MAGIC", spaced_hex(&duckdb::DUCKDB_MAGIC)),
        ("DUCKDB_UNDO_AT", duckdb::DUCKDB_UNDO_AT.to_string()),
        (
            "DUCKDB_UNDO_SLOTS_AT",
            duckdb::DUCKDB_UNDO_SLOTS_AT.to_string(),
        ),
        ("DUCKDB_UNDO_UNITS", number(duckdb::DUCKDB_UNDO_UNITS)),
        ("DUCKDB_UNIT_CLEAR", number(duckdb::DUCKDB_UNIT_CLEAR)),
        ("DUCKDB_UNIT_OVERHEAD", number(duckdb::DUCKDB_UNIT_OVERHEAD)),
        ("REKEY_MAGIC", spaced_hex(&duckdb::REKEY_MAGIC)),
        ("REKEY_VERSION", duckdb::REKEY_VERSION.to_string()),
    ])
}

/// Those of backups.
pub(super) fn backup_constants() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("DESCRIPTION_MAX", backup::DESCRIPTION_MAX.to_string()),
        ("FAMILIES_MAX", backup::FAMILIES_MAX.to_string()),
        ("FAMILY_MAGIC", spaced_hex(&backup::FAMILY_MAGIC)),
        ("PATH_MAX", backup::PATH_MAX.to_string()),
        ("SEGMENT_SIZE", backup::SEGMENT_SIZE.to_string()),
        ("SET_MAGIC", spaced_hex(&backup::SET_MAGIC)),
        (
            "SIGNATURE_LABEL",
            backup_signature::SIGNATURE_LABEL.to_owned(),
        ),
        (
            "SIGNATURE_MAGIC",
            spaced_hex(&backup_signature::SIGNATURE_MAGIC),
        ),
    ])
}
