//! What becomes of the definitions of a transaction, as far as the client knows.
//!
//! Only the server knows whether a statement was carried out, and it may lie. So a statement counts
//! as carried out unless the client was told of an error, or has rolled back: the data owner knows
//! of both. After these, relations have to be what they were before the transaction. Where only a
//! part of it may have been undone, the columns that its statements name are learned again.
//!
//! Must not: know what the definitions say.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What has become of the definitions that a connection has sent in one transaction, as far as its
/// client knows.
#[derive(Debug)]
pub(crate) struct Fate {
    /// How often the connection's client was told of an error, or has rolled something back.
    undone: Arc<AtomicU64>,
    /// The same before the first definition.
    before: u64,
    /// Whether a part of the transaction may have been undone, or what was undone may not be a part
    /// of it.
    is_blurred: AtomicBool,
    /// Whether the client has asked for the end of the transaction.
    is_ending: AtomicBool,
    /// Whether that statement was sent: what goes wrong with a message after it says nothing of the
    /// transaction.
    is_over: AtomicBool,
    /// What has become of them, once the transaction is over, and since when it is.
    decided: OnceLock<(Outcome, Instant)>,
}

/// What has become of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All were carried out.
    Kept,
    /// All were undone.
    Undone,
    /// Any of them may have been undone.
    Unclear,
}

impl Fate {
    /// Returns the fate of definitions of which the first one is about to be sent. `undone` counts
    /// the connection's errors and rollbacks.
    pub(crate) fn begin(undone: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            before: undone.load(Ordering::Acquire),
            undone: Arc::clone(undone),
            is_blurred: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            decided: OnceLock::new(),
        })
    }

    /// Returns what has become of the definitions: by what the client knows now, or, once the
    /// transaction is over, by what it knew at the end of that.
    pub(super) fn outcome(&self) -> Outcome {
        let up_to_now = || {
            let is_kept = self.undone.load(Ordering::Acquire) == self.before;
            match self.is_blurred.load(Ordering::Acquire) {
                _ if is_kept => Outcome::Kept,
                true => Outcome::Unclear,
                false => Outcome::Undone,
            }
        };
        let decided = self.decided.get();
        decided.map_or_else(up_to_now, |(outcome, _)| *outcome)
    }

    /// Notes that errors and rollbacks do not tell any more whether all of the definitions are
    /// undone.
    pub(crate) fn blur(&self) {
        self.is_blurred.store(true, Ordering::Release);
    }

    /// Notes a statement of the client after the first definition. `ends`: it ends the transaction.
    /// `undoes_part`: it may undo a part of it.
    pub(crate) fn note_statement(&self, ends: bool, undoes_part: bool) {
        if undoes_part || self.is_ending.load(Ordering::Acquire) {
            self.blur();
        }
        self.is_ending.fetch_or(ends, Ordering::AcqRel);
    }

    /// Notes a message of the client's that is about to be sent: Execute or a simple query
    /// (`executes`), or any other but Sync. Once the statement that ends the transaction has been
    /// sent, an error in answer to a later message does not undo the definitions.
    pub(crate) fn note_message(&self, executes: bool) {
        if self.is_over.load(Ordering::Acquire) {
            self.blur();
        }
        let is_ending = self.is_ending.load(Ordering::Acquire);
        self.is_over
            .fetch_or(executes && is_ending, Ordering::AcqRel);
    }

    /// Notes that the transaction is over: later errors say nothing of it.
    pub(crate) fn decide(&self) {
        self.decided
            .get_or_init(|| (self.outcome(), Instant::now()));
    }

    /// Notes that the client has left within a transaction, which the server rolls back.
    pub(super) fn give_up(&self) {
        let outcome = match self.is_ending.load(Ordering::Acquire) {
            // That was another one.
            true => Outcome::Unclear,
            false => Outcome::Undone,
        };
        self.decided.get_or_init(|| (outcome, Instant::now()));
    }

    /// Whether the transaction was over at this time.
    pub(super) fn was_decided(&self, at: Instant) -> bool {
        self.decided.get().is_some_and(|(_, since)| *since <= at)
    }
}
