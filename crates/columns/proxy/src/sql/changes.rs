//! Which relations a statement may make, change or drop: what the owner knows of their columns is
//! to be learned again.
//!
//! Must not: count a relation that a statement only reads.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableStmt, AlterTableType, DiscardMode, DropStmt, Node, ObjectType, RangeVar, RenameStmt,
};

use super::tree::names;

/// Relations whose columns a statement may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Their names, in whatever schema.
    pub(crate) names: BTreeSet<String>,
    /// The names of functions that it may make, change or drop.
    pub(crate) functions: BTreeSet<String>,
    /// Whether it drops the session's temporary relations.
    pub(crate) temporary: bool,
    /// Whether it may be any relation and function of the database.
    pub(crate) any: bool,
}

impl Changes {
    /// Returns whether the statement changes no relation.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.functions.is_empty() && !self.temporary && !self.any
    }

    /// Returns whether the relation of this name may be changed.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.any || self.names.contains(name)
    }

    /// Returns whether the function of this name may be changed.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.any || self.functions.contains(name)
    }

    /// Adds those of another statement.
    pub(crate) fn join(&mut self, other: &Self) {
        self.names.extend(other.names.iter().cloned());
        self.functions.extend(other.functions.iter().cloned());
        self.temporary |= other.temporary;
        self.any |= other.any;
    }

    /// Returns the change of any relation.
    fn any() -> Self {
        Self {
            any: true,
            ..Self::default()
        }
    }

    /// Adds a relation. Does nothing for `None`.
    fn add(&mut self, range: Option<&RangeVar>) {
        self.names.extend(range.map(|range| range.relname.clone()));
    }
}

/// Returns the relations that the statement may make, change or drop.
pub(super) fn changed_relations(node: &Node) -> Changes {
    let mut changes = Changes::default();
    match node.node.as_ref() {
        // One that is there stays as it is, and one that is not has nothing to be forgotten.
        Some(NodeEnum::CreateStmt(create)) if create.if_not_exists => {}
        Some(NodeEnum::CreateStmt(create)) => changes.add(create.relation.as_ref()),
        Some(NodeEnum::CreateForeignTableStmt(create)) => {
            let base = create.base_stmt.as_ref();
            changes.add(base.and_then(|base| base.relation.as_ref()));
        }
        Some(NodeEnum::CreateTableAsStmt(create)) => {
            changes.add(create.into.as_ref().and_then(|into| into.rel.as_ref()));
        }
        Some(NodeEnum::SelectStmt(select)) => {
            let into = select.into_clause.as_ref();
            changes.add(into.and_then(|into| into.rel.as_ref()));
        }
        Some(NodeEnum::ViewStmt(view)) => changes.add(view.view.as_ref()),
        Some(NodeEnum::CompositeTypeStmt(create)) => changes.add(create.typevar.as_ref()),
        Some(NodeEnum::AlterTableStmt(alter)) => alter_table(alter, &mut changes),
        Some(NodeEnum::RenameStmt(rename)) => match &rename.relation {
            Some(_) if is_beside_columns(rename.rename_type()) => {}
            Some(relation) => {
                changes.add(Some(relation));
                changes.names.insert(rename.newname.clone());
            }
            None => return renamed(rename),
        },
        Some(NodeEnum::AlterObjectSchemaStmt(alter)) => match &alter.relation {
            Some(relation) => changes.add(Some(relation)),
            None => return Changes::any(),
        },
        Some(NodeEnum::CreateFunctionStmt(create)) => {
            let name = names(&create.funcname)
                .last()
                .map(|name| (*name).to_owned());
            changes.functions.extend(name);
        }
        Some(NodeEnum::DiscardStmt(discard)) => {
            changes.temporary = matches!(
                discard.target(),
                DiscardMode::DiscardAll | DiscardMode::DiscardTemp
            );
        }
        Some(NodeEnum::DropStmt(drop)) => return dropped(drop),
        Some(
            NodeEnum::DropOwnedStmt(_)
            | NodeEnum::AlterExtensionStmt(_)
            | NodeEnum::ImportForeignSchemaStmt(_),
        ) => return Changes::any(),
        _ => {}
    }
    changes
}

/// Returns what a renaming changes that names no relation: any relation where a schema or a type
/// gets another name, functions where one does, and nothing where it is something else.
fn renamed(rename: &RenameStmt) -> Changes {
    let mut changes = Changes::default();
    match rename.rename_type() {
        ObjectType::ObjectFunction | ObjectType::ObjectProcedure | ObjectType::ObjectRoutine => {
            let object = rename
                .object
                .as_ref()
                .and_then(|object| object.node.as_ref());
            if let Some(NodeEnum::ObjectWithArgs(function)) = object {
                let name = names(&function.objname)
                    .last()
                    .map(|name| (*name).to_owned());
                changes.functions.extend(name);
            }
            changes.functions.insert(rename.newname.clone());
        }
        ObjectType::ObjectRole
        | ObjectType::ObjectDatabase
        | ObjectType::ObjectTablespace
        | ObjectType::ObjectPublication
        | ObjectType::ObjectSubscription
        | ObjectType::ObjectEventTrigger
        | ObjectType::ObjectStatisticExt => {}
        _ => return Changes::any(),
    }
    changes
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

/// Whether a command of ALTER TABLE leaves names, order and types of columns as they are, and of
/// which table the relation is a part.
const fn keeps_columns(command: AlterTableType) -> bool {
    use AlterTableType as Of;
    matches!(
        command,
        Of::AtColumnDefault
            | Of::AtDropNotNull
            | Of::AtSetNotNull
            | Of::AtSetStatistics
            | Of::AtSetOptions
            | Of::AtResetOptions
            | Of::AtSetStorage
            | Of::AtSetCompression
            | Of::AtAddConstraint
            | Of::AtAlterConstraint
            | Of::AtValidateConstraint
            | Of::AtDropConstraint
            | Of::AtChangeOwner
            | Of::AtClusterOn
            | Of::AtDropCluster
            | Of::AtSetLogged
            | Of::AtSetUnLogged
            | Of::AtSetTableSpace
            | Of::AtSetRelOptions
            | Of::AtResetRelOptions
            | Of::AtEnableTrig
            | Of::AtEnableAlwaysTrig
            | Of::AtEnableReplicaTrig
            | Of::AtDisableTrig
            | Of::AtEnableTrigAll
            | Of::AtDisableTrigAll
            | Of::AtEnableTrigUser
            | Of::AtDisableTrigUser
            | Of::AtReplicaIdentity
            | Of::AtEnableRowSecurity
            | Of::AtDisableRowSecurity
            | Of::AtForceRowSecurity
            | Of::AtNoForceRowSecurity
    )
}

/// Adds the table of an ALTER TABLE, and the partitions that it attaches or detaches. Nothing where
/// all of its commands keep the columns.
fn alter_table(alter: &AlterTableStmt, changes: &mut Changes) {
    let keeps = |command: &Node| match command.node.as_ref() {
        Some(NodeEnum::AlterTableCmd(command)) => keeps_columns(command.subtype()),
        _ => false,
    };
    if !alter.cmds.is_empty() && alter.cmds.iter().all(keeps) {
        return;
    }
    changes.add(alter.relation.as_ref());
    for command in &alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = command.node.as_ref() else {
            continue;
        };
        if let Some(NodeEnum::PartitionCmd(partition)) =
            command.def.as_ref().and_then(|def| def.node.as_ref())
        {
            changes.add(partition.name.as_ref());
        }
    }
}

/// Returns the relations that a DROP names; any for what relations can depend on.
fn dropped(drop: &DropStmt) -> Changes {
    let relations = matches!(
        drop.remove_type(),
        ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectMatview
            | ObjectType::ObjectForeignTable
            | ObjectType::ObjectSequence
            | ObjectType::ObjectIndex
    );
    let functions = matches!(
        drop.remove_type(),
        ObjectType::ObjectFunction | ObjectType::ObjectProcedure | ObjectType::ObjectRoutine
    );
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
    if functions {
        for object in &drop.objects {
            if let Some(NodeEnum::ObjectWithArgs(function)) = object.node.as_ref() {
                let name = names(&function.objname)
                    .last()
                    .map(|name| (*name).to_owned());
                changes.functions.extend(name);
            }
        }
        return changes;
    }
    if !relations {
        return Changes::any();
    }
    for object in &drop.objects {
        if let Some(NodeEnum::List(parts)) = object.node.as_ref() {
            let name = names(&parts.items).last().map(|name| (*name).to_owned());
            changes.names.extend(name);
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(sql: &str) -> Changes {
        let parsed = pg_query::parse(sql, pg_query::ParserOptions::default()).unwrap();
        let statement = parsed.protobuf.stmts[0].stmt.clone().unwrap();
        changed_relations(&statement)
    }

    #[track_caller]
    fn names_of(sql: &str, expected: &[&str]) {
        let found = changes(sql);
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!((found.names, found.any), (expected, false), "{sql}");
    }

    #[test]
    fn definitions_change_what_they_name_and_nothing_else_does() {
        names_of("CREATE TABLE s.t (LIKE other) INHERITS (parent)", &["t"]);
        names_of("CREATE TABLE t AS SELECT * FROM other", &["t"]);
        names_of("SELECT 1 INTO t FROM other", &["t"]);
        names_of("CREATE OR REPLACE VIEW v AS SELECT * FROM other", &["v"]);
        names_of("ALTER TABLE t ADD COLUMN a int, DROP COLUMN b", &["t"]);
        names_of("ALTER TABLE t ATTACH PARTITION p DEFAULT", &["t", "p"]);
        names_of("ALTER TABLE t RENAME TO u", &["t", "u"]);
        names_of("ALTER TABLE t RENAME COLUMN a TO b", &["t", "b"]);
        names_of("ALTER TABLE t SET SCHEMA s", &["t"]);
        names_of("ALTER TABLE t OWNER TO r, ALTER a TYPE text", &["t"]);
        names_of("ALTER TABLE t INHERIT u", &["t"]);
        names_of("DROP TABLE s.t, u CASCADE", &["t", "u"]);
        names_of("DROP VIEW v", &["v"]);
        for sql in [
            "DROP SCHEMA s CASCADE",
            "DROP TYPE d CASCADE",
            "DROP EXTENSION e CASCADE",
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
            assert!(found.names.is_empty(), "{sql}");
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
            "DO 'begin end'",
        ] {
            assert!(changes(sql).is_empty(), "{sql}");
        }
    }
}
