//! What was fetched, kept on disk as it was fetched: sealed. One file for each version of each address, in a directory that may
//! be shared by any number of readers, threads and processes.
//!
//! A file is a table of slots; block `b` has slot `b` modulo their number, so a file never grows beyond what was set, and
//! what is overwritten is what was there before. A slot says which block it holds and a digest over it, the address, the
//! version and the place: one half written, damaged, or from elsewhere is as good as empty. Nothing is locked and nothing
//! synced. The layout is not specified: it may change at any time, with the name.
//!
//! Invariants:
//! E4. `get` gives bytes only whose digest holds. The digest has no key: who can write the file can make one, and what he
//!     puts there fails as a page (D4 of the guard).
//! E5. Files are opened below a directory of this user's that others cannot write, never through a link, and only regular
//!     ones of this user's with one name and no rights of others.
//!
//! Must not: fail a read: a cache that cannot be used is said once, as a warning, and left alone.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use strongroom_crypto::sha256;
use strongroom_format::code;
use strongroom_sqlite_vfs::warn;

use crate::BLOCK;
use crate::client::Version;
use crate::options::Options;

/// Names the layout, in digests and through them in file names.
const LABEL: &[u8] = b"strongroom http cache 1";
const PREFIX: &str = "strongroom-";
const SUFFIX: &str = ".cache";
/// Bytes before a slot's block: digest 32, number of the block 8, zeros.
const HEAD: usize = 64;
const HEAD_USED: usize = 40;
/// Bytes of a slot.
const SLOT: u64 = HEAD as u64 + BLOCK;
/// Bytes written between two looks at what the directory holds.
const LOOK_EVERY: u64 = 16 << 20;

/// The cache of one version of one file.
pub(crate) struct Cache {
    directory: OwnedFd,
    path: String,
    name: String,
    file: File,
    /// Of address and version.
    id: [u8; 32],
    slots: u64,
    total: u64,
    limit: u64,
    /// Bytes written since the last look.
    written: u64,
    off: bool,
}

impl Cache {
    /// `None`, with a warning, where there can be none.
    pub(crate) fn open(path: &Path, options: &Options, version: &Version) -> Option<Self> {
        Self::try_open(path, options, version)
            .map_err(|why| warn(&code::REMOTE_CACHE, &format!("{}: {why}", path.display())))
            .ok()
    }

    fn try_open(path: &Path, options: &Options, version: &Version) -> Result<Self, String> {
        let directory = directory(path)?;
        let total = version.total.to_le_bytes();
        let parts = [options.url.as_bytes(), version.etag.as_bytes()];
        let lengths = parts.map(|part| (part.len() as u64).to_le_bytes());
        let id = sha256(&[LABEL, &lengths[0], parts[0], &lengths[1], parts[1], &total]);
        let hex: String = id
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = format!("{PREFIX}{hex}{SUFFIX}");
        let file = private_file(&directory, &name)?;
        // What is used is the last to go.
        file.set_modified(SystemTime::now())
            .map_err(|error| error.to_string())?;
        let slots = (options.cache_size / SLOT).clamp(1, version.total.div_ceil(BLOCK).max(1));
        let mut cache = Self {
            directory,
            path: path.display().to_string(),
            name,
            file,
            id,
            slots,
            total: version.total,
            limit: options.cache_size,
            written: 0,
            off: false,
        };
        cache.make_room();
        Ok(cache)
    }

    fn place(&self, block: u64) -> u64 {
        block % self.slots * SLOT
    }

    fn len_of(&self, block: u64) -> u64 {
        self.total
            .saturating_sub(block.saturating_mul(BLOCK))
            .min(BLOCK)
    }

    fn digest(&self, block: u64, bytes: &[u8]) -> [u8; 32] {
        let len = (bytes.len() as u64).to_le_bytes();
        sha256(&[LABEL, &self.id, &block.to_le_bytes(), &len, bytes])
    }

    /// Whether the block's slot says that it holds it. It may still be damaged.
    pub(crate) fn has(&self, block: u64) -> bool {
        let mut head = [0; HEAD_USED];
        let read = self.file.read_exact_at(&mut head, self.place(block));
        !self.off && read.is_ok() && head[32..40] == number_of(block)
    }

    /// The block, if it is there, whole and right.
    pub(crate) fn get(&mut self, block: u64) -> Option<Vec<u8>> {
        let len = usize::try_from(self.len_of(block)).ok()?;
        let mut slot = vec![0; HEAD.checked_add(len)?];
        if self.off
            || len == 0
            || self
                .file
                .read_exact_at(&mut slot, self.place(block))
                .is_err()
        {
            return None;
        }
        let bytes = slot.split_off(HEAD);
        let is_it = slot[32..40] == number_of(block) && slot[..32] == self.digest(block, &bytes);
        is_it.then_some(bytes)
    }

    /// Keeps the block.
    pub(crate) fn put(&mut self, block: u64, bytes: &[u8]) {
        if self.off || bytes.len() as u64 != self.len_of(block) {
            return;
        }
        let mut slot = Vec::with_capacity(HEAD + bytes.len());
        slot.extend_from_slice(&self.digest(block, bytes));
        slot.extend_from_slice(&number_of(block));
        slot.resize(HEAD, 0);
        slot.extend_from_slice(bytes);
        if let Err(error) = self.file.write_all_at(&slot, self.place(block)) {
            self.off = true;
            warn(&code::REMOTE_CACHE, &format!("{}: {error}", self.path));
            return;
        }
        self.written = self.written.saturating_add(slot.len() as u64);
        if self.written >= LOOK_EVERY {
            self.written = 0;
            self.make_room();
        }
    }

    /// Removes the files that were not used for longest, until what the directory may take is not passed. Another reader's
    /// file goes on without a name until that reader ends; one that has lost its name is not written any more.
    fn make_room(&mut self) {
        if self.file.metadata().map_or(0, |about| about.nlink()) == 0 {
            self.off = true;
            return;
        }
        let Ok(mut found) = cached(&self.directory) else {
            return;
        };
        // Own first: it stays.
        found.sort_by_key(|file| (file.name != self.name, std::cmp::Reverse(file.used)));
        let mut sum = self.slots.saturating_mul(SLOT);
        for file in found.iter().filter(|file| file.name != self.name) {
            sum = sum.saturating_add(file.bytes);
            if sum > self.limit {
                // It may be gone already.
                let _gone = unlinkat(&self.directory, file.name.as_str(), AtFlags::empty());
            }
        }
    }
}

/// As a slot says which block it holds: from 1, so that a slot that was never written holds none.
fn number_of(block: u64) -> [u8; 8] {
    block.saturating_add(1).to_le_bytes()
}

/// The directory, made if there is none. E5.
fn directory(path: &Path) -> Result<OwnedFd, String> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| error.to_string())?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let directory = open(path, flags, Mode::empty()).map_err(|error| error.to_string())?;
    let about = rustix::fs::fstat(&directory).map_err(|error| error.to_string())?;
    if about.st_uid != geteuid().as_raw() || about.st_mode & 0o022 != 0 {
        return Err("others could write it".to_owned());
    }
    Ok(directory)
}

/// The file, made if there is none; what stands there and is none of ours is removed. E5.
fn private_file(directory: &OwnedFd, name: &str) -> Result<File, String> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    for flags in [flags, flags | OFlags::EXCL, flags] {
        let file = match openat(directory, name, flags, mode) {
            Ok(file) => File::from(file),
            // Made by another reader just now.
            Err(Errno::EXIST) => continue,
            // A link, a socket, a directory, or a file without rights.
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::ACCESS) => {
                remove(directory, name)?;
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        let about = file.metadata().map_err(|error| error.to_string())?;
        let is_ours = about.is_file()
            && about.uid() == geteuid().as_raw()
            && about.nlink() == 1
            && about.mode() & 0o077 == 0;
        if is_ours {
            return Ok(file);
        }
        remove(directory, name)?;
    }
    Err("what stands in a file's place comes back".to_owned())
}

fn remove(directory: &OwnedFd, name: &str) -> Result<(), String> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

struct Cached {
    name: String,
    /// Bytes that it takes of the disk.
    bytes: u64,
    used: SystemTime,
}

/// The caches in the directory.
fn cached(directory: &OwnedFd) -> rustix::io::Result<Vec<Cached>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Some(name) = name_of(entry.file_name()) else {
            continue;
        };
        let Ok(about) = statat(directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        if FileType::from_raw_mode(about.st_mode) == FileType::RegularFile {
            let seconds = u64::try_from(about.st_mtime).unwrap_or(0);
            found.push(Cached {
                name,
                bytes: u64::try_from(about.st_blocks)
                    .unwrap_or(0)
                    .saturating_mul(512),
                used: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            });
        }
    }
    Ok(found)
}

fn name_of(name: &CStr) -> Option<String> {
    let name = name.to_str().ok()?;
    let hex = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let is_ours = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours.then(|| name.to_owned())
}
