//! Queries that the client has given a name by SQL, as cursors or prepared statements: what the
//! columns of their rows are to be, so that the rows of a FETCH or an EXECUTE are checked as those
//! of the query itself are.
//!
//! Whether the server has made a query is not followed. Must not: expect anything of a name that
//! may stand for one of two queries with other columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::session::{Columns, DescriptionSlot};
use super::upstream::Upstream;
use crate::sql::{ExpectedColumn, ExpectedColumns, NamedUse, QueryName};

/// The queries by their names.
#[derive(Default)]
pub(super) struct NamedQueries {
    all: BTreeMap<QueryName, Query>,
    /// How many were named.
    count: u64,
}

struct Query {
    /// Of a query whose name was given twice: what both have in common.
    columns: ExpectedColumns,
    /// What the server has described it with first, where the protocol takes a cursor for a portal.
    described: DescriptionSlot,
    /// How many were named before it.
    number: u64,
    is_held: bool,
    /// The client has sent what ends it, or the server has said that the transaction has ended in
    /// which it was named. Until the name is given again, rows under it are the query's: what was
    /// sent may fail, and the server may be lying.
    is_over: bool,
}

/// So many queries are kept at least whose transactions have ended.
const KEPT_MIN: usize = 256;

impl NamedQueries {
    /// Notes what a statement that is about to be sent does with a query, and returns what the
    /// columns of its own rows are to be: those of the query for FETCH and EXECUTE, none for
    /// DECLARE and PREPARE, and `planned` for a statement that names no query. `planned` is what
    /// the statement's plan expects.
    pub(super) fn expected_of(
        &mut self,
        does: Option<&NamedUse>,
        planned: &ExpectedColumns,
    ) -> ExpectedColumns {
        match does {
            None => return Arc::clone(planned),
            Some(NamedUse::Runs(name)) => return self.rows_of(name).unwrap_or_default(),
            Some(NamedUse::Ends(ended)) => self.end(|name| name == ended),
            Some(NamedUse::EndsCursors) => self.end(|name| matches!(name, QueryName::Cursor(_))),
            Some(NamedUse::EndsPrepared) => {
                self.end(|name| matches!(name, QueryName::Prepared(_)));
            }
            Some(NamedUse::EndsAll) => self.end(|_| true),
            Some(NamedUse::Names { name, is_held }) => self.name(name, planned, *is_held),
        }
        Arc::default()
    }

    /// Returns what the columns of the rows of a query are to be; `None` if none of the name is
    /// known.
    pub(super) fn rows_of(&self, name: &QueryName) -> Option<ExpectedColumns> {
        let known = self.all.get(name);
        known.map(|query| Arc::clone(&query.columns))
    }

    /// Returns what the server has described a query with first; `None` if none of the name is
    /// known.
    fn described(&self, name: &QueryName) -> Option<DescriptionSlot> {
        self.all.get(name).map(|query| Arc::clone(&query.described))
    }

    /// Notes what the columns of the rows of a query are to be by the catalog now.
    pub(super) fn expect_now(&mut self, name: &QueryName, columns: &ExpectedColumns) {
        if let Some(query) = self.all.get_mut(name) {
            query.columns = Arc::clone(columns);
        }
    }

    /// Notes that the client's driver prepares a statement of this name by the protocol: of an
    /// EXECUTE of that name nothing is expected.
    pub(super) fn note_driver_s(&mut self, name: &[u8]) {
        let unknown = Query {
            columns: ExpectedColumns::default(),
            described: DescriptionSlot::default(),
            number: self.count,
            is_held: true,
            is_over: false,
        };
        self.all.insert(prepared(name), unknown);
    }

    /// Notes that the client's driver ends the statement of this name by the protocol.
    pub(super) fn end_driver_s(&mut self, name: &[u8]) {
        // Nothing is expected of it, whether the server ends it or not.
        self.all.remove(&prepared(name));
    }

    /// Notes that a statement which ends these queries is about to be sent. The server may answer
    /// it by an error, and have them still.
    fn end(&mut self, is_ended: impl Fn(&QueryName) -> bool) {
        for (_, query) in self.all.iter_mut().filter(|(name, _)| is_ended(name)) {
            query.is_over = true;
        }
    }

    /// Notes that a query with these columns gets a name.
    fn name(&mut self, name: &QueryName, columns: &ExpectedColumns, is_held: bool) {
        self.count = self.count.saturating_add(1);
        let number = self.count;
        let fresh = || Query {
            columns: Arc::clone(columns),
            described: DescriptionSlot::default(),
            number,
            is_held,
            is_over: false,
        };
        let named = self.all.entry(name.clone()).or_insert_with(fresh);
        if named.is_over {
            *named = fresh();
        }
        named.is_held |= is_held;
        named.described = DescriptionSlot::default();
        if named.columns != *columns {
            named.columns = in_common(&named.columns, columns);
        }
    }

    /// Notes that a transaction has ended, as the client or the server says, which closes cursors.
    pub(super) fn end_transaction(&mut self) {
        for query in self.all.values_mut() {
            query.is_over |= !query.is_held;
        }
        let over = self.all.values().filter(|query| query.is_over);
        let mut numbers: Vec<u64> = over.map(|query| query.number).collect();
        numbers.sort_unstable();
        if let Some(last) = numbers.len().checked_sub(KEPT_MIN.saturating_add(1)) {
            // The oldest ones go.
            let oldest = numbers.get(last).copied().unwrap_or_default();
            self.all
                .retain(|_, query| !query.is_over || query.number > oldest);
        }
    }
}

impl Upstream {
    /// Notes what a statement that is about to be sent does with a query that has a name, and
    /// returns what the columns of its rows are to be. `planned` is what its plan expects.
    pub(super) fn expected_of(
        &mut self,
        does: Option<&NamedUse>,
        planned: &ExpectedColumns,
    ) -> ExpectedColumns {
        if let Some(NamedUse::Runs(name)) = does {
            if let QueryName::Prepared(name) = name {
                self.plan_prepared_again(name);
            }
            return self.rows_of(name);
        }
        self.named_queries.expected_of(does, planned)
    }

    /// Returns what the columns of the rows of a query with a name are to be. A cursor may be a
    /// portal that the client's driver has made by the protocol.
    pub(super) fn rows_of(&self, name: &QueryName) -> ExpectedColumns {
        let named = self.named_queries.rows_of(name);
        let portal = || match name {
            QueryName::Cursor(name) => self.portals.get(name.as_bytes()),
            QueryName::Prepared(_) => None,
        };
        named
            .or_else(|| portal().map(|portal| Arc::clone(&portal.expected)))
            .unwrap_or_default()
    }

    /// Returns what the columns of a portal are. It may be a cursor that the client has made by
    /// SQL, whose rows are text by the protocol. `None` if it is not known.
    pub(super) fn columns_of_portal(&self, name: &[u8]) -> Option<Columns> {
        let cursor = || {
            let name = QueryName::Cursor(String::from_utf8_lossy(name).into_owned());
            let described = self.named_queries.described(&name)?;
            Some(Columns::Statement(described, Arc::default()))
        };
        let portal = self.portals.get(name);
        let portal = portal.map(|portal| portal.columns.clone());
        portal.or_else(cursor)
    }

    /// Returns what the columns of the rows of a portal are to be. It may be a cursor that the
    /// client has made by SQL.
    pub(super) fn rows_of_portal(&self, name: &[u8]) -> ExpectedColumns {
        match self.portals.get(name) {
            Some(portal) => Arc::clone(&portal.expected),
            None => self.rows_of(&QueryName::Cursor(
                String::from_utf8_lossy(name).into_owned(),
            )),
        }
    }
}

/// Returns what is expected of rows that may be of either query.
fn in_common(one: &ExpectedColumns, other: &ExpectedColumns) -> ExpectedColumns {
    let both = one.iter().zip(other.iter());
    let alike = |one: &ExpectedColumn, other: &ExpectedColumn| ExpectedColumn {
        origins: one.origins.clone().filter(|_| one.origins == other.origins),
        kind: one.kind.filter(|_| one.kind == other.kind),
        label: one.label.clone().filter(|_| one.label == other.label),
    };
    both.map(|(one, other)| alike(one, other)).collect()
}

/// The name of a prepared statement, from the protocol's bytes.
fn prepared(name: &[u8]) -> QueryName {
    QueryName::Prepared(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Origins;

    fn columns(count: usize) -> ExpectedColumns {
        let any = ExpectedColumn {
            origins: Some(Origins::Any),
            ..ExpectedColumn::default()
        };
        (0..count).map(|_| any.clone()).collect()
    }

    fn cursor(name: &str) -> QueryName {
        QueryName::Cursor(name.to_owned())
    }

    /// Sends a statement that names a query with so many columns; it has no rows of its own.
    fn name(queries: &mut NamedQueries, name: QueryName, is_held: bool, count: usize) {
        let names = NamedUse::Names { name, is_held };
        assert!(
            queries
                .expected_of(Some(&names), &columns(count))
                .is_empty()
        );
    }

    /// How many columns are expected of a FETCH or an EXECUTE.
    fn run(queries: &mut NamedQueries, name: QueryName) -> usize {
        let runs = NamedUse::Runs(name);
        queries.expected_of(Some(&runs), &columns(9)).len()
    }

    fn end(queries: &mut NamedQueries, ends: &NamedUse) {
        drop(queries.expected_of(Some(ends), &columns(0)));
    }

    #[test]
    fn a_fetch_has_the_columns_of_its_cursor() {
        let mut queries = NamedQueries::default();
        assert_eq!(queries.expected_of(None, &columns(3)).len(), 3);
        name(&mut queries, cursor("a"), false, 2);
        name(&mut queries, cursor("b"), true, 1);
        assert_eq!(run(&mut queries, cursor("a")), 2);
        assert_eq!(run(&mut queries, cursor("b")), 1);
        assert_eq!(run(&mut queries, cursor("c")), 0, "a cursor of a function");
        // The same once more, and one with other columns: which of them the server has is unknown.
        name(&mut queries, cursor("a"), false, 2);
        assert_eq!(run(&mut queries, cursor("a")), 2);
        name(&mut queries, cursor("a"), false, 4);
        assert_eq!(run(&mut queries, cursor("a")), 2);
        end(&mut queries, &NamedUse::Ends(cursor("a")));
        name(&mut queries, cursor("a"), false, 4);
        assert_eq!(run(&mut queries, cursor("a")), 4);
        queries.end_transaction();
        assert_eq!(run(&mut queries, cursor("a")), 4, "the server may be lying");
        assert_eq!(run(&mut queries, cursor("b")), 1);
        name(&mut queries, cursor("a"), false, 3);
        assert_eq!(run(&mut queries, cursor("a")), 3);
        for at in 0..=KEPT_MIN {
            name(&mut queries, cursor(&format!("c{at}")), false, 1);
        }
        queries.end_transaction();
        assert_eq!(run(&mut queries, cursor("c0")), 0);
        assert_eq!(run(&mut queries, cursor("c1")), 1);
        end(&mut queries, &NamedUse::EndsCursors);
        assert_eq!(run(&mut queries, cursor("b")), 1, "it may have failed");
        name(&mut queries, cursor("b"), true, 4);
        assert_eq!(run(&mut queries, cursor("b")), 4);
    }

    #[test]
    fn an_execute_has_the_columns_of_its_statement() {
        let mut queries = NamedQueries::default();
        name(&mut queries, prepared(b"a"), true, 2);
        name(&mut queries, cursor("a"), true, 3);
        queries.end_transaction();
        assert_eq!(
            run(&mut queries, prepared(b"a")),
            2,
            "the cursor is another"
        );
        end(&mut queries, &NamedUse::EndsCursors);
        assert_eq!(run(&mut queries, prepared(b"a")), 2);
        name(&mut queries, cursor("a"), true, 3);
        end(&mut queries, &NamedUse::EndsPrepared);
        assert_eq!(run(&mut queries, prepared(b"a")), 2, "it may have failed");
        name(&mut queries, prepared(b"a"), true, 4);
        name(&mut queries, cursor("a"), true, 4);
        assert_eq!(run(&mut queries, prepared(b"a")), 4);
        assert_eq!(run(&mut queries, cursor("a")), 3, "it was not ended");
        end(&mut queries, &NamedUse::Ends(prepared(b"a")));
        // The driver has one of the name: which of them the server has is unknown.
        name(&mut queries, prepared(b"a"), true, 2);
        queries.note_driver_s(b"a");
        assert_eq!(run(&mut queries, prepared(b"a")), 0);
        name(&mut queries, prepared(b"a"), true, 2);
        assert_eq!(run(&mut queries, prepared(b"a")), 0);
        end(&mut queries, &NamedUse::Ends(prepared(b"a")));
        name(&mut queries, prepared(b"a"), true, 2);
        assert_eq!(run(&mut queries, prepared(b"a")), 2);
        queries.note_driver_s(b"a");
        queries.end_driver_s(b"a");
        name(&mut queries, prepared(b"a"), true, 2);
        assert_eq!(run(&mut queries, prepared(b"a")), 2);
        end(&mut queries, &NamedUse::EndsAll);
        name(&mut queries, prepared(b"a"), true, 5);
        assert_eq!(run(&mut queries, prepared(b"a")), 5);
    }
}
