//! Reads single files of a sealed instance, opened as the shield opens them.
//!
//! Must not: write; claim more about a file's authenticity than that it opened.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::paths::open_to_read;
use strongroom_postgres_shield::classify::classify;
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::real::{Errno, Real};
use strongroom_postgres_shield::resolve::{Seal, seal};
use strongroom_postgres_shield::sealed_file::{FileCache, SealedFile};
use strongroom_postgres_shield::table::treatment;
use strongroom_postgres_shield::{convert, file_io};

use crate::directory::Directory;

/// Where the control file says its version (`ControlFileData`, `pg_control.h`).
const CONTROL_VERSION: std::ops::Range<usize> = 8..12;
/// Length of the control file in bytes (`PG_CONTROL_FILE_SIZE`).
const CONTROL_LENGTH: usize = 8192;
/// Control file versions of PostgreSQL 15 to 18, and some more: what a wrong key reads is hardly
/// ever among them.
const CONTROL_VERSIONS: std::ops::RangeInclusive<u32> = 1300..=1999;

/// An open file of an instance. Offsets are PostgreSQL's.
pub(crate) struct Contents<'a> {
    file: &'a File,
    instance: &'a Instance,
    seal: Seal,
    cache: FileCache,
    real: Real,
}

/// Returns how the file of this name, relative to the data directory, is sealed; `None` when it is
/// not.
pub(crate) fn seal_of(relative: &Path) -> Option<Seal> {
    let relative = relative.as_os_str().as_bytes();
    let placed = classify(relative);
    seal(0, placed, treatment(placed.class), relative)
}

impl<'a> Contents<'a> {
    /// Takes an open file of `instance` that is sealed as `seal` says. Nothing is read yet.
    pub(crate) fn new(file: &'a File, instance: &'a Instance, seal: Seal) -> Self {
        Self {
            file,
            instance,
            seal,
            // The last value: the caller reports what is wrong, nothing goes to standard error.
            cache: [0, 0, 0, 1].map(AtomicU64::new),
            real: Real::linked(),
        }
    }

    /// Reads and opens at most as many bytes as the buffer holds, from `offset` on, as PostgreSQL
    /// counts. Returns their number; 0 at the end. `EIO` for a container that does not open.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let state = SealedFile {
            instance: self.instance,
            layout: self.seal.layout,
            key: self.seal.key,
            tweak: self.seal.tweak,
            cache: &self.cache,
        };
        file_io::read_at(&self.real, self.file.as_raw_fd(), &state, into, offset)
    }
}

/// Checks that the header is this instance's: its keys make sense of the control file.
///
/// # Errors
/// SR-7001 when they do not; SR-1006 without a control file; SR-5001 when the system reports an
/// error.
pub fn check_control(directory: &Directory, instance: &Instance) -> Result<(), Error> {
    let relative = Path::new("global/pg_control");
    let path = directory.path.join(relative);
    let (file, _) = open_to_read(&path)?;
    let wrong = || {
        let detail = "global/pg_control: damaged, or strongroom.header is of another instance";
        directory.failure(&code::PG_FILE, detail)
    };
    let seal = seal_of(relative).ok_or_else(wrong)?;
    let mut first = [0; 16];
    let read = Contents::new(&file, instance, seal).read(&mut first, 0);
    read.map_err(|errno| Error::on_path(&path, std::io::Error::from_raw_os_error(errno.0)))?;
    if looks_like_control(&first) {
        return Ok(());
    }
    Err(wrong())
}

/// Returns whether pages of relations have checksums, as the control file says. `instance` opens it
/// where it is sealed.
///
/// # Errors
/// SR-7011 when the control file makes no sense; SR-1006 without one; SR-5001 when the system
/// reports an error.
pub fn has_data_checksums(
    directory: &Directory,
    instance: Option<&Instance>,
) -> Result<bool, Error> {
    let relative = Path::new("global/pg_control");
    let path = directory.path.join(relative);
    let (file, _) = open_to_read(&path)?;
    let mut content = vec![0; CONTROL_LENGTH];
    match (instance, seal_of(relative)) {
        (Some(instance), Some(seal)) => Contents::new(&file, instance, seal)
            .read(&mut content, 0)
            .map_err(|errno| Error::on_path(&path, std::io::Error::from_raw_os_error(errno.0)))?,
        _ => file
            .read_at(&mut content, 0)
            .map_err(|e| Error::on_path(&path, e))?,
    };
    let about = |error: Error| error.with_prefix(&format!("{}: ", directory.shown()));
    convert::has_data_checksums(&content).map_err(about)
}

/// Returns whether this is the beginning of a control file in PostgreSQL's own format.
pub(crate) fn looks_like_control(bytes: &[u8]) -> bool {
    let version = bytes
        .get(CONTROL_VERSION)
        .and_then(|bytes| bytes.try_into().ok());
    version
        .map(u32::from_le_bytes)
        .is_some_and(|version| CONTROL_VERSIONS.contains(&version))
}
