//! The resolver's state: scopes, the sites that may have to change, and the rule that marks them.
//!
//! The tree is walked twice by the same code: the first walk meets the sites in order and marks those that flow together with
//! a confidential value; the second meets the same sites in the same order and changes the marked ones.
//! Invariants: a name that is not found counts as confidential; every constant of the tree is met (checked in `mod.rs`).
//! Must not: convert a value.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, a_const};
use strongroom_format::columns::Kind;

use super::catalog::Catalog;
use super::flow::{Carried, Columns, Flow};
use super::fold;
use super::functions;
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
}

/// A place in the statement that may have to be changed.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) kind: SiteKind,
    /// Set when it belongs to a confidential expression.
    pub(crate) form: Option<Form>,
    /// Kind of what it stands beside.
    pub(crate) beside: Option<Kind>,
}

/// One item of a FROM clause.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) alias: String,
    pub(crate) columns: Columns,
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
        self.met = 0;
        self.applying = true;
        self.numbers = numbers;
    }

    /// Meets a site: its number. The first walk keeps what it is.
    pub(crate) fn meet(&mut self, kind: SiteKind) -> usize {
        let site = self.met;
        self.met = self.met.saturating_add(1);
        if !self.applying {
            self.sites.push(Site {
                kind,
                form: None,
                beside: None,
            });
        }
        site
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
        let confidential = flows.iter().any(|flow| flow.confidential);
        let theirs = flows.iter().filter(|flow| flow.confidential);
        let beside = theirs.fold(None, |kind, flow| functions::wider(kind, flow.kind));
        let mut out = Flow::default();
        for flow in flows {
            out.join(flow);
            if confidential {
                self.mark_all(&flow.carried, beside);
            }
        }
        out.kind = flows
            .iter()
            .fold(None, |kind, flow| functions::wider(kind, flow.kind));
        if confidential {
            out.carried.clear();
        }
        out.behind()
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

    fn mark_all(&mut self, carried: &[Carried], beside: Option<Kind>) {
        for carried in carried {
            self.mark(*carried, beside);
        }
    }

    fn mark(&mut self, carried: Carried, beside: Option<Kind>) {
        let Some(site) = self.sites.get_mut(carried.site) else {
            return;
        };
        if site.form.is_some() {
            return;
        }
        site.beside = beside;
        site.form = Some(match &site.kind {
            SiteKind::Parameter(_) => Form::Bare,
            SiteKind::Cast(kind) => match kind {
                Some(kind) => Form::Typed(*kind),
                None => return,
            },
            SiteKind::Constant(literal) => match literal.form(carried.direct, beside) {
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
        let mut all = Columns::default();
        let mut found = false;
        for relation in self.catalog.relations(schema, name) {
            found = true;
            if relation.columns.is_empty() {
                all.open = Some(Flow::plain());
            }
            for column in &relation.columns {
                let flow = match column.kind {
                    Some(kind) => Flow::confidential(Some(kind)),
                    None => Flow::plain(),
                };
                self.touched |= flow.confidential;
                // Of several relations of this name any may be meant: what is confidential in one counts.
                match all
                    .named
                    .iter_mut()
                    .find(|(known, _)| *known == column.name)
                {
                    Some((_, known)) => known.join(&flow),
                    None => all.named.push((column.name.clone(), flow)),
                }
            }
        }
        if !found && schema != "pg_catalog" && schema != "information_schema" {
            self.touched = true;
            self.unknown.push(name.to_owned());
            all.open = Some(Flow::unknown());
        } else if !found {
            all.open = Some(Flow::plain());
        }
        all
    }

    /// What a column reference stands for.
    pub(crate) fn column(&self, names: &[&str]) -> Flow {
        match names {
            [column] => self.unqualified(column),
            [.., source, column] => self.qualified(source, column),
            [] => Flow::unknown(),
        }
    }

    fn unqualified(&self, column: &str) -> Flow {
        for scope in self.scopes.iter().rev() {
            let mut found: Option<Flow> = None;
            for flow in scope
                .iter()
                .filter_map(|source| source.columns.find(column))
            {
                match &mut found {
                    Some(found) => found.join(&flow),
                    None => found = Some(flow),
                }
            }
            if let Some(found) = found {
                return found;
            }
            // The name of a source stands for its whole row.
            if let Some(source) = scope.iter().find(|source| source.alias == column) {
                return source.columns.whole();
            }
            let open = scope
                .iter()
                .filter_map(|source| source.columns.open.as_ref());
            let mut open = open.peekable();
            if open.peek().is_some() {
                return merged(open);
            }
        }
        if is_system_column(column) {
            Flow::plain()
        } else {
            Flow::unknown()
        }
    }

    fn qualified(&self, source: &str, column: &str) -> Flow {
        for scope in self.scopes.iter().rev() {
            let mut named = scope
                .iter()
                .filter(|known| known.alias == source)
                .peekable();
            if named.peek().is_none() {
                continue;
            }
            for source in named {
                if let Some(found) = source
                    .columns
                    .find(column)
                    .or_else(|| source.columns.open.clone())
                {
                    return found;
                }
            }
            break;
        }
        if is_system_column(column) {
            Flow::plain()
        } else {
            Flow::unknown()
        }
    }

    /// Every column in sight of the innermost scope, or of one of its sources: `*`, `t.*`.
    pub(crate) fn star(&self, source: Option<&str>) -> Columns {
        let mut all = Columns::default();
        for known in self.scopes.last().into_iter().flatten() {
            if source.is_some_and(|source| source != known.alias) {
                continue;
            }
            all.named.extend(known.columns.named.iter().cloned());
            all.open = all.open.or_else(|| known.columns.open.clone());
        }
        if all.named.is_empty() && all.open.is_none() {
            all.open = Some(Flow::unknown());
        }
        all
    }
}

fn merged<'f>(flows: impl Iterator<Item = &'f Flow>) -> Flow {
    let mut all = Flow::default();
    for flow in flows {
        all.join(flow);
    }
    all
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
