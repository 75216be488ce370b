//! Statements by type: which can be sent with parameters, which only unchanged, and which not at
//! all.
//!
//! Must not: pass a statement of a type that is not listed, if it has constants.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableStmt, ColumnDef, Constraint, CopyStmt, CreateStmt, Node, ObjectType,
    PartitionBoundSpec, RangeVar, TypeName,
};
use serde_json::Value;
use strongroom_format::columns::Kind;

use super::catalog::Catalog;
use super::copy_options::options;
use super::flow::{Columns, Flow};
use super::functions;
use super::plan::{Copy, Effects, Plan};
use super::refusal::Refusal;
use super::resolver::{Resolver, Source};
use super::tree::names;

/// What the proxy may not change in a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StatementLimits {
    /// Why its constants cannot become parameters.
    pub(crate) text: Option<&'static str>,
    /// Whether it has constants that are not visited because they are known to be structure.
    pub(crate) counted_elsewhere: bool,
}

const KEPT: &str = "the server keeps the text of this statement, and parameters cannot stand in it";
const NO_PARAMETERS: &str = "parameters cannot stand in this statement";
const HINT_DIRECT: &str = "Run it over a connection that does not go through the proxy if the server may see the constants.";

/// The effects of a statement besides its result.
pub(crate) fn effects(node: &Node) -> Effects {
    let mut effects = Effects::default();
    match node.node.as_ref() {
        Some(NodeEnum::SelectStmt(select)) => effects.defines = select.into_clause.is_some(),
        Some(
            NodeEnum::InsertStmt(_)
            | NodeEnum::UpdateStmt(_)
            | NodeEnum::DeleteStmt(_)
            | NodeEnum::MergeStmt(_)
            | NodeEnum::CopyStmt(_)
            | NodeEnum::VariableSetStmt(_)
            | NodeEnum::LockStmt(_)
            | NodeEnum::NotifyStmt(_)
            | NodeEnum::ListenStmt(_)
            | NodeEnum::UnlistenStmt(_)
            | NodeEnum::DeclareCursorStmt(_)
            | NodeEnum::ClosePortalStmt(_)
            | NodeEnum::PrepareStmt(_)
            | NodeEnum::VacuumStmt(_)
            | NodeEnum::CheckPointStmt(_),
        )
        | None => {}
        Some(NodeEnum::TransactionStmt(_)) => effects.utility = true,
        Some(
            NodeEnum::FetchStmt(_)
            | NodeEnum::ExecuteStmt(_)
            | NodeEnum::ExplainStmt(_)
            | NodeEnum::VariableShowStmt(_)
            | NodeEnum::CallStmt(_),
        ) => effects.utility = true,
        Some(NodeEnum::DeallocateStmt(_) | NodeEnum::DiscardStmt(_)) => effects.deallocates = true,
        Some(_) => effects.defines = true,
    }
    effects
}

/// Walks the statement with the resolver.
///
/// # Errors
/// The statement is refused whatever its constants are.
pub(crate) fn walk(
    resolver: &mut Resolver<'_>,
    node: &mut Node,
    plan: &mut Plan,
) -> Result<StatementLimits, Refusal> {
    if resolver.statement(node).is_some() {
        return Ok(StatementLimits::default());
    }
    match node.node.as_mut() {
        Some(NodeEnum::ExplainStmt(explain)) => {
            walk_inner(resolver, explain.query.as_deref_mut(), plan)
        }
        Some(NodeEnum::DeclareCursorStmt(cursor)) => {
            walk_inner(resolver, cursor.query.as_deref_mut(), plan)
        }
        Some(NodeEnum::CreateTableAsStmt(create)) => {
            let mut fixed = walk_inner(resolver, create.query.as_deref_mut(), plan)?;
            if create.objtype() == ObjectType::ObjectMatview {
                fixed.text = Some(KEPT);
            }
            Ok(fixed)
        }
        Some(NodeEnum::CallStmt(call)) => {
            if let Some(call) = call.funccall.as_mut() {
                resolver.call(call);
            }
            Ok(StatementLimits::default())
        }
        Some(NodeEnum::PrepareStmt(prepare)) => {
            walk_inner(resolver, prepare.query.as_deref_mut(), plan)?;
            Ok(StatementLimits {
                text: Some(
                    "PREPARE of SQL cannot be changed; use the driver's prepared statements",
                ),
                ..StatementLimits::default()
            })
        }
        Some(NodeEnum::ExecuteStmt(execute)) => {
            if has_constant(node_json(&execute.params).as_ref()) {
                plan.executes = Some(execute.name.clone());
            }
            Ok(StatementLimits {
                counted_elsewhere: true,
                ..StatementLimits::default()
            })
        }
        Some(NodeEnum::CopyStmt(copy)) => {
            plan.copy = copy_plan(resolver, copy)?;
            Ok(StatementLimits {
                text: Some(NO_PARAMETERS),
                ..StatementLimits::default()
            })
        }
        _ => walk_definition(resolver, node),
    }
}

fn walk_inner(
    resolver: &mut Resolver<'_>,
    query: Option<&mut Node>,
    plan: &mut Plan,
) -> Result<StatementLimits, Refusal> {
    match query {
        Some(query) => walk(resolver, query, plan),
        None => Ok(StatementLimits::default()),
    }
}

/// Walks a statement that defines something.
fn walk_definition(
    resolver: &mut Resolver<'_>,
    node: &mut Node,
) -> Result<StatementLimits, Refusal> {
    let kept = StatementLimits {
        text: Some(KEPT),
        ..StatementLimits::default()
    };
    let elsewhere = StatementLimits {
        counted_elsewhere: true,
        ..StatementLimits::default()
    };
    match node.node.as_mut() {
        Some(NodeEnum::CreateStmt(create)) => table(resolver, create),
        Some(NodeEnum::AlterTableStmt(alter)) => alter_table(resolver, alter),
        Some(NodeEnum::ViewStmt(view)) => {
            if let Some(query) = view.query.as_mut() {
                resolver.statement(query);
            }
        }
        Some(NodeEnum::IndexStmt(index)) => {
            add_source(resolver, index.relation.as_ref());
            for element in index
                .index_params
                .iter_mut()
                .chain(&mut index.index_including_params)
            {
                if let Some(NodeEnum::IndexElem(element)) = element.node.as_mut() {
                    resolver.optional_expr(element.expr.as_mut());
                }
            }
            resolver.optional_expr(index.where_clause.as_mut());
        }
        Some(NodeEnum::CreatePolicyStmt(policy)) => {
            add_source(resolver, policy.table.as_ref());
            resolver.optional_expr(policy.qual.as_mut());
            resolver.optional_expr(policy.with_check.as_mut());
        }
        Some(NodeEnum::AlterPolicyStmt(policy)) => {
            add_source(resolver, policy.table.as_ref());
            resolver.optional_expr(policy.qual.as_mut());
            resolver.optional_expr(policy.with_check.as_mut());
        }
        Some(NodeEnum::CreateTrigStmt(trigger)) => {
            for alias in ["new", "old"] {
                add_source_as(resolver, trigger.relation.as_ref(), alias);
            }
            resolver.optional_expr(trigger.when_clause.as_mut());
        }
        Some(NodeEnum::DoStmt(block)) => {
            check_function_body("DO", &block.args)?;
            return Ok(elsewhere);
        }
        Some(NodeEnum::CreateFunctionStmt(function)) => {
            check_function_body("CREATE FUNCTION", &function.options)?;
            if has_constant(node_json(&function.sql_body).as_ref())
                || has_constant(node_json(&function.parameters).as_ref())
            {
                return Err(refuse_statement("CREATE FUNCTION"));
            }
            return Ok(elsewhere);
        }
        Some(other)
            if !is_harmless(&*other)
                && has_constant(serde_json::to_value(&*other).ok().as_ref()) =>
        {
            return Err(refuse_statement("this statement"));
        }
        _ => return Ok(elsewhere),
    }
    resolver.scopes.clear();
    Ok(kept)
}

fn refuse_statement(what: &str) -> Refusal {
    let message =
        format!("{what} has constants, and the proxy does not know whether they are confidential");
    Refusal::statement(&message, HINT_DIRECT)
}

/// Refuses a body in a language that the proxy does not parse, if it may have constants.
fn check_function_body(what: &str, options: &[Node]) -> Result<(), Refusal> {
    for option in options {
        let Some(NodeEnum::DefElem(option)) = option.node.as_ref() else {
            continue;
        };
        if option.defname != "as" {
            continue;
        }
        let texts: Vec<String> = match option.arg.as_ref().and_then(|arg| arg.node.as_ref()) {
            Some(NodeEnum::String(text)) => vec![text.sval.clone()],
            Some(NodeEnum::List(list)) => {
                names(&list.items).into_iter().map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        for text in texts {
            if text_has_constant(&text) {
                return Err(refuse_statement(what));
            }
        }
    }
    Ok(())
}

/// Whether a text, read as SQL's tokens, has a constant. A text that cannot be read counts as
/// having one.
fn text_has_constant(text: &str) -> bool {
    use pg_query::protobuf::Token;
    let Ok(scanned) = pg_query::scan(text) else {
        return true;
    };
    scanned.tokens.iter().any(|token| {
        matches!(
            token.token(),
            Token::Sconst
                | Token::Usconst
                | Token::Iconst
                | Token::Fconst
                | Token::Bconst
                | Token::Xconst
        )
    })
}

/// Statements whose constants are settings or names.
const fn is_harmless(node: &NodeEnum) -> bool {
    matches!(
        node,
        NodeEnum::VariableSetStmt(_)
            | NodeEnum::VariableShowStmt(_)
            | NodeEnum::TransactionStmt(_)
            | NodeEnum::AlterSystemStmt(_)
            | NodeEnum::AlterRoleSetStmt(_)
            | NodeEnum::AlterDatabaseSetStmt(_)
            | NodeEnum::FetchStmt(_)
            | NodeEnum::AlterTypeStmt(_)
            | NodeEnum::CreateExtensionStmt(_)
    )
}

fn node_json(nodes: &impl serde_like::ToJson) -> Option<Value> {
    nodes.json()
}

/// Fields of several types as generic values.
mod serde_like {
    use pg_query::protobuf::Node;
    use serde_json::Value;

    pub(super) trait ToJson {
        fn json(&self) -> Option<Value>;
    }

    impl ToJson for Vec<Node> {
        fn json(&self) -> Option<Value> {
            serde_json::to_value(self).ok()
        }
    }

    impl ToJson for Option<Box<Node>> {
        fn json(&self) -> Option<Value> {
            serde_json::to_value(self).ok()
        }
    }
}

/// Whether there is a constant other than NULL. A value that could not be read counts as having
/// one.
fn has_constant(value: Option<&Value>) -> bool {
    match value {
        None => true,
        Some(Value::Array(items)) => items.iter().any(|item| has_constant(Some(item))),
        Some(Value::Object(fields)) => fields.iter().any(|(name, field)| match name.as_str() {
            "type_name" | "TypeName" => false,
            "AConst" => field.get("isnull").and_then(Value::as_bool) != Some(true),
            _ => has_constant(Some(field)),
        }),
        Some(_) => false,
    }
}

fn add_source(resolver: &mut Resolver<'_>, range: Option<&RangeVar>) {
    add_source_as(resolver, range, "");
}

fn add_source_as(resolver: &mut Resolver<'_>, range: Option<&RangeVar>, alias: &str) {
    let Some(range) = range else {
        return;
    };
    let columns = resolver.relation(&range.schemaname, &range.relname);
    let alias = if alias.is_empty() {
        range.relname.clone()
    } else {
        alias.to_owned()
    };
    match resolver.scopes.last_mut() {
        Some(scope) => scope.push(Source::new(alias, columns)),
        None => resolver.scopes.push(vec![Source::new(alias, columns)]),
    }
}

/// The kind of a column defined with this type's name.
pub(super) fn kind_from_definition(of: Option<&TypeName>) -> Option<Kind> {
    functions::confidential_type(names(&of?.names).last()?)
}

/// A column's name, and its flow by its type.
pub(super) fn column_from_definition(catalog: &Catalog, column: &ColumnDef) -> (String, Flow) {
    let name = column
        .type_name
        .as_ref()
        .and_then(|of| names(&of.names).last().copied());
    let flow = match (kind_from_definition(column.type_name.as_ref()), name) {
        (Some(kind), _) => Flow::confidential(Some(kind)),
        (None, Some(name)) if catalog.holds_confidential(name) => Flow::unknown(),
        _ => Flow::plain(),
    };
    (column.colname.clone(), flow)
}

fn table(resolver: &mut Resolver<'_>, create: &mut CreateStmt) {
    let mut columns = Columns::default();
    for element in &create.table_elts {
        if let Some(NodeEnum::ColumnDef(column)) = element.node.as_ref() {
            let (name, flow) = column_from_definition(resolver.catalog, column);
            resolver.touched |= flow.confidential;
            columns.named.push((name, flow));
        }
    }
    // LIKE, INHERITS, PARTITION OF: columns of other tables.
    let inherits = !create.inh_relations.is_empty();
    let like = create
        .table_elts
        .iter()
        .any(|element| matches!(element.node, Some(NodeEnum::TableLikeClause(_))));
    if inherits || like {
        columns.open = Some(Flow::unknown());
    }
    resolver
        .scopes
        .push(vec![Source::new(String::new(), columns)]);
    if let Some(bound) = create.partbound.as_mut() {
        partition_bound(resolver, bound);
    }
    for element in &mut create.table_elts {
        match element.node.as_mut() {
            Some(NodeEnum::ColumnDef(column)) => column_definition(resolver, column),
            Some(NodeEnum::Constraint(constraint)) => {
                self_constraint(resolver, constraint, &Flow::plain());
            }
            _ => {}
        }
    }
}

fn column_definition(resolver: &mut Resolver<'_>, column: &mut ColumnDef) {
    let (_, flow) = column_from_definition(resolver.catalog, column);
    if let Some(default) = column.raw_default.as_mut() {
        let value = resolver.expr(default);
        resolver.assign(&flow, &value);
    }
    for constraint in &mut column.constraints {
        if let Some(NodeEnum::Constraint(constraint)) = constraint.node.as_mut() {
            self_constraint(resolver, constraint, &flow);
        }
    }
}

/// Walks the values of a partition key, which is never a confidential column.
fn partition_bound(resolver: &mut Resolver<'_>, bound: &mut PartitionBoundSpec) {
    let lists = [
        &mut bound.listdatums,
        &mut bound.lowerdatums,
        &mut bound.upperdatums,
    ];
    for datum in lists.into_iter().flatten() {
        match datum.node.as_mut() {
            Some(NodeEnum::PartitionRangeDatum(datum)) => {
                resolver.optional_expr(datum.value.as_mut());
            }
            _ => {
                resolver.expr(datum);
            }
        }
    }
}

/// DEFAULT, GENERATED and CHECK have an expression.
fn self_constraint(resolver: &mut Resolver<'_>, constraint: &mut Constraint, column: &Flow) {
    if let Some(raw) = constraint.raw_expr.as_mut() {
        let value = resolver.expr(raw);
        resolver.assign(column, &value);
    }
    resolver.optional_expr(constraint.where_clause.as_mut());
}

fn alter_table(resolver: &mut Resolver<'_>, alter: &mut AlterTableStmt) {
    add_source(resolver, alter.relation.as_ref());
    for command in &mut alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = command.node.as_mut() else {
            continue;
        };
        let column = resolver.column(&[command.name.as_str()]);
        match command.def.as_mut().and_then(|def| def.node.as_mut()) {
            Some(NodeEnum::ColumnDef(definition)) => {
                resolver.touched |= kind_from_definition(definition.type_name.as_ref()).is_some();
                column_definition(resolver, definition);
            }
            Some(NodeEnum::Constraint(constraint)) => {
                self_constraint(resolver, constraint, &Flow::plain());
            }
            Some(NodeEnum::PartitionCmd(command)) => {
                if let Some(bound) = command.bound.as_mut() {
                    partition_bound(resolver, bound);
                }
            }
            Some(_) => {
                let value = resolver.optional_expr(command.def.as_mut());
                if !command.name.is_empty() {
                    resolver.assign(&column, &value);
                }
            }
            None => {}
        }
    }
}

/// COPY: which columns are confidential, and how the stream is written.
fn copy_plan(resolver: &mut Resolver<'_>, copy: &mut CopyStmt) -> Result<Option<Copy>, Refusal> {
    let columns = match copy.query.as_mut() {
        Some(query) => resolver
            .statement(query)
            .filter(|columns| columns.open.is_none() && columns.certain.is_none()),
        None => {
            let range = copy.relation.clone().unwrap_or_default();
            let relation = resolver.relation(&range.schemaname, &range.relname);
            add_source(resolver, copy.relation.as_ref());
            resolver.optional_expr(copy.where_clause.as_mut());
            resolver.scopes.clear();
            let chosen = names(&copy.attlist);
            if chosen.is_empty() {
                let places = (0..relation.len()).map(|at| (String::new(), relation.at(at)));
                Some(Columns {
                    named: places.collect(),
                    ..Columns::default()
                })
                .filter(|_| relation.open.is_none())
            } else {
                let named = chosen.iter().map(|name| {
                    let flow = relation.find_or_open(name).unwrap_or_else(Flow::unknown);
                    ((*name).to_owned(), flow)
                });
                Some(Columns {
                    named: named.collect(),
                    ..Columns::default()
                })
            }
        }
    };
    let known = columns.filter(|columns| {
        columns
            .named
            .iter()
            .all(|(_, flow)| !flow.confidential || flow.kind.is_some())
    });
    let kinds = known.map(|columns| {
        columns
            .named
            .iter()
            .map(|(_, flow)| flow.kind.filter(|_| flow.confidential))
            .collect()
    });
    let plan = Copy {
        from: copy.is_from,
        columns: kinds,
        options: options(&copy.options),
    };
    if !resolver.touched {
        return Ok(None);
    }
    if copy.is_program || !copy.filename.is_empty() {
        let message =
            "COPY between a table with confidential columns and a file or program of the server";
        return Err(Refusal::statement(
            message,
            "Use COPY FROM STDIN or TO STDOUT (in psql: \\copy).",
        ));
    }
    Ok(Some(plan))
}
