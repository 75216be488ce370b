//! The files that a command names: checked before any key is fetched (inputs exist, outputs do not,
//! and they are not the same file), opened for reading, and written as new files.
//!
//! The checks give early and clear messages. Races are excluded later, by moving files without
//! overwriting.
//!
//! Must not: overwrite a file; wait for a named pipe.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use strongroom_format::postgres::HEADER_FILE;
use strongroom_format::{code, header};

use crate::durable;
use crate::error::Error;
use crate::regular::{Link, is_not_regular, open_regular};

/// Returns the path of the file that holds the object's header: for a directory with a header file,
/// as a sealed PostgreSQL data directory is, that file; any other path unchanged.
#[must_use]
pub fn header_of(path: PathBuf) -> PathBuf {
    let header = path.join(HEADER_FILE);
    if path.is_dir() && header.is_file() {
        return header;
    }
    path
}

/// First bytes of a plain SQLite database (SQLite file format, section 1.3).
pub const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// What a file is by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Without a byte.
    Empty,
    /// It begins with the header of a sealed object.
    Sealed,
    /// A SQLite database in clear.
    PlainSqlite,
    /// Anything else.
    Other,
}

/// Checks that the input exists, that the output does not, and that the output's directory does.
/// Creates nothing.
///
/// # Errors
/// SR-1002 when the output exists, also as a link to nothing; SR-1003 when it is the input; SR-1006
/// when the input or the output's directory is missing; SR-5001 when the system reports an error.
pub fn check_copy(input: &Path, output: &Path) -> Result<(), Error> {
    let source = std::fs::metadata(input).map_err(|e| Error::opening(input, e))?;
    // symlink_metadata: a dangling link in the way is in the way too.
    let Ok(target) = std::fs::symlink_metadata(output) else {
        return check_directory_of(output);
    };
    let resolved = std::fs::metadata(output).unwrap_or(target);
    if (source.dev(), source.ino()) == (resolved.dev(), resolved.ino()) {
        return Err(Error::new(&code::SAME_FILE, output.display().to_string()));
    }
    Err(Error::new(&code::EXISTS, output.display().to_string()))
}

/// Checks that the output does not exist, and that its directory does. Creates nothing.
///
/// # Errors
/// SR-1002 when it exists, also as a link to nothing; SR-1006 when its directory is missing.
pub fn check_new(output: &Path) -> Result<(), Error> {
    if std::fs::symlink_metadata(output).is_ok() {
        return Err(Error::new(&code::EXISTS, output.display().to_string()));
    }
    check_directory_of(output)
}

/// Checks that the directory that the output goes into exists. Errors: SR-1006 when it does not.
fn check_directory_of(output: &Path) -> Result<(), Error> {
    let directory = output.parent().filter(|path| !path.as_os_str().is_empty());
    match directory {
        Some(directory) if !directory.exists() => {
            let detail = format!("the directory {}", directory.display());
            Err(Error::new(&code::NOT_FOUND, detail))
        }
        _ => Ok(()),
    }
}

/// Says what a regular file is by its first 16 bytes, which it reads.
///
/// # Errors
/// SR-1006 when nothing is there, SR-1007 when it is no regular file; SR-5001 when the system
/// reports an error.
pub fn file_format(path: &Path) -> Result<FileFormat, Error> {
    let (mut file, _) = open_to_read(path)?;
    let mut first = Vec::new();
    let read = file.by_ref().take(16).read_to_end(&mut first);
    read.map_err(|e| Error::on_path(path, e))?;
    Ok(format_of(&first))
}

/// Says what a file is that begins with these bytes. No bytes mean an empty file.
#[must_use]
pub fn format_of(first: &[u8]) -> FileFormat {
    if first.is_empty() {
        FileFormat::Empty
    } else if header::is_sealed(first) {
        FileFormat::Sealed
    } else if first.starts_with(SQLITE_MAGIC) {
        FileFormat::PlainSqlite
    } else {
        FileFormat::Other
    }
}

/// Opens a regular file for reading and returns its length in bytes. Never waits: a named pipe is
/// refused. Follows a symbolic link.
///
/// # Errors
/// SR-1006 when nothing is there, SR-1007 when it is no regular file; SR-5001 when the system
/// reports an error.
pub fn open_to_read(path: &Path) -> Result<(File, u64), Error> {
    let opened = open_regular(path, Link::Followed);
    let (file, about) = opened.map_err(|error| match is_not_regular(&error) {
        true => Error::new(&code::NOT_A_FILE, path.display().to_string()),
        false => Error::opening(path, error),
    })?;
    Ok((file, about.len()))
}

/// Opens a regular file or a block device for reading, and returns its size in bytes. Anything else
/// is refused, as by [`open_to_read`].
///
/// # Errors
/// SR-1006 when nothing is there, SR-1007 when it is neither; SR-5001 when the system reports an
/// error.
pub fn open_any_to_read(path: &Path) -> Result<(File, u64), Error> {
    let about = std::fs::metadata(path).map_err(|e| Error::opening(path, e))?;
    if !about.file_type().is_block_device() {
        return open_to_read(path);
    }
    let mut file = File::open(path).map_err(|e| Error::opening(path, e))?;
    let size = file
        .seek(SeekFrom::End(0))
        .map_err(|e| Error::on_path(path, e))?;
    file.rewind().map_err(|e| Error::on_path(path, e))?;
    Ok((file, size))
}

/// Writes a new file durably, which every user may read (mode 0644); never overwrites.
///
/// # Errors
/// SR-1002 when something is at `path`; SR-5001 when the system reports an error.
pub fn create_new(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    create_with(path, bytes, 0o644)
}

/// Writes a new file durably, which only this user may read (mode 0600); never overwrites.
///
/// # Errors
/// SR-1002 when something is at `path`; SR-5001 when the system reports an error.
pub fn create_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    create_with(path, bytes, 0o600)
}

/// Writes a new file durably with the permission bits `mode`; never overwrites. Errors: SR-1002
/// when something is at `path`; SR-5001 when the system reports an error.
fn create_with(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    durable::create_new(path, bytes, mode).map_err(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            Error::new(&code::EXISTS, path.display().to_string())
        } else {
            Error::on_path(path, e)
        }
    })
}
