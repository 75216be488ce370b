//! Which lineage a column has, so that a constant can name the comparable column that it is for,
//! and a result is known to be of the column that was asked for.
//!
//! A column's lineage is made from its names (docs/spec/columns.md, "Lineages"); the extension
//! makes the same names of what it finds in the catalog (crates/columns/extension,
//! `catalog/names.rs`). Must not: decide which constant goes into which column.

use std::collections::BTreeMap;

use strongroom_columns_envelope::lineage_by_name;
use strongroom_format::columns::Lineage;

use super::catalog::{Catalog, Column, Relation};
use super::comparable::{ComparableColumn, Names};
use super::flow::OriginColumn;

/// Prefix of the name of a column that a conversion fills; the number of the column that it is to
/// replace follows.
const CONVERTED: &str = "strongroom~";

impl Catalog {
    /// Sets what the data owner says of the names that lineages are made from.
    pub(crate) fn set_names(&mut self, names: std::sync::Arc<Names>) {
        self.names = names;
    }

    /// Returns the comparable columns of the relation that a statement changes, by their names.
    /// None if the relation is not known, or if several may be meant: then constants for it name no
    /// column.
    pub(super) fn comparable_columns(
        &self,
        schema: &str,
        name: &str,
    ) -> Vec<(String, ComparableColumn)> {
        let mut meant = self.relations(schema, name);
        let (Some(relation), None) = (meant.next(), meant.next()) else {
            return Vec::new();
        };
        // The columns of a view are of another name than those of its table.
        let comparable = relation
            .columns
            .iter()
            .filter(|column| column.class().is_comparable() && !relation.is_view);
        let marked = comparable.map(|column| {
            let of = ComparableColumn {
                lineage: self.lineage(relation, name, column),
                modifier: column.modifier,
            };
            (column.name.clone(), of)
        });
        marked.collect()
    }

    /// Returns what values of a column of the relation `name` are known by. `None` if rows of other
    /// relations may be among its rows, or the relation is not in the catalog yet.
    pub(super) fn origin(
        &self,
        relation: &Relation,
        name: &str,
        column: &Column,
    ) -> Option<OriginColumn> {
        let known = relation.has_own_rows && relation.oid != 0 && !self.is_doubted(name);
        known.then(|| OriginColumn {
            lineage: self.lineage(relation, name, column),
            relation: relation.oid,
        })
    }

    /// Returns whether a result of this lineage may be a value of one of `columns`. It may not if a
    /// column that is not among them, of the same relation as one of them, has this lineage by its
    /// name, while none of them has; and if there are no columns. `true` says no more than that.
    ///
    /// Lineages of other relations are let pass, because a column keeps the lineage that its name
    /// (with those of its table, schema and database) gave it when its first value was stored. A
    /// table that was renamed, a partition that was detached, and a restored dump have such values.
    /// So has a comparable column whose first values are another comparable column's.
    pub(crate) fn may_be_of(&self, columns: &[OriginColumn], lineage: Lineage) -> bool {
        if columns
            .iter()
            .any(|column| column.lineage.has_name_of(lineage))
        {
            return true;
        }
        let all = self.lineages.get_or_init(|| self.lineages_by_relation());
        let others = columns
            .iter()
            .filter_map(|column| all.get(&column.relation));
        let is_other = others.flatten().any(|other| other.has_name_of(lineage));
        !columns.is_empty() && !is_other
    }

    /// Returns the lineages that confidential columns have by their names, by the OIDs of their
    /// relations.
    fn lineages_by_relation(&self) -> BTreeMap<u32, Vec<Lineage>> {
        let mut found: BTreeMap<u32, Vec<Lineage>> = BTreeMap::new();
        for (name, relations) in &self.relations {
            for relation in relations {
                let confidential = relation.columns.iter().filter(|one| one.kind.is_some());
                for of in confidential.filter_map(|one| self.origin(relation, name, one)) {
                    found.entry(of.relation).or_default().push(of.lineage);
                }
            }
        }
        found
    }

    /// Returns the lineage of a column of the relation `name`.
    fn lineage(&self, relation: &Relation, name: &str, column: &Column) -> Lineage {
        let (schema, table) = match &relation.root {
            Some((schema, table)) => (schema.as_str(), table.as_str()),
            None => (relation.schema.as_str(), name),
        };
        let schema = match schema {
            "" => &self.current_schema,
            temporary if temporary.starts_with("pg_temp_") => "pg_temp",
            schema => schema,
        };
        let replaced = column.name.strip_prefix(CONVERTED);
        let replaced = replaced.and_then(|number| number.parse::<i16>().ok());
        let replaced = replaced.and_then(|number| {
            let mut columns = relation.columns.iter();
            columns.find(|column| column.place == number)
        });
        let name = &replaced.unwrap_or(column).name;
        let path = [schema, table, name].map(str::to_owned);
        let [schema, table, name] = self.names.adopted.get(&path).unwrap_or(&path);
        lineage_by_name(column.class(), [&self.names.database, schema, table, name])
    }
}
