//! A database file, opened under DuckDB's own lock, and the content of its headers.
//!
//! Invariants: D4, nothing is read before the lock is held, and nothing is written without DuckDB's
//! write lock. The lock belongs to the open file description: it conflicts with DuckDB's, and is
//! not lost when the file is closed elsewhere in this process. D5, a header with any unknown value
//! is refused before a key is tried.
//!
//! Must not: wait for a lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use strongroom_format::code;
use strongroom_format::duckdb::{
    DUCKDB_BLOCKS_AT, DUCKDB_HEADER_LEN, DatabaseHeader, Format, HeaderState, MainHeader,
    REKEY_MAGIC, Refusal,
};
use strongroom_format::layout::is_zero;
use strongroom_keyring::{Error, durable};

use crate::disk::{Disk, RekeyStorage};
use crate::key::KeyText;
use crate::seal::Sealer;
use crate::units::{UnitFault, Units, io_error};
use crate::{REKEY_SUFFIX, WAL_SUFFIXES};

/// How a file is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A database under DuckDB's lock.
pub(crate) struct DatabaseFile {
    /// The path as it was given.
    named: PathBuf,
    /// The path without symbolic links.
    path: PathBuf,
    file: File,
}

impl DatabaseFile {
    /// Opens a regular file under DuckDB's lock, without waiting for it. The lock is held until the
    /// result is dropped. SR-1006 when there is no file; SR-2209 when another process has the lock;
    /// SR-5001 when the system reports an error.
    pub(crate) fn open(named: &Path, access: Access) -> Result<Self, Error> {
        let path = named
            .canonicalize()
            .map_err(|error| Error::opening(named, error))?;
        let about = std::fs::metadata(&path).map_err(|error| Error::opening(named, error))?;
        if !about.is_file() {
            let error = io::Error::other("not a regular file");
            return Err(Error::io(named.display().to_string(), error));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        let file = options
            .open(&path)
            .map_err(|error| Error::opening(named, error))?;
        lock(&file, access, named)?;
        Ok(Self {
            named: named.to_owned(),
            path,
            file,
        })
    }

    /// Returns the path for messages.
    pub(crate) fn shown(&self) -> String {
        self.named.display().to_string()
    }

    /// Returns the path of a file of DuckDB's beside the database with data that are not in the
    /// database yet. `None` when there is none.
    pub(crate) fn wal(&self) -> Option<PathBuf> {
        wal_beside(&self.named).or_else(|| wal_beside(&self.path))
    }

    /// Returns the path of the rekey's file, beside the database.
    fn undo_path(&self) -> PathBuf {
        with_suffix(&self.path, REKEY_SUFFIX)
    }
}

impl RekeyStorage for DatabaseFile {
    /// Returns the open database file.
    fn database(&self) -> &dyn Disk {
        &self.file
    }

    /// Creates the rekey's file, readable by its owner only, in place of an older one. An error
    /// when something else has its name.
    fn create_undo(&self) -> io::Result<Box<dyn Disk>> {
        let path = self.undo_path();
        if !is_ours(&path)? {
            let text = format!("{} is in the way: no rekey made it", path.display());
            return Err(io::Error::other(text));
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        durable::sync_dir_of(&path)?;
        Ok(Box::new(file))
    }

    /// Opens the rekey's file for reading and writing. `None` when there is none.
    fn open_undo(&self) -> io::Result<Option<Box<dyn Disk>>> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.undo_path());
        match opened {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the rekey's file (its plan, and old bytes of blocks), durably, when the rekey is
    /// finished. An error when there is none.
    fn remove_undo(&self) -> io::Result<()> {
        let path = self.undo_path();
        std::fs::remove_file(&path)?;
        durable::sync_dir_of(&path)
    }
}

/// Returns whether nothing is at the path, or a rekey's file, or what a power failure left of one.
fn is_ours(path: &Path) -> io::Result<bool> {
    let mut first = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(8).read_to_end(&mut first)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    Ok(first == REKEY_MAGIC || is_zero(&first))
}

/// Returns `path` with `suffix` at the end of its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the path of a write-ahead log beside the database, or of a file that a checkpoint makes
/// of it, that is not empty. `None` when there is none.
pub(crate) fn wal_beside(path: &Path) -> Option<PathBuf> {
    let names = WAL_SUFFIXES.iter().map(|suffix| with_suffix(path, suffix));
    let mut there = names.filter(|name| std::fs::metadata(name).is_ok_and(|about| about.len() > 0));
    there.next()
}

/// Locks the whole file as DuckDB does, without waiting: to read when it is opened for reading,
/// else to write. SR-2209 when another process has a lock in the way, which the error names if the
/// system tells it; SR-5001 when the system reports an error.
fn lock(file: &File, access: Access, named: &Path) -> Result<(), Error> {
    let mut wanted = nix::libc::flock {
        l_type: lock_type(match access {
            Access::Read => nix::libc::F_RDLCK,
            Access::Write => nix::libc::F_WRLCK,
        }),
        l_whence: lock_type(nix::libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&wanted)) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => {
            let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut wanted));
            let holder = match (asked, wanted.l_pid) {
                (Ok(_), pid @ 1..) => format!(", process {pid}"),
                _ => String::new(),
            };
            let detail = format!("{}{holder}", named.display());
            Err(Error::new(&code::DUCKDB_IN_USE, detail))
        }
        Err(error) => Err(Error::io(
            format!("locking {}", named.display()),
            error.into(),
        )),
    }
}

/// Narrows a constant: those of `struct flock` are wider than its fields.
fn lock_type(constant: i32) -> i16 {
    i16::try_from(constant).unwrap_or_default()
}

/// Reads the main header of a database, whether or not its checksum is right. SR-2200 when the file
/// is not of DuckDB; SR-2208 when it is too short; SR-5001 when the system reports an error.
pub(crate) fn main_header(disk: &dyn Disk, shown: &str) -> Result<MainHeader, Error> {
    let len = disk.len().map_err(io_error(shown))?;
    let mut head = vec![0; DUCKDB_HEADER_LEN.min(usize::try_from(len).unwrap_or(usize::MAX))];
    disk.read_at(&mut head, 0).map_err(io_error(shown))?;
    if !strongroom_format::duckdb::is_duckdb(&head) {
        return Err(Error::new(&code::DUCKDB_NOT, shown));
    }
    let header = MainHeader::parse(&head);
    header
        .filter(|_| len >= DUCKDB_BLOCKS_AT)
        .ok_or_else(|| Error::new(&code::DUCKDB_TRUNCATED, format!("{shown}: {len} bytes")))
}

/// Returns the format that a header describes. SR-2201 when the database is not encrypted, SR-2203
/// when a field has an unknown value.
pub(crate) fn parse_format(header: &MainHeader, shown: &str) -> Result<Format, Error> {
    header.supported_format().map_err(|refusal| match refusal {
        Refusal::Plain => Error::new(&code::DUCKDB_PLAIN, shown),
        Refusal::Unknown(field, value) => {
            Error::new(&code::DUCKDB_FORMAT, format!("{shown}: {field} {value}"))
        }
    })
}

/// Reads the main header of a database in its usual state, and its format. SR-2211 when a rekey is
/// unfinished; SR-2202 when the header is damaged; as [`main_header`] and [`parse_format`].
pub(crate) fn intact_header(disk: &dyn Disk, shown: &str) -> Result<(MainHeader, Format), Error> {
    let header = main_header(disk, shown)?;
    match header.state() {
        HeaderState::Whole => {}
        HeaderState::Rekeying => return Err(Error::new(&code::DUCKDB_REKEYING, shown)),
        HeaderState::Damaged => return Err(Error::new(&code::DUCKDB_HEADER, shown)),
    }
    let format = parse_format(&header, shown)?;
    Ok((header, format))
}

/// A database header, or why it cannot be used.
pub(crate) type FoundHeader = Result<DatabaseHeader, UnitFault>;

/// The database header that counts, and the positions of the blocks that follow from it.
pub(crate) struct Geometry {
    /// The database header that counts.
    pub(crate) active: DatabaseHeader,
    /// Whole blocks in the file.
    pub(crate) blocks: Units,
    /// Length of a block, in bytes.
    pub(crate) block_size: u32,
    /// Bytes after the last whole block.
    pub(crate) rest: u64,
}

impl Geometry {
    /// Reads the database headers, of which the newest that one of the keys opens counts, and
    /// computes the positions of blocks. SR-2216 when no key opens one; SR-2203 for an unknown
    /// block size; SR-5001 when the system reports an error.
    pub(crate) fn read(disk: &dyn Disk, keys: &[&Sealer], shown: &str) -> Result<Self, Error> {
        let headers = [
            database_header(disk, keys, 0).map_err(io_error(shown))?,
            database_header(disk, keys, 1).map_err(io_error(shown))?,
        ];
        let good = headers.iter().flatten();
        let active = *good
            .max_by_key(|header| header.iteration)
            .ok_or_else(|| Error::new(&code::DUCKDB_HEADERS, shown))?;
        let known = u32::try_from(active.block_size).ok();
        let block_size = known.filter(|_| active.block_size_is_known());
        let block_size = block_size.ok_or_else(|| {
            let detail = format!("{shown}: blocks of {} bytes", active.block_size);
            Error::new(&code::DUCKDB_FORMAT, detail)
        })?;
        let len = disk.len().map_err(io_error(shown))?;
        let body = len.saturating_sub(DUCKDB_BLOCKS_AT);
        Ok(Self {
            active,
            blocks: Units::blocks(block_size, body / u64::from(block_size)),
            block_size,
            rest: body % u64::from(block_size),
        })
    }

    /// Returns the number of blocks that the database has and the file does not.
    pub(crate) fn missing(&self) -> u64 {
        self.active.block_count.saturating_sub(self.blocks.count)
    }
}

/// Reads database header `number` (0 or 1), and opens it with the first of the keys that does so.
/// The inner error says why none does, the outer one is that of the disk.
fn database_header(disk: &dyn Disk, keys: &[&Sealer], number: u64) -> io::Result<FoundHeader> {
    let mut sealed = [0; DUCKDB_HEADER_LEN];
    disk.read_at(&mut sealed, Units::headers().offset(number))?;
    let mut found = Err(UnitFault::Tag);
    for key in keys {
        let mut unit = sealed;
        found = key.open(&mut unit).and_then(|()| {
            let inner = unit.get(strongroom_format::duckdb::DUCKDB_UNIT_CLEAR..);
            inner
                .and_then(DatabaseHeader::parse)
                .ok_or(UnitFault::Checksum)
        });
        if found.is_ok() {
            break;
        }
    }
    Ok(found)
}

/// A database in its usual state, and the key that opens it.
pub(crate) struct Opened {
    pub(crate) file: DatabaseFile,
    pub(crate) format: Format,
    pub(crate) key: Sealer,
    pub(crate) geometry: Geometry,
}

impl Opened {
    /// Opens a database, under DuckDB's lock, with the first of `keys` under which its canary was
    /// sealed. SR-2204 when there is none; as [`DatabaseFile::open`], [`intact_header`] and
    /// [`Geometry::read`].
    pub(crate) fn open(path: &Path, access: Access, keys: &[KeyText]) -> Result<Self, Error> {
        let file = DatabaseFile::open(path, access)?;
        let shown = file.shown();
        let (header, format) = intact_header(file.database(), &shown)?;
        let key = find_opener(&header, format, keys)?
            .ok_or_else(|| Error::new(&code::DUCKDB_KEY, shown.as_str()))?;
        let geometry = Geometry::read(file.database(), &[&key], &shown)?;
        Ok(Self {
            file,
            format,
            key,
            geometry,
        })
    }
}

/// Returns the first of `keys` under which the header's canary was sealed. `None` when there is
/// none. SR-5001 when there is no memory for keys.
pub(crate) fn find_opener(
    header: &MainHeader,
    format: Format,
    keys: &[KeyText],
) -> Result<Option<Sealer>, Error> {
    for key in keys {
        let sealer = Sealer::new(key, format)?;
        if sealer.opens_canary(header)? {
            return Ok(Some(sealer));
        }
    }
    Ok(None)
}
