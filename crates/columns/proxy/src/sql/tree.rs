//! Small readers of PostgreSQL's parse tree.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, a_const};

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
