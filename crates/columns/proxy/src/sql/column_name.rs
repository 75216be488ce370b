//! The names of a result's columns that have none of their own.
//!
//! Must not: give a name that PostgreSQL does not give.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExprKind, MinMaxOp, Node, SelectStmt, SqlValueFunctionOp, SubLink, SubLinkType,
};

use super::tree::names;

/// The name of a column for which no rule has one; nothing can refer to it.
pub(super) const UNNAMED: &str = "?column?";

/// A name that PostgreSQL finds for a column.
enum Found {
    /// No rule has one.
    Nothing,
    /// The name of a type or of a construct, which a cast around it replaces by its type's.
    Weak(String),
    /// A name that a cast around it keeps.
    Strong(String),
    /// One that is not known here.
    Unknown,
}

impl Found {
    /// Returns this name if it is strong or not known, else the last of these parts of a name as a
    /// weak one.
    fn or_weak(self, parts: &[Node]) -> Self {
        match self {
            Self::Strong(_) | Self::Unknown => self,
            Self::Nothing | Self::Weak(_) => last(parts).map_or(self, Self::Weak),
        }
    }
}

/// Returns the name that PostgreSQL gives a column without one (`parse_target.c`, `FigureColname`).
/// `None` if it is not known here.
pub(super) fn certain_column_name(node: &Node) -> Option<String> {
    match find_name(node) {
        Found::Nothing => Some(UNNAMED.to_owned()),
        Found::Weak(name) | Found::Strong(name) => Some(name),
        Found::Unknown => None,
    }
}

/// Returns the last string of a list of names.
fn last(parts: &[Node]) -> Option<String> {
    names(parts).last().map(|name| (*name).to_owned())
}

/// Returns the name that an expression gives its column.
fn find_name(node: &Node) -> Found {
    let inner = |node: Option<&Node>| node.map_or(Found::Nothing, find_name);
    let strong = |name: &str| Found::Strong(name.to_owned());
    match node.node.as_ref() {
        Some(NodeEnum::ColumnRef(column)) => {
            last(&column.fields).map_or(Found::Nothing, Found::Strong)
        }
        Some(NodeEnum::FuncCall(call)) => {
            last(&call.funcname).map_or(Found::Nothing, Found::Strong)
        }
        Some(NodeEnum::TypeCast(cast)) => match &cast.type_name {
            Some(of) => inner(cast.arg.as_deref()).or_weak(&of.names),
            None => inner(cast.arg.as_deref()),
        },
        Some(NodeEnum::CollateClause(of)) => inner(of.arg.as_deref()),
        Some(NodeEnum::CaseExpr(case)) => match inner(case.defresult.as_deref()) {
            Found::Nothing | Found::Weak(_) => Found::Weak("case".to_owned()),
            found => found,
        },
        Some(NodeEnum::CoalesceExpr(_)) => strong("coalesce"),
        Some(NodeEnum::AArrayExpr(_)) => strong("array"),
        Some(NodeEnum::RowExpr(_)) => strong("row"),
        Some(NodeEnum::GroupingFunc(_)) => strong("grouping"),
        Some(NodeEnum::MinMaxExpr(of)) if of.op() == MinMaxOp::IsLeast => strong("least"),
        Some(NodeEnum::MinMaxExpr(_)) => strong("greatest"),
        Some(NodeEnum::AExpr(of)) if of.kind() == AExprKind::AexprNullif => strong("nullif"),
        Some(NodeEnum::SqlvalueFunction(of)) => value_function_name(of.op()),
        // The last field that is named, or else the name of what the field is of.
        Some(NodeEnum::AIndirection(of)) => {
            last(&of.indirection).map_or_else(|| inner(of.arg.as_deref()), Found::Strong)
        }
        Some(NodeEnum::SubLink(link)) => subquery_name(link),
        Some(
            NodeEnum::AConst(_)
            | NodeEnum::ParamRef(_)
            | NodeEnum::AExpr(_)
            | NodeEnum::BoolExpr(_)
            | NodeEnum::NullTest(_)
            | NodeEnum::BooleanTest(_),
        ) => Found::Nothing,
        // Constructors of XML and JSON and their like have names of their own.
        _ => Found::Unknown,
    }
}

/// Returns the name of a function of SQL's that is written without parentheses, of those that the
/// proxy replaces.
fn value_function_name(function: SqlValueFunctionOp) -> Found {
    let name = match function {
        SqlValueFunctionOp::SvfopCurrentDate => "current_date",
        SqlValueFunctionOp::SvfopCurrentTimestamp => "current_timestamp",
        SqlValueFunctionOp::SvfopLocaltimestamp => "localtimestamp",
        SqlValueFunctionOp::SvfopLocaltime => "localtime",
        _ => return Found::Unknown,
    };
    Found::Strong(name.to_owned())
}

/// Returns the name of a column that a subquery makes: that of its first column, or of what is
/// asked of it.
fn subquery_name(link: &SubLink) -> Found {
    match link.sub_link_type() {
        SubLinkType::ExistsSublink => return Found::Strong("exists".to_owned()),
        SubLinkType::ArraySublink => return Found::Strong("array".to_owned()),
        SubLinkType::ExprSublink => {}
        _ => return Found::Nothing,
    }
    match link
        .subselect
        .as_ref()
        .and_then(|query| query.node.as_ref())
    {
        Some(NodeEnum::SelectStmt(select)) => first_column_name(select),
        _ => Found::Unknown,
    }
}

/// Returns the name of the first column of a query, which is the name of a column for whoever asks
/// for the query's value. The left side of a set operation names its columns.
fn first_column_name(select: &SelectStmt) -> Found {
    if let Some(left) = &select.larg {
        return first_column_name(left);
    }
    if !select.values_lists.is_empty() {
        return Found::Strong("column1".to_owned());
    }
    let Some(NodeEnum::ResTarget(target)) =
        select.target_list.first().and_then(|it| it.node.as_ref())
    else {
        return Found::Unknown;
    };
    let Some(value) = target.val.as_deref() else {
        return Found::Unknown;
    };
    let is_star = match value.node.as_ref() {
        Some(NodeEnum::ColumnRef(column)) => super::query::is_star(column.fields.last()),
        Some(NodeEnum::AIndirection(of)) => super::query::is_star(of.indirection.last()),
        _ => false,
    };
    match target.name.as_str() {
        "" if is_star => Found::Unknown,
        "" => certain_column_name(value).map_or(Found::Unknown, Found::Strong),
        name => Found::Strong(name.to_owned()),
    }
}
