//! Definitions that have to do with nothing confidential, so that the proxy knows the catalog after
//! them without asking the server.
//!
//! What they make has plain columns only, whatever these are called. Should one not be carried out,
//! or be rolled back, then the proxy knows a plain relation that is not there, or does not know one
//! that is, and reads the catalog when that is named. Must not: take one for plain whose text names
//! something confidential, or that makes a relation of a name that is known.

use pg_query::NodeEnum;
use pg_query::protobuf::{DropStmt, Node, ObjectType, RangeVar};
use serde_json::Value;

use super::catalog::Catalog;
use super::defining::change_columns;
use super::tree::{names, schema_and_name, schema_of};
use super::unread;

/// Names that stand for other types, or for types of no column.
pub(super) const WITHOUT_VALUES: &[&str] = &[
    "smallserial",
    "serial",
    "bigserial",
    "record",
    "trigger",
    "event_trigger",
];

/// Returns the catalog after a definition of this text that has to do with nothing confidential;
/// `None` for every other statement. `plain`: its walk has met nothing confidential.
pub(super) fn apply_plain(
    catalog: &Catalog,
    node: &Node,
    text: &str,
    plain: bool,
) -> Option<Catalog> {
    if !plain || unread::confidential_name(catalog, text).is_some() {
        return None;
    }
    if has_unknown_type(catalog, &serde_json::to_value(node).ok()?) {
        return None;
    }
    let node = node.node.as_ref()?;
    let mut known = catalog.clone();
    match node {
        NodeEnum::CreateStmt(create) => make(&mut known, create.relation.as_ref())?,
        NodeEnum::ViewStmt(view) => make(&mut known, view.view.as_ref())?,
        NodeEnum::CreateSeqStmt(create) => make(&mut known, create.sequence.as_ref())?,
        // What EXECUTE gives is not in this text.
        NodeEnum::CreateTableAsStmt(create) if !is_execute(create.query.as_deref()) => {
            make(&mut known, create.into.as_ref()?.rel.as_ref())?;
        }
        NodeEnum::SelectStmt(select) => {
            make(&mut known, select.into_clause.as_ref()?.rel.as_ref())?;
        }
        NodeEnum::AlterTableStmt(alter) => {
            let range = alter.relation.as_ref()?;
            // What may inherit from it has its columns, too.
            if known.has_confidential_below(&range.schemaname, &range.relname) {
                return None;
            }
            // Its partitions have its columns.
            change_columns(&mut known, alter);
            // Its columns may have other names and places now.
            known.blur(&range.relname);
        }
        NodeEnum::DropStmt(drop) => remove(&mut known, drop)?,
        NodeEnum::CreateEnumStmt(create) => known.define_type(names(&create.type_name).last()?),
        NodeEnum::CreateDomainStmt(create) => known.define_type(names(&create.domainname).last()?),
        NodeEnum::CreateSchemaStmt(create) if create.schema_elts.is_empty() => {}
        NodeEnum::CreateFunctionStmt(_)
        | NodeEnum::IndexStmt(_)
        | NodeEnum::CommentStmt(_)
        | NodeEnum::GrantStmt(_)
        | NodeEnum::GrantRoleStmt(_)
        | NodeEnum::AlterDefaultPrivilegesStmt(_)
        | NodeEnum::AlterOwnerStmt(_)
        | NodeEnum::AlterSeqStmt(_)
        | NodeEnum::AlterRoleStmt(_)
        | NodeEnum::CreateRoleStmt(_)
        | NodeEnum::DropRoleStmt(_)
        | NodeEnum::CreateTrigStmt(_)
        | NodeEnum::CreatePolicyStmt(_)
        | NodeEnum::AlterPolicyStmt(_)
        | NodeEnum::CreateStatsStmt(_)
        | NodeEnum::ConstraintsSetStmt(_)
        | NodeEnum::TruncateStmt(_)
        | NodeEnum::ClusterStmt(_)
        | NodeEnum::ReindexStmt(_)
        | NodeEnum::RefreshMatViewStmt(_) => {}
        _ => return None,
    }
    Some(known)
}

/// Returns whether the query of a CREATE TABLE AS is EXECUTE.
pub(super) fn is_execute(query: Option<&Node>) -> bool {
    let node = query.and_then(|query| query.node.as_ref());
    matches!(node, Some(NodeEnum::ExecuteStmt(_)))
}

/// Returns whether a part of the parse tree names a type that is not known to hold no confidential
/// values.
pub(super) fn has_unknown_type(catalog: &Catalog, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_unknown_type(catalog, item)),
        Value::Object(fields) => {
            // A TypeName alone has both.
            let of_type = fields
                .get("names")
                .filter(|_| fields.contains_key("typemod"));
            let unknown = of_type.is_some_and(|parts| {
                let parts = parts.as_array().map_or(&[][..], Vec::as_slice);
                let part = |part: &Value| {
                    let text = part.pointer("/node/String/sval").and_then(Value::as_str);
                    text.unwrap_or_default().to_owned()
                };
                let names: Vec<String> = parts.iter().map(part).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                !names
                    .last()
                    .is_some_and(|name| WITHOUT_VALUES.contains(name))
                    && catalog.type_may_hold_confidential(&names)
            });
            unknown
                || fields
                    .values()
                    .any(|field| has_unknown_type(catalog, field))
        }
        _ => false,
    }
}

/// Adds a relation with plain columns whose names are not known. `None` if a relation of the name
/// is known already.
fn make(known: &mut Catalog, range: Option<&RangeVar>) -> Option<()> {
    let range = range?;
    if known.has_name(&range.relname) || known.is_doubted(&range.relname) {
        return None;
    }
    known.define(schema_of(range), &range.relname, Vec::new(), true);
    // The type of its rows.
    known.define_type(&range.relname);
    Some(())
}

/// Removes the relations that a DROP names. `None` for a DROP of what relations can depend on.
fn remove(known: &mut Catalog, drop: &DropStmt) -> Option<()> {
    match drop.remove_type() {
        ObjectType::ObjectTable
        | ObjectType::ObjectView
        | ObjectType::ObjectMatview
        | ObjectType::ObjectSequence => {}
        ObjectType::ObjectIndex
        | ObjectType::ObjectFunction
        | ObjectType::ObjectProcedure
        | ObjectType::ObjectTrigger
        | ObjectType::ObjectPolicy
        | ObjectType::ObjectRule => return Some(()),
        _ => return None,
    }
    for object in &drop.objects {
        let Some(NodeEnum::List(parts)) = object.node.as_ref() else {
            return None;
        };
        let (schema, name) = schema_and_name(&parts.items)?;
        if !known.remove(schema, name) {
            return None;
        }
    }
    Some(())
}
