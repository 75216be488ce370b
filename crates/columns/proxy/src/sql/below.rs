//! What statements that drop or rename columns do to the catalog, before the server was asked
//! again: also to the relations below, which have the columns of the one that is named.
//!
//! Must not: look at the tree.

use super::catalog::{Catalog, Presence, Relation};
use super::changes::may_mean;

/// How certain it is that a relation loses a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loses {
    Certainly,
    Maybe,
}

/// The relations that a statement may name.
struct Meant {
    /// Each with whether others may inherit from it.
    all: Vec<(Relation, bool)>,
    /// Whether it is one, and the statement names it.
    is_certain: bool,
}

impl Meant {
    /// Returns those of this name, in a schema that is empty where the statement names none.
    fn of(catalog: &Catalog, schema: &str, name: &str) -> Self {
        let found = catalog.relations("", name);
        let found = found.filter(|relation| may_mean(schema, &relation.schema));
        // Nothing inherits from one that was made in the same text: such relations are not known.
        let may_have = |of: &Relation| {
            let is_table = !of.has_own_rows && !of.is_view && !of.columns.is_empty();
            is_table && of.presence == Presence::Shown
        };
        let all: Vec<_> = found
            .map(|relation| (relation.clone(), may_have(relation)))
            .collect();
        let is_named = |of: &str| matches!(schema, "" | "pg_temp") || schema == of;
        let is_certain = matches!(all.as_slice(), [(only, _)] if is_named(&only.schema));
        Self { all, is_certain }
    }

    /// Returns whether another relation loses the columns that this one does: it is a partition of
    /// it, or may inherit from it. The catalog does not tell what inherits: all that has its
    /// columns may.
    fn reaches(&self, name: &str, other: &Relation) -> Option<Loses> {
        let is_root = |(root, _): &(Relation, bool)| {
            let of = other.root.as_ref();
            of.is_some_and(|(schema, of)| of == name && may_mean(&root.schema, schema))
        };
        let inherits = |(parent, may_have): &(Relation, bool)| {
            let mut columns = parent.columns.iter();
            *may_have
                && columns.all(|column| {
                    let mut own = other.columns.iter();
                    own.any(|own| own.name == column.name && own.kind == column.kind)
                })
        };
        if self.all.iter().any(is_root) {
            return Some(if self.is_certain {
                Loses::Certainly
            } else {
                Loses::Maybe
            });
        }
        self.all.iter().any(inherits).then_some(Loses::Maybe)
    }
}

impl Catalog {
    /// Removes columns from the relation that a statement names, and from those below. One that
    /// may have kept them stays beside one that has not.
    pub(super) fn drop_columns(&mut self, schema: &str, name: &str, columns: &[&str]) {
        let is_dropped = |column: &str| columns.contains(&column);
        let meant = Meant::of(self, schema, name);
        for (known, relations) in &mut self.relations {
            let mut others = Vec::new();
            for relation in relations.iter_mut() {
                let is_meant = known == name && meant.all.iter().any(|(one, _)| one == relation);
                let loses = match (is_meant, meant.is_certain) {
                    (true, true) => Some(Loses::Certainly),
                    (true, false) => Some(Loses::Maybe),
                    (false, _) => meant.reaches(name, relation),
                };
                if loses.is_none() || !relation.columns.iter().any(|one| is_dropped(&one.name)) {
                    continue;
                }
                if loses == Some(Loses::Maybe) {
                    others.push(relation.clone());
                }
                relation.columns.retain(|column| !is_dropped(&column.name));
            }
            relations.append(&mut others);
        }
    }

    /// Forgets the relations below the one that a statement names: their columns get other names,
    /// too.
    pub(super) fn forget_below(&mut self, schema: &str, name: &str) {
        let meant = Meant::of(self, schema, name);
        let below = |relation: &Relation| meant.reaches(name, relation).is_some();
        let found = self.relations.iter();
        let found = found.filter(|(known, all)| *known != name && all.iter().any(below));
        let found: Vec<String> = found.map(|(known, _)| known.clone()).collect();
        for known in found {
            self.forget(&known);
        }
    }
}
