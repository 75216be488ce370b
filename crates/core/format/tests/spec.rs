//! The documents and the code say the same: layouts, constants, roles and labels in `docs/spec`,
//! and the error codes in `docs/reference/errors.md`, are compared with the code, in both
//! directions.
//!
//! Pages and layouts are discovered, not listed: a new layout without a table fails, and so does a
//! table without a layout. Must not: change a document.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot read the tree has failed"
)]

#[path = "spec/constants.rs"]
mod elsewhere;
#[path = "spec/instance.rs"]
mod instance;
#[path = "spec/labels.rs"]
mod labels;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use strongroom_format::code::{self, Class, Code};
use strongroom_format::columns::{
    block, channel, envelope, fid, log, manifest, record, redo, sev_snp, tdx, tpm,
};
use strongroom_format::layout::Field;
use strongroom_format::postgres::{container, stream};
use strongroom_format::{
    FORMAT_VERSION, aad, backup, backup_signature, certificate, duckdb, freshness, header, journal,
    keyring, postgres, slot, sqlite,
};

/// Every layout of the code. That none is missing here is checked against the sources.
const LAYOUTS: &[(&str, usize, &[Field])] = &[
    layout("aad_layout", aad::aad_layout::FIELDS),
    layout("set_layout", backup::set_layout::FIELDS),
    layout("family_layout", backup::family_layout::FIELDS),
    layout("segment_layout", backup::segment_layout::FIELDS),
    layout(
        "signature_layout",
        backup_signature::signature_layout::FIELDS,
    ),
    layout("item_layout", backup::item_layout::FIELDS),
    layout("member_layout", backup::member_layout::FIELDS),
    layout("file_end_layout", backup::file_end_layout::FIELDS),
    layout("stream_end_layout", backup::stream_end_layout::FIELDS),
    layout("anchor_layout", header::anchor_layout::FIELDS),
    layout("attestation_layout", channel::attestation_layout::FIELDS),
    layout("proof_layout", channel::proof_layout::FIELDS),
    layout("body_layout", keyring::body_layout::FIELDS),
    layout("canary_layout", header::canary_layout::FIELDS),
    layout(
        "certificate_layout",
        certificate::certificate_layout::FIELDS,
    ),
    layout(
        "container_aad_layout",
        container::container_aad_layout::FIELDS,
    ),
    layout("container_layout", container::container_layout::FIELDS),
    layout(
        "duckdb_database_layout",
        duckdb::duckdb_database_layout::FIELDS,
    ),
    layout("duckdb_main_layout", duckdb::duckdb_main_layout::FIELDS),
    layout("duckdb_unit0_layout", duckdb::duckdb_unit0_layout::FIELDS),
    layout("duckdb_unit1_layout", duckdb::duckdb_unit1_layout::FIELDS),
    layout("rekey_plan_layout", duckdb::rekey_plan_layout::FIELDS),
    layout("rekey_undo_layout", duckdb::rekey_undo_layout::FIELDS),
    layout("freshness_layout", freshness::freshness_layout::FIELDS),
    layout(
        "freshness_state_layout",
        freshness::freshness_state_layout::FIELDS,
    ),
    layout("entry_layout", keyring::entry_layout::FIELDS),
    layout("block_layout", manifest::block_layout::FIELDS),
    layout("chain_layout", manifest::chain_layout::FIELDS),
    layout("envelope_layout", envelope::envelope_layout::FIELDS),
    layout("extent_layout", manifest::extent_layout::FIELDS),
    layout("kept_key_layout", manifest::kept_key_layout::FIELDS),
    layout("ledger_layout", manifest::ledger_layout::FIELDS),
    layout("ledger_line_layout", manifest::ledger_line_layout::FIELDS),
    layout("moved_layout", manifest::moved_layout::FIELDS),
    layout("log_frame_layout", log::log_frame_layout::FIELDS),
    layout(
        "manifest_body_layout",
        manifest::manifest_body_layout::FIELDS,
    ),
    layout("manifest_layout", manifest::manifest_layout::FIELDS),
    layout("column_key_layout", manifest::column_key_layout::FIELDS),
    layout("partition_layout", manifest::partition_layout::FIELDS),
    layout("quarantine_layout", manifest::quarantine_layout::FIELDS),
    layout("record_call_layout", record::record_call_layout::FIELDS),
    layout("record_piece_layout", record::record_piece_layout::FIELDS),
    layout("redo_freed_layout", redo::redo_freed_layout::FIELDS),
    layout("result_layout", envelope::result_layout::FIELDS),
    layout("redo_layout", redo::redo_layout::FIELDS),
    layout("redo_link_layout", redo::redo_link_layout::FIELDS),
    layout("redo_bound_layout", redo::redo_bound_layout::FIELDS),
    layout("redo_partition_layout", redo::redo_partition_layout::FIELDS),
    layout("redo_put_layout", redo::redo_put_layout::FIELDS),
    layout("redo_swept_layout", redo::redo_swept_layout::FIELDS),
    layout("sealed_block_layout", block::sealed_block_layout::FIELDS),
    layout("image_layout", block::image_layout::FIELDS),
    layout("header_layout", header::header_layout::FIELDS),
    layout("hello_layout", channel::hello_layout::FIELDS),
    layout("journal_mark_layout", journal::journal_mark_layout::FIELDS),
    layout(
        "journal_shadow_layout",
        journal::journal_shadow_layout::FIELDS,
    ),
    layout("journal_slot_layout", journal::journal_slot_layout::FIELDS),
    layout("link_layout", journal::link_layout::FIELDS),
    layout("mark_layout", journal::mark_layout::FIELDS),
    layout("prologue_layout", sqlite::prologue_layout::FIELDS),
    layout("sealed_layout", channel::sealed_layout::FIELDS),
    layout("sgx_report_layout", tdx::sgx_report_layout::FIELDS),
    layout("slot_layout", slot::slot_layout::FIELDS),
    layout(
        "snp_certificate_layout",
        sev_snp::snp_certificate_layout::FIELDS,
    ),
    layout("snp_report_layout", sev_snp::snp_report_layout::FIELDS),
    layout("stream_layout", stream::stream_layout::FIELDS),
    layout("super_slot_layout", sqlite::super_slot_layout::FIELDS),
    layout("tail_block_layout", postgres::tail_block_layout::FIELDS),
    layout("tail_layout", sqlite::tail_layout::FIELDS),
    layout("tdx_quote_layout", tdx::tdx_quote_layout::FIELDS),
    layout("ticket_layout", channel::ticket_layout::FIELDS),
    layout("limit_layout", channel::limit_layout::FIELDS),
    layout(
        "tweak_control_layout",
        postgres::tweak_control_layout::FIELDS,
    ),
    layout("tweak_map_layout", postgres::tweak_map_layout::FIELDS),
    layout(
        "tweak_relation_layout",
        postgres::tweak_relation_layout::FIELDS,
    ),
    layout("tweak_slru_layout", postgres::tweak_slru_layout::FIELDS),
    layout("tweak_temp_layout", postgres::tweak_temp_layout::FIELDS),
    layout("tweak_wal_layout", postgres::tweak_wal_layout::FIELDS),
    layout("wrapped_layout", header::wrapped_layout::FIELDS),
];

const fn layout(
    name: &'static str,
    fields: &'static [Field],
) -> (&'static str, usize, &'static [Field]) {
    (name, fields.len(), fields)
}

/// Every constant that the specification must state, and what it is in the code.
fn constants() -> BTreeMap<&'static str, String> {
    let number = |value: usize| value.to_string();
    let long = |value: u64| value.to_string();
    let mut constants = BTreeMap::from([
        ("ANSWER_SECONDS", long(tpm::ANSWER_SECONDS)),
        ("PCRS", tpm::PCRS.to_string()),
        ("COLLATERAL_MAX", number(tdx::COLLATERAL_MAX)),
        ("BLOCK_SLOTS", block::BLOCK_SLOTS.to_string()),
        ("BLOCK_UNIT", long(block::BLOCK_UNIT)),
        ("ENVELOPE_LABEL", envelope::ENVELOPE_LABEL.to_owned()),
        ("LINEAGE_LABEL", envelope::LINEAGE_LABEL.to_owned()),
        (
            "ENVELOPE_SALT_USES",
            envelope::ENVELOPE_SALT_USES.to_string(),
        ),
        ("ENVELOPE_OVERHEAD", number(envelope::ENVELOPE_OVERHEAD)),
        ("RESULT_OVERHEAD", number(envelope::RESULT_OVERHEAD)),
        ("ENVELOPE_PAD", number(envelope::ENVELOPE_PAD)),
        ("ENVELOPE_VERSION", envelope::ENVELOPE_VERSION.to_string()),
        ("EXTENTS", fid::EXTENTS.to_string()),
        ("EXTENT_BLOCKS", block::EXTENT_BLOCKS.to_string()),
        ("EXTENT_SLOTS", fid::EXTENT_SLOTS.to_string()),
        ("INLINE_MAX", number(block::INLINE_MAX)),
        ("LOG_MAGIC", spaced_hex(&log::LOG_MAGIC)),
        ("PARTITIONS", fid::PARTITIONS.to_string()),
        ("RECORD_MAGIC", spaced_hex(&record::RECORD_MAGIC)),
        ("RECORD_MAX", long(record::RECORD_MAX)),
        ("RECORD_PIECE_MAX", number(record::RECORD_PIECE_MAX)),
        ("VALUE_MAX", number(block::VALUE_MAX)),
        ("WAL_MAGIC", spaced_hex(&sqlite::WAL_MAGIC)),
        ("JOURNAL_MAGIC", spaced_hex(&sqlite::JOURNAL_MAGIC)),
        ("SUPER_MAGIC", spaced_hex(&sqlite::SUPER_MAGIC)),
        ("CANARY_PLAINTEXT", spaced_hex(&header::CANARY_PLAINTEXT)),
        ("CHECKSUM_COVERS", number(header::CHECKSUM_COVERS)),
        ("FIXED_LEN", number(header::FIXED_LEN)),
        ("FORMAT_VERSION", FORMAT_VERSION.to_string()),
        ("HEADER_LEN", number(header::HEADER_LEN)),
        ("ID_MAX", number(slot::ID_MAX)),
        ("MAC_COVERS", number(header::MAC_COVERS)),
        ("MAGIC", spaced_hex(&header::MAGIC)),
        ("PAGE_RESERVE", sqlite::PAGE_RESERVE.to_string()),
        ("PROLOGUE_LEN", long(sqlite::PROLOGUE_LEN)),
        ("SEAL_OVERHEAD", number(sqlite::SEAL_OVERHEAD)),
        ("SEALS_LIMIT", long(header::SEALS_LIMIT)),
        ("SEALS_STEP", long(header::SEALS_STEP)),
        ("SEALS_WARN", long(header::SEALS_WARN)),
        ("SLOTS_MAX", number(header::SLOTS_MAX)),
        ("WAL_FRAMES", long(sqlite::WAL_FRAMES)),
        ("WAL_FRAME_HEADER", number(sqlite::WAL_FRAME_HEADER)),
        ("WAL_HEADER", number(sqlite::WAL_HEADER)),
        ("WAL_HEADER_SEALED", long(sqlite::WAL_HEADER_SEALED)),
        ("WRAPPED_GCM_LEN", number(slot::WRAPPED_GCM_LEN)),
    ]);
    constants.extend(instance::constants());
    constants.extend(journal_constants());
    constants.extend(redo_constants());
    constants.extend(certificate_constants());
    constants.extend(channel_constants());
    constants.extend(manifest_constants());
    constants.extend(elsewhere::backup_constants());
    constants.extend(elsewhere::duckdb_constants());
    constants
}

/// Those of redo records.
fn redo_constants() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("REDO_MAX", redo::REDO_MAX.to_string()),
        ("REDO_KEY_USES", redo::REDO_KEY_USES.to_string()),
        ("REDO_NONCE_LABEL", redo::REDO_NONCE_LABEL.to_owned()),
        ("BLOCK_NONCE_LABEL", block::BLOCK_NONCE_LABEL.to_owned()),
        (
            "MANIFEST_NONCE_LABEL",
            manifest::MANIFEST_NONCE_LABEL.to_owned(),
        ),
        ("REDO_VERSION", redo::REDO_VERSION.to_string()),
        ("COLUMNS_MAX", redo::COLUMNS_MAX.to_string()),
    ])
}

/// Those of certificates and the key slots that are for them.
fn certificate_constants() -> BTreeMap<&'static str, String> {
    let number = |value: usize| value.to_string();
    BTreeMap::from([
        ("CERTIFICATES_MAX", number(certificate::CERTIFICATES_MAX)),
        (
            "CERTIFICATE_DER_MAX",
            number(certificate::CERTIFICATE_DER_MAX),
        ),
        ("CERTIFICATE_ID_LEN", number(slot::CERTIFICATE_ID_LEN)),
        ("PRIVATE_KEY_MAX", number(certificate::PRIVATE_KEY_MAX)),
        ("SECRET_LEN_MAX", number(slot::SECRET_LEN_MAX)),
        ("SECRET_LEN_MIN", number(slot::SECRET_LEN_MIN)),
    ])
}

/// Those of a rollback journal.
fn journal_constants() -> BTreeMap<&'static str, String> {
    let number = |value: usize| value.to_string();
    BTreeMap::from([
        ("CACHE_PAGE", number(journal::CACHE_PAGE)),
        ("JOURNAL_CHUNK", number(journal::JOURNAL_CHUNK)),
        ("JOURNAL_HEAD", number(journal::JOURNAL_HEAD)),
        ("JOURNAL_LINK", number(journal::JOURNAL_LINK)),
        ("JOURNAL_SHADOW", number(journal::JOURNAL_SHADOW)),
        ("JOURNAL_SLOT", journal::JOURNAL_SLOT.to_string()),
    ])
}

/// Those of the manifest of the zone's store.
fn manifest_constants() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("EXTENT_RESERVE", manifest::EXTENT_RESERVE.to_string()),
        ("RESTORE_STRIDE", manifest::RESTORE_STRIDE.to_string()),
        ("MANIFEST_MAGIC", spaced_hex(&manifest::MANIFEST_MAGIC)),
        ("MANIFEST_VERSION", manifest::MANIFEST_VERSION.to_string()),
        (
            "MANIFEST_VERSION_OLDEST",
            manifest::MANIFEST_VERSION_OLDEST.to_string(),
        ),
    ])
}

/// Those of the channel between the data owner and the zone.
fn channel_constants() -> BTreeMap<&'static str, String> {
    let number = |value: usize| value.to_string();
    BTreeMap::from([
        ("BINDING_LABEL", channel::BINDING_LABEL.to_owned()),
        ("PROOF_LABEL", channel::PROOF_LABEL.to_owned()),
        ("CHANNEL_KEYS_MAX", number(channel::CHANNEL_KEYS_MAX)),
        ("CHANNEL_VERSION", channel::CHANNEL_VERSION.to_string()),
        ("COLUMN_ID_LABEL", channel::COLUMN_ID_LABEL.to_owned()),
        ("COLUMN_LABEL", channel::COLUMN_LABEL.to_owned()),
        ("CLIENT_LABEL", channel::CLIENT_LABEL.to_owned()),
        ("EVIDENCE_MAX", number(channel::EVIDENCE_MAX)),
        ("PROOFS_MAX", number(channel::PROOFS_MAX)),
        ("CLIENT_NAME_MAX", number(channel::CLIENT_NAME_MAX)),
        ("MESSAGE_HELLO", channel::MESSAGE_HELLO.to_string()),
        ("MESSAGE_SEALED", channel::MESSAGE_SEALED.to_string()),
        ("TICKET_LABEL", channel::TICKET_LABEL.to_owned()),
        ("ZONE_LABEL", channel::ZONE_LABEL.to_owned()),
    ])
}

fn spaced_hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Name and text of every file in `directory` with this extension.
fn files(directory: &str, extension: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join(directory)).unwrap();
    let mut found: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no .{extension} in {directory}");
    found
}

/// The cells of a table's row, trimmed; `None` for any other line.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// One table of a layout in a page.
struct Table {
    page: String,
    fields: Vec<(String, usize, usize)>,
}

/// Every marked table of the specification, by the name in its mark.
fn tables() -> BTreeMap<String, Vec<Table>> {
    let mut found: BTreeMap<String, Vec<Table>> = BTreeMap::new();
    for (page, text) in files("docs/spec", "md") {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mark = line.strip_prefix("<!-- layout: ");
            let Some(name) = mark.and_then(|rest| rest.strip_suffix(" -->")) else {
                assert!(
                    !line.trim_start().starts_with("<!--"),
                    "{page}: a mark that is not read: {line}"
                );
                continue;
            };
            let head = lines.next().and_then(cells).unwrap_or_default();
            assert_eq!(
                head.get(..3),
                Some(["OFFSET", "LENGTH", "NAME"].as_slice()),
                "{page}: {name}: the table must follow its mark"
            );
            assert!(
                lines.next().and_then(cells).is_some(),
                "{page}: {name}: no rule"
            );
            let rows = lines.by_ref().map_while(cells);
            let fields = rows.map(|row| row_of(&page, name, &row)).collect();
            let table = Table {
                page: page.clone(),
                fields,
            };
            found.entry(name.to_owned()).or_default().push(table);
        }
    }
    found
}

fn row_of(page: &str, table: &str, row: &[&str]) -> (String, usize, usize) {
    let [offset, length, name, meaning] = row else {
        panic!("{page}: {table}: a row of {} cells: {row:?}", row.len());
    };
    assert!(
        !meaning.is_empty(),
        "{page}: {table}: {name} has no meaning"
    );
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{page}: {row:?}"));
    ((*name).to_owned(), number(offset), number(length))
}

/// A folder and all folders below it, relative to the repository's root.
fn folders_below(folder: &str) -> Vec<String> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            let name = entry.file_name().into_string().unwrap();
            found.extend(folders_below(&format!("{folder}/{name}")));
        }
    }
    found
}

#[test]
fn every_layout_of_the_sources_is_compared() {
    let mut in_sources = BTreeSet::new();
    let folders = folders_below("crates/core/format/src");
    for (_, text) in folders.iter().flat_map(|folder| files(folder, "rs")) {
        // Each use of the macro: a bracket, doc comments, the module's name, a comma.
        for rest in text.split("layout!").skip(1) {
            let lines = rest
                .trim_start()
                .trim_start_matches(['{', '(', '['])
                .lines();
            let mut lines = lines.map(str::trim);
            let declared = lines
                .find(|line| !line.is_empty() && !line.starts_with("//"))
                .unwrap();
            in_sources.insert(declared.split(',').next().unwrap().to_owned());
        }
    }
    let compared: BTreeSet<String> = LAYOUTS
        .iter()
        .map(|(name, _, _)| (*name).to_owned())
        .collect();
    assert_eq!(
        in_sources, compared,
        "left: crates/core/format/src, right: LAYOUTS of this test"
    );
}

#[test]
fn every_layout_has_one_table_and_every_table_a_layout() {
    let tables = tables();
    for name in tables.keys() {
        assert!(
            LAYOUTS.iter().any(|(known, _, _)| known == name),
            "docs/spec has a table of {name}, the code has not"
        );
    }
    for (name, count, fields) in LAYOUTS {
        let [table] = tables.get(*name).map_or(&[][..], Vec::as_slice) else {
            panic!("{name} must have exactly one table in docs/spec");
        };
        let stated: Vec<(&str, usize, usize)> = table
            .fields
            .iter()
            .map(|(name, offset, len)| (name.as_str(), *offset, *len))
            .collect();
        let coded: Vec<(&str, usize, usize)> = fields
            .iter()
            .map(|field| (field.name, field.offset, field.len))
            .collect();
        assert_eq!(
            stated, coded,
            "{name}: left: {}, right: the code",
            table.page
        );
        assert_eq!(stated.len(), *count);
    }
}

#[test]
fn constants_are_stated_and_true() {
    let known = constants();
    let mut stated = BTreeSet::new();
    for (page, text) in files("docs/spec", "md") {
        for line in text.lines() {
            let Some((name, value)) = line
                .strip_prefix("    ")
                .and_then(|line| line.split_once(" = "))
            else {
                continue;
            };
            let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            // Formulas use the same form with lower-case names or field names in words.
            if !name.chars().all(is_name) || name.len() < 4 {
                continue;
            }
            let expected = known.get(name);
            assert_eq!(
                expected.map(String::as_str),
                Some(value),
                "{page}: {name}; left: the code"
            );
            stated.insert(name.to_owned());
        }
    }
    for name in known.keys() {
        assert!(stated.contains(*name), "docs/spec does not state {name}");
    }
}

/// What stands between each `before` and the `after` that follows it.
fn between<'text>(text: &'text str, before: &str, after: &str) -> BTreeSet<&'text str> {
    text.split(before)
        .skip(1)
        .filter_map(|rest| rest.split_once(after).map(|(inside, _)| inside))
        .collect()
}

fn class_word(class: Class) -> &'static str {
    match class {
        Class::Usage => "usage",
        Class::Key => "key",
        Class::Data => "data",
        Class::Io => "operating system",
        Class::Refused => "refused",
        Class::Warning => "warning",
        Class::Bug => "defect",
    }
}

fn error_row(code: &Code) -> [String; 5] {
    [
        format!("SR-{}", code.number),
        class_word(code.class).to_owned(),
        code.class.exit_code().to_string(),
        code.what.to_owned(),
        code.todo.to_owned(),
    ]
}

#[test]
fn the_error_reference_is_the_table_of_codes() {
    let page = read("docs/reference/errors.md");
    let stated: Vec<Vec<&str>> = page
        .lines()
        .filter_map(cells)
        .filter(|row| row.first().is_some_and(|cell| cell.starts_with("SR-")))
        .collect();
    let mut missing = Vec::new();
    for code in code::ALL {
        let row = error_row(code);
        if !stated.iter().any(|found| found.as_slice() == row) {
            missing.push(format!("| {} |", row.join(" | ")));
        }
    }
    assert!(
        missing.is_empty(),
        "docs/reference/errors.md needs these rows:\n{}",
        missing.join("\n")
    );
    for row in &stated {
        let known = code::ALL
            .iter()
            .any(|code| error_row(code) == row.as_slice());
        assert!(known, "docs/reference/errors.md: no such code: {row:?}");
    }
    let order: Vec<&str> = stated
        .iter()
        .filter_map(|row| row.first().copied())
        .collect();
    assert!(
        order.is_sorted_by(|a, b| a < b),
        "docs/reference/errors.md: in order, each once: {order:?}"
    );
}

#[test]
fn codes_are_unique_ascending_and_of_four_digits() {
    assert!(
        code::ALL.is_sorted_by(|a, b| a.number < b.number),
        "code::ALL is not in order, or a number is used twice"
    );
    for code in code::ALL {
        let number = code.number;
        assert!((1000..=9999).contains(&number), "SR-{number}");
        assert_eq!(
            code::by_number(number).map(|found| found.what),
            Some(code.what)
        );
        for text in [code.what, code.todo] {
            assert!(
                !text.is_empty() && !text.contains(['\n', '|']),
                "SR-{number}: {text:?} is not one line, or breaks a table"
            );
        }
    }
}

#[test]
fn codes_named_in_the_documents_exist() {
    let mut pages = Vec::new();
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|found| found == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 5);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for rest in text.split("SR-").skip(1) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let Ok(number) = digits.parse() else { continue };
            assert!(
                code::by_number(number).is_some(),
                "{}: SR-{number}",
                page.display()
            );
        }
    }
}
