//! The catalog after a statement that defines something, before the server was asked again.
//!
//! Must not: add a relation that the statement does not define completely.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableStmt, AlterTableType, DropStmt, Node, ObjectType, RangeVar, RenameStmt,
    TransactionStmt, TransactionStmtKind,
};

use super::catalog::{Catalog, Column};
use super::plain_definition::{has_unknown_type, is_execute};
use super::table::{defined_column, kind_from_definition, takes_other_columns};
use super::tree::{is_table_like, names, schema_and_name, schema_of};
use super::unread;

/// Returns the catalog as it will be after the statement with this text; `None` when the statement
/// changes nothing in it that matters. A relation whose columns the statement does not fully define
/// is removed, so that it counts as unknown. `plain`: the statement has to do with nothing
/// confidential, so that a relation made of its query has plain columns only.
pub(super) fn apply_definition(
    catalog: &Catalog,
    node: &Node,
    text: &str,
    plain: bool,
) -> Option<Catalog> {
    let mut known = catalog.clone();
    let names_confidential = || unread::confidential_name(catalog, text).is_some();
    match node.node.as_ref()? {
        NodeEnum::CreateStmt(create) => match table_from_statement(catalog, node) {
            Some((schema, name, columns)) if !known.is_doubted(&name) => {
                known.define(&schema, &name, columns, !create.if_not_exists);
            }
            _ => forget(&mut known, create.relation.as_ref()),
        },
        NodeEnum::CreateForeignTableStmt(create) => {
            let base = create.base_stmt.as_ref();
            forget(&mut known, base.and_then(|base| base.relation.as_ref()));
        }
        NodeEnum::RenameStmt(rename) if rename.rename_type() == ObjectType::ObjectSchema => {
            known.forget_all();
        }
        NodeEnum::CreateEnumStmt(create) => known.define_type(names(&create.type_name).last()?),
        NodeEnum::CreateDomainStmt(create) => {
            let name = *names(&create.domainname).last()?;
            define_type(&mut known, name, names_confidential());
        }
        NodeEnum::CreateRangeStmt(create) => {
            let name = *names(&create.type_name).last()?;
            define_type(&mut known, name, names_confidential());
        }
        NodeEnum::CompositeTypeStmt(create) => {
            let name = &create.typevar.as_ref()?.relname;
            define_type(&mut known, name, names_confidential());
            forget(&mut known, create.typevar.as_ref());
        }
        NodeEnum::CreateFunctionStmt(create) if names_confidential() => {
            known.define_function(names(&create.funcname).last()?);
        }
        // A block may define anything that it names.
        NodeEnum::DoStmt(_) if names_confidential() => known.forget_all(),
        // What was defined since the transaction or the savepoint began is as it was before.
        NodeEnum::TransactionStmt(end) if catalog.is_provisional && rolls_back(end) => {
            known.forget_all();
        }
        NodeEnum::RenameStmt(rename) => rename_object(&mut known, rename),
        NodeEnum::AlterObjectSchemaStmt(alter) => match &alter.relation {
            Some(range) => known.forget(&range.relname),
            None => known.forget_all(),
        },
        NodeEnum::DropStmt(drop) => forget_dropped(&mut known, drop),
        NodeEnum::DefineStmt(define) if names_confidential() => {
            known.define_function(names(&define.defnames).last()?);
        }
        NodeEnum::CreateSchemaStmt(create) if !create.schema_elts.is_empty() => known.forget_all(),
        // Which schema comes first now is not known.
        NodeEnum::VariableSetStmt(set) if set.name == "search_path" || set.name.is_empty() => {
            known.forget_current_schema();
        }
        NodeEnum::ViewStmt(view) => define_by_query(&mut known, view.view.as_ref(), plain),
        NodeEnum::CreateTableAsStmt(create) => {
            let into = create.into.as_ref();
            let range = into.and_then(|into| into.rel.as_ref());
            let plain = plain && !create.if_not_exists && !is_execute(create.query.as_deref());
            define_by_query(&mut known, range, plain);
        }
        NodeEnum::SelectStmt(select) => {
            let into = select.into_clause.as_ref()?;
            define_by_query(&mut known, into.rel.as_ref(), plain);
        }
        NodeEnum::AlterTableStmt(alter) => alter_table(&mut known, alter, node, text)?,
        _ => return None,
    }
    Some(known)
}

/// Forgets what an ALTER TABLE may change. `None` if that is nothing that matters.
fn alter_table(known: &mut Catalog, alter: &AlterTableStmt, node: &Node, text: &str) -> Option<()> {
    let range = alter.relation.as_ref()?;
    let (schema, name) = (range.schemaname.as_str(), range.relname.as_str());
    let tree = serde_json::to_value(node);
    let unknown = tree.map_or(true, |tree| has_unknown_type(known, &tree));
    if alter.objtype() == ObjectType::ObjectType {
        known.define_bearing_type(name);
        known.forget_all();
    } else if alter.cmds.iter().any(|command| retypes(known, command)) {
        // So do the columns of its partitions, and of what inherits from it.
        known.forget_all();
    } else if unknown
        || unread::confidential_name(known, text).is_some()
        || known.has_confidential_below(schema, name)
    {
        change_columns(known, alter);
        known.doubt(name);
        known.forget_blurred();
    } else {
        return None;
    }
    Some(())
}

/// Removes the columns that an ALTER TABLE drops, and adds those that it adds: what follows in the
/// text is about those that are there then.
pub(super) fn change_columns(known: &mut Catalog, alter: &AlterTableStmt) {
    let Some(range) = alter.relation.as_ref() else {
        return;
    };
    let (mut dropped, mut added) = (Vec::new(), Vec::new());
    for command in &alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = command.node.as_ref() else {
            continue;
        };
        let def = command.def.as_ref().and_then(|def| def.node.as_ref());
        match (command.subtype(), def) {
            (AlterTableType::AtDropColumn, _) => dropped.push(command.name.as_str()),
            (AlterTableType::AtAddColumn, Some(NodeEnum::ColumnDef(column))) => {
                added.push((defined_column(known, column), command.missing_ok));
            }
            _ => {}
        }
    }
    // PostgreSQL drops before it adds (tablecmds.c, `AlterTablePass`).
    if !dropped.is_empty() {
        known.drop_columns(&range.schemaname, &range.relname, &dropped);
    }
    if !added.is_empty() {
        known.add_columns(&range.schemaname, &range.relname, &added);
    }
}

/// Forgets what a statement renames, under both names.
fn rename_object(known: &mut Catalog, rename: &RenameStmt) {
    let functions = matches!(
        rename.rename_type(),
        ObjectType::ObjectFunction | ObjectType::ObjectProcedure | ObjectType::ObjectRoutine
    );
    match &rename.relation {
        Some(range) if rename.rename_type() == ObjectType::ObjectColumn => {
            let name = (range.schemaname.as_str(), range.relname.as_str());
            if known.rename_column(name, &rename.subname, &rename.newname) {
                known.doubt(name.1);
            } else {
                known.forget_below(name.0, name.1);
                known.forget(name.1);
            }
        }
        Some(range) => {
            known.forget(&range.relname);
            known.forget(&rename.newname);
        }
        None if functions => known.define_function(&rename.newname),
        // A type, for instance.
        None => {
            known.define_bearing_type(&rename.newname);
            known.forget_all();
        }
    }
}

/// Forgets the relations that a DROP names; all of them for what relations can depend on.
fn forget_dropped(known: &mut Catalog, drop: &DropStmt) {
    let relations = is_table_like(drop.remove_type());
    for object in &drop.objects {
        match object.node.as_ref() {
            Some(NodeEnum::List(parts)) if relations => {
                if let Some((schema, name)) = schema_and_name(&parts.items)
                    && !known.remove(schema, name)
                {
                    known.forget(name);
                }
            }
            _ => {}
        }
    }
    if !relations {
        known.forget_all();
    }
}

/// Returns whether the statement undoes others: ROLLBACK, with or without a savepoint, or of a
/// prepared transaction.
pub(super) fn rolls_back(end: &TransactionStmt) -> bool {
    matches!(
        end.kind(),
        TransactionStmtKind::TransStmtRollback
            | TransactionStmtKind::TransStmtRollbackTo
            | TransactionStmtKind::TransStmtRollbackPrepared
    )
}

/// Adds a type, which holds confidential values or does not.
fn define_type(known: &mut Catalog, name: &str, confidential: bool) {
    if confidential {
        known.define_bearing_type(name);
    } else {
        known.define_type(name);
    }
}

/// Adds the relation that a query makes: one with plain columns whose names are not known, or one
/// that is not known at all. Does nothing for `None`.
fn define_by_query(known: &mut Catalog, range: Option<&RangeVar>, plain: bool) {
    let plain = |range: &&RangeVar| plain && !known.is_doubted(&range.relname);
    let Some(range) = range.filter(plain) else {
        return forget(known, range);
    };
    let schema = schema_of(range);
    known.define(schema, &range.relname, Vec::new(), true);
}

/// Removes all relations of this one's name from the catalog. Does nothing for `None`.
fn forget(known: &mut Catalog, range: Option<&RangeVar>) {
    if let Some(range) = range {
        known.forget(&range.relname);
    }
}

/// Returns whether a part of ALTER TABLE changes a column's type to one that is confidential, or
/// that may hold confidential values.
fn retypes(catalog: &Catalog, command: &Node) -> bool {
    let Some(NodeEnum::AlterTableCmd(command)) = command.node.as_ref() else {
        return false;
    };
    let of = match command.def.as_ref().and_then(|def| def.node.as_ref()) {
        Some(NodeEnum::ColumnDef(column)) => column.type_name.as_ref(),
        _ => None,
    };
    let name = of.and_then(|of| names(&of.names).last().copied());
    command.subtype() == AlterTableType::AtAlterColumnType
        && (kind_from_definition(of).is_some()
            || name.is_some_and(|name| catalog.may_hold_confidential(name)))
}

/// Returns schema, name and columns of the table that a CREATE TABLE makes. The schema is empty if
/// the statement names none; `catalog` tells which of the columns' types hold confidential values.
/// `None` for another statement, and with LIKE, INHERITS, PARTITION OF or OF, which take columns
/// from other tables or from a type.
fn table_from_statement(catalog: &Catalog, node: &Node) -> Option<(String, String, Vec<Column>)> {
    let Some(NodeEnum::CreateStmt(create)) = node.node.as_ref() else {
        return None;
    };
    let range = create.relation.as_ref()?;
    if takes_other_columns(create) {
        return None;
    }
    let mut columns = Vec::new();
    for element in &create.table_elts {
        match element.node.as_ref()? {
            NodeEnum::ColumnDef(column) => columns.push(defined_column(catalog, column)),
            NodeEnum::Constraint(_) => {}
            _ => return None,
        }
    }
    Some((schema_of(range).to_owned(), range.relname.clone(), columns))
}
