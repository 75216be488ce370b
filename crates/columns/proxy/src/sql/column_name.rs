//! The names of a result's columns that have none of their own.
//!
//! Must not: give a name that PostgreSQL does not give.

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, MinMaxOp, Node, SubLink, SubLinkType};

use super::tree::names;

/// Returns the name that PostgreSQL gives a column without one (`parse_target.c`, `FigureColname`),
/// as far as it can be referred to.
pub(super) fn figure_column_name(node: &Node) -> String {
    let last = |parts: &[Node]| names(parts).last().map(|name| (*name).to_owned());
    // Names that are weaker than that of a cast around them.
    let inner = |node: Option<&Node>| {
        node.map(figure_column_name)
            .filter(|name| name != UNNAMED && !name.is_empty())
    };
    let fixed = |name: &str| Some(name.to_owned());
    let name = match node.node.as_ref() {
        Some(NodeEnum::ColumnRef(column)) => last(&column.fields),
        Some(NodeEnum::FuncCall(call)) => last(&call.funcname),
        Some(NodeEnum::TypeCast(cast)) => inner(cast.arg.as_deref())
            .or_else(|| cast.type_name.as_ref().and_then(|of| last(&of.names))),
        Some(NodeEnum::CollateClause(of)) => inner(of.arg.as_deref()),
        Some(NodeEnum::CaseExpr(case)) => {
            inner(case.defresult.as_deref()).or_else(|| fixed("case"))
        }
        Some(NodeEnum::CoalesceExpr(_)) => fixed("coalesce"),
        Some(NodeEnum::AArrayExpr(_)) => fixed("array"),
        Some(NodeEnum::RowExpr(_)) => fixed("row"),
        Some(NodeEnum::GroupingFunc(_)) => fixed("grouping"),
        Some(NodeEnum::MinMaxExpr(of)) if of.op() == MinMaxOp::IsLeast => fixed("least"),
        Some(NodeEnum::MinMaxExpr(_)) => fixed("greatest"),
        Some(NodeEnum::AExpr(of)) if of.kind() == AExprKind::AexprNullif => fixed("nullif"),
        // The last field that is named, or else the name of what the field is of.
        Some(NodeEnum::AIndirection(of)) => {
            last(&of.indirection).or_else(|| inner(of.arg.as_deref()))
        }
        Some(NodeEnum::SubLink(link)) => subquery_name(link),
        _ => None,
    };
    name.unwrap_or_else(|| UNNAMED.to_owned())
}

/// The name of a column for which no rule has one; nothing can refer to it.
const UNNAMED: &str = "?column?";

/// Returns the name of a column that a subquery makes: that of its first column, or of what is
/// asked of it.
fn subquery_name(link: &SubLink) -> Option<String> {
    match link.sub_link_type() {
        SubLinkType::ExistsSublink => return Some("exists".to_owned()),
        SubLinkType::ArraySublink => return Some("array".to_owned()),
        _ => {}
    }
    let Some(NodeEnum::SelectStmt(select)) = &link.subselect.as_ref()?.node else {
        return None;
    };
    let Some(NodeEnum::ResTarget(target)) = &select.target_list.first()?.node else {
        return None;
    };
    match target.name.as_str() {
        "" => target.val.as_deref().map(figure_column_name),
        name => Some(name.to_owned()),
    }
}
