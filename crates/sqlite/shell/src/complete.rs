//! Completion with Tab: keywords, dot-commands, and the names of tables and columns.
//!
//! Must not: read rows of user tables, or report an error; without names there is nothing to
//! complete.

use std::rc::Rc;

use rusqlite::Connection;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::schema;

/// Most names that are taken from the schema.
const NAMES_MAX: usize = 10_000;

/// Words of SQL that statements begin with or are built from.
const KEYWORDS: &[&str] = &[
    "ALTER",
    "ANALYZE",
    "AND",
    "ATTACH",
    "BEGIN",
    "BETWEEN",
    "CASE",
    "CAST",
    "COLLATE",
    "COLUMN",
    "COMMIT",
    "CREATE",
    "CROSS",
    "DEFAULT",
    "DELETE",
    "DESC",
    "DETACH",
    "DISTINCT",
    "DROP",
    "ELSE",
    "EXISTS",
    "EXPLAIN",
    "FOREIGN",
    "FROM",
    "GROUP BY",
    "HAVING",
    "INDEX",
    "INNER",
    "INSERT INTO",
    "INTEGER",
    "INTERSECT",
    "IS NULL",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT NULL",
    "OFFSET",
    "ORDER BY",
    "PRAGMA",
    "PRIMARY KEY",
    "REAL",
    "REFERENCES",
    "REINDEX",
    "RELEASE",
    "REPLACE",
    "RETURNING",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "TABLE",
    "TEXT",
    "THEN",
    "TRIGGER",
    "UNION",
    "UNIQUE",
    "UPDATE",
    "USING",
    "VACUUM",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];

const DOT_COMMANDS: &[&str] = &[
    ".databases",
    ".dump",
    ".headers",
    ".help",
    ".import",
    ".indexes",
    ".mode",
    ".nullvalue",
    ".output",
    ".quit",
    ".read",
    ".schema",
    ".tables",
    ".timer",
];

/// What the line editor asks for completions.
pub(crate) struct Names {
    connection: Rc<Connection>,
}

impl Names {
    /// Returns completions for this connection. The schema is read at each completion.
    pub(crate) fn new(connection: Rc<Connection>) -> Self {
        Self { connection }
    }

    /// Returns the names of tables, views and columns of the main schema, at most 10000; none if
    /// the schema cannot be read.
    fn schema_names(&self) -> Vec<String> {
        let sql = format!(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') UNION \
             SELECT c.name FROM sqlite_schema AS s, pragma_table_info(s.name) AS c \
             WHERE s.type IN ('table', 'view') ORDER BY 1 LIMIT {NAMES_MAX}"
        );
        schema::texts(&self.connection, &sql, []).unwrap_or_default()
    }
}

/// Returns the byte offset at which the word at the end of `text` begins, and what it can be
/// completed to: dot-commands for a line that begins with a dot, otherwise the `names` and keywords
/// that begin with it, without regard to case. `names` is called only if there is a word.
fn candidates(text: &str, names: impl FnOnce() -> Vec<String>) -> (usize, Vec<String>) {
    if text.starts_with('.') && !text.contains(' ') {
        let fitting = DOT_COMMANDS.iter().filter(|name| name.starts_with(text));
        return (0, fitting.map(|&name| name.to_owned()).collect());
    }
    let start = text
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .and_then(|at| Some(at + text.get(at..)?.chars().next()?.len_utf8()))
        .unwrap_or(0);
    let word = text.get(start..).unwrap_or_default().to_lowercase();
    if word.is_empty() {
        return (start, Vec::new());
    }
    let fits = |name: &str| name.to_lowercase().starts_with(&word);
    let mut found: Vec<String> = names().into_iter().filter(|name| fits(name)).collect();
    let keywords = KEYWORDS.iter().filter(|name| fits(name));
    found.extend(keywords.map(|&name| name.to_owned()));
    (start, found)
}

impl Completer for Names {
    type Candidate = String;

    /// Returns where the word before the cursor begins and its completions. Never fails.
    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..position).unwrap_or(line);
        Ok(candidates(before, || self.schema_names()))
    }
}

impl Hinter for Names {
    type Hint = String;
}
impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::candidates;

    #[test]
    fn words_complete() {
        let names = || vec!["customers".to_owned(), "city".to_owned()];
        assert_eq!(candidates("sel", names), (0, vec!["SELECT".to_owned()]));
        assert_eq!(
            candidates("select * from cust", names),
            (14, vec!["customers".to_owned()])
        );
        assert_eq!(candidates("select ci", names), (7, vec!["city".to_owned()]));
        assert_eq!(candidates(".ta", names), (0, vec![".tables".to_owned()]));
        assert_eq!(candidates("select ", names), (7, vec![]));
        assert_eq!(candidates("é", names), (0, vec![]));
    }
}
