//! What a conversion will do, or why it cannot be done: decided before anything is changed.
//!
//! Must not: change anything; leave out a dependent of the column, because the old column is
//! dropped in the end.

use strongroom_format::columns::{Class, Kind};
use strongroom_keyring::Error;

use super::database::{Database, refusal};
use super::table::{Direction, Table, field};
use crate::server::identifier;

/// An index that the new column needs too.
pub(super) struct Index {
    pub(super) oid: String,
    pub(super) name: String,
    /// The text between the parentheses of its definition, for the new column.
    pub(super) keys: String,
    pub(super) unique: bool,
    /// The constraint that it is of: its name, and whether it is deferrable and deferred.
    pub(super) constraint: Option<(String, &'static str)>,
}

impl Index {
    /// Returns the index's name until it takes the old one's.
    pub(super) fn temporary(&self) -> String {
        format!("strongroom~{}", self.oid)
    }
}

/// The whole of it.
pub(super) struct Plan {
    /// The new column's type.
    pub(super) new_type: String,
    pub(super) indexes: Vec<Index>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

/// What depends on the column: class, object, what it is.
const DEPENDENTS: &str = "SELECT d.classid::pg_catalog.regclass, d.objid, \
    pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid), c.relkind, k.contype \
    FROM pg_catalog.pg_depend d \
    LEFT JOIN pg_catalog.pg_class c ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.oid = d.objid \
    LEFT JOIN pg_catalog.pg_constraint k ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND k.oid = d.objid \
    WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = $1 AND d.refobjsubid = $2 ORDER BY d.objid";

const INDEXES: &str = "SELECT i.indexrelid, c.relname, m.amname, i.indkey, i.indoption, i.indisunique, i.indisreplident, \
    i.indnullsnotdistinct, i.indexprs IS NULL AND i.indpred IS NULL, i.indnatts = i.indnkeyatts, c.reloptions IS NULL, \
    k.conname, k.contype, k.condeferrable, k.condeferred, i.indisclustered \
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam \
    LEFT JOIN pg_catalog.pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid \
    WHERE i.indrelid = $1 ORDER BY i.indexrelid";

/// The keys of an index that are columns: number; schema and name of the operator class; whether
/// that is the one of columns of class equality; whether the key has the operator class of its type
/// or that one, and the collation of its column.
const KEYS: &str = "SELECT a.attnum, n.nspname, o.opcname, e.keyed, \
    (o.opcdefault OR e.keyed) AND x.attcollation = a.attcollation FROM pg_catalog.pg_index i \
    JOIN pg_catalog.pg_attribute x ON x.attrelid = i.indexrelid \
    JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[x.attnum - 1] \
    JOIN pg_catalog.pg_namespace n ON n.oid = o.opcnamespace \
    JOIN pg_catalog.pg_type t ON t.oid = o.opcintype \
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[x.attnum - 1] \
    CROSS JOIN LATERAL (SELECT o.opcnamespace = t.typnamespace \
    AND o.opcname = t.typname || '_equality_ops') e(keyed) WHERE i.indexrelid = $1";

const NAMES: &str =
    "SELECT attnum, attname FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0";

impl Plan {
    /// Decides what the conversion will do. Fails with SR-8121 if the column, or something that
    /// depends on it, prevents the conversion, and with SR-8122 or SR-5001 if a query fails.
    /// Changes nothing.
    pub(super) fn of(
        database: &mut Database<'_>,
        table: &Table,
        direction: Direction,
        class: Class,
        superuser: bool,
    ) -> Result<Self, Error> {
        let mut notes = Vec::new();
        let (new_type, operator_class) = match direction {
            Direction::Confidential => confidential_type(table, class, &mut notes)?,
            Direction::Plain => (plain_type(database, table)?, None),
        };
        check_column(table)?;
        check_not_published(database, table)?;
        if !superuser {
            check_no_triggers(database, table)?;
        }
        check_no_dependents(database, table)?;
        let indexes = indexes(database, table, operator_class.as_deref(), &mut notes)?;
        if direction == Direction::Confidential {
            check_shown(&indexes, class)?;
        }
        Ok(Self {
            new_type,
            indexes,
            notes,
        })
    }
}

/// Fails with SR-8121 if one of the column's indexes would show more of its values than the class
/// allows, or is of a constraint that cannot be made again for it.
fn check_shown(indexes: &[Index], class: Class) -> Result<(), Error> {
    if let (Class::Opaque, Some(index)) = (class, indexes.first()) {
        return Err(refusal(format!(
            "the index {} shows the order of the column's values: let the server know the order \
             (--ordered) or which values are equal (--equality), or drop the index first",
            index.name
        )));
    }
    let mut constraints = indexes.iter().filter_map(|index| index.constraint.as_ref());
    match (class, constraints.next()) {
        (Class::Equality, Some((name, _))) => Err(refusal(format!(
            "the unique constraint {name} cannot be kept, because it cannot name the operator class \
             of columns of class equality: drop it, and CREATE UNIQUE INDEX on the column, which is \
             made again with that class"
        ))),
        _ => Ok(()),
    }
}

/// Returns the confidential type of this class for the column's plain one, as SQL writes it, with
/// the operator class that indexes need if it is not the type's default, and adds notes on what is
/// lost. Fails with SR-8121 if there is none, if it cannot have the class, or if the collation
/// takes different texts for equal.
fn confidential_type(
    table: &Table,
    class: Class,
    notes: &mut Vec<String>,
) -> Result<(String, Option<String>), Error> {
    let column = &table.column;
    let limited = column.modifier >= 0;
    let (name, modifier) = match column.type_name.as_str() {
        _ if column.type_schema != "pg_catalog" => ("", ""),
        "int2" => {
            notes.push(
                "smallint becomes enc_int4: its narrower range is not checked any more".to_owned(),
            );
            ("int4", "")
        }
        "varchar" => {
            if limited {
                notes.push(format!(
                    "{}: its length is not checked any more",
                    column.type_text
                ));
            }
            ("text", "")
        }
        "numeric" => (
            "numeric",
            column.type_text.strip_prefix("numeric").unwrap_or_default(),
        ),
        "time" | "timestamp" | "timestamptz" | "interval" if limited => ("", ""),
        known @ ("bool" | "int4" | "int8" | "float8" | "text" | "bytea" | "date" | "time"
        | "timestamp" | "timestamptz" | "interval" | "uuid" | "jsonb") => (known, ""),
        _ => ("", ""),
    };
    if name.is_empty() {
        return Err(refusal(format!(
            "there is no confidential type for {}",
            column.type_text
        )));
    }
    check_class(name, class)?;
    match &column.collation {
        Some((collation, true)) => {
            return Err(refusal(format!(
                "its collation {collation} takes different texts for equal; confidential texts are compared byte by byte"
            )));
        }
        Some((collation, _)) if !matches!(collation.as_str(), "C" | "POSIX") => {
            notes.push(format!("confidential texts are compared and sorted as under the collation \"C\", not {collation}"));
        }
        _ => {}
    }
    let digits = modifier.trim_matches(['(', ')']);
    let word = if class.is_comparable() {
        class.name()
    } else {
        ""
    };
    let words: Vec<&str> = [digits, word]
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect();
    let modifier = match words.as_slice() {
        [] => String::new(),
        words => format!("({})", words.join(",")),
    };
    let schema = identifier(&table.extension);
    let new_type = format!("{schema}.{}{modifier}", identifier(&format!("enc_{name}")));
    let operator_class = (class == Class::Equality).then(|| {
        format!(
            "{schema}.{}",
            identifier(&format!("enc_{name}_equality_ops"))
        )
    });
    Ok((new_type, operator_class))
}

/// Fails with SR-8121 if no column of the confidential type for this plain one can have the class.
fn check_class(name: &str, class: Class) -> Result<(), Error> {
    let kind = Kind::ALL.iter().find(|kind| kind.base() == name);
    if kind.is_none_or(|kind| class.is_possible_for(*kind)) {
        return Ok(());
    }
    Err(refusal(format!(
        "a confidential {name} cannot have the class {}: convert it without one",
        class.name()
    )))
}

/// Returns the plain type of the column's confidential one, as SQL writes it. Fails with SR-8122 or
/// SR-5001 if a query fails.
fn plain_type(database: &mut Database<'_>, table: &Table) -> Result<String, Error> {
    let base = table
        .column
        .type_name
        .strip_prefix("enc_")
        .unwrap_or_default();
    let mut modifier = String::new();
    let packed = table.column.modifier & !Class::of_modifier(table.column.modifier).modifier();
    if packed > 0 {
        let number = packed.to_string();
        let answer = database.ask("SELECT pg_catalog.numerictypmodout($1::int4)", &[&number])?;
        modifier = answer
            .rows
            .first()
            .map(|row| field(row, 0).to_owned())
            .unwrap_or_default();
    }
    Ok(format!("pg_catalog.{}{modifier}", identifier(base)))
}

/// Fails with SR-8121 if the column is an identity or generated one, or has a default or privileges
/// of its own.
fn check_column(table: &Table) -> Result<(), Error> {
    let column = &table.column;
    let against = [
        (
            column.is_made,
            "it is an identity or a generated column: drop that first (ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY, DROP EXPRESSION)",
        ),
        (
            column.has_default,
            "it has a default, whose value stands in the catalog: drop it first (ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT)",
        ),
        (
            column.has_grants,
            "it has privileges of its own: revoke them first, and grant them again on the converted column",
        ),
    ];
    match against.iter().find(|(has, _)| *has) {
        Some((_, why)) => Err(refusal(*why)),
        None => Ok(()),
    }
}

/// Fails with SR-8121 if the table is in a publication, and with SR-8122 or SR-5001 if the query
/// fails.
fn check_not_published(database: &mut Database<'_>, table: &Table) -> Result<(), Error> {
    let sql = "SELECT p.pubname FROM pg_catalog.pg_publication p LEFT JOIN pg_catalog.pg_publication_rel r \
        ON r.prpubid = p.oid AND r.prrelid = $1 WHERE p.puballtables OR r.oid IS NOT NULL";
    let answer = database.ask(sql, &[&table.oid])?;
    match answer.rows.first() {
        Some(row) => Err(refusal(format!(
            "the table is in the publication {}, whose subscribers would have to change with it: take it out first",
            field(row, 0)
        ))),
        None => Ok(()),
    }
}

/// Fails with SR-8121 if an enabled trigger of the application would fire for each row that is
/// converted, and with SR-8122 or SR-5001 if the query fails.
fn check_no_triggers(database: &mut Database<'_>, table: &Table) -> Result<(), Error> {
    // commands/trigger.h: 16 is UPDATE.
    let sql = "SELECT tgname FROM pg_catalog.pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal AND tgtype & 16 <> 0 \
        AND tgenabled <> 'D' AND tgname <> $2";
    let answer = database.ask(sql, &[&table.oid, &table.trigger()])?;
    match answer.rows.first() {
        Some(row) => Err(refusal(format!(
            "the trigger {} would fire for each row that is converted: disable it, or run this command as a superuser",
            field(row, 0)
        ))),
        None => Ok(()),
    }
}

/// Fails with SR-8121 if anything depends on the column but indexes and unique constraints, which
/// are made anew, and with SR-8122 or SR-5001 if the query fails.
fn check_no_dependents(database: &mut Database<'_>, table: &Table) -> Result<(), Error> {
    let answer = database.ask(DEPENDENTS, &[&table.oid, &table.column.number])?;
    for row in &answer.rows {
        let is_index = matches!(field(row, 3), "i");
        let is_unique = field(row, 4) == "u";
        if !is_index && !is_unique {
            return Err(refusal(format!(
                "{} depends on the column: drop it first, and make it again for the converted column",
                field(row, 2)
            )));
        }
    }
    Ok(())
}

/// Returns the indexes of the table that have the column, as they are to be made for the new
/// column: with the operator class `operator_class`, or the type's default one for `None`. Adds
/// notes on properties of them that are lost. Fails with SR-8121 for an index of a kind that the
/// conversion does not make, with SR-8122 if the server refuses a query, and with SR-5001 if the
/// connection fails.
fn indexes(
    database: &mut Database<'_>,
    table: &Table,
    operator_class: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Vec<Index>, Error> {
    let names = database.ask(NAMES, &[&table.oid])?.rows;
    let answer = database.ask(INDEXES, &[&table.oid])?;
    let mut indexes = Vec::new();
    for row in &answer.rows {
        let covers = field(row, 3)
            .split(' ')
            .any(|number| number == table.column.number);
        // What has the column in an expression or a predicate is found among the dependents'
        // indexes, and is refused here.
        let plain = field(row, 8) == "t";
        if !covers && (plain || !depends_on_column(database, table, field(row, 0))?) {
            continue;
        }
        let name = field(row, 1).to_owned();
        let on = |at: usize| field(row, at) == "t";
        let on_columns = database.ask(KEYS, &[field(row, 0)])?.rows;
        let ordinary = plain
            && on(9)
            && on(10)
            && field(row, 2) == "btree"
            && on_columns.iter().all(|key| field(key, 4) == "t");
        let constraint = field(row, 12);
        if !ordinary || on(6) || on(7) || !matches!(constraint, "" | "u") {
            return Err(refusal(format!(
                "the index {name} is of a sort that is not made again (other than B-tree, expression, predicate, INCLUDE, options, \
                 operator class, collation, NULLS NOT DISTINCT, primary key, replica identity): drop it first"
            )));
        }
        if on(15) {
            notes.push(format!(
                "the table was clustered on {name}: ALTER TABLE ... CLUSTER ON it again"
            ));
        }
        let deferred = match (on(13), on(14)) {
            (_, true) => " DEFERRABLE INITIALLY DEFERRED",
            (true, false) => " DEFERRABLE",
            _ => "",
        };
        let operator_class_of = |number: &str| {
            if number == table.column.number {
                return operator_class.map(str::to_owned);
            }
            let mut keyed = on_columns.iter().filter(|key| field(key, 3) == "t");
            let key = keyed.find(|key| field(key, 0) == number)?;
            let [schema, name] = [1, 2].map(|at| identifier(field(key, at)));
            Some(format!("{schema}.{name}"))
        };
        indexes.push(Index {
            oid: field(row, 0).to_owned(),
            keys: keys(
                table,
                (field(row, 3), field(row, 4)),
                operator_class_of,
                &names,
            ),
            name,
            unique: on(5),
            constraint: (constraint == "u").then(|| (field(row, 11).to_owned(), deferred)),
        });
    }
    Ok(indexes)
}

/// Returns whether the index with this OID depends on the column. Fails with SR-8122 or SR-5001.
fn depends_on_column(
    database: &mut Database<'_>,
    table: &Table,
    index: &str,
) -> Result<bool, Error> {
    let answer = database.ask(DEPENDENTS, &[&table.oid, &table.column.number])?;
    Ok(answer.rows.iter().any(|row| field(row, 1) == index))
}

/// Returns the keys of an index, as SQL writes them, with the new column in the old one's place.
/// `numbers` and `options` are those of `pg_index`; `operator_class_of` returns the operator class
/// of the column with a number, unless it is the default of its type.
fn keys(
    table: &Table,
    (numbers, options): (&str, &str),
    operator_class_of: impl Fn(&str) -> Option<String>,
    names: &[crate::server::TextRow],
) -> String {
    let named = |number: &str| {
        if number == table.column.number {
            return table.new_column();
        }
        let found = names.iter().find(|row| field(row, 0) == number);
        found
            .map(|row| field(row, 1).to_owned())
            .unwrap_or_default()
    };
    let keys = numbers
        .split(' ')
        .zip(options.split(' '))
        .map(|(number, option)| {
            // catalog/pg_index.h: 1 is descending, 2 is nulls first.
            let option: u8 = option.parse().unwrap_or(0);
            let order = if option & 1 == 0 { "ASC" } else { "DESC" };
            let nulls = if option & 2 == 0 { "LAST" } else { "FIRST" };
            let class = operator_class_of(number);
            let class = class.map_or_else(String::new, |class| format!(" {class}"));
            format!(
                "{}{class} {order} NULLS {nulls}",
                identifier(&named(number))
            )
        });
    keys.collect::<Vec<_>>().join(", ")
}
