//! Treatment F: a small file as a header with a random file id, followed by authenticated chunks.
//!
//! Each chunk is sealed with AES-256-GCM under a fresh random nonce; its associated data are the
//! file's random id and the chunk's number. The last chunk is the one that is shorter than the
//! others, so a file that is cut after a whole chunk has no last chunk. An empty file has no
//! header: the zero-byte files that PostgreSQL makes stay zero bytes long.
//!
//! Invariants, beside P1, P2 and D6:
//! - **F1** No byte is returned that was not authenticated for its position in this file. A read
//!   that reaches the end has opened the last chunk, even if it returns no byte of it.
//! - **F2** A call writes all its changes with one pwrite: the header of a new file, the chunks it
//!   touches, the last chunk. Chunks that an append does not touch are not written. After a write
//!   that the kernel cut short (no space) the file is made consistent again at the length that was
//!   reached.
//! - **F3** Writers exclude one another by a lock on the open file description, at an offset that
//!   no file reaches. Readers take it only after a chunk did not open, to distinguish a write in
//!   progress from damage.
//! - **F4** Truncating a file to zero removes its file id; the next write draws a new one.
//! - **F5** Where the instance's header says that names are bound, every chunk is sealed for the
//!   name of its file ([`crate::container_name`]); in an instance without that bit, no chunk is. A
//!   container whose own header disagrees with the instance's is damaged.
//!
//! What a power cut can do: the chunks of an unsynced write may be lost or torn, and with them the
//! older bytes in the one chunk that an append shares with earlier data. Such a chunk does not
//! open, and reading it fails with EIO; without the shield the file would be corrupt too.
//! PostgreSQL writes each of its containers whole under another name, syncs and renames it, or
//! makes it again from the log.
//!
//! A key seals at most 2^32 chunks (NIST SP 800-38D, 8.3): 16 TiB written to containers.
//!
//! Must not: allocate, or use the physical size of a file for anything but the numbers of its
//! chunks.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

mod image;

use std::ops::Range;
use std::os::fd::RawFd;

use strongroom_crypto::nonce12;
use strongroom_format::postgres::container::{
    CONTAINER_CHUNK, CONTAINER_HEADER, CONTAINER_OVERHEAD, CONTAINER_SEALED, ChunkAad,
    ContainerHeader, container_capacity, container_logical, container_physical,
};

use self::image::{
    CHUNK, Image, NONCE, Source, State, offset_of, overlap, sealed_len, sealed_range, to_u64,
    to_usize,
};
use crate::damage;
use crate::fault::Fault;
use crate::header_cache;
use crate::real::{Errno, LockKind, Real};
use crate::scratch::{self, BUFFER};
use crate::sealed_file::SealedFile;
use crate::writer_lock::WriterLock;

/// The longest file, in bytes: as long as file systems allow, and short enough that no sum of
/// offsets overflows.
const SIZE_MAX: u64 = 1 << 60;

// The longest piece, its unaligned edge, an empty last chunk and the header fit a buffer.
const _: () = assert!(
    CONTAINER_HEADER + (scratch::LEN / CONTAINER_CHUNK + 1) * CONTAINER_SEALED + CONTAINER_OVERHEAD
        <= BUFFER
);

/// Reads at most `into.len()` bytes at `offset`, all of them authenticated, and returns how many; 0
/// at the end. If a chunk does not open, waits for writers and reads once more. See
/// [`crate::file_io::read_at`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when a chunk does not open or the file was cut.
pub fn read_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    let target = Target { real, fd, file };
    // An outdated header opens no chunk.
    let bound = file.instance.keys.names_are_bound();
    let known = header_cache::load(file.cache).map(|file_id| ContainerHeader { file_id, bound });
    let first_try = target.read(into, offset, known);
    if !matches!(first_try, Err(Fault::Damaged)) {
        return damage::into_errno(real, fd, file, first_try);
    }
    // F3: a write may be in progress, or the cached file id is outdated. On a file system without
    // locks, a second read must suffice.
    let _lock = WriterLock::acquire(real, fd, LockKind::Shared).ok();
    let mut outcome = target.read(into, offset, None);
    if outcome == Err(Fault::Damaged) && real.file_size(fd)? == 0 {
        // The lock does not keep open(2) from emptying the file.
        outcome = Ok(0);
    }
    damage::into_errno(real, fd, file, outcome)
}

/// Writes `from` at `offset`, in one step for other writers, and returns how many bytes were
/// written. A gap after the file's end becomes zeros. Waits for other writers. Does not sync. See
/// [`crate::file_io::write_at`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when a chunk that is changed in part, or the
/// last, does not open; EFBIG beyond the longest file.
pub fn write_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
    offset: u64,
) -> Result<usize, Errno> {
    if from.is_empty() {
        return Ok(0);
    }
    let target = Target { real, fd, file };
    let _lock = WriterLock::acquire(real, fd, LockKind::Exclusive)?;
    damage::into_errno(real, fd, file, target.write(from, Some(offset))).map(|(_, count)| count)
}

/// Writes `from` at the end, in one step for other writers of the file. Returns the offset, and the
/// number of bytes written. Waits for other writers. Does not sync.
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when the last chunk does not open; EFBIG beyond
/// the longest file.
pub fn append(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
) -> Result<(u64, usize), Errno> {
    let target = Target { real, fd, file };
    let _lock = WriterLock::acquire(real, fd, LockKind::Exclusive)?;
    damage::into_errno(real, fd, file, target.write(from, None))
}

/// Returns the logical size in bytes. For a file that was cut, the size of what remains, which
/// cannot be read.
///
/// # Errors
/// The kernel's.
pub fn size(real: &Real, fd: RawFd, _file: &SealedFile<'_>) -> Result<u64, Errno> {
    Ok(logical_size(real.file_size(fd)?))
}

/// Returns the logical size of a file whose physical size is `physical`, in bytes; see [`size`].
#[must_use]
pub fn logical_size(physical: u64) -> u64 {
    container_capacity(physical)
}

/// Sets the logical size to `size` bytes; what is added is zeros. Waits for other writers. See
/// [`crate::file_io::truncate`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when a chunk that stays does not open, except
/// for `size` 0, which also empties a damaged file.
pub fn truncate(real: &Real, fd: RawFd, file: &SealedFile<'_>, size: u64) -> Result<(), Errno> {
    let target = Target { real, fd, file };
    // For a descriptor that is not open for writing, the lock fails with another errno than
    // ftruncate(2).
    let held = WriterLock::acquire(real, fd, LockKind::Exclusive);
    let _lock = held.map_err(|errno| match errno {
        Errno(libc::EBADF) => Errno(libc::EINVAL),
        other => other,
    })?;
    damage::into_errno(real, fd, file, target.truncate(size))
}

/// Seals the container in the open file `fd`, which is bound to the name of `from`, for the name of
/// `to`, in place and chunk by chunk. Waits for other writers; does not sync. If it is interrupted,
/// the file opens under neither name: only for a file that its writer can make again.
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when a chunk does not open under the name of
/// `from`.
pub fn rebind(
    real: &Real,
    fd: RawFd,
    from: &SealedFile<'_>,
    to: &SealedFile<'_>,
) -> Result<(), Errno> {
    let (source, target) = (
        Target {
            real,
            fd,
            file: from,
        },
        Target { real, fd, file: to },
    );
    let _lock = WriterLock::acquire(real, fd, LockKind::Exclusive)?;
    damage::into_errno(real, fd, from, source.rebind(&target))
}

/// An open container.
struct Target<'a> {
    real: &'a Real,
    fd: RawFd,
    file: &'a SealedFile<'a>,
}

impl Target<'_> {
    /// Makes one try to read at most `into.len()` bytes at `offset`, without the lock unless the
    /// caller has it. `known` is the file's header if the caller has it. Returns the number of
    /// bytes. `Fault::Damaged` when a chunk does not open, as also while another process is
    /// writing.
    fn read(
        &self,
        into: &mut [u8],
        offset: u64,
        known: Option<ContainerHeader>,
    ) -> Result<usize, Fault> {
        let physical = self.real.file_size(self.fd)?;
        if physical == 0 {
            return Ok(0);
        }
        let logical = container_logical(physical).ok_or(Fault::Damaged)?;
        let header = match known {
            Some(header) => header,
            None => self.header()?,
        };
        let wanted = u64::try_from(into.len().min(scratch::LEN)).unwrap_or(0);
        let end = logical.min(offset.saturating_add(wanted)).max(offset);
        // F1: the last chunk is among those that are opened when the read comes to the end.
        let first = offset.min(logical) / CHUNK;
        let last = if end >= logical {
            logical / CHUNK
        } else {
            end.saturating_sub(1) / CHUNK
        };
        let into = into
            .get_mut(..to_usize(end.saturating_sub(offset))?)
            .ok_or(Fault::Damaged)?;
        scratch::with(|_, stored| {
            let image = Image::of_read(header, first, last, logical);
            let stored = stored
                .get_mut(..image.unit(last)?.end)
                .ok_or(Fault::Damaged)?;
            if self.real.pread_full(self.fd, stored, offset_of(first)?)? != stored.len() {
                return Err(Fault::Damaged);
            }
            for index in first..=last {
                let unit = stored.get_mut(image.unit(index)?).ok_or(Fault::Damaged)?;
                let data = self.open(&header, index, unit)?;
                let begins = index.saturating_mul(CHUNK);
                let (within, at) = overlap(begins, data.len(), offset, into.len())?;
                let from = data.get(within).ok_or(Fault::Damaged)?;
                into.get_mut(at)
                    .ok_or(Fault::Damaged)?
                    .copy_from_slice(from);
            }
            header_cache::store(self.file.cache, &header.file_id);
            Ok(into.len())
        })?
    }

    /// Writes `from` at `offset`, or at the end if that is `None`; a gap before it is filled with
    /// zeros. Returns the offset and the number of bytes written. The caller holds the lock.
    /// `Fault::Damaged` when the header, or a chunk that is needed, is not authentic; EFBIG, or the
    /// kernel's error, as `Fault::Os`.
    fn write(&self, from: &[u8], offset: Option<u64>) -> Result<(u64, usize), Fault> {
        let mut state = self.state()?;
        let offset = offset.unwrap_or(state.logical);
        let end = offset.checked_add(u64::try_from(from.len()).unwrap_or(u64::MAX));
        if end.is_none_or(|end| end > SIZE_MAX) {
            return Err(Fault::Os(Errno(libc::EFBIG)));
        }
        self.extend(&mut state, offset)?;
        let count = self.replace(&mut state, Source::Bytes(from), offset)?;
        Ok((offset, count))
    }

    /// Sets the logical size. 0 empties the file, also a damaged one, and so removes its file id.
    /// The caller holds the lock. `Fault::Damaged` when the header or the last chunk is not
    /// authentic; EFBIG, or the kernel's error, as `Fault::Os`.
    fn truncate(&self, size: u64) -> Result<(), Fault> {
        if size > SIZE_MAX {
            return Err(Fault::Os(Errno(libc::EFBIG)));
        }
        if size == 0 {
            // F4. This also works for a damaged file.
            return Ok(self.real.ftruncate(self.fd, 0)?);
        }
        let mut state = self.state()?;
        if size < state.logical {
            self.shrink(&mut state, size)
        } else {
            self.extend(&mut state, size)
        }
    }

    /// Opens each chunk and writes it sealed for the name of `target`, in place. Does nothing to an
    /// empty file. The caller holds the lock. `Fault::Damaged` when a chunk is not authentic; the
    /// kernel's errors, after which some chunks may have been written.
    fn rebind(&self, target: &Target<'_>) -> Result<(), Fault> {
        let state = self.state()?;
        let Some(header) = state.header else {
            return Ok(());
        };
        scratch::with(|_, unit| {
            for index in 0..=state.logical / CHUNK {
                self.load(&header, index, state.logical, unit)?;
                let unit = unit
                    .get_mut(..sealed_len(state.logical, index)?)
                    .ok_or(Fault::Damaged)?;
                target.seal(&header, index, unit)?;
                self.real.pwrite_full(self.fd, unit, offset_of(index)?)?;
            }
            Ok(())
        })?
    }

    /// Extends the file with zeros to `size`; does nothing if it is as long already. After a
    /// failure it is as long as before, if possible.
    fn extend(&self, state: &mut State, size: u64) -> Result<(), Fault> {
        let before = state.logical;
        while state.logical < size {
            let piece = to_usize(size.saturating_sub(state.logical)).unwrap_or(scratch::LEN);
            let at = state.logical;
            if let Err(fault) = self.replace(state, Source::Zeros(piece.min(scratch::LEN)), at) {
                // Best effort: only the first failure is reported.
                let _left_longer = self.shrink(state, before);
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Cuts the file to `size`, which is at most its present size, and seals its new last chunk.
    /// Updates `state`. `Fault::Damaged` when that chunk is not authentic; the kernel's errors.
    fn shrink(&self, state: &mut State, size: u64) -> Result<(), Fault> {
        if size == state.logical {
            return Ok(());
        }
        let (Some(header), true) = (state.header, size > 0) else {
            self.real.ftruncate(self.fd, 0)?;
            *state = State {
                physical: 0,
                logical: 0,
                header: None,
            };
            return Ok(());
        };
        let index = size / CHUNK;
        let keep = sealed_len(size, index)?;
        scratch::with(|_, unit| {
            if keep > CONTAINER_OVERHEAD {
                self.load(&header, index, state.logical, unit)?;
            }
            let unit = unit.get_mut(..keep).ok_or(Fault::Damaged)?;
            self.seal(&header, index, unit)?;
            Ok::<_, Fault>(self.real.pwrite_full(self.fd, unit, offset_of(index)?)?)
        })??;
        let physical = container_physical(size).ok_or(Fault::Damaged)?;
        self.real.ftruncate(self.fd, physical)?;
        state.physical = physical;
        state.logical = size;
        Ok(())
    }

    /// Writes at most [`scratch::LEN`] bytes of `source` at `offset`, which is not beyond the end,
    /// with one pwrite. Returns the number of bytes. After a short write, makes the file consistent
    /// at the length that was reached. Updates `state`. `Fault::Damaged` when a chunk that stays in
    /// part is not authentic, or the file cannot be made consistent; the kernel's error when
    /// nothing was written.
    fn replace(&self, state: &mut State, source: Source<'_>, offset: u64) -> Result<usize, Fault> {
        let take = source.len().min(scratch::LEN);
        if take == 0 {
            return Ok(0);
        }
        let end = offset.saturating_add(u64::try_from(take).unwrap_or(0));
        let bound = self.file.instance.keys.names_are_bound();
        let image = Image::new(state, offset, end, bound)?;
        scratch::with(|old, new| {
            self.compose(state, &image, offset, end, &source, old, new)?;
            let bytes = new.get_mut(..image.len).ok_or(Fault::Damaged)?;
            let written = self.store(bytes, image.start);
            match written {
                Ok(()) => {
                    let ends = image.start.saturating_add(to_u64(image.len));
                    state.physical = state.physical.max(ends);
                    state.logical = image.logical;
                    state.header = Some(image.header);
                    Ok(take)
                }
                Err((0, errno)) => Err(Fault::Os(errno)),
                Err((count, errno)) => {
                    self.mend(state, &image, count, new)?;
                    let gained = state.logical.min(end).saturating_sub(offset);
                    if gained == 0 {
                        Err(Fault::Os(errno))
                    } else {
                        to_usize(gained)
                    }
                }
            }
        })?
    }

    /// Assembles the image's chunks in `new`, sealed: the bytes of `source` from `offset` to `end`,
    /// and what stays of the stored chunks, which are read into `old` and opened. Writes nothing to
    /// the file. `Fault::Damaged` when one of these is not authentic; the kernel's errors.
    #[expect(clippy::too_many_arguments, reason = "the two buffers are one pair")]
    fn compose(
        &self,
        state: &State,
        image: &Image,
        offset: u64,
        end: u64,
        source: &Source<'_>,
        old: &mut [u8; BUFFER],
        new: &mut [u8; BUFFER],
    ) -> Result<(), Fault> {
        if image.lead > 0 {
            let lead = new.get_mut(..image.lead).ok_or(Fault::Damaged)?;
            lead.copy_from_slice(&image.header.to_bytes());
        }
        let old_last = state.logical / CHUNK;
        for index in image.first..=image.last {
            let begins = index.saturating_mul(CHUNK);
            let unit = new.get_mut(image.unit(index)?).ok_or(Fault::Damaged)?;
            let holds = unit.len().saturating_sub(CONTAINER_OVERHEAD);
            let (within, taken) =
                overlap(begins, holds, offset, to_usize(end.saturating_sub(offset))?)?;
            // A chunk's old bytes are needed where it is replaced in part. The last chunk is opened
            // in any case: a file that was cut must not get a valid new end.
            let partly = within.len() < holds && begins < state.logical;
            if state.header.is_some() && (partly || index == old_last) {
                let kept = self.load(&image.header, index, state.logical, old)?;
                let kept_range = NONCE..kept.end.min(holds.saturating_add(NONCE));
                let from = old.get(kept_range.clone()).ok_or(Fault::Damaged)?;
                unit.get_mut(kept_range)
                    .ok_or(Fault::Damaged)?
                    .copy_from_slice(from);
            }
            let target = sealed_range(within)?;
            source.put(taken, unit.get_mut(target).ok_or(Fault::Damaged)?)?;
            self.seal(&image.header, index, unit)?;
        }
        Ok(())
    }

    /// Writes all of `bytes` at `start`. The error has the number of bytes that were written before
    /// it; ENOSPC when the kernel writes nothing without an error.
    fn store(&self, bytes: &[u8], start: u64) -> Result<(), (usize, Errno)> {
        let mut written = 0_usize;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self
                .real
                .pwrite(self.fd, rest, start.saturating_add(to_u64(written)))
            {
                Ok(0) => return Err((written, Errno(libc::ENOSPC))),
                Ok(count) => written = written.saturating_add(count),
                Err(errno) => return Err((written, errno)),
            }
        }
        Ok(())
    }

    /// Makes the file consistent after only the first `count` bytes of an image were written:
    /// shortens it to what fits, and seals its last chunk again. `Fault::Damaged` when bytes that
    /// the file had already could not be overwritten. Updates `state`.
    fn mend(
        &self,
        state: &mut State,
        image: &Image,
        count: usize,
        new: &mut [u8; BUFFER],
    ) -> Result<(), Fault> {
        let available = image.start.saturating_add(to_u64(count));
        if available < state.physical {
            // Bytes that the file had already could not be overwritten: the device fails, or the
            // file system copies on write.
            return Err(Fault::Damaged);
        }
        let fits = container_capacity(available).min(image.logical);
        if fits == 0 {
            return Ok(self.real.ftruncate(self.fd, 0)?);
        }
        let index = fits / CHUNK;
        let whole = image.unit(index)?;
        let unit = new.get_mut(whole).ok_or(Fault::Damaged)?;
        self.open(&image.header, index, unit)?;
        let unit = unit
            .get_mut(..sealed_len(fits, index)?)
            .ok_or(Fault::Damaged)?;
        self.seal(&image.header, index, unit)?;
        self.real.pwrite_full(self.fd, unit, offset_of(index)?)?;
        let physical = container_physical(fits).ok_or(Fault::Damaged)?;
        self.real.ftruncate(self.fd, physical)?;
        *state = State {
            physical,
            logical: fits,
            header: Some(image.header),
        };
        Ok(())
    }

    /// Reads chunk `index` of a file of `logical` bytes to the front of `unit` and opens it there.
    /// Returns the range of its data. `Fault::Damaged` when it is cut short or does not open.
    fn load(
        &self,
        header: &ContainerHeader,
        index: u64,
        logical: u64,
        unit: &mut [u8],
    ) -> Result<Range<usize>, Fault> {
        let unit = unit
            .get_mut(..sealed_len(logical, index)?)
            .ok_or(Fault::Damaged)?;
        if self.real.pread_full(self.fd, unit, offset_of(index)?)? != unit.len() {
            return Err(Fault::Damaged);
        }
        let data = self.open(header, index, unit)?.len();
        sealed_range(0..data)
    }

    /// Reads the file's sizes and header. `Fault::Damaged` when its size is that of no container,
    /// or its header is malformed. The caller holds the lock.
    fn state(&self) -> Result<State, Fault> {
        let physical = self.real.file_size(self.fd)?;
        if physical == 0 {
            return Ok(State {
                physical,
                logical: 0,
                header: None,
            });
        }
        let logical = container_logical(physical).ok_or(Fault::Damaged)?;
        let header = Some(self.header()?);
        Ok(State {
            physical,
            logical,
            header,
        })
    }

    /// Reads the file's header. [`Fault::Damaged`] when it is malformed, or bound to names
    /// differently than the instance's containers.
    fn header(&self) -> Result<ContainerHeader, Fault> {
        let mut bytes = [0; CONTAINER_HEADER];
        if self.real.pread_full(self.fd, &mut bytes, 0)? != bytes.len() {
            return Err(Fault::Damaged);
        }
        // F5: a container of the other kind was put there by somebody.
        let bound = self.file.instance.keys.names_are_bound();
        ContainerHeader::parse(&bytes)
            .filter(|header| header.bound == bound)
            .ok_or(Fault::Damaged)
    }

    /// Returns the associated data of chunk `index` of this file.
    fn place(&self, header: &ContainerHeader, index: u64) -> ChunkAad {
        header.chunk(index, &self.file.tweak)
    }

    /// Decrypts and authenticates the chunk `index` in place and returns its data. `unit` has the
    /// sealed chunk: nonce, data and tag. `Fault::Damaged` when it is too short or not authentic;
    /// if it is not authentic, its data is zeros then.
    fn open<'unit>(
        &self,
        header: &ContainerHeader,
        index: u64,
        unit: &'unit mut [u8],
    ) -> Result<&'unit [u8], Fault> {
        let (nonce, data, tag) = parts(unit)?;
        let key = self.file.instance.keys.container();
        key.open(nonce, self.place(header, index).as_bytes(), data, tag)
            .map_err(|_| Fault::Damaged)?;
        Ok(data)
    }

    /// Seals a chunk in place, around its data, under a random nonce that is drawn here, so that
    /// each sealing has another one. Writes nothing to the file. `Fault::Damaged` when `unit` is
    /// too short; EIO when there are no random bytes.
    fn seal(&self, header: &ContainerHeader, index: u64, unit: &mut [u8]) -> Result<(), Fault> {
        let (nonce, data, tag) = parts(unit)?;
        *nonce = nonce12().map_err(|_| Fault::Os(Errno(libc::EIO)))?;
        let key = self.file.instance.keys.container();
        *tag = key
            .seal(nonce, self.place(header, index).as_bytes(), data)
            .map_err(|_| Fault::Os(Errno(libc::EIO)))?;
        Ok(())
    }
}

/// A sealed chunk as nonce, data and tag.
type Parts<'unit> = (&'unit mut [u8; NONCE], &'unit mut [u8], &'unit mut [u8; 16]);

/// Splits a sealed chunk into nonce, data and tag. `Fault::Damaged` when it is too short.
fn parts(unit: &mut [u8]) -> Result<Parts<'_>, Fault> {
    let (nonce, rest) = unit.split_first_chunk_mut().ok_or(Fault::Damaged)?;
    let (data, tag) = rest.split_last_chunk_mut().ok_or(Fault::Damaged)?;
    Ok((nonce, data, tag))
}
