//! The proxy's catalog of a database: the confidential types, and the columns of relations that
//! have one.
//!
//! Read from the server's catalogs in the client's own session. `pg_attribute` has the columns of a
//! view with their types like those of a table, so views need no special handling. Must not: hold a
//! value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use strongroom_format::columns::{Class, Kind, Lineage};

use super::comparable::Names;
use super::flow::Flow;

/// The prefix of the names of confidential types; the rest is the base type's name.
const TYPE_PREFIX: &str = "enc_";

/// A type of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncType {
    /// The kind of its values.
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
    /// Whether its type, not confidential itself, holds confidential values: a composite, a domain,
    /// an array of those.
    pub holds_confidential: bool,
    /// Its number in `pg_attribute`; 0 when it is not known.
    pub place: i16,
    /// The modifier of its type, -1 without one: the class, and precision and scale of a numeric.
    pub modifier: i32,
}

impl Column {
    /// Returns what the server may learn of the order of its values; opaque for a plain column.
    pub(crate) fn class(&self) -> Class {
        match self.kind {
            // The server's word is not taken for a class that the type cannot have.
            Some(kind) => Some(Class::of_modifier(self.modifier))
                .filter(|class| class.is_possible_for(kind))
                .unwrap_or(Class::Opaque),
            None => Class::Opaque,
        }
    }

    /// Returns what is known of a reference to this column: confidential, plain, or, for a type
    /// that holds confidential values, unknown, which counts as confidential.
    pub(super) fn flow(&self) -> Flow {
        match self.kind {
            Some(kind) => Flow::confidential(Some(kind)),
            None if self.holds_confidential => Flow::unknown(),
            None => Flow::plain(),
        }
    }
}

/// Where it is known from that there is a relation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// The server's catalog shows it.
    #[default]
    Shown,
    /// A statement is about to make it, or to change it.
    Announced,
    /// It was there, and the server's catalog does not show it any more.
    Gone,
}

/// A relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relation {
    /// Its schema.
    pub schema: String,
    /// Its OID; 0 when it is not known.
    pub oid: u32,
    /// Columns in order; empty for a system relation, none of whose columns is confidential.
    pub columns: Vec<Column>,
    /// Schema and name of the table that it is a part of; `None` unless it is a partition.
    pub root: Option<(String, String)>,
    /// Whether it is a view, whose rows are another relation's.
    pub is_view: bool,
    /// Whether it is a table whose rows are its own, or those of its partitions: no rule puts
    /// others in their place, and no table inherits from it.
    pub has_own_rows: bool,
    /// Where it is known from.
    pub presence: Presence,
    /// What is not as it was when the relation was seen first; `None` if everything is.
    pub differs: Option<String>,
}

impl Relation {
    /// Returns whether one of its columns is, or holds, confidential, or it is not what it was.
    pub(super) fn is_confidential(&self) -> bool {
        let mut columns = self.columns.iter();
        self.differs.is_some()
            || columns.any(|column| column.kind.is_some() || column.holds_confidential)
    }
}

/// The catalog of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    types: BTreeMap<u32, EncType>,
    oids: BTreeMap<Kind, u32>,
    arrays: BTreeMap<Kind, u32>,
    schema: String,
    pub(super) relations: BTreeMap<String, Vec<Relation>>,
    /// Those that statements before in the same text or pipeline may have changed, as they were.
    forgotten: BTreeMap<String, Vec<Relation>>,
    pub(super) functions: BTreeSet<String>,
    /// Names of relations whose columns statements that are not over yet change.
    pub(super) doubted: BTreeSet<String>,
    /// Whether that may be any relation.
    pub(super) all_doubted: bool,
    /// Names of relations that were there, in some schema, and of which the server says nothing.
    pub(super) missing: BTreeSet<String>,
    /// Whether relations or functions are known that were confidential when they were seen first.
    had_confidential: bool,
    /// Whether it has definitions of a transaction that is not over, which can be rolled back.
    pub(super) is_provisional: bool,
    /// Types that are not confidential themselves but hold confidential values, by OID and by name.
    bearing: BTreeSet<u32>,
    pub(super) bearing_names: BTreeSet<String>,
    /// Names of types that hold no confidential values.
    plain_names: BTreeSet<String>,
    /// OIDs of relations and numbers of columns that the data owner has pinned.
    pub(super) pinned: BTreeSet<(u32, i16)>,
    /// The schema in which an unqualified name is looked up first; empty if it is not known.
    pub(super) current_schema: String,
    /// The schema of the session's own temporary relations; empty if it has none.
    pub(crate) temporary_schema: String,
    /// What the data owner says of the names that lineages are made from.
    pub(super) names: Arc<Names>,
    /// The lineages of its confidential columns, by relation, once they were asked for.
    pub(super) lineages: Lineages,
}

/// Lineages that are computed when they are needed, and count for nothing when catalogs are
/// compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Lineages(OnceLock<LineagesByRelation>);

/// Lineages of columns, by the OIDs of their relations.
type LineagesByRelation = BTreeMap<u32, Vec<Lineage>>;

impl Lineages {
    /// Returns the lineages, which `compute` computes if they are not there.
    pub(super) fn get_or_init(
        &self,
        compute: impl FnOnce() -> LineagesByRelation,
    ) -> &LineagesByRelation {
        self.0.get_or_init(compute)
    }
}

impl PartialEq for Lineages {
    /// Returns true: what they are follows from the rest of the catalog.
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Lineages {}

/// A row of the catalog: schema, name, and further fields.
struct Row<'r> {
    what: &'r str,
    schema: &'r str,
    name: &'r str,
    rest: [Option<&'r str>; 6],
}

impl<'r> Row<'r> {
    /// Takes the fields of a row of the catalog's query. `None` if it has no type, schema or name.
    fn of(fields: &'r [Option<String>]) -> Option<Self> {
        let field = |at: usize| fields.get(at).and_then(Option::as_deref);
        Some(Self {
            what: field(0)?,
            schema: field(1)?,
            name: field(2)?,
            rest: [field(3), field(4), field(5), field(6), field(7), field(8)],
        })
    }
}

impl Catalog {
    /// Makes the catalog of the rows of the catalog's query. Malformed rows are left out: names
    /// that are not known count as confidential.
    #[must_use]
    pub fn from_rows(rows: &[Vec<Option<String>>]) -> Self {
        let mut catalog = Self::default();
        let rows: Vec<Row<'_>> = rows.iter().filter_map(|row| Row::of(row)).collect();
        let of = |what: &'static str| rows.iter().filter(move |row| row.what == what);
        // Types first: relations and functions refer to them.
        for row in of("t") {
            catalog.add_type(row);
        }
        catalog.find_holding_types(&of("y").collect::<Vec<_>>(), &of("r").collect::<Vec<_>>());
        for row in of("r") {
            catalog.add_column(row);
        }
        for row in of("h") {
            catalog.add_root(row);
        }
        if let Some(row) = of("s").next() {
            row.name.clone_into(&mut catalog.current_schema);
            // In another schema the server could put any relation beside those that are kept.
            if row.schema.starts_with("pg_temp_") {
                row.schema.clone_into(&mut catalog.temporary_schema);
            }
        }
        for row in of("f") {
            let [_, _, oid, ..] = row.rest;
            if number(oid).is_some_and(|oid| catalog.holds(oid)) {
                catalog.functions.insert(row.name.to_owned());
            }
        }
        catalog
    }

    /// Finds the types that hold confidential values, and records them: domains and ranges over
    /// them, rows with them, arrays of those, and types over these. The other types' names are
    /// recorded as plain.
    fn find_holding_types(&mut self, types: &[&Row<'_>], columns: &[&Row<'_>]) {
        let mut grown = true;
        while std::mem::take(&mut grown) {
            let relations: BTreeSet<u32> = columns
                .iter()
                .filter(|row| number(row.rest[2]).is_some_and(|oid| self.holds(oid)))
                .filter_map(|row| number(row.rest[3]))
                .collect();
            for row in types {
                let [oid, array, base, relation, ..] = row.rest.map(number);
                let Some(oid) = oid.filter(|oid| !self.holds(*oid)) else {
                    continue;
                };
                let over = base.is_some_and(|base| self.holds(base));
                if over || relation.is_some_and(|relation| relations.contains(&relation)) {
                    self.bearing.insert(oid);
                    self.bearing.extend(array.filter(|oid| *oid != 0));
                    self.bearing_names.insert(row.name.to_owned());
                    grown = true;
                }
            }
        }
        for row in types {
            if !self.bearing_names.contains(row.name) {
                self.plain_names.insert(row.name.to_owned());
            }
        }
    }

    /// Returns whether values of this type are, or hold, confidential ones.
    fn holds(&self, oid: u32) -> bool {
        self.types.contains_key(&oid) || self.bearing.contains(&oid)
    }

    /// Returns whether a type of this name, not confidential itself, is known to hold confidential
    /// values.
    pub(crate) fn holds_confidential(&self, name: &str) -> bool {
        self.bearing_names.contains(name)
    }

    /// Returns whether a type of this name may hold confidential values: one that is known to, or
    /// one that is not known at all.
    pub(crate) fn may_hold_confidential(&self, name: &str) -> bool {
        let known = super::functions::kind_of_type(name).is_some()
            || super::functions::kind_of_array_type(name).is_some()
            || super::functions::is_system_type(name)
            || self.plain_names.contains(name);
        self.bearing_names.contains(name) || !known
    }

    /// Returns whether a type with these parts of a name may hold confidential values: none of
    /// PostgreSQL's own schemas does.
    pub(super) fn type_may_hold_confidential(&self, names: &[&str]) -> bool {
        match names {
            ["information_schema" | "pg_catalog", _] | [] => false,
            [.., name] => self.may_hold_confidential(name),
        }
    }

    /// Adds a confidential type of the extension and its array type. A row of another type is left
    /// out.
    fn add_type(&mut self, row: &Row<'_>) {
        let [oid, array, ..] = row.rest;
        let base = row.name.strip_prefix(TYPE_PREFIX);
        let kind = base.and_then(|base| Kind::ALL.iter().find(|kind| kind.base() == base));
        let (Some(kind), Some(oid)) = (kind, number(oid)) else {
            return;
        };
        row.schema.clone_into(&mut self.schema);
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

    /// Adds a column, and its relation if it is the first one. A row without a column adds the
    /// relation alone.
    fn add_column(&mut self, row: &Row<'_>) {
        let [place, column, oid, relation_oid, modifier, relkind] = row.rest;
        let named = self.relations.entry(row.name.to_owned()).or_default();
        let at = named
            .iter()
            .position(|relation| relation.schema == row.schema);
        let at = at.unwrap_or_else(|| {
            named.push(Relation {
                schema: row.schema.to_owned(),
                oid: number(relation_oid).unwrap_or(0),
                columns: Vec::new(),
                root: None,
                is_view: relkind == Some("v"),
                has_own_rows: relkind == Some("own"),
                presence: Presence::Shown,
                differs: None,
            });
            named.len().saturating_sub(1)
        });
        let (Some(relation), Some(column), Some(oid)) = (named.get_mut(at), column, number(oid))
        else {
            return;
        };
        relation.columns.push(Column {
            name: column.to_owned(),
            kind: self.types.get(&oid).map(|found| found.kind),
            holds_confidential: self.bearing.contains(&oid),
            place: place.and_then(|place| place.parse().ok()).unwrap_or(0),
            modifier: modifier
                .and_then(|modifier| modifier.parse().ok())
                .unwrap_or(-1),
        });
    }

    /// Notes of which table a partition is a part. Does nothing for a relation that is not known.
    fn add_root(&mut self, row: &Row<'_>) {
        let [Some(schema), Some(name), ..] = row.rest else {
            return;
        };
        let mut named = self.relations.get_mut(row.name).into_iter().flatten();
        if let Some(relation) = named.find(|relation| relation.schema == row.schema) {
            relation.root = Some((schema.to_owned(), name.to_owned()));
        }
    }

    /// Returns all relations with their names.
    pub(crate) fn relations_mut(&mut self) -> impl Iterator<Item = (&str, &mut Relation)> {
        let named = self.relations.iter_mut();
        named.flat_map(|(name, relations)| {
            relations
                .iter_mut()
                .map(|relation| (name.as_str(), relation))
        })
    }

    /// Notes the name of a relation of which the server says nothing any more, although it was
    /// there.
    pub(crate) fn note_missing(&mut self, name: &str) {
        self.missing.insert(name.to_owned());
    }

    /// Adds a relation of which the catalog says nothing any more, although it was there.
    pub(crate) fn add_gone(&mut self, name: &str, relation: Relation) {
        let named = self.relations.entry(name.to_owned()).or_default();
        named.push(relation);
    }

    /// Returns whether any schema has a relation of this name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.relations
            .get(name)
            .is_some_and(|named| !named.is_empty())
    }

    /// Returns the functions with a confidential argument or result, by their names.
    pub(crate) fn functions_mut(&mut self) -> &mut BTreeSet<String> {
        &mut self.functions
    }

    /// Adds a relation that a statement is about to make. `replaces`: there is none of the name in
    /// the schema any more, or the statement fails.
    pub(crate) fn define(
        &mut self,
        schema: &str,
        name: &str,
        columns: Vec<Column>,
        replaces: bool,
    ) {
        let place = match schema {
            "" => self.current_schema.clone(),
            schema => schema.to_owned(),
        };
        let temporary = place.starts_with("pg_temp_");
        let is_there = |known: &Relation| {
            known.schema == place || (temporary && known.schema.starts_with("pg_temp_"))
        };
        let relation = Relation {
            schema: schema.to_owned(),
            oid: 0,
            columns,
            root: None,
            is_view: false,
            has_own_rows: false,
            presence: Presence::Announced,
            differs: None,
        };
        let named = self.relations.entry(name.to_owned()).or_default();
        // A confidential one stays beside it: whether the statement replaces it, or fails, shows
        // when its text has been sent.
        named.retain(|known| !(replaces && is_there(known)) || known.is_confidential());
        named.push(relation);
    }

    /// Removes the relations of a name, in all schemas, which a statement is about to change: their
    /// columns are unknown then.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some(mut known) = self.relations.remove(name) {
            let before = self.forgotten.entry(name.to_owned()).or_default();
            before.append(&mut known);
        }
        self.doubt(name);
    }

    /// Removes the relation of a name, which has plain columns only and which a statement is about
    /// to drop, from a schema. Without a schema: the only one of the name. Returns whether it is
    /// certain which one that is.
    pub(crate) fn remove(&mut self, schema: Option<&str>, name: &str) -> bool {
        let Some(named) = self.relations.get_mut(name) else {
            return true;
        };
        match schema {
            Some(schema) => named.retain(|known| known.schema != schema),
            None if named.len() > 1 => return false,
            None => named.clear(),
        }
        if named.is_empty() {
            self.relations.remove(name);
        }
        true
    }

    /// Forgets the names and the order of the columns of the relations of a name, which has plain
    /// ones only.
    pub(crate) fn blur(&mut self, name: &str) {
        for relation in self.relations.get_mut(name).into_iter().flatten() {
            relation.columns.clear();
            relation.presence = Presence::Announced;
        }
    }

    /// Removes the relations whose columns are not known any more because a plain definition has
    /// changed them: what they inherit may be confidential now.
    pub(crate) fn forget_blurred(&mut self) {
        let own = |schema: &str| matches!(schema, "pg_catalog" | "information_schema");
        for (name, named) in &mut self.relations {
            let blurred = |known: &mut Relation| known.columns.is_empty() && !own(&known.schema);
            let mut blurred: Vec<Relation> = named.extract_if(.., blurred).collect();
            if !blurred.is_empty() {
                let before = self.forgotten.entry(name.clone()).or_default();
                before.append(&mut blurred);
            }
        }
        self.relations.retain(|_, named| !named.is_empty());
    }

    /// Returns whether the columns of the relations of this name may not be what they were: a
    /// statement that is not over changes them.
    pub(crate) fn is_doubted(&self, name: &str) -> bool {
        self.all_doubted || self.doubted.contains(name)
    }

    /// Forgets which schema comes first in the search path.
    pub(crate) fn forget_current_schema(&mut self) {
        self.current_schema.clear();
    }

    /// Notes that a statement may add confidential columns to the relations of this name: none of
    /// the columns that are known changes.
    pub(crate) fn doubt(&mut self, name: &str) {
        self.doubted.insert(name.to_owned());
    }

    /// Removes all relations: the names of schemas have changed, or it is not known what is there.
    pub(crate) fn forget_all(&mut self) {
        for (name, mut known) in std::mem::take(&mut self.relations) {
            self.forgotten.entry(name).or_default().append(&mut known);
        }
        self.all_doubted = true;
    }

    /// Returns the relations of this name that statements before in the same text or pipeline may
    /// have changed, as they were.
    pub(super) fn forgotten(&self, name: &str) -> &[Relation] {
        self.forgotten.get(name).map_or(&[], Vec::as_slice)
    }

    /// Adds a function with a confidential argument or result that a statement is about to make.
    pub(crate) fn define_function(&mut self, name: &str) {
        self.functions.insert(name.to_owned());
    }

    /// Notes whether it has definitions of a transaction that is not over.
    pub(crate) const fn set_provisional(&mut self, provisional: bool) {
        self.is_provisional = provisional;
    }

    /// Adds the name of a type, without confidential values, that a statement is about to make.
    pub(crate) fn define_type(&mut self, name: &str) {
        self.plain_names.insert(name.to_owned());
    }

    /// Adds the name of a type that holds confidential values, or may do so, and that a statement
    /// is about to make.
    pub(crate) fn define_bearing_type(&mut self, name: &str) {
        self.plain_names.remove(name);
        self.bearing_names.insert(name.to_owned());
    }

    /// Returns whether the database has types of the extension, or had confidential columns when
    /// they were seen first: that the server shows no such type any more changes nothing.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.has_types() || self.had_confidential
    }

    /// Returns whether the database has types of the extension.
    #[must_use]
    pub fn has_types(&self) -> bool {
        !self.types.is_empty()
    }

    /// Notes that the database had confidential columns when they were seen first.
    pub(crate) const fn note_confidential(&mut self) {
        self.had_confidential = true;
    }

    /// Returns the confidential type, or array type, of this OID. `None` for every other type.
    #[must_use]
    pub fn enc_type(&self, oid: u32) -> Option<EncType> {
        self.types.get(&oid).copied()
    }

    /// Returns the OID of the confidential type, or of its array type. `None` if the database does
    /// not have it.
    #[must_use]
    pub fn oid(&self, of: EncType) -> Option<u32> {
        let map = if of.array { &self.arrays } else { &self.oids };
        map.get(&of.kind).copied()
    }

    /// Returns the schema of the confidential types; empty without the extension.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the relations of this name in a schema. An empty schema means any but
    /// `information_schema`; `pg_temp` means the schema of temporary relations. Those of other
    /// sessions are not found, once the session has some of its own.
    pub fn relations(&self, schema: &str, name: &str) -> impl Iterator<Item = &Relation> {
        let named = self.relations.get(name).map_or(&[][..], Vec::as_slice);
        let found = named.iter().filter(move |relation| match schema {
            // It is not in any search path.
            "" => relation.schema != "information_schema",
            "pg_temp" => relation.schema.starts_with("pg_temp_"),
            schema => relation.schema == schema,
        });
        let own = self.temporary_schema.as_str();
        let is_other_session_s =
            move |of: &str| of.starts_with("pg_temp_") && !own.is_empty() && of != own;
        found.filter(move |relation| {
            relation.presence != Presence::Shown || !is_other_session_s(&relation.schema)
        })
    }

    /// Returns whether a function of this name, other than the extension's own, has a confidential
    /// argument or result.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }
}

/// Parses a number. `None` if there is no text or it is no number.
fn number(text: Option<&str>) -> Option<u32> {
    text?.parse().ok()
}
