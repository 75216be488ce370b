//! The walk over queries: their clauses, subqueries, common table expressions, set operations.
//!
//! Must not: look into expressions (`expr.rs`) or FROM clauses (`sources.rs`).

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CommonTableExpr, Node, ReturningClause, SelectStmt, SetOperation, WindowDef, WithClause,
};
use serde_json::Value;

use super::column_name::{UNNAMED, certain_column_name};
use super::flow::{Columns, Flow, Origins};
use super::resolver::{Cte, Resolver, Source};
use super::site::SiteKind;
use super::tree::names;

/// `FRAMEOPTION_RANGE` of src/include/nodes/parsenodes.h.
const FRAME_RANGE: i32 = 2;

impl Resolver<'_> {
    /// Walks a statement that is allowed in WITH, EXPLAIN, DECLARE CURSOR; returns its result's
    /// columns. `None`, without a walk, for any other statement.
    pub(crate) fn statement(&mut self, node: &mut Node) -> Option<Columns> {
        Some(match node.node.as_mut()? {
            NodeEnum::SelectStmt(select) => self.select(select),
            NodeEnum::InsertStmt(insert) => self.insert(insert),
            NodeEnum::UpdateStmt(update) => self.update(update),
            NodeEnum::DeleteStmt(delete) => self.delete(delete),
            NodeEnum::MergeStmt(merge) => self.merge(merge),
            _ => return None,
        })
    }

    /// Walks a SELECT, VALUES or set operation; returns its result's columns.
    pub(crate) fn select(&mut self, select: &mut SelectStmt) -> Columns {
        let visible = self.ctes.len();
        self.with_clause(select.with_clause.as_mut());
        let columns = if select.op() != SetOperation::SetopNone {
            self.set_operation(select)
        } else if !select.values_lists.is_empty() {
            self.values(&mut select.values_lists)
        } else {
            self.simple_select(select)
        };
        self.optional_expr(select.limit_offset.as_mut());
        self.optional_expr(select.limit_count.as_mut());
        self.ctes.truncate(visible);
        columns
    }

    /// Walks a query the names of whose columns nobody sees, as [`Self::select`] does, and takes
    /// those away that the second walk has given.
    pub(super) fn unnamed_select(&mut self, select: &mut SelectStmt) -> Columns {
        let is_named = |target: &Node| match target.node.as_ref() {
            Some(NodeEnum::ResTarget(target)) => !target.name.is_empty(),
            _ => true,
        };
        let named: Vec<bool> = select.target_list.iter().map(is_named).collect();
        let columns = self.select(select);
        // The query's own clauses can refer to its columns by their names.
        let refers = !select.sort_clause.is_empty()
            || !select.group_clause.is_empty()
            || !select.distinct_clause.is_empty();
        for (target, named) in select.target_list.iter_mut().zip(named) {
            if let Some(NodeEnum::ResTarget(target)) = target.node.as_mut()
                && !named
                && !refers
            {
                target.name.clear();
            }
        }
        columns
    }

    /// Walks a SELECT that is neither VALUES nor a set operation, in a scope of its own; returns
    /// its result's columns.
    fn simple_select(&mut self, select: &mut SelectStmt) -> Columns {
        self.scopes.push(Vec::new());
        self.sources(&mut select.from_clause);
        self.condition(select.where_clause.as_mut());
        let windows = std::mem::take(&mut self.windows);
        for window in &mut select.window_clause {
            if let Some(NodeEnum::WindowDef(window)) = window.node.as_mut() {
                let order = self.window(window);
                self.windows.push((window.name.clone(), order));
            }
        }
        let columns = self.targets(&mut select.target_list);
        self.exprs(&mut select.distinct_clause);
        self.output_names(&columns, |resolver| {
            resolver.exprs(&mut select.group_clause);
        });
        self.condition(select.having_clause.as_mut());
        self.output_names(&columns, |resolver| {
            resolver.exprs(&mut select.sort_clause);
        });
        self.windows = windows;
        self.scopes.pop();
        columns
    }

    /// Walks a window; returns what is known of the values that its rows are ordered by, with which
    /// the offsets of RANGE are combined.
    pub(super) fn window(&mut self, window: &mut WindowDef) -> Flow {
        self.exprs(&mut window.partition_clause);
        let mut order = Flow::plain();
        for flow in self.exprs(&mut window.order_clause) {
            order.kind = order.kind.or(flow.kind);
            order.join(&flow);
        }
        if window.order_clause.is_empty() && !window.refname.is_empty() {
            let of = self
                .windows
                .iter()
                .find(|(name, _)| *name == window.refname);
            order = of.map_or_else(Flow::unknown, |(_, order)| order.clone());
        }
        let by_value = window.frame_options & FRAME_RANGE != 0;
        for offset in [window.start_offset.as_mut(), window.end_offset.as_mut()] {
            let Some(offset) = offset else {
                continue;
            };
            let flow = self.expr(offset);
            if by_value {
                self.combine(&[order.clone(), flow]);
            }
        }
        order
    }

    /// Calls `walk`, which walks ORDER BY or GROUP BY, in a scope that also has the names of the
    /// result's columns; those of FROM come first.
    fn output_names(&mut self, columns: &Columns, walk: impl FnOnce(&mut Self)) {
        let Some(scope) = self.scopes.pop() else {
            return walk(self);
        };
        let output = Source::new(String::new(), columns.clone());
        self.scopes.push(vec![output]);
        self.scopes.push(scope);
        walk(self);
        let scope = self.scopes.pop().unwrap_or_default();
        self.scopes.pop();
        self.scopes.push(scope);
    }

    /// Walks both sides of UNION, INTERSECT or EXCEPT, and its ORDER BY; returns the result's
    /// columns.
    fn set_operation(&mut self, select: &mut SelectStmt) -> Columns {
        let left = select
            .larg
            .as_mut()
            .map(|side| self.select(side))
            .unwrap_or_default();
        let right = select
            .rarg
            .as_mut()
            .map(|side| self.unnamed_select(side))
            .unwrap_or_default();
        let columns = self.merged(&left.indirect(), &right.indirect());
        self.scopes
            .push(vec![Source::new(String::new(), columns.clone())]);
        self.exprs(&mut select.sort_clause);
        self.scopes.pop();
        columns
    }

    /// Returns the columns of a set operation, and combines those of both sides, position by
    /// position.
    fn merged(&mut self, left: &Columns, right: &Columns) -> Columns {
        let open = match (&left.open, &right.open) {
            (None, None) => None,
            _ => Some(self.combine(&[left.whole(), right.whole()])),
        };
        let mut columns = Columns {
            named: Vec::new(),
            open,
            certain: left.certain.filter(|_| left.places.is_none()),
            told_from: left.told_from.into_iter().chain(right.told_from).min(),
            ..Columns::default()
        };
        for at in 0..left.len().max(right.len()) {
            let met = self.choose(&[left.at(at), right.at(at)]);
            // Beyond the left side's known columns the names are not known.
            let name = left
                .named
                .get(at)
                .map(|(name, _)| name.clone())
                .unwrap_or_default();
            columns.named.push((name, met));
        }
        columns
    }

    /// Walks the rows of VALUES and combines them column by column; returns the columns, `column1`
    /// and so on.
    fn values(&mut self, rows: &mut [Node]) -> Columns {
        let mut columns: Vec<Flow> = Vec::new();
        for row in rows {
            let Some(NodeEnum::List(row)) = row.node.as_mut() else {
                continue;
            };
            for (at, flow) in self.exprs(&mut row.items).into_iter().enumerate() {
                match columns.get_mut(at) {
                    Some(known) => {
                        let met = [std::mem::take(known), flow.indirect()];
                        *known = self.choose(&met);
                    }
                    None => columns.push(flow.indirect()),
                }
            }
        }
        let named = columns.into_iter().enumerate();
        let named = named.map(|(at, mut flow)| {
            let name = format!("column{}", at.saturating_add(1));
            flow.label = Some(name.clone());
            (name, flow)
        });
        Columns {
            named: named.collect(),
            ..Columns::default()
        }
    }

    /// Walks the common table expressions of WITH in order and adds each to those in scope. The
    /// caller removes them.
    pub(super) fn with_clause(&mut self, with: Option<&mut WithClause>) {
        let Some(with) = with else {
            return;
        };
        if with.recursive {
            // Each may name later ones, which are not known yet.
            for cte in &with.ctes {
                if let Some(NodeEnum::CommonTableExpr(cte)) = cte.node.as_ref() {
                    self.ctes.push(Cte {
                        name: cte.ctename.clone(),
                        columns: Columns::open(Flow::unknown()),
                    });
                }
            }
        }
        for at in walking_order(with) {
            let Some(NodeEnum::CommonTableExpr(cte)) =
                with.ctes.get_mut(at).and_then(|cte| cte.node.as_mut())
            else {
                continue;
            };
            let aliases: Vec<String> = names(&cte.aliascolnames)
                .into_iter()
                .map(str::to_owned)
                .collect();
            let Some(query) = cte.ctequery.as_mut() else {
                continue;
            };
            let columns = if with.recursive {
                self.recursive(&cte.ctename, &aliases, query)
            } else {
                match query.node.as_mut() {
                    Some(NodeEnum::SelectStmt(select)) if names_all(&aliases, select) => {
                        self.unnamed_select(select)
                    }
                    _ => self.statement(query).unwrap_or_default(),
                }
            };
            let mut columns = columns
                .indirect()
                .renamed(aliases.iter().map(String::as_str));
            self.search_and_cycle(cte, &mut columns);
            self.ctes.push(Cte {
                name: cte.ctename.clone(),
                columns,
            });
        }
    }

    /// Adds the columns of SEARCH and CYCLE to those of a common table expression: the order and
    /// the path are rows of its columns, and the mark is one of two constants.
    fn search_and_cycle(&mut self, cte: &mut CommonTableExpr, columns: &mut Columns) {
        let row = columns.whole();
        if let Some(search) = &cte.search_clause {
            let name = search.search_seq_column.clone();
            columns.named.push((name, row.clone()));
        }
        if let Some(cycle) = &mut cte.cycle_clause {
            let value = self.optional_expr(cycle.cycle_mark_value.as_mut());
            let default = self.optional_expr(cycle.cycle_mark_default.as_mut());
            let mark = self.choose(&[value, default]).indirect();
            columns.named.push((cycle.cycle_mark_column.clone(), mark));
            columns.named.push((cycle.cycle_path_column.clone(), row));
        }
    }

    /// Walks a query that may name itself: its first branch determines its columns, and the second
    /// branch sees them. Returns its result's columns.
    fn recursive(&mut self, name: &str, aliases: &[String], query: &mut Node) -> Columns {
        let Some(NodeEnum::SelectStmt(select)) = query.node.as_mut() else {
            return self.statement(query).unwrap_or_default();
        };
        if select.op() == SetOperation::SetopNone || select.with_clause.is_some() {
            return self.select(select);
        }
        let first = select
            .larg
            .as_mut()
            .map(|side| self.select(side))
            .unwrap_or_default()
            .indirect();
        // The result of the second branch becomes the column: both are combined with the same
        // values.
        let mut linked = first;
        for (_, flow) in &mut linked.named {
            let link = self.visit_site(SiteKind::RecursiveColumn);
            flow.join(&Flow::site(link, None));
            self.merge_flow(flow);
        }
        if let Some(open) = &mut linked.open {
            let link = self.visit_site(SiteKind::RecursiveColumn);
            open.join(&Flow::site(link, None));
            self.merge_flow(open);
        }
        let linked = linked.indirect();
        let own = linked.clone().renamed(aliases.iter().map(String::as_str));
        self.ctes.push(Cte {
            name: name.to_owned(),
            columns: own,
        });
        let second = select
            .rarg
            .as_mut()
            .map(|side| self.unnamed_select(side))
            .unwrap_or_default()
            .indirect();
        self.ctes.pop();
        self.exprs(&mut select.sort_clause);
        self.optional_expr(select.limit_offset.as_mut());
        self.optional_expr(select.limit_count.as_mut());
        self.merged(&linked, &second)
    }

    /// Walks a target list; returns the result's columns, `*` expanded as far as its columns are
    /// known.
    pub(super) fn targets(&mut self, targets: &mut [Node]) -> Columns {
        let mut columns = Columns::default();
        for target in targets {
            let Some(NodeEnum::ResTarget(target)) = target.node.as_mut() else {
                continue;
            };
            let Some(value) = target.val.as_mut() else {
                continue;
            };
            match value.node.as_mut() {
                Some(NodeEnum::ColumnRef(column)) if is_star(column.fields.last()) => {
                    columns.splice(self.star(&names(&column.fields)));
                    continue;
                }
                // The fields of a row.
                Some(NodeEnum::AIndirection(of)) if is_star(of.indirection.last()) => {
                    let flow = self.expr(value);
                    columns.splice(Columns::open(flow));
                    continue;
                }
                _ => {}
            }
            let given = certain_column_name(value);
            let label = match target.name.as_str() {
                "" => given.clone(),
                name => Some(name.to_owned()),
            };
            let name = label.clone().unwrap_or_else(|| UNNAMED.to_owned());
            let mut flow = self.expr(value);
            flow.label = label;
            // What has been changed would have another name. Here it keeps the one that the client,
            // a query around this one, and ORDER BY know it by.
            if self.applying && target.name.is_empty() && certain_column_name(value) != given {
                let known = given.or_else(|| flow.label.clone());
                target.name = known.unwrap_or_default();
            }
            columns.named.push((name, flow));
        }
        columns
    }

    /// Walks RETURNING; returns its columns, none without the clause.
    ///
    /// What a row has just got is shown as it came: constants, and what a trigger has put there.
    pub(super) fn returning(&mut self, clause: Option<&mut ReturningClause>) -> Columns {
        let mut columns = clause
            .map(|clause| self.targets(&mut clause.exprs))
            .unwrap_or_default();
        for (_, flow) in &mut columns.named {
            flow.origins = flow.origins.take().map(|_| Origins::Any);
        }
        columns
    }
}

/// Returns whether these are names for all columns of a query.
fn names_all(aliases: &[String], select: &SelectStmt) -> bool {
    let is_one = |target: &Node| match target.node.as_ref() {
        Some(NodeEnum::ResTarget(target)) => {
            match target.val.as_ref().and_then(|it| it.node.as_ref()) {
                Some(NodeEnum::ColumnRef(column)) => !is_star(column.fields.last()),
                Some(NodeEnum::AIndirection(of)) => !is_star(of.indirection.last()),
                _ => true,
            }
        }
        _ => false,
    };
    aliases.len() >= select.target_list.len() && select.target_list.iter().all(is_one)
}

/// Returns whether the node is `*`.
pub(super) fn is_star(node: Option<&Node>) -> bool {
    matches!(
        node.and_then(|node| node.node.as_ref()),
        Some(NodeEnum::AStar(_))
    )
}

/// Returns the places of the expressions of WITH in an order in which each follows those that it
/// names, as far as there is one: WITH RECURSIVE may name later ones.
fn walking_order(with: &WithClause) -> Vec<usize> {
    if !with.recursive || with.ctes.len() < 2 {
        return (0..with.ctes.len()).collect();
    }
    let named: Vec<(String, BTreeSet<String>)> = with
        .ctes
        .iter()
        .map(|cte| match cte.node.as_ref() {
            Some(NodeEnum::CommonTableExpr(cte)) => {
                let query = serde_json::to_value(&cte.ctequery).unwrap_or_default();
                let mut relations = BTreeSet::new();
                relation_names(&query, &mut relations);
                relations.remove(&cte.ctename);
                (cte.ctename.clone(), relations)
            }
            _ => (String::new(), BTreeSet::new()),
        })
        .collect();
    let mut order: Vec<usize> = Vec::new();
    while order.len() < named.len() {
        let left: Vec<usize> = (0..named.len()).filter(|at| !order.contains(at)).collect();
        let waits = |at: &usize| {
            let needs = named.get(*at).map(|(_, needs)| needs);
            left.iter().any(|other| {
                let name = named.get(*other).map(|(name, _)| name);
                other != at && name.is_some_and(|name| needs.is_some_and(|all| all.contains(name)))
            })
        };
        let next = left.iter().find(|at| !waits(at)).or_else(|| left.first());
        order.extend(next);
    }
    order
}

/// Adds the names of all relations in a part of the parse tree.
fn relation_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| relation_names(item, names)),
        Value::Object(fields) => {
            for (field, value) in fields {
                match (field.as_str(), value) {
                    ("relname", Value::String(name)) => drop(names.insert(name.clone())),
                    _ => relation_names(value, names),
                }
            }
        }
        _ => {}
    }
}
