//! The walk over FROM clauses: which columns each source has, as far as that is known.
//!
//! Must not: take a source for one whose columns are known unless they are.

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, JoinExpr, Node, RangeFunction, RangeTableFunc, RangeVar};

use super::flow::{Columns, Flow};
use super::functions;
use super::resolver::{Resolver, Source};
use super::tree::names;

impl Resolver<'_> {
    /// Walks the items of a FROM or USING clause, and adds each with its columns to the innermost
    /// scope.
    pub(crate) fn sources(&mut self, items: &mut [Node]) {
        for item in items {
            self.source(item);
        }
    }

    /// Adds an item with this alias and these columns to the innermost scope, if there is one.
    fn add(&mut self, alias: String, columns: Columns) {
        self.add_source(Source::new(alias, columns));
    }

    /// Adds an item to the innermost scope, if there is one.
    fn add_source(&mut self, source: Source) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(source);
        }
    }

    /// Walks one item of a FROM clause with the expressions in it, and adds it with its columns to
    /// the innermost scope. The columns of an item of a sort that is not known count as
    /// confidential.
    pub(super) fn source(&mut self, item: &mut Node) {
        match item.node.as_mut() {
            Some(NodeEnum::RangeVar(range)) => {
                let is_cte = range.schemaname.is_empty()
                    && self.ctes.iter().any(|cte| cte.name == range.relname);
                let (alias, columns) = self.range(range);
                self.add_source(match is_cte {
                    true => Source::new(alias, columns),
                    false => Source::of_relation(range, alias, columns),
                });
            }
            Some(NodeEnum::RangeSubselect(sub)) => {
                let Some(query) = sub.subquery.as_mut() else {
                    return;
                };
                // Only LATERAL sees its neighbours.
                let hidden = if sub.lateral { None } else { self.scopes.pop() };
                let columns = self.statement(query).unwrap_or_default().indirect();
                self.scopes.extend(hidden);
                let (alias, columns) = aliased(sub.alias.as_ref(), "", columns);
                self.add(alias, columns);
            }
            Some(NodeEnum::RangeFunction(function)) => self.function(function),
            Some(NodeEnum::JoinExpr(join)) => self.join(join),
            Some(NodeEnum::RangeTableSample(sample)) => {
                self.exprs(&mut sample.args);
                self.optional_expr(sample.repeatable.as_mut());
                if let Some(relation) = sample.relation.as_mut() {
                    self.source(relation);
                }
            }
            Some(NodeEnum::RangeTableFunc(table)) => self.xml_table(table),
            // JSON_TABLE: its constants are found by the count.
            _ => {
                self.touched |= self.may_be_a_call_in_15(item);
                self.add(String::new(), Columns::open(Flow::unknown()));
            }
        }
    }

    /// Walks XMLTABLE and adds its columns, each of which is made from the document and from all
    /// that tells how to read it, to the innermost scope.
    fn xml_table(&mut self, table: &mut RangeTableFunc) {
        let mut flows = self.exprs(&mut table.namespaces);
        flows.push(self.optional_expr(table.docexpr.as_mut()));
        flows.push(self.optional_expr(table.rowexpr.as_mut()));
        for column in &mut table.columns {
            if let Some(NodeEnum::RangeTableFuncCol(column)) = column.node.as_mut() {
                flows.push(self.optional_expr(column.colexpr.as_mut()));
                flows.push(self.optional_expr(column.coldefexpr.as_mut()));
            }
        }
        let made = self.combine(&flows).indirect();
        let mut columns = Columns::default();
        for column in &table.columns {
            if let Some(NodeEnum::RangeTableFuncCol(column)) = column.node.as_ref() {
                let flow = match column.for_ordinality {
                    true => Flow::plain(),
                    false => made.clone(),
                };
                columns.named.push((column.colname.clone(), flow));
            }
        }
        let (alias, columns) = aliased(table.alias.as_ref(), "xmltable", columns);
        self.add(alias, columns);
    }

    /// Walks a join and adds its two sides to the innermost scope. USING and NATURAL compare
    /// columns by name, and put them once, before the others, into `*`. A join with an alias
    /// becomes one item.
    fn join(&mut self, join: &mut JoinExpr) {
        let before = self.scopes.last().map_or(0, Vec::len);
        let mut sides = Vec::new();
        for side in [join.larg.as_mut(), join.rarg.as_mut()] {
            let from = self.scopes.last().map_or(0, Vec::len);
            if let Some(side) = side {
                self.source(side);
            }
            sides.push(self.visible(from));
        }
        self.condition(join.quals.as_mut());
        let using = names(&join.using_clause);
        if let ([left, right], true) = (sides.as_slice(), join.is_natural || !using.is_empty()) {
            let columns = self.joined(left, right, join.is_natural.then_some(()).ok_or(&using[..]));
            if let Some(scope) = self.scopes.last_mut() {
                for source in scope.iter_mut().skip(before) {
                    source.in_join = true;
                }
            }
            let alias = join.join_using_alias.as_ref();
            let name = alias.map(|alias| alias.aliasname.clone());
            self.add(name.unwrap_or_default(), columns);
        }
        if let Some(alias) = &join.alias {
            let all = self.visible(before);
            if let Some(scope) = self.scopes.last_mut() {
                scope.truncate(before);
            }
            let (alias, columns) = aliased(Some(alias), "", all);
            self.add(alias, columns);
        }
    }

    /// Returns the columns that `*` has of the items of the innermost scope from this one on.
    fn visible(&self, from: usize) -> Columns {
        let mut all = Columns::default();
        let scope = self.scopes.last().map_or(&[][..], Vec::as_slice);
        for source in scope.iter().skip(from).filter(|source| !source.in_join) {
            all.splice(source.columns.clone());
        }
        all
    }

    /// Returns the columns of a join with USING (`Err` with the names) or NATURAL (`Ok`), and
    /// records that the columns of the same name are compared.
    fn joined(&mut self, left: &Columns, right: &Columns, by: Result<(), &[&str]>) -> Columns {
        let all_known = left.open.is_none() && right.open.is_none();
        let common: Vec<String> = match by {
            Err(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            // A side whose columns are not all known may have any name of the other's.
            Ok(()) => {
                let both = left.named.iter().chain(&right.named);
                let shared = both.map(|(name, _)| name).filter(|name| {
                    left.find_or_open(name).is_some() && right.find_or_open(name).is_some()
                });
                let mut shared: Vec<String> = shared.cloned().collect();
                let mut seen = std::collections::BTreeSet::new();
                shared.retain(|name| seen.insert(name.clone()));
                shared
            }
        };
        let mut columns = Columns {
            certain: (!all_known).then_some(0),
            told_from: left.told_from.or(right.told_from).map(|_| 0),
            ..Columns::default()
        };
        for name in &common {
            let flows = [left, right].map(|side| {
                side.find_or_open(name)
                    .unwrap_or_else(Flow::unknown)
                    .indirect()
            });
            self.compare_all(&flows);
            let mut met = self.choose(&flows);
            met.label = Some(name.clone());
            columns.named.push((name.clone(), met));
        }
        if !all_known && matches!(by, Ok(())) {
            self.combine(&[left.whole(), right.whole()]);
        }
        for side in [left, right] {
            let rest = side.named.iter().filter(|(name, _)| !common.contains(name));
            columns.named.extend(rest.cloned());
            if let Some(open) = &side.open {
                match &mut columns.open {
                    Some(known) => known.join(open),
                    None => columns.open = Some(open.clone()),
                }
            }
            // Moved columns before it move these as well.
            if side.certain.is_some() {
                columns.certain = Some(0);
            }
        }
        columns
    }

    /// Walks functions that are called in FROM, and adds their columns to the innermost scope.
    /// Without a list of columns their number and names are unknown, but for functions with one
    /// column of scalars.
    fn function(&mut self, range: &mut RangeFunction) {
        let mut columns = Columns::default();
        let mut name = String::new();
        let single = range.functions.len() == 1;
        for function in &mut range.functions {
            // Each is a list of the call and its column definitions.
            let Some(NodeEnum::List(parts)) = function.node.as_mut() else {
                columns.splice(Columns::open(Flow::unknown()));
                continue;
            };
            let mut definitions = std::mem::take(&mut range.coldeflist);
            if let Some(NodeEnum::List(own)) =
                parts.items.get_mut(1).and_then(|it| it.node.as_mut())
            {
                definitions.clone_from(&own.items);
            }
            let Some(call) = parts.items.first_mut() else {
                continue;
            };
            let called = called_names(call);
            name = called.last().copied().unwrap_or_default().to_owned();
            let known = self.is_known_function(&called);
            let one = known && gives_one_column(call);
            if definitions.is_empty()
                && known
                && let Some(arrays) = several_arrays(call)
            {
                // `unnest` of several arrays: each is a column, and none meets another.
                for flow in self.exprs(arrays) {
                    columns.named.push((name.clone(), flow.indirect()));
                }
                range.coldeflist = definitions;
                continue;
            }
            let flow = self.expr(call).indirect();
            if !definitions.is_empty() {
                columns.splice(self.defined_columns(&definitions, &flow));
            } else if one && single {
                let named = range.alias.as_ref().map_or(&name, |alias| &alias.aliasname);
                columns.named.push((named.clone(), flow));
            } else {
                columns.splice(Columns::open(flow));
            }
            range.coldeflist = definitions;
        }
        if range.ordinality && columns.open.is_none() && columns.certain.is_none() {
            columns.named.push(("ordinality".to_owned(), Flow::plain()));
        }
        let (alias, columns) = aliased(range.alias.as_ref(), &name, columns);
        self.add(alias, columns);
    }

    /// Returns the columns of a list such as `AS t(a int, b enc_text)`. What flows into the
    /// function flows into each column.
    fn defined_columns(&mut self, definitions: &[Node], flow: &Flow) -> Columns {
        let mut columns = Columns::default();
        for definition in definitions {
            let Some(NodeEnum::ColumnDef(column)) = definition.node.as_ref() else {
                continue;
            };
            let (name, own) = super::table::column_from_definition(self.catalog, column);
            self.touched |= own.confidential;
            self.assign(&own, flow);
            let flow = if own.confidential { own } else { flow.clone() };
            columns.named.push((name, flow));
        }
        columns
    }

    /// Adds a relation under an alias, or under its own name if the alias is empty, to the
    /// innermost scope, which is made if there is none. Does nothing for `None`.
    pub(super) fn add_relation(&mut self, range: Option<&RangeVar>, alias: &str) {
        let Some(range) = range else {
            return;
        };
        let columns = self.relation(&range.schemaname, &range.relname);
        if self.scopes.is_empty() {
            self.scopes.push(Vec::new());
        }
        self.add_source(match alias {
            "" => Source::of_relation(range, range.relname.clone(), columns),
            alias => Source::new(alias.to_owned(), columns),
        });
    }

    /// Returns alias and columns of a relation that is named in FROM.
    pub(super) fn range(&mut self, range: &RangeVar) -> (String, Columns) {
        let columns = self.relation(&range.schemaname, &range.relname);
        aliased(range.alias.as_ref(), &range.relname, columns)
    }
}

/// Returns the item's name and columns as its alias renames them; without an alias, `name` and the
/// columns as they are.
fn aliased(alias: Option<&Alias>, name: &str, columns: Columns) -> (String, Columns) {
    let Some(alias) = alias else {
        return (name.to_owned(), columns);
    };
    let given = names(&alias.colnames);
    (alias.aliasname.clone(), columns.renamed(given.into_iter()))
}

/// Returns the parts of the name of the function that is called; none if it is no call.
fn called_names(call: &Node) -> Vec<&str> {
    match call.node.as_ref() {
        Some(NodeEnum::FuncCall(call)) => names(&call.funcname),
        _ => Vec::new(),
    }
}

/// Returns the arguments of a call of `unnest` with several arrays of scalars, each of which makes
/// a column; `None` for every other call.
fn several_arrays(call: &mut Node) -> Option<&mut [Node]> {
    let Some(NodeEnum::FuncCall(call)) = call.node.as_mut() else {
        return None;
    };
    let unnest = matches!(
        names(&call.funcname).as_slice(),
        ["unnest"] | ["pg_catalog", "unnest"]
    );
    // The array of a parameter has the type that the client declares, and the server checks it.
    let scalars =
        |array: &Node| has_scalars(array) || matches!(array.node, Some(NodeEnum::ParamRef(_)));
    let several = call.args.len() > 1 && call.args.iter().all(scalars);
    (unnest && several).then_some(call.args.as_mut_slice())
}

/// Returns whether the array is seen to have elements that are scalars, not rows.
fn has_scalars(array: &Node) -> bool {
    match array.node.as_ref() {
        Some(NodeEnum::AArrayExpr(array)) => !array
            .elements
            .iter()
            .any(|element| matches!(element.node, Some(NodeEnum::RowExpr(_)))),
        Some(NodeEnum::TypeCast(cast)) => cast
            .type_name
            .as_ref()
            .and_then(|of| names(&of.names).last().copied())
            .is_some_and(functions::is_scalar_type),
        _ => false,
    }
}

/// Returns whether the call returns one column of scalars, which has the call's alias as its name.
fn gives_one_column(call: &Node) -> bool {
    let Some(NodeEnum::FuncCall(call)) = call.node.as_ref() else {
        return false;
    };
    match (names(&call.funcname).last().copied(), call.args.as_slice()) {
        (Some("unnest"), [array]) => has_scalars(array),
        (Some(name), _) => functions::gives_one_column(name),
        _ => false,
    }
}
