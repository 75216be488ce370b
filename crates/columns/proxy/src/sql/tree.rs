//! Small readers of PostgreSQL's parse tree.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ObjectType, RangeVar, a_const};

/// Returns the strings in a list of names; other nodes are left out.
pub(crate) fn names(nodes: &[Node]) -> Vec<&str> {
    nodes
        .iter()
        .filter_map(|node| match node.node.as_ref() {
            Some(NodeEnum::String(text)) => Some(text.sval.as_str()),
            _ => None,
        })
        .collect()
}

/// Returns the schema, if there is one, and the name in the parts of a name. `None` without a name.
pub(crate) fn schema_and_name(nodes: &[Node]) -> Option<(Option<&str>, &str)> {
    let parts = names(nodes);
    let (name, before) = parts.split_last()?;
    Some((before.last().copied(), *name))
}

/// Returns the integer of a constant. `None` for every other node.
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

/// Whether something of this sort is a relation that a query can read.
pub(super) const fn is_table_like(sort: ObjectType) -> bool {
    matches!(
        sort,
        ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectMatview
            | ObjectType::ObjectForeignTable
            | ObjectType::ObjectSequence
    )
}

/// Returns the schema of a relation that is made; empty if the statement names none.
pub(super) fn schema_of(range: &RangeVar) -> &str {
    // PostgreSQL puts a temporary table into a schema of the session's own.
    match range.relpersistence.as_str() {
        "t" => "pg_temp_0",
        _ => &range.schemaname,
    }
}
