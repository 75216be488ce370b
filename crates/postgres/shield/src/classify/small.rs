//! Classifies files outside of database directories: log, SLRUs, slots, small files.
//!
//! Each function takes the path below its directory, and returns `None` for a file that PostgreSQL
//! does not have there.
//!
//! Invariants: those of [`super`].
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use super::{Class, Classified, Identity};
use crate::name_parser::{NameParser, split_first_component};

/// Classifies a path below `pg_wal`. `None` for a name that PostgreSQL does not use there.
pub(super) fn in_wal(name: &[u8]) -> Option<Classified> {
    match name {
        b"archive_status" | b"summaries" => return Some(Classified::DIRECTORY),
        b"RECOVERYXLOG" => return Some(Classified::of(Class::WalRestored)),
        b"RECOVERYHISTORY" => return Some(Classified::of(Class::TimelineHistory)),
        b"summaries/temp.summary" => return Some(Classified::of(Class::WalSummary)),
        _ => {}
    }
    let mut parser = NameParser::new(name);
    if parser.optional(b"xlogtemp.") {
        parser.decimal()?;
        parser.end()?;
        return Some(Classified::of(Class::WalTemp));
    }
    if parser.optional(b"archive_status/") {
        let done = parser.rest().ends_with(b".ready") || parser.rest().ends_with(b".done");
        let plain = !parser.rest().contains(&b'/');
        return (done && plain).then_some(Classified::of(Class::ArchiveStatus));
    }
    if parser.optional(b"summaries/") {
        for _ in 0..5 {
            parser.hex(8, 8)?;
        }
        parser.expect(b".summary")?;
        parser.end()?;
        return Some(Classified::of(Class::WalSummary));
    }
    let timeline = u32::try_from(parser.hex(8, 8)?).ok()?;
    // pg_basebackup writes a history as `.history.tmp` and renames it.
    if matches!(parser.rest(), b".history" | b".history.tmp") {
        return Some(Classified::of(Class::TimelineHistory));
    }
    let number = parser.hex(16, 16)?;
    match parser.rest() {
        b"" | b".partial" => Some(Classified {
            class: Class::Wal,
            identity: Identity::Wal { timeline, number },
        }),
        _ => {
            parser.expect(b".")?;
            parser.hex(8, 8)?;
            parser.expect(b".backup")?;
            parser.end()?;
            Some(Classified::of(Class::BackupHistory))
        }
    }
}

/// Classifies the name of a segment in an SLRU directory, of which `directory` is the number:
/// `%04X` of up to 24 bits, or 15 digits (`pg_notify` and `pg_serial` from 17 on). `None` for any
/// other name.
pub(super) fn slru(directory: u8, name: &[u8]) -> Option<Classified> {
    let mut parser = NameParser::new(name);
    let segment = parser.hex(4, 15)?;
    parser.end()?;
    matches!(name.len(), 4..=6 | 15).then_some(Classified {
        class: Class::Slru,
        identity: Identity::Slru { directory, segment },
    })
}

/// Classifies a path below `pg_replslot`: the slot's directory, its state, or spilled changes.
/// `None` for any other name in a slot.
pub(super) fn in_slots(path: &[u8]) -> Option<Classified> {
    let (_, Some(name)) = split_first_component(path) else {
        return Some(Classified::DIRECTORY);
    };
    if matches!(name, b"state" | b"state.tmp") {
        return Some(Classified::of(Class::SlotState));
    }
    let mut parser = NameParser::new(name);
    parser.expect(b"xid-")?;
    parser.decimal()?;
    parser.expect(b"-lsn-")?;
    parser.hex(1, 8)?;
    parser.expect(b"-")?;
    parser.hex(1, 8)?;
    parser.expect(b".spill")?;
    parser.end()?;
    Some(Classified::of(Class::Spill))
}

/// Classifies a path below `pg_logical`. `None` for a name that PostgreSQL does not use there.
pub(super) fn in_logical(path: &[u8]) -> Option<Classified> {
    match split_first_component(path) {
        (b"replorigin_checkpoint" | b"replorigin_checkpoint.tmp", None) => {
            Some(Classified::of(Class::Origins))
        }
        (b"snapshots" | b"mappings", None) => Some(Classified::DIRECTORY),
        (b"snapshots", Some(name)) => snapbuild(name),
        (b"mappings", Some(name)) => rewrite_mapping(name),
        _ => None,
    }
}

/// Classifies a snapshot of logical decoding: `%X-%X.snap`, and `%X-%X.snap.<pid>.tmp`. `None` for
/// any other name.
fn snapbuild(name: &[u8]) -> Option<Classified> {
    let mut parser = NameParser::new(name);
    parser.hex(1, 8)?;
    parser.expect(b"-")?;
    parser.hex(1, 8)?;
    parser.expect(b".snap")?;
    if parser.end().is_none() {
        parser.expect(b".")?;
        parser.decimal()?;
        parser.expect(b".tmp")?;
        parser.end()?;
    }
    Some(Classified::of(Class::Snapbuild))
}

/// Classifies a mapping of a rewritten catalog: `map-%x-%x-%X_%X-%x-%x`. `None` for any other name.
fn rewrite_mapping(name: &[u8]) -> Option<Classified> {
    let mut parser = NameParser::new(name);
    parser.expect(b"map-")?;
    for separator in [&b"-"[..], b"-", b"_", b"-", b"-"] {
        parser.skip_hex()?;
        parser.expect(separator)?;
    }
    parser.skip_hex()?;
    parser.end()?;
    Some(Classified::of(Class::RewriteMapping))
}

/// Classifies the state of a prepared transaction: 8 digits (15, 16) or 16 (17 and later), and the
/// same with `.tmp`. From 15.20 and the releases of the other major versions of that day on, a
/// state file is written under that name and renamed (`RecreateTwoPhaseFile` in
/// src/backend/access/transam/twophase.c). `None` for any other name.
pub(super) fn two_phase(name: &[u8]) -> Option<Classified> {
    let digits = name.strip_suffix(b".tmp").unwrap_or(name);
    let mut parser = NameParser::new(digits);
    parser.hex(8, 16)?;
    parser.end()?;
    matches!(digits.len(), 8 | 16).then_some(Classified::of(Class::TwoPhase))
}

/// Classifies a file in `pg_stat` or `pg_stat_tmp`, whichever `directory` is. `None` for an empty
/// name, and below a directory.
pub(super) fn statistics(directory: &[u8], name: &[u8]) -> Option<Classified> {
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    // pg_stat_statements and similar extensions append to these files from many processes.
    let texts = directory == b"pg_stat_tmp" && name.ends_with(b"texts.stat");
    Some(Classified::of(match texts {
        true => Class::QueryTexts,
        false => Class::Statistics,
    }))
}

/// Classifies an exported snapshot: `%08X-%08X-%d`, and the same with `.tmp`. `None` for any other
/// name.
pub(super) fn exported_snapshot(name: &[u8]) -> Option<Classified> {
    let mut parser = NameParser::new(name);
    parser.hex(8, 8)?;
    parser.expect(b"-")?;
    parser.hex(8, 8)?;
    parser.expect(b"-")?;
    parser.decimal()?;
    if parser.end().is_none() {
        parser.expect(b".tmp")?;
        parser.end()?;
    }
    Some(Classified::of(Class::ExportedSnapshot))
}
