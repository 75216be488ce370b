//! The shape of a relation: the order, names and types of its columns as far as they matter, and
//! what of it has to stay when its owner changes it.
//!
//! Must not: hold a value.

use std::collections::BTreeSet;

use strongroom_columns_values::precision_and_scale;
use strongroom_format::columns::{Class, Kind};

use super::known::RelationName;
use crate::sql::catalog::{Column, Relation};
use crate::sql::changes::{Change, DefinedColumns, Step, may_mean};

/// The table that a relation is a part of, by which its comparable columns are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PartOf {
    /// None: it is no partition.
    #[default]
    Nothing,
    /// Schema and name of the table at the top.
    Table(String, String),
    /// Whichever the server says, because a statement of the owner may have moved it.
    Any,
}

/// What is known of a relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The table that it is a part of.
    pub part_of: PartOf,
    /// Its columns in order: name, and type as far as it matters; "changed" and "dropped" for a
    /// column that a statement of the owner may have changed or dropped.
    pub columns: Vec<(String, String)>,
    /// Columns that it has to have besides, in any place, because a statement of the owner says so.
    pub defined: Vec<(String, String)>,
    /// Of one whose schema is not known, and that a statement has made: the schemas that had a
    /// relation of its name before.
    pub elsewhere: Option<BTreeSet<String>>,
}

/// Returns what is known of a relation that is as the catalog says.
pub(super) fn shape_of(relation: &Relation) -> Shape {
    let root = relation.root.clone();
    Shape {
        part_of: root.map_or(PartOf::Nothing, |(schema, name)| {
            PartOf::Table(schema, name)
        }),
        columns: relation.columns.iter().map(described).collect(),
        defined: Vec::new(),
        elsewhere: None,
    }
}

/// Says in what a relation differs from what it has to be.
pub(super) fn difference(name: &RelationName, before: &Shape, now: &Shape) -> String {
    let relation = match name.schema.as_str() {
        "" => name.relation.clone(),
        schema => format!("{schema}.{}", name.relation),
    };
    if !before.part_of.allows(&now.part_of) {
        let (before, now) = (before.part_of.described(), now.part_of.described());
        return format!("{relation} was {before}, and is {now}");
    }
    let lacks = |column: &&(String, String)| !now.columns.contains(column);
    if let Some((column, what)) = before.defined.iter().find(lacks) {
        let is = now.columns.iter().find(|(name, _)| name == column);
        let is = is.map_or("gone", |(_, what)| what.as_str());
        return format!("column \"{column}\" of {relation} was defined as {what}, and is {is}");
    }
    let (before, now) = (&before.columns, &now.columns);
    // Up to here the columns are what they were.
    let place = (0..before.len())
        .find(|place| !begins_like(before.get(..=*place).unwrap_or_default(), now))
        .unwrap_or_default();
    let shown = |column: Option<&(String, String)>| match column {
        Some((name, what)) => format!("\"{name}\" ({what})"),
        None => "none".to_owned(),
    };
    format!(
        "column {} of {relation} was {}, and is {}",
        place.saturating_add(1),
        shown(before.get(place)),
        shown(now.get(place)),
    )
}

impl PartOf {
    /// Whether a relation that was a part of this one may be one of `now`.
    fn allows(&self, now: &Self) -> bool {
        *self == Self::Any || self == now
    }

    /// What is said of it to a user.
    fn described(&self) -> String {
        match self {
            Self::Table(schema, name) => format!("a part of {schema}.{name}"),
            Self::Nothing => "no part of another table".to_owned(),
            Self::Any => "a part of any table".to_owned(),
        }
    }

    /// Schema and name of the table, if one is known.
    pub(super) fn table(&self) -> Option<(&str, &str)> {
        match self {
            Self::Table(schema, name) => Some((schema, name)),
            Self::Nothing | Self::Any => None,
        }
    }
}

impl Shape {
    /// Returns what is known of the relation that a statement defines, once it is done.
    pub(super) fn of_definition(defined: &DefinedColumns) -> Self {
        let columns: Vec<_> = defined.columns.iter().map(defined_as).collect();
        let confidential = columns.iter();
        let confidential = confidential.filter(|(_, what)| is_confidential(what));
        let confidential = confidential.cloned().collect();
        if defined.is_complete {
            return Self {
                part_of: PartOf::Nothing,
                columns,
                defined: confidential,
                elsewhere: defined.elsewhere.clone(),
            };
        }
        Self {
            part_of: PartOf::Any,
            columns: Vec::new(),
            defined: confidential,
            elsewhere: defined.elsewhere.clone(),
        }
    }

    /// Returns what is known of a relation that has to have this column. `None` if that is a plain
    /// one, or nothing is known of it.
    pub(super) fn of_column(name: &str, what: &str) -> Option<Self> {
        is_confidential(what).then(|| Self {
            part_of: PartOf::Any,
            columns: Vec::new(),
            defined: vec![(name.to_owned(), what.to_owned())],
            elsewhere: None,
        })
    }

    /// Whether no column of the relation is confidential.
    pub(super) fn is_plain(&self) -> bool {
        let mut all = self.columns.iter().chain(&self.defined);
        !all.any(|(_, what)| is_confidential(what))
    }

    /// Whether a relation that had this shape may have the other one now.
    pub(super) fn allows(&self, now: &Self) -> bool {
        let mut defined = self.defined.iter();
        self.part_of.allows(&now.part_of)
            && begins_like(&self.columns, &now.columns)
            && defined.all(|column| now.columns.contains(column))
    }

    /// Returns in what a relation differs from this; `None` if it does not.
    pub(super) fn against(&self, name: &RelationName, now: &Self) -> Option<String> {
        (!self.allows(now)).then(|| difference(name, self, now))
    }

    /// Returns how a relation contradicts a definition, `None` if it does not: a column that is to
    /// be confidential is there and of another type, for which `counts` is true. One that is
    /// missing is no contradiction.
    pub(super) fn contradiction(
        &self,
        name: &RelationName,
        now: &Self,
        counts: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let is_there = |column: &str| {
            let mut all = now.columns.iter();
            all.any(|(name, what)| name == column && counts(what))
        };
        let all = self.columns.iter().chain(&self.defined);
        let defined = all.filter(|(name, what)| is_confidential(what) && is_there(name));
        let partial = Self {
            part_of: PartOf::Any,
            columns: Vec::new(),
            defined: defined.cloned().collect(),
            elsewhere: None,
        };
        partial.against(name, now)
    }

    /// Returns what is still known of the relation after a statement of the data owner that may
    /// have made this change. `None` if nothing is.
    pub(super) fn after(&self, change: &Change) -> Option<Self> {
        let after = (!change.is_whole).then(|| self.marked(change));
        after.filter(|after| !after.is_plain())
    }

    /// Returns the relation with the columns marked that may be changed or gone.
    pub(super) fn marked(&self, change: &Change) -> Self {
        let mut after = self.clone();
        let is_known = |name: &String| self.columns.iter().any(|(known, _)| known == name);
        // One that has got another name before may be any that may have been changed.
        let drops_any = !change.dropped.iter().all(is_known);
        for (name, what) in &mut after.columns {
            if change.dropped.contains(name) || (drops_any && what == CHANGED) {
                DROPPED.clone_into(what);
            } else if change.columns.contains(name) && what != DROPPED {
                CHANGED.clone_into(what);
            }
        }
        after
            .defined
            .retain(|(name, _)| !change.columns.contains(name) && !change.dropped.contains(name));
        if change.moves {
            after.part_of = PartOf::Any;
        }
        after
    }

    /// Returns what the relation is after a statement of the data owner that was carried out and
    /// has made this change. `schema` is that of the relation that the statement names. `None` if
    /// nothing is known of it any more.
    pub(super) fn once_done(&self, schema: &str, change: &Change) -> Option<Self> {
        let steps = change.steps.iter();
        let steps = steps.filter(|(of, _)| may_mean(of, schema));
        let steps: Vec<&Step> = steps.map(|(_, step)| step).collect();
        if change.is_whole {
            return None;
        }
        let mut after = self.marked(change);
        if steps.is_empty() {
            return Some(after);
        }
        after.columns.clone_from(&self.columns);
        after.defined.clone_from(&self.defined);
        for step in steps {
            match step {
                Step::Dropped(name) => {
                    after.columns.retain(|(known, _)| known != name);
                    after.defined.retain(|(known, _)| known != name);
                }
                Step::Typed(column) => {
                    for known in after.each_mut().filter(|(name, _)| *name == column.name) {
                        *known = defined_as(column);
                    }
                }
                Step::Renamed(from, to) => {
                    for (name, _) in after.each_mut().filter(|(name, _)| name == from) {
                        name.clone_from(to);
                    }
                }
            }
        }
        after.defined.retain(|(_, what)| is_confidential(what));
        Some(after)
    }

    /// Returns its columns, and those that it has to have besides.
    fn each_mut(&mut self) -> impl Iterator<Item = &mut (String, String)> {
        self.columns.iter_mut().chain(&mut self.defined)
    }

    /// Adds what a statement of the owner says of columns of the relation.
    pub(super) fn join(&mut self, defined: Self) {
        if self.columns.is_empty() {
            self.columns = defined.columns;
        }
        self.elsewhere = defined.elsewhere.or_else(|| self.elsewhere.take());
        for column in defined.defined {
            self.defined.retain(|(name, _)| *name != column.0);
            self.defined.push(column);
        }
    }

    /// Returns the type that a column has, if it is known.
    pub(super) fn what(&self, column: &str) -> Option<&str> {
        let mut all = self.defined.iter().chain(&self.columns);
        let found = all.find(|(name, _)| name == column);
        found.map(|(_, what)| what.as_str())
    }
}

/// What is said of a column whose type is not confidential.
pub(super) const PLAIN: &str = "plain";

/// What is said of a column whose type is not confidential, and holds confidential values.
const HOLDS: &str = "holds confidential values";

/// What is said of a column that a statement of the owner may have changed.
const CHANGED: &str = "changed";

/// What is said of a column that a statement of the owner may have dropped.
const DROPPED: &str = "dropped";

/// Whether a column of which this is said is certainly confidential, or holds confidential values.
fn is_confidential(what: &str) -> bool {
    ![PLAIN, CHANGED, DROPPED].contains(&what)
}

/// A column's name as a statement defines it, and what of its type matters.
fn defined_as(column: &Column) -> (String, String) {
    if column.holds_confidential {
        // Whether its type holds confidential values is not certain.
        return (column.name.clone(), CHANGED.to_owned());
    }
    described(column)
}

/// A column's name, and what of its type matters: whether it is confidential, its kind and class,
/// precision and scale, to which a value is rounded before it is stored.
fn described(column: &Column) -> (String, String) {
    let digits =
        precision_and_scale(column.modifier).filter(|_| column.kind == Some(Kind::Numeric));
    let mut modifiers: Vec<String> = digits
        .map(|(precision, scale)| vec![precision.to_string(), scale.to_string()])
        .unwrap_or_default();
    let class = Some(column.class()).filter(|class| *class != Class::Opaque);
    modifiers.extend(class.map(|class| class.name().to_owned()));
    let what = match column.kind {
        Some(kind) if modifiers.is_empty() => format!("enc_{}", kind.base()),
        Some(kind) => format!("enc_{}({})", kind.base(), modifiers.join(",")),
        None if column.holds_confidential => HOLDS.to_owned(),
        None => PLAIN.to_owned(),
    };
    (column.name.clone(), what)
}

/// Whether the columns of a relation begin with those that it had `before`, in their order. In the
/// place of one that may have been changed there is any column, in the place of one that may have
/// been dropped any column or none.
fn begins_like(before: &[(String, String)], now: &[(String, String)]) -> bool {
    // How many of the columns of `now` those of `before` may have been, up to here.
    let mut places = BTreeSet::from([0_usize]);
    for column in before {
        let is_any = column.1 == CHANGED || column.1 == DROPPED;
        let mut next = BTreeSet::new();
        for place in places {
            let here = now.get(place);
            if here.is_some_and(|now| is_any || is_alike(column, now)) {
                next.insert(place.saturating_add(1));
            }
            if column.1 == DROPPED {
                next.insert(place);
            }
        }
        places = next;
    }
    !places.is_empty()
}

/// Whether a column is what it was, or has got confidential values because its type has: constants
/// for it are hidden then. Files of before have no precision and scale of a numeric: what
/// the server says of them is taken then.
fn is_alike(before: &(String, String), now: &(String, String)) -> bool {
    if before == now || before.0 == now.0 && before.1 == PLAIN && now.1 == HOLDS {
        return true;
    }
    let numeric = format!("enc_{}", Kind::Numeric.base());
    let Some(modifiers) = now.1.strip_prefix(&numeric) else {
        return false;
    };
    let modifiers = modifiers.trim_matches(['(', ')']).split(',');
    let classes: Vec<&str> = modifiers
        .filter(|one| one.parse::<i32>().is_err() && !one.is_empty())
        .collect();
    let without = match classes.as_slice() {
        [] => numeric,
        classes => format!("{numeric}({})", classes.join(",")),
    };
    before.0 == now.0 && before.1 == without
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_and_scale_are_kept_from_when_they_are_known() {
        let pair = |what: &str| ("pay".to_owned(), what.to_owned());
        let alike = |before: &str, now: &str| is_alike(&pair(before), &pair(now));
        // ALTER TYPE ... ADD ATTRIBUTE of a composite type.
        assert!(alike(PLAIN, HOLDS));
        assert!(alike("enc_numeric(ordered)", "enc_numeric(12,2,ordered)"));
        assert!(alike("enc_numeric", "enc_numeric(12,2)") && alike("enc_numeric", "enc_numeric"));
        for (before, now) in [
            ("enc_numeric(12,2,ordered)", "enc_numeric(12,-6,ordered)"),
            ("enc_numeric(12,2)", "enc_numeric"),
            ("enc_numeric", "enc_numeric(12,2,ordered)"),
            ("enc_numeric(ordered)", "enc_numeric(12,2)"),
            ("enc_numeric", PLAIN),
            ("enc_text", "enc_numeric"),
            (HOLDS, PLAIN),
            ("enc_text", HOLDS),
        ] {
            assert!(!alike(before, now), "{before} {now}");
        }
        let column = |modifier| Column {
            name: "pay".to_owned(),
            kind: Some(Kind::Numeric),
            holds_confidential: false,
            place: 1,
            modifier,
        };
        // numeric(12, 2): 12 << 16 | 2, and VARHDRSZ.
        assert_eq!(
            described(&column((12 << 16 | 2) + 4)).1,
            "enc_numeric(12,2)"
        );
        assert_eq!(described(&column(-1)).1, "enc_numeric");
    }
}
