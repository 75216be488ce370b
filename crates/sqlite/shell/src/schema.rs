//! Names of the schema: what `.tables`, `.schema`, `.indexes`, completion and `.dump` need to know.
//!
//! Must not: change anything.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::{Connection, Params};
use strongroom_format::code;

use crate::error::{Error, sql_failure};

/// An identifier in SQL's quotes.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The first column of a query's rows, as text.
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

/// The schemas: `main`, `temp` if it is in use, and what is attached.
pub(crate) fn databases(connection: &Connection) -> Result<Vec<String>, Error> {
    texts(
        connection,
        "SELECT name FROM pragma_database_list ORDER BY seq",
        [],
    )
}

/// Refuses a file that the connection has open: opening and closing it a second time drops the
/// process's locks on it (POSIX advisory locks; SQLite, "How To Corrupt", section 2.2).
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

/// Names of one type in all schemas, by a LIKE pattern; those of other schemas than `main` with the
/// schema's name.
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

/// The SQL of tables, views, indexes and triggers whose name or table matches the LIKE pattern.
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

/// Columns of a table of the `main` schema that hold data (neither generated nor hidden), and
/// whether that is all.
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
