//! Prepared statements that the client ends by SQL: DEALLOCATE and DISCARD ALL.
//!
//! They are forgotten when the server has completed that, and not before: after an error they are
//! still there. Its word is enough. The client gets the same word, and means by the name what it
//! prepares under it next; by that text a value is sealed, whatever the server has kept.
//!
//! Must not: count a statement as ended that was prepared after what ends the others was sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::session::Completed;
use crate::sql::{NamedUse, QueryName};

/// What was sent that ends statements, and is not answered.
#[derive(Default)]
pub(super) struct Endings {
    /// How many statements were prepared.
    prepared: u64,
    all: Vec<Ending>,
}

/// Statements that end when the server has completed what was sent.
pub(super) struct Ending {
    /// Which end: the one of this name, or all that have one.
    name: Option<String>,
    /// How many statements were prepared before it was sent: only these end.
    prepared: u64,
    is_completed: Completed,
}

impl Ending {
    /// Returns whether the statement of this name ends by it that is the `number`th. The unnamed
    /// one never does.
    pub(super) fn ends(&self, name: &[u8], number: u64) -> bool {
        let is_meant = match &self.name {
            Some(only) => only.as_bytes() == name,
            None => !name.is_empty(),
        };
        is_meant && number <= self.prepared
    }

    /// Returns whether the server has completed it.
    fn is_completed(&self) -> bool {
        self.is_completed.load(Ordering::Acquire)
    }
}

impl Endings {
    /// Returns the number of a statement that is prepared now.
    pub(super) const fn number(&mut self) -> u64 {
        self.prepared = self.prepared.saturating_add(1);
        self.prepared
    }

    /// Returns how many statements were prepared.
    pub(super) const fn prepared(&self) -> u64 {
        self.prepared
    }

    /// Notes that a statement is about to be sent, before which so many were `prepared`, and
    /// returns what the other thread sets when the server has completed it. `None` if it ends no
    /// prepared statement.
    pub(super) fn begin(&mut self, does: Option<&NamedUse>, prepared: u64) -> Option<Completed> {
        let name = match does? {
            NamedUse::Ends(QueryName::Prepared(name)) => Some(name.clone()),
            NamedUse::EndsPrepared | NamedUse::EndsAll => None,
            _ => return None,
        };
        let is_completed = Completed::default();
        self.all.push(Ending {
            name,
            prepared,
            is_completed: Arc::clone(&is_completed),
        });
        Some(is_completed)
    }

    /// Takes those that the server has completed since, and drops those that have failed or were
    /// never sent: the other thread waits for their answers no more.
    pub(super) fn take_completed(&mut self) -> Vec<Ending> {
        let completed = self.all.extract_if(.., |of| of.is_completed()).collect();
        // One may have been completed since the look above: the next call takes it.
        self.all
            .retain(|of| Arc::strong_count(&of.is_completed) > 1 || of.is_completed());
        completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(endings: &mut Endings, name: &[u8], number: u64) -> bool {
        let completed = endings.take_completed();
        completed.iter().any(|ending| ending.ends(name, number))
    }

    #[test]
    fn statements_end_when_that_is_completed_and_only_those_of_before() {
        let mut endings = Endings::default();
        let before = endings.number();
        let ends = NamedUse::Ends(QueryName::Prepared("s".to_owned()));
        for (ends, is_all) in [(ends, false), (NamedUse::EndsPrepared, true)] {
            for (name, number, is_ended) in [
                ("s", before, true),
                ("s", before + 1, false),
                ("t", before, is_all),
                ("", before, false),
            ] {
                let completed = endings.begin(Some(&ends), before).unwrap();
                assert!(!taken(&mut endings, name.as_bytes(), number));
                completed.store(true, Ordering::Release);
                drop(completed);
                assert_eq!(taken(&mut endings, name.as_bytes(), number), is_ended);
                assert!(endings.all.is_empty());
            }
        }
        // The answer was an error.
        drop(endings.begin(Some(&NamedUse::EndsAll), before));
        assert!(!taken(&mut endings, b"s", before));
        assert!(endings.all.is_empty());
        // Cursors are others.
        assert!(
            endings
                .begin(Some(&NamedUse::EndsCursors), before)
                .is_none()
        );
    }
}
