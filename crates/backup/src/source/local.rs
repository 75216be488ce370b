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
