//! What statements of the owner say of relations, from when they are sent until they are done.
//!
//! Must not: hold a value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::changed::{Changed, below_another};
use super::fate::{Fate, Outcome};
use super::functions::ChangedFunctions;
use super::known::{RelationName, Shapes};
use super::shape::{PLAIN, Shape, difference, shape_of};
use crate::sql::catalog::{Catalog, Relation};
use crate::sql::changes::{Changes, NewName, Renamed, may_mean};

/// A relation, and what it has to be once a statement is done.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    /// The relation's schema; empty if the statement names none.
    pub(super) schema: String,
    pub(super) relation: String,
    pub(super) is_temporary: bool,
    /// Whether it is gone when the transaction ends.
    is_passing: bool,
    pub(super) shape: Shape,
}

/// What the statements of a connection say.
#[derive(Clone, Debug, Default)]
pub(super) struct Definitions {
    /// By the relation's name: a restore makes thousands in one transaction.
    all: BTreeMap<String, Vec<Definition>>,
    /// The same.
    changed: BTreeMap<String, Vec<Changed>>,
    functions: ChangedFunctions,
    /// Whether they are carried out; `None` if there are none.
    fate: Option<Arc<Fate>>,
}

/// Which connection has sent statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The one that looks.
    Own,
    /// Another one.
    Other,
    /// One that has ended before it had an answer.
    Gone,
}

/// How a relation of the catalog is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Whose statements they are.
    pub(super) of: Sender,
    /// Whether the relation is one of the session's own, temporary relations.
    pub(super) is_temporary: bool,
    /// When the server was asked for the catalog.
    pub(super) since: Instant,
}

impl Definitions {
    /// Returns what one statement says. `known` are the relations of the database as they were kept
    /// before it, `temporary` the session's own ones, `functions` those that counted as
    /// confidential, `pending` what the connection's earlier
    /// statements of the transaction say.
    pub(super) fn of<'k>(
        changes: &Changes,
        known: impl Iterator<Item = (&'k RelationName, &'k Shape)> + Clone,
        temporary: impl Iterator<Item = (&'k RelationName, &'k Shape)> + Clone,
        functions: impl Iterator<Item = &'k str>,
        (pending, fate): (&Self, &Arc<Fate>),
    ) -> Self {
        let named = names_in(changes);
        let is_named = |name: &RelationName| named.contains(name.relation.as_str());
        let kept = known.clone().map(|one| (one, false));
        let kept = kept.chain(temporary.clone().map(|one| (one, true)));
        let before = pending.applied_to(kept.filter(|((name, _), _)| is_named(name)));
        let mut all = Vec::new();
        for defined in &changes.defined {
            let mut named = before.iter();
            let is_there = |one: &Definition| one.is_of(&defined.schema, &defined.relation);
            if defined.only_if_new && named.any(is_there) {
                continue;
            }
            all.push(Definition {
                schema: defined.schema.clone(),
                relation: defined.relation.clone(),
                is_temporary: defined.is_temporary,
                is_passing: defined.is_passing,
                shape: Shape::of_definition(defined),
            });
        }
        for renamed in &changes.renamed {
            let is_meant = |one: &&Definition| one.is_of(&renamed.schema, &renamed.relation);
            let meant = before.iter().filter(is_meant);
            let mut meant = meant.map(|one| renamed_definition(one, renamed));
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
        let changed = changed.chain(temporary.filter_map(of(true)));
        Self {
            all: by_name(all.into_iter(), |one| &one.relation),
            changed: by_name(changed, |one| &one.name.relation),
            functions: ChangedFunctions::of(changes, functions, &pending.functions),
            fate: Some(Arc::clone(fate)),
        }
    }

    /// Returns the relations that are kept, as they are once the statements are done. `kept` tells
    /// of each whether it is temporary.
    fn applied_to<'k>(
        &self,
        kept: impl Iterator<Item = ((&'k RelationName, &'k Shape), bool)>,
    ) -> Vec<Definition> {
        let of = |name: &RelationName, shape: &Shape, is_temporary: bool| Definition {
            schema: name.schema.clone(),
            relation: name.relation.clone(),
            is_temporary,
            is_passing: false,
            shape: shape.clone(),
        };
        let mut all: Vec<Definition> = kept
            .filter(|((name, _), is_temporary)| !self.has(name, *is_temporary))
            .map(|((name, shape), is_temporary)| of(name, shape, is_temporary))
            .collect();
        let changed = self.changed.values().flatten();
        all.extend(changed.filter_map(|changed| {
            let after = changed.after.as_ref()?;
            Some(of(&changed.name, after, changed.is_temporary))
        }));
        for definition in self.all.values().flatten() {
            let same = all.iter_mut().find(|one| {
                one.is_temporary == definition.is_temporary
                    && one.is_of(&definition.schema, &definition.relation)
            });
            match same {
                Some(one) => one.shape.join(definition.shape.clone()),
                None => all.push(definition.clone()),
            }
        }
        all
    }

    /// Returns those of the relations that a statement names.
    pub(super) fn about(&self, changes: &Changes) -> Self {
        let named = names_in(changes);
        let named = || named.iter().map(|name| (*name).to_owned());
        let all = named().filter_map(|name| Some((name.clone(), self.all.get(&name)?.clone())));
        let changed = named();
        let changed = changed.filter_map(|name| {
            let of = self.changed.get(&name)?.clone();
            Some((name, of))
        });
        Self {
            all: all.collect(),
            changed: changed.collect(),
            functions: self.functions.clone(),
            fate: self.fate.clone(),
        }
    }

    /// Adds what a later statement with these changes says.
    pub(super) fn join(&mut self, changes: &Changes, later: Self) {
        if self.all.is_empty() && self.changed.is_empty() {
            self.fate = later.fate;
        }
        for changed in self.changed.values_mut().flatten() {
            changed.join(changes);
        }
        for changed in later.changed.into_values().flatten() {
            if !self.has(&changed.name, changed.is_temporary) {
                let of = self.changed.entry(changed.name.relation.clone());
                of.or_default().push(changed);
            }
        }
        retain(&mut self.all, |before| {
            let shape = std::mem::take(&mut before.shape);
            before.shape = below_another(shape, &before.relation, changes);
            if changes.temporary && before.is_temporary {
                return false;
            }
            let Some(change) = changes.of(&before.schema, &before.relation) else {
                return true;
            };
            match before.shape.once_done(&before.schema, &change) {
                Some(after) => before.shape = after,
                None => return false,
            }
            true
        });
        for (name, mut later) in later.all {
            self.all.entry(name).or_default().append(&mut later);
        }
        self.functions.join(changes, later.functions);
    }

    /// Returns the functions that count as confidential while the statements are under way.
    pub(super) fn functions(&self, of: Sender) -> impl Iterator<Item = &String> {
        self.functions.counting(of == Sender::Own, self.outcome())
    }

    /// Returns those that count as confidential once they are over.
    pub(super) fn functions_left(&self) -> BTreeSet<String> {
        self.functions.clone().left(self.outcome())
    }

    /// Adds that another connection has sent a statement with these changes. Where both make a
    /// relation of one name, and name no schema, either may be the new one that is shown.
    pub(super) fn meet(&mut self, changes: &mut Changes) {
        let is_left = |changed: &mut Changed| changed.is_temporary || changed.meet(changes);
        retain(&mut self.changed, is_left);
        retain(&mut self.all, |definition| {
            let (schema, relation) = (&definition.schema, &definition.relation);
            let change = changes.of(schema, relation);
            if definition.is_temporary {
                return true;
            }
            let elsewhere = &mut definition.shape.elsewhere;
            let mut others = changes.defined.iter_mut();
            let other = others.find(|other| other.relation == *relation);
            if let Some(other) = other.filter(|other| other.elsewhere.is_some())
                && elsewhere.is_some()
            {
                *elsewhere = None;
                other.elsewhere = None;
            }
            match change {
                Some(change) if !changes.makes(schema, relation) => {
                    definition.shape = definition.shape.marked(&change);
                    !change.is_whole
                }
                _ => true,
            }
        });
    }

    /// What becomes of the statements, as far as that is known.
    pub(super) fn outcome(&self) -> Outcome {
        let fate = self.fate.as_ref();
        fate.map_or(Outcome::Unclear, |fate| fate.outcome())
    }

    /// Whether their transaction was over at this time.
    pub(super) fn was_decided(&self, at: Instant) -> bool {
        let fate = self.fate.as_ref();
        fate.is_some_and(|fate| fate.was_decided(at))
    }

    /// Gives the statements up, because their client has left in the middle of their transaction.
    pub(super) fn give_up(&self) {
        if let Some(fate) = &self.fate {
            fate.give_up();
        }
    }

    /// Whether the statements change this known relation.
    pub(super) fn has(&self, name: &RelationName, is_temporary: bool) -> bool {
        self.changed(name, is_temporary).is_some()
    }

    /// Returns what the statements do to this known relation.
    fn changed(&self, name: &RelationName, is_temporary: bool) -> Option<&Changed> {
        let mut all = self.changed.get(&name.relation)?.iter();
        all.find(|changed| changed.is_temporary == is_temporary && changed.name == *name)
    }

    /// Whether there is something confidential in the database, by what the statements say or
    /// leave; for another connection, as long as they are not done, also by what was there before.
    pub(super) fn is_confidential(&self, of: Sender) -> bool {
        let is_own = of == Sender::Own;
        let is_confidential = |shape: &Shape| !shape.is_plain();
        let mut said = self.all.values().flatten();
        let mut changed = self.changed.values().flatten();
        !self.functions.is_empty(is_own)
            || said.any(|definition| is_confidential(&definition.shape))
            || changed.any(|changed| !is_own || changed.after.as_ref().is_some_and(is_confidential))
    }

    /// Returns in what a relation of the catalog differs from what the statements leave of it and
    /// say of it; for another connection than their own, as long as their transaction is not over,
    /// from that and from what it was before. `None` if it does not.
    pub(super) fn difference(
        &self,
        name: &RelationName,
        now: &Shape,
        look: Look,
    ) -> Option<String> {
        let changed = self.changed(name, look.is_temporary);
        let is_sure = look.of == Sender::Own || self.was_decided(look.since);
        match self.outcome() {
            Outcome::Unclear => changed?.meanwhile.as_ref()?.against(name, now),
            Outcome::Kept if is_sure => self.against_after(changed, name, now, look),
            Outcome::Undone if is_sure => changed?.before.against(name, now),
            Outcome::Kept | Outcome::Undone => self.against_both(changed, name, now, look),
        }
    }

    /// Returns in what a relation differs from what it has to be once the statements are done.
    fn against_after(
        &self,
        changed: Option<&Changed>,
        name: &RelationName,
        now: &Shape,
        look: Look,
    ) -> Option<String> {
        let before = changed.map(|changed| &changed.before);
        let mut said = self.said_of(name, look);
        let said = said.find_map(|definition| definition.against(name, now, (true, before)));
        said.or_else(|| changed?.after.as_ref()?.against(name, now))
    }

    /// Returns in what a relation differs from what it was, and from what it has to be once the
    /// statements are done. Where it is what it was, and a column is plain that becomes
    /// confidential, it differs, too: a statement of another connection may be carried out only
    /// after that.
    fn against_both(
        &self,
        changed: Option<&Changed>,
        name: &RelationName,
        now: &Shape,
        look: Look,
    ) -> Option<String> {
        let Some(changed) = changed else {
            let mut said = self.said_of(name, look);
            return said.find_map(|definition| definition.against(name, now, (false, None)));
        };
        let before = changed.before.against(name, now);
        if before.is_some() {
            let is_unknown = changed.after.is_none() && self.said_of(name, look).next().is_none();
            let after = || self.against_after(Some(changed), name, now, look);
            return match look.of {
                // Where nobody was told whether the relation is another one, it may be.
                Sender::Gone if is_unknown => None,
                _ if is_unknown => before,
                _ => after(),
            };
        }
        let said = self.said_of(name, look);
        let mut all = said
            .map(|definition| &definition.shape)
            .chain(&changed.after);
        all.find_map(|shape| shape.contradiction(name, now, |what| what == PLAIN))
    }

    /// Returns what the statements say of a relation of this name.
    fn said_of<'d>(
        &'d self,
        name: &'d RelationName,
        look: Look,
    ) -> impl Iterator<Item = &'d Definition> {
        let all = self.all.get(&name.relation);
        all.into_iter().flatten().filter(move |definition| {
            let elsewhere = definition.shape.elsewhere.as_ref();
            let is_other = elsewhere.is_some_and(|schemas| schemas.contains(&name.schema));
            definition.is_temporary == look.is_temporary
                && definition.is_of(&name.schema, &name.relation)
                && !is_other
        })
    }

    /// Adds what the statements say to what is known, now that they are done, or restores what was
    /// known before them, if they were undone. `place`: server and database. `changes`: those of
    /// the statements.
    pub(super) fn keep(
        self,
        (server, database): (&str, &str),
        changes: &Changes,
        (known, temporary): (&mut Shapes, &mut Shapes),
    ) {
        let outcome = self.outcome();
        if outcome == Outcome::Unclear {
            return;
        }
        for changed in self.changed.into_values().flatten() {
            let shapes = match changed.is_temporary {
                true => &mut *temporary,
                false => &mut *known,
            };
            changed.end(shapes, outcome == Outcome::Kept, changes);
        }
        if outcome == Outcome::Undone {
            return;
        }
        let all = self.all.into_values().flatten();
        for definition in all.filter(|one| !one.is_passing) {
            let name = RelationName {
                server: server.to_owned(),
                database: database.to_owned(),
                schema: definition.schema,
                relation: definition.relation,
            };
            let shapes = match definition.is_temporary {
                true => &mut *temporary,
                false => &mut *known,
            };
            // Of two that were made without their schemas, one of them is compared.
            let is_other = name.schema.is_empty() && !definition.shape.columns.is_empty();
            match shapes.get_mut(&name).filter(|_| !is_other) {
                Some(before) => before.join(definition.shape),
                None => drop(shapes.insert(name, definition.shape)),
            }
        }
    }

    /// Adds to what is known what has become of relations whose connection has ended before the
    /// server's answer: each is what it was, or what the statements leave, whichever the catalog
    /// shows. A part of what may have been undone is left to the server's word.
    pub(super) fn keep_either(self, changes: &Changes, known: &mut Shapes, catalog: &Catalog) {
        if self.outcome() == Outcome::Unclear {
            return;
        }
        let all = self.changed.into_values().flatten();
        for changed in all.filter(|of| !of.is_temporary) {
            let (schema, relation) = changed.name.path();
            let now = catalog.relations(schema, relation).next().map(shape_of);
            let is_after = match (&changed.after, &now) {
                (Some(after), Some(now)) => after.allows(now),
                (None, Some(now)) => !changed.before.allows(now),
                (after, None) => after.is_none(),
            };
            changed.end(known, is_after, changes);
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

    /// Whether it may be of a relation of this name. Either schema is empty where it is not known.
    fn is_of(&self, schema: &str, relation: &str) -> bool {
        self.relation == relation && may_mean(schema, &self.schema)
    }

    /// Returns in what a relation, which was `before`, differs from it. Where it may be of another
    /// relation of the name, or says some columns only and `is_done` is false, one that is missing
    /// is no difference. Nor is another confidential type where the relation is what it was: then
    /// another one may be meant.
    fn against(
        &self,
        name: &RelationName,
        now: &Shape,
        (is_done, before): (bool, Option<&Shape>),
    ) -> Option<String> {
        let is_of_it =
            self.schema == name.schema || self.is_temporary || self.shape.elsewhere.is_some();
        if is_of_it && (is_done || !self.shape.columns.is_empty()) {
            return self.shape.against(name, now);
        }
        let is_as_before = before.is_some_and(|before| !is_of_it && before.allows(now));
        self.shape
            .contradiction(name, now, |what| what == PLAIN || !is_as_before)
    }
}

/// Returns the names of the relations of whose earlier definitions a statement's meaning depends.
fn names_in(changes: &Changes) -> BTreeSet<&str> {
    let renamed = changes.renamed.iter();
    let renamed = renamed.map(|renamed| renamed.relation.as_str());
    let defined = changes.defined.iter();
    let defined = defined.filter(|defined| defined.only_if_new);
    let defined = defined.map(|defined| defined.relation.as_str());
    renamed.chain(defined).collect()
}

/// Returns these by the names of their relations, in their order.
fn by_name<T>(
    all: impl Iterator<Item = T>,
    name: impl Fn(&T) -> &String,
) -> BTreeMap<String, Vec<T>> {
    let mut found: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for one in all {
        found.entry(name(&one).clone()).or_default().push(one);
    }
    found
}

/// Leaves those for which `is_left` returns true.
fn retain<T>(all: &mut BTreeMap<String, Vec<T>>, mut is_left: impl FnMut(&mut T) -> bool) {
    all.retain(|_, named| {
        named.retain_mut(&mut is_left);
        !named.is_empty()
    });
}

/// Returns what a statement that renames something says of a known relation, or of its columns: of
/// the one of that schema, or without a schema of one of them. `None` where it says nothing.
fn renamed_definition(of: &Definition, renamed: &Renamed) -> Option<Definition> {
    let mut definition = of.clone();
    definition.schema.clone_from(&renamed.schema);
    definition.shape.elsewhere = None;
    match &renamed.to {
        NewName::Relation(to) => definition.relation.clone_from(to),
        NewName::Schema(to) => definition.schema.clone_from(to),
        NewName::Column(from, to) => {
            definition.shape = Shape::of_column(to, of.shape.what(from)?)?;
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
