//! What a source's name means: a server's connection string, a directory, or a database.
//!
//! Must not: connect; open a database.

use std::path::Path;

use strongroom_format::code;
use strongroom_keyring::paths::{self, FileFormat};

use crate::{Error, Result};

/// What is at a path that is backed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalSource {
    /// A directory.
    Directory,
    /// A SQLite database, sealed or not.
    Database {
        /// Whether it is sealed.
        sealed: bool,
    },
}

impl LocalSource {
    /// Looks what is at `path`.
    ///
    /// # Errors
    /// SR-1006 when nothing is there; SR-7114 when it is neither a directory nor a database;
    /// SR-5001 when the system reports an error.
    pub fn at(path: &Path) -> Result<Self> {
        let about = std::fs::metadata(path).map_err(|error| Error::opening(path, error))?;
        if about.is_dir() {
            return Ok(Self::Directory);
        }
        match paths::file_format(path)? {
            FileFormat::PlainSqlite => Ok(Self::Database { sealed: false }),
            FileFormat::Sealed => Ok(Self::Database { sealed: true }),
            _ => {
                let detail = format!(
                    "{}: neither a directory nor a SQLite database",
                    path.display()
                );
                Err(Error::new(&code::BACKUP_SOURCE, detail))
            }
        }
    }
}

/// Returns whether the name of a source is a connection string: a `postgresql://` URI, or a keyword
/// and its value. A path of that form is written with `./`.
#[must_use]
pub fn is_connection(text: &str) -> bool {
    let keyword = text.split_once('=').map(|(keyword, _)| keyword.trim());
    let is_keyword = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
        || keyword.is_some_and(is_keyword)
}

/// Refuses a medium that lies within the directory that is backed up, or is to be made there. The
/// directory itself is not refused when it exists.
///
/// # Errors
/// SR-1003 when it lies there; SR-1006 when there is no source; SR-5001 when the system reports an
/// error.
pub fn refuse_within(source: &Path, medium: &Path) -> Result<()> {
    let source = source
        .canonicalize()
        .map_err(|error| Error::opening(source, error))?;
    let absolute = std::path::absolute(medium).map_err(|error| Error::on_path(medium, error))?;
    // The medium, or as much of its path as there is.
    let there = absolute
        .ancestors()
        .find_map(|path| path.canonicalize().ok());
    let is_medium = source == there.clone().unwrap_or_default();
    let is_below = there.is_some_and(|there| there.starts_with(&source)) && !is_medium;
    let is_new = is_medium && absolute.canonicalize().is_err();
    if is_below || is_new {
        return Err(Error::new(&code::SAME_FILE, medium.display().to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_keyring::durable;

    #[test]
    fn a_source_is_what_its_first_bytes_say_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let refused = |name: &str| LocalSource::at(&at(name)).unwrap_err().code();
        assert_eq!(
            LocalSource::at(place.path()).unwrap(),
            LocalSource::Directory
        );
        assert_eq!(refused("absent"), &code::NOT_FOUND);
        let magic = b"SQLite format 3\0";
        let whole = [&magic[..], &[0; 4080]].concat();
        durable::replace(&at("plain"), &whole, 0o600).unwrap();
        let plain = LocalSource::Database { sealed: false };
        assert_eq!(LocalSource::at(&at("plain")).unwrap(), plain);
        for flipped in 0..magic.len() {
            let mut bytes = whole.clone();
            bytes[flipped] ^= 1;
            durable::replace(&at("flipped"), &bytes, 0o600).unwrap();
            assert_eq!(refused("flipped"), &code::BACKUP_SOURCE, "{flipped}");
        }
        durable::replace(&at("cut"), &magic[..15], 0o600).unwrap();
        assert_eq!(refused("cut"), &code::BACKUP_SOURCE);
    }

    #[test]
    fn connection_strings_are_told_from_paths() {
        for text in ["postgres://h", "postgresql://", "host=h", " port = 1"] {
            assert!(is_connection(text), "{text}");
        }
        for text in ["", "=", "/a=b", "./host=h", "Host=h", "postgres:/h", "tree"] {
            assert!(!is_connection(text), "{text}");
        }
    }

    #[test]
    fn a_medium_below_its_source_is_refused_also_through_links() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir_all(at("tree/below")).unwrap();
        std::os::unix::fs::symlink("tree/below", at("link")).unwrap();
        for fine in [".", "medium", "tree", "trees", "tree/../medium"] {
            refuse_within(&at("tree"), &at(fine)).unwrap();
        }
        for below in [
            "tree/below",
            "tree/new",
            "tree/below/new",
            "link",
            "link/new",
        ] {
            let refused = refuse_within(&at("tree"), &at(below)).unwrap_err();
            assert_eq!(refused.code(), &code::SAME_FILE, "{below}");
        }
        let absent = refuse_within(&at("absent"), &at("medium")).unwrap_err();
        assert_eq!(absent.code(), &code::NOT_FOUND);
    }
}
