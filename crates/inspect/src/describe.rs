//! From a scan to a report: recognises the format of a file by its first bytes, and reads the
//! fields that are in clear.
//!
//! Must not: trust any of them. Sizes come from the file system, not from a header.

use std::fs::File;
use std::path::Path;

use strongroom_format::duckdb::DUCKDB_HEADER_LEN;
use strongroom_format::header::{
    Anchor, HEADER_LEN, Header, HeaderError, ObjectKind, SEALS_LIMIT, header_layout,
};
use strongroom_format::hex::hex;
use strongroom_format::postgres::container::{CONTAINER_HEADER, CONTAINER_MAGIC};
use strongroom_format::postgres::stream::{STREAM_MAGIC, stream_layout};
use strongroom_format::slot::SlotKind;
use strongroom_format::sqlite::{AuxKind, Prologue, prologue_layout};
use strongroom_format::{FORMAT_VERSION, code, layout};
use strongroom_keyring::Error;
use strongroom_keyring::paths::{FileFormat, format_of};
use strongroom_luks2::LuksError;
use strongroom_sqlite::foreign::recognise as recognise_foreign;

use crate::report::{
    AnchorReport, Argon2Report, FileKind, ForeignReport, HeaderReport, LogReport, Report,
    SlotReport, SqliteReport,
};
use crate::scan::Scan;
use crate::time::rfc3339;

/// First bytes of a plain rollback journal (SQLite file format, section 3).
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// First bytes of a plain write-ahead log, without the last, which tells the checksums' byte order
/// (section 4.1).
const WAL_MAGIC: [u8; 3] = [0x37, 0x7f, 0x06];
/// Length of a plain database's header (section 1.3).
const SQLITE_HEADER_LEN: usize = 100;
/// Length of a stream's header.
const STREAM_HEADER_LEN: usize = stream_layout::SIZE;
/// What Strongroom, SQLite and DuckDB put beside a database.
const SUFFIXES: [&str; 8] = [
    "-wal",
    "-journal",
    "-shm",
    "-strongroom",
    ".wal",
    ".wal.checkpoint",
    ".wal.recovery",
    strongroom_duckdb::REKEY_SUFFIX,
];

/// Returns the report of the file at `path` that was read into `scan`, and the problem found in the
/// header of a sealed file, DuckDB database or volume; `None` if there is none. Some formats are
/// read again from `path`; files that lie beside it are named.
#[must_use]
pub fn describe(path: &Path, scan: &Scan) -> (Report, Option<Error>) {
    let mut report = Report {
        path: path.display().to_string(),
        size_bytes: scan.size,
        kind: FileKind::Unknown,
        sealed: false,
        header: None,
        log: None,
        sqlite: None,
        luks: None,
        duckdb: None,
        beside: files_beside(path),
        entropy_bits_per_byte: scan.entropy(),
        body_offset_bytes: 0,
        body_entropy_bits_per_byte: None,
        uniform: scan.uniform(),
        foreign: None,
        png: None,
    };
    let (body, problem) = recognise(&mut report, path, &scan.head);
    if matches!(report.kind, FileKind::Unknown | FileKind::Sqlite) {
        note_foreign(&mut report, scan);
    }
    report.body_offset_bytes = body as u64;
    report.body_entropy_bits_per_byte = scan.body_entropy(body);
    (report, problem)
}

/// Records in the report that another product has encrypted the database, or may have. Only a
/// certain finding changes the kind. Does nothing if neither is the case.
fn note_foreign(report: &mut Report, scan: &Scan) {
    let Some(found) = recognise_foreign(&scan.sample, scan.size) else {
        return;
    };
    if found.certain {
        report.kind = FileKind::SqliteOtherCipher;
        report.sqlite = None;
    }
    report.foreign = Some(ForeignReport {
        product: found.product,
        page_size: found.page_size,
        certain: found.certain,
    });
}

/// Recognises the format by the first bytes and fills in kind and header. Returns the number of
/// bytes at the beginning that do not count for the body's entropy, and the header's problem, if
/// there is one. Reads `path` again for DuckDB and LUKS.
fn recognise(report: &mut Report, path: &Path, head: &[u8]) -> (usize, Option<Error>) {
    match format_of(head) {
        FileFormat::Empty => report.kind = FileKind::Empty,
        FileFormat::Sealed => {
            report.sealed = true;
            return (HEADER_LEN, describe_sealed(report, path, head));
        }
        FileFormat::PlainSqlite => {
            report.kind = FileKind::Sqlite;
            report.sqlite = describe_plain_sqlite(head);
            return (SQLITE_HEADER_LEN, None);
        }
        FileFormat::Other if AuxKind::of(head).is_some() => {
            report.sealed = true;
            return (
                prologue_layout::SIZE,
                describe_sealed_log(report, path, head),
            );
        }
        FileFormat::Other if head.starts_with(&CONTAINER_MAGIC) => {
            report.sealed = true;
            report.kind = FileKind::SealedContainer;
            return (CONTAINER_HEADER, None);
        }
        FileFormat::Other if head.starts_with(&STREAM_MAGIC) => {
            report.sealed = true;
            report.kind = FileKind::SealedStream;
            return (STREAM_HEADER_LEN, None);
        }
        FileFormat::Other if strongroom_format::duckdb::is_duckdb(head) => {
            let (kind, duckdb, problem) = crate::duckdb::describe(path);
            report.kind = kind;
            report.sealed = kind == FileKind::DuckdbEncrypted;
            report.duckdb = duckdb;
            return (DUCKDB_HEADER_LEN, problem);
        }
        // A header whose beginning was overwritten has a second copy.
        FileFormat::Other if is_luks(path, head) => {
            let (kind, luks, problem) = crate::luks::describe(path);
            report.kind = kind;
            report.sealed = matches!(kind, FileKind::Luks1 | FileKind::Luks2);
            let data = luks.as_ref().and_then(|luks| luks.segments.first());
            let offset = data.and_then(|data| usize::try_from(data.offset_bytes).ok());
            report.luks = luks;
            // The scan can leave out no more than the head that it kept.
            return (offset.map_or(0, |offset| offset.min(head.len())), problem);
        }
        FileFormat::Other if head.starts_with(&JOURNAL_MAGIC) => {
            report.kind = FileKind::SqliteJournal;
        }
        FileFormat::Other if head.starts_with(&WAL_MAGIC) => report.kind = FileKind::SqliteWal,
        FileFormat::Other => {}
    }
    (0, None)
}

/// Fills in kind and header of a sealed object. Returns what is wrong with the header: SR-3006 if
/// it is cut short, SR-3002 if a newer version wrote it, SR-3003 if it is damaged or its checksum
/// does not match; otherwise `None`.
fn describe_sealed(report: &mut Report, path: &Path, head: &[u8]) -> Option<Error> {
    report.kind = FileKind::SealedDamaged;
    let shown = path.display();
    if head.len() < HEADER_LEN {
        return Some(Error::new(&code::HEADER_TRUNCATED, shown.to_string()));
    }
    match Header::parse(head) {
        Ok(header) => {
            report.kind = match header.kind {
                ObjectKind::Sqlite => FileKind::SealedSqlite,
                ObjectKind::Keyring => FileKind::SealedKeyring,
                ObjectKind::Postgres => FileKind::SealedPostgres,
                ObjectKind::Zone => FileKind::SealedZone,
                ObjectKind::Backup => FileKind::SealedBackup,
                _ => FileKind::SealedUnknown,
            };
            let header = header_report(&header, head);
            let checksum_ok = header.checksum_ok;
            report.header = Some(header);
            (!checksum_ok).then(|| {
                let detail = format!("{shown}: the checksum does not match");
                Error::new(&code::HEADER_DAMAGED, detail)
            })
        }
        Err(HeaderError::Newer(version)) => {
            report.kind = FileKind::SealedNewer;
            let detail =
                format!("{shown}: format version {version}, this program reads {FORMAT_VERSION}");
            Some(Error::new(&code::NEWER_FORMAT, detail))
        }
        Err(HeaderError::Malformed(field)) => {
            let detail = format!("{shown}: field {field}");
            Some(Error::new(&code::HEADER_DAMAGED, detail))
        }
        Err(_) => Some(Error::new(&code::HEADER_TRUNCATED, shown.to_string())),
    }
}

/// Returns the fields of a parsed header, its slots and those anchors that can be parsed, as they
/// are: nothing is authenticated. `head` are the header's bytes.
fn header_report(header: &Header, head: &[u8]) -> HeaderReport {
    let anchors = [header_layout::ANCHOR_A, header_layout::ANCHOR_B];
    let anchors = anchors
        .into_iter()
        .filter_map(|sector| Anchor::parse(layout::bytes(head, sector)?))
        .map(|anchor| AnchorReport {
            sequence: anchor.sequence,
            epoch: anchor.epoch,
            wal_generation: hex(&anchor.wal_generation),
            seals: anchor.seals,
            seals_limit: SEALS_LIMIT,
        });
    let slots = header.slots.iter().enumerate();
    HeaderReport {
        version: layout::u16_at(head, header_layout::VERSION).unwrap_or_default(),
        object_kind: header.kind.name(),
        object_id: hex(&header.object_id),
        created: rfc3339(header.created_unix_s),
        created_unix_s: header.created_unix_s,
        cipher: header.cipher.name(),
        page_size: header.unit_size,
        page_reserve: header.unit_reserve,
        epoch: header.epoch,
        previous_epoch: (header.previous_epoch != 0).then_some(header.previous_epoch),
        rekey_under_way: header.previous_epoch != 0,
        sequence: header.sequence,
        checksum_ok: strongroom_keyring::inspect_checksum(head),
        slots: slots
            .map(|(index, slot)| slot_report(index, &slot.kind))
            .collect(),
        anchors: anchors.collect(),
    }
}

/// Returns a key slot, number `index`, as it is reported.
fn slot_report(index: usize, kind: &SlotKind) -> SlotReport {
    let mut report = SlotReport {
        index,
        kind: "unknown",
        key_id: None,
        key_version: None,
        argon2id: None,
        certificate_id: None,
    };
    match kind {
        SlotKind::Passphrase(cost) => {
            report.kind = "passphrase";
            report.argon2id = Some(Argon2Report {
                memory_kib: cost.m_kib,
                passes: cost.t,
                lanes: cost.p,
            });
        }
        SlotKind::Raw => report.kind = "raw",
        SlotKind::Keyring { id, version } => {
            report.kind = "keyring";
            report.key_id = Some(id.clone());
            report.key_version = Some(*version);
        }
        SlotKind::Certificate { id, .. } => {
            report.kind = "certificate";
            report.certificate_id = Some(hex(id));
        }
        _ => {}
    }
    report
}

/// Fills in kind and prologue of a sealed log, journal or super-journal. Returns SR-3003 if the
/// prologue is damaged, otherwise `None`.
fn describe_sealed_log(report: &mut Report, path: &Path, head: &[u8]) -> Option<Error> {
    report.kind = FileKind::SealedLogDamaged;
    let record = head.get(..prologue_layout::SIZE).unwrap_or(head);
    let Some(prologue) = Prologue::parse(record) else {
        let detail = format!("{}: the prologue is damaged", path.display());
        return Some(Error::new(&code::HEADER_DAMAGED, detail));
    };
    report.kind = match prologue.kind {
        AuxKind::Wal => FileKind::SealedWal,
        AuxKind::Journal => FileKind::SealedJournal,
        AuxKind::SuperJournal => FileKind::SealedSuperJournal,
    };
    report.log = Some(LogReport {
        unit_bytes: prologue.unit,
        epoch: prologue.epoch,
        object_id: hex(&prologue.object_id),
        generation: hex(&prologue.generation()),
    });
    None
}

/// Returns whether one of the two copies of a LUKS header is there, whatever its state. Reads the
/// file if `head` does not show it; false if it cannot be read.
fn is_luks(path: &Path, head: &[u8]) -> bool {
    if matches!(
        strongroom_luks2::magic(head),
        strongroom_luks2::Magic::Luks(_)
    ) {
        return true;
    }
    let found = File::open(path).map(|file| strongroom_luks2::read(&file));
    matches!(
        found,
        Ok(Ok(_) | Err(LuksError::Damaged(_) | LuksError::Forged(_)))
    )
}

/// Returns page size and reserved bytes per page from the header of a plain database; `None` if it
/// is too short.
fn describe_plain_sqlite(head: &[u8]) -> Option<SqliteReport> {
    let (high, low) = (u32::from(*head.get(16)?), u32::from(*head.get(17)?));
    let page_size = match high * 256 + low {
        1 => 65_536,
        size => size,
    };
    Some(SqliteReport {
        page_size,
        page_reserve: *head.get(20)?,
    })
}

/// Returns the paths of those files that exist beside `path` and that Strongroom, SQLite or DuckDB
/// keep for a database.
fn files_beside(path: &Path) -> Vec<String> {
    let names = SUFFIXES.iter().map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name
    });
    names
        .filter(|name| Path::new(name).exists())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}
