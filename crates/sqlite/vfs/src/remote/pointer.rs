//! A pointer file: a few lines of text in the place of a database file, for tools that want a file
//! name.
//!
//! ```text
//! strongroom remote database 1
//! url https://cdn.example/books.db
//! http_cache /var/cache/books
//! key_id books
//! ```
//!
//! Invariant D2: its name ends in `.remote`, so that an application that opens strangers' databases
//! under names of its own does not send requests for them; and it must be a regular file of this
//! user or of root that other users cannot write.
//! Must not: name a key except by its id in the keyring.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use strongroom_format::code;
use strongroom_keyring::{Error, Link, is_not_regular, open_regular};

/// The first line.
const FIRST_LINE: &[u8] = b"strongroom remote database 1\n";
/// The beginning of the first line of every version.
const MAGIC: &[u8] = b"strongroom remote database ";
/// The extension of its name.
const SUFFIX: &str = "remote";
/// Longest file, in bytes.
const LEN_MAX: u64 = 4000;
/// The names that lines may begin with, each at most once.
const NAMES: [&str; 8] = [
    "url",
    "http_ca",
    "http_cache",
    "http_cache_size",
    "http_timeout",
    "http_plain",
    "http_etag",
    "key_id",
];

/// The content of a pointer file.
pub(crate) struct Pointer(BTreeMap<&'static str, String>);

impl Pointer {
    /// Reads the pointer file at `path`, whose first bytes are `head`. `None`: by name or content
    /// it is no pointer. SR-2250 if others could write it, or it is too long or malformed. The file
    /// is opened again, so that owner and content are those of one descriptor.
    pub(crate) fn parse(path: &Path, head: &[u8]) -> Option<Result<Self, Error>> {
        let is_named = path.extension().is_some_and(|suffix| suffix == SUFFIX);
        (is_named && head.starts_with(MAGIC)).then(|| {
            let failed =
                |error| Error::caused(&code::REMOTE_POINTER, path.display().to_string(), error);
            let refused =
                |why: &str| Error::new(&code::REMOTE_POINTER, format!("{}: {why}", path.display()));
            let written = "others could write it";
            let opened = open_regular(path, Link::Refused);
            let (file, about) = opened.map_err(|error| match is_not_regular(&error) {
                true => refused(written),
                false => failed(error),
            })?;
            let owners = [0, geteuid().as_raw()];
            if !owners.contains(&about.uid()) || about.mode() & 0o022 != 0 {
                return Err(refused(written));
            }
            let mut text = Vec::new();
            file.take(LEN_MAX + 1)
                .read_to_end(&mut text)
                .map_err(failed)?;
            if text.len() as u64 > LEN_MAX {
                return Err(refused("it is longer than 4000 bytes"));
            }
            Self::of(&text).map_err(|why| refused(&why))
        })
    }

    /// Parses the text of a pointer file: after [`FIRST_LINE`], on each line one of [`NAMES`] and a
    /// value, each name at most once and `url` among them. Empty lines and those that begin with
    /// `#` are skipped. The error, also for an unknown name or another first line, is a text that
    /// says what is wrong.
    fn of(text: &[u8]) -> Result<Self, String> {
        let lines = text
            .strip_prefix(FIRST_LINE)
            .ok_or_else(|| "it is of a later version".to_owned())?;
        let lines = std::str::from_utf8(lines).map_err(|_| "it is not UTF-8".to_owned())?;
        let mut found = BTreeMap::new();
        for (number, line) in (2..).zip(lines.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let (known, value) = (NAMES.iter().find(|known| **known == name), value.trim());
            match known {
                Some(known) if !value.is_empty() => {
                    if found.insert(*known, value.to_owned()).is_some() {
                        return Err(format!("line {number} says {known} again"));
                    }
                }
                _ => return Err(format!("line {number} is not known")),
            }
        }
        match found.contains_key("url") {
            true => Ok(Self(found)),
            false => Err("it names no url".to_owned()),
        }
    }

    /// Returns the value that the pointer file has for `name`; `None` if it has none.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_known_and_said_once() {
        let whole = |lines: &str| {
            let mut text = FIRST_LINE.to_vec();
            text.extend_from_slice(lines.as_bytes());
            Pointer::of(&text)
        };
        let pointer = whole("# a comment\n\nurl https://a/b\n key_id\tbooks \n").unwrap();
        assert_eq!(pointer.get("url").as_deref(), Some("https://a/b"));
        assert_eq!(pointer.get("key_id").as_deref(), Some("books"));
        assert_eq!(pointer.get("http_ca"), None);
        for lines in [
            "",
            "key_id books\n",
            "url\n",
            "url a\nurl b\n",
            "url a\nkey_command id\n",
            "url a\nkey_env X\n",
        ] {
            assert!(whole(lines).is_err(), "{lines}");
        }
        assert!(Pointer::of(b"strongroom remote database 2\nurl a\n").is_err());
    }

    #[test]
    fn other_files_are_no_pointers() {
        let path = Path::new("/nonexistent.remote");
        assert!(Pointer::parse(path, b"SQLite format 3\0").is_none());
        assert!(Pointer::parse(path, b"").is_none());
        assert!(Pointer::parse(Path::new("/nonexistent.db"), FIRST_LINE).is_none());
        // One that cannot be looked at is refused, not passed over.
        assert!(Pointer::parse(path, FIRST_LINE).is_some_and(|found| found.is_err()));
    }
}
