//! The head of a sealed rollback journal: which prologue is in force, and up to where the journal
//! counts. docs/spec/sqlite.md, "Rollback journal".
//!
//! SQLite marks a journal's segments as valid by writing magic and record count over their headers.
//! A header without them ends the journal, so damage to a header would silently undo half a
//! transaction. Here magic and count lie in *marks* of the head instead, each of them twice, and
//! each segment's header names the segment before it: what counts is known before anything is
//! played back.
//!
//! Must not: write, or take a segment for valid that no mark leads to.

use std::collections::BTreeMap;

use strongroom_format::aad::Role;
use strongroom_format::journal::{
    JOURNAL_CHUNK, JOURNAL_HEAD, JOURNAL_LINK, JOURNAL_MARKS, JournalMark, SECTOR, Segment,
    journal_mark_layout, link_layout,
};
use strongroom_format::sqlite::{AuxKind, Prologue, prologue_layout};
use strongroom_keyring::Error;

use crate::big_endian::be_u32_at;
use crate::seal::UnitKey;
use crate::sealed::OpenedHeader;

/// First bytes of every journal segment (SQLite's `aJournalMagic`).
const SEGMENT_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The record count of a journal that was never synced (SQLite, `writeJournalHdr`).
pub(crate) const UNCOUNTED: u32 = u32::MAX;

/// The head of a journal.
pub(crate) struct JournalHead {
    /// The prologue, from which the journal's key is derived.
    pub prologue: Prologue,
    /// The key of slots and marks.
    pub key: UnitKey,
    /// The newest mark. `None`: the journal was never synced, so no page of its transaction is in
    /// the database.
    pub mark: Option<JournalMark>,
    /// Both copies of a mark that must exist are gone: the mark found may not be the newest.
    pub mark_lost: bool,
}

impl JournalHead {
    /// Parses the head in `bytes`, the journal's first [`JOURNAL_HEAD`] bytes or as many as there
    /// are. `None` when there is no prologue of this database. SR-5001 without memory for keys.
    ///
    /// There are two copies of the prologue. A changed prologue leads to another key, so the right
    /// one is the one under which a mark opens; without a mark it does not matter.
    pub(crate) fn parse(bytes: &[u8], opened: &OpenedHeader) -> Result<Option<Self>, Error> {
        let mut unmarked = None;
        for at in [0, SECTOR] {
            let prologue = bytes
                .get(at..at + prologue_layout::SIZE)
                .and_then(Prologue::parse)
                .filter(|prologue| {
                    prologue.kind == AuxKind::Journal
                        && prologue.object_id == opened.object.object_id()
                        && opened.cipher(prologue.epoch).is_some()
                });
            let Some(prologue) = prologue else {
                continue;
            };
            let key = opened.journal_key(&prologue)?;
            let (mark, mark_lost) = newest_mark(bytes, &key);
            let head = Self {
                prologue,
                key,
                mark,
                mark_lost,
            };
            if head.mark.is_some() {
                return Ok(Some(head));
            }
            unmarked = unmarked.or(Some(head));
        }
        Ok(unmarked)
    }

    /// Whether both copies of the prologue in `bytes` are equal to this one.
    pub(crate) fn has_both_copies(&self, bytes: &[u8]) -> bool {
        let prologue = self.prologue.to_bytes();
        [0, SECTOR]
            .into_iter()
            .all(|at| bytes.get(at..at + prologue.len()) == Some(&prologue))
    }
}

/// Returns the newest mark in a journal's head that authenticates under `key`, and whether a mark
/// that must exist is missing. From the second mark on, both pairs of sectors are in use, and an
/// interrupted write changes sector by sector, so a pair without any valid copy is damage.
fn newest_mark(bytes: &[u8], key: &UnitKey) -> (Option<JournalMark>, bool) {
    let newest = [0, 1].map(|pair| {
        [0, SECTOR]
            .into_iter()
            .filter_map(|copy| {
                let at = JOURNAL_MARKS.get(pair)? + copy;
                let mut unit = bytes.get(at..at + journal_mark_layout::SIZE)?.to_vec();
                let plain = key.open(Role::JournalMark, pair as u64, &mut unit)?;
                JournalMark::parse(plain)
            })
            .filter(|mark| mark.pair() == pair)
            .max_by_key(|mark| mark.sequence)
    });
    let mark = newest
        .into_iter()
        .flatten()
        .max_by_key(|mark| mark.sequence);
    let lost = mark.is_some_and(|mark| mark.sequence > 1) && newest.iter().any(Option::is_none);
    (mark, lost)
}

/// Seals a mark under `key`, and returns the two sectors that hold its copies, filled up with
/// zeros. Writes nothing. The errors are those of sealing: SR-5001 without random numbers.
pub(crate) fn seal_mark(key: &UnitKey, mark: &JournalMark) -> Result<[u8; 2 * SECTOR], Error> {
    let mut unit = Vec::with_capacity(journal_mark_layout::SIZE);
    let (pair, plain) = (mark.pair() as u64, mark.to_bytes());
    key.seal(Role::JournalMark, pair, &[&plain], &mut unit)?;
    let mut out = [0; 2 * SECTOR];
    for copy in out.chunks_exact_mut(SECTOR) {
        copy[..unit.len()].copy_from_slice(&unit);
    }
    Ok(out)
}

/// Returns the bytes of a new journal's head: the plain prologue twice and, if `mark` is given,
/// both copies of this first mark, sealed under `key`. The rest is zeros. Writes nothing. The
/// errors are those of sealing: SR-5001 without random numbers.
pub(crate) fn new_head(
    key: &UnitKey,
    prologue: &Prologue,
    mark: Option<&JournalMark>,
) -> Result<[u8; JOURNAL_HEAD], Error> {
    let mut out = [0; JOURNAL_HEAD];
    for at in [0, SECTOR] {
        out[at..at + prologue_layout::SIZE].copy_from_slice(&prologue.to_bytes());
    }
    if let Some(mark) = mark {
        let at = JOURNAL_MARKS[mark.pair()];
        out[at..at + 2 * SECTOR].copy_from_slice(&seal_mark(key, mark)?);
    }
    Ok(out)
}

/// Returns the segments that count, by logical offset, with their record counts: from `newest`,
/// which the mark names, back along the links to the first. `read` gives the chunk of an index,
/// `None` when it is missing or not authentic. The inner error is the logical offset of the segment
/// whose header is missing or whose link is not valid; the outer error is the one of `read`.
pub(crate) fn follow_segments<E>(
    newest: Segment,
    mut read: impl FnMut(u64) -> Result<Option<Vec<u8>>, E>,
) -> Result<Result<BTreeMap<u64, u32>, u64>, E> {
    let mut found = BTreeMap::new();
    let mut segment = newest;
    loop {
        let chunk = read(segment.at / JOURNAL_CHUNK as u64)?;
        let link = chunk
            .as_ref()
            .and_then(|chunk| chunk.get(JOURNAL_LINK..JOURNAL_LINK + link_layout::SIZE))
            .and_then(Segment::parse_link);
        let Some(link) = link else {
            return Ok(Err(segment.at));
        };
        found.insert(segment.at, segment.records);
        if segment.at == 0 {
            return Ok(Ok(found));
        }
        if link.at >= segment.at || !link.at.is_multiple_of(JOURNAL_CHUNK as u64) {
            return Ok(Err(segment.at));
        }
        segment = link;
    }
}

/// Returns the logical length in bytes of a segment with its header, for pages of `page_size`
/// bytes: each record is a page with its number and a sum (SQLite file format, section 3).
pub(crate) fn segment_length(records: u32, page_size: u32) -> u64 {
    u64::from(records)
        .saturating_mul(u64::from(page_size) + 8)
        .saturating_add(JOURNAL_CHUNK as u64)
}

/// Returns the first 12 bytes of a valid segment's header, as SQLite reads them: magic and record
/// count.
#[expect(clippy::big_endian_bytes, reason = "SQLite's own journal format")]
pub(crate) fn segment_start(records: u32) -> [u8; 12] {
    let mut out = [0; 12];
    out[..8].copy_from_slice(&SEGMENT_MAGIC);
    out[8..].copy_from_slice(&records.to_be_bytes());
    out
}

/// Reads the record count from the first 12 bytes of a segment's header. `None` when they do not
/// begin with the magic, or are too few.
pub(crate) fn record_count(start: &[u8]) -> Option<u32> {
    be_u32_at(start.strip_prefix(&SEGMENT_MAGIC)?, 0)
}
