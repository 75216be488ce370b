//! Finds the data directories that a program may work on: in its arguments, its environment, and
//! its working directory.
//!
//! A PostgreSQL program names its data directory in one of a few ways. All of them are tried for
//! every program: a directory counts only if it holds an instance's header. A server may also be
//! given a directory of configuration, as on Debian, whose `postgresql.conf` names the data
//! directory.
//!
//! Invariants: no instance is opened here; directories are in the order of their sources, and each
//! spelling is listed once.
//!
//! Must not: know a key.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use strongroom_format::postgres::CONVERT_FILE;

use crate::path::{PATH_MAX, normalise};
use crate::settings::{CONFIGURATION, Settings};

/// The variable that lists data directories, separated by `:`.
pub const ROOTS_VARIABLE: &str = "STRONGROOM_PG_ROOTS";

/// Where the data directory may be, relative to the paths that a program is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchScope {
    /// For a server: the directory itself, or the one that the configuration in it names.
    Configured,
    /// For programs that are given a file or a part of the data directory: three parent directories
    /// too.
    Parents,
    /// Both, for `pg_ctl` and `pg_upgrade`.
    ConfiguredAndParents,
}

/// Returns every directory that may be a data directory of the program, normalised: those in its
/// environment, then in its arguments, the ones that configurations in them name, and the working
/// directory. `reach` says whether configurations are read and parent directories count. Whether a
/// directory is sealed is not examined.
#[must_use]
pub fn candidate_directories(
    arguments: &[Vec<u8>],
    environment: &[(Vec<u8>, Vec<u8>)],
    working_directory: &[u8],
    reach: SearchScope,
) -> Vec<Vec<u8>> {
    let mut found = CandidateList {
        working_directory,
        paths: Vec::new(),
    };
    for (name, value) in environment {
        if name == ROOTS_VARIABLE.as_bytes() {
            for path in split_roots(value) {
                found.add(path, 0);
            }
        } else if name.starts_with(b"PGDATA") && !value.is_empty() {
            found.add(value, 0);
        }
    }
    let parents = if reach == SearchScope::Configured {
        0
    } else {
        3
    };
    for argument in arguments.iter().skip(1) {
        for spelled in possible_paths(argument) {
            found.add(spelled, parents);
        }
    }
    if reach != SearchScope::Parents {
        for named in found.paths.clone() {
            if let Some(directory) = configured_data_directory(Path::new(OsStr::from_bytes(&named)))
            {
                found.add(&directory, 0);
            }
        }
    }
    found.add(b".", parents);
    found.paths
}

struct CandidateList<'a> {
    working_directory: &'a [u8],
    paths: Vec<Vec<u8>>,
}

impl CandidateList<'_> {
    /// Adds a directory, and as many of its parents as `parents` says, unless they are known. Does
    /// nothing for a path that cannot be normalised.
    fn add(&mut self, spelled: &[u8], parents: usize) {
        let mut buffer = [0_u8; PATH_MAX];
        let Some(mut path) = normalise(self.working_directory, spelled, &mut buffer) else {
            return;
        };
        for _ in 0..=parents {
            if !self.paths.iter().any(|known| known == path) {
                self.paths.push(path.to_vec());
            }
            let above = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            path = path.get(..above).unwrap_or_default();
            if path.is_empty() {
                break;
            }
        }
    }
}

/// Returns the `data_directory` that a configuration names. `named` is its directory, or the file
/// itself (`config_file`); files that it includes are read. `None` if it names none or cannot be
/// read.
#[must_use]
pub fn configured_data_directory(named: &Path) -> Option<Vec<u8>> {
    let file = if named.is_dir() {
        named.join(CONFIGURATION)
    } else {
        named.to_path_buf()
    };
    let settings = Settings::of_file(&file);
    let setting = settings.last("data_directory")?;
    (!setting.value.is_empty()).then(|| setting.value.clone())
}

/// Yields the directories in a value of [`ROOTS_VARIABLE`], without empty ones.
pub fn split_roots(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b':')
        .filter(|path| !path.is_empty())
}

/// Yields the paths that an argument may contain: itself, the part after `=`, the part after a
/// one-letter option. Empty ones are left out.
fn possible_paths(argument: &[u8]) -> impl Iterator<Item = &[u8]> {
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

/// Returns the first directory in which a conversion was begun and not finished, whether or not it
/// has a header yet. `None` if there is none.
#[must_use]
pub fn unfinished_conversion(candidates: &[Vec<u8>]) -> Option<OsString> {
    let directory = |spelled: &Vec<u8>| OsStr::from_bytes(spelled).to_owned();
    candidates.iter().map(directory).find(|directory| {
        let state = Path::new(directory).join(CONVERT_FILE);
        state.symlink_metadata().is_ok()
    })
}

/// Returns the candidates that are sealed instances: the canonical path of each, with its
/// spellings.
#[must_use]
pub fn sealed_instances(candidates: Vec<Vec<u8>>) -> Vec<(std::path::PathBuf, Vec<Vec<u8>>)> {
    let mut found: Vec<(std::path::PathBuf, Vec<Vec<u8>>)> = Vec::new();
    for spelled in candidates {
        let path = Path::new(OsStr::from_bytes(&spelled));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str], environment: &[(&str, &str)], reach: SearchScope) -> Vec<String> {
        let bytes = |text: &&str| text.as_bytes().to_vec();
        let arguments: Vec<Vec<u8>> = arguments.iter().map(bytes).collect();
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect();
        candidate_directories(&arguments, &environment, b"/home", reach)
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
            let found = of(&["p", argument], &[], SearchScope::Configured);
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
        assert_eq!(
            of(&["p", "-D", "e"], &[], SearchScope::Configured),
            ["/home/e", "/home"]
        );
        assert_eq!(
            of(&["/d"], &[], SearchScope::Configured),
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
        assert_eq!(
            of(&["p"], &environment, SearchScope::Configured),
            ["/o", "/a", "/b", "/home"]
        );
    }

    #[test]
    fn a_segment_leads_to_its_data_directory() {
        let found = of(
            &["pg_waldump", "/d/pg_wal/000000010000000000000001"],
            &[],
            SearchScope::Parents,
        );
        assert!(found.contains(&String::from("/d")), "{found:?}");
    }

    #[test]
    fn a_directory_of_configuration_names_the_data_directory() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("postgresql.conf");
        for (text, expected) in [
            (
                "port = 1\n# data_directory = '/no'\nData_Directory = '/d/e'  # why\n",
                Some("/d/e"),
            ),
            ("data_directory '/d'\r\n", Some("/d")),
            (
                "  data_directory='/a'\ndata_directory='/it''s\\'here'",
                Some("/it's'here"),
            ),
            ("data_directory=relative#x", Some("relative")),
            (
                "data_directory_mode = 0700\nmy.data_directory = '/no'",
                None,
            ),
            ("data_directory = '/open", None),
            ("data_directory = ''", None),
        ] {
            std::io::Write::write_all(&mut std::fs::File::create(&file).unwrap(), text.as_bytes())
                .unwrap();
            let expected = expected.map(|path| path.as_bytes().to_vec());
            assert_eq!(configured_data_directory(place.path()), expected, "{text}");
            assert_eq!(configured_data_directory(&file), expected, "{text}");
        }
        assert_eq!(configured_data_directory(Path::new("/nowhere")), None);
        assert_eq!(configured_data_directory(Path::new("/dev/zero")), None);
        std::io::Write::write_all(
            &mut std::fs::File::create(&file).unwrap(),
            b"data_directory = '/d'",
        )
        .unwrap();
        let named = place.path().to_str().unwrap();
        let found = of(&["postgres", "-D", named], &[], SearchScope::Configured);
        assert_eq!(found.get(1).map(String::as_str), Some("/d"));
        let of_file = format!("config_file={}", file.display());
        let found = of(&["postgres", "-c", &of_file], &[], SearchScope::Configured);
        assert!(found.iter().any(|path| path == "/d"), "{found:?}");
        let frontend = of(&["pg_checksums", "-D", named], &[], SearchScope::Parents);
        assert!(!frontend.iter().any(|path| path == "/d"), "{frontend:?}");
    }
}
