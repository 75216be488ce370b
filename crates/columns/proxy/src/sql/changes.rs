//! What statements do to relations: what the owner knows of columns that they may change is to be
//! learned again. What they leave as it is, and what they say of the others, has to hold
//! afterwards.
//!
//! Must not: look at more of the tree than the name of a relation.

use std::collections::{BTreeMap, BTreeSet};

use pg_query::protobuf::RangeVar;

use super::catalog::Column;
use super::tree::schema_of;

/// What a statement may do to one relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// All of its columns may be others afterwards, or it may be gone.
    pub(crate) is_whole: bool,
    /// Columns that may have another type or name afterwards.
    pub(crate) columns: BTreeSet<String>,
    /// Columns that may be gone afterwards.
    pub(crate) dropped: BTreeSet<String>,
    /// It may be a part of another table afterwards.
    pub(crate) moves: bool,
    /// What exactly becomes of `columns` and `dropped`, in this order, where that is certain: of
    /// the relation in this schema.
    pub(crate) steps: Vec<(String, Step)>,
    /// The same of all of its partitions.
    pub(crate) are_parts_whole: bool,
}

/// What becomes of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is gone.
    Dropped(String),
    /// It has this type, and the name that it had.
    Typed(Column),
    /// Its name before, and afterwards.
    Renamed(String, String),
}

impl Change {
    /// Returns the change of a whole relation.
    pub(crate) fn whole() -> Self {
        Self {
            is_whole: true,
            are_parts_whole: true,
            ..Self::default()
        }
    }

    /// Adds what another statement may do to the same relation.
    pub(super) fn join(&mut self, other: &Self) {
        self.is_whole |= other.is_whole;
        self.are_parts_whole |= other.are_parts_whole;
        self.columns.extend(other.columns.iter().cloned());
        self.dropped.extend(other.dropped.iter().cloned());
        self.moves |= other.moves;
        self.steps.extend(other.steps.iter().cloned());
    }
}

/// Columns of a relation that has to have them once the statement is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DefinedColumns {
    /// The relation's schema; empty if the statement names none, and for one of the session's.
    pub(crate) schema: String,
    /// The relation's name.
    pub(crate) relation: String,
    /// Whether it is one of the session's own, temporary relations.
    pub(crate) is_temporary: bool,
    /// Whether these are all of its columns, in their order.
    pub(crate) is_complete: bool,
    /// Whether the statement does nothing if there is a relation of the name.
    pub(crate) only_if_new: bool,
    /// Whether it is gone when the transaction ends.
    pub(crate) is_passing: bool,
    /// The schemas that have a relation of the name before a statement that makes one and names no
    /// schema.
    pub(crate) elsewhere: Option<BTreeSet<String>>,
    pub(crate) columns: Vec<Column>,
}

/// A relation or a column that gets another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renamed {
    /// The relation's schema; empty if the statement names none.
    pub(crate) schema: String,
    /// The relation's name before.
    pub(crate) relation: String,
    pub(crate) to: NewName,
}

/// What a relation or its column is called afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewName {
    /// The relation's name.
    Relation(String),
    /// The relation's schema.
    Schema(String),
    /// A column's name before, and afterwards.
    Column(String, String),
}

/// A function that a statement makes, or gives a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MadeFunction {
    pub(crate) name: String,
    /// What it was called before.
    pub(crate) was: Option<String>,
    /// Whether it certainly has a confidential argument or result.
    pub(crate) is_confidential: bool,
}

/// Relations whose columns a statement may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// What it may do to them, by schema and name. The schema is empty where the statement names
    /// none: the relation may be in any then.
    pub(crate) relations: BTreeMap<(String, String), Change>,
    /// The columns whose types it says.
    pub(crate) defined: Vec<DefinedColumns>,
    /// What it gives other names.
    pub(crate) renamed: Vec<Renamed>,
    /// The names of functions that it may make, change or drop.
    pub(crate) functions: BTreeSet<String>,
    /// Those of them that it makes, or gives this name.
    pub(crate) made_functions: Vec<MadeFunction>,
    /// Whether it drops the session's temporary relations.
    pub(crate) temporary: bool,
    /// Whether it may be any relation and function of the database.
    pub(crate) any: bool,
}

impl DefinedColumns {
    /// Returns none yet of the relation.
    pub(super) fn of(range: &RangeVar) -> Self {
        let (schema, relation) = named(range);
        let is_temporary = schema == "pg_temp";
        Self {
            schema: if is_temporary { String::new() } else { schema },
            relation,
            is_temporary,
            is_complete: false,
            only_if_new: false,
            is_passing: false,
            elsewhere: None,
            columns: Vec::new(),
        }
    }
}

/// Returns whether a relation that a statement names with the schema `named` may be one of
/// `schema`. Either is empty where it is not known.
pub(crate) fn may_mean(named: &str, schema: &str) -> bool {
    named.is_empty()
        || schema.is_empty()
        || named == schema
        || (named == "pg_temp" && schema.starts_with("pg_temp_"))
}

impl Changes {
    /// Returns whether the statement changes no relation, and says nothing of one.
    pub(crate) fn is_empty(&self) -> bool {
        self.relations.is_empty()
            && self.defined.is_empty()
            && self.functions.is_empty()
            && !self.temporary
            && !self.any
    }

    /// Returns what may happen to the relation of this schema and name, if anything. The schema is
    /// empty where it is not known.
    pub(crate) fn of(&self, schema: &str, name: &str) -> Option<Change> {
        if self.any {
            return Some(Change::whole());
        }
        if schema.is_empty() || self.relations.len() <= FEW {
            let changes = self.relations.iter();
            let found =
                changes.filter(|((of, relation), _)| relation == name && may_mean(of, schema));
            return joined(found.map(|(_, change)| change));
        }
        let temporary = schema.starts_with("pg_temp_").then_some("pg_temp");
        let schemas = ["", schema].into_iter().chain(temporary);
        let keys = schemas.map(|schema| (schema.to_owned(), name.to_owned()));
        joined(keys.filter_map(|key| self.relations.get(&key)))
    }

    /// Returns whether the statement makes a relation that may be this one, and changes none that
    /// is there.
    pub(crate) fn makes(&self, schema: &str, name: &str) -> bool {
        let mut defined = self.defined.iter();
        let is_named = defined.any(|one| one.relation == name && may_mean(&one.schema, schema));
        let change = self.of(schema, name);
        is_named && !self.any && change.is_some_and(|change| change.is_whole)
    }

    /// Returns whether the function of this name may be changed.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.any || self.functions.contains(name)
    }

    /// Adds those of a later statement, but for what the statements say of columns.
    pub(crate) fn join(&mut self, later: &Self) {
        for (name, change) in &later.relations {
            self.relations.entry(name.clone()).or_default().join(change);
        }
        self.functions.extend(later.functions.iter().cloned());
        self.temporary |= later.temporary;
        self.any |= later.any;
    }

    /// Adds what a statement says of some columns of a relation, unless none of them is
    /// confidential. `schema` is that of the relation, if it is certain.
    pub(super) fn define_columns(
        &mut self,
        range: &RangeVar,
        schema: Option<String>,
        mut columns: Vec<Column>,
    ) {
        columns.retain(|column| column.kind.is_some());
        if columns.is_empty() {
            return;
        }
        let mut defined = DefinedColumns::of(range);
        match schema.filter(|_| !defined.is_temporary) {
            Some(schema) if schema.starts_with("pg_temp") => defined.is_temporary = true,
            Some(schema) => defined.schema = schema,
            None => {}
        }
        self.defined.push(DefinedColumns { columns, ..defined });
    }

    /// Adds those of an element of CREATE SCHEMA, whose relations are in that schema unless they
    /// name theirs.
    pub(super) fn join_element(&mut self, schema: &str, element: Self) {
        let in_schema = |of: String| match of.as_str() {
            "" => schema.to_owned(),
            _ => of,
        };
        for ((of, name), change) in element.relations {
            self.relations.insert((in_schema(of), name), change);
        }
        let defined = element.defined.into_iter().map(|defined| DefinedColumns {
            schema: in_schema(defined.schema.clone()),
            elsewhere: None,
            ..defined
        });
        self.defined.extend(defined);
    }

    /// Returns the change of any relation.
    pub(super) fn any() -> Self {
        Self {
            any: true,
            ..Self::default()
        }
    }

    /// Adds a relation of which everything may change. Does nothing for `None`.
    pub(super) fn add(&mut self, range: Option<&RangeVar>) {
        if let Some(range) = range {
            self.relations.insert(named(range), Change::whole());
        }
    }

    /// Adds a relation that gets another name or schema; `schema` is its schema, empty if that is
    /// not certain.
    pub(super) fn move_relation(&mut self, relation: &RangeVar, schema: String, to: NewName) {
        let change = Change {
            is_whole: true,
            moves: true,
            ..Change::default()
        };
        self.relations.insert(named(relation), change);
        self.renamed.push(Renamed {
            schema,
            relation: relation.relname.clone(),
            to,
        });
    }
}

/// So many relations are looked at one by one.
const FEW: usize = 8;

/// Returns all changes of one relation together. `None` if there are none.
fn joined<'c>(mut all: impl Iterator<Item = &'c Change>) -> Option<Change> {
    let mut first = all.next()?.clone();
    for change in all {
        first.join(change);
    }
    Some(first)
}

/// Returns schema and name of a relation as a statement names it; the schema is empty if it names
/// none.
pub(super) fn named(range: &RangeVar) -> (String, String) {
    (named_schema(range).to_owned(), range.relname.clone())
}

/// Returns the schema of [`named`].
pub(super) fn named_schema(range: &RangeVar) -> &str {
    match range.relpersistence.as_str() {
        "t" => "pg_temp",
        _ => schema_of(range),
    }
}
