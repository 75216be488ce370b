//! Statements by type: which can be sent with parameters, which only unchanged, and which not at
//! all.
//!
//! Must not: pass a statement of a type that is not listed, if it has constants.

use pg_query::NodeEnum;
use pg_query::protobuf::{CopyStmt, DiscardMode, Node, ObjectType, TransactionStmtKind};
use serde_json::Value;

use super::catalog::Catalog;
use super::copy_options::options;
use super::defining::rolls_back;
use super::flow::{Columns, Flow};
use super::functions;
use super::plan::{
    Copies, Copy, CopyColumn, Effects, ExpectedColumns, NamedUse, Plan, QueryName, expected_columns,
};
use super::refusal::Refusal;
use super::resolver::Resolver;
use super::sql_arguments;
use super::table::{alter_table, create_table};
use super::tree::names;
use super::unread;

/// What the proxy may not change in a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StatementLimits {
    /// Why its constants cannot become parameters.
    pub(crate) text: Option<&'static str>,
    /// Whether its constants can stand in it as envelopes.
    pub(crate) keeps: bool,
    /// Whether it has constants that are not visited because they are known to be structure.
    pub(crate) counted_elsewhere: bool,
}

const KEPT: &str = "the server keeps the text of this statement, and parameters cannot stand in it";
const NO_PARAMETERS: &str = "parameters cannot stand in this statement";

/// Returns the effects of a statement besides its result, by its type. A type that is not listed
/// here counts as one that may change which columns there are.
pub(crate) fn effects(node: &Node) -> Effects {
    let mut effects = Effects::default();
    match node.node.as_ref() {
        Some(NodeEnum::SelectStmt(select)) => effects.defines = select.into_clause.is_some(),
        Some(
            NodeEnum::InsertStmt(_)
            | NodeEnum::UpdateStmt(_)
            | NodeEnum::DeleteStmt(_)
            | NodeEnum::MergeStmt(_)
            | NodeEnum::NotifyStmt(_)
            | NodeEnum::ListenStmt(_)
            | NodeEnum::UnlistenStmt(_)
            | NodeEnum::ClosePortalStmt(_)
            | NodeEnum::PrepareStmt(_)
            | NodeEnum::DeallocateStmt(_)
            | NodeEnum::VacuumStmt(_)
            | NodeEnum::CheckPointStmt(_),
        )
        | None => {}
        Some(NodeEnum::LockStmt(_)) => effects.needs_block = true,
        Some(NodeEnum::DeclareCursorStmt(declare)) => {
            effects.needs_block = declare.options & CURSOR_OPT_HOLD == 0;
        }
        // RESET ALL has no name.
        Some(NodeEnum::VariableSetStmt(set)) => {
            effects.sets_zone = set.name.is_empty() || set.name.eq_ignore_ascii_case("timezone");
        }
        Some(NodeEnum::DiscardStmt(discard)) => {
            effects.sets_zone = discard.target() == DiscardMode::DiscardAll;
        }
        Some(NodeEnum::CopyStmt(copy)) => {
            effects.copies = match (copy.is_from, copy.filename.is_empty()) {
                (_, false) => Copies::Nothing,
                (true, true) => Copies::FromClient,
                (false, true) => Copies::ToClient,
            };
        }
        Some(NodeEnum::TransactionStmt(end)) => {
            effects.utility = true;
            effects.chains = end.chain;
            // Whether a prepared transaction is committed is decided by another statement.
            let is_prepared = end.kind() == TransactionStmtKind::TransStmtPrepare;
            effects.undoes = rolls_back(end) || is_prepared;
            effects.undoes_part =
                effects.undoes && end.kind() != TransactionStmtKind::TransStmtRollback;
            effects.begins = matches!(
                end.kind(),
                TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart
            );
            effects.ends = matches!(
                end.kind(),
                TransactionStmtKind::TransStmtCommit
                    | TransactionStmtKind::TransStmtPrepare
                    | TransactionStmtKind::TransStmtRollback
            ) && !end.chain;
        }
        Some(
            NodeEnum::FetchStmt(_)
            | NodeEnum::ExecuteStmt(_)
            | NodeEnum::ExplainStmt(_)
            | NodeEnum::VariableShowStmt(_)
            | NodeEnum::CallStmt(_),
        ) => effects.utility = true,
        Some(_) => effects.defines = true,
    }
    effects
}

/// Flag of DECLARE CURSOR: WITH HOLD (nodes/parsenodes.h).
const CURSOR_OPT_HOLD: i32 = 0x20;

/// Returns what the statement does with a cursor or a prepared statement. `None` if it is about
/// none.
pub(super) fn named_use(node: &Node) -> Option<NamedUse> {
    let cursor = |name: &String| QueryName::Cursor(name.clone());
    let prepared = |name: &String| QueryName::Prepared(name.clone());
    match node.node.as_ref()? {
        NodeEnum::DeclareCursorStmt(declare) => Some(NamedUse::Names {
            name: cursor(&declare.portalname),
            is_held: declare.options & CURSOR_OPT_HOLD != 0,
        }),
        NodeEnum::FetchStmt(fetch) => Some(NamedUse::Runs(cursor(&fetch.portalname))),
        NodeEnum::ClosePortalStmt(close) if close.portalname.is_empty() => {
            Some(NamedUse::EndsCursors)
        }
        NodeEnum::ClosePortalStmt(close) => Some(NamedUse::Ends(cursor(&close.portalname))),
        NodeEnum::PrepareStmt(prepare) => Some(NamedUse::Names {
            name: prepared(&prepare.name),
            is_held: true,
        }),
        NodeEnum::ExecuteStmt(execute) => Some(NamedUse::Runs(prepared(&execute.name))),
        NodeEnum::DeallocateStmt(deallocate) if deallocate.name.is_empty() => {
            Some(NamedUse::EndsPrepared)
        }
        NodeEnum::DeallocateStmt(deallocate) => Some(NamedUse::Ends(prepared(&deallocate.name))),
        NodeEnum::DiscardStmt(discard) if discard.target() == DiscardMode::DiscardAll => {
            Some(NamedUse::EndsAll)
        }
        _ => None,
    }
}

/// Returns whether the statement may change what the proxy knows of the database.
pub(super) fn may_define(node: &Node) -> bool {
    let sets = matches!(
        node.node,
        Some(NodeEnum::TransactionStmt(_) | NodeEnum::VariableSetStmt(_))
    );
    sets || effects(node).defines
}

/// Walks a statement of any type with the resolver, and puts what it finds of COPY and EXECUTE into
/// `plan`. In the resolver's second walk it changes the statement. Returns what may not be changed.
///
/// # Errors
/// SR-8103 for a statement that is refused whatever the types of its constants are: one with
/// constants that the resolver cannot place, or a COPY between a confidential table and the
/// server's files.
pub(crate) fn walk(
    resolver: &mut Resolver<'_>,
    node: &mut Node,
    plan: &mut Plan,
) -> Result<StatementLimits, Refusal> {
    if let Some(columns) = resolver.statement(node) {
        sql_arguments::check_arguments(resolver)?;
        plan.expected = expected_columns(&columns);
        return Ok(StatementLimits::default());
    }
    match node.node.as_mut() {
        Some(NodeEnum::ExplainStmt(explain)) => {
            walk_inner(resolver, explain.query.as_deref_mut(), plan)
        }
        // What is expected are the columns of the cursor's rows.
        Some(NodeEnum::DeclareCursorStmt(cursor)) => match cursor.query.as_deref_mut() {
            Some(query) => walk(resolver, query, plan),
            None => Ok(StatementLimits::default()),
        },
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
                sql_arguments::check_arguments(resolver)?;
            }
            Ok(StatementLimits::default())
        }
        Some(NodeEnum::PrepareStmt(prepare)) => {
            plan.prepares = Some(prepare.name.clone());
            // What is expected are the columns of the rows of an EXECUTE.
            if let Some(query) = prepare.query.as_deref_mut() {
                walk(resolver, query, plan)?;
            }
            Ok(StatementLimits {
                text: Some(
                    "PREPARE of SQL cannot be changed; use the driver's prepared statements",
                ),
                ..StatementLimits::default()
            })
        }
        Some(NodeEnum::ExecuteStmt(execute)) => {
            refuse_parameter(node_json(&execute.params).as_ref())?;
            if has_constant(node_json(&execute.params).as_ref()) {
                unread::check(resolver.catalog, "EXECUTE", resolver.text)?;
                plan.executes = Some(execute.name.clone());
            }
            Ok(StatementLimits {
                counted_elsewhere: true,
                ..StatementLimits::default()
            })
        }
        Some(NodeEnum::CopyStmt(copy)) => {
            plan.copy = copy_plan(resolver, copy)?;
            sql_arguments::check_arguments(resolver)?;
            Ok(StatementLimits {
                text: Some(NO_PARAMETERS),
                ..StatementLimits::default()
            })
        }
        _ => walk_definition(resolver, node),
    }
}

/// Walks the statement within another one, such as that of EXPLAIN. Without one there is nothing to
/// do. Fails as [`walk`] does.
fn walk_inner(
    resolver: &mut Resolver<'_>,
    query: Option<&mut Node>,
    plan: &mut Plan,
) -> Result<StatementLimits, Refusal> {
    match query {
        Some(query) => {
            let fixed = walk(resolver, query, plan);
            // They are not the columns of the statement around it.
            plan.expected = ExpectedColumns::default();
            fixed
        }
        None => Ok(StatementLimits::default()),
    }
}

/// Walks a statement that defines something, or is of any other type. Fails with SR-8103 if it has
/// constants and the resolver does not know what they mean.
fn walk_definition(
    resolver: &mut Resolver<'_>,
    node: &mut Node,
) -> Result<StatementLimits, Refusal> {
    let kept = StatementLimits {
        text: Some(KEPT),
        keeps: matches!(
            node.node,
            Some(NodeEnum::CreateStmt(_) | NodeEnum::AlterTableStmt(_))
        ),
        ..StatementLimits::default()
    };
    let elsewhere = StatementLimits {
        counted_elsewhere: true,
        ..StatementLimits::default()
    };
    match node.node.as_mut() {
        Some(NodeEnum::CreateStmt(create)) => create_table(resolver, create),
        Some(NodeEnum::AlterTableStmt(alter)) => alter_table(resolver, alter),
        Some(NodeEnum::ViewStmt(view)) => {
            if let Some(query) = view.query.as_mut() {
                resolver.statement(query);
                sql_arguments::check_arguments(resolver)?;
            }
        }
        Some(NodeEnum::IndexStmt(index)) => {
            resolver.add_relation(index.relation.as_ref(), "");
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
            resolver.add_relation(policy.table.as_ref(), "");
            resolver.optional_expr(policy.qual.as_mut());
            resolver.optional_expr(policy.with_check.as_mut());
        }
        Some(NodeEnum::AlterPolicyStmt(policy)) => {
            resolver.add_relation(policy.table.as_ref(), "");
            resolver.optional_expr(policy.qual.as_mut());
            resolver.optional_expr(policy.with_check.as_mut());
        }
        Some(NodeEnum::CreateTrigStmt(trigger)) => {
            for alias in ["new", "old"] {
                resolver.add_relation(trigger.relation.as_ref(), alias);
            }
            resolver.optional_expr(trigger.when_clause.as_mut());
            if has_value(resolver, &trigger.args) {
                check_unread(resolver, "CREATE TRIGGER with arguments")?;
            }
        }
        Some(other) => {
            // A function's own parameters are no parameters of the statement.
            if !matches!(other, NodeEnum::CreateFunctionStmt(_)) {
                refuse_parameter(serde_json::to_value(&*other).ok().as_ref())?;
            }
            if let Some(what) = unread_constants(resolver.catalog, other) {
                check_unread(resolver, what)?;
            }
            return Ok(elsewhere);
        }
        None => return Ok(elsewhere),
    }
    resolver.scopes.clear();
    Ok(kept)
}

/// Fails with SR-8102 if there is a parameter of the client's in a part of a statement that the
/// resolver does not walk: what its value is for is not known.
fn refuse_parameter(tree: Option<&Value>) -> Result<(), Refusal> {
    let why = "it stands in a statement that takes none, or whose meaning the proxy does not know";
    tree.and_then(first_parameter).map_or(Ok(()), |number| {
        Err(Refusal::parameter(
            usize::try_from(number).unwrap_or(0),
            why,
        ))
    })
}

/// Returns the number of the first parameter in the tree; `None` if there is none.
fn first_parameter(tree: &Value) -> Option<i64> {
    match tree {
        Value::Array(items) => items.iter().find_map(first_parameter),
        Value::Object(fields) => fields.iter().find_map(|(name, field)| match name.as_str() {
            "ParamRef" => Some(field.get("number").and_then(Value::as_i64).unwrap_or(0)),
            _ => first_parameter(field),
        }),
        _ => None,
    }
}

/// Returns what a statement is called if it has constants whose meaning the resolver does not know.
fn unread_constants(catalog: &Catalog, node: &NodeEnum) -> Option<&'static str> {
    let (has, what) = match node {
        NodeEnum::DefineStmt(define) => {
            let has = has_first_state(catalog, &define.definition);
            (
                has || has_constant(node_json(&define.args).as_ref()),
                "this statement",
            )
        }
        NodeEnum::DoStmt(block) => (body_has_constant(&block.args), "DO"),
        NodeEnum::CreateFunctionStmt(function) => {
            let has = body_has_constant(&function.options)
                || has_constant(node_json(&function.sql_body).as_ref())
                || has_constant(node_json(&function.parameters).as_ref());
            (has, "CREATE FUNCTION")
        }
        other => {
            let has = has_constant(serde_json::to_value(other).ok().as_ref());
            (has && !is_harmless(other), "this statement")
        }
    };
    has.then_some(what)
}

/// Returns whether a trigger's function gets an argument that is not the name of a column of the
/// trigger's table: it may be a value for a column.
fn has_value(resolver: &Resolver<'_>, args: &[Node]) -> bool {
    let mut tables = resolver.scopes.iter().flatten();
    let table = tables.next().map(|source| &source.columns);
    let is_column = |name: &str| table.is_some_and(|columns| columns.find(name).is_some());
    names(args).into_iter().any(|argument| !is_column(argument))
}

/// Returns whether the definition of an aggregate, or of a type, has a value that may be a
/// confidential one: a default, or the first state of an aggregate whose state is not of a type
/// without such values.
fn has_first_state(catalog: &Catalog, definition: &[Node]) -> bool {
    let elements = || {
        definition
            .iter()
            .filter_map(|node| match node.node.as_ref() {
                Some(NodeEnum::DefElem(element)) => Some(&**element),
                _ => None,
            })
    };
    let is_plain = |state: &str| {
        let mut states = elements().filter(|element| element.defname == state);
        states.any(|element| match element.arg.as_ref().map(|arg| &arg.node) {
            Some(Some(NodeEnum::TypeName(of))) => {
                let parts = names(&of.names);
                let own = parts.last().copied().and_then(functions::confidential_type);
                own.is_none() && !catalog.type_may_hold_confidential(&parts)
            }
            _ => false,
        })
    };
    elements().any(|element| match element.defname.as_str() {
        "initcond" => !is_plain("stype"),
        "minitcond" => !is_plain("mstype"),
        "default" => true,
        _ => false,
    })
}

/// Checks a statement with constants that the proxy cannot place, and notes that it is such a one.
/// Fails with SR-8103 if something confidential is named in its text.
fn check_unread(resolver: &mut Resolver<'_>, what: &str) -> Result<(), Refusal> {
    resolver.unread = true;
    unread::check(resolver.catalog, what, resolver.text)
}

/// Languages whose constants PostgreSQL's scanner sees, and those in which a body is the name of a
/// function in a library. In any other language `"a"`, `q(a)` or `{a}` may be a string.
const SCANNED_LANGUAGES: &[&str] = &["sql", "plpgsql", "c", "internal"];

/// Returns whether the body of a function or of DO, which the proxy does not parse, may have
/// constants. A body in a language that the proxy cannot scan counts as having one.
fn body_has_constant(options: &[Node]) -> bool {
    let texts = |name: &str| {
        let options = options.iter().filter_map(|option| match &option.node {
            Some(NodeEnum::DefElem(option)) if option.defname == name => option.arg.as_ref(),
            _ => None,
        });
        let texts = options.flat_map(|value| match value.node.as_ref() {
            Some(NodeEnum::String(text)) => vec![text.sval.as_str()],
            Some(NodeEnum::List(list)) => names(&list.items),
            _ => Vec::new(),
        });
        texts.collect::<Vec<&str>>()
    };
    // DO without a language is PL/pgSQL.
    let mut languages = texts("language").into_iter();
    let is_scanned = languages.all(|language| SCANNED_LANGUAGES.contains(&language));
    let mut bodies = texts("as").into_iter();
    bodies.any(|body| !is_scanned || text_has_constant(body))
}

/// Returns whether a text, read as SQL's tokens, has a constant. A text that cannot be read counts
/// as having one.
pub(crate) fn text_has_constant(text: &str) -> bool {
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
                | Token::TrueP
                | Token::FalseP
        )
    })
}

/// Returns whether constants of this type of statement are settings or names, and so never
/// confidential.
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

/// Returns a part of the parse tree as generic JSON; `None` if it cannot be converted.
fn node_json(nodes: &impl serde_like::ToJson) -> Option<Value> {
    nodes.json()
}

/// Fields of several types as generic values.
mod serde_like {
    use pg_query::protobuf::Node;
    use serde_json::Value;

    pub(super) trait ToJson {
        /// Returns the value as generic JSON; `None` if it cannot be converted.
        fn json(&self) -> Option<Value>;
    }

    impl ToJson for Vec<Node> {
        /// Returns the nodes as generic JSON; `None` if they cannot be converted.
        fn json(&self) -> Option<Value> {
            serde_json::to_value(self).ok()
        }
    }

    impl ToJson for Option<Box<Node>> {
        /// Returns the node as generic JSON; `None` if it cannot be converted.
        fn json(&self) -> Option<Value> {
            serde_json::to_value(self).ok()
        }
    }
}

/// Returns whether the tree has a constant other than NULL, modifiers of types excepted. A tree
/// that could not be read counts as having one.
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

/// Returns which columns of a COPY are confidential, `None` where the columns are not known, and
/// how its stream is written. The whole is `None` if nothing confidential is involved. Fails with
/// SR-8103 if something is, and the COPY is with a file or program of the server.
fn copy_plan(resolver: &mut Resolver<'_>, copy: &mut CopyStmt) -> Result<Option<Copy>, Refusal> {
    let columns = match copy.query.as_mut() {
        Some(query) => resolver
            .statement(query)
            .filter(|columns| columns.open.is_none() && columns.certain.is_none()),
        None => {
            let range = copy.relation.clone().unwrap_or_default();
            let (_, relation) = resolver.target(&range);
            resolver.add_relation(copy.relation.as_ref(), "");
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
    let expected = known.as_ref().map(expected_columns).unwrap_or_default();
    let columns = known.map(|columns| {
        let named = columns.named.iter();
        let columns = named.map(|(_, flow)| {
            let kind = flow.kind.filter(|_| flow.confidential)?;
            let comparable = flow.comparable;
            Some(CopyColumn { kind, comparable })
        });
        columns.collect()
    });
    let plan = Copy {
        from: copy.is_from,
        columns,
        expected,
        unknown: copy.query.is_none() && !resolver.unknown.is_empty(),
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
