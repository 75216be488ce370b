//! What statements of the owner say of columns, from when they are sent until they are done.
//!
//! Whether a statement was carried out is the server's word. So nothing is kept of one only where
//! the client was told of an error, or has rolled something back: the owner knows of both.
//!
//! Must not: hold a value.

use super::known::{RelationName, Shapes};
use super::shape::{Shape, difference, shape_of};
use crate::sql::catalog::Catalog;
use crate::sql::changes::{Changes, NewName, Renamed};

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
    /// How often the client had been told of an error, or had rolled something back, before the
    /// first of them.
    undone: u64,
}

impl Definitions {
    /// Returns what one statement says. `known` are the relations of the database as they were
    /// before it, `temporary` the session's own ones.
    pub(super) fn of<'k>(
        changes: &Changes,
        known: impl Iterator<Item = (&'k RelationName, &'k Shape)> + Clone,
        temporary: impl Iterator<Item = (&'k RelationName, &'k Shape)> + Clone,
        undone: u64,
    ) -> Self {
        let mut all = Vec::new();
        for defined in &changes.defined {
            let mut named = known.clone().chain(temporary.clone());
            if defined.only_if_new && named.any(|(name, _)| name.relation == defined.relation) {
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
                    is_meant.then(|| renamed_definition(name, shape, renamed, is_temporary))?
                }
            };
            all.extend(known.clone().filter_map(one(false)));
            all.extend(temporary.clone().filter_map(one(true)));
        }
        Self { all, undone }
    }

    /// Adds what a later statement with these changes says.
    pub(super) fn join(&mut self, changes: &Changes, later: Self) {
        if self.all.is_empty() {
            self.undone = later.undone;
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

    /// Adds what the statements say to what is known, now that they are done, unless one of them
    /// may not have been carried out. `place`: server and database.
    pub(super) fn keep(
        self,
        undone: u64,
        (server, database): (&str, &str),
        known: &mut Shapes,
        temporary: &mut Shapes,
    ) {
        if undone != self.undone {
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

/// Returns what a statement that renames something says of a known relation, or of its columns.
/// `None` where it says nothing.
fn renamed_definition(
    name: &RelationName,
    shape: &Shape,
    renamed: &Renamed,
    is_temporary: bool,
) -> Option<Definition> {
    let mut definition = Definition {
        schema: name.schema.clone(),
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
