//! The walk over statements that store: which value goes into which column.
//!
//! Must not: look into expressions; that is `expr.rs`.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    DeleteStmt, InsertStmt, MergeStmt, Node, OnConflictClause, RangeVar, SelectStmt, SetOperation,
    UpdateStmt,
};

use super::flow::{Columns, Flow};
use super::resolver::{Resolver, Source};

impl Resolver<'_> {
    /// Walks an INSERT: what is inserted flows into the columns. Returns the columns of RETURNING.
    pub(super) fn insert(&mut self, insert: &mut InsertStmt) -> Columns {
        let visible = self.ctes.len();
        self.with_clause(insert.with_clause.as_mut());
        let range = insert.relation.clone().unwrap_or_default();
        let (alias, target) = self.target(&range);
        let chosen = Chosen::of(&insert.cols, &target);
        if let Some(NodeEnum::SelectStmt(select)) = insert
            .select_stmt
            .as_mut()
            .and_then(|node| node.node.as_mut())
        {
            self.store(select, &chosen);
        }
        self.scopes
            .push(vec![Source::of_relation(&range, alias, target.clone())]);
        if let Some(clause) = insert.on_conflict_clause.as_mut() {
            self.on_conflict(clause, &target);
        }
        let columns = self.returning(insert.returning_clause.as_mut());
        self.scopes.pop();
        self.ctes.truncate(visible);
        columns
    }

    /// Returns alias and columns of the relation that a statement changes, comparable ones marked
    /// as such. A common table expression of the same name is not meant.
    pub(super) fn target(&mut self, range: &RangeVar) -> (String, Columns) {
        let hidden = std::mem::take(&mut self.ctes);
        let (alias, mut columns) = self.range(range);
        self.ctes = hidden;
        let comparable = self
            .catalog
            .comparable_columns(&range.schemaname, &range.relname);
        for (name, column) in comparable {
            let mut named = columns.named.iter_mut();
            if let Some((_, flow)) = named.find(|(known, _)| *known == name) {
                flow.comparable = Some(column);
            }
        }
        (alias, columns)
    }

    /// Walks the rows that an INSERT stores and records which value flows into which column. VALUES
    /// is taken value by value, so that an untyped constant flows directly into its column.
    fn store(&mut self, select: &mut SelectStmt, chosen: &Chosen) {
        if select.values_lists.is_empty() || select.with_clause.is_some() {
            let columns = self.unnamed_select(select);
            let columns = if select.op() == SetOperation::SetopNone {
                columns.indirect()
            } else {
                columns
            };
            let open = columns.open.is_some();
            let len = if open || columns.may_hold_another(usize::MAX) {
                columns.len().max(chosen.columns.len())
            } else {
                columns.len()
            };
            for at in 0..len {
                self.assign(&chosen.at(at), &columns.at(at));
            }
            // Any number of columns more.
            if open {
                self.assign(&chosen.at(len), &columns.whole());
            }
            return;
        }
        for row in &mut select.values_lists {
            if let Some(NodeEnum::List(row)) = row.node.as_mut() {
                for (at, value) in row.items.iter_mut().enumerate() {
                    let flow = self.expr(value);
                    self.assign(&chosen.at(at), &flow);
                }
            }
        }
        self.optional_expr(select.limit_offset.as_mut());
        self.optional_expr(select.limit_count.as_mut());
        self.exprs(&mut select.sort_clause);
    }

    /// Walks ON CONFLICT. Its SET and WHERE also see the row that was not inserted, as `excluded`.
    fn on_conflict(&mut self, clause: &mut OnConflictClause, target: &Columns) {
        if let Some(infer) = clause.infer.as_mut() {
            for element in &mut infer.index_elems {
                if let Some(NodeEnum::IndexElem(element)) = element.node.as_mut() {
                    self.optional_expr(element.expr.as_mut());
                }
            }
            self.optional_expr(infer.where_clause.as_mut());
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(Source::new("excluded".to_owned(), target.clone()));
        }
        self.set(&mut clause.target_list, target);
        self.condition(clause.where_clause.as_mut());
        if let Some(scope) = self.scopes.last_mut() {
            scope.pop();
        }
    }

    /// Walks `SET a = .., (b, c) = ..` and records which value flows into which column of the
    /// relation.
    fn set(&mut self, targets: &mut [Node], relation: &Columns) {
        let mut source = Flow::unknown();
        for target in targets {
            let Some(NodeEnum::ResTarget(target)) = target.node.as_mut() else {
                continue;
            };
            let column = relation
                .find_or_open(&target.name)
                .unwrap_or_else(Flow::unknown);
            let Some(value) = target.val.as_mut() else {
                continue;
            };
            let flow = match value.node.as_mut() {
                // The source stands in the tree once for each column; the first one is what is
                // written back.
                Some(NodeEnum::MultiAssignRef(part)) => {
                    if part.colno == 1 {
                        source = self.optional_expr(part.source.as_mut());
                    }
                    let at = usize::try_from(part.colno).unwrap_or(1).saturating_sub(1);
                    // Without known fields any of it may be this one.
                    match &source.row {
                        Some(row) => row.get(at).cloned().unwrap_or_else(Flow::unknown),
                        None => source.clone(),
                    }
                }
                _ => self.expr(value),
            };
            self.assign(&column, &flow);
        }
    }

    /// Walks an UPDATE: the values of SET flow into the columns. Returns the columns of RETURNING.
    pub(super) fn update(&mut self, update: &mut UpdateStmt) -> Columns {
        let visible = self.ctes.len();
        self.with_clause(update.with_clause.as_mut());
        let range = update.relation.clone().unwrap_or_default();
        let (alias, target) = self.target(&range);
        self.scopes
            .push(vec![Source::of_relation(&range, alias, target.clone())]);
        self.sources(&mut update.from_clause);
        self.set(&mut update.target_list, &target);
        self.condition(update.where_clause.as_mut());
        let columns = self.returning(update.returning_clause.as_mut());
        self.scopes.pop();
        self.ctes.truncate(visible);
        columns
    }

    /// Walks a DELETE; returns the columns of RETURNING.
    pub(super) fn delete(&mut self, delete: &mut DeleteStmt) -> Columns {
        let visible = self.ctes.len();
        self.with_clause(delete.with_clause.as_mut());
        let range = delete.relation.clone().unwrap_or_default();
        let (alias, target) = self.target(&range);
        self.scopes
            .push(vec![Source::of_relation(&range, alias, target)]);
        self.sources(&mut delete.using_clause);
        self.condition(delete.where_clause.as_mut());
        let columns = self.returning(delete.returning_clause.as_mut());
        self.scopes.pop();
        self.ctes.truncate(visible);
        columns
    }

    /// Walks a MERGE: the values of its SET and INSERT flow into the columns. Returns the columns
    /// of RETURNING.
    pub(super) fn merge(&mut self, merge: &mut MergeStmt) -> Columns {
        let visible = self.ctes.len();
        self.with_clause(merge.with_clause.as_mut());
        let range = merge.relation.clone().unwrap_or_default();
        let (alias, target) = self.target(&range);
        self.scopes
            .push(vec![Source::of_relation(&range, alias, target.clone())]);
        if let Some(source) = merge.source_relation.as_mut() {
            self.source(source);
        }
        self.condition(merge.join_condition.as_mut());
        for clause in &mut merge.merge_when_clauses {
            let Some(NodeEnum::MergeWhenClause(clause)) = clause.node.as_mut() else {
                continue;
            };
            self.condition(clause.condition.as_mut());
            if clause.values.is_empty() {
                self.set(&mut clause.target_list, &target);
                continue;
            }
            let chosen = Chosen::of(&clause.target_list, &target);
            for (at, value) in clause.values.iter_mut().enumerate() {
                let flow = self.expr(value);
                self.assign(&chosen.at(at), &flow);
            }
        }
        let columns = self.returning(merge.returning_clause.as_mut());
        self.scopes.pop();
        self.ctes.truncate(visible);
        columns
    }
}

/// The columns that an INSERT fills, in order.
struct Chosen {
    columns: Vec<Flow>,
    open: Option<Flow>,
}

impl Chosen {
    /// Returns the columns that are named, or all of the relation's if none is. A name that the
    /// relation does not have counts as confidential.
    fn of(named: &[Node], target: &Columns) -> Self {
        let column = |node: &Node| match node.node.as_ref() {
            Some(NodeEnum::ResTarget(column)) => target.find_or_open(&column.name),
            _ => None,
        };
        let columns = if named.is_empty() {
            (0..target.len()).map(|at| target.at(at)).collect()
        } else {
            named
                .iter()
                .map(|node| column(node).unwrap_or_else(Flow::unknown))
                .collect()
        };
        Self {
            columns,
            open: target.open.clone(),
        }
    }

    /// Returns what is known of the column at this place, from 0. A place beyond the known columns
    /// counts as confidential.
    fn at(&self, place: usize) -> Flow {
        let known = self.columns.get(place).cloned();
        known
            .or_else(|| self.open.clone())
            .unwrap_or_else(Flow::unknown)
    }
}
