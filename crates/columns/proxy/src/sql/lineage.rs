//! Which lineage an ordered column has, so that a constant can name the column that it is for.
//!
//! A column's lineage is made from its names (docs/spec/columns.md, "Lineages"); the extension makes
//! the same names of what it finds in the catalog (crates/columns/extension, `catalog/names.rs`).
//! Must not: decide which constant goes into which column.

use std::collections::BTreeMap;

use strongroom_columns_envelope::lineage_by_name;
use strongroom_format::columns::{Class, Lineage};

use super::catalog::{Catalog, Column, Relation};
use super::plan::OrderedColumn;

/// Prefix of the name of a column that a conversion fills; the number of the column that it is to
/// replace follows.
const CONVERTED: &str = "strongroom~";

/// The names of schema, relation and column.
type Path = [String; 3];

/// What the data owner says of the names that lineages are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The name of the database.
    pub database: String,
    /// Columns whose values have the lineage of another name, which they had before.
    pub adopted: BTreeMap<Path, Path>,
}

/// Parses `schema.relation.column=schema.relation.column`: a column, and the name that it had when
/// its values were stored. `None` unless there are three parts on both sides; empty parts do not
/// count.
#[must_use]
pub fn parse_adopted(text: &str) -> Option<(Path, Path)> {
    let path = |text: &str| -> Option<Path> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        let parts: Path = parts.try_into().ok()?;
        parts.iter().all(|part| !part.is_empty()).then_some(parts)
    };
    let (now, before) = text.split_once('=')?;
    Some((path(now)?, path(before)?))
}

impl Catalog {
    /// Sets what the data owner says of the names that lineages are made from.
    pub(crate) fn set_names(&mut self, names: std::sync::Arc<Names>) {
        self.names = names;
    }

    /// Returns the ordered columns of the relation that a statement changes, by their names. None if
    /// the relation is not known, or if several may be meant: then constants for it name no
    /// column.
    pub(super) fn ordered_columns(&self, schema: &str, name: &str) -> Vec<(String, OrderedColumn)> {
        let meant: Vec<&Relation> = self.relations(schema, name).collect();
        let current = |relation: &&&Relation| {
            schema.is_empty()
                && matches!(&relation.schema, known if *known == self.current_schema || known.is_empty())
        };
        let relation = match meant.as_slice() {
            [only] => Some(*only),
            several => several.iter().find(current).copied(),
        };
        let Some(relation) = relation else {
            return Vec::new();
        };
        let ordered = relation
            .columns
            .iter()
            .filter(|column| column.class() == Class::Ordered);
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
