//! Computes the digest again over the pages as they are. This ends the result "unknown", and
//! accepts pages that are not the newest.
//!
//! Must not: be called unless the user asks for it.

use strongroom_format::code;
use strongroom_format::freshness::{Covered, FreshState};
use strongroom_keyring::Error;

use super::DigestSum;
use crate::connection::execute;
use crate::ffi::{SQLITE_SYNC_FULL, sqlite3};
use crate::lower::LowerFile;
use crate::main_file::MainFile;
use crate::page_tail::tail_on_disk;
use crate::query::quote_identifier;
use crate::rekey::{in_write_transaction, rc_error, reload_opened_header, sql_error};
use crate::sealed::SealedDatabase;
use crate::wal::log_length;

/// Accepts the pages of the schema's database as they are now: computes their digest again, writes
/// it into both anchors durably, and returns its root. First makes a TRUNCATE checkpoint. Holds
/// SQLite's write lock meanwhile.
///
/// # Errors
/// SR-6010 when another connection keeps the write-ahead log in use, SR-4014 when the database
/// keeps no freshness, SR-3001 when it is not sealed, and those of reading and writing.
pub fn settle(connection: *mut sqlite3, schema: &str) -> Result<[u8; 32], Error> {
    let name = quote_identifier(schema);
    // In rollback mode this does nothing.
    execute(
        connection,
        &format!("PRAGMA {name}.wal_checkpoint(TRUNCATE)"),
    )
    .map_err(|message| sql_error(&message))?;
    in_write_transaction(connection, schema, |main, pages| {
        if log_length(main.path())? > 0 {
            return Err(Error::new(&code::BUSY, "the write-ahead log is in use"));
        }
        settle_main(main, pages.unwrap_or(0))
    })
}

/// Accepts pages 1 to `pages` of the file as its newest state: writes their digest into both
/// sectors of the anchor, and syncs. The anchor then names no log. Returns the root. SR-4014 if the
/// database keeps no freshness.
fn settle_main(main: &mut MainFile, pages: u64) -> Result<[u8; 32], Error> {
    let opened = reload_opened_header(main)?;
    if !opened.object.header().freshness {
        return Err(Error::new(&code::FRESHNESS_OFF, main.path()));
    }
    let lower = main.lower();
    let mut sum = DigestSum::default();
    for number in 1..=pages {
        let tail = tail_on_disk(lower, number, main.page_size()).map_err(rc_error)?;
        sum = sum.plus(opened.contribution(number, &tail));
    }
    let covered = Covered {
        digest: sum.to_bytes(),
        pages,
    };
    let state = FreshState {
        now: covered,
        base: covered,
        ..FreshState::default()
    };
    let Some(sealed) = main.sealed() else {
        return Err(Error::new(&code::NO_KEY, ""));
    };
    // The log is empty, and a log that a power cut brings back holds nothing that is not in the
    // file.
    sealed.set_generation(lower, [0; 16]).map_err(rc_error)?;
    // Both sectors are written: neither may restore the former digest.
    for _ in 0..2 {
        write_anchor(sealed, lower, &state)?;
    }
    opened.object.fresh_root(&covered)
}

/// Writes the next anchor with this state of freshness into its sector, and syncs the file. SR-3010
/// if neither anchor is valid; SR-5001 if it cannot be written or synced.
fn write_anchor(
    sealed: &SealedDatabase,
    lower: LowerFile,
    state: &FreshState,
) -> Result<(), Error> {
    let done = sealed
        .anchor(lower)
        .and_then(|anchor| sealed.write_anchor(lower, &anchor, state))
        .and_then(|_| lower.sync(SQLITE_SYNC_FULL));
    done.map_err(rc_error)
}
