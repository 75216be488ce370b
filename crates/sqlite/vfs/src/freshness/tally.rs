//! The digest of a database while a connection writes its pages: what it counts each page for, and how a change of a page
//! changes it.
//!
//! Must not: do I/O.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_format::freshness::{Covered, FreshState};
use strongroom_format::header::Anchor;

use super::DigestSum;

/// The running digest of a connection that holds the database's write lock. See the module comment.
pub(crate) struct RunningDigest {
    anchor: Anchor,
    /// What that anchor keeps.
    written: FreshState,
    /// Pages that the transaction found; behind them nothing is lost when it is rolled back.
    found: u64,
    /// An anchor said that this transaction writes pages of which its journal has no record.
    unjournaled: bool,
    /// In force before the transaction whose journal this is.
    before: Covered,
    /// The journal; zero when there is none on the disk.
    journal: [u8; 16],
    /// That journal was found and is being played back.
    pub(crate) playback: bool,
    sum: DigestSum,
    /// Pages 1 to this one are counted.
    page_count: u64,
    /// Pages that page 1 names, if it was written.
    named: Option<u64>,
    /// Pages whose writing failed: what they are counted for, whatever is on the disk.
    uncertain: BTreeMap<u64, DigestSum>,
    /// Pages that were played back: their tail on the disk is what they are counted for.
    replayed: BTreeSet<u64>,
    doubt: bool,
    dirty: bool,
}

/// What a page is counted for.
#[derive(Clone, Copy)]
pub(crate) enum Contribution {
    /// This.
    As(DigestSum),
    /// Its tail on the disk.
    OnDisk,
    /// The tail in its record in the journal that is being played back.
    InRecord,
}

impl RunningDigest {
    /// Goes on from the state in the anchor in force. `journal`: the one that is open, or is being played back.
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
            // Played back, the state before is in force again, even if nothing is written.
            dirty: playback,
        }
    }

    /// Whether this is still the tally of that journal. What is not in the anchor yet is not given up, except that a
    /// playback begins from the anchor.
    pub(crate) fn continues(&self, journal: [u8; 16], playback: bool) -> bool {
        let same = self.journal == journal && self.playback == playback;
        same || (self.dirty && !playback)
    }

    /// Whether pages changed since the anchor.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Pages 1 to this one are counted.
    pub(crate) fn page_count(&self) -> u64 {
        self.page_count
    }

    /// What a page is counted for, which is about to be written.
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

    /// A page is counted for something else now.
    pub(crate) fn exchange(&mut self, number: u64, old: DigestSum, new: DigestSum) {
        self.sum = self.sum.minus(old).plus(new);
        self.uncertain.remove(&number);
        self.page_count = self.page_count.max(number);
        self.dirty = true;
    }

    /// The writing of a page failed: nobody knows what is on the disk.
    pub(crate) fn note_failed_write(&mut self, number: u64, counted: DigestSum) {
        if number <= self.page_count {
            self.uncertain.insert(number, counted);
        }
        self.dirty = true;
    }

    /// Page 1, which was just written, names so many pages (SQLite file format, section 1.3.7).
    pub(crate) fn set_page_count(&mut self, pages: u32) {
        self.named = Some(u64::from(pages)).filter(|pages| *pages > 0);
    }

    /// The pages that are to be counted when the transaction ends.
    pub(crate) fn final_page_count(&self) -> u64 {
        let otherwise = match self.playback {
            true => self.before.pages,
            false => self.page_count,
        };
        self.named.unwrap_or(otherwise)
    }

    /// The last page that is counted is no longer.
    pub(crate) fn drop_last(&mut self, counted: DigestSum) {
        let counted = self.uncertain.remove(&self.page_count).unwrap_or(counted);
        self.sum = self.sum.minus(counted);
        self.page_count = self.page_count.saturating_sub(1);
        self.dirty = true;
    }

    /// Pages of which nobody knows what is on the disk, with what they are counted for.
    pub(crate) fn uncertain_pages(&self) -> Vec<(u64, DigestSum)> {
        self.uncertain
            .iter()
            .map(|(number, sum)| (*number, *sum))
            .collect()
    }

    /// Whether the transaction is about to write a page that a rollback by somebody else would not bring back, for the first
    /// time: SQLite makes no record of pages that it takes from the free list.
    pub(crate) fn becomes_unjournaled(&self, number: u64) -> bool {
        !self.unjournaled && !self.playback && !self.has_no_journal() && number <= self.found
    }

    /// What an anchor keeps that says so: the pages as they were, and a doubt if this transaction does not end itself.
    pub(crate) fn unjournaled_state(&self) -> FreshState {
        FreshState {
            doubt: true,
            ..self.written
        }
    }

    /// That anchor is durable.
    pub(crate) fn set_unjournaled(&mut self, anchor: Anchor) {
        self.anchor = anchor;
        self.unjournaled = true;
    }

    /// No journal of this transaction is on the disk.
    pub(crate) fn has_no_journal(&self) -> bool {
        self.journal == [0; 16]
    }

    /// Pages may have been written that no record tells of.
    pub(crate) fn set_doubt(&mut self) {
        self.doubt = true;
    }

    /// What the next anchor keeps.
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

    /// The anchor in force, which this goes on from.
    pub(crate) fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// Another anchor that keeps the same is in force.
    pub(crate) fn set_anchor(&mut self, anchor: Anchor) {
        self.anchor = anchor;
    }

    /// The anchor says so now; the playback is over.
    pub(crate) fn set_written(&mut self, anchor: Anchor) {
        self.written = self.state();
        self.anchor = anchor;
        self.dirty = false;
        self.playback = false;
    }
}
