//! What SQLite puts into temporary files, looked at from outside while the statement runs.
//!
//! SQLite unlinks a temporary file as soon as it is open, so that no name leads to it; /proc/self/fd still does, as it
//! would for anyone with the process's rights, and the blocks are on the disk.
//! Must not: read the files through SQLite.

use std::path::PathBuf;

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::bytes::{entropy, holds_any};
use strongroom_benches::report::mebibytes;

use crate::checks::{Found, found};
use crate::{KEY, KNOWN, Tour};

/// A sealed spill has at least this entropy, in bits per byte. (Nonces are counters: a few bytes per 4 KiB repeat.)
const ENTROPY_MIN: f64 = 7.9;
/// Less than this was no spill.
const SPILL_MIN: usize = 1 << 20;

/// A sort and a temporary table on both databases.
pub(crate) fn run(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading("Temporary files, found through /proc/self/fd")?;
    let plain = tour.open_plain()?;
    let path = tour.sealed();
    let sealed = tour.open_sealed(&path, KEY)?;
    for connection in [&plain, &sealed] {
        connection.pragma_update(None, "cache_size", -1000)?;
        connection.pragma_update(None, "temp_store", "FILE")?;
    }
    tour.checks.check("plain: a sort that spills", || judge(&sort(&plain)?, false))?;
    tour.checks.check("sealed: the same sort", || judge(&sort(&sealed)?, true))?;
    // The files of one connection must not be taken for the other's.
    tour.checks.check("plain: a temporary table", || judge(&temporary_table(&plain)?, false))?;
    drop(plain);
    tour.checks.check("sealed: the same temporary table", || judge(&temporary_table(&sealed)?, true))
}

/// Steps part of the way through a sort of the largest table; what its temporary files hold then.
fn sort(connection: &Connection) -> Result<Vec<u8>, Failure> {
    let mut statement = connection.prepare("SELECT * FROM lineitem ORDER BY l_comment")?;
    let mut rows = statement.query([])?;
    for _ in 0..1000 {
        rows.next()?.ok_or("the table ended")?;
    }
    temporary_files()
}

fn temporary_table(connection: &Connection) -> Result<Vec<u8>, Failure> {
    connection.execute_batch("CREATE TEMP TABLE copy AS SELECT * FROM lineitem LIMIT 100000")?;
    temporary_files()
}

/// The bytes of every open file that SQLite made and unlinked.
fn temporary_files() -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let path: PathBuf = entry?.path();
        // The directory's own descriptor is gone by the time that it is looked at.
        let Ok(target) = std::fs::read_link(&path) else { continue };
        let target = target.to_string_lossy();
        if target.contains("etilqs_") && target.ends_with(" (deleted)") {
            all.extend(std::fs::read(&path)?);
        }
    }
    Ok(all)
}

fn judge(bytes: &[u8], expect_sealed: bool) -> Result<Found, Failure> {
    let (bits, known) = (entropy(bytes), holds_any(bytes, &KNOWN));
    let spilled = bytes.len() >= SPILL_MIN;
    let holds = if expect_sealed { bits > ENTROPY_MIN && !known } else { known };
    let words = if known { "row text in clear" } else { "no row text" };
    let size = mebibytes(bytes.len() as u64);
    found(spilled && holds, format!("{size}, {bits:.3} bits per byte, {words}"))
}
