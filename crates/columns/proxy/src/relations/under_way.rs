//! What statements of the owner may be changing, by the connections that have sent them.
//!
//! Must not: decide when they are done.

use std::time::Instant;

use super::changed::marked_by;
use super::definitions::{Definitions, Look, Sender};
use super::known::{FunctionName, Known, RelationName, Shapes};
use super::shape::shape_of;
use crate::sql::catalog::Relation;
use crate::sql::changes::Changes;

/// Whether a transaction is open on the connection that reads the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// None: what it has changed is what all others see.
    Settled,
    /// One that the client has not begun, as the server says.
    Claimed,
    /// One that the client has begun.
    Open,
}

/// What the statements of one connection may be changing.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) server: String,
    pub(super) database: String,
    pub(super) changes: Changes,
    /// What they say of columns.
    pub(super) definitions: Definitions,
}

impl UnderWay {
    /// Forgets what the statements may have changed of relations and functions.
    pub(super) fn forget(&self, known: &mut Known) {
        let is_here =
            |server: &str, database: &str| server == self.server && database == self.database;
        let has = |name: &RelationName| is_here(&name.server, &name.database);
        forget_changes(&mut known.relations, has, &self.changes);
        known.functions.retain(|name| {
            !(is_here(&name.server, &name.database) && self.changes.has_function(&name.function))
        });
    }

    /// Adds the functions that count as confidential once the statements are over.
    pub(super) fn restore_functions(&self, known: &mut Known) {
        let left = self.definitions.functions_left().into_iter();
        known.functions.extend(left.map(|function| FunctionName {
            server: self.server.clone(),
            database: self.database.clone(),
            function,
        }));
    }

    /// The same when they are done, and adds what they say. `temporary` are the session's own
    /// relations.
    pub(super) fn end(self, known: &mut Known, temporary: &mut Shapes) {
        self.forget(known);
        self.restore_functions(known);
        let place = (self.server.as_str(), self.database.as_str());
        let all = (&mut known.relations, temporary);
        self.definitions.keep(place, &self.changes, all);
    }
}

/// What statements say whose transaction is not over.
pub(super) struct Pending {
    pub(super) definitions: Definitions,
    /// Which connection has sent them.
    pub(super) of: Sender,
}

/// Whether changes concern a relation of this schema and name, or the table that it is a partition
/// of.
pub(super) fn is_in(
    changes: &Changes,
    (schema, name): (&str, &str),
    root: Option<(&str, &str)>,
) -> bool {
    changes.of(schema, name).is_some()
        || root.is_some_and(|(schema, root)| changes.of(schema, root).is_some())
}

/// Whether changes may end a relation of this schema and name, or its name.
pub(super) fn may_be_gone(
    changes: &Changes,
    (schema, name): (&str, &str),
    root: Option<(&str, &str)>,
) -> bool {
    let of_root = root.and_then(|(schema, root)| changes.of(schema, root));
    changes
        .of(schema, name)
        .is_some_and(|change| change.is_whole)
        || of_root.is_some_and(|change| change.are_parts_whole)
}

/// Returns in what a relation differs from what the statements under way leave of it and say of it.
/// A session's temporary relation is changed by its own statements only.
pub(super) fn difference_under_way(
    (pending, since): (&[Pending], Instant),
    (name, is_temporary): (&RelationName, bool),
    relation: &Relation,
) -> Option<String> {
    let now = shape_of(relation);
    let is_own = |pending: &&Pending| pending.of == Sender::Own || !is_temporary;
    let mut pending = pending.iter().filter(is_own);
    pending.find_map(|pending| {
        let look = Look {
            of: pending.of,
            is_temporary,
            since,
        };
        pending.definitions.difference(name, &now, look)
    })
}

/// Forgets, of the relations for which `is_here` is true, what statements of the owner may have
/// changed.
pub(super) fn forget_changes(
    known: &mut Shapes,
    is_here: impl Fn(&RelationName) -> bool,
    changes: &Changes,
) {
    known.retain(|name, shape| {
        if !is_here(name) || !is_in(changes, name.path(), shape.part_of.table()) {
            return true;
        }
        match marked_by(changes, name, shape.clone()) {
            Some(left) => *shape = left,
            None => return false,
        }
        true
    });
}
