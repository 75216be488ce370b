//! What the shell opens: a file, a `file:` URI with the parameters of the SQLite extension, or
//! `:memory:`.
//!
//! Must not: pass a secret in a URI; key options reach the extension as they are.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use strongroom_format::code;
use strongroom_keyring::{KeySource, Keyring};
use strongroom_sqlite::OpenOptions;

use crate::error::{Error, sql_failure};

/// URI parameters that name a key.
const KEY_PARAMETERS: [&str; 4] = ["key_id=", "key_env=", "key_file=", "key_command="];

/// A database, and how it is opened.
pub struct Target<'a> {
    /// A file, a `file:` URI or `:memory:`.
    pub database: &'a str,
    /// The key of a file. A URI names its key itself.
    pub key: Option<KeySource>,
    /// The keyring that was named; `None` for the default one.
    pub keyring: Option<PathBuf>,
    /// Whether the environment names the same keyring, in which case the extension finds it for a
    /// URI too.
    pub is_keyring_of_environment: bool,
    /// Opened for reading only.
    pub read_only: bool,
}

/// Opens the database. With a key and unless it is only for reading, a file that does not exist is
/// made. A wrong key and damage are found here.
///
/// # Errors
/// SR-2019 for a key option beside a URI, or a keyring that the URI should name; otherwise the
/// errors of the key (SR-2xxx), of the header (SR-3xxx) and of page 1 (SR-4001).
pub fn open(target: Target<'_>) -> Result<Connection, Error> {
    if target.database != ":memory:" && !target.database.starts_with("file:") {
        return open_file(target);
    }
    if target.key.is_some() {
        let detail = "a key option goes with a file name; a URI names its key itself, as in \
                      'file:x.db?key_id=NAME'";
        return Err(Error::new(&code::KEY_OPTION, detail));
    }
    open_uri(&target)
}

/// Opens a file with the key and the keyring of the options. Without a key, a missing file is
/// SR-1006.
fn open_file(target: Target<'_>) -> Result<Connection, Error> {
    let create = target.key.is_some() && !target.read_only;
    let options = OpenOptions {
        key: target.key,
        keyring: Some(target.keyring.unwrap_or_else(Keyring::default_path)),
        read_only: target.read_only,
        create,
        ..OpenOptions::default()
    };
    Ok(strongroom_sqlite::open(
        Path::new(target.database),
        &options,
    )?)
}

/// Opens what a URI names, with the SQLite extension's parameters in it. A file that does not exist
/// is made only if the URI names a key. SR-2019 if it names a key and relies on a keyring that the
/// extension cannot know of; otherwise the errors of opening a database.
fn open_uri(target: &Target<'_>) -> Result<Connection, Error> {
    let uri = target.database;
    let (_, query) = uri.split_once('?').unwrap_or((uri, ""));
    let names_key = query
        .split('&')
        .any(|item| KEY_PARAMETERS.iter().any(|name| item.starts_with(name)));
    let names_keyring = query.split('&').any(|item| item.starts_with("keyring="));
    // The extension reads only the environment's variable.
    let is_lost = target.keyring.is_some() && !target.is_keyring_of_environment;
    if is_lost && names_key && !names_keyring {
        let detail = "--keyring goes with a file name; in a URI write keyring=FILE";
        return Err(Error::new(&code::KEY_OPTION, detail));
    }
    strongroom_sqlite::register()?;
    let access = match (target.read_only, names_key) {
        (true, _) => OpenFlags::SQLITE_OPEN_READ_ONLY,
        (false, true) => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        (false, false) => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let flags = access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_FULL_MUTEX;
    let connection = Connection::open_with_flags(uri, flags).map_err(sql_failure)?;
    // Wrong keys and damage show now, not at the first statement.
    let settled = connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0));
    settled.map_err(sql_failure)?;
    Ok(connection)
}

/// Returns the file that `text` names, a URI being read as SQLite reads it; `None` for a database
/// in memory or without a name.
#[must_use]
pub fn database_file(text: &str) -> Option<PathBuf> {
    let Some(uri) = text.strip_prefix("file:") else {
        return (text != ":memory:" && !text.is_empty()).then(|| PathBuf::from(text));
    };
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let named = uri.get(..end).unwrap_or_default();
    let named = match named.strip_prefix("//") {
        // The authority before the path can only be this host.
        Some(rest) => rest.find('/').and_then(|at| rest.get(at..))?,
        None => named,
    };
    let path = percent_decode(named.as_bytes());
    (!path.is_empty() && path != b":memory:").then(|| OsString::from_vec(path).into())
}

/// Replaces `%` and two hexadecimal digits by the byte that they mean. Anything else is left as it
/// is.
fn percent_decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return bytes,
            [b'%', high, low, left @ ..] if digit(*high).zip(digit(*low)).is_some() => {
                let value = digit(*high)
                    .zip(digit(*low))
                    .map_or(0, |(high, low)| high << 4 | low);
                bytes.push(u8::try_from(value).unwrap_or_default());
                left
            }
            [byte, left @ ..] => {
                bytes.push(*byte);
                left
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_uri_is_what_sqlite_opens() {
        for (text, expected) in [
            ("a.db", Some("a.db")),
            ("file:a%20b.db?key_id=x", Some("a b.db")),
            ("file:/d/a.db#x", Some("/d/a.db")),
            ("file:///d/a.db", Some("/d/a.db")),
            ("file://localhost/d/a.db?mode=ro", Some("/d/a.db")),
            ("file:a%zz.db", Some("a%zz.db")),
            (":memory:", None),
            ("file::memory:?cache=shared", None),
            ("file:?x", None),
            ("", None),
        ] {
            assert_eq!(database_file(text), expected.map(PathBuf::from), "{text}");
        }
    }
}
