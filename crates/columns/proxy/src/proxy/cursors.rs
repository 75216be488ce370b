//! Cursors that the client has declared by SQL: what the columns of their rows are to be, so that
//! the rows of a FETCH are checked as those of the query itself are.
//!
//! Whether the server has made a cursor is not followed. Must not: expect anything of a cursor
//! that may be one of two with other columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sql::{CursorUse, ExpectedColumns};

/// The cursors by their names.
#[derive(Default)]
pub(super) struct Cursors(BTreeMap<String, Cursor>);

struct Cursor {
    /// Nothing is known of the columns of a cursor that was declared twice, with other columns.
    columns: ExpectedColumns,
    is_held: bool,
}

impl Cursors {
    /// Notes what a statement that is about to be sent does with a cursor, and returns what the
    /// columns of its own rows are to be: those of the cursor for FETCH, none for DECLARE, and
    /// `planned` for a statement without a cursor. `planned` is what the statement's plan expects.
    pub(super) fn expected_of(
        &mut self,
        does: Option<&CursorUse>,
        planned: &ExpectedColumns,
    ) -> ExpectedColumns {
        match does {
            None => return Arc::clone(planned),
            Some(CursorUse::Fetches(name)) => {
                let known = self.0.get(name);
                return known.map_or_else(Arc::default, |cursor| Arc::clone(&cursor.columns));
            }
            Some(CursorUse::Closes(Some(name))) => drop(self.0.remove(name)),
            Some(CursorUse::Closes(None)) => self.0.clear(),
            Some(CursorUse::Declares { name, is_held }) => {
                let declared = self.0.entry(name.clone()).or_insert_with(|| Cursor {
                    columns: Arc::clone(planned),
                    is_held: *is_held,
                });
                declared.is_held |= is_held;
                if declared.columns != *planned {
                    declared.columns = Arc::default();
                }
            }
        }
        Arc::default()
    }

    /// Forgets the cursors that the end of a transaction closes.
    pub(super) fn end_transaction(&mut self) {
        self.0.retain(|_, cursor| cursor.is_held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Origins;

    fn columns(count: usize) -> ExpectedColumns {
        (0..count).map(|_| Some(Origins::Any)).collect()
    }

    fn declares(name: &str, is_held: bool) -> CursorUse {
        CursorUse::Declares {
            name: name.to_owned(),
            is_held,
        }
    }

    /// How many columns are expected of a FETCH.
    fn fetched(cursors: &mut Cursors, name: &str) -> usize {
        let fetches = CursorUse::Fetches(name.to_owned());
        cursors.expected_of(Some(&fetches), &columns(9)).len()
    }

    #[test]
    fn a_fetch_has_the_columns_of_its_cursor() {
        let mut cursors = Cursors::default();
        assert_eq!(cursors.expected_of(None, &columns(3)).len(), 3);
        let declared = cursors.expected_of(Some(&declares("a", false)), &columns(2));
        assert!(declared.is_empty(), "a DECLARE has no rows");
        drop(cursors.expected_of(Some(&declares("b", true)), &columns(1)));
        assert_eq!(
            [fetched(&mut cursors, "a"), fetched(&mut cursors, "b")],
            [2, 1]
        );
        assert_eq!(fetched(&mut cursors, "c"), 0, "a cursor of a function");
        // The same once more, and one with other columns: which of them the server has is unknown.
        drop(cursors.expected_of(Some(&declares("a", false)), &columns(2)));
        assert_eq!(fetched(&mut cursors, "a"), 2);
        drop(cursors.expected_of(Some(&declares("a", false)), &columns(4)));
        assert_eq!(fetched(&mut cursors, "a"), 0);
        let closes = CursorUse::Closes(Some("a".to_owned()));
        drop(cursors.expected_of(Some(&closes), &columns(0)));
        drop(cursors.expected_of(Some(&declares("a", false)), &columns(4)));
        assert_eq!(fetched(&mut cursors, "a"), 4);
        cursors.end_transaction();
        assert_eq!(
            [fetched(&mut cursors, "a"), fetched(&mut cursors, "b")],
            [0, 1]
        );
        drop(cursors.expected_of(Some(&CursorUse::Closes(None)), &columns(0)));
        assert_eq!(fetched(&mut cursors, "b"), 0);
    }
}
