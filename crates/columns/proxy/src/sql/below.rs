//! What statements that add, drop or rename columns do to the catalog, before the server was asked
//! again: also to the relations below, which have the columns of the one that is named.
//!
//! Must not: look at the tree.

use super::catalog::{Catalog, Column, Presence, Relation};
use super::changes::may_mean;

/// How certain it is that a statement changes the columns of a relation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Sure,
    Unsure,
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

    /// Returns whether a statement about these, which have this name, changes the columns of a
    /// relation.
    fn changes(&self, name: &str, (known, relation): (&str, &Relation)) -> Option<Certainty> {
        let is_meant = known == name && self.all.iter().any(|(one, _)| one == relation);
        match (is_meant, self.is_certain) {
            (true, true) => Some(Certainty::Sure),
            (true, false) => Some(Certainty::Unsure),
            (false, _) => self.reaches(name, relation),
        }
    }

    /// Returns whether a change of these changes the columns of another relation: it is a partition
    /// of one, or may inherit from it. The catalog does not tell what inherits: all that has its
    /// columns may.
    fn reaches(&self, name: &str, other: &Relation) -> Option<Certainty> {
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
                Certainty::Sure
            } else {
                Certainty::Unsure
            });
        }
        self.all.iter().any(inherits).then_some(Certainty::Unsure)
    }
}

impl Catalog {
    /// Removes columns from the relation that a statement names, and from those below. One that
    /// may have kept them stays beside one that has not.
    pub(super) fn drop_columns(&mut self, schema: &str, name: &str, columns: &[&str]) {
        let meant = Meant::of(self, schema, name);
        self.change_columns(name, &meant, |known| {
            known.retain(|column| !columns.contains(&column.name.as_str()));
        });
    }

    /// Adds columns behind those of the relation that a statement names, and of those below; each
    /// with whether one of the name stays as it is. Else there is none, whatever the server says.
    pub(super) fn add_columns(&mut self, schema: &str, name: &str, columns: &[(Column, bool)]) {
        let meant = Meant::of(self, schema, name);
        self.change_columns(name, &meant, |known| {
            if known.is_empty() {
                // They are not known.
                return;
            }
            for (column, stays) in columns {
                let is_there = known.iter().any(|one| one.name == column.name);
                if !(is_there && *stays) {
                    known.retain(|one| one.name != column.name);
                    known.push(column.clone());
                }
            }
        });
    }

    /// Gives a column of the relation that a statement names another name, and of those below.
    /// Returns false, and does nothing, if it is not certain which relation that is.
    pub(super) fn rename_column(
        &mut self,
        (schema, name): (&str, &str),
        from: &str,
        to: &str,
    ) -> bool {
        let meant = Meant::of(self, schema, name);
        if !meant.is_certain {
            return false;
        }
        self.change_columns(name, &meant, |known| {
            for column in known.iter_mut().filter(|column| column.name == from) {
                to.clone_into(&mut column.name);
            }
        });
        true
    }

    /// Changes the columns of what is meant and of what is below it. One of which it is not certain
    /// stays beside one that is changed.
    fn change_columns(&mut self, name: &str, meant: &Meant, change: impl Fn(&mut Vec<Column>)) {
        for (known, relations) in &mut self.relations {
            let mut others = Vec::new();
            for relation in relations.iter_mut() {
                let Some(certainty) = meant.changes(name, (known, relation)) else {
                    continue;
                };
                let before = relation.clone();
                change(&mut relation.columns);
                if certainty == Certainty::Unsure && before.columns != relation.columns {
                    others.push(before);
                }
            }
            relations.append(&mut others);
        }
    }

    /// Returns whether a confidential relation may inherit from one that a statement names: what it
    /// does to columns counts there, too.
    pub(super) fn has_confidential_below(&self, schema: &str, name: &str) -> bool {
        let meant = Meant::of(self, schema, name);
        let mut all = self.relations.values().flatten();
        all.any(|relation| {
            relation.is_confidential() && meant.reaches(name, relation) == Some(Certainty::Unsure)
        })
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
