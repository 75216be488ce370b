//! The files of an instance that are not sealed, classified by the shield's own table.
//!
//! Invariant: the table decides (crates/postgres/shield/src/table.rs); no file's name is known
//! here.
//!
//! Must not: read a file.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_postgres_shield::classify::{Class as Kind, classify};
use strongroom_postgres_shield::table::{ROWS, Row, Treatment, is_sealed_file, treatment};

/// One row of the table with what this instance holds of it. Field names are a stable contract.
#[derive(Serialize)]
pub struct UnsealedClass {
    /// Which files the row is for.
    pub pattern: &'static str,
    /// Why they are not sealed.
    pub reason: &'static str,
    /// Their sizes together.
    pub size_bytes: u64,
    /// Their paths in the data directory.
    pub files: Vec<String>,
}

/// What a walk through an instance found.
pub struct UnsealedFiles {
    /// Every file that is not sealed, by row of the table; rows without files are listed too.
    /// Strongroom's own files are among them: the shield hides them from PostgreSQL, not from
    /// others.
    pub in_clear: Vec<UnsealedClass>,
    /// Files of which the table does not know what they are: a newer PostgreSQL's, or an
    /// extension's. The shield seals what is written to them.
    pub unknown: Vec<String>,
}

/// Walks through the instance, and lists the files that are not sealed and those that are not
/// known. Reads no file.
///
/// # Errors
/// SR-7002 for what is no regular file in the place of a sealed one, and for a link to a directory
/// that is not there; SR-5001 when the system reports an error.
pub fn find(directory: &Path) -> Result<UnsealedFiles, Error> {
    let in_clear = |treatment| matches!(treatment, Treatment::Plain | Treatment::Hidden);
    let rows: Vec<&Row> = ROWS.iter().filter(|row| in_clear(row.treatment)).collect();
    let mut classes: Vec<UnsealedClass> = rows
        .iter()
        .map(|row| UnsealedClass {
            pattern: row.pattern,
            reason: row.reason,
            size_bytes: 0,
            files: Vec::new(),
        })
        .collect();
    let mut unknown = Vec::new();
    for (relative, size) in files(directory)? {
        let class = classify(relative.as_os_str().as_bytes()).class;
        if class == Kind::Unknown {
            unknown.push(relative.display().to_string());
        }
        if !in_clear(treatment(class)) {
            continue;
        }
        let position = rows.iter().position(|row| row.class == class);
        if let Some(found) = position.and_then(|at| classes.get_mut(at)) {
            found.size_bytes += size;
            found.files.push(relative.display().to_string());
        }
    }
    for class in &mut classes {
        class.files.sort();
    }
    unknown.sort();
    Ok(UnsealedFiles {
        in_clear: classes,
        unknown,
    })
}

/// Returns the regular files and links below the directory with their sizes in bytes, by paths
/// relative to it. Links to directories (the log's, the tablespaces') are followed where PostgreSQL
/// has them.
///
/// # Errors
/// SR-7002 for a link of PostgreSQL's to what is not there, as where a file system is not mounted,
/// and for what is no regular file in the place of a sealed one; SR-5001 when the system reports an
/// error.
pub(crate) fn files(directory: &Path) -> Result<Vec<(PathBuf, u64)>, Error> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(relative) = left.pop() {
        let here = directory.join(&relative);
        let entries = match std::fs::read_dir(&here) {
            Ok(entries) => entries,
            // A running server removes what has just been listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::on_path(&here, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| Error::on_path(&here, e))?;
            let path = relative.join(entry.file_name());
            let Ok(mut about) = entry.metadata() else {
                continue;
            };
            if about.is_symlink() && may_be_link(&path) {
                match std::fs::metadata(entry.path()) {
                    Ok(target) => about = target,
                    // Its tablespace was dropped meanwhile.
                    Err(_) if std::fs::symlink_metadata(entry.path()).is_err() => continue,
                    Err(error) => {
                        let why = format!("{error}; if its file system is not mounted, mount it");
                        return Err(misfit(&entry.path(), &why));
                    }
                }
            }
            let is_sealed = is_sealed_file(classify(path.as_os_str().as_bytes()).class);
            if about.is_file() || about.is_symlink() {
                found.push((path, about.len()));
            } else if is_sealed {
                return Err(misfit(&entry.path(), "it is not a regular file"));
            } else if about.is_dir() {
                left.push(path);
            }
        }
    }
    Ok(found)
}

/// Returns the error SR-7002 for what is at `path`.
fn misfit(path: &Path, why: &str) -> Error {
    Error::new(&code::PG_REFUSED, format!("{}: {why}", path.display()))
}

/// Returns whether PostgreSQL may have a link to a directory at this path: `pg_wal`, and what is in
/// `pg_tblspc`.
fn may_be_link(path: &Path) -> bool {
    path == Path::new("pg_wal") || path.parent() == Some(Path::new("pg_tblspc"))
}
