//! What the shell opens: a file, a `file:` URI with the parameters of the SQLite extension, or
//! `:memory:`.
//!
//! Must not: pass a secret in a URI; key options reach the extension as they are.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_format::code;
use strongroom_keyring::KeySource;

use crate::failure::Failure;
use crate::sealed_sqlite;

/// Opens what `text` names.
pub(super) fn open(
    text: &str,
    key: Option<KeySource>,
    keyring: Option<PathBuf>,
    read_only: bool,
) -> Result<Connection, Failure> {
    if text != ":memory:" && !text.starts_with("file:") {
        return sealed_sqlite::open(Path::new(text), key, keyring, read_only);
    }
    if key.is_some() {
        let detail = "a key option goes with a file name; a URI names its key itself, as in \
                      'file:x.db?key_id=NAME'";
        return Err(Failure::new(&code::KEY_OPTION, detail));
    }
    sealed_sqlite::open_uri(text, keyring, read_only)
}

/// The file that `text` names, in SQLite's way of reading a URI; none for a database in memory or
/// without a name.
pub(super) fn path(text: &str) -> Option<PathBuf> {
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

/// With `%` and two hexadecimal digits as the byte that they are.
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
            assert_eq!(path(text), expected.map(PathBuf::from), "{text}");
        }
    }
}
