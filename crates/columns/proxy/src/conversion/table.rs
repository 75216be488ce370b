//! The table and its column as the catalog has them.
//!
//! Must not: change anything.

use strongroom_keyring::Error;

use super::database::{Database, refusal};
use crate::server::{TextRow, identifier};

/// What the column becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Confidential: the server has envelopes.
    Confidential,
    /// Plain: the server sees every value.
    Plain,
}

/// A column.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) number: String,
    /// Schema and name of its type.
    pub(super) type_schema: String,
    pub(super) type_name: String,
    /// The type with its modifier, as SQL writes it.
    pub(super) type_text: String,
    pub(super) modifier: i32,
    pub(super) not_null: bool,
    pub(super) has_default: bool,
    /// Identity or generated.
    pub(super) is_made: bool,
    pub(super) has_grants: bool,
    /// Collation, and whether texts that differ can be equal under it.
    pub(super) collation: Option<(String, bool)>,
    pub(super) comment: Option<String>,
}

/// A table with the column that is to be converted.
pub(super) struct Table {
    pub(super) oid: String,
    schema: String,
    name: String,
    pub(super) access_method: String,
    pub(super) column: Column,
    /// Schema of the extension.
    pub(super) extension: String,
}

const TABLE: &str = "SELECT c.oid, n.nspname, c.relname, m.amname, c.relkind, c.relispartition, c.relhassubclass \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam WHERE c.oid = pg_catalog.to_regclass($1)";

const COLUMN: &str = "SELECT a.attname, a.attnum, n.nspname, t.typname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
    a.atttypmod, a.attnotnull, a.atthasdef, a.attidentity, a.attgenerated, a.attacl IS NOT NULL, l.collname, \
    l.collisdeterministic, pg_catalog.col_description(a.attrelid, a.attnum) \
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation \
    WHERE a.attrelid = $1 AND a.attname = $2 AND NOT a.attisdropped AND a.attnum > 0";

const EXTENSION: &str = "SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace \
    WHERE e.extname = 'strongroom_columns'";

/// Returns a field of a row; empty if it is NULL or not there.
pub(super) fn field(row: &TextRow, at: usize) -> &str {
    row.get(at).and_then(Option::as_deref).unwrap_or_default()
}

/// Returns whether a field of a row is a boolean that is true.
fn is_true(row: &TextRow, at: usize) -> bool {
    field(row, at) == "t"
}

impl Table {
    /// Reads the table and its column from the catalog. Fails with SR-8121 if the extension, the
    /// table or the column does not exist, or the table is partitioned, a partition, or has heirs;
    /// and with SR-8122 or SR-5001 if a query fails.
    pub(super) fn read(
        database: &mut Database<'_>,
        table: &str,
        column: &str,
    ) -> Result<Self, Error> {
        let answer = database.run(EXTENSION)?;
        let extension = answer.rows.first().ok_or_else(|| {
            refusal("the database does not have the extension: CREATE EXTENSION strongroom_columns")
        })?;
        let extension = field(extension, 0).to_owned();
        let answer = database.ask(TABLE, &[table])?;
        let found = answer
            .rows
            .first()
            .ok_or_else(|| refusal(format!("there is no table {table}")))?;
        let sort = field(found, 4);
        if sort != "r" || is_true(found, 5) || is_true(found, 6) {
            return Err(refusal(format!(
                "{table} is not an ordinary table without partitions and heirs: convert each partition as a table of its own, detached"
            )));
        }
        let oid = field(found, 0).to_owned();
        let answer = database.ask(COLUMN, &[&oid, column])?;
        let row = answer.rows.first();
        let row = row.ok_or_else(|| refusal(format!("{table} has no column {column}")))?;
        Ok(Self {
            oid,
            schema: field(found, 1).to_owned(),
            name: field(found, 2).to_owned(),
            access_method: field(found, 3).to_owned(),
            column: Column::of(row),
            extension,
        })
    }

    /// Returns the table's name with its schema, quoted for SQL.
    pub(super) fn qualified(&self) -> String {
        format!("{}.{}", identifier(&self.schema), identifier(&self.name))
    }

    /// Returns the name of something else in the table's schema, quoted for SQL.
    pub(super) fn in_same_schema(&self, name: &str) -> String {
        format!("{}.{}", identifier(&self.schema), identifier(name))
    }

    /// Returns whether the column has a type of the extension.
    pub(super) fn is_confidential(&self) -> bool {
        self.column.type_schema == self.extension && self.column.type_name.starts_with("enc_")
    }

    /// Returns whether the column already is what it is to become.
    pub(super) fn is_done(&self, direction: Direction) -> bool {
        self.is_confidential() == (direction == Direction::Confidential)
    }

    /// Returns the name of the new column, until it takes the old one's.
    pub(super) fn new_column(&self) -> String {
        format!("strongroom~{}", self.column.number)
    }

    /// Returns the name of the conversion's trigger: the last of all in the order in which triggers
    /// fire.
    pub(super) fn trigger(&self) -> String {
        format!("~strongroom~{}", self.column.number)
    }
}

impl Column {
    /// Takes a column from a row of the query [`COLUMN`].
    fn of(row: &TextRow) -> Self {
        let collation = row.get(11).cloned().flatten();
        Self {
            name: field(row, 0).to_owned(),
            number: field(row, 1).to_owned(),
            type_schema: field(row, 2).to_owned(),
            type_name: field(row, 3).to_owned(),
            type_text: field(row, 4).to_owned(),
            modifier: field(row, 5).parse().unwrap_or(-1),
            not_null: is_true(row, 6),
            has_default: is_true(row, 7),
            is_made: !field(row, 8).is_empty() || !field(row, 9).is_empty(),
            has_grants: is_true(row, 10),
            collation: collation.map(|name| (name, !is_true(row, 12))),
            comment: row.get(13).cloned().flatten(),
        }
    }
}
