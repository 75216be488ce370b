//! The history file of the interactive shell, mode 0600.
//!
//! Invariant: a statement that names a key is never stored, not even in memory; in doubt a
//! statement counts as one. A statement is one line of the file: line ends within it are written as
//! `\n`, backslashes as `\\`.
//!
//! Must not: make the shell fail; without a history file the shell only forgets.

use std::fs::{DirBuilder, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Statements that are remembered.
pub(crate) const ENTRIES_MAX: usize = 1000;
/// The file is shortened to [`ENTRIES_MAX`] when it holds this many.
const ENTRIES_SHORTEN: usize = 4 * ENTRIES_MAX;

/// The history file, if there can be one.
pub(crate) struct History {
    path: Option<PathBuf>,
}

impl History {
    /// Returns the history in this file; without one, nothing is remembered. Opens nothing.
    pub(crate) const fn at(path: Option<PathBuf>) -> Self {
        Self { path }
    }

    /// Returns the newest 1000 statements in the file, the oldest first; none if it cannot be read.
    /// A file of 4000 or more is rewritten with these only.
    pub(crate) fn load(&self) -> Vec<String> {
        let Some(file) = self.path.as_ref().and_then(|path| File::open(path).ok()) else {
            return Vec::new();
        };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        let mut entries: Vec<String> = lines.map(|line| unescape(&line)).collect();
        let all = entries.len();
        entries.drain(..all.saturating_sub(ENTRIES_MAX));
        if all >= ENTRIES_SHORTEN {
            self.keep_newest(&entries);
        }
        entries
    }

    /// Appends a statement to the file; errors are ignored. Panics if the statement may hold a key:
    /// the caller checks that with [`mentions_key`].
    pub(crate) fn append(&self, statement: &str) {
        assert!(!mentions_key(statement), "a key must not reach the history");
        let Some(path) = &self.path else { return };
        // Forgetting is the only harm of a failure, and the shell goes on.
        drop(append(path, &format!("{}\n", escape(statement))));
    }

    /// Replaces the file by one with these statements. Errors are ignored.
    fn keep_newest(&self, entries: &[String]) {
        let lines: Vec<String> = entries.iter().map(|entry| escape(entry)).collect();
        if let Some(path) = &self.path {
            let text = format!("{}\n", lines.join("\n"));
            // As above: a file that stays long does no harm.
            drop(strongroom_keyring::durable::replace(
                path,
                text.as_bytes(),
                0o600,
            ));
        }
    }
}

/// Appends a line to a file with mode 0600, which is made if it is missing, with its directory
/// (mode 0700). A file with another mode gets this one. Fails as the system does.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let mut options = File::options();
    let mut file = options.append(true).create(true).mode(0o600).open(path)?;
    // A file from elsewhere may be readable by others.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(line.as_bytes())
}

/// Returns whether SQL may hold a key: in a function or pragma of the SQLite extension or of other
/// encrypting builds of SQLite, which people type from habit, or after ATTACH ... KEY. In doubt
/// true.
pub(crate) fn mentions_key(sql: &str) -> bool {
    let lower = sql.to_ascii_lowercase().replace("foreign_key", "");
    let after = |word: &str| lower.split_once(word).map(|(_, tail)| tail);
    let named = [
        "strongroom_key",
        "hexkey",
        "textkey",
        "hexrekey",
        "textrekey",
    ];
    named.iter().any(|name| lower.contains(name))
        || after("pragma").is_some_and(|tail| tail.contains("key"))
        || after("attach").is_some_and(|tail| words(tail).any(|word| word == "key"))
}

/// Returns the words of a text: runs of letters, digits and underscores, some of them empty.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Escapes backslashes and line ends, so that a statement is one line.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Reverses [`escape`].
fn unescape(line: &str) -> String {
    let mut out = String::new();
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{escape, mentions_key, unescape};

    #[test]
    fn keys_are_found() {
        for sql in [
            "PRAGMA key = 'x'",
            "pragma main.rekey='x'",
            "PRAGMA/**/\nKEY('x');",
            "select Strongroom_Key('x')",
            "select 1; pragma hexkey='00'",
            "ATTACH 'a.db' AS a KEY 'x'",
            "attach 'a.db' as a key'x'",
        ] {
            assert!(mentions_key(sql), "{sql}");
        }
        for sql in [
            "PRAGMA foreign_keys = ON",
            "select key from t",
            "create table t(id integer primary key)",
            "attach 'file:a.db?key_id=app' as a",
            "pragma journal_mode=wal",
        ] {
            assert!(!mentions_key(sql), "{sql}");
        }
    }

    #[test]
    fn entries_survive_the_file() {
        for entry in ["select 1;", "select '\\n\n\\';", "a\\\nb", "\\\\n"] {
            assert!(!escape(entry).contains('\n'));
            assert_eq!(unescape(&escape(entry)), entry);
        }
    }
}
