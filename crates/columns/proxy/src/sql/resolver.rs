//! The resolver's state: scopes, the sites that may have to change, and the rule that marks them.
//!
//! The tree is walked twice by the same code: the first walk meets the sites in order and marks those that flow together with
//! a confidential value; the second meets the same sites in the same order and changes the marked ones.
//! Invariants:
//! - R1 A name that is not found counts as confidential, and one that may stand for several columns is all of them.
//! - R2 Every constant of the tree is met (checked in `mod.rs`).
//! - R3 Sites that meet one another in an operation are marked together, whichever of them meets a confidential value, and when.
//! - R4 The second walk marks nothing: a site that it would have to mark is refused.
//!
//! Must not: convert a value.

use std::collections::BTreeMap;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, a_const};
use strongroom_format::columns::Kind;

use super::catalog::{Catalog, Relation};
use super::flow::{Carried, Columns, Flow};
use super::fold;
use super::functions::{self, Structure};
use super::literal::Literal;
use super::refusal::Refusal;

/// How a marked site is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `$n`: the server finds the type.
    Bare,
    /// `$n::enc_kind`.
    Typed(Kind),
}

/// What stands at a site.
#[derive(Clone, Debug)]
pub(crate) enum SiteKind {
    Constant(Literal),
    /// A parameter of the client.
    Parameter(i32),
    /// A cast of something that is no constant.
    Cast(Option<Kind>),
    /// Nothing in the text: what a recursive query's column meets before it is known what the column is.
    Link,
}

/// A place in the statement that may have to be changed.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) kind: SiteKind,
    /// Set when it belongs to a confidential expression.
    pub(crate) form: Option<Form>,
    /// Kind of what it stands beside.
    pub(crate) beside: Option<Kind>,
    /// What a parameter has to be because it says how and not what; checked when its value comes.
    pub(crate) structure: Option<Structure>,
}

/// One item of a FROM clause.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) alias: String,
    pub(crate) columns: Columns,
    /// Its columns stand in `*` as part of a join that merges some.
    pub(crate) in_join: bool,
}

impl Source {
    pub(crate) const fn new(alias: String, columns: Columns) -> Self {
        Self {
            alias,
            columns,
            in_join: false,
        }
    }
}

/// A common table expression in sight.
#[derive(Clone, Debug)]
pub(crate) struct Cte {
    pub(crate) name: String,
    pub(crate) columns: Columns,
}

pub(crate) struct Resolver<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) scopes: Vec<Vec<Source>>,
    pub(crate) ctes: Vec<Cte>,
    pub(crate) sites: Vec<Site>,
    /// Sites that are marked together (R3): the class of each site, and the sites of each class.
    classes: Vec<usize>,
    members: Vec<Vec<usize>>,
    /// The first site of each of the client's parameters.
    parameters: BTreeMap<i32, usize>,
    /// Windows of the query that is being walked: name and what their rows are ordered by.
    pub(crate) windows: Vec<(String, Flow)>,
    /// Sites met so far in this walk.
    pub(crate) met: usize,
    /// Whether this is the second walk.
    pub(crate) applying: bool,
    /// Numbers of the parameters that replace constants, by site.
    pub(crate) numbers: Vec<Option<i32>>,
    /// Whether anything confidential, or unknown, is in sight of the statement.
    pub(crate) touched: bool,
    /// Whether the second walk has changed the tree.
    pub(crate) changed: bool,
    /// The first thing that cannot be done.
    pub(crate) refusal: Option<Refusal>,
    /// Names of relations that the catalog does not know.
    pub(crate) unknown: Vec<String>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        Self {
            catalog,
            scopes: Vec::new(),
            ctes: Vec::new(),
            sites: Vec::new(),
            classes: Vec::new(),
            members: Vec::new(),
            parameters: BTreeMap::new(),
            windows: Vec::new(),
            met: 0,
            applying: false,
            numbers: Vec::new(),
            touched: false,
            changed: false,
            refusal: None,
            unknown: Vec::new(),
        }
    }

    /// Ready for the second walk.
    pub(crate) fn begin_applying(&mut self, numbers: Vec<Option<i32>>) {
        self.scopes.clear();
        self.ctes.clear();
        self.windows.clear();
        self.met = 0;
        self.applying = true;
        self.numbers = numbers;
    }

    /// Meets a site: its number. The first walk keeps what it is.
    pub(crate) fn meet(&mut self, kind: SiteKind) -> usize {
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
        });
        self.classes.push(self.members.len());
        self.members.push(vec![site]);
        if let Some(same) = same {
            self.unite(same, site);
        }
        site
    }

    /// From now on the two are marked together.
    fn unite(&mut self, one: usize, other: usize) {
        let (Some(a), Some(b)) = (
            self.classes.get(one).copied(),
            self.classes.get(other).copied(),
        ) else {
            return;
        };
        if a == b {
            return;
        }
        let len = |class: usize| self.members.get(class).map_or(0, Vec::len);
        let (small, large) = if len(a) < len(b) { (a, b) } else { (b, a) };
        let moved = self
            .members
            .get_mut(small)
            .map(std::mem::take)
            .unwrap_or_default();
        for site in &moved {
            if let Some(class) = self.classes.get_mut(*site) {
                *class = large;
            }
        }
        if let Some(members) = self.members.get_mut(large) {
            members.extend(moved);
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
                    },
                    beside,
                );
            }
        }
    }

    /// What flows into one value meets: it is marked together from now on.
    pub(crate) fn united(&mut self, flow: &Flow) {
        if let [first, rest @ ..] = flow.carried.as_slice() {
            for carried in rest {
                self.unite(first.site, carried.site);
            }
        }
    }

    /// Whether the value is confidential, or has become so because of what flows into it.
    pub(crate) fn is_confidential(&self, flow: &Flow) -> bool {
        let marked = |carried: &Carried| {
            self.sites
                .get(carried.site)
                .is_some_and(|site| site.form.is_some())
        };
        flow.confidential || flow.carried.iter().any(marked)
    }

    /// How the site is to be written, in the second walk.
    pub(crate) fn form(&self, site: usize) -> Option<Form> {
        if self.applying {
            self.sites.get(site)?.form
        } else {
            None
        }
    }

    /// Values that meet in one operation: if one is confidential, everything that flows into the others is marked.
    /// The result is what flows out, if the operation gives a value of their sort.
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
            self.unite(first.site, carried.site);
        }
        // One stands for all that are marked with it.
        Flow {
            kind,
            ..Flow::site(first.site, None)
        }
        .behind()
    }

    /// As [`Self::combine`], field by field for rows.
    pub(crate) fn compare(&mut self, one: &Flow, other: &Flow) {
        match (&one.row, &other.row) {
            (Some(left), Some(right)) if left.len() == right.len() => {
                for (left, right) in left.iter().zip(right) {
                    self.compare(left, right);
                }
            }
            _ => self.compared(&[one.clone(), other.clone()]),
        }
    }

    /// Values that are compared: what comes out is plain.
    pub(crate) fn compared(&mut self, flows: &[Flow]) {
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

    /// A value is stored in a column, or passed where a confidential value is expected.
    pub(crate) fn assign(&mut self, target: &Flow, value: &Flow) {
        if target.confidential {
            self.combine(&[target.clone(), value.clone()]);
        }
    }

    /// Marks what is carried, and what is marked together with it.
    fn mark(&mut self, carried: Carried, beside: Option<Kind>) {
        self.mark_one(carried.site, carried.direct, beside);
        let class = self.classes.get(carried.site).copied();
        let Some(members) = class.and_then(|class| self.members.get_mut(class)) else {
            return;
        };
        if let [_] = members.as_slice() {
            return;
        }
        let members = std::mem::take(members);
        for site in &members {
            self.mark_one(*site, false, beside);
        }
        if let Some(kept) = class.and_then(|class| self.members.get_mut(class)) {
            *kept = members;
        }
    }

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
            SiteKind::Parameter(_) | SiteKind::Link | SiteKind::Cast(None) => Form::Bare,
            SiteKind::Cast(Some(kind)) => Form::Typed(*kind),
            SiteKind::Constant(literal) => match literal.form(direct, beside) {
                Ok(form) => form,
                Err(refusal) => {
                    self.refusal.get_or_insert(refusal);
                    return;
                }
            },
        });
    }

    /// The relation's columns, as the catalog or a common table expression in sight has them.
    pub(crate) fn relation(&mut self, schema: &str, name: &str) -> Columns {
        if schema.is_empty()
            && let Some(cte) = self.ctes.iter().rev().find(|cte| cte.name == name)
        {
            return cte.columns.clone();
        }
        let all: Vec<Columns> = self
            .catalog
            .relations(schema, name)
            .map(columns_of)
            .collect();
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

    /// What a column reference stands for.
    pub(crate) fn column(&self, names: &[&str]) -> Flow {
        match names {
            [column] => self.unqualified(column),
            [.., source, column] => self.qualified(source, column),
            [] => Flow::unknown(),
        }
    }

    /// The column may be of any source whose columns are not all known, down to the scope that is known to have it.
    fn unqualified(&self, column: &str) -> Flow {
        let mut maybe: Option<Flow> = None;
        let mut join = |flow: &Flow| match &mut maybe {
            Some(known) => known.join(flow),
            None => maybe = Some(flow.clone()),
        };
        for scope in self.scopes.iter().rev() {
            let mut found = false;
            for source in scope {
                if let Some(flow) = source.columns.find(column) {
                    found = true;
                    join(&flow);
                } else if let Some(open) = &source.columns.open {
                    join(open);
                }
                // The name of a source stands for its whole row.
                if source.alias == column {
                    found = true;
                    join(&source.columns.whole());
                }
            }
            if found {
                break;
            }
        }
        maybe.unwrap_or_else(|| missing(column))
    }

    fn qualified(&self, source: &str, column: &str) -> Flow {
        for scope in self.scopes.iter().rev() {
            let named: Vec<&Source> = scope.iter().filter(|known| known.alias == source).collect();
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
            return found.unwrap_or_else(|| missing(column));
        }
        missing(column)
    }

    /// Every column in sight of the innermost scope, or of one of its sources: `*`, `t.*`.
    pub(crate) fn star(&self, source: Option<&str>) -> Columns {
        let mut all = Columns::default();
        let mut found = false;
        for known in self.scopes.last().into_iter().flatten() {
            let meant = match source {
                Some(source) => source == known.alias,
                None => !known.in_join,
            };
            if meant {
                found = true;
                all.splice(known.columns.clone());
            }
        }
        if found {
            all
        } else {
            Columns::open(Flow::unknown())
        }
    }
}

/// A name that no source has.
fn missing(column: &str) -> Flow {
    if is_system_column(column) {
        Flow::plain()
    } else {
        Flow::unknown()
    }
}

/// The columns of a relation of the catalog.
fn columns_of(relation: &Relation) -> Columns {
    let named = relation
        .columns
        .iter()
        .map(|column| (column.name.clone(), column.flow()))
        .collect();
    // System relations are known by name only.
    let open = relation.columns.is_empty().then(Flow::plain);
    Columns {
        named,
        open,
        ..Columns::default()
    }
}

/// What is known of a name that any of several relations may be meant by: a column is confidential if it is so, by its name or by
/// its place, in one of them.
fn any_of(all: &[Columns]) -> Columns {
    let shape = |columns: &Columns| -> Vec<(String, bool, Option<Kind>)> {
        let named = columns.named.iter();
        named
            .map(|(name, flow)| (name.clone(), flow.confidential, flow.kind))
            .collect()
    };
    let (Some(first), rest) = (all.first(), all.get(1..).unwrap_or_default()) else {
        return Columns::open(Flow::unknown());
    };
    if rest.iter().all(|other| shape(other) == shape(first)) {
        return first.clone();
    }
    let mut any = Columns {
        certain: Some(0),
        ..Columns::default()
    };
    let mut places: Vec<Flow> = Vec::new();
    for columns in all {
        for (at, (name, flow)) in columns.named.iter().enumerate() {
            match any.named.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = either(known, flow),
                None => any.named.push((name.clone(), flow.clone())),
            }
            match places.get_mut(at) {
                Some(known) => *known = either(known, flow),
                None => places.push(flow.clone()),
            }
        }
        any.open = any.open.or_else(|| columns.open.clone());
    }
    any.places = Some(places).filter(|_| any.open.is_none());
    any
}

/// A column that may be either: of a kind only if both are.
fn either(one: &Flow, other: &Flow) -> Flow {
    let (confidential, same) = (
        one.confidential || other.confidential,
        one.confidential == other.confidential && one.kind == other.kind,
    );
    Flow {
        confidential,
        kind: one.kind.filter(|_| same),
        ..Flow::plain()
    }
}

/// PostgreSQL's system columns (src/backend/catalog/heap.c, `SysAtt`).
fn is_system_column(name: &str) -> bool {
    matches!(
        name,
        "ctid" | "oid" | "tableoid" | "xmin" | "xmax" | "cmin" | "cmax"
    )
}

/// The strings in a list of names.
pub(crate) fn names(nodes: &[Node]) -> Vec<&str> {
    nodes
        .iter()
        .filter_map(|node| match node.node.as_ref() {
            Some(NodeEnum::String(text)) => Some(text.sval.as_str()),
            _ => None,
        })
        .collect()
}

/// The integer of a constant.
pub(crate) fn integer(node: &Node) -> Option<i32> {
    match node.node.as_ref()? {
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            a_const::Val::Ival(number) => Some(number.ival),
            _ => None,
        },
        NodeEnum::Integer(number) => Some(number.ival),
        _ => None,
    }
}
