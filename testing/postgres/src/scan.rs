//! Searching every byte of an instance's files for strings.
//!
//! Must not: skip a file. What disappears between listing and opening was removed by the server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use memchr::memmem;

/// Every regular file below `directory`, relative to it; links to tablespaces are followed.
#[must_use]
pub fn files_of(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(relative) = open.pop() {
        let entries = fs::read_dir(directory.join(&relative))
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if relative.is_empty() {
                name
            } else {
                format!("{relative}/{name}")
            };
            match fs::metadata(entry.path()) {
                Ok(about) if about.is_dir() => open.push(path),
                Ok(about) if about.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// What a search saw.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Each string that was found, with the files that it was in.
    pub hits: BTreeMap<String, BTreeSet<String>>,
    /// Files that hold something and were searched.
    pub files_seen: BTreeSet<String>,
    /// Bytes searched.
    pub bytes: u64,
}

impl Found {
    /// Searches every file below `directories` for what begins with one of `prefixes`; of these,
    /// which of `needles`. What begins like a needle and is none counts as found under its prefix.
    /// Without a prefix, for the needles.
    ///
    /// # Panics
    /// When a file that is there cannot be read.
    #[must_use]
    pub fn search(directories: &[PathBuf], prefixes: &[String], needles: &[String]) -> Self {
        let mut found = Self::default();
        for directory in directories {
            for path in files_of(directory) {
                found.file(&directory.join(&path), &path, prefixes, needles);
            }
        }
        found
    }

    fn file(&mut self, path: &Path, shown: &str, prefixes: &[String], needles: &[String]) {
        let Ok(mut file) = fs::File::open(path) else {
            assert!(!path.exists(), "{} cannot be read", path.display());
            return;
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("a file can be read");
        self.bytes += bytes.len() as u64;
        if !bytes.is_empty() {
            self.files_seen.insert(shown.to_owned());
        }
        let any = |wanted: &[String]| {
            wanted
                .iter()
                .any(|text| memmem::find(&bytes, text.as_bytes()).is_some())
        };
        if !prefixes.is_empty() && !any(prefixes) {
            return;
        }
        for needle in needles.iter().chain(prefixes) {
            if memmem::find(&bytes, needle.as_bytes()).is_some() {
                self.hits
                    .entry(needle.clone())
                    .or_default()
                    .insert(shown.to_owned());
            }
        }
    }

    /// Adds what another search saw.
    pub fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.files_seen.extend(other.files_seen);
        for (needle, files) in other.hits {
            self.hits.entry(needle).or_default().extend(files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search without prefixes once found nothing, whatever there was.
    #[test]
    fn a_needle_is_found_with_and_without_a_prefix() {
        let room = tempfile::tempdir().expect("a temporary directory");
        let target = room.path().join("file");
        checked_write(&target);
        let places = [room.path().to_owned()];
        let texts =
            |texts: &[&str]| -> Vec<String> { texts.iter().map(|&text| text.into()).collect() };
        let hits = |prefixes: &[&str], needles: &[&str]| {
            let found = Found::search(&places, &texts(prefixes), &texts(needles));
            found.hits.into_keys().collect::<Vec<String>>()
        };
        assert_eq!(hits(&[], &["needle1", "other"]), ["needle1"]);
        assert_eq!(hits(&["needle"], &["needle1"]), ["needle", "needle1"]);
        assert!(hits(&["absent"], &["needle1"]).is_empty());
        assert!(hits(&[], &["absent"]).is_empty());
    }

    #[expect(clippy::disallowed_methods, reason = "a test's file")]
    fn checked_write(path: &Path) {
        fs::write(path, b"hay needle1 hay").expect("a file can be written");
    }
}
