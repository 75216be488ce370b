//! The digest of a database while a connection writes its pages: what it counts each page for, and
//! how a change of a page changes it.
//!
//! Must not: do I/O.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_format::freshness::{Covered, FreshState};
use strongroom_format::header::Anchor;

use super::DigestSum;

/// The running digest of a connection that holds the database's write lock. See the module comment.
pub(crate) struct RunningDigest {
    anchor: Anchor,
    /// The state of freshness in that anchor.
    written: FreshState,
    /// Pages that the database had before the transaction. A rollback loses nothing after them.
    found: u64,
    /// An anchor notes that this transaction writes pages of which its journal has no record.
    unjournaled: bool,
    /// The digest in force before the transaction of this journal.
    before: Covered,
    /// The journal; zero when none is on the disk.
    journal: [u8; 16],
    /// The journal was found, and is being played back.
    pub(crate) playback: bool,
    sum: DigestSum,
    /// The digest covers pages 1 to this one.
    page_count: u64,
    /// The number of pages in page 1, if page 1 was written.
    named: Option<u64>,
    /// Pages whose write failed, with their contribution to the digest, whatever is on the disk.
    uncertain: BTreeMap<u64, DigestSum>,
    /// Pages that were played back: their contribution is that of their tail on the disk.
    replayed: BTreeSet<u64>,
    doubt: bool,
    dirty: bool,
}

/// Where a page's contribution to the digest comes from.
#[derive(Clone, Copy)]
pub(crate) enum Contribution {
    /// This sum.
    As(DigestSum),
    /// The page's tail on the disk.
    OnDisk,
    /// The tail in the page's record in the journal that is being played back.
    InRecord,
}

impl RunningDigest {
    /// Begins with the state in the anchor in force. `journal` is the journal that is open, or with
    /// `playback` is being played back; zero for none. `is_empty` says that the file has no pages.
    /// A playback of the journal that the state names begins from the digest before its
    /// transaction.
    pub(crate) fn new(
        anchor: Anchor,
        state: &FreshState,
        journal: [u8; 16],
        playback: bool,
        is_empty: bool,
    ) -> Self {
        let same = journal != [0; 16] && state.journal == journal;
        let before = if same { state.before } else { state.now };
        // SQLite removes the journal of a file without pages, and plays nothing back.
        let never_was = is_empty && state.before.pages == 0;
        let from = match (never_was, playback) {
            (true, _) => state.before,
            (_, true) => before,
            _ => state.now,
        };
        let before = if never_was { state.before } else { before };
        Self {
            anchor,
            written: *state,
            found: before.pages,
            unjournaled: same && state.loose,
            before,
            journal,
            playback,
            sum: DigestSum::of(&from.digest),
            page_count: from.pages,
            named: None,
            uncertain: BTreeMap::new(),
            replayed: BTreeSet::new(),
            doubt: state.doubt || (playback && same && state.loose),
            // After a playback the state before the transaction is in force again, even if nothing
            // is written.
            dirty: playback,
        }
    }

    /// Whether this digest may be used further with the given journal. True if journal and playback
    /// are the same. True also if there are changes that are not in the anchor yet, unless a
    /// playback begins, which starts from the anchor.
    pub(crate) fn continues(&self, journal: [u8; 16], playback: bool) -> bool {
        let same = self.journal == journal && self.playback == playback;
        same || (self.dirty && !playback)
    }

    /// Whether the digest must be written: pages changed since the anchor was written, or a
    /// playback began.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Returns the number of the last page that the digest covers; it covers pages 1 to this one.
    pub(crate) fn page_count(&self) -> u64 {
        self.page_count
    }

    /// Says where the present contribution of page `number`, which is about to be written, comes
    /// from. In a playback, notes that the page was played back, so that the next write of it uses
    /// the tail on the disk.
    pub(crate) fn contribution_of(&mut self, number: u64) -> Contribution {
        if let Some(sum) = self.uncertain.get(&number) {
            Contribution::As(*sum)
        } else if number > self.page_count {
            Contribution::As(DigestSum::default())
        } else if self.playback && self.replayed.insert(number) {
            Contribution::InRecord
        } else {
            Contribution::OnDisk
        }
    }

    /// Replaces the contribution `old` of page `number` by `new`. The page is no longer uncertain,
    /// and the digest covers all pages up to it.
    pub(crate) fn exchange(&mut self, number: u64, old: DigestSum, new: DigestSum) {
        self.sum = self.sum.minus(old).plus(new);
        self.uncertain.remove(&number);
        self.page_count = self.page_count.max(number);
        self.dirty = true;
    }

    /// Notes that the write of a page failed, so that what is on the disk is unknown. `counted` is
    /// what the digest still counts for it. Marks the digest as changed.
    pub(crate) fn note_failed_write(&mut self, number: u64, counted: DigestSum) {
        if number <= self.page_count {
            self.uncertain.insert(number, counted);
        }
        self.dirty = true;
    }

    /// Notes the number of pages that page 1, which was just written, gives for the database
    /// (SQLite file format, section 1.3.7). 0 means that page 1 gives none.
    pub(crate) fn set_page_count(&mut self, pages: u32) {
        self.named = Some(u64::from(pages)).filter(|pages| *pages > 0);
    }

    /// Returns the number of pages that the digest is to cover when the transaction ends: the one
    /// in page 1 if page 1 was written, else the number before the transaction in a playback, else
    /// the number that the digest covers now.
    pub(crate) fn final_page_count(&self) -> u64 {
        let otherwise = match self.playback {
            true => self.before.pages,
            false => self.page_count,
        };
        self.named.unwrap_or(otherwise)
    }

    /// Removes the last covered page from the digest. `counted` is its contribution, unless its
    /// last write failed: then the noted one is used.
    pub(crate) fn drop_last(&mut self, counted: DigestSum) {
        let counted = self.uncertain.remove(&self.page_count).unwrap_or(counted);
        self.sum = self.sum.minus(counted);
        self.page_count = self.page_count.saturating_sub(1);
        self.dirty = true;
    }

    /// Returns the pages whose write failed, so that their content on the disk is unknown, each
    /// with the contribution that the digest counts for it.
    pub(crate) fn uncertain_pages(&self) -> Vec<(u64, DigestSum)> {
        self.uncertain
            .iter()
            .map(|(number, sum)| (*number, *sum))
            .collect()
    }

    /// Whether page `number`, if the journal has no record of it, must be noted as unjournaled
    /// before it is written: it existed before the transaction, there is a journal, nothing is
    /// played back, and no earlier page of the transaction was noted. A rollback by another process
    /// would not restore it: SQLite makes no record of pages that it takes from the free list.
    pub(crate) fn becomes_unjournaled(&self, number: u64) -> bool {
        !self.unjournaled && !self.playback && !self.has_no_journal() && number <= self.found
    }

    /// Returns the state for the anchor that notes an unjournaled write: the pages as the last
    /// written anchor has them, and a doubt that remains if this transaction does not end by
    /// itself.
    pub(crate) fn unjournaled_state(&self) -> FreshState {
        FreshState {
            doubt: true,
            ..self.written
        }
    }

    /// Notes that `anchor`, which says that this transaction makes unjournaled writes, is written
    /// and in force.
    pub(crate) fn set_unjournaled(&mut self, anchor: Anchor) {
        self.anchor = anchor;
        self.unjournaled = true;
    }

    /// Whether no journal of this transaction is on the disk.
    pub(crate) fn has_no_journal(&self) -> bool {
        self.journal == [0; 16]
    }

    /// Notes that pages may have been written of which there is no record. The state for the next
    /// anchor says so, and the check of freshness then answers `Unknown` instead of `Stale`.
    pub(crate) fn set_doubt(&mut self) {
        self.doubt = true;
    }

    /// Returns the state for the next anchor: the digest as it is now. Writes nothing.
    pub(crate) fn state(&self) -> FreshState {
        let now = Covered {
            digest: self.sum.to_bytes(),
            pages: self.page_count,
        };
        FreshState {
            now,
            base: now,
            before: self.before,
            journal: self.journal,
            doubt: self.doubt,
            loose: self.unjournaled,
        }
    }

    /// Returns the anchor in force, from which the digest continues.
    pub(crate) fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// Notes that another anchor, with the same state of freshness, is in force.
    pub(crate) fn set_anchor(&mut self, anchor: Anchor) {
        self.anchor = anchor;
    }

    /// Notes that the present digest is in `anchor`, which is in force from now on. The digest
    /// counts as unchanged, and a playback as over.
    pub(crate) fn set_written(&mut self, anchor: Anchor) {
        self.written = self.state();
        self.anchor = anchor;
        self.dirty = false;
        self.playback = false;
    }
}
