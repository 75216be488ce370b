//! Which directories a program may work on: found in its arguments, its environment and where it stands.
//!
//! Every PostgreSQL program names its data directory in one of a few ways. All of them are tried, for every program
//! alike: a directory counts only if it holds an instance's header.
//!
//! Invariants: nothing is opened here; the order is that of the sources, each spelling once.
//!
//! Must not: know a key.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::path::Path;

use crate::path::{PATH_MAX, normalise};

/// The variable that lists data directories, separated by `:`.
pub const ROOTS_VARIABLE: &str = "STRONGROOM_PG_ROOTS";

/// Every directory that the program may mean, normalised. `parents`: how many directories above a named one count too,
/// for programs that are given a file or a part of the data directory.
#[must_use]
pub fn candidates(
    arguments: &[Vec<u8>],
    environment: &[(Vec<u8>, Vec<u8>)],
    working_directory: &[u8],
    parents: usize,
) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut add = |spelled: &[u8], parents: usize| {
        let mut buffer = [0_u8; PATH_MAX];
        let Some(mut path) = normalise(working_directory, spelled, &mut buffer) else {
            return;
        };
        for _ in 0..=parents {
            if !found.iter().any(|known| known == path) {
                found.push(path.to_vec());
            }
            let above = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            path = path.get(..above).unwrap_or_default();
            if path.is_empty() {
                break;
            }
        }
    };
    for (name, value) in environment {
        if name == ROOTS_VARIABLE.as_bytes() {
            for path in named_roots(value) {
                add(path, 0);
            }
        } else if name.starts_with(b"PGDATA") && !value.is_empty() {
            add(value, 0);
        }
    }
    for argument in arguments.iter().skip(1) {
        for spelled in spellings(argument) {
            add(spelled, parents);
        }
    }
    add(b".", parents);
    found
}

/// The directories in a value of [`ROOTS_VARIABLE`].
pub fn named_roots(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b':')
        .filter(|path| !path.is_empty())
}

/// The paths that an argument may hold: itself, what follows `=`, what follows a letter's option.
fn spellings(argument: &[u8]) -> impl Iterator<Item = &[u8]> {
    let value = argument.iter().position(|&byte| byte == b'=');
    let value = value.and_then(|at| argument.get(at.saturating_add(1)..));
    let attached = match argument {
        [b'-', b'a'..=b'z' | b'A'..=b'Z', rest @ ..] => Some(rest),
        _ => None,
    };
    let itself = (!argument.starts_with(b"-")).then_some(argument);
    [itself, value, attached]
        .into_iter()
        .flatten()
        .filter(|path| !path.is_empty())
}

/// Those of `candidates` that are an instance, by canonical path: each with its spellings.
#[must_use]
pub fn sealed(candidates: Vec<Vec<u8>>) -> Vec<(std::path::PathBuf, Vec<Vec<u8>>)> {
    let mut found: Vec<(std::path::PathBuf, Vec<Vec<u8>>)> = Vec::new();
    for spelled in candidates {
        let path = Path::new(std::ffi::OsStr::from_bytes(&spelled));
        if !crate::instance::is_sealed(path) {
            continue;
        }
        let Ok(canonical) = path.canonicalize() else {
            continue;
        };
        match found.iter_mut().find(|(known, _)| *known == canonical) {
            Some((_, spellings)) => spellings.push(spelled),
            None => found.push((canonical, vec![spelled])),
        }
    }
    found
}

use std::os::unix::ffi::OsStrExt;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str], environment: &[(&str, &str)], parents: usize) -> Vec<String> {
        let bytes = |text: &&str| text.as_bytes().to_vec();
        let arguments: Vec<Vec<u8>> = arguments.iter().map(bytes).collect();
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect();
        candidates(&arguments, &environment, b"/home", parents)
            .into_iter()
            .map(|path| String::from_utf8(path).unwrap())
            .collect()
    }

    #[test]
    fn every_way_of_naming_a_directory_is_seen() {
        for argument in [
            "-D/d",
            "--pgdata=/d",
            "/d",
            "-d/d",
            "data_directory=/d",
            "/x/..//d/",
        ] {
            let found = of(&["p", argument], &[], 0);
            assert!(
                found.iter().any(|path| path == "/d"),
                "{argument}: {found:?}"
            );
            assert_eq!(
                found.last().map(String::as_str),
                Some("/home"),
                "{argument}"
            );
        }
        assert_eq!(of(&["p", "-D", "e"], &[], 0), ["/home/e", "/home"]);
        assert_eq!(
            of(&["/d"], &[], 0),
            ["/home"],
            "the program's own name is no argument"
        );
    }

    #[test]
    fn the_environment_comes_first() {
        let environment = [
            ("PGDATAOLD", "/o"),
            ("STRONGROOM_PG_ROOTS", "/a:/b::"),
            ("PGHOST", "/h"),
        ];
        assert_eq!(of(&["p"], &environment, 0), ["/o", "/a", "/b", "/home"]);
    }

    #[test]
    fn a_segment_leads_to_its_data_directory() {
        let found = of(
            &["pg_waldump", "/d/pg_wal/000000010000000000000001"],
            &[],
            2,
        );
        assert!(found.contains(&String::from("/d")), "{found:?}");
    }
}
