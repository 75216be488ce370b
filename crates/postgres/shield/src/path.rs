//! Paths as bytes: normalises them, makes them relative to a root, and finds version directories of
//! tablespaces.
//!
//! Invariants: nothing allocates, nothing touches the file system, nothing panics on any bytes. A
//! path that cannot be normalised (too long) yields `None`; the caller refuses it.
//!
//! Must not: follow symbolic links. `..` after a symbolic link to a directory means something else
//! to the kernel; PostgreSQL and its programs never pass such paths inside a data directory.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use crate::name_parser::NameParser;

/// Longest path in bytes: the kernel's `PATH_MAX` without the terminator.
pub const PATH_MAX: usize = 4095;

/// Writes `path`, made absolute against `cwd` and free of `//`, `.` and `..`, into `out`.
///
/// `cwd` must be absolute; it is not used when `path` is absolute. The result has no `/` at its
/// end, except the root directory itself. `None` when it does not fit, or when neither is absolute.
#[must_use]
pub fn normalise<'out>(cwd: &[u8], path: &[u8], out: &'out mut [u8]) -> Option<&'out [u8]> {
    let mut length = 0_usize;
    if !path.starts_with(b"/") {
        if !cwd.starts_with(b"/") {
            return None;
        }
        append(cwd, out, &mut length)?;
    }
    append(path, out, &mut length)?;
    if length == 0 {
        push(b"/", out, &mut length)?;
    }
    out.get(..length)
}

/// Returns what follows `root/` in `path`, both normalised; empty for the root itself. `None` when
/// it is not below `root`.
#[must_use]
pub fn relative_to<'path>(root: &[u8], path: &'path [u8]) -> Option<&'path [u8]> {
    let rest = path.strip_prefix(root)?;
    match rest.split_first() {
        None => Some(rest),
        Some((b'/', below)) => Some(below),
        Some(_) if root == b"/" => Some(rest),
        Some(_) => None,
    }
}

/// Returns the position in `path` at which a tablespace's version directory (`PG_<major>_<catalog
/// version>`) begins. `None` when there is none. The part from there on can be given to
/// [`crate::classify::classify`]; the part before it is the tablespace's location, with a `/` at
/// its end.
#[must_use]
pub fn tablespace(path: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    for component in path.split(|&byte| byte == b'/') {
        let end = at.checked_add(component.len())?;
        if is_version_directory(component) {
            return Some(at);
        }
        at = end.checked_add(1)?;
    }
    None
}

/// Whether this is the name of a tablespace's version directory: `PG_<major>_<catalog version>`.
#[must_use]
pub fn is_version_directory(name: &[u8]) -> bool {
    let mut parser = NameParser::new(name);
    let mut matched = || {
        parser.expect(b"PG_")?;
        parser.skip_digits()?;
        parser.expect(b"_")?;
        parser.skip_digits()?;
        parser.end()
    };
    matched().is_some()
}

/// Returns the last component of `path`.
#[must_use]
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Appends the components of `path` to the first `length` bytes of `out`, resolves `.` and `..`,
/// and updates `length`. `None` when they do not fit.
fn append(path: &[u8], out: &mut [u8], length: &mut usize) -> Option<()> {
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                let written = out.get(..*length).unwrap_or_default();
                *length = written.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            }
            name => {
                push(b"/", out, length)?;
                push(name, out, length)?;
            }
        }
    }
    Some(())
}

/// Appends `bytes` to the first `length` bytes of `out`, and updates `length`. `None` when they do
/// not fit.
fn push(bytes: &[u8], out: &mut [u8], length: &mut usize) -> Option<()> {
    let end = length.checked_add(bytes.len())?;
    out.get_mut(*length..end)?.copy_from_slice(bytes);
    *length = end;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(cwd: &str, path: &str) -> Option<String> {
        let mut out = [0_u8; PATH_MAX];
        let bytes = normalise(cwd.as_bytes(), path.as_bytes(), &mut out)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    #[test]
    fn paths_are_made_normal() {
        for (cwd, path, expected) in [
            ("/d", "base/1/2", "/d/base/1/2"),
            ("/d", "/e//f/./g/../h/", "/e/f/h"),
            ("/d/base", "../global/pg_control", "/d/global/pg_control"),
            ("/", "a", "/a"),
            ("/d", ".", "/d"),
            ("/d", "", "/d"),
            ("/", "../..", "/"),
            ("", "/x", "/x"),
            ("/d//e/./", "f", "/d/e/f"),
        ] {
            assert_eq!(normal(cwd, path).as_deref(), Some(expected), "{cwd} {path}");
        }
        assert_eq!(normal("", "relative"), None);
        assert_eq!(normal("/", &"x/".repeat(2048)), None, "too long");
        let mut small = [0_u8; 4];
        assert_eq!(normalise(b"/", b"/abcd", &mut small), None);
        assert_eq!(normalise(b"/", b"/abc", &mut small), Some(&b"/abc"[..]));
    }

    #[test]
    fn only_what_is_below_a_root_is_relative_to_it() {
        assert_eq!(relative_to(b"/d", b"/d/base/1"), Some(&b"base/1"[..]));
        assert_eq!(relative_to(b"/d", b"/d"), Some(&b""[..]));
        assert_eq!(relative_to(b"/d", b"/data"), None);
        assert_eq!(relative_to(b"/d", b"/e"), None);
        assert_eq!(relative_to(b"/", b"/e"), Some(&b"e"[..]));
    }

    #[test]
    fn a_tablespace_is_found_by_its_version_directory() {
        assert_eq!(tablespace(b"/mnt/ts/PG_15_202209061/5/16384"), Some(8));
        assert_eq!(tablespace(b"PG_17_202406281/5"), Some(0));
        for path in [
            &b"/mnt/PG_VERSION"[..],
            b"/a/PG_15",
            b"/a/PG_x_1",
            b"",
            b"//",
        ] {
            assert_eq!(tablespace(path), None);
        }
    }
}
