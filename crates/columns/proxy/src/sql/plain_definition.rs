//! Definitions that have to do with nothing confidential, so that the proxy knows the catalog after
//! them without asking the server.
//!
//! What they make has plain columns only, whatever these are called. Should one not be carried out,
//! or be rolled back, then the proxy knows a plain relation that is not there, or does not know one
//! that is, and reads the catalog when that is named. Must not: take one for plain whose text names
//! something confidential, or that makes a relation of a name that is known.

use pg_query::NodeEnum;
use pg_query::protobuf::{DropStmt, Node, ObjectType, RangeVar};

use super::catalog::Catalog;
use super::tree::names;
use super::unread;

/// Returns the catalog after a definition of this text that has to do with nothing confidential;
/// `None` for every other statement. `plain`: its walk has met nothing confidential.
pub(super) fn apply_plain(
    catalog: &Catalog,
    node: &Node,
    text: &str,
    plain: bool,
) -> Option<Catalog> {
    let node = node.node.as_ref()?;
    if !plain || unread::confidential_name(catalog, text).is_some() {
        return None;
    }
    let mut known = catalog.clone();
    match node {
        NodeEnum::CreateStmt(create) => make(&mut known, create.relation.as_ref())?,
        NodeEnum::ViewStmt(view) => make(&mut known, view.view.as_ref())?,
        NodeEnum::CreateSeqStmt(create) => make(&mut known, create.sequence.as_ref())?,
        NodeEnum::CreateTableAsStmt(create) => {
            make(&mut known, create.into.as_ref()?.rel.as_ref())?;
        }
        NodeEnum::SelectStmt(select) => {
            make(&mut known, select.into_clause.as_ref()?.rel.as_ref())?;
        }
        NodeEnum::AlterTableStmt(alter) => {
            let range = alter.relation.as_ref()?;
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

/// Adds a relation with plain columns whose names are not known. `None` if a relation of the name
/// is known already.
fn make(known: &mut Catalog, range: Option<&RangeVar>) -> Option<()> {
    let range = range?;
    if known.has_name(&range.relname) {
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
        if let Some(NodeEnum::List(parts)) = object.node.as_ref() {
            known.remove(names(&parts.items).last()?);
        }
    }
    Some(())
}

/// Returns the schema of a relation that is made; empty if the statement names none.
pub(super) fn schema_of(range: &RangeVar) -> &str {
    // PostgreSQL puts a temporary table into a schema of the session's own.
    match range.relpersistence.as_str() {
        "t" => "pg_temp_0",
        _ => &range.schemaname,
    }
}
