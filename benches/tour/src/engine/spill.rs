//! What SQLite puts into temporary files, looked at from outside while the statement runs.
//!
//! A temporary file of SQLite's has no name: it is made without one (`O_TMPFILE`), or unlinked as
//! soon as it is open. The process's /proc/self/fd still leads to it, and its blocks are on the
//! disk.
//! Must not: read the files through SQLite.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::bytes::{entropy, holds_any};
use strongroom_benches::report::mebibytes;

use super::databases::Databases;
use crate::checks::{Found, found};
use crate::place::KNOWN;

/// A sealed spill has at least this entropy, in bits per byte. (Nonces are counters: a few bytes
/// per 4 KiB repeat.)
const ENTROPY_MIN: f64 = 7.9;
/// Less than this was no spill.
const SPILL_MIN: usize = 1 << 20;

/// Nameless files that are open before a statement runs: not SQLite's.
type Before = BTreeSet<PathBuf>;

/// A sort and a temporary table on both databases.
pub(super) fn run(databases: &mut Databases<'_>) -> Result<(), Failure> {
    databases
        .checks
        .heading("Temporary files, found through /proc/self/fd")?;
    let before: Before = nameless()?;
    let place = databases.place;
    let plain = place.open_plain()?;
    let sealed = place.open_sealed(&place.sealed(), &place.key_file())?;
    for connection in [&plain, &sealed] {
        connection.pragma_update(None, "cache_size", -1000)?;
        connection.pragma_update(None, "temp_store", "FILE")?;
    }
    databases.checks.check("plain: a sort that spills", || {
        judge(&sort(&plain, &before)?, false)
    })?;
    databases.checks.check("sealed: the same sort", || {
        judge(&sort(&sealed, &before)?, true)
    })?;
    // The files of one connection must not be taken for the other's.
    databases.checks.check("plain: a temporary table", || {
        judge(&temporary_table(&plain, &before)?, false)
    })?;
    drop(plain);
    databases
        .checks
        .check("sealed: the same temporary table", || {
            judge(&temporary_table(&sealed, &before)?, true)
        })
}

/// Steps part of the way through a sort of the largest table; what its temporary files hold then.
fn sort(connection: &Connection, before: &Before) -> Result<Vec<u8>, Failure> {
    let mut statement = connection.prepare("SELECT * FROM lineitem ORDER BY l_comment")?;
    let mut rows = statement.query([])?;
    for _ in 0..1000 {
        rows.next()?.ok_or("the table ended")?;
    }
    temporary_files(before)
}

fn temporary_table(connection: &Connection, before: &Before) -> Result<Vec<u8>, Failure> {
    connection.execute_batch("CREATE TEMP TABLE copy AS SELECT * FROM lineitem LIMIT 100000")?;
    temporary_files(before)
}

/// Descriptors of this process that lead to a file without a name.
fn nameless() -> Result<BTreeSet<PathBuf>, Failure> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        // The directory's own descriptor is gone by the time that it is looked at.
        if std::fs::read_link(&path)
            .is_ok_and(|target| target.to_string_lossy().ends_with(" (deleted)"))
        {
            found.insert(path);
        }
    }
    Ok(found)
}

/// The bytes of every nameless file that was not open before.
fn temporary_files(before: &Before) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    for path in nameless()?.difference(before) {
        all.extend(std::fs::read(path)?);
    }
    Ok(all)
}

fn judge(bytes: &[u8], expect_sealed: bool) -> Result<Found, Failure> {
    let (bits, known) = (entropy(bytes), holds_any(bytes, &KNOWN));
    let spilled = bytes.len() >= SPILL_MIN;
    let holds = if expect_sealed {
        bits > ENTROPY_MIN && !known
    } else {
        known
    };
    let words = if known {
        "row text in clear"
    } else {
        "no row text"
    };
    let size = mebibytes(bytes.len() as u64);
    found(
        spilled && holds,
        format!("{size}, {bits:.3} bits per byte, {words}"),
    )
}
