//! Inspect's result as text for people.
//!
//! Must not: be parsed by anything; `--json` is for that.

use strongroom_format::header::ObjectKind;
use strongroom_format::text::printable;
use strongroom_inspect::report::{
    DuckdbReport, FileKind, ForeignReport, HeaderReport, LuksReport, LuksTokenReport, Report,
    SlotReport,
};

/// Returns the report as text for people, one `label: value` a line.
pub(super) fn render(report: &Report) -> String {
    let mut lines = Lines(String::new());
    lines.put("file", &printable(&report.path));
    lines.put("size", &format!("{} bytes", report.size_bytes));
    lines.put("what", kind_text(report.kind));
    lines.put("sealed", if report.sealed { "yes" } else { "no" });
    if let Some(header) = &report.header {
        header_lines(&mut lines, header, report.size_bytes);
    }
    if let Some(log) = &report.log {
        lines.put("object id", &log.object_id);
        lines.put("key epoch", &log.epoch.to_string());
        lines.put("unit", &format!("{} bytes", log.unit_bytes));
        lines.put("generation", &log.generation);
    }
    if let Some(sqlite) = &report.sqlite {
        let (size, reserve) = (sqlite.page_size, sqlite.page_reserve);
        lines.put(
            "page size",
            &format!("{size} bytes, {reserve} of them reserved"),
        );
    }
    if let Some(foreign) = &report.foreign {
        foreign_lines(&mut lines, foreign);
    }
    if let Some(luks) = &report.luks {
        luks_lines(&mut lines, luks);
    }
    if let Some(duckdb) = &report.duckdb {
        duckdb_lines(&mut lines, duckdb);
    }
    for beside in &report.beside {
        lines.put("beside it", &printable(beside));
    }
    if let Some(entropy) = report.entropy_bits_per_byte {
        lines.put("entropy", &format!("{entropy:.4} bits per byte"));
    }
    if let (1.., Some(entropy)) = (report.body_offset_bytes, report.body_entropy_bits_per_byte) {
        let from = report.body_offset_bytes;
        lines.put(
            "",
            &format!("{entropy:.4} bits per byte from byte {from} on"),
        );
    }
    if report.kind == FileKind::Unknown && report.uniform == Some(true) {
        let text = "no header that is known, and byte values as evenly spread as random ones: it was encrypted, or overwritten with noise;\n            \
                    without a header nobody can tell by what, and nothing in it can be read";
        lines.put("noise", text);
    }
    if let Some(png) = &report.png {
        let shown = format!(
            "{}, {} x {} pixels, {} byte(s) per pixel",
            printable(&png.path),
            png.width,
            png.height,
            png.bytes_per_pixel
        );
        lines.put("picture", &shown);
    }
    lines.0
}

/// Appends the lines about the header of a sealed object. `size` is the length of the file in
/// bytes.
fn header_lines(lines: &mut Lines, header: &HeaderReport, size: u64) {
    lines.put("object id", &header.object_id);
    lines.put("created", &header.created);
    lines.put("cipher", header.cipher);
    if header.page_size > 0 && header.object_kind == ObjectKind::Postgres.name() {
        lines.put("data unit", &format!("{} bytes", header.page_size));
    } else if header.page_size > 0 {
        let (page, reserve) = (header.page_size, header.page_reserve);
        let body = size.saturating_sub(4096);
        let pages = body / u64::from(page);
        let text = format!("{page} bytes, {reserve} of them reserved; {pages} pages");
        lines.put("page size", &text);
    }
    lines.put("key epoch", &header.epoch.to_string());
    let rekey = match header.previous_epoch {
        Some(from) => format!("under way, from epoch {from} to {}", header.epoch),
        None => "none under way".to_owned(),
    };
    lines.put("rekey", &rekey);
    let checksum = if header.checksum_ok {
        "matches"
    } else {
        "DOES NOT MATCH"
    };
    lines.put(
        "header",
        &format!(
            "version {}, sequence {}, checksum {checksum}; not authenticated",
            header.version, header.sequence
        ),
    );
    for slot in &header.slots {
        lines.put(&format!("slot {}", slot.index), &slot_text(slot));
    }
    for anchor in &header.anchors {
        let (sequence, epoch) = (anchor.sequence, anchor.epoch);
        let seals = match anchor.seals {
            0 => String::new(),
            seals => format!(", about {seals} of {} seals", anchor.seals_limit),
        };
        lines.put(
            "anchor",
            &format!("sequence {sequence}, epoch {epoch}{seals}"),
        );
    }
}

/// Appends the lines about a DuckDB database.
fn duckdb_lines(lines: &mut Lines, duckdb: &DuckdbReport) {
    lines.put("cipher", duckdb.cipher);
    let version = match duckdb.encryption_version {
        Some(version) => format!("storage {}, encryption {version}", duckdb.storage_version),
        None => format!("storage {}", duckdb.storage_version),
    };
    lines.put("version", &version);
    lines.put("written by", &duckdb.written_by);
    lines.put("identifier", &duckdb.identifier);
    let checksum = match (duckdb.checksum_ok, duckdb.rekey_under_way) {
        (true, _) => "matches",
        (_, true) => "inverted: a rekey was begun and not finished, and DuckDB refuses the file",
        _ => "DOES NOT MATCH",
    };
    lines.put("header", &format!("checksum {checksum}; not authenticated"));
    if duckdb.encryption_version.is_some() {
        let (set, units) = (duckdb.unused_bytes_set, duckdb.units_looked_at);
        let all = if duckdb.usual_block_size_fits {
            "if blocks are of the usual size, these are all"
        } else {
            "the file has smaller blocks: verify, with the key, counts all"
        };
        let text = format!(
            "{set} of {units} units have something in bytes that DuckDB does not use ({all})"
        );
        lines.put("unused", &text);
    }
    if let Some(wal) = &duckdb.wal {
        let belongs = match wal.belongs {
            Some(true) => ", of this database",
            Some(false) => ", of ANOTHER database",
            None => "",
        };
        let text = format!("{}, {} bytes{belongs}", wal.kind, wal.size_bytes);
        lines.put("log", &text);
    }
}

/// Appends the lines about a database that another product has encrypted, or may have.
fn foreign_lines(lines: &mut Lines, foreign: &ForeignReport) {
    let (product, size) = (foreign.product, foreign.page_size);
    let text = match foreign.certain {
        true => format!("{product}; pages of {size} bytes"),
        false => format!(
            "possibly, a guess: random bytes, no format that is known, and a length that fits pages of {size} bytes"
        ),
    };
    lines.put("encrypted", &text);
    let way = "decrypt it with that product, then `strongroom sqlite encrypt` the plain copy";
    match foreign.certain {
        true => lines.put("", way),
        false => {
            let may_be =
                format!("it may be a database of {product}, or any other encrypted or random file");
            lines.put("", &may_be);
            lines.put("", &format!("if it is such a database, {way}"));
        }
    }
}

/// Appends the lines about a volume.
fn luks_lines(lines: &mut Lines, luks: &LuksReport) {
    lines.put("uuid", &luks.uuid);
    if let Some(label) = &luks.label {
        lines.put("label", label);
    }
    for segment in &luks.segments {
        let sector = segment
            .sector_size
            .map_or_else(String::new, |size| format!(", sectors of {size} bytes"));
        let integrity = segment
            .integrity
            .as_ref()
            .map_or_else(String::new, |kind| format!(", {kind}"));
        let size = segment
            .size_bytes
            .map_or_else(|| "to the end".to_owned(), |size| format!("{size} bytes"));
        let (cipher, from) = (&segment.cipher, segment.offset_bytes);
        lines.put(
            "data",
            &format!("{cipher}{sector}{integrity}; from byte {from}, {size}"),
        );
    }
    for slot in &luks.slots {
        let kdf = slot
            .kdf
            .as_ref()
            .map_or_else(String::new, |kdf| format!(", {kdf}"));
        let data = match slot.opens_data || slot.kdf.is_none() {
            true => "",
            false => "; opens no data",
        };
        lines.put(
            &format!("slot {}", slot.slot),
            &format!("{}{kdf}{data}", slot.opener),
        );
    }
    for token in &luks.tokens {
        lines.put(&format!("token {}", token.token), &token_text(token));
    }
    for name in &luks.requirements {
        lines.put("requires", name);
    }
    if luks.reencryption {
        lines.put("under way", "re-encryption, begun and not finished");
    }
    lines.put(
        "header",
        &format!("sequence id {}; not authenticated", luks.sequence),
    );
    lines.put("1st copy", &luks.primary);
    lines.put("2nd copy", &luks.secondary);
    if let Some(warning) = &luks.warning {
        lines.put("warning", warning);
    }
}

/// Returns a token of a volume in one line.
fn token_text(token: &LuksTokenReport) -> String {
    let slots: Vec<String> = token.slots.iter().map(u32::to_string).collect();
    let mut text = format!("{}, for slots {}", token.kind, slots.join(", "));
    if let (Some(id), Some(key), Some(version)) =
        (&token.object_id, &token.key_id, token.key_version)
    {
        text.push_str(&format!("; object {id}, key {key}, version {version}"));
    }
    if let Some(provider) = &token.provider {
        text.push_str(&format!(", {provider}"));
    }
    for server in token.servers.iter().flatten() {
        text.push_str(&format!(", {}", printable(server)));
    }
    if let Some(registers) = &token.pcrs {
        let registers: Vec<String> = registers.iter().map(u8::to_string).collect();
        text.push_str(&format!("; sealed to registers {}", registers.join(", ")));
    }
    text
}

/// Returns in words what opens a key slot.
fn slot_text(slot: &SlotReport) -> String {
    match (&slot.key_id, slot.key_version, &slot.argon2id) {
        (Some(id), Some(version), _) => format!("keyring key {}, version {version}", printable(id)),
        (_, _, Some(cost)) => format!(
            "passphrase, Argon2id with {} KiB, {} passes, {} lanes",
            cost.memory_kib, cost.passes, cost.lanes
        ),
        _ => match &slot.certificate_id {
            Some(id) => format!("certificate {id}"),
            None => format!("{} key", slot.kind),
        },
    }
}

/// Returns the kind in words.
const fn kind_text(kind: FileKind) -> &'static str {
    match kind {
        FileKind::SealedSqlite => "sealed SQLite database",
        FileKind::SealedKeyring => "keyring",
        FileKind::SealedPostgres => "header of a sealed PostgreSQL instance",
        FileKind::SealedZone => "store of the zone of confidential columns",
        FileKind::SealedBackup => "head of a sealed backup set",
        FileKind::SealedUnknown => "sealed object of a kind that this program does not know",
        FileKind::SealedContainer => "sealed file of a PostgreSQL instance",
        FileKind::SealedStream => "sealed stream of a PostgreSQL instance",
        FileKind::SealedDamaged => "sealed object with a damaged header",
        FileKind::SealedNewer => "sealed object of a newer format",
        FileKind::SealedWal => "sealed write-ahead log",
        FileKind::SealedJournal => "sealed rollback journal",
        FileKind::SealedSuperJournal => "sealed super-journal",
        FileKind::SealedLogDamaged => "sealed log or journal with a damaged prologue",
        FileKind::Luks2 => "encrypted volume (LUKS2)",
        FileKind::Luks2Damaged => "encrypted volume (LUKS2) whose header cannot be used",
        FileKind::Luks1 => "encrypted volume (LUKS1)",
        FileKind::Duckdb => "plain DuckDB database",
        FileKind::DuckdbEncrypted => "encrypted DuckDB database",
        FileKind::DuckdbDamaged => "DuckDB database that cannot be read",
        FileKind::Sqlite => "plain SQLite database",
        FileKind::SqliteOtherCipher => "SQLite database that another product has encrypted",
        FileKind::SqliteWal => "plain SQLite write-ahead log",
        FileKind::SqliteJournal => "plain SQLite rollback journal",
        FileKind::Empty => "empty file",
        FileKind::Unknown => "not known",
    }
}

/// Lines of `label: value`, values aligned.
struct Lines(String);

impl Lines {
    /// Appends a line with this label and value. An empty label leaves its column empty.
    fn put(&mut self, label: &str, value: &str) {
        let label = if label.is_empty() {
            String::new()
        } else {
            format!("{label}:")
        };
        self.0.push_str(&format!("{label:<12}{value}\n"));
    }
}
