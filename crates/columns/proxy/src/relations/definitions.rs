//! What statements of the owner say of columns, from when they are sent until they are done.
//!
//! Whether a statement was carried out is the server's word. So nothing is kept of one only where
//! the client was told of an error, or has rolled something back: the owner knows of both.
//!
//! Must not: hold a value.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::known::{RelationName, Shapes};
use super::shape::{Shape, difference, shape_of};
use crate::sql::catalog::Catalog;
use crate::sql::changes::{Changes, NewName, Renamed, may_mean};

/// Whether the definitions that a connection has sent in one transaction were carried out, as far
/// as its client knows: since the first of them it was told of no error, and has rolled nothing
/// back.
#[derive(Debug)]
pub(crate) struct Fate {
    /// How often the connection's client was told of an error, or has rolled something back.
    undone: Arc<AtomicU64>,
    /// The same before the first definition.
    before: u64,
    /// Whether they were carried out, once the transaction is over.
    decided: OnceLock<bool>,
}

impl Fate {
    /// Returns the fate of definitions of which the first one is about to be sent. `undone` counts
    /// the connection's errors and rollbacks.
    pub(crate) fn begin(undone: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            before: undone.load(Ordering::Acquire),
            undone: Arc::clone(undone),
            decided: OnceLock::new(),
        })
    }

    /// Returns whether the definitions were carried out: by what the client knows now, or, once the
    /// transaction is over, by what it knew at the end of that.
    fn is_kept(&self) -> bool {
        let up_to_now = || self.undone.load(Ordering::Acquire) == self.before;
        self.decided.get().copied().unwrap_or_else(up_to_now)
    }

    /// Notes that the transaction is over: later errors say nothing of it.
    pub(crate) fn decide(&self) {
        self.decided.get_or_init(|| self.is_kept());
    }

    /// Notes that the client has left within the transaction, which the server rolls back.
    pub(super) fn give_up(&self) {
        self.decided.get_or_init(|| false);
    }
}

/// A relation, and what it has to be once a statement is done.
#[derive(Clone, Debug)]
struct Definition {
    /// The relation's schema; empty if the statement names none.
    schema: String,
    relation: String,
    is_temporary: bool,
    shape: Shape,
}

/// What the statements of a connection say.
#[derive(Clone, Debug, Default)]
pub(super) struct Definitions {
    all: Vec<Definition>,
    /// Whether they are carried out; `None` if there are none.
    fate: Option<Arc<Fate>>,
}

impl Definitions {
    /// Returns what one statement says. `known` are the relations of the database as they were
    /// before it, `temporary` the session's own ones.
    pub(super) fn of<'k>(
        changes: &Changes,
        known: impl Iterator<Item = (&'k RelationName, &'k Shape)> + Clone,
        temporary: impl Iterator<Item = (&'k RelationName, &'k Shape)> + Clone,
        fate: &Arc<Fate>,
    ) -> Self {
        let mut all = Vec::new();
        for defined in &changes.defined {
            let mut named = known.clone().chain(temporary.clone());
            let is_there = |(name, _): (&RelationName, &Shape)| {
                name.relation == defined.relation && may_mean(&defined.schema, &name.schema)
            };
            if defined.only_if_new && named.any(is_there) {
                continue;
            }
            all.push(Definition {
                schema: defined.schema.clone(),
                relation: defined.relation.clone(),
                is_temporary: defined.is_temporary,
                shape: Shape::of_definition(defined),
            });
        }
        for renamed in &changes.renamed {
            let one = |is_temporary: bool| {
                move |(name, shape): (&RelationName, &Shape)| {
                    let is_meant = name.relation == renamed.relation
                        && (renamed.schema.is_empty() || name.schema == renamed.schema);
                    is_meant.then(|| renamed_definition(name, shape, renamed, is_temporary))
                }
            };
            let meant = known.clone().filter_map(one(false));
            let mut meant = meant.chain(temporary.clone().filter_map(one(true)));
            // Without its schema the relation may be any of the name: only what all of them say is
            // certain.
            if let Some(Some(first)) = meant.next()
                && meant.all(|other| other.is_some_and(|other| other.says_like(&first)))
            {
                all.push(first);
            }
        }
        Self {
            all,
            fate: Some(Arc::clone(fate)),
        }
    }

    /// Adds what a later statement with these changes says.
    pub(super) fn join(&mut self, changes: &Changes, later: Self) {
        if self.all.is_empty() {
            self.fate = later.fate;
        }
        self.all.retain_mut(|before| {
            if changes.temporary && before.is_temporary {
                return false;
            }
            let Some(change) = changes.of(&before.schema, &before.relation) else {
                return true;
            };
            match before.shape.after(&change) {
                Some(after) => before.shape = after,
                None => return false,
            }
            true
        });
        self.all.extend(later.all);
    }

    /// Whether the statements are carried out, as far as that is known.
    fn is_kept(&self) -> bool {
        self.fate.as_ref().is_some_and(|fate| fate.is_kept())
    }

    /// Gives the statements up, because their client has left in the middle of their transaction.
    pub(super) fn give_up(&self) {
        if let Some(fate) = &self.fate {
            fate.give_up();
        }
    }

    /// Returns how a relation of the catalog contradicts the definitions, `None` if it does not: a
    /// column that they define has another type. One that is missing is no contradiction, because
    /// another transaction may not see it yet.
    pub(super) fn contradiction(&self, name: &RelationName, now: &Shape) -> Option<String> {
        if !self.is_kept() {
            return None;
        }
        let mut all = self.all.iter().filter(|definition| {
            definition.relation == name.relation && may_mean(&definition.schema, &name.schema)
        });
        all.find_map(|definition| definition.shape.contradiction(name, now))
    }

    /// Adds what the statements say to what is known, now that they are done, unless one of them
    /// may not have been carried out. `place`: server and database.
    pub(super) fn keep(
        self,
        (server, database): (&str, &str),
        known: &mut Shapes,
        temporary: &mut Shapes,
    ) {
        if !self.is_kept() {
            return;
        }
        for definition in self.all {
            let name = RelationName {
                server: server.to_owned(),
                database: database.to_owned(),
                schema: definition.schema,
                relation: definition.relation,
            };
            let of = if definition.is_temporary {
                &mut *temporary
            } else {
                &mut *known
            };
            match of.get_mut(&name) {
                Some(before) => before.join(definition.shape),
                None => drop(of.insert(name, definition.shape)),
            }
        }
    }
}

impl Definition {
    /// Whether another statement says the same.
    fn says_like(&self, other: &Self) -> bool {
        self.relation == other.relation
            && self.is_temporary == other.is_temporary
            && self.shape == other.shape
    }
}

/// Returns what a statement that renames something says of a known relation, or of its columns: of
/// the one of that schema, or without a schema of one of them. `None` where it says nothing.
fn renamed_definition(
    name: &RelationName,
    shape: &Shape,
    renamed: &Renamed,
    is_temporary: bool,
) -> Option<Definition> {
    let mut definition = Definition {
        schema: match renamed.schema.as_str() {
            "" => String::new(),
            _ => name.schema.clone(),
        },
        relation: name.relation.clone(),
        is_temporary,
        shape: shape.clone(),
    };
    match &renamed.to {
        NewName::Relation(to) => definition.relation.clone_from(to),
        NewName::Schema(to) => definition.schema.clone_from(to),
        NewName::Column(from, to) => {
            definition.shape = Shape::of_column(to, shape.what(from)?)?;
        }
    }
    Some(definition)
}

/// Compares the relations of the catalog with what statements have said of a relation without its
/// schema: one of those that may be meant has to be like that.
pub(super) fn check(
    known: &mut Shapes,
    is_here: impl Fn(&RelationName) -> bool,
    catalog: &mut Catalog,
) {
    known.retain(|name, shape| {
        if !name.schema.is_empty() || !is_here(name) {
            return true;
        }
        let found = || catalog.relations("", &name.relation);
        if found().any(|relation| shape.allows(&shape_of(relation))) {
            return false;
        }
        let why = found()
            .next()
            .map(|relation| difference(name, shape, &shape_of(relation)));
        if let Some(why) = why {
            for (_, relation) in catalog
                .relations_mut()
                .filter(|(found, _)| *found == name.relation)
            {
                relation.differs.get_or_insert_with(|| why.clone());
            }
        }
        true
    });
}
