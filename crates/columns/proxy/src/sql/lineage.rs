//! Which lineage a column has, so that a constant can name the comparable column that it is for,
//! and a result is known to be of the column that was asked for.
//!
//! A column's lineage is made from its names (docs/spec/columns.md, "Lineages"); the extension
//! makes the same names of what it finds in the catalog (crates/columns/extension,
//! `catalog/names.rs`). Must not: decide which constant goes into which column.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_columns_envelope::lineage_by_name;
use strongroom_format::columns::{Class, Lineage};

use super::catalog::{Catalog, Column, Relation};
use super::comparable::{ColumnPath, ComparableColumn, LineageNames, Names};
use super::flow::OriginColumn;
use super::table::NamingTable;

/// Prefix of the name of a column that a conversion fills; the number of the column that it is to
/// replace follows.
const CONVERTED: &str = "strongroom~";

impl Catalog {
    /// Sets what the data owner says of the names that lineages are made from.
    pub(crate) fn set_names(&mut self, names: Arc<Names>) {
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
        let Some(relation) = self.only_relation(schema, name) else {
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

    /// Returns the relation that a name means. `None` if there is none, or several may be meant.
    pub(super) fn only_relation(&self, schema: &str, name: &str) -> Option<&Relation> {
        let mut meant = self.relations(schema, name);
        meant.next().filter(|_| meant.next().is_none())
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

    /// Returns the comparable column that a definition makes in a table: the column's name, and
    /// class and modifier of its type. `None` if it is not certain how the
    /// column will be known: a constant that is sealed for it would be one of the column that has
    /// this name. So it is if a table without a schema may be another one, if the table has such a
    /// column, and if another column has the lineage of the name.
    pub(super) fn comparable_column_to_be(
        &self,
        NamingTable {
            schema,
            name: table,
            is_new,
        }: &NamingTable,
        column: &str,
        (class, modifier): (Class, i32),
    ) -> Option<ComparableColumn> {
        let other = self.relations("", table).next().is_some() || self.missing.contains(table);
        let has_column = |known: &Relation| known.columns.iter().any(|one| one.name == column);
        if self.is_doubted(table)
            || (*is_new && schema.is_empty() && other)
            || self.relations(schema, table).any(has_column)
        {
            return None;
        }
        let schema = self.schema_of_lineage(schema);
        let path = [schema, table.as_str(), column].map(str::to_owned);
        let own = self.own_lineage_names(&path);
        let mut adopted = self.names.adopted.iter();
        let is_taken = adopted.any(|(now, before)| *now != path && before.iter().eq(own));
        (!schema.is_empty() && !is_taken).then(|| ComparableColumn {
            lineage: lineage_by_name(class, self.lineage_names(&path)),
            modifier,
        })
    }

    /// Adds columns whose values have the lineage of another name. What the data owner says of a
    /// column counts more.
    pub(crate) fn adopt(&mut self, adopted: BTreeMap<ColumnPath, LineageNames>) {
        if adopted.is_empty() {
            return;
        }
        let names = Arc::make_mut(&mut self.names);
        for (now, before) in adopted {
            names.adopted.entry(now).or_insert(before);
        }
    }

    /// Returns the lineage of a column of the relation `name`.
    fn lineage(&self, relation: &Relation, name: &str, column: &Column) -> Lineage {
        let path = self.path(relation, name, column);
        lineage_by_name(column.class(), self.lineage_names(&path))
    }

    /// Returns the names of database, schema, relation and column that the lineage of the column
    /// with this path is made from.
    pub(crate) fn lineage_names<'n>(&'n self, path: &'n ColumnPath) -> [&'n str; 4] {
        match self.names.adopted.get(path) {
            Some(names) => names.each_ref().map(String::as_str),
            None => self.own_lineage_names(path),
        }
    }

    /// Returns the same names if the column has the lineage of no other name.
    fn own_lineage_names<'n>(&'n self, path: &'n ColumnPath) -> [&'n str; 4] {
        let [schema, relation, column] = path.each_ref().map(String::as_str);
        [self.names.lineage_database(), schema, relation, column]
    }

    /// Returns the name of a schema that lineages are made from: of the session's temporary schema
    /// `pg_temp`, without a name the current schema's; empty if that is not known.
    fn schema_of_lineage<'n>(&'n self, schema: &'n str) -> &'n str {
        match schema {
            "" => &self.current_schema,
            temporary if temporary.starts_with("pg_temp_") => "pg_temp",
            schema => schema,
        }
    }

    /// Returns what the database was called when its values were stored. `None` if it has still
    /// that name.
    pub(crate) fn former_database(&self) -> Option<&str> {
        self.names.former_database.as_deref()
    }

    /// Returns the names of schema, relation and column that the lineage of a column of the
    /// relation `name` is made from, unless it has another name's.
    fn path(&self, relation: &Relation, name: &str, column: &Column) -> ColumnPath {
        let (schema, table) = match &relation.root {
            Some((schema, table)) => (schema.as_str(), table.as_str()),
            None => (relation.schema.as_str(), name),
        };
        let schema = self.schema_of_lineage(schema);
        let replaced = column.name.strip_prefix(CONVERTED);
        let replaced = replaced.and_then(|number| number.parse::<i16>().ok());
        let replaced = replaced.and_then(|number| {
            let mut columns = relation.columns.iter();
            columns.find(|column| column.place == number)
        });
        let name = &replaced.unwrap_or(column).name;
        [schema, table, name].map(str::to_owned)
    }
}
