//! A sealed temporary file: sorter runs, transient tables, statement journals, the copy that VACUUM
//! makes.
//!
//! Invariants:
//! T1. The key is made for the handle and dropped with it. Nothing of it is written anywhere.
//! T2. Nonces are random, because a counter would repeat in a virtual machine that is resumed twice
//!     from one snapshot.
//! T3. Bytes that were never written read as zero because the handle remembers it, not because the
//!     file says so.
//!
//! Must not: be readable by anyone after the handle is closed.

use std::ffi::c_int;

use strongroom_crypto::{SecretKey, nonce12};
use strongroom_format::aad::{AssociatedData, Role};
use strongroom_format::code;

use crate::capabilities::{sealed_characteristics, sealed_control};
use crate::ffi::SQLITE_IOERR_SHORT_READ;
use crate::io_methods::IoMethods;
use crate::lower::LowerFile;
use crate::report::{report, report_error};
use crate::seal::{UnitKey, crypto_error};
use crate::sqlite_code::{SqliteCode, SqliteResult};

/// Logical bytes per chunk: SQLite's default page size, and the unit in which sorters read and
/// write.
const CHUNK: usize = 4096;
/// Nonce and tag.
const SEALED_CHUNK: usize = CHUNK + 28;

/// A temporary file. See the module comment.
pub(crate) struct TempFile {
    lower: LowerFile,
    key: UnitKey,
    size: u64,
    /// Which chunks were ever written (T3).
    written: Vec<bool>,
    /// The current chunk in clear, its index, and whether it differs from the file.
    chunk: Box<[u8; CHUNK]>,
    chunk_index: Option<u64>,
    dirty: bool,
    sealed: Vec<u8>,
}

impl TempFile {
    /// Begins an empty temporary file in `lower`, with a new random key that is kept in memory
    /// only. Nothing is written. Fails if the cryptographic library does (SR-5001).
    pub(crate) fn new(lower: LowerFile) -> SqliteResult<Self> {
        let key = SecretKey::generate().map_err(|error| report_error(&crypto_error(&error)))?;
        let place = AssociatedData {
            role: Role::Temp,
            cipher: 1,
            unit_size: 4096,
            epoch: 0,
            object_id: [0; 16],
        };
        Ok(Self {
            lower,
            key: UnitKey::new(&key, place).map_err(|error| report_error(&error))?,
            size: 0,
            written: Vec::new(),
            chunk: Box::new([0; CHUNK]),
            chunk_index: None,
            dirty: false,
            sealed: Vec::new(),
        })
    }

    /// Notes in memory that chunk `index` was written to the file, and so has to be read from there
    /// from now on; a chunk without this note reads as zeros. SR-9001 if the index does not fit
    /// into `usize`.
    fn mark_written(&mut self, index: u64) -> SqliteResult<()> {
        let index =
            usize::try_from(index).map_err(|_| report(&code::BUG, "temporary file size"))?;
        if self.written.len() <= index {
            self.written.resize(index + 1, false);
        }
        self.written[index] = true;
        Ok(())
    }

    /// Whether chunk `index` was ever written to the file. A chunk that was not reads as zeros.
    fn is_written(&self, index: u64) -> bool {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.written.get(index))
            .copied()
            .unwrap_or(false)
    }

    /// Seals the current chunk under a fresh random nonce and writes it to the file below. Does
    /// nothing if there is no current chunk, or if it was not changed. Does not sync. SR-5001 if it
    /// cannot be sealed; otherwise fails as the file below does.
    fn flush(&mut self) -> SqliteResult<()> {
        let Some(index) = self.chunk_index.filter(|_| self.dirty) else {
            return Ok(());
        };
        let nonce = nonce12().map_err(|error| report_error(&crypto_error(&error)))?;
        let mut out = std::mem::take(&mut self.sealed);
        out.clear();
        let sealed = self
            .key
            .seal_with(&nonce, Role::Temp, index, &[&self.chunk[..]], &mut out)
            .map_err(|error| report_error(&error));
        let result = sealed.and_then(|()| self.lower.write(&out, index * SEALED_CHUNK as u64));
        self.sealed = out;
        result?;
        self.dirty = false;
        self.mark_written(index)
    }

    /// Makes chunk `index` the current one: first writes the former one if it was changed, then
    /// reads and opens chunk `index`, or fills it with zeros if it was never written. SR-4009 if it
    /// is cut short or not authentic.
    fn load_chunk(&mut self, index: u64) -> SqliteResult<()> {
        if self.chunk_index == Some(index) {
            return Ok(());
        }
        self.flush()?;
        self.chunk_index = None;
        if self.is_written(index) {
            let mut sealed = std::mem::take(&mut self.sealed);
            sealed.resize(SEALED_CHUNK, 0);
            let whole = self
                .lower
                .read_whole(&mut sealed, index * SEALED_CHUNK as u64)?;
            let opened = whole
                .then(|| self.key.open(Role::Temp, index, &mut sealed))
                .flatten();
            let ok = match opened {
                Some(plain) => {
                    self.chunk.copy_from_slice(plain);
                    plain.fill(0);
                    true
                }
                None => false,
            };
            self.sealed = sealed;
            if !ok {
                return Err(report(&code::TEMP, format!("chunk {index}")));
            }
        } else {
            self.chunk.fill(0);
        }
        self.chunk_index = Some(index);
        Ok(())
    }

    /// Makes chunk `index` the current one without reading it, because the caller is about to
    /// overwrite all of it. First writes the former chunk if it was changed. Fails as
    /// [`Self::flush`] does.
    fn begin_overwrite(&mut self, index: u64) -> SqliteResult<()> {
        if self.chunk_index != Some(index) {
            self.flush()?;
            self.chunk_index = Some(index);
        }
        Ok(())
    }
}

/// Splits the `len` bytes at logical offset `at` into pieces that each lie within one chunk. Yields
/// (index of the chunk, first byte within it, length of the piece) in ascending order.
fn chunk_ranges(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let position = at + done as u64;
        let within = usize::try_from(position % CHUNK as u64).ok()?;
        let take = (CHUNK - within).min(len - done);
        done += take;
        Some((position / CHUNK as u64, within, take))
    })
}

impl IoMethods for TempFile {
    /// Returns the file below, which holds the sealed chunks.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Reads `out.len()` bytes at logical offset `at`. Bytes past the logical end become zero, and
    /// the result is then `SQLITE_IOERR_SHORT_READ`. SR-4009 if a chunk is cut short or not
    /// authentic; `out` is zero then. May write the chunk that was current before.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        let end = at.saturating_add(out.len() as u64);
        let short = end > self.size;
        let available = usize::try_from(self.size.saturating_sub(at))
            .unwrap_or(usize::MAX)
            .min(out.len());
        let (there, beyond) = out.split_at_mut(available);
        beyond.fill(0);
        let mut done = 0;
        for (index, within, len) in chunk_ranges(at, there.len()) {
            if let Err(rc) = self.load_chunk(index) {
                there.fill(0);
                return Err(rc);
            }
            there[done..done + len].copy_from_slice(&self.chunk[within..within + len]);
            done += len;
        }
        if short {
            Err(SqliteCode(SQLITE_IOERR_SHORT_READ))
        } else {
            Ok(())
        }
    }

    /// Writes `data` at logical offset `at`. Only whole earlier chunks reach the file below; the
    /// last chunk that was touched stays in memory until another one is needed. Never syncs.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        let mut done = 0;
        for (index, within, len) in chunk_ranges(at, data.len()) {
            if len == CHUNK {
                self.begin_overwrite(index)?;
            } else {
                self.load_chunk(index)?;
            }
            self.chunk[within..within + len].copy_from_slice(&data[done..done + len]);
            self.dirty = true;
            done += len;
        }
        self.size = self.size.max(at.saturating_add(data.len() as u64));
        Ok(())
    }

    /// Sets the logical size. A smaller size writes the last kept chunk with zeros after its end,
    /// and truncates the file below; a larger one changes only the size in memory, and the new
    /// bytes read as zeros. SR-4009 if the last chunk does not open; otherwise fails as the file
    /// below does.
    fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        if size < self.size {
            // Bytes that are cut off must read as zero if the file grows again.
            if !size.is_multiple_of(CHUNK as u64) {
                self.load_chunk(size / CHUNK as u64)?;
                let keep = usize::try_from(size % CHUNK as u64).unwrap_or(0);
                self.chunk[keep..].fill(0);
                self.dirty = true;
            }
            let chunks = size.div_ceil(CHUNK as u64);
            if self.chunk_index.is_some_and(|index| index >= chunks) {
                self.chunk_index = None;
                self.dirty = false;
            }
            self.written
                .truncate(usize::try_from(chunks).unwrap_or(usize::MAX));
            self.flush()?;
            self.lower.truncate(chunks * SEALED_CHUNK as u64)?;
        }
        self.size = size;
        Ok(())
    }

    /// Does nothing, and succeeds: after a crash, nothing can read a temporary file.
    fn sync(&mut self, _flags: c_int) -> SqliteResult<()> {
        // Nothing of a temporary file is needed after a crash, and without its key nothing of it
        // can be read.
        Ok(())
    }

    /// Returns the logical size in bytes, which is kept in memory.
    fn size(&mut self) -> SqliteResult<u64> {
        Ok(self.size)
    }

    /// Passes the operation to the file below and returns its result, except the announcements of a
    /// size, which are ignored.
    fn file_control(&mut self, op: c_int, argument: *mut std::ffi::c_void) -> SqliteResult<()> {
        sealed_control(self.lower, op, argument)
    }

    /// Returns the characteristics of the device below, without those that sealed files do not
    /// have.
    fn device_characteristics(&self) -> c_int {
        sealed_characteristics(self.lower.device_characteristics())
    }
}

impl Drop for TempFile {
    /// Wipes the chunk that is held in clear. A changed chunk is not written.
    fn drop(&mut self) {
        self.chunk.fill(0);
    }
}
