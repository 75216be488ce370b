//! Checks of files before any key is fetched: inputs exist, outputs do not, and they are not the
//! same file.
//!
//! These checks give early and clear messages. Races are excluded later, by moving files without
//! overwriting.
//!
//! Must not: change anything.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use strongroom_format::postgres::HEADER_FILE;
use strongroom_format::{code, header};
use strongroom_keyring::{Link, is_not_regular, open_regular};

use crate::failure::Failure;

/// The header file of a sealed PostgreSQL data directory; any other path as it is.
pub(crate) fn header_of(path: PathBuf) -> PathBuf {
    let header = path.join(HEADER_FILE);
    if path.is_dir() && header.is_file() {
        return header;
    }
    path
}

/// First bytes of a plain SQLite database (SQLite file format, section 1.3).
pub(crate) const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// What a file is by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Empty,
    Sealed,
    PlainSqlite,
    Other,
}

/// Input is there; output is not, and is not the input; the output's directory is there.
pub(crate) fn check_copy(input: &Path, output: &Path) -> Result<(), Failure> {
    let source = std::fs::metadata(input).map_err(|e| Failure::open(input, &e))?;
    // symlink_metadata: a dangling link in the way is in the way too.
    let Ok(target) = std::fs::symlink_metadata(output) else {
        return check_directory_of(output);
    };
    let resolved = std::fs::metadata(output).unwrap_or(target);
    if (source.dev(), source.ino()) == (resolved.dev(), resolved.ino()) {
        return Err(Failure::new(&code::SAME_FILE, output.display().to_string()));
    }
    Err(Failure::new(&code::EXISTS, output.display().to_string()))
}

/// Refuses an output that exists (SR-1002), or whose directory does not (SR-1006).
pub(crate) fn check_new(output: &Path) -> Result<(), Failure> {
    if std::fs::symlink_metadata(output).is_ok() {
        return Err(Failure::new(&code::EXISTS, output.display().to_string()));
    }
    check_directory_of(output)
}

/// SR-1006 where the directory is missing that the output goes into.
fn check_directory_of(output: &Path) -> Result<(), Failure> {
    let directory = output.parent().filter(|path| !path.as_os_str().is_empty());
    match directory {
        Some(directory) if !directory.exists() => {
            let detail = format!("the directory {}", directory.display());
            Err(Failure::new(&code::NOT_FOUND, detail))
        }
        _ => Ok(()),
    }
}

/// Looks at the first bytes of a regular file.
pub(crate) fn file_format(path: &Path) -> Result<FileFormat, Failure> {
    let (mut file, _) = open_to_read(path)?;
    let mut first = Vec::new();
    let read = file.by_ref().take(16).read_to_end(&mut first);
    read.map_err(|e| Failure::io(path, &e))?;
    Ok(format_of(&first))
}

pub(crate) fn format_of(first: &[u8]) -> FileFormat {
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

/// Opens a regular file and returns its length in bytes. Opening a pipe would wait for a writer, so
/// it is refused.
pub(crate) fn open_to_read(path: &Path) -> Result<(File, u64), Failure> {
    let opened = open_regular(path, Link::Followed);
    let (file, about) = opened.map_err(|error| match is_not_regular(&error) {
        true => Failure::new(&code::NOT_A_FILE, path.display().to_string()),
        false => Failure::open(path, &error),
    })?;
    Ok((file, about.len()))
}

/// As [`open_to_read`], and block devices too.
pub(crate) fn open_any_to_read(path: &Path) -> Result<(File, u64), Failure> {
    let about = std::fs::metadata(path).map_err(|e| Failure::open(path, &e))?;
    if !about.file_type().is_block_device() {
        return open_to_read(path);
    }
    let mut file = File::open(path).map_err(|e| Failure::open(path, &e))?;
    let size = file
        .seek(SeekFrom::End(0))
        .map_err(|e| Failure::io(path, &e))?;
    file.rewind().map_err(|e| Failure::io(path, &e))?;
    Ok((file, size))
}

/// Writes a new file readable by all; never overwrites.
pub(crate) fn create_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    create_with(path, bytes, 0o644)
}

/// Writes a new file that only this user may read; never overwrites.
pub(crate) fn create_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    create_with(path, bytes, 0o600)
}

/// SR-1002 for a file that is there; SR-5001. `mode`: the permissions of the new file.
fn create_with(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    strongroom_keyring::durable::create_new(path, bytes, mode).map_err(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            Failure::new(&code::EXISTS, path.display().to_string())
        } else {
            Failure::io(path, &e)
        }
    })
}
