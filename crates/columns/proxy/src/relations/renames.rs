//! Columns whose values have the lineage of a name that the column does not have any more.
//!
//! A lineage is made from names (docs/spec/columns.md, "Lineages"), and a column keeps the one that
//! its first value gave it. When a statement through the proxy changes the names, the columns that
//! it concerns are noted with their OIDs before it is sent. Where the catalog shows them under
//! another name afterwards, one that the statement can have given them, they are taken for what
//! they were.
//!
//! Invariants:
//! - A column has the lineage of another name only if statements of its owner lead from that name
//!   to the one that it has. What the server says decides which of them were carried out.
//! - No two comparable columns have one lineage: a new column with a name whose lineage another one
//!   has is given a lineage that no name has.
//!
//! Must not: read or write the file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::is_session_s_own;
use super::known::ColumnName;
use crate::sql::catalog::Catalog;
use crate::sql::comparable::{ColumnPath, LineageNames};
use crate::sql::lineage::CONVERTED;
use crate::sql::renames::Rename;

/// By column, the names that its lineage is made from.
pub(super) type Renamed = BTreeMap<ColumnName, LineageNames>;

/// How long a change of names that nobody saw the end of is kept, in seconds: a day. Its connection
/// has ended without another statement, or the proxy has.
const KEPT_S: u64 = 86_400;

/// The changes of names of one connection, until its transaction is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renaming {
    /// The server's address, as the proxy was told.
    pub(super) server: String,
    /// Database.
    pub(super) database: String,
    /// A random number that the connection has drawn.
    pub(super) connection: u64,
    /// When its first statement was planned, in seconds since 1970.
    since: u64,
    /// The columns that statements may concern, as they were before the first.
    before: Vec<Before>,
    /// What statements change, in their order.
    renames: Vec<Rename>,
}

/// A column before its names change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    /// OID of its relation, and its number in it.
    oid: u32,
    place: i16,
    /// Schema and name of its relation, and whether that is a partition.
    relation: (String, String),
    is_partition: bool,
    /// The names that its lineage would be made from, if it had that of no other name.
    path: ColumnPath,
    /// The names that its lineage is made from.
    lineage_of: LineageNames,
}

/// The names that a column may have after some of the statements.
struct Possible {
    /// Schemas and names of relations.
    relations: BTreeSet<(String, String)>,
    columns: BTreeSet<String>,
}

impl Renaming {
    /// Begins with nothing. `connection`: the number that it has drawn.
    pub(super) fn new(server: &str, database: &str, connection: u64) -> Self {
        Self {
            server: server.to_owned(),
            database: database.to_owned(),
            connection,
            since: seconds_since_1970(),
            before: Vec::new(),
            renames: Vec::new(),
        }
    }

    /// Notes that a statement makes these changes, and which columns of the `catalog` it may
    /// concern.
    pub(super) fn add(&mut self, renames: &[Rename], catalog: &Catalog) {
        for (name, relation, column, path) in catalog.confidential_columns() {
            let own = (relation.schema.clone(), name.to_owned());
            let is_known = self
                .before
                .iter()
                .any(|known| (known.oid, known.place) == (relation.oid, column.place));
            let mut concerning = renames.iter();
            if is_known
                || relation.oid == 0
                || is_session_s_own(&relation.schema)
                || column.name.starts_with(CONVERTED)
                || !concerning.any(|rename| concerns(rename, &own, relation.root.is_some()))
            {
                continue;
            }
            self.before.push(Before {
                oid: relation.oid,
                place: column.place,
                relation: own,
                is_partition: relation.root.is_some(),
                lineage_of: catalog.lineage_names(&path),
                path,
            });
        }
        self.renames.extend(renames.iter().cloned());
    }

    /// Puts into `renamed` the columns that have other names in the catalog than before, if the
    /// statements can have given them these names.
    pub(super) fn apply(&self, catalog: &Catalog, renamed: &mut Renamed) {
        let mut found = Vec::new();
        for (_, relation, column, path) in catalog.confidential_columns() {
            let place = (relation.oid, column.place);
            let mut before = self.before.iter();
            let Some(before) = before.find(|before| (before.oid, before.place) == place) else {
                continue;
            };
            let possible = before.possible_names(&self.renames);
            if path != before.path && possible.has(&path) {
                found.push((before, possible, path));
            }
        }
        for (before, possible, _) in &found {
            // Those of a partition are its table's, too.
            if before.is_partition {
                continue;
            }
            renamed.retain(|name, lineage_of| {
                let here = name.server == self.server && name.database == self.database;
                !(here && *lineage_of == before.lineage_of && possible.has(&name.path))
            });
        }
        for (before, _, path) in found {
            let is_own = catalog.own_lineage_names(&path) == before.lineage_of;
            let named = self.name(path);
            if is_own {
                renamed.remove(&named);
            } else {
                renamed.insert(named, before.lineage_of.clone());
            }
        }
    }

    /// Whether it is so old that nobody waits for its end.
    pub(super) fn is_past(&self) -> bool {
        seconds_since_1970().saturating_sub(self.since) > KEPT_S
    }

    /// Returns the name of a column of this server and database.
    fn name(&self, path: ColumnPath) -> ColumnName {
        ColumnName {
            server: self.server.clone(),
            database: self.database.clone(),
            path,
        }
    }
}

impl Before {
    /// Returns the names that the column may have after some of these statements, in their order.
    fn possible_names(&self, renames: &[Rename]) -> Possible {
        let [schema, table, column] = &self.path;
        let mut relations = BTreeSet::from([(schema.clone(), table.clone())]);
        let mut columns = BTreeSet::from([column.clone()]);
        for rename in renames {
            let named = |schema: &Option<String>, relation: &String| -> Vec<(String, String)> {
                let meant = relations.iter().filter(|(in_schema, name)| {
                    name == relation && schema.as_ref().is_none_or(|schema| schema == in_schema)
                });
                meant.cloned().collect()
            };
            match rename {
                Rename::Column {
                    schema,
                    relation,
                    from,
                    to,
                } => {
                    if columns.contains(from) && !named(schema, relation).is_empty() {
                        columns.insert(to.clone());
                    }
                }
                Rename::Relation { schema, from, to } => {
                    let named = named(schema, from).into_iter();
                    relations.extend(named.map(|(schema, _)| (schema, to.clone())));
                }
                Rename::Moved {
                    schema,
                    relation,
                    to,
                } => {
                    let named = named(schema, relation).into_iter();
                    relations.extend(named.map(|(_, relation)| (to.clone(), relation)));
                }
                Rename::Schema { from, to } => {
                    let within = relations.iter().filter(|(schema, _)| schema == from);
                    let within: Vec<_> = within.cloned().collect();
                    relations.extend(within.into_iter().map(|(_, name)| (to.clone(), name)));
                }
                Rename::Detached { schema, relation } => {
                    let (own_schema, own) = &self.relation;
                    if own == relation && schema.as_ref().is_none_or(|schema| schema == own_schema)
                    {
                        relations.insert(self.relation.clone());
                    }
                }
            }
        }
        Possible { relations, columns }
    }
}

impl Possible {
    /// Whether a column may have these names.
    fn has(&self, [schema, relation, column]: &ColumnPath) -> bool {
        self.relations.contains(&(schema.clone(), relation.clone()))
            && self.columns.contains(column)
    }
}

/// Gives comparable columns that have a name whose lineage another column of the catalog has, and
/// no lineage of another name, one that no name has.
pub(super) fn separate(server: &str, database: &str, catalog: &Catalog, renamed: &mut Renamed) {
    let name = |path: &ColumnPath| ColumnName {
        server: server.to_owned(),
        database: database.to_owned(),
        path: path.clone(),
    };
    let columns: Vec<(ColumnPath, bool)> = catalog
        .confidential_columns()
        .map(|(_, _, column, path)| (path, column.class().is_comparable()))
        .collect();
    let taken: BTreeSet<LineageNames> = columns
        .iter()
        .filter_map(|(path, _)| renamed.get(&name(path)).cloned())
        .collect();
    for (path, is_comparable) in columns {
        let own = catalog.own_lineage_names(&path);
        if !is_comparable || !taken.contains(&own) || renamed.contains_key(&name(&path)) {
            continue;
        }
        let [database, schema, relation, column] = own;
        let free = (2_u32..).map(|number| {
            let column = format!("{column}~{number}");
            [database.clone(), schema.clone(), relation.clone(), column]
        });
        let mut free = free.filter(|other| !taken.contains(other));
        if let Some(other) = free.next() {
            renamed.insert(name(&path), other);
        }
    }
}

/// Whether a statement may change a name of this relation's columns. Partitions have their table's
/// names, so that only their own end as partitions concerns them.
fn concerns(rename: &Rename, (schema, name): &(String, String), is_partition: bool) -> bool {
    let is_meant = |in_schema: &Option<String>, relation: &String| {
        relation == name && in_schema.as_ref().is_none_or(|meant| meant == schema)
    };
    match rename {
        Rename::Column {
            schema, relation, ..
        }
        | Rename::Moved {
            schema, relation, ..
        } => !is_partition && is_meant(schema, relation),
        Rename::Relation { schema, from, .. } => !is_partition && is_meant(schema, from),
        Rename::Schema { from, .. } => !is_partition && from == schema,
        Rename::Detached { schema, relation } => is_partition && is_meant(schema, relation),
    }
}

/// The time now.
fn seconds_since_1970() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
