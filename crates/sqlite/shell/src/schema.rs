//! Names of the schema: what `.tables`, `.schema`, `.indexes`, completion and `.dump` need to know.
//!
//! Must not: change anything.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::{Connection, Params};
use strongroom_format::code;

use crate::error::{Error, sql_failure};

/// Returns a name as a quoted identifier of SQL.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Runs a query and returns the first column of its rows as text. SR-1005 if SQLite refuses it or a
/// value is not text, SR-6010 if the database is busy, or the VFS's error, such as SR-4001 for a
/// damaged page.
pub(crate) fn texts(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> Result<Vec<String>, Error> {
    let failed = sql_failure;
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let rows = statement
        .query_map(parameters, |row| row.get(0))
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// Returns the names of the schemas: `main`, `temp` if it is in use, and what is attached. Errors
/// as [`texts`].
pub(crate) fn databases(connection: &Connection) -> Result<Vec<String>, Error> {
    texts(
        connection,
        "SELECT name FROM pragma_database_list ORDER BY seq",
        [],
    )
}

/// Refuses, with SR-1003, a file that the connection has open as a database, log or journal:
/// opening and closing it a second time drops the process's locks on it (POSIX advisory locks;
/// SQLite, "How To Corrupt", section 2.2). A file that does not exist is not refused. Other errors
/// as [`texts`].
pub(crate) fn refuse_open_file(connection: &Connection, path: &Path) -> Result<(), Error> {
    let Ok(about) = std::fs::metadata(path) else {
        return Ok(());
    };
    let sql = "SELECT file FROM pragma_database_list WHERE file <> ''";
    for file in texts(connection, sql, [])? {
        for suffix in ["", "-wal", "-journal", "-shm"] {
            let open = std::fs::metadata(format!("{file}{suffix}"));
            if open.is_ok_and(|open| (open.dev(), open.ino()) == (about.dev(), about.ino())) {
                let detail = format!("{} is open in this shell", path.display());
                return Err(Error::new(&code::SAME_FILE, detail));
            }
        }
    }
    Ok(())
}

/// Returns the names of entries in all schemas that meet the SQL `condition`, in which `?1` is the
/// LIKE pattern. SQLite's own entries are left out; the errors of other schemas than `main` begin
/// with the schema's name. Errors as [`texts`].
pub(crate) fn names(
    connection: &Connection,
    condition: &str,
    pattern: &str,
) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for database in databases(connection)? {
        let sql = format!(
            "SELECT name FROM {}.sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
             AND {condition} ORDER BY name",
            identifier(&database)
        );
        let found = texts(connection, &sql, [pattern])?;
        all.extend(found.into_iter().map(|name| match database.as_str() {
            "main" => name,
            _ => format!("{database}.{name}"),
        }));
    }
    Ok(all)
}

/// Returns the SQL of tables, views, indexes and triggers in all schemas whose name or table
/// matches the LIKE pattern, without SQLite's own entries. Errors as [`texts`].
pub(crate) fn definitions(connection: &Connection, pattern: &str) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for database in databases(connection)? {
        let sql = format!(
            "SELECT sql FROM {}.sqlite_schema WHERE sql IS NOT NULL \
             AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND (name LIKE ?1 OR tbl_name LIKE ?1) \
             ORDER BY rowid",
            identifier(&database)
        );
        all.extend(texts(connection, &sql, [pattern])?);
    }
    Ok(all)
}

/// Returns the columns of a table of the `main` schema that hold data (neither generated nor
/// hidden), and whether these are all. Empty if there is no such table. Errors as [`texts`].
pub(crate) fn stored_columns(
    connection: &Connection,
    table: &str,
) -> Result<(Vec<String>, bool), Error> {
    let sql = "SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE hidden = 0 ORDER BY cid";
    let stored = texts(connection, sql, [table])?;
    let sql = "SELECT name FROM pragma_table_xinfo(?1, 'main')";
    let all = texts(connection, sql, [table])?;
    let only = all.len() == stored.len();
    Ok((stored, only))
}
