//! Checks whether a database's pages are those of the digest in its anchor. docs/spec/sqlite.md,
//! "Freshness".
//!
//! Only the pages' tails are read; a page's tag shows whether the page belongs to its tail.
//!
//! Must not: return `Holds` for a database that it did not read as a whole.

use std::path::Path;

use strongroom_format::code;
use strongroom_format::header::{Anchor, HEADER_LEN};
use strongroom_format::sqlite::page_offset;
use strongroom_keyring::Error;

use super::{DigestSum, LogTails};
use crate::page_tail::Tail;
use crate::read_only_file::ReadOnlyFile;
use crate::sealed::OpenedHeader;

/// The result of comparing the digest with the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// The database keeps no digest.
    #[default]
    NotKept,
    /// The digest is of these pages: no page is an older copy. The root identifies this state.
    Holds {
        /// 32 bytes that may be shown, and kept elsewhere.
        root: [u8; 32],
        /// The log has transactions, the newest of which may be missing.
        log: bool,
    },
    /// The digest is not of these pages. The reason may be a rollback after a crash, or an older
    /// page.
    Unknown,
    /// The digest is not of these pages: a page, or several, or the anchor are older copies, or the
    /// log is missing.
    Stale,
    /// A transaction must be rolled back first, by the next connection that opens the database.
    RollbackPending,
    /// The database was written during each attempt.
    Busy,
    /// No anchor is valid.
    NoAnchor,
}

/// Most attempts while another connection makes checkpoints.
const TRIES: u32 = 5;

/// Compares the digest in the anchor with the pages in `file`, and with the write-ahead log at path
/// `wal`. `to_roll_back` says that a journal is still to be played back; the answer is then
/// `RollbackPending`. Tries again, up to 5 times, if the log grows or the anchor changes meanwhile.
/// Errors are those of reading; a digest that does not match is an answer, not an error.
pub(crate) fn judge(
    file: &ReadOnlyFile,
    opened: &OpenedHeader,
    wal: &Path,
    to_roll_back: bool,
) -> Result<Freshness, Error> {
    if !opened.object.header().freshness {
        return Ok(Freshness::NotKept);
    }
    if to_roll_back {
        return Ok(Freshness::RollbackPending);
    }
    for _ in 0..TRIES {
        let Some(anchor) = anchor(file, opened)? else {
            return Ok(Freshness::NoAnchor);
        };
        let mut log = LogTails::default();
        read_log(&mut log, opened, &anchor, wal)?;
        let judged = compare(file, opened, &anchor, &log)?;
        let frames = log.frames();
        read_log(&mut log, opened, &anchor, wal)?;
        // The log has what a checkpoint wrote meanwhile. If it has more frames than before, those
        // may have been copied too.
        if log.frames() == frames && self::anchor(file, opened)? == Some(anchor) {
            return Ok(judged);
        }
    }
    Ok(Freshness::Busy)
}

/// Reads the anchor in force from the file's header. `None` when neither of its two sectors is
/// valid. SR-3006 when the file is shorter than a header.
fn anchor(file: &ReadOnlyFile, opened: &OpenedHeader) -> Result<Option<Anchor>, Error> {
    match opened.object.anchor(&file.head(HEADER_LEN)?) {
        Ok(anchor) => Ok(Some(anchor)),
        Err(error) if error.code().number == code::ANCHOR.number => Ok(None),
        Err(error) => Err(error),
    }
}

/// Computes the digest of the pages in the file, in which a page that the log has counts as it was
/// before the log, and compares it with the anchor's. Returns `Holds` with the root if they are
/// equal; otherwise `Unknown` if the anchor notes a doubt, and `Stale` if not. Errors are those of
/// reading: SR-5001 when the system reports an error.
fn compare(
    file: &ReadOnlyFile,
    opened: &OpenedHeader,
    anchor: &Anchor,
    log: &LogTails,
) -> Result<Freshness, Error> {
    let state = opened.object.fresh_state(anchor)?;
    let in_use = log.frames() > 0;
    // The first transaction of the database may be lost completely, with its journal: SQLite plays
    // nothing back into a file without pages.
    let is_empty = file.size()? <= HEADER_LEN as u64 && state.before.pages == 0;
    let expected = match (in_use, is_empty) {
        (true, _) => state.base,
        (_, true) => state.before,
        _ => state.now,
    };
    let mut sum = DigestSum::default();
    for number in 1..=expected.pages {
        let added = match log.tail_before(number) {
            Some(tail) => opened.contribution(number, tail),
            None => opened.contribution(number, &tail_in(file, opened, number)?),
        };
        sum = sum.plus(added);
    }
    if sum == DigestSum::of(&expected.digest) {
        let root = opened
            .object
            .fresh_root(if is_empty { &expected } else { &state.now })?;
        return Ok(Freshness::Holds { root, log: in_use });
    }
    Ok(match state.doubt {
        true => Freshness::Unknown,
        false => Freshness::Stale,
    })
}

/// Reads the tail of page `number` (its last 32 bytes: nonce, tag, epoch) from the file; zero bytes
/// when the file ends before the page does. SR-5001 if it cannot be read.
fn tail_in(file: &ReadOnlyFile, opened: &OpenedHeader, number: u64) -> Result<Tail, Error> {
    let mut tail = Tail::default();
    let end = page_offset(number.saturating_add(1), opened.object.header().unit_size);
    let at = end.saturating_sub(tail.len() as u64);
    if file.size()? < end {
        return Ok(tail);
    }
    file.read(&mut tail, at)?;
    Ok(tail)
}

/// Reads the log at `wal` and adds the tails in its new frames to `log`, as far as they belong to
/// the anchor's generation. Does nothing if the file does not exist. Errors are those of reading:
/// SR-5001 when the system reports an error.
fn read_log(
    log: &mut LogTails,
    opened: &OpenedHeader,
    anchor: &Anchor,
    wal: &Path,
) -> Result<(), Error> {
    let file = match ReadOnlyFile::open(wal) {
        Ok(file) => file,
        Err(error) if error.code().number == code::NOT_FOUND.number => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut read = |out: &mut [u8], at: u64| file.read_whole(out, at);
    log.read_new_frames(opened, anchor.wal_generation, &mut read)
}
