//! Which names a statement changes, of those that lineages are made from.
//!
//! Must not: know whether the statement is carried out, or which relation an unqualified name
//! means.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, Node, ObjectType, RangeVar, RenameStmt,
};
use serde::{Deserialize, Serialize};

/// A change of a name. A schema is `None` where the statement names none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Rename {
    /// A column of a relation gets another name.
    Column {
        schema: Option<String>,
        relation: String,
        from: String,
        to: String,
    },
    /// A relation gets another name.
    Relation {
        schema: Option<String>,
        from: String,
        to: String,
    },
    /// A relation goes to another schema.
    Moved {
        schema: Option<String>,
        relation: String,
        to: String,
    },
    /// A schema gets another name.
    Schema { from: String, to: String },
    /// A partition becomes a table of its own.
    Detached {
        schema: Option<String>,
        relation: String,
    },
}

/// Returns the names that the statement changes; none for a statement that changes the names of
/// other things only.
pub(super) fn renames(node: &Node) -> Vec<Rename> {
    match node.node.as_ref() {
        Some(NodeEnum::RenameStmt(rename)) => renamed(rename).into_iter().collect(),
        Some(NodeEnum::AlterObjectSchemaStmt(alter)) => {
            let moved = alter.relation.as_ref().map(|relation| Rename::Moved {
                schema: schema(relation),
                relation: relation.relname.clone(),
                to: alter.newschema.clone(),
            });
            moved.into_iter().collect()
        }
        Some(NodeEnum::AlterTableStmt(alter)) => detached(alter),
        _ => Vec::new(),
    }
}

/// Returns what a RENAME changes. `None` if it renames neither a relation, a column nor a schema.
fn renamed(rename: &RenameStmt) -> Option<Rename> {
    if rename.rename_type() == ObjectType::ObjectSchema {
        return Some(Rename::Schema {
            from: rename.subname.clone(),
            to: rename.newname.clone(),
        });
    }
    let range = rename.relation.as_ref()?;
    let to = rename.newname.clone();
    match rename.rename_type() {
        ObjectType::ObjectColumn => Some(Rename::Column {
            schema: schema(range),
            relation: range.relname.clone(),
            from: rename.subname.clone(),
            to,
        }),
        ObjectType::ObjectTable | ObjectType::ObjectMatview | ObjectType::ObjectForeignTable => {
            Some(Rename::Relation {
                schema: schema(range),
                from: range.relname.clone(),
                to,
            })
        }
        _ => None,
    }
}

/// Returns the partitions that an ALTER TABLE detaches.
fn detached(alter: &AlterTableStmt) -> Vec<Rename> {
    let commands = alter.cmds.iter().filter_map(|command| match &command.node {
        Some(NodeEnum::AlterTableCmd(command)) => detached_partition(command),
        _ => None,
    });
    let detached = commands.map(|partition| Rename::Detached {
        schema: schema(partition),
        relation: partition.relname.clone(),
    });
    detached.collect()
}

/// Returns the partition that a part of ALTER TABLE detaches. `None` for another part.
fn detached_partition(command: &AlterTableCmd) -> Option<&RangeVar> {
    let detaches = matches!(
        command.subtype(),
        AlterTableType::AtDetachPartition | AlterTableType::AtDetachPartitionFinalize
    );
    match command.def.as_ref()?.node.as_ref()? {
        NodeEnum::PartitionCmd(partition) if detaches => partition.name.as_ref(),
        _ => None,
    }
}

/// Returns the schema that a name has. `None` without one.
fn schema(range: &RangeVar) -> Option<String> {
    Some(range.schemaname.clone()).filter(|schema| !schema.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn renames_of(sql: &str, expected: &[Rename]) {
        let parsed = pg_query::parse(sql, pg_query::ParserOptions::default()).unwrap();
        let statement = parsed.protobuf.stmts[0].stmt.clone().unwrap();
        assert_eq!(renames(&statement), expected, "{sql}");
    }

    #[test]
    fn every_statement_that_changes_a_column_s_path_says_so() {
        let s = || Some("s".to_owned());
        let [t, a, b] = ["t", "a", "b"].map(str::to_owned);
        let column = |schema: Option<String>| Rename::Column {
            schema,
            relation: t.clone(),
            from: a.clone(),
            to: b.clone(),
        };
        let relation = |schema: Option<String>| Rename::Relation {
            schema,
            from: t.clone(),
            to: b.clone(),
        };
        renames_of("ALTER TABLE t RENAME COLUMN a TO b", &[column(None)]);
        renames_of("ALTER TABLE IF EXISTS s.t RENAME a TO b", &[column(s())]);
        renames_of("ALTER TABLE s.t RENAME TO b", &[relation(s())]);
        renames_of("ALTER MATERIALIZED VIEW t RENAME TO b", &[relation(None)]);
        let moved = Rename::Moved {
            schema: None,
            relation: t.clone(),
            to: b.clone(),
        };
        renames_of("ALTER TABLE t SET SCHEMA b", &[moved]);
        let schema = Rename::Schema {
            from: a.clone(),
            to: b.clone(),
        };
        renames_of("ALTER SCHEMA a RENAME TO b", &[schema]);
        let detached = |schema: Option<String>| Rename::Detached {
            schema,
            relation: t.clone(),
        };
        renames_of("ALTER TABLE p DETACH PARTITION s.t", &[detached(s())]);
        renames_of(
            "ALTER TABLE p DETACH PARTITION t CONCURRENTLY",
            &[detached(None)],
        );
        renames_of(
            "ALTER TABLE p DETACH PARTITION t FINALIZE",
            &[detached(None)],
        );
        for other in [
            "ALTER TABLE t RENAME CONSTRAINT a TO b",
            "ALTER INDEX t RENAME TO b",
            "ALTER TABLE p ATTACH PARTITION t DEFAULT",
            "ALTER FUNCTION t SET SCHEMA b",
            "ALTER ROLE a RENAME TO b",
            "SELECT 1",
        ] {
            renames_of(other, &[]);
        }
    }
}
