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
