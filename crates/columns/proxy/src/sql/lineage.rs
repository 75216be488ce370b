//! Which lineage an ordered column has, so that a constant can name the column that it is for.
//!
//! A column's lineage is made from its names (docs/spec/columns.md, "Lineages"); the extension
//! makes the same names of what it finds in the catalog (crates/columns/extension,
//! `catalog/names.rs`). Must not: decide which constant goes into which column.

use strongroom_columns_envelope::lineage_by_name;
use strongroom_format::columns::{Class, Lineage};

use super::catalog::{Catalog, Column, Relation};
use super::ordered::{Names, OrderedColumn};

/// Prefix of the name of a column that a conversion fills; the number of the column that it is to
/// replace follows.
const CONVERTED: &str = "strongroom~";

impl Catalog {
    /// Sets what the data owner says of the names that lineages are made from.
    pub(crate) fn set_names(&mut self, names: std::sync::Arc<Names>) {
        self.names = names;
    }

    /// Returns the ordered columns of the relation that a statement changes, by their names. None
    /// if the relation is not known, or if several may be meant: then constants for it name no
    /// column.
    pub(super) fn ordered_columns(&self, schema: &str, name: &str) -> Vec<(String, OrderedColumn)> {
        let mut meant = self.relations(schema, name);
        let (Some(relation), None) = (meant.next(), meant.next()) else {
            return Vec::new();
        };
        // The columns of a view are of another name than those of its table.
        let ordered = relation
            .columns
            .iter()
            .filter(|column| column.class() == Class::Ordered && !relation.is_view);
        let marked = ordered.map(|column| {
            let of = OrderedColumn {
                lineage: self.lineage(relation, name, column),
                modifier: column.modifier,
            };
            (column.name.clone(), of)
        });
        marked.collect()
    }

    /// Returns the lineage of an ordered column of the relation `name`.
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
        let [schema, table, column] = self.names.adopted.get(&path).unwrap_or(&path);
        let database = &self.names.database;
        lineage_by_name(Class::Ordered, [database, schema, table, column])
    }
}
