//! A cache on disk of what was fetched, which is ciphertext. It has one file for each version of
//! each address, in a directory that any number of readers, threads and processes may share.
//!
//! A file is a table of slots. Block `b` has slot `b` modulo the number of slots, so a file never
//! exceeds its configured size, and a block overwrites the one that had its slot before. A slot
//! holds the number of its block, and a digest over the block, the address, the version and the
//! position: a slot that is half written, damaged or copied from elsewhere counts as empty. Nothing
//! is locked, and nothing is synced. The layout is not specified and may change at any time,
//! together with its name.
//!
//! Invariants:
//! E4. `get` returns only bytes whose digest matches. The digest has no key: a user who can write
//!     the file can compute one, and such a page then fails to authenticate (D4 of the VFS).
//! E5. Files are opened below a directory that belongs to this user and that others cannot write,
//!     never through a symbolic link, and only if they are regular files of this user with one name
//!     and no permissions for others.
//!
//! Must not: fail a read. A cache that cannot be used is reported once, as a warning, and then not
//! used.

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
use strongroom_format::hex::hex;
use strongroom_sqlite_vfs::warn;

use crate::client::Version;
use crate::options::Options;
use crate::sizes::BLOCK;

/// The name of the layout, which is part of digests and so of file names.
const LABEL: &[u8] = b"strongroom http cache 1";
const PREFIX: &str = "strongroom-";
const SUFFIX: &str = ".cache";
/// Bytes before a slot's block: the digest (32), the number of the block (8), and zeros.
const HEAD: usize = 64;
const HEAD_USED: usize = 40;
/// Bytes of a slot.
const SLOT: u64 = HEAD as u64 + BLOCK;
/// After this many written bytes, the size of the directory is checked again.
const CHECK_EVERY: u64 = 16 << 20;

/// The cache of one version of one file.
pub(crate) struct Cache {
    directory: OwnedFd,
    path: String,
    name: String,
    file: File,
    /// Digest of address and version.
    id: [u8; 32],
    slots: u64,
    total: u64,
    limit: u64,
    /// Bytes written since the size of the directory was last checked.
    written: u64,
    off: bool,
}

impl Cache {
    /// Opens the cache file of this version in the directory `path`, which it creates if need be.
    /// `None`, after the warning SR-2251, when it cannot be used.
    pub(crate) fn open(path: &Path, options: &Options, version: &Version) -> Option<Self> {
        Self::try_open(path, options, version)
            .map_err(|why| warn(&code::REMOTE_CACHE, &format!("{}: {why}", path.display())))
            .ok()
    }

    /// Opens the cache file of this version of the resource, marks it as used now, and removes
    /// older cache files above the limit. The error says what cannot be used.
    fn try_open(path: &Path, options: &Options, version: &Version) -> Result<Self, String> {
        let directory = open_directory(path)?;
        let total = version.total.to_le_bytes();
        let parts = [options.url.as_bytes(), version.etag.as_bytes()];
        let lengths = parts.map(|part| (part.len() as u64).to_le_bytes());
        let id = sha256(&[LABEL, &lengths[0], parts[0], &lengths[1], parts[1], &total]);
        let digits = hex(id.first_chunk::<16>().unwrap_or(&[0; 16]));
        let name = format!("{PREFIX}{digits}{SUFFIX}");
        let file = open_private_file(&directory, &name)?;
        // The caches that were used most recently are removed last.
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
        cache.enforce_limit();
        Ok(cache)
    }

    /// Returns the offset of a block's slot in the cache file. Blocks share slots when the cache is
    /// smaller than the resource.
    fn slot_offset(&self, block: u64) -> u64 {
        block % self.slots * SLOT
    }

    /// Returns the length of a block in bytes: less than a whole one at the end of the resource,
    /// and 0 after it.
    fn len_of(&self, block: u64) -> u64 {
        self.total
            .saturating_sub(block.saturating_mul(BLOCK))
            .min(BLOCK)
    }

    /// Computes the digest that a slot has before its bytes: damaged bytes, or those of another
    /// block, have another one.
    fn digest(&self, block: u64, bytes: &[u8]) -> [u8; 32] {
        let len = (bytes.len() as u64).to_le_bytes();
        sha256(&[LABEL, &self.id, &block.to_le_bytes(), &len, bytes])
    }

    /// Whether the block's slot has the number of the block. The slot may still be damaged. False
    /// when the cache is switched off.
    pub(crate) fn has(&self, block: u64) -> bool {
        let mut head = [0; HEAD_USED];
        let read = self.file.read_exact_at(&mut head, self.slot_offset(block));
        !self.off && read.is_ok() && head[32..40] == slot_number(block)
    }

    /// Reads a block from the cache. `None` if it is not cached, its digest does not match, or the
    /// cache is switched off.
    pub(crate) fn get(&mut self, block: u64) -> Option<Vec<u8>> {
        let len = usize::try_from(self.len_of(block)).ok()?;
        let mut slot = vec![0; HEAD.checked_add(len)?];
        if self.off
            || len == 0
            || self
                .file
                .read_exact_at(&mut slot, self.slot_offset(block))
                .is_err()
        {
            return None;
        }
        let bytes = slot.split_off(HEAD);
        let is_it = slot[32..40] == slot_number(block) && slot[..32] == self.digest(block, &bytes);
        is_it.then_some(bytes)
    }

    /// Writes the block into its slot, in place of another one. Does nothing if the cache is
    /// switched off, or `bytes` is not the whole block. After an error of writing, warns (SR-2251)
    /// and switches the cache off. Each 16 MiB, removes files above the limit of the directory.
    /// Does not sync.
    pub(crate) fn put(&mut self, block: u64, bytes: &[u8]) {
        if self.off || bytes.len() as u64 != self.len_of(block) {
            return;
        }
        let mut slot = Vec::with_capacity(HEAD + bytes.len());
        slot.extend_from_slice(&self.digest(block, bytes));
        slot.extend_from_slice(&slot_number(block));
        slot.resize(HEAD, 0);
        slot.extend_from_slice(bytes);
        if let Err(error) = self.file.write_all_at(&slot, self.slot_offset(block)) {
            self.off = true;
            warn(&code::REMOTE_CACHE, &format!("{}: {error}", self.path));
            return;
        }
        self.written = self.written.saturating_add(slot.len() as u64);
        if self.written >= CHECK_EVERY {
            self.written = 0;
            self.enforce_limit();
        }
    }

    /// Removes the least recently used cache files until the directory is within its limit, except
    /// this reader's own. The file of another reader stays open without a name until that reader
    /// ends. If this reader's own file has lost its name, only switches the cache off. Errors are
    /// ignored.
    fn enforce_limit(&mut self) {
        if self.file.metadata().map_or(0, |about| about.nlink()) == 0 {
            self.off = true;
            return;
        }
        let Ok(mut found) = cache_files(&self.directory) else {
            return;
        };
        // The own file comes first, and so is not removed.
        found.sort_by_key(|file| (file.name != self.name, std::cmp::Reverse(file.used)));
        let mut sum = self.slots.saturating_mul(SLOT);
        for file in found.iter().filter(|file| file.name != self.name) {
            sum = sum.saturating_add(file.bytes);
            if sum > self.limit {
                // Another reader may have removed it already.
                let _removed = unlinkat(&self.directory, file.name.as_str(), AtFlags::empty());
            }
        }
    }
}

/// Returns the number of a block as a slot holds it: from 1, so that a slot that was never written
/// has none.
fn slot_number(block: u64) -> [u8; 8] {
    block.saturating_add(1).to_le_bytes()
}

/// Opens the cache directory, and creates it with mode 0700 if it does not exist (E5). The error is
/// a text: also if it belongs to another user, or others could write it.
fn open_directory(path: &Path) -> Result<OwnedFd, String> {
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

/// Opens the cache file for reading and writing, and creates it if it does not exist. Another file
/// of that name, which is not this user's alone, is removed first (E5). The error is a text.
fn open_private_file(directory: &OwnedFd, name: &str) -> Result<File, String> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    for flags in [flags, flags | OFlags::EXCL, flags] {
        let file = match openat(directory, name, flags, mode) {
            Ok(file) => File::from(file),
            // Another reader has just created it.
            Err(Errno::EXIST) => continue,
            // A symbolic link, a socket, a directory, or a file without permissions.
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

/// Removes a file from the directory. It is no error when there is none.
fn remove(directory: &OwnedFd, name: &str) -> Result<(), String> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

struct Cached {
    name: String,
    /// Bytes on the disk.
    bytes: u64,
    used: SystemTime,
}

/// Lists the cache files in the directory, with their size on the disk and the time of their last
/// use, in no order. Other files are left out. Fails if the directory cannot be read.
fn cache_files(directory: &OwnedFd) -> rustix::io::Result<Vec<Cached>> {
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

/// Returns the name as text if it is one of a cache file; else `None`.
fn name_of(name: &CStr) -> Option<String> {
    let name = name.to_str().ok()?;
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let is_ours = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours.then(|| name.to_owned())
}
