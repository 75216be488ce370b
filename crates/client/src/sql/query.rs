//! The walk over queries: FROM items, subqueries, common table expressions, set operations, and what is stored where.
//!
//! Must not: look into expressions; that is `expr.rs`.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    Alias, Node, RangeFunction, RangeVar, ReturningClause, SelectStmt, SetOperation, WithClause,
};

use super::flow::{Columns, Flow};
use super::resolver::{Cte, Resolver, Source, names};

impl Resolver<'_> {
    /// A statement that may stand in WITH, EXPLAIN, DECLARE CURSOR: its result's columns. `None` for any other.
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

    /// A SELECT, VALUES or set operation.
    pub(crate) fn select(&mut self, select: &mut SelectStmt) -> Columns {
        let visible = self.ctes.len();
        self.with(select.with_clause.as_mut());
        let columns = if select.op() != SetOperation::SetopNone {
            self.set_operation(select)
        } else if !select.values_lists.is_empty() {
            self.values(&mut select.values_lists)
        } else {
            self.simple_select(select)
        };
        self.maybe(select.limit_offset.as_mut());
        self.maybe(select.limit_count.as_mut());
        self.ctes.truncate(visible);
        columns
    }

    fn simple_select(&mut self, select: &mut SelectStmt) -> Columns {
        self.scopes.push(Vec::new());
        self.from(&mut select.from_clause);
        self.maybe(select.where_clause.as_mut());
        let columns = self.targets(&mut select.target_list);
        self.each(&mut select.distinct_clause);
        self.output_names(&columns, |resolver| {
            resolver.each(&mut select.group_clause);
        });
        self.maybe(select.having_clause.as_mut());
        for window in &mut select.window_clause {
            if let Some(NodeEnum::WindowDef(window)) = window.node.as_mut() {
                self.each(&mut window.partition_clause);
                self.each(&mut window.order_clause);
                self.maybe(window.start_offset.as_mut());
                self.maybe(window.end_offset.as_mut());
            }
        }
        self.output_names(&columns, |resolver| {
            resolver.each(&mut select.sort_clause);
        });
        self.scopes.pop();
        columns
    }

    /// ORDER BY and GROUP BY see the result's names too, behind those of FROM.
    fn output_names(&mut self, columns: &Columns, walk: impl FnOnce(&mut Self)) {
        let Some(scope) = self.scopes.pop() else {
            return walk(self);
        };
        let output = Source {
            alias: String::new(),
            columns: columns.clone(),
        };
        self.scopes.push(vec![output]);
        self.scopes.push(scope);
        walk(self);
        let scope = self.scopes.pop().unwrap_or_default();
        self.scopes.pop();
        self.scopes.push(scope);
    }

    fn set_operation(&mut self, select: &mut SelectStmt) -> Columns {
        let left = select
            .larg
            .as_mut()
            .map(|side| self.select(side))
            .unwrap_or_default();
        let right = select
            .rarg
            .as_mut()
            .map(|side| self.select(side))
            .unwrap_or_default();
        let (left, right) = (left.behind(), right.behind());
        let mut columns = Columns {
            named: Vec::new(),
            open: left.open.clone().or_else(|| right.open.clone()),
        };
        for (at, (name, flow)) in left.named.iter().enumerate() {
            let met = self.combine(&[flow.clone(), right.at(at)]);
            columns.named.push((name.clone(), met));
        }
        self.scopes.push(vec![Source {
            alias: String::new(),
            columns: columns.clone(),
        }]);
        self.each(&mut select.sort_clause);
        self.scopes.pop();
        columns
    }

    fn values(&mut self, rows: &mut [Node]) -> Columns {
        let mut columns: Vec<Flow> = Vec::new();
        for row in rows {
            let Some(NodeEnum::List(row)) = row.node.as_mut() else {
                continue;
            };
            for (at, flow) in self.each(&mut row.items).into_iter().enumerate() {
                match columns.get_mut(at) {
                    Some(known) => {
                        let met = [std::mem::take(known), flow.behind()];
                        *known = self.combine(&met);
                    }
                    None => columns.push(flow.behind()),
                }
            }
        }
        let named = columns.into_iter().enumerate();
        let named = named.map(|(at, flow)| (format!("column{}", at.saturating_add(1)), flow));
        Columns {
            named: named.collect(),
            open: None,
        }
    }

    pub(super) fn with(&mut self, with: Option<&mut WithClause>) {
        let Some(with) = with else {
            return;
        };
        for cte in &mut with.ctes {
            let Some(NodeEnum::CommonTableExpr(cte)) = cte.node.as_mut() else {
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
                self.statement(query).unwrap_or_default()
            };
            let columns = columns.behind().renamed(aliases.iter().map(String::as_str));
            self.ctes.push(Cte {
                name: cte.ctename.clone(),
                columns,
            });
        }
    }

    /// A query that may name itself: its first branch says what its columns are, and the second branch sees them.
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
            .behind();
        let own = first.clone().renamed(aliases.iter().map(String::as_str));
        self.ctes.push(Cte {
            name: name.to_owned(),
            columns: own,
        });
        let second = select
            .rarg
            .as_mut()
            .map(|side| self.select(side))
            .unwrap_or_default()
            .behind();
        self.ctes.pop();
        let mut columns = Columns {
            named: Vec::new(),
            open: first.open.clone(),
        };
        for (at, (name, flow)) in first.named.iter().enumerate() {
            let met = self.combine(&[flow.clone(), second.at(at)]);
            columns.named.push((name.clone(), met));
        }
        columns
    }

    /// The items of a FROM or USING clause, into the innermost scope.
    pub(crate) fn from(&mut self, items: &mut [Node]) {
        for item in items {
            self.source(item);
        }
    }

    fn add(&mut self, alias: String, columns: Columns) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(Source { alias, columns });
        }
    }

    pub(super) fn source(&mut self, item: &mut Node) {
        match item.node.as_mut() {
            Some(NodeEnum::RangeVar(range)) => {
                let (alias, columns) = self.range(range);
                self.add(alias, columns);
            }
            Some(NodeEnum::RangeSubselect(sub)) => {
                let Some(query) = sub.subquery.as_mut() else {
                    return;
                };
                // Only LATERAL sees its neighbours.
                let hidden = if sub.lateral { None } else { self.scopes.pop() };
                let columns = self.statement(query).unwrap_or_default().behind();
                self.scopes.extend(hidden);
                let (alias, columns) = aliased(sub.alias.as_ref(), "", columns);
                self.add(alias, columns);
            }
            Some(NodeEnum::RangeFunction(function)) => self.function(function),
            Some(NodeEnum::JoinExpr(join)) => {
                let before = self.scopes.last().map_or(0, Vec::len);
                for side in [join.larg.as_mut(), join.rarg.as_mut()]
                    .into_iter()
                    .flatten()
                {
                    self.source(side);
                }
                self.maybe(join.quals.as_mut());
                if let Some(alias) = &join.alias {
                    self.gather(before, alias);
                }
            }
            Some(NodeEnum::RangeTableSample(sample)) => {
                self.each(&mut sample.args);
                self.maybe(sample.repeatable.as_mut());
                if let Some(relation) = sample.relation.as_mut() {
                    self.source(relation);
                }
            }
            // XMLTABLE, JSON_TABLE: their constants are found by the count.
            _ => self.add(
                String::new(),
                Columns {
                    named: Vec::new(),
                    open: Some(Flow::unknown()),
                },
            ),
        }
    }

    /// `(a JOIN b ..) AS j`: one source with the columns of both.
    fn gather(&mut self, before: usize, alias: &Alias) {
        let Some(scope) = self.scopes.last_mut() else {
            return;
        };
        let mut all = Columns::default();
        for source in scope.split_off(before.min(scope.len())) {
            all.named.extend(source.columns.named);
            all.open = all.open.or(source.columns.open);
        }
        let (alias, columns) = aliased(Some(alias), "", all);
        self.add(alias, columns);
    }

    fn function(&mut self, range: &mut RangeFunction) {
        let mut whole = Flow::plain();
        let mut name = String::new();
        for function in &mut range.functions {
            // Each is a list of the call and its column definitions.
            if let Some(NodeEnum::List(parts)) = function.node.as_mut()
                && let Some(call) = parts.items.first_mut()
            {
                if let Some(NodeEnum::FuncCall(call)) = call.node.as_ref() {
                    name = names(&call.funcname)
                        .last()
                        .copied()
                        .unwrap_or_default()
                        .to_owned();
                }
                let flow = self.expr(call);
                whole.join(&flow);
            }
        }
        let columns = Columns {
            named: Vec::new(),
            open: Some(whole.behind()),
        };
        let (alias, columns) = aliased(range.alias.as_ref(), &name, columns);
        self.add(alias, columns);
    }

    pub(super) fn range(&mut self, range: &RangeVar) -> (String, Columns) {
        let columns = self.relation(&range.schemaname, &range.relname);
        aliased(range.alias.as_ref(), &range.relname, columns)
    }

    /// A target list: the result's columns.
    pub(super) fn targets(&mut self, targets: &mut [Node]) -> Columns {
        let mut columns = Columns::default();
        for target in targets {
            let Some(NodeEnum::ResTarget(target)) = target.node.as_mut() else {
                continue;
            };
            let Some(value) = target.val.as_mut() else {
                continue;
            };
            if let Some(NodeEnum::ColumnRef(column)) = value.node.as_ref()
                && matches!(
                    column.fields.last().and_then(|field| field.node.as_ref()),
                    Some(NodeEnum::AStar(_))
                )
            {
                let all = self.star(names(&column.fields).last().copied());
                columns.named.extend(all.named);
                columns.open = columns.open.or(all.open);
                continue;
            }
            let name = if target.name.is_empty() {
                figured(value)
            } else {
                target.name.clone()
            };
            let flow = self.expr(value);
            columns.named.push((name, flow));
        }
        columns
    }

    pub(super) fn returning(&mut self, clause: Option<&mut ReturningClause>) -> Columns {
        clause
            .map(|clause| self.targets(&mut clause.exprs))
            .unwrap_or_default()
    }
}

/// A source's name and its columns' names as the alias has them.
fn aliased(alias: Option<&Alias>, name: &str, mut columns: Columns) -> (String, Columns) {
    let Some(alias) = alias else {
        return (name.to_owned(), columns);
    };
    let given = names(&alias.colnames);
    // Columns of a function get their names here only.
    if let (true, Some(open)) = (columns.named.is_empty(), columns.open.clone()) {
        columns.named = given
            .iter()
            .map(|name| ((*name).to_owned(), open.clone()))
            .collect();
    }
    (alias.aliasname.clone(), columns.renamed(given.into_iter()))
}

/// The name that PostgreSQL gives a column without one (`parse_target.c`, `FigureColname`), as far as it can be referred to.
fn figured(node: &Node) -> String {
    match node.node.as_ref() {
        Some(NodeEnum::ColumnRef(column)) => names(&column.fields)
            .last()
            .copied()
            .unwrap_or_default()
            .to_owned(),
        Some(NodeEnum::FuncCall(call)) => names(&call.funcname)
            .last()
            .copied()
            .unwrap_or_default()
            .to_owned(),
        Some(NodeEnum::TypeCast(cast)) => {
            let inner = cast
                .arg
                .as_deref()
                .map(figured)
                .filter(|name| name != "?column?");
            let own = || {
                cast.type_name
                    .as_ref()
                    .and_then(|of| names(&of.names).last().map(|name| (*name).to_owned()))
            };
            inner.or_else(own).unwrap_or_default()
        }
        Some(NodeEnum::CollateClause(of)) => of.arg.as_deref().map(figured).unwrap_or_default(),
        Some(NodeEnum::CaseExpr(case)) => {
            let inner = case
                .defresult
                .as_deref()
                .map(figured)
                .filter(|name| name != "?column?");
            inner.unwrap_or_else(|| "case".to_owned())
        }
        Some(NodeEnum::CoalesceExpr(_)) => "coalesce".to_owned(),
        Some(NodeEnum::SubLink(link)) => {
            match link.subselect.as_ref().and_then(|node| node.node.as_ref()) {
                Some(NodeEnum::SelectStmt(select)) => match select
                    .target_list
                    .first()
                    .and_then(|node| node.node.as_ref())
                {
                    Some(NodeEnum::ResTarget(target)) if !target.name.is_empty() => {
                        target.name.clone()
                    }
                    Some(NodeEnum::ResTarget(target)) => {
                        target.val.as_deref().map(figured).unwrap_or_default()
                    }
                    _ => String::new(),
                },
                _ => String::new(),
            }
        }
        _ => "?column?".to_owned(),
    }
}
