//! A comparable column as a place for values, and what the data owner says of the names of such
//! columns. The stored values of a comparable column, which is an ordered one or one of class
//! equality, can be compared without a session.
//!
//! Must not: know a catalog.

use std::collections::BTreeMap;

use strongroom_format::columns::Lineage;

/// A comparable column in which a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ComparableColumn {
    pub(crate) lineage: Lineage,
    /// The modifier of its type, with precision and scale of a numeric. The server would round a
    /// value to them, and the zone does not take what was rounded for what its owner has sealed: so
    /// the value is rounded before.
    pub(crate) modifier: i32,
}

/// The names of schema, relation and column.
pub type ColumnPath = [String; 3];

/// The names that a lineage is made from: database, schema, relation and column.
pub type LineageNames = [String; 4];

/// What a column was called when its values were stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerName {
    /// The database; `None` for the one in which the column is now.
    pub database: Option<String>,
    /// Schema, relation and column.
    pub path: ColumnPath,
}

impl FormerName {
    /// Returns the names that lineages are made from; `database` is the one in which the column is
    /// now.
    #[must_use]
    pub fn in_database(&self, database: &str) -> LineageNames {
        let [schema, relation, column] = self.path.clone();
        let database = self.database.as_deref().unwrap_or(database);
        [database.to_owned(), schema, relation, column]
    }
}

/// What the data owner says of the names that lineages are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The name of the database.
    pub database: String,
    /// What the database was called when its values were stored; `None` if it has still that name.
    pub former_database: Option<String>,
    /// Columns whose values have the lineage of another name, which they had before.
    pub adopted: BTreeMap<ColumnPath, LineageNames>,
}

impl Names {
    /// Makes the names of a database from what the data owner says: what databases and columns were
    /// called before.
    pub(crate) fn new(
        database: String,
        databases: &BTreeMap<String, String>,
        columns: &BTreeMap<ColumnPath, FormerName>,
    ) -> Self {
        let former_database = databases.get(&database).cloned();
        let mut names = Self {
            database,
            former_database,
            adopted: BTreeMap::new(),
        };
        let adopted = columns.iter().map(|(now, former)| {
            let lineage_of = former.in_database(names.lineage_database());
            (now.clone(), lineage_of)
        });
        names.adopted = adopted.collect();
        names
    }

    /// Returns the name of the database that lineages are made from.
    pub(crate) fn lineage_database(&self) -> &str {
        self.former_database.as_deref().unwrap_or(&self.database)
    }
}

/// Parses `schema.relation.column=schema.relation.column`: a column, and the name that it had when
/// its values were stored, which may begin with a database. `None` for another number of parts, and
/// if one is empty.
#[must_use]
pub fn parse_adopted(text: &str) -> Option<(ColumnPath, FormerName)> {
    let parts = |text: &str| -> Option<Vec<String>> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        parts.iter().all(|part| !part.is_empty()).then_some(parts)
    };
    let (now, before) = text.split_once('=')?;
    let mut before = parts(before)?;
    let database = (before.len() == 4).then(|| before.remove(0));
    let former = FormerName {
        database,
        path: before.try_into().ok()?,
    };
    Some((parts(now)?.try_into().ok()?, former))
}

/// Parses `database=database`: what a database is called, and the name that it had when its values
/// were stored. `None` if there is no sign of equality, or nothing on one of its sides.
#[must_use]
pub fn parse_adopted_database(text: &str) -> Option<(String, String)> {
    let (now, before) = text.split_once('=')?;
    let is_named = !now.is_empty() && !before.is_empty();
    is_named.then(|| (now.to_owned(), before.to_owned()))
}
