//! What the proxy knows of a database: the confidential types, and which column of which relation has one.
//!
//! Read from the server's catalogs in the client's own session. A view's columns stand in `pg_attribute` with their types
//! like a table's, so views need nothing of their own. Must not: hold a value.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_format::columns::Kind;

/// What the confidential types' names begin with; the rest is the base type's name.
const TYPE_PREFIX: &str = "enc_";

/// One query, so that it is one round trip. Rows: what it is, schema, name, number of the column or of the type, column's name, type.
///
/// System relations are listed by name only: none of their columns is confidential.
pub const CATALOG_QUERY: &str = "\
SELECT 't', n.nspname, t.typname, t.oid::pg_catalog.text, t.typarray::pg_catalog.text, NULL \
FROM pg_catalog.pg_extension x \
JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = x.oid \
AND d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.deptype = 'e' \
JOIN pg_catalog.pg_type t ON t.oid = d.objid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
WHERE x.extname = 'strongroom_columns' \
UNION ALL \
SELECT 'r', n.nspname, c.relname, pg_catalog.lpad(a.attnum::pg_catalog.text, 5, '0'), a.attname, a.atttypid::pg_catalog.text \
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_(catalog|toast)' \
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_toast' \
UNION ALL \
SELECT DISTINCT 'f', n.nspname, p.proname, NULL, NULL, u.t::pg_catalog.text \
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
CROSS JOIN LATERAL pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::pg_catalog.oid[]) || p.prorettype) u(t) \
WHERE p.oid >= 16384 \
AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid \
WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e' \
AND x.extname = 'strongroom_columns') \
ORDER BY 1, 2, 3, 4";

/// A type of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncType {
    /// What its values are.
    pub kind: Kind,
    /// Whether it is the array type.
    pub array: bool,
}

/// A relation's column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The kind of a confidential column.
    pub kind: Option<Kind>,
}

/// A relation.
#[derive(Clone, Debug, Default)]
pub struct Relation {
    /// Its schema.
    pub schema: String,
    /// Columns in order; empty for a system relation, none of whose columns is confidential.
    pub columns: Vec<Column>,
}

/// A column that the data owner knows to be confidential, whatever the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedColumn {
    /// Schema.
    pub schema: String,
    /// Relation.
    pub relation: String,
    /// Column.
    pub column: String,
}

impl PinnedColumn {
    /// Of `schema.relation.column`, as in the catalog, without quotes. `None` for any other form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').filter(|part| !part.is_empty());
        let (schema, relation, column) = (parts.next()?, parts.next()?, parts.next()?);
        let pinned = Self {
            schema: schema.to_owned(),
            relation: relation.to_owned(),
            column: column.to_owned(),
        };
        parts.next().is_none().then_some(pinned)
    }
}

impl std::fmt::Display for PinnedColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.schema, self.relation, self.column)
    }
}

/// What is known of one database.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    types: BTreeMap<u32, EncType>,
    oids: BTreeMap<Kind, u32>,
    arrays: BTreeMap<Kind, u32>,
    schema: String,
    relations: BTreeMap<String, Vec<Relation>>,
    functions: BTreeSet<String>,
}

impl Catalog {
    /// The catalog of the rows of [`CATALOG_QUERY`]. What does not have its form is left out: names that are not known
    /// count as confidential.
    #[must_use]
    pub fn from_rows(rows: &[Vec<Option<String>>]) -> Self {
        let mut catalog = Self::default();
        // Types first: relations and functions refer to them.
        for order in ["t", "r", "f"] {
            for row in rows {
                let mut fields = row.iter().map(Option::as_deref);
                let mut next = || fields.next().flatten();
                if next() != Some(order) {
                    continue;
                }
                let (Some(schema), Some(name)) = (next(), next()) else {
                    continue;
                };
                let rest = [next(), next(), next()];
                match order {
                    "t" => catalog.add_type(schema, name, rest),
                    "r" => catalog.add_column(schema, name, rest),
                    _ => catalog.add_function(name, rest),
                }
            }
        }
        catalog
    }

    fn add_type(&mut self, schema: &str, name: &str, [oid, array, _]: [Option<&str>; 3]) {
        let base = name.strip_prefix(TYPE_PREFIX);
        let kind = base.and_then(|base| Kind::ALL.iter().find(|kind| kind.base() == base));
        let (Some(kind), Some(oid)) = (kind, number(oid)) else {
            return;
        };
        schema.clone_into(&mut self.schema);
        self.types.insert(
            oid,
            EncType {
                kind: *kind,
                array: false,
            },
        );
        self.oids.insert(*kind, oid);
        if let Some(array) = number(array).filter(|oid| *oid != 0) {
            self.types.insert(
                array,
                EncType {
                    kind: *kind,
                    array: true,
                },
            );
            self.arrays.insert(*kind, array);
        }
    }

    fn add_column(&mut self, schema: &str, name: &str, [_, column, oid]: [Option<&str>; 3]) {
        let named = self.relations.entry(name.to_owned()).or_default();
        let at = named.iter().position(|relation| relation.schema == schema);
        let at = at.unwrap_or_else(|| {
            named.push(Relation {
                schema: schema.to_owned(),
                columns: Vec::new(),
            });
            named.len().saturating_sub(1)
        });
        let (Some(relation), Some(column), Some(oid)) = (named.get_mut(at), column, number(oid))
        else {
            return;
        };
        let kind = self.types.get(&oid).map(|found| found.kind);
        relation.columns.push(Column {
            name: column.to_owned(),
            kind,
        });
    }

    fn add_function(&mut self, name: &str, [_, _, oid]: [Option<&str>; 3]) {
        if number(oid).is_some_and(|oid| self.types.contains_key(&oid)) {
            self.functions.insert(name.to_owned());
        }
    }

    /// Adds a relation that a statement is about to make.
    pub(crate) fn define(&mut self, schema: &str, name: &str, columns: Vec<Column>) {
        let relation = Relation {
            schema: schema.to_owned(),
            columns,
        };
        self.relations
            .entry(name.to_owned())
            .or_default()
            .push(relation);
    }

    /// The first of the columns that the data owner knows to be confidential and the server calls plain.
    ///
    /// A relation that the server does not name at all is no lie that helps it: names that are not known count as confidential.
    #[must_use]
    pub fn denied<'p>(&self, pinned: &'p [PinnedColumn]) -> Option<&'p PinnedColumn> {
        pinned.iter().find(|pinned| {
            let mut relations = self.relations(&pinned.schema, &pinned.relation);
            relations.any(|relation| {
                let column = relation
                    .columns
                    .iter()
                    .find(|column| column.name == pinned.column);
                column.is_none_or(|column| column.kind.is_none())
            })
        })
    }

    /// Whether the database has the extension.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        !self.types.is_empty()
    }

    /// The confidential type of this OID.
    #[must_use]
    pub fn enc_type(&self, oid: u32) -> Option<EncType> {
        self.types.get(&oid).copied()
    }

    /// The OID of the confidential type, or of its array type.
    #[must_use]
    pub fn oid(&self, of: EncType) -> Option<u32> {
        let map = if of.array { &self.arrays } else { &self.oids };
        map.get(&of.kind).copied()
    }

    /// The schema of the confidential types.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The relations of this name, in this schema or in any.
    pub fn relations(&self, schema: &str, name: &str) -> impl Iterator<Item = &Relation> {
        let named = self.relations.get(name).map_or(&[][..], Vec::as_slice);
        named
            .iter()
            .filter(move |relation| schema.is_empty() || relation.schema == schema)
    }

    /// Whether a function of this name, not the extension's own, takes or gives a confidential value.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }
}

fn number(text: Option<&str>) -> Option<u32> {
    text?.parse().ok()
}

/// The OID of the array type of a kind's base type, fixed in `pg_type.dat`.
#[must_use]
pub const fn base_array_oid(kind: Kind) -> u32 {
    match kind {
        Kind::Bool => 1000,
        Kind::Bytea => 1001,
        Kind::Int4 => 1007,
        Kind::Int8 => 1016,
        Kind::Text => 1009,
        Kind::Float8 => 1022,
        Kind::Date => 1182,
        Kind::Timestamp => 1115,
        Kind::Timestamptz => 1185,
        Kind::Interval => 1187,
        Kind::Numeric => 1231,
    }
}
