//! The resolver's state: scopes, the sites that may have to change, and the rule that marks them.
//!
//! The same code walks the tree twice: the first walk visits the sites in order and marks those
//! that are combined with a confidential value; the second visits the same sites in the same order
//! and changes the marked ones. Invariants:
//! - R1 A name that is not found counts as confidential, and one that may mean several columns
//!   counts as all of them.
//! - R2 Every constant of the tree is visited (checked in `mod.rs`).
//! - R3 Sites that one operation combines are marked together, whichever of them is combined with a
//!   confidential value, and when.
//! - R4 The second walk marks nothing: a site that it would have to mark is refused.
//!
//! Must not: convert a value.

use std::collections::BTreeMap;

use pg_query::protobuf::RangeVar;
use strongroom_format::columns::Kind;

use super::catalog::{Catalog, Relation};
use super::classes::Classes;
use super::comparable::ComparableColumn;
use super::flow::{Carried, Columns, Flow, Origins};
use super::fold;
use super::functions;
use super::literal::Form;
use super::refusal::Refusal;
use super::relation_columns::{any_of, columns_of};
use super::site::{Destination, KeptConstant, Site, SiteKind};

/// One item of a FROM clause.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) alias: String,
    pub(crate) columns: Columns,
    /// `*` has its columns as part of a join that merges some.
    pub(crate) in_join: bool,
    /// Schema, if the statement names it, and name of the relation that it is. `None` for what no
    /// name with a schema can mean: an item with an alias, and one that is no relation.
    relation: Option<(String, String)>,
}

impl Source {
    /// Makes an item of a FROM clause that is not part of a join that merges columns.
    pub(crate) const fn new(alias: String, columns: Columns) -> Self {
        Self {
            alias,
            columns,
            in_join: false,
            relation: None,
        }
    }

    /// Makes an item of a FROM clause of a relation, which has this name as its alias.
    pub(crate) fn of_relation(range: &RangeVar, alias: String, columns: Columns) -> Self {
        let relation = (range.schemaname.clone(), range.relname.clone());
        Self {
            relation: Some(relation).filter(|_| range.alias.is_none()),
            ..Self::new(alias, columns)
        }
    }

    /// Returns whether these parts of a name, before that of a column, can mean this item. A name
    /// with a schema means a relation without an alias, whatever is nearer (`parse_relation.c`,
    /// `scanNameSpaceForRelid`).
    fn can_be_named(&self, parts: &[&str]) -> bool {
        match parts {
            [] => false,
            [alias] => self.alias == *alias,
            [.., schema, name] => self.relation.as_ref().is_some_and(|(own, relation)| {
                relation == name && (own.is_empty() || is_same_schema(own, schema))
            }),
        }
    }
}

/// Returns whether two names of schemas can mean the same one: `pg_temp` is the session's own.
fn is_same_schema(one: &str, other: &str) -> bool {
    let is_temporary = |schema: &str| schema == "pg_temp" || schema.starts_with("pg_temp_");
    one == other || is_temporary(one) && is_temporary(other)
}

/// A common table expression in scope.
#[derive(Clone, Debug)]
pub(crate) struct Cte {
    pub(crate) name: String,
    pub(crate) columns: Columns,
}

pub(crate) struct Resolver<'a> {
    pub(crate) catalog: &'a Catalog,
    /// The text of the statement.
    pub(crate) text: &'a str,
    /// Whether it has constants that nothing but the names in its text tells apart.
    pub(crate) unread: bool,
    pub(crate) scopes: Vec<Vec<Source>>,
    pub(crate) ctes: Vec<Cte>,
    pub(crate) sites: Vec<Site>,
    /// Sites that are marked together (R3).
    classes: Classes,
    /// Sites of which one is the value of an expression, whichever: they are stored together.
    values: Classes,
    /// The first site of each of the client's parameters.
    parameters: BTreeMap<i32, usize>,
    /// Windows of the query that is being walked: name, and the values that order their rows.
    pub(crate) windows: Vec<(String, Flow)>,
    /// Sites visited so far in this walk.
    pub(crate) met: usize,
    /// Whether this is the second walk.
    pub(crate) applying: bool,
    /// Numbers of the parameters that replace constants, by site.
    pub(crate) numbers: Vec<Option<i32>>,
    /// In the second walk of a definition, the constants that it keeps, by their numbers.
    pub(super) kept: Vec<KeptConstant>,
    /// Whether the statement's scopes have anything confidential or unknown.
    pub(crate) touched: bool,
    /// Whether the second walk has changed the tree.
    pub(crate) changed: bool,
    /// The first refusal.
    pub(crate) refusal: Option<Refusal>,
    /// Names of relations and types that the catalog does not know.
    pub(crate) unknown: Vec<String>,
    /// Sites of constants that functions are called with, and that may be SQL's text.
    pub(super) arguments: Vec<usize>,
}

impl<'a> Resolver<'a> {
    /// Makes a resolver for one statement, before its first walk.
    pub(crate) fn new(catalog: &'a Catalog, text: &'a str) -> Self {
        Self {
            catalog,
            text,
            unread: false,
            scopes: Vec::new(),
            ctes: Vec::new(),
            sites: Vec::new(),
            classes: Classes::default(),
            values: Classes::default(),
            parameters: BTreeMap::new(),
            windows: Vec::new(),
            met: 0,
            applying: false,
            numbers: Vec::new(),
            kept: Vec::new(),
            touched: false,
            changed: false,
            refusal: None,
            unknown: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Begins the second walk, which changes the tree. `numbers` has, by site, the numbers of the
    /// parameters that replace constants.
    pub(crate) fn begin_applying(&mut self, numbers: Vec<Option<i32>>) {
        self.scopes.clear();
        self.ctes.clear();
        self.windows.clear();
        self.met = 0;
        self.applying = true;
        self.numbers = numbers;
    }

    /// Visits a constant, parameter or cast and returns its number, in the order of the walk. The
    /// first walk records it; several places of one parameter are marked together.
    pub(crate) fn visit_site(&mut self, kind: SiteKind) -> usize {
        let site = self.met;
        self.met = self.met.saturating_add(1);
        if self.applying {
            return site;
        }
        let same = match &kind {
            SiteKind::Parameter(number) => {
                let first = *self.parameters.entry(*number).or_insert(site);
                Some(first).filter(|first| *first != site)
            }
            _ => None,
        };
        self.sites.push(Site {
            kind,
            form: None,
            beside: None,
            structure: None,
            destination: Destination::Nowhere,
        });
        self.classes.add();
        self.values.add();
        if let Some(same) = same {
            self.merge_classes(same, site);
        }
        site
    }

    /// Merges the classes of two sites (constants, parameters, casts): from now on they are marked
    /// as confidential together. If one is marked already, so is the other.
    fn merge_classes(&mut self, one: usize, other: usize) {
        if !self.classes.merge(one, other) {
            return;
        }
        for (marked, new) in [(one, other), (other, one)] {
            let known = self.sites.get(marked);
            if let Some(Site {
                form: Some(_),
                beside,
                ..
            }) = known
            {
                let beside = *beside;
                self.mark(
                    Carried {
                        site: new,
                        direct: false,
                        is_value: false,
                    },
                    beside,
                );
            }
        }
    }

    /// Merges the classes of all sites (constants, parameters, casts) that flow into a value, so
    /// that they are marked as confidential together.
    pub(crate) fn merge_flow(&mut self, flow: &Flow) {
        if let [first, rest @ ..] = flow.carried.as_slice() {
            for carried in rest {
                self.merge_classes(first.site, carried.site);
            }
        }
    }

    /// Returns whether the value is confidential, or has become so because a constant or parameter
    /// that flows into it was marked.
    pub(crate) fn is_confidential(&self, flow: &Flow) -> bool {
        let marked = |carried: &Carried| {
            self.sites
                .get(carried.site)
                .is_some_and(|site| site.form.is_some())
        };
        flow.confidential || flow.carried.iter().any(marked)
    }

    /// Returns, in the second walk, the form in which the constant, parameter or cast with the
    /// number `site` is to be written. `None` if it stays as it is, and in the first walk.
    pub(crate) fn form(&self, site: usize) -> Option<Form> {
        if self.applying {
            self.sites.get(site)?.form
        } else {
            None
        }
    }

    /// Records that one operation combines these values: if one is confidential, all sites that
    /// flow into them are marked; if none is, they will be marked together. Returns what is known
    /// of the result, for an operation whose result is a value of their type.
    pub(crate) fn combine(&mut self, flows: &[Flow]) -> Flow {
        let kind = flows
            .iter()
            .fold(None, |kind, flow| functions::wider(kind, flow.kind));
        let mut beside = None;
        let mut confidential = false;
        for flow in flows.iter().filter(|flow| self.is_confidential(flow)) {
            confidential = true;
            beside = functions::wider(beside, flow.kind);
        }
        if confidential {
            for carried in flows.iter().flat_map(|flow| &flow.carried) {
                self.mark(*carried, beside);
            }
            return Flow::confidential(kind);
        }
        let mut sites = flows.iter().flat_map(|flow| &flow.carried);
        let Some(first) = sites.next().copied() else {
            return Flow {
                kind,
                ..Flow::plain()
            };
        };
        for carried in sites {
            self.merge_classes(first.site, carried.site);
        }
        // One site represents all that are marked with it.
        Flow {
            kind,
            ..Flow::site(first.site, None)
        }
        .computed()
    }

    /// Records that a value is one of these, whichever it is, as [`Self::combine`] does. What flows
    /// into each of them flows into the result, also where they are confidential: a constant that
    /// is chosen is stored as it is.
    pub(crate) fn choose(&mut self, flows: &[Flow]) -> Flow {
        let mut chosen = self.combine(flows);
        if chosen.confidential {
            for flow in flows {
                chosen.join(&flow.clone().indirect());
            }
            let mut kinds = flows.iter().filter_map(|flow| flow.kind);
            let first = kinds.next();
            let origins = Flow::origins_of_one(flows);
            // A value of another kind than the result's is converted to it.
            chosen.origins = if kinds.all(|kind| Some(kind) == first) {
                origins
            } else {
                origins.map(|origins| origins.or(Origins::made()))
            };
        } else {
            // Where the value may be one of the sites, a site that is one stands for all. Where
            // each value is computed, the site that `combine` has chosen keeps standing for them.
            let carried = flows.iter().flat_map(|flow| &flow.carried);
            let mut values = carried.filter(|carried| carried.is_value);
            if let Some(first) = values.next() {
                for other in values {
                    self.values.merge(first.site, other.site);
                }
                chosen.carried.clear();
                chosen.add_values(&[*first]);
            }
        }
        chosen
    }

    /// Records that two values are compared, field by field for rows of the same length.
    pub(crate) fn compare(&mut self, one: &Flow, other: &Flow) {
        match (&one.row, &other.row) {
            (Some(left), Some(right)) if left.len() == right.len() => {
                for (left, right) in left.iter().zip(right) {
                    self.compare(left, right);
                }
            }
            _ => self.compare_all(&[one.clone(), other.clone()]),
        }
    }

    /// Records that values are compared with one another, as [`Self::combine`] does; the result is
    /// plain. A timestamp constant at midnight beside dates becomes a date.
    pub(crate) fn compare_all(&mut self, flows: &[Flow]) {
        let theirs = flows.iter().filter(|flow| flow.confidential);
        let dates =
            theirs.clone().count() > 0 && theirs.clone().all(|flow| flow.kind == Some(Kind::Date));
        for carried in flows
            .iter()
            .flat_map(|flow| &flow.carried)
            .filter(|carried| dates && carried.direct)
        {
            if let Some(Site {
                kind: SiteKind::Constant(literal),
                ..
            }) = self.sites.get_mut(carried.site)
            {
                fold::as_day(literal);
            }
        }
        self.combine(flows);
    }

    /// Records that a value is stored in a column, or passed where a confidential value is
    /// expected. Does nothing if the target is plain.
    pub(crate) fn assign(&mut self, target: &Flow, value: &Flow) {
        if let Some(column) = target.comparable.filter(|_| !self.applying) {
            for carried in value.carried.iter().filter(|carried| carried.is_value) {
                self.note_destination(carried.site, column);
            }
        }
        if target.confidential {
            self.combine(&[target.clone(), value.clone()]);
        }
    }

    /// Records that a constant or parameter (site), or one that may be the value in its place, is
    /// stored in this comparable column. Those that
    /// it is compared or computed with are not: whoever knows their values could put them beside
    /// the column's later ones.
    fn note_destination(&mut self, site: usize, column: ComparableColumn) {
        for member in self.values.members(site) {
            if let Some(site) = self.sites.get_mut(*member) {
                site.destination.add(column);
            }
        }
    }

    /// Marks a constant, parameter or cast (site), and all of its class, as part of a confidential
    /// expression. Keeps a refusal for a constant that no confidential type accepts, and for any
    /// site in the second walk.
    fn mark(&mut self, carried: Carried, beside: Option<Kind>) {
        self.mark_one(carried.site, carried.direct, beside);
        if self.classes.members(carried.site).len() < 2 {
            return;
        }
        let members = self.classes.take(carried.site);
        for site in &members {
            self.mark_one(*site, false, beside);
        }
        self.classes.put_back(carried.site, members);
    }

    /// Marks one constant, parameter or cast (site) and settles the form in which it is written.
    /// One that is marked already stays as it is. In the second walk, or if no form exists, it
    /// keeps a refusal instead.
    fn mark_one(&mut self, at: usize, direct: bool, beside: Option<Kind>) {
        let Some(site) = self.sites.get_mut(at) else {
            return;
        };
        if site.form.is_some() || matches!(site.kind, SiteKind::Cast(None)) {
            return;
        }
        if self.applying {
            let refusal = Refusal::statement(
                "what is confidential in this statement cannot be decided",
                "Write it in parts.",
            );
            self.refusal.get_or_insert(refusal);
            return;
        }
        site.beside = beside;
        site.form = Some(match &site.kind {
            SiteKind::Parameter(_) | SiteKind::RecursiveColumn | SiteKind::Cast(None) => Form::Bare,
            SiteKind::Cast(Some(form)) => *form,
            SiteKind::Constant(literal) => match literal.form(direct, beside) {
                Ok(form) => form,
                Err(refusal) => {
                    self.refusal.get_or_insert(refusal);
                    return;
                }
            },
        });
    }

    /// Returns the columns of a relation of the catalog, or of a common table expression in scope.
    /// A relation that is not known is noted, and its columns count as confidential.
    pub(crate) fn relation(&mut self, schema: &str, name: &str) -> Columns {
        if schema.is_empty()
            && let Some(cte) = self.ctes.iter().rev().find(|cte| cte.name == name)
        {
            return cte.columns.clone();
        }
        let found: Vec<&Relation> = self.catalog.relations(schema, name).collect();
        if let Some(differs) = found.iter().find_map(|relation| relation.differs.as_ref()) {
            let refusal = Refusal::changed(differs);
            self.refusal.get_or_insert(refusal);
        }
        let single = found.len() == 1;
        let of = |relation: &Relation| columns_of(self.catalog, relation, name, single);
        let all: Vec<Columns> = found.into_iter().map(of).collect();
        self.touched |= all.iter().any(|columns| columns.whole().confidential);
        if all.is_empty() && schema != "pg_catalog" && schema != "information_schema" {
            self.touched = true;
            self.unknown.push(name.to_owned());
            return Columns::open(Flow::unknown());
        }
        if all.is_empty() {
            return Columns::open(Flow::plain());
        }
        any_of(&all)
    }

    /// Returns what is known of a column reference, given by the parts of its name. A name that is
    /// not found counts as confidential.
    pub(crate) fn column(&self, names: &[&str]) -> Flow {
        match names {
            [column] => self.unqualified(column),
            [source @ .., column] => self.qualified(source, column),
            [] => Flow::unknown(),
        }
    }

    /// Returns what is known of a column that is named without its relation. It may be any source's
    /// whose columns are not all known, out to the scope that is known to have it; all of these are
    /// taken together. Where that is a plain one, a confidential one of the same name further out
    /// may be meant all the same: who adds a plain column of this name to a relation, in the
    /// catalog or to the proxy only, would have constants beside the other one in clear.
    fn unqualified(&self, column: &str) -> Flow {
        let mut maybe: Option<Flow> = None;
        let mut join = |flow: &Flow| match &mut maybe {
            Some(known) => known.join(flow),
            None => maybe = Some(flow.clone()),
        };
        let mut scopes = self.scopes.iter().rev();
        for scope in scopes.by_ref() {
            let mut found = false;
            for source in scope {
                if let Some(flow) = source.columns.find(column) {
                    found = true;
                    join(&flow);
                } else if let Some(open) = &source.columns.open {
                    join(open);
                }
                // The name of a source means its whole row.
                if source.alias == column {
                    found = true;
                    join(&source.columns.whole());
                }
            }
            if found {
                break;
            }
        }
        let Some(found) = maybe else {
            return unknown_column(column);
        };
        // A result's columns have no alias: ORDER BY finds those of FROM first.
        let outer = scopes.flatten().filter(|source| !source.alias.is_empty());
        let outer = outer.filter_map(|source| {
            let whole = || (source.alias == column).then(|| source.columns.whole());
            source.columns.find_or_open(column).or_else(whole)
        });
        or_captured(found, outer)
    }

    /// Returns what is known of a column that is named with its source, in the innermost scope that
    /// has a source of the name. If there is none, it counts as confidential. As for a name without
    /// a source, a confidential one further out counts too: ON of a join sees only the join's own
    /// sides, and which relation a schema's is depends on the server.
    fn qualified(&self, source: &[&str], column: &str) -> Flow {
        let mut scopes = self.scopes.iter().rev();
        let can_be_meant = |known: &&Source| known.can_be_named(source);
        for scope in scopes.by_ref() {
            let named: Vec<&Source> = scope.iter().filter(can_be_meant).collect();
            if named.is_empty() {
                continue;
            }
            let mut found: Option<Flow> = None;
            for flow in named
                .iter()
                .filter_map(|source| source.columns.find_or_open(column))
            {
                match &mut found {
                    Some(found) => found.join(&flow),
                    None => found = Some(flow),
                }
            }
            let found = found.unwrap_or_else(|| unknown_column(column));
            let outer = scopes.flatten().filter(can_be_meant);
            let outer = outer.filter_map(|source| source.columns.find_or_open(column));
            return or_captured(found, outer);
        }
        unknown_column(column)
    }

    /// Returns all columns of the innermost scope (`*`, no parts of a name), or of one of its
    /// sources (`t.*`, `schema.t.*`). They are unknown if there is no such source, and if a
    /// confidential one further out may be meant.
    pub(crate) fn star(&self, source: &[&str]) -> Columns {
        let mut scopes = self.scopes.iter().rev();
        let meant = scopes.next().into_iter().flatten();
        let meant = meant.filter(|known| match source {
            [] => !known.in_join,
            source => known.can_be_named(source),
        });
        let mut all = Columns::default();
        let mut found = false;
        for known in meant {
            found = true;
            all.splice(known.columns.clone());
        }
        let mut outer = scopes.flatten().filter(|known| known.can_be_named(source));
        if found && !outer.any(|known| known.columns.whole().confidential) {
            all
        } else {
            Columns::open(Flow::unknown())
        }
    }
}

/// Returns what is known of a name that means `found`, or, where that is plain, one of these
/// columns further out: it counts as confidential if one of them is.
fn or_captured(found: Flow, mut outer: impl Iterator<Item = Flow>) -> Flow {
    if found.confidential {
        return found;
    }
    match outer.find(|flow| flow.confidential) {
        Some(captured) => {
            let mut either = found;
            either.join(&captured);
            // It is not certain that a result is confidential.
            either.origins = None;
            either
        }
        None => found,
    }
}

/// Returns what is known of a name that no source has: confidential, unless it is a system
/// column's.
fn unknown_column(column: &str) -> Flow {
    if is_system_column(column) {
        Flow::plain()
    } else {
        Flow::unknown()
    }
}

/// Returns whether it is the name of one of PostgreSQL's system columns
/// (src/backend/catalog/heap.c, `SysAtt`).
fn is_system_column(name: &str) -> bool {
    matches!(
        name,
        "ctid" | "oid" | "tableoid" | "xmin" | "xmax" | "cmin" | "cmax"
    )
}
