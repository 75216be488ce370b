//! Prepared statements that the client ends by SQL, with DEALLOCATE and DISCARD ALL, and those and
//! portals that it ends by Close.
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
    /// How many statements were prepared, and portals bound.
    prepared: u64,
    all: Vec<Ending>,
}

/// Which statements or portals end.
enum Ended {
    /// The statement of this name.
    Statement(Vec<u8>),
    /// All statements that have a name.
    Statements,
    /// The portal of this name.
    Portal(Vec<u8>),
}

/// Statements or portals that end when the server has completed what was sent.
pub(super) struct Ending {
    what: Ended,
    /// How many were prepared or bound before it was sent: only these end.
    prepared: u64,
    is_completed: Completed,
}

impl Ending {
    /// Returns whether the statement of this name ends by it that is the `number`th. The unnamed
    /// one does so by Close only.
    pub(super) fn ends(&self, name: &[u8], number: u64) -> bool {
        let is_meant = match &self.what {
            Ended::Statement(only) => only == name,
            Ended::Statements => !name.is_empty(),
            Ended::Portal(_) => false,
        };
        is_meant && number <= self.prepared
    }

    /// Returns whether the portal of this name ends by it that is the `number`th.
    pub(super) fn ends_portal(&self, name: &[u8], number: u64) -> bool {
        let is_meant = matches!(&self.what, Ended::Portal(only) if only == name);
        is_meant && number <= self.prepared
    }

    /// Returns whether the server has completed it.
    fn is_completed(&self) -> bool {
        self.is_completed.load(Ordering::Acquire)
    }
}

impl Endings {
    /// Returns the number of a statement or portal that is made now.
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
        let what = match does? {
            NamedUse::Ends(QueryName::Prepared(name)) => {
                Ended::Statement(name.clone().into_bytes())
            }
            NamedUse::EndsPrepared | NamedUse::EndsAll => Ended::Statements,
            _ => return None,
        };
        Some(self.push(what, prepared))
    }

    /// Notes that a Close message is about to be sent, of a statement (`S`) or of a portal, and
    /// returns what the other thread sets when the server has completed it.
    pub(super) fn begin_close(&mut self, what: u8, name: &[u8]) -> Completed {
        let ended = match what {
            b'S' => Ended::Statement(name.to_vec()),
            _ => Ended::Portal(name.to_vec()),
        };
        self.push(ended, self.prepared)
    }

    /// Notes what ends, and returns what the other thread sets then.
    fn push(&mut self, what: Ended, prepared: u64) -> Completed {
        let is_completed = Completed::default();
        self.all.push(Ending {
            what,
            prepared,
            is_completed: Arc::clone(&is_completed),
        });
        is_completed
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
