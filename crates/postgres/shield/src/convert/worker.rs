//! The conversion of files, several at the same time.
//!
//! Invariants: for each file, in this order: the copy is complete and durable; its line is durable;
//! it is renamed over the original. Small files go through these steps in batches, so that one
//! write to the state serves many.
//!
//! Must not: leave a copy after an error, or continue after one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Advice, fadvise};
use strongroom_crypto::sha256;
use strongroom_format::code;
use strongroom_format::postgres::convert::Done;
use strongroom_keyring::{Error, Link, open_regular};

use super::lock::remove;
use super::log::Log;
use super::logical_file::{LogicalFile, Side};
use super::page_counts::PageCounts;
use super::plan::PlannedFile;
use super::report::{Phase, Progress};
use crate::classify::{CONVERT_SUFFIX, Class};
use crate::layout::{BlockKey, FileLayout};
use crate::scratch::LEN;

/// PostgreSQL's block, in bytes.
const BLOCK: usize = 8192;

/// Length and digest of a file's contents when it was converted: a chained digest over pieces of
/// [`LEN`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentDigest {
    digest: [u8; 32],
    pub(super) len: u64,
}

impl ContentDigest {
    pub(super) const EMPTY: Self = Self {
        digest: [0; 32],
        len: 0,
    };

    /// Adds the next piece to digest and length.
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.digest = sha256(&[&self.digest, piece]);
        self.len = self
            .len
            .saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
    }
}

/// Counts the bytes of a phase and reports progress.
pub(super) struct ProgressMeter<'a> {
    progress: &'a (dyn Fn(Progress) + Sync),
    phase: Phase,
    bytes: AtomicU64,
    total: u64,
}

impl<'a> ProgressMeter<'a> {
    /// Begins to count the bytes of `phase`, of which there are `total`.
    pub(super) fn new(progress: &'a (dyn Fn(Progress) + Sync), phase: Phase, total: u64) -> Self {
        Self {
            progress,
            phase,
            bytes: AtomicU64::new(0),
            total,
        }
    }

    /// Adds to the bytes done, and calls `progress`.
    pub(super) fn add(&self, bytes: usize) {
        let more = u64::try_from(bytes).unwrap_or(u64::MAX);
        let before = self.bytes.fetch_add(more, Ordering::Relaxed);
        (self.progress)(Progress {
            phase: self.phase,
            bytes: before.saturating_add(more).min(self.total),
            bytes_total: self.total,
        });
    }
}

/// Converts files from one side to the other.
pub(super) struct Worker<'a> {
    pub(super) from: Side<'a>,
    pub(super) to: Side<'a>,
    pub(super) log: &'a Log<'a>,
    pub(super) meter: ProgressMeter<'a>,
    /// Digests of the originals, by path.
    pub(super) contents: &'a Mutex<BTreeMap<Vec<u8>, ContentDigest>>,
    /// Pages of relations that an earlier run converted.
    pub(super) pages: Mutex<PageCounts>,
}

impl Worker<'_> {
    /// Converts a batch of files: writes a converted copy of each beside it, records all in the
    /// state, renames the copies over the originals, and notes the digests of the originals. Copies
    /// and records are durable before the renames.
    ///
    /// # Errors
    /// SR-7001 and SR-7029 for damaged files; SR-5001 when the system reports an error. Converted
    /// files that have their names stay, other copies are removed.
    pub(super) fn convert(&self, batch: &[&PlannedFile]) -> Result<(), Error> {
        let mut copies = Copies(Vec::new());
        let mut lines = Vec::new();
        let mut known = Vec::new();
        for item in batch {
            let temp = temp_path(&item.path);
            remove(&temp)?;
            copies.0.push(temp.clone());
            let copied = self.copy(item, &temp);
            let (inode, contents) = copied.map_err(|error| file_error(item, error))?;
            lines.push(Done {
                inode,
                path: item.relative.clone(),
            });
            known.push((item.relative.clone(), contents));
        }
        self.log.append(&lines)?;
        for item in batch {
            rustix::fs::rename(temp_path(&item.path), &item.path)
                .map_err(|error| Error::io(item.path.display().to_string(), error.into()))?;
        }
        copies.0.clear();
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.extend(known);
        Ok(())
    }

    /// Writes the converted file beside the original, with its owner, permissions and times, and
    /// syncs it. Returns its inode, and the digest of the original. EIO when the original is
    /// damaged.
    fn copy(&self, item: &PlannedFile, temp: &Path) -> io::Result<(u64, ContentDigest)> {
        let original = open_for_reading(&item.path)?;
        let about = original.metadata()?;
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(temp)?;
        let contents = self.transfer(item, &original, &made)?;
        let mine = made.metadata()?;
        if (mine.uid(), mine.gid()) != (about.uid(), about.gid()) {
            fchown(&made, Some(about.uid()), Some(about.gid()))?;
        }
        // Set-user-ID bits are not kept.
        made.set_permissions(Permissions::from_mode(about.mode() & 0o777))?;
        let times = FileTimes::new().set_accessed(about.accessed()?);
        made.set_times(times.set_modified(about.modified()?))?;
        made.sync_all()?;
        // Verification has to read the disk, and not the page cache. Best effort.
        for file in [&original, &made] {
            let _refused = fadvise(file, 0, None, Advice::DontNeed);
        }
        Ok((mine.ino(), contents))
    }

    /// Copies the logical content of a file from one side to the other, and returns its digest.
    /// Reports progress. `UnexpectedEof` when the original cannot be read to its end.
    fn transfer(
        &self,
        item: &PlannedFile,
        original: &File,
        made: &File,
    ) -> io::Result<ContentDigest> {
        let source = LogicalFile::new(original, self.from, &item.seal);
        let target = LogicalFile::new(made, self.to, &item.seal);
        let size = source.size()?;
        // Holes stay holes, except in the log, whose space must stay allocated, and in transaction
        // status files, whose zeros are sealed.
        let sparse = item.allocated < item.size
            && item.seal.layout == FileLayout::Block
            && item.seal.class != Class::Wal
            && item.seal.key != BlockKey::Slru;
        let mut contents = ContentDigest::EMPTY;
        let mut buffer = vec![0_u8; LEN];
        loop {
            let count = source.read(&mut buffer, contents.len)?;
            let piece = buffer.get(..count).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            if sparse {
                write_sparsely(&target, piece, contents.len)?;
            } else {
                target.write(piece, contents.len)?;
            }
            contents.add(piece);
            self.meter.add(count);
        }
        if contents.len != size {
            let what = format!("{} bytes instead of {size}", contents.len);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        if sparse {
            target.set_size(size)?;
        }
        Ok(contents)
    }
}

/// Writes the blocks of `piece` at `offset` that are not zero, so that holes stay holes. The
/// system's errors.
fn write_sparsely(target: &LogicalFile<'_>, piece: &[u8], offset: u64) -> io::Result<()> {
    let mut at = offset;
    for block in piece.chunks(BLOCK) {
        if block.iter().any(|&byte| byte != 0) {
            target.write(block, at)?;
        }
        at = at.saturating_add(u64::try_from(block.len()).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// Makes the error for a failure of [`crate::file_io`], which returns EIO for a damaged file:
/// SR-7001 for a file with a header, SR-7029 for a transaction status file, and SR-5001 otherwise.
pub(super) fn file_error(item: &PlannedFile, error: io::Error) -> Error {
    let path = item.path.display().to_string();
    let has_header = matches!(item.seal.layout, FileLayout::Container | FileLayout::Stream);
    match error.raw_os_error() {
        Some(libc::EIO) if has_header => Error::new(&code::PG_FILE, path),
        Some(libc::EIO) if item.seal.key == BlockKey::Slru => {
            Error::new(&code::PG_STATUS_ZEROS, path)
        }
        _ => Error::io(path, error),
    }
}

/// Opens a regular file for reading. An error for a link and for anything that is not a regular
/// file.
pub(super) fn open_for_reading(path: &Path) -> io::Result<File> {
    let (file, _) = open_regular(path, Link::Refused)?;
    let _refused = fadvise(&file, 0, None, Advice::Sequential);
    Ok(file)
}

/// Returns the path of the converted copy, beside the original.
fn temp_path(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(std::ffi::OsStr::from_bytes(CONVERT_SUFFIX));
    PathBuf::from(name)
}

/// Copies that do not have their final names yet. Those that are listed when this is dropped are
/// removed.
struct Copies(Vec<PathBuf>);

impl Drop for Copies {
    /// Removes the copies that are still listed. Errors are ignored.
    fn drop(&mut self) {
        for path in &self.0 {
            // The earlier failure is the one that is reported.
            drop(std::fs::remove_file(path));
        }
    }
}
