//! Password files: `host:port:database:user:password`, one a line (PostgreSQL documentation, "The
//! Password File").
//!
//! Invariants: Q1; a file that others may read is not used, and the error of the authentication
//! says so.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use super::secret::Secret;

/// Longest file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The connection that a password is searched for.
pub(crate) struct Wanted<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// `replication` for a replication connection, whatever its database is.
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

/// The result of the search.
pub(crate) enum Found {
    Password(Secret),
    Nothing,
    /// There is a file, and it is not used for this reason.
    NotUsed(String),
}

/// Searches the password file for the connection. Nothing is found if there is no such file or no
/// line matches. A file that is not regular, has more than 1 MiB, cannot be read, or that group or
/// others have permissions for, is not used, and the reason is returned.
pub(crate) fn look(path: &Path, wanted: &Wanted<'_>) -> Found {
    let Ok(about) = fs::metadata(path) else {
        return Found::Nothing;
    };
    let not_used = |why: &str| Found::NotUsed(format!("{} {why}", path.display()));
    if !about.is_file() || about.len() > FILE_MAX {
        return not_used("is not a file of a sensible size");
    }
    if about.permissions().mode() & 0o077 != 0 {
        return not_used("can be read by group or others and is not used; give it mode 0600");
    }
    let Ok(content) = fs::read(path).map(Zeroizing::new) else {
        return not_used("cannot be read");
    };
    let lines = content.split(|byte| *byte == b'\n');
    match lines.into_iter().find_map(|line| password(line, wanted)) {
        Some(password) => Found::Password(password),
        None => Found::Nothing,
    }
}

/// Returns the password of a line. `None` if the line is for another connection, a comment, or
/// malformed.
fn password(line: &[u8], wanted: &Wanted<'_>) -> Option<Secret> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.first() == Some(&b'#') {
        return None;
    }
    let port = wanted.port.to_string();
    let mut rest = line;
    for expected in [wanted.host, &port, wanted.database, wanted.user] {
        let (field, after) = field(rest)?;
        let any = rest.starts_with(b"*:");
        if !any && *field != expected.as_bytes() {
            return None;
        }
        rest = after;
    }
    // The password is the rest of the line, up to a colon that is not escaped.
    let plain = field_to_end(rest);
    Some(Secret::new(plain.to_vec()))
}

/// Returns the field at the start, which ends at a colon, with its escapes resolved, and the text
/// after the colon. `None` when there is no such colon.
fn field(text: &[u8]) -> Option<(Zeroizing<Vec<u8>>, &[u8])> {
    let mut plain = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => plain.push(*bytes.next()?.1),
            b':' => return Some((plain, text.get(at + 1..)?)),
            other => plain.push(*other),
        }
    }
    None
}

/// Returns the field at the start with its escapes resolved, as [`field`] does, but the end of the
/// text ends the field too.
fn field_to_end(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut closed = Zeroizing::new(Vec::with_capacity(text.len() + 2));
    closed.extend_from_slice(text);
    // A last backslash escapes nothing.
    if text.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1 {
        closed.push(b'\\');
    }
    closed.push(b':');
    field(&closed).map_or_else(Zeroizing::default, |(plain, _)| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<String> {
        let wanted = Wanted {
            host: "db::1",
            port: 5433,
            database: "replication",
            user: "us\\er",
        };
        let secret = password(line.as_bytes(), &wanted)?;
        Some(String::from_utf8_lossy(secret.bytes()).into_owned())
    }

    #[test]
    fn lines_match_as_libpq_has_them() {
        let good = [
            (r"db\:\:1:5433:replication:us\\er:pa\:ss\\", r"pa:ss\"),
            ("*:*:*:*:x", "x"),
            ("*:5433:replication:*:", ""),
            ("*:*:*:*:a\r", "a"),
            ("*:*:*:*:a:b", "a"),
            (r"*:*:*:*:a\", r"a\"),
        ];
        for (line, password) in good {
            assert_eq!(found(line).as_deref(), Some(password), "{line}");
        }
        let bad = [
            "",
            "#*:*:*:*:x",
            "*:*:*:x",
            "other:*:*:*:x",
            "*:5432:*:*:x",
            "*:*:postgres:*:x",
            r"\*:*:*:*:x",
        ];
        for line in bad {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        let room = tempfile::tempdir().expect("a directory");
        let path = room.path().join("pass");
        let wanted = Wanted {
            host: "h",
            port: 1,
            database: "replication",
            user: "u",
        };
        assert!(matches!(look(&path, &wanted), Found::Nothing));
        fs::File::create(&path).expect("a file");
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"h:1:*:u:pw\n"))
            .expect("written");
        for (mode, used) in [(0o644, false), (0o640, false), (0o600, true), (0o400, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
            let found = look(&path, &wanted);
            assert_eq!(matches!(found, Found::Password(_)), used, "{mode:o}");
            assert_eq!(matches!(found, Found::NotUsed(_)), !used, "{mode:o}");
        }
    }
}
