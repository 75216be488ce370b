//! Which relations a statement may make, change or drop, and what it says of their columns.
//!
//! Must not: count a relation that a statement only reads.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableStmt, AlterTableType, CreateFunctionStmt, CreateStmt, DiscardMode, DropBehavior,
    DropStmt, Node, ObjectType, OnCommitAction, RangeVar, RenameStmt, TypeName,
};

use super::catalog::{Catalog, Column, Presence, Relation};
use super::changes::{
    Change, Changes, DefinedColumns, MadeFunction, NewName, Renamed, Step, may_mean, named,
    named_schema,
};
use super::table::{defined_column, kind_from_definition, takes_other_columns};
use super::tree::{is_table_like, names, schema_and_name, schema_of};

/// Returns the relations that the statement may make, change or drop.
/// `catalog` tells which types hold confidential values.
pub(super) fn changed_relations(node: &Node, catalog: &Catalog) -> Changes {
    let mut changes = Changes::default();
    match node.node.as_ref() {
        Some(NodeEnum::CreateStmt(create)) => {
            // One that is there stays as it is, and one that is not has nothing to be forgotten.
            if !create.if_not_exists {
                changes.add(create.relation.as_ref());
            }
            changes.defined.extend(defined_table(catalog, create));
        }
        Some(NodeEnum::CreateForeignTableStmt(create)) => {
            let base = create.base_stmt.as_ref();
            changes.add(base.and_then(|base| base.relation.as_ref()));
        }
        Some(NodeEnum::CreateTableAsStmt(create)) if create.if_not_exists => {}
        Some(NodeEnum::CreateTableAsStmt(create)) => {
            changes.add(create.into.as_ref().and_then(|into| into.rel.as_ref()));
        }
        Some(NodeEnum::SelectStmt(select)) => {
            let into = select.into_clause.as_ref();
            changes.add(into.and_then(|into| into.rel.as_ref()));
        }
        Some(NodeEnum::CreateSchemaStmt(create)) => {
            let name = match (create.schemaname.as_str(), &create.authrole) {
                ("", Some(role)) => role.rolename.clone(),
                (name, _) => name.to_owned(),
            };
            for element in &create.schema_elts {
                changes.join_element(&name, changed_relations(element, catalog));
            }
        }
        Some(NodeEnum::ViewStmt(view)) => changes.add(view.view.as_ref()),
        Some(NodeEnum::CompositeTypeStmt(create)) => changes.add(create.typevar.as_ref()),
        Some(NodeEnum::AlterTableStmt(alter)) => alter_table(catalog, alter, &mut changes),
        Some(NodeEnum::RenameStmt(rename)) => match &rename.relation {
            Some(_) if is_beside_columns(rename.rename_type()) => {}
            Some(relation) => rename_relation(catalog, (rename, relation), &mut changes),
            None => return renamed(rename),
        },
        Some(NodeEnum::AlterObjectSchemaStmt(alter)) => match &alter.relation {
            Some(relation) => {
                let schema = certain_schema(catalog, relation).unwrap_or_default();
                let to = NewName::Schema(alter.newschema.clone());
                changes.move_relation(relation, schema, to);
            }
            None if alter.object_type() == ObjectType::ObjectExtension => return Changes::any(),
            None => {}
        },
        Some(NodeEnum::CreateFunctionStmt(create)) => {
            changes.functions.extend(last_name(&create.funcname));
            changes
                .made_functions
                .extend(made_function(catalog, create));
        }
        Some(NodeEnum::DiscardStmt(discard)) => {
            changes.temporary = matches!(
                discard.target(),
                DiscardMode::DiscardAll | DiscardMode::DiscardTemp
            );
        }
        Some(NodeEnum::DropStmt(drop)) => return dropped(drop),
        Some(NodeEnum::DropOwnedStmt(_) | NodeEnum::AlterExtensionContentsStmt(_)) => {
            return Changes::any();
        }
        _ => {}
    }
    changes
}

/// Adds what a renaming changes that names a relation: the relation itself, or one of its columns.
fn rename_relation(
    catalog: &Catalog,
    (rename, relation): (&RenameStmt, &RangeVar),
    changes: &mut Changes,
) {
    let schema = certain_schema(catalog, relation);
    if rename.rename_type() == ObjectType::ObjectColumn
        || rename.rename_type() == ObjectType::ObjectAttribute
    {
        let step = Step::Renamed(rename.subname.clone(), rename.newname.clone());
        let change = Change {
            columns: [rename.subname.clone(), rename.newname.clone()].into(),
            steps: schema
                .clone()
                .map(|schema| (schema, step))
                .into_iter()
                .collect(),
            ..Change::default()
        };
        changes.relations.insert(named(relation), change);
        changes.renamed.push(Renamed {
            schema: schema.unwrap_or_default(),
            relation: relation.relname.clone(),
            to: NewName::Column(rename.subname.clone(), rename.newname.clone()),
        });
    } else {
        let new = (schema_of(relation).to_owned(), rename.newname.clone());
        changes.relations.insert(new, Change::whole());
        let to = NewName::Relation(rename.newname.clone());
        changes.move_relation(relation, schema.unwrap_or_default(), to);
    }
}

/// Returns the schema of a relation that a statement names; `None` if it names no schema and not
/// exactly one relation has the name.
fn certain_schema(catalog: &Catalog, range: &RangeVar) -> Option<String> {
    let schema = named_schema(range);
    if !schema.is_empty() && schema != "pg_temp" {
        return Some(schema.to_owned());
    }
    let mut found = meant(catalog, range);
    let first = found.next()?;
    found.next().is_none().then(|| first.schema.clone())
}

/// Returns the relations of the catalog that a statement may name.
fn meant<'c>(catalog: &'c Catalog, range: &'c RangeVar) -> impl Iterator<Item = &'c Relation> {
    catalog.relations(named_schema(range), &range.relname)
}

/// Returns the same, or what they were before statements in the same text that may have changed
/// all of them.
fn meant_or_forgotten<'c>(catalog: &'c Catalog, range: &RangeVar) -> Vec<&'c Relation> {
    let schema = named_schema(range);
    let found: Vec<&Relation> = catalog.relations(schema, &range.relname).collect();
    if !found.is_empty() {
        return found;
    }
    let forgotten = catalog.forgotten(&range.relname).iter();
    let meant = forgotten.filter(|relation| may_mean(schema, &relation.schema));
    meant.collect()
}

/// Whether each relation that a statement may name has a column of this name, and there is one.
fn has_column(catalog: &Catalog, range: &RangeVar, column: &str) -> bool {
    let found = meant_or_forgotten(catalog, range);
    let has = |relation: &&Relation| relation.columns.iter().any(|known| known.name == column);
    !found.is_empty() && found.iter().all(has)
}

/// Returns what a renaming changes that names no relation: any relation where a schema or a type
/// gets another name, functions where one does, and nothing where it is something else.
fn renamed(rename: &RenameStmt) -> Changes {
    let mut changes = Changes::default();
    match rename.rename_type() {
        sort if is_function(sort) => {
            let name = rename.object.as_deref().and_then(function_name);
            changes.functions.extend(name.clone());
            changes.functions.insert(rename.newname.clone());
            changes.made_functions.push(MadeFunction {
                name: rename.newname.clone(),
                was: name,
                is_confidential: false,
            });
        }
        // What is in a schema has another name then, and a composite type is a relation, too.
        ObjectType::ObjectSchema | ObjectType::ObjectType => return Changes::any(),
        _ => {}
    }
    changes
}

/// Returns the function that a CREATE FUNCTION makes. `None` without a name.
fn made_function(catalog: &Catalog, create: &CreateFunctionStmt) -> Option<MadeFunction> {
    let parameters = create.parameters.iter();
    let of_parameters = parameters.filter_map(|parameter| match parameter.node.as_ref()? {
        NodeEnum::FunctionParameter(parameter) => parameter.arg_type.as_ref(),
        _ => None,
    });
    let mut types = of_parameters.chain(create.return_type.as_ref());
    let is_confidential = |of: &TypeName| {
        let name = names(&of.names).last().copied();
        kind_from_definition(Some(of)).is_some()
            || name.is_some_and(|name| catalog.holds_confidential(name))
    };
    Some(MadeFunction {
        name: last_name(&create.funcname)?,
        was: None,
        is_confidential: types.any(is_confidential),
    })
}

/// Whether something of this sort is called by its name.
const fn is_function(sort: ObjectType) -> bool {
    matches!(
        sort,
        ObjectType::ObjectFunction
            | ObjectType::ObjectProcedure
            | ObjectType::ObjectRoutine
            | ObjectType::ObjectAggregate
    )
}

/// Returns the name of a function without its schema. `None` for another object.
fn function_name(object: &Node) -> Option<String> {
    match object.node.as_ref() {
        Some(NodeEnum::ObjectWithArgs(function)) => last_name(&function.objname),
        _ => None,
    }
}

/// Returns the last part of a name.
fn last_name(parts: &[Node]) -> Option<String> {
    names(parts).last().map(|name| (*name).to_owned())
}

/// Whether something of this sort is no part of a relation's columns: what happens to it changes
/// none.
const fn is_beside_columns(sort: ObjectType) -> bool {
    matches!(
        sort,
        ObjectType::ObjectTrigger
            | ObjectType::ObjectPolicy
            | ObjectType::ObjectRule
            | ObjectType::ObjectTabconstraint
    )
}

/// Returns the columns of the table that a CREATE TABLE makes, if one of them is confidential. Of
/// LIKE, INHERITS, PARTITION OF and OF there are others besides.
fn defined_table(catalog: &Catalog, create: &CreateStmt) -> Option<DefinedColumns> {
    let range = create.relation.as_ref()?;
    let columns: Vec<Column> = create
        .table_elts
        .iter()
        .filter_map(|element| match element.node.as_ref()? {
            NodeEnum::ColumnDef(column) if column.type_name.is_some() => {
                Some(defined_column(catalog, column))
            }
            _ => None,
        })
        .collect();
    columns.iter().any(|column| column.kind.is_some()).then(|| {
        let mut defined = DefinedColumns::of(range);
        if defined.schema.is_empty() && !defined.is_temporary {
            let others = catalog.relations("", &defined.relation);
            let others = others.chain(catalog.forgotten(&defined.relation));
            // Those that a statement before in the same text has made are there, too.
            let is_there = |other: &&Relation| other.presence != Presence::Gone;
            let others = others.filter(is_there).map(|other| other.schema.clone());
            defined.elsewhere = Some(others.filter(|schema| !schema.is_empty()).collect());
        }
        DefinedColumns {
            is_complete: !takes_other_columns(create),
            is_passing: create.oncommit() == OnCommitAction::OncommitDrop,
            only_if_new: create.if_not_exists,
            columns,
            ..defined
        }
    })
}

/// Adds the table of an ALTER TABLE, what may become of its columns, and the partitions that it
/// attaches or detaches. Nothing where all of its commands keep the columns.
fn alter_table(catalog: &Catalog, alter: &AlterTableStmt, changes: &mut Changes) {
    use AlterTableType as Of;
    let Some(range) = alter.relation.as_ref() else {
        return;
    };
    let commands = alter.cmds.iter();
    let commands = commands.filter_map(|command| match command.node.as_ref()? {
        NodeEnum::AlterTableCmd(command) => Some(command.as_ref()),
        _ => None,
    });
    let mut change = Change::default();
    let mut is_changed = false;
    let (mut columns, mut dropped, mut typed) = (Vec::new(), Vec::new(), Vec::new());
    for command in commands {
        let def = command.def.as_ref().and_then(|def| def.node.as_ref());
        match (command.subtype(), def) {
            (Of::AtAddColumn, Some(NodeEnum::ColumnDef(column))) => {
                // With IF NOT EXISTS one of the name stays as it is.
                if !(command.missing_ok && has_column(catalog, range, &column.colname)) {
                    columns.push(defined_column(catalog, column));
                }
            }
            (Of::AtDropColumn, _) => {
                change.dropped.insert(command.name.clone());
                dropped.push(Step::Dropped(command.name.clone()));
            }
            (Of::AtAlterColumnType, Some(NodeEnum::ColumnDef(column))) => {
                change.columns.insert(command.name.clone());
                let column = Column {
                    name: command.name.clone(),
                    ..defined_column(catalog, column)
                };
                columns.push(column.clone());
                typed.push(Step::Typed(column));
            }
            (_, Some(NodeEnum::PartitionCmd(partition))) => {
                if let Some(part) = &partition.name {
                    let moved = Change {
                        moves: true,
                        ..Change::default()
                    };
                    changes.relations.insert(named(part), moved);
                }
                // What is below the partition is a part of another table, too.
                change.moves = true;
            }
            (Of::AtAddInherit | Of::AtDropInherit, _) => change.moves = true,
            (Of::AtAddOf | Of::AtDropOf, _) => change.join(&Change::whole()),
            // No other command changes names, order or types of columns, nor of which table the
            // relation is a part.
            _ => continue,
        }
        is_changed = true;
    }
    // PostgreSQL drops before it changes types (tablecmds.c, `AlterTablePass`).
    let certain = certain_schema(catalog, range);
    if let Some(schema) = &certain {
        let steps = dropped.into_iter().chain(typed);
        change.steps = steps.map(|step| (schema.clone(), step)).collect();
    }
    if is_changed {
        let before = changes.relations.entry(named(range));
        before.or_default().join(&change);
    }
    if !alter.missing_ok || !meant_or_forgotten(catalog, range).is_empty() {
        changes.define_columns(range, certain, columns);
    }
}

/// Returns the relations that a DROP names; any for what relations can depend on, if these are to
/// be dropped with it.
fn dropped(drop: &DropStmt) -> Changes {
    let mut changes = Changes::default();
    if matches!(
        drop.remove_type(),
        ObjectType::ObjectTrigger
            | ObjectType::ObjectPolicy
            | ObjectType::ObjectRule
            | ObjectType::ObjectEventTrigger
            | ObjectType::ObjectPublication
            | ObjectType::ObjectStatisticExt
    ) {
        // No relation gets other columns by it.
        return changes;
    }
    if is_function(drop.remove_type()) {
        let functions = drop.objects.iter().filter_map(function_name);
        changes.functions.extend(functions);
        return changes;
    }
    if !is_table_like(drop.remove_type()) && drop.remove_type() != ObjectType::ObjectIndex {
        let cascades = drop.behavior() == DropBehavior::DropCascade;
        // The tables of an extension go with it.
        let has_members = drop.remove_type() == ObjectType::ObjectExtension;
        return if cascades || has_members {
            Changes::any()
        } else {
            changes
        };
    }
    for object in &drop.objects {
        if let Some(NodeEnum::List(parts)) = object.node.as_ref()
            && let Some((schema, name)) = schema_and_name(&parts.items)
        {
            let named = (schema.unwrap_or_default().to_owned(), name.to_owned());
            changes.relations.insert(named, Change::whole());
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn changes(sql: &str) -> Changes {
        let parsed = pg_query::parse(sql, pg_query::ParserOptions::default()).unwrap();
        let statement = parsed.protobuf.stmts[0].stmt.clone().unwrap();
        changed_relations(&statement, &crate::sql::tests::catalog(&[]))
    }

    #[track_caller]
    fn names_of(sql: &str, expected: &[&str]) {
        let found = changes(sql);
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        let names = found.relations.into_keys();
        let names: BTreeSet<String> = names
            .map(|(schema, name)| match schema.as_str() {
                "" => name,
                _ => format!("{schema}.{name}"),
            })
            .collect();
        assert_eq!((names, found.any), (expected, false), "{sql}");
    }

    #[test]
    fn definitions_change_what_they_name_and_nothing_else_does() {
        names_of("CREATE TABLE s.t (LIKE other) INHERITS (parent)", &["s.t"]);
        names_of("CREATE TEMP TABLE t (a int)", &["pg_temp.t"]);
        names_of("CREATE TABLE t AS SELECT * FROM other", &["t"]);
        names_of("SELECT 1 INTO t FROM other", &["t"]);
        names_of("CREATE OR REPLACE VIEW v AS SELECT * FROM other", &["v"]);
        names_of("ALTER TABLE t ADD COLUMN a int, DROP COLUMN b", &["t"]);
        names_of("ALTER TABLE t ATTACH PARTITION p DEFAULT", &["t", "p"]);
        names_of("ALTER TABLE t RENAME TO u", &["t", "u"]);
        names_of("ALTER TABLE t RENAME COLUMN a TO b", &["t"]);
        names_of("ALTER TABLE t SET SCHEMA s", &["t"]);
        names_of("ALTER TABLE t OWNER TO r, ALTER a TYPE text", &["t"]);
        names_of("ALTER TABLE t INHERIT u", &["t"]);
        names_of("DROP TABLE s.t, u CASCADE", &["s.t", "u"]);
        names_of("DROP VIEW v", &["v"]);
        for sql in [
            "DROP SCHEMA s CASCADE",
            "DROP TYPE d CASCADE",
            "DROP EXTENSION e CASCADE",
            "DROP EXTENSION e",
            "ALTER SCHEMA s RENAME TO u",
            "ALTER TYPE s.d RENAME TO u",
            "DROP OWNED BY r",
        ] {
            assert!(changes(sql).any, "{sql}");
        }
        for sql in [
            "CREATE OR REPLACE FUNCTION s.f(a int) RETURNS int LANGUAGE sql AS 'select a'",
            "DROP FUNCTION s.f(int)",
            "DROP PROCEDURE f",
            "ALTER FUNCTION s.f(int) RENAME TO g",
            "ALTER FUNCTION s.g RENAME TO f",
        ] {
            let found = changes(sql);
            assert!(found.has_function("f") && !found.any, "{sql}: {found:?}");
            assert!(found.relations.is_empty(), "{sql}");
        }
        for (sql, expected) in [
            ("DISCARD ALL", true),
            ("DISCARD TEMP", true),
            ("DISCARD PLANS", false),
        ] {
            let found = changes(sql);
            assert!(
                found.temporary == expected && !found.any,
                "{sql}: {found:?}"
            );
        }
    }

    #[test]
    fn what_changes_no_relation_s_columns_is_none_of_them() {
        for sql in [
            "SELECT * FROM t",
            "INSERT INTO t VALUES (1)",
            "CREATE INDEX ON t (a)",
            "GRANT SELECT ON t TO r",
            "DROP TRIGGER g ON t",
            "DROP POLICY p ON t",
            "DROP RULE r ON t",
            "CREATE RULE r AS ON INSERT TO t DO ALSO NOTHING",
            "CREATE TABLE IF NOT EXISTS t (a int)",
            "ALTER TRIGGER g ON t RENAME TO h",
            "ALTER TABLE t RENAME CONSTRAINT a TO b",
            "ALTER TABLE t OWNER TO r, ENABLE TRIGGER g, SET (fillfactor = 50)",
            "ALTER TABLE t ADD CHECK (a > 5), ALTER a SET DEFAULT 5, ALTER a SET NOT NULL",
            "ALTER ROLE a RENAME TO b",
            "ALTER DOMAIN d RENAME CONSTRAINT a TO b",
            "ALTER TYPE d SET SCHEMA s",
            "ALTER EXTENSION e UPDATE",
            "DROP TYPE d",
            "DROP SCHEMA s",
            "DROP COLLATION c",
            "DO 'begin end'",
        ] {
            assert!(changes(sql).is_empty(), "{sql}");
        }
    }
}
