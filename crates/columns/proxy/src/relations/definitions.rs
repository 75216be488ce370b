//! What statements of the owner say of columns, from when they are sent until they are done.
//!
//! Whether a statement was carried out is the server's word. So one counts as carried out unless
//! the client was told of an error, or has rolled something back: the owner knows of both. Then
//! everything is what it was before, or, where only a part of the transaction may have been undone,
//! what the server says.
//!
//! Must not: hold a value.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::known::{RelationName, Shapes};
use super::shape::{Shape, difference, shape_of};
use crate::sql::catalog::{Catalog, Relation};
use crate::sql::changes::{Change, Changes, NewName, Renamed, may_mean};

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
    /// Whether the client has ended the transaction: what goes wrong with a statement after that
    /// one says nothing of it.
    is_over: AtomicBool,
    /// What has become of them, once the transaction is over.
    decided: OnceLock<Outcome>,
}

/// What has become of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
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
            is_over: AtomicBool::new(false),
            decided: OnceLock::new(),
        })
    }

    /// Returns what has become of the definitions: by what the client knows now, or, once the
    /// transaction is over, by what it knew at the end of that.
    fn outcome(&self) -> Outcome {
        let up_to_now = || {
            let is_kept = self.undone.load(Ordering::Acquire) == self.before;
            match self.is_blurred.load(Ordering::Acquire) {
                _ if is_kept => Outcome::Kept,
                true => Outcome::Unclear,
                false => Outcome::Undone,
            }
        };
        self.decided.get().copied().unwrap_or_else(up_to_now)
    }

    /// Notes that errors and rollbacks do not tell any more whether all of the definitions are
    /// undone.
    pub(crate) fn blur(&self) {
        self.is_blurred.store(true, Ordering::Release);
    }

    /// Notes a statement of the client after the first definition. `ends`: it ends the transaction.
    /// `undoes_part`: it may undo a part of it.
    pub(crate) fn note_statement(&self, ends: bool, undoes_part: bool) {
        if undoes_part || self.is_over.load(Ordering::Acquire) {
            self.blur();
        }
        self.is_over.fetch_or(ends, Ordering::AcqRel);
    }

    /// Notes that the transaction is over: later errors say nothing of it.
    pub(crate) fn decide(&self) {
        self.decided.get_or_init(|| self.outcome());
    }

    /// Notes that the client has left within the transaction, which the server rolls back.
    pub(super) fn give_up(&self) {
        self.decided.get_or_init(|| Outcome::Undone);
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

/// A known relation that statements change.
#[derive(Clone, Debug)]
struct Changed {
    name: RelationName,
    is_temporary: bool,
    /// What was known of it before them.
    before: Shape,
    /// What is known of it while they are under way.
    meanwhile: Option<Shape>,
    /// What is known of it once they are done.
    after: Option<Shape>,
}

/// What the statements of a connection say.
#[derive(Clone, Debug, Default)]
pub(super) struct Definitions {
    all: Vec<Definition>,
    changed: Vec<Changed>,
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
        let of = |is_temporary: bool| {
            move |(name, shape): (&RelationName, &Shape)| {
                Changed::of(changes, name, shape, is_temporary)
            }
        };
        let changed = known.filter_map(of(false));
        let changed = changed.chain(temporary.filter_map(of(true))).collect();
        Self {
            all,
            changed,
            fate: Some(Arc::clone(fate)),
        }
    }

    /// Adds what a later statement with these changes says.
    pub(super) fn join(&mut self, changes: &Changes, later: Self) {
        if self.all.is_empty() && self.changed.is_empty() {
            self.fate = later.fate;
        }
        for changed in &mut self.changed {
            changed.join(changes);
        }
        let is_new = |of: &Changed| {
            let mut all = self.changed.iter();
            !all.any(|changed| (changed.is_temporary, &changed.name) == (of.is_temporary, &of.name))
        };
        let new: Vec<_> = later.changed.into_iter().filter(is_new).collect();
        self.changed.extend(new);
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

    /// What becomes of the statements, as far as that is known.
    fn outcome(&self) -> Outcome {
        let fate = self.fate.as_ref();
        fate.map_or(Outcome::Unclear, |fate| fate.outcome())
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
        if self.outcome() != Outcome::Kept {
            return None;
        }
        let mut all = self.all.iter().filter(|definition| {
            definition.relation == name.relation && may_mean(&definition.schema, &name.schema)
        });
        all.find_map(|definition| definition.shape.contradiction(name, now))
    }

    /// Adds what the statements say to what is known, now that they are done, or restores what was
    /// known before them, if they were undone. `place`: server and database.
    pub(super) fn keep(
        self,
        (server, database): (&str, &str),
        known: &mut Shapes,
        temporary: &mut Shapes,
    ) {
        let outcome = self.outcome();
        if outcome == Outcome::Unclear {
            return;
        }
        for changed in self.changed {
            let of = if changed.is_temporary {
                &mut *temporary
            } else {
                &mut *known
            };
            changed.end(of, outcome);
        }
        if outcome == Outcome::Undone {
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

impl Changed {
    /// Returns what a statement does to a known relation; `None` if it does nothing to it.
    fn of(
        changes: &Changes,
        name: &RelationName,
        shape: &Shape,
        is_temporary: bool,
    ) -> Option<Self> {
        if changes_of(changes, name, shape).is_empty() {
            return None;
        }
        let mut changed = Self {
            name: name.clone(),
            is_temporary,
            before: shape.clone(),
            meanwhile: Some(shape.clone()),
            after: Some(shape.clone()),
        };
        changed.join(changes);
        Some(changed)
    }

    /// Adds what a later statement does.
    fn join(&mut self, changes: &Changes) {
        for (of, is_done) in [(&mut self.meanwhile, false), (&mut self.after, true)] {
            let Some(shape) = of.take() else {
                continue;
            };
            let mut all = changes_of(changes, &self.name, &shape).into_iter();
            *of = all.try_fold(shape, |shape, (schema, change)| match is_done {
                true => shape.once_done(&schema, &change),
                false => shape.after(&change),
            });
        }
    }

    /// Adds to what is known what the relation is, now that the statements are done or undone.
    fn end(self, known: &mut Shapes, outcome: Outcome) {
        // Other statements may have changed it, too.
        if known.get(&self.name) != self.meanwhile.as_ref() {
            return;
        }
        let shape = match outcome {
            Outcome::Kept => self.after,
            Outcome::Undone | Outcome::Unclear => Some(self.before),
        };
        match shape.filter(|shape| !shape.is_plain()) {
            Some(shape) => drop(known.insert(self.name, shape)),
            None => drop(known.remove(&self.name)),
        }
    }
}

/// Returns what a statement does to a known relation, or to the table that it is a part of, with
/// the schema of the relation that the statement names.
pub(super) fn changes_of(
    changes: &Changes,
    name: &RelationName,
    shape: &Shape,
) -> Vec<(String, Change)> {
    let own = changes.of(&name.schema, &name.relation);
    let own = own.map(|change| (name.schema.clone(), change));
    let of_root = shape.part_of.table().and_then(|(schema, root)| {
        let change = changes.of(schema, root)?;
        // What happens to its table happens to a partition, but for what becomes of its name.
        let change = Change {
            is_whole: change.are_parts_whole,
            moves: change.moves || change.is_whole,
            ..change
        };
        Some((schema.to_owned(), change))
    });
    own.into_iter().chain(of_root).collect()
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
/// schema: one of those that may be meant has to be like that, and each that was not there before.
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
        let is_like = |relation: &&Relation| shape.allows(&shape_of(relation));
        let elsewhere = shape.elsewhere.as_ref();
        let is_new = |relation: &&Relation| {
            elsewhere.is_some_and(|elsewhere| !elsewhere.contains(&relation.schema))
        };
        let all_new = found().filter(is_new).all(|relation| is_like(&relation));
        if all_new && found().any(|relation| is_like(&relation)) {
            return false;
        }
        let why = found()
            .find(|relation| !is_like(relation))
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
