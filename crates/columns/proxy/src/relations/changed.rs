//! A known relation that statements of the owner change: what it was, and what it is once they are
//! done.
//!
//! Must not: decide whether they are.

use super::known::{RelationName, Shapes};
use super::shape::{PartOf, Shape};
use crate::sql::changes::{Change, Changes};

/// A known relation that statements change.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) name: RelationName,
    pub(super) is_temporary: bool,
    /// What was known of it before them.
    pub(super) before: Shape,
    /// What is known of it while they are under way.
    pub(super) meanwhile: Option<Shape>,
    /// What is known of it once they are done.
    pub(super) after: Option<Shape>,
}

impl Changed {
    /// Returns what a statement does to a known relation; `None` if it does nothing to it.
    pub(super) fn of(
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
    pub(super) fn join(&mut self, changes: &Changes) {
        let meanwhile = self.meanwhile.take();
        self.meanwhile = meanwhile.and_then(|shape| marked_by(changes, &self.name, shape));
        let after = self.after.take();
        self.after = after.and_then(|shape| {
            let mut all = changes_of(changes, &self.name, &shape).into_iter();
            let after = all.try_fold(shape, |shape, (schema, change)| {
                shape.once_done(&schema, &change)
            });
            after.map(|shape| below_another(shape, &self.name.relation, changes))
        });
    }

    /// Adds that another connection has sent a statement with these changes, which may be carried
    /// out before those, after them or not at all: of what both change nothing is certain. Returns
    /// false if nothing is known any more.
    pub(super) fn meet(&mut self, changes: &Changes) -> bool {
        let all = changes_of(changes, &self.name, &self.before);
        let meanwhile = self.meanwhile.take();
        self.meanwhile = meanwhile.and_then(|shape| marked_by(changes, &self.name, shape));
        if changes.makes(&self.name.schema, &self.name.relation) {
            // There is one of the name: no other is made in its place.
            return true;
        }
        for (_, change) in all {
            if change.is_whole {
                return false;
            }
            self.before = self.before.marked(&change);
            self.after = self.after.take().map(|shape| shape.marked(&change));
        }
        true
    }

    /// Adds to what is known what the relation is, now that the statements are done, or undone;
    /// `changes` are those of all of them.
    pub(super) fn end(self, known: &mut Shapes, is_done: bool, changes: &Changes) {
        // What the statements may have changed has been forgotten twice: the second time with what
        // another proxy may have learned meanwhile.
        let meanwhile = self.meanwhile.clone();
        let twice = meanwhile.and_then(|shape| marked_by(changes, &self.name, shape));
        // Other statements may have changed it, too.
        let now = known.get(&self.name);
        // What may have been learned of it meanwhile is the server's word.
        let known_meanwhile = self.meanwhile.as_ref();
        let is_learned = now
            .zip(known_meanwhile)
            .is_some_and(|(now, meanwhile)| meanwhile.allows(now));
        if now != known_meanwhile && now != twice.as_ref() && !is_learned {
            return;
        }
        let shape = match is_done {
            true => self.after,
            false => Some(self.before),
        };
        match shape.filter(|shape| !shape.is_plain()) {
            Some(shape) => drop(known.insert(self.name, shape)),
            None => drop(known.remove(&self.name)),
        }
    }
}

/// Returns the shape of a relation in which the columns are marked that statements may have changed
/// or dropped, for as long as it is not known whether they were carried out. `None` if they may
/// have dropped, renamed or replaced the relation, or no other column is confidential: then nothing
/// is kept of it meanwhile.
pub(super) fn marked_by(changes: &Changes, name: &RelationName, shape: Shape) -> Option<Shape> {
    let mut all = changes_of(changes, name, &shape).into_iter();
    all.try_fold(shape, |shape, (_, change)| shape.after(&change))
}

/// Returns the shape of a relation that may be a part of any table, because a statement before in
/// the same transaction has moved it, after a statement that may change that table: what it may
/// have done to a column counts here, too.
pub(super) fn below_another(shape: Shape, relation: &str, changes: &Changes) -> Shape {
    if shape.part_of != PartOf::Any || shape.columns.is_empty() {
        return shape;
    }
    let others = changes.relations.iter();
    let others = others.filter(|((_, name), change)| name != relation && !change.is_whole);
    others.fold(shape, |shape, (_, change)| shape.marked(change))
}

/// Returns what a statement does to a known relation, or to the table that it is a part of, with
/// the schema of the relation that the statement names.
fn changes_of(changes: &Changes, name: &RelationName, shape: &Shape) -> Vec<(String, Change)> {
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
