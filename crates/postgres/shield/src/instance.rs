//! An opened instance: its directories and keys.
//!
//! Invariants: it is made from an authenticated header only, and never changed afterwards. In a
//! process with the preload library it lives until the process ends.
//!
//! Must not: decide which directories are searched.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_format::header::{HEADER_LEN, ObjectKind};
use strongroom_format::postgres::{CONVERT_FILE, HEADER_FILE, MAJORS};
use strongroom_keyring::{Error, Link, Object, Opener, open_regular};

use crate::data_directory::{version_path, version_text};
use crate::keys::Keys;
use crate::real::{Errno, Real};

/// An opened instance.
pub struct Instance {
    /// Its keys.
    pub keys: Keys,
    /// Object id and epoch, which determine the keys.
    pub identity: ([u8; 16], u32),
    /// Paths of the data directory, and of directories that are linked into it.
    pub(crate) prefixes: Vec<Prefix>,
    /// `PG_VERSION`'s major number, when the file was there.
    pub(crate) major: Option<u32>,
}

/// A directory, and what it is relative to the data directory.
pub(crate) struct Prefix {
    /// Normalised, absolute.
    pub(crate) path: Vec<u8>,
    /// Empty for the data directory, `pg_wal` for the target of that link, `pg_tblspc/<oid>` for a
    /// tablespace.
    pub(crate) relative: Vec<u8>,
}

impl Instance {
    /// Makes an instance of keys alone, without paths, for work on single files whose paths do not
    /// matter.
    #[must_use]
    pub const fn of_keys(keys: Keys) -> Self {
        Self {
            keys,
            identity: ([0; 16], 0),
            prefixes: Vec::new(),
            major: None,
        }
    }

    /// Reads the header in `directory`, opens it with `opener` and derives the keys. `spellings`
    /// are the paths by which the program knows the directory, beside the canonical one.
    ///
    /// # Errors
    /// SR-2002, SR-2003 or SR-2032 when `opener` does not open the header (wrong key, key not in
    /// the keyring, no private key of a certificate); SR-3001 to SR-3007 when the header is not
    /// valid; SR-7003 while a conversion is unfinished; SR-7011 for a version of PostgreSQL whose
    /// files are not known; SR-5001 when the system reports an error.
    pub fn open(directory: &Path, spellings: &[Vec<u8>], opener: &Opener) -> Result<Self, Error> {
        let io = |error| Error::io(directory.display().to_string(), error);
        if directory.join(CONVERT_FILE).symlink_metadata().is_ok() {
            let what = directory.display().to_string();
            return Err(Error::new(&code::PG_CONVERTING, what));
        }
        let major = major(directory)?;
        let object = Object::open(&header(directory)?, ObjectKind::Postgres, opener)?;
        let keys = Keys::open(&object, object.epoch())?;
        let canonical = directory.canonicalize().map_err(io)?;
        Ok(Self {
            keys,
            identity: (object.object_id(), object.epoch()),
            prefixes: prefixes(&canonical, spellings),
            major,
        })
    }
}

impl Instance {
    /// Whether a conversion of the instance has begun since it was opened: its state file exists.
    /// True also when that cannot be determined. This is also seen where Strongroom's files are
    /// hidden from the program.
    #[must_use]
    pub fn is_being_converted(&self, real: &Real) -> bool {
        let Some(directory) = self.prefixes.first() else {
            return false;
        };
        let mut path = directory.path.clone();
        path.push(b'/');
        path.extend_from_slice(CONVERT_FILE.as_bytes());
        let Ok(path) = CString::new(path) else {
            return false;
        };
        match real.open(&path, libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0) {
            Ok(fd) => real.close(fd).is_ok(),
            Err(errno) => errno != Errno(libc::ENOENT),
        }
    }
}

/// Whether `directory` holds an instance's header, or a link of that name. Does not open it.
#[must_use]
pub fn is_sealed(directory: &Path) -> bool {
    directory.join(HEADER_FILE).symlink_metadata().is_ok()
}

/// Reads the stored bytes of the instance's header.
///
/// # Errors
/// SR-3006 when it is cut short, SR-5001 when it cannot be read.
pub fn header(directory: &Path) -> Result<Vec<u8>, Error> {
    let path = directory.join(HEADER_FILE);
    let io = |error| Error::io(path.display().to_string(), error);
    let limit = u64::try_from(HEADER_LEN).unwrap_or(u64::MAX);
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    let (file, _) = open_regular(&path, Link::Followed).map_err(io)?;
    file.take(limit).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() < HEADER_LEN {
        let detail = format!("{} of {HEADER_LEN} bytes", bytes.len());
        return Err(Error::new(&code::HEADER_TRUNCATED, detail));
    }
    Ok(bytes)
}

/// Returns the data directory under each spelling, then the targets of its links, without
/// repetition.
fn prefixes(canonical: &Path, spellings: &[Vec<u8>]) -> Vec<Prefix> {
    let mut found: Vec<Prefix> = Vec::new();
    let mut add = |path: &[u8], relative: &[u8]| {
        if found.iter().all(|known| known.path != path) {
            found.push(Prefix {
                path: path.to_vec(),
                relative: relative.to_vec(),
            });
        }
    };
    add(canonical.as_os_str().as_bytes(), b"");
    for spelling in spellings {
        add(spelling, b"");
    }
    for (target, relative) in links(canonical) {
        add(target.as_os_str().as_bytes(), relative.as_bytes());
    }
    found
}

/// Returns the targets of `pg_wal` and of the tablespaces, where those are links, with their paths
/// in the data directory. Links that cannot be followed are left out. Later tablespaces are
/// resolved through `pg_tblspc`, as in the server.
fn links(canonical: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    if let (true, Ok(target)) = (
        canonical.join("pg_wal").is_symlink(),
        canonical.join("pg_wal").canonicalize(),
    ) {
        found.push((target, String::from("pg_wal")));
    }
    let spaces = canonical.join("pg_tblspc");
    let Ok(entries) = std::fs::read_dir(&spaces) else {
        return found;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let linked = entry
            .path()
            .is_symlink()
            .then(|| entry.path().canonicalize());
        if let (Some(Ok(target)), Some(name)) = (linked, OsStr::to_str(&name)) {
            found.push((target, format!("pg_tblspc/{name}")));
        }
    }
    found
}

/// Reads the major version in `PG_VERSION`. `None` without that file, as in a directory that is
/// still to be filled.
///
/// # Errors
/// SR-7011 when it is not a supported version, or not a number: another version may have files and
/// calls that are not handled; SR-5001 when the file cannot be read.
fn major(directory: &Path) -> Result<Option<u32>, Error> {
    let path = version_path(directory);
    let text = match version_text(directory) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(path.display().to_string(), error)),
    };
    match text.parse() {
        Ok(major) if MAJORS.contains(&major) => Ok(Some(major)),
        _ => {
            let detail = format!("{}: {}", path.display(), text.escape_debug());
            Err(Error::new(&code::PG_NOT_INSTANCE, detail))
        }
    }
}
