//! An opened volume: reads and writes of any place and length, encrypted and decrypted sector by
//! sector.
//!
//! Invariants:
//! - L8 A sector is read and written whole. A write of part of one reads it first; reading and
//!   writing it again happen under a lock that every other access to it takes, so that no write is
//!   lost and no reader sees half of one.
//! - L9 After a write or a sync that failed, every later sync fails: what the caller believes to be
//!   stored might not be.
//! - L10 The tweak of a sector is its distance from the segment's beginning in units of 512 bytes,
//!   plus `iv_tweak`, whatever the sector size.
//!
//! Must not: write outside the segment of data.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use strongroom_crypto::XtsKey;
use strongroom_keyring::Locked;

use crate::error::LuksError;
use crate::header::Found;
use crate::segment::{CIPHER, data_segment, sector_and_tweak};
use crate::unlock::VolumeKey;

/// Bytes under one lock; each lock is for every 64th such range.
const STRIPE_LEN: u64 = 1 << 20;
const STRIPES: u64 = 64;
/// Tweaks count units of this many bytes.
const TWEAK_UNIT: u64 = 512;

/// An opened volume.
pub struct Volume {
    file: Locked,
    key: XtsKey,
    offset: u64,
    size: u64,
    sector: u64,
    iv_tweak: u64,
    read_only: bool,
    locks: Vec<RwLock<()>>,
    failed: AtomicBool,
}

impl Volume {
    /// Opens the data of the volume whose header was found on `file`, for reading, and for writing
    /// unless `read_only` is set or the primary copy of the header is damaged. Writes nothing.
    ///
    /// # Errors
    /// [`LuksError::Unsupported`] for more than one segment, other ciphers or lengths of keys, and
    /// integrity protection; [`LuksError::WrongKey`] when `key` is not that of the segment of data;
    /// [`LuksError::Damaged`] for data beyond the end of the device; [`LuksError::Io`].
    pub fn open(
        file: Locked,
        found: &Found,
        key: &VolumeKey,
        read_only: bool,
    ) -> Result<Self, LuksError> {
        let metadata = &found.header.metadata;
        let (number, segment) = data_segment(metadata)?;
        if metadata.digest_of_segment(number).map(|(digest, _)| digest) != Some(key.digest) {
            return Err(LuksError::WrongKey(
                "the key is another segment's".to_owned(),
            ));
        }
        let device = device_size(&file)?;
        let (sector, iv_tweak) = sector_and_tweak(segment)?;
        let available = device.checked_sub(segment.offset);
        let size = match (segment.size, available) {
            (Some(size), Some(available)) if size <= available => size,
            (None, Some(available)) => available / sector * sector,
            _ => 0,
        };
        if size == 0 {
            let field = format!("segments.{number}.size (the device ends before the data)");
            return Err(LuksError::damaged(field));
        }
        if iv_tweak.checked_add(size / TWEAK_UNIT).is_none() {
            return Err(LuksError::damaged(format!("segments.{number}.iv_tweak")));
        }
        if !matches!(key.key.len(), 32 | 64) {
            return Err(LuksError::Unsupported(format!(
                "{CIPHER} with another length of key"
            )));
        }
        Ok(Self {
            file,
            key: XtsKey::new(&key.key)?,
            offset: segment.offset,
            size,
            sector,
            iv_tweak,
            read_only: read_only || !found.may_write(),
            locks: (0..STRIPES).map(|_| RwLock::new(())).collect(),
            failed: AtomicBool::new(false),
        })
    }

    /// Returns the length of the data in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the unit of encryption in bytes.
    #[must_use]
    pub fn sector_size(&self) -> u64 {
        self.sector
    }

    /// Returns whether writes are refused, as asked for or because the primary header is damaged.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Reads and decrypts as many bytes as `buffer` holds from `offset` on, or fewer at the end of
    /// the volume. Returns their number: 0 beyond the end.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.size.saturating_sub(offset);
        let wanted = u64::try_from(buffer.len()).unwrap_or(u64::MAX).min(left);
        let wanted = usize::try_from(wanted).unwrap_or(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let span = self.span(offset, wanted as u64);
        let _shared = self.shared(&span);
        if span.is_whole(offset, wanted) {
            let mut sealed = vec![0; wanted];
            self.file.read_exact_at(&mut sealed, self.offset + offset)?;
            self.decrypt(offset, &sealed, buffer)?;
        } else {
            let plain = self.whole(&span)?;
            buffer.copy_from_slice(span.part(&plain, offset, wanted)?);
        }
        Ok(wanted)
    }

    /// Encrypts and writes all of `bytes` at `offset`. Sectors that are written only in part are
    /// read first. The bytes are durable only after [`Volume::sync`].
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` on a volume that is read-only; `StorageFull` when `bytes` reach beyond
    /// the end, and nothing is written then; the system's, after which every [`Volume::sync`]
    /// fails.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        if offset
            .checked_add(bytes.len() as u64)
            .is_none_or(|end| end > self.size)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let span = self.span(offset, bytes.len() as u64);
        let _exclusive = self.exclusive(&span);
        let done = if span.is_whole(offset, bytes.len()) {
            self.store(offset, bytes)
        } else {
            self.whole(&span).and_then(|mut plain| {
                span.part_mut(&mut plain, offset, bytes.len())?
                    .copy_from_slice(bytes);
                self.store(span.start, &plain)
            })
        };
        done.inspect_err(|_| self.failed.store(true, Ordering::SeqCst))
    }

    /// Makes everything that was written before durable (fdatasync). Does nothing on a volume that
    /// is read-only.
    ///
    /// # Errors
    /// The system's; after the first failure of a write or a sync, every later sync fails too.
    pub fn sync(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        let synced = self.file.sync_data();
        if synced.is_err() {
            self.failed.store(true, Ordering::SeqCst);
        }
        synced?;
        if self.failed.load(Ordering::SeqCst) {
            return Err(io::Error::other("an earlier write failed"));
        }
        Ok(())
    }

    /// Returns the range of whole sectors that covers `len` bytes from `offset` on. Both are within
    /// the volume.
    fn span(&self, offset: u64, len: u64) -> Span {
        let start = offset / self.sector * self.sector;
        let end = (offset + len).next_multiple_of(self.sector);
        Span { start, end }
    }

    /// Reads and decrypts the whole sectors of `span`.
    ///
    /// # Errors
    /// The system's.
    fn whole(&self, span: &Span) -> io::Result<Vec<u8>> {
        let len = usize::try_from(span.end - span.start).map_err(io::Error::other)?;
        let (mut sealed, mut plain) = (vec![0; len], vec![0; len]);
        self.file
            .read_exact_at(&mut sealed, self.offset + span.start)?;
        self.decrypt(span.start, &sealed, &mut plain)?;
        Ok(plain)
    }

    /// Encrypts whole sectors and writes them; `offset` is a multiple of the sector size. Does not
    /// sync.
    ///
    /// # Errors
    /// The system's.
    fn store(&self, offset: u64, plain: &[u8]) -> io::Result<()> {
        let mut sealed = vec![0; plain.len()];
        self.each_sector(offset, plain, &mut sealed, |tweak, from, to| {
            self.key.encrypt(tweak, from, to)
        })?;
        self.file.write_all_at(&sealed, self.offset + offset)
    }

    /// Decrypts whole sectors from `sealed` into `plain`; `offset` is the place of the first one in
    /// the volume, which its tweak is computed from.
    ///
    /// # Errors
    /// `Other` when libcrypto fails.
    fn decrypt(&self, offset: u64, sealed: &[u8], plain: &mut [u8]) -> io::Result<()> {
        self.each_sector(offset, sealed, plain, |tweak, from, to| {
            self.key.decrypt(tweak, from, to)
        })
    }

    /// Calls `work` once for each whole sector of `from` and `to`, with the sector's tweak;
    /// `offset` is the place of the first one in the volume, in bytes.
    ///
    /// # Errors
    /// `Other` with the first error of `work`.
    fn each_sector(
        &self,
        offset: u64,
        from: &[u8],
        to: &mut [u8],
        work: impl Fn(&[u8; 16], &[u8], &mut [u8]) -> Result<(), strongroom_crypto::CryptoError>,
    ) -> io::Result<()> {
        let sector = usize::try_from(self.sector).map_err(io::Error::other)?;
        let mut unit = self.iv_tweak + offset / TWEAK_UNIT;
        let mut tweak = [0; 16];
        for (from, to) in from.chunks_exact(sector).zip(to.chunks_exact_mut(sector)) {
            tweak[..8].copy_from_slice(&unit.to_le_bytes());
            work(&tweak, from, to).map_err(io::Error::other)?;
            unit += self.sector / TWEAK_UNIT;
        }
        Ok(())
    }

    /// Takes the shared locks for `span`, and waits for writers. They are held until the result is
    /// dropped.
    fn shared(&self, span: &Span) -> Vec<RwLockReadGuard<'_, ()>> {
        let locks = span.stripes().filter_map(|stripe| self.locks.get(stripe));
        locks
            .map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    /// Takes the exclusive locks for `span`, and waits for readers and writers. They are held until
    /// the result is dropped.
    fn exclusive(&self, span: &Span) -> Vec<RwLockWriteGuard<'_, ()>> {
        let locks = span.stripes().filter_map(|stripe| self.locks.get(stripe));
        locks
            .map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }
}

/// A range of whole sectors.
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// Returns whether `len` bytes from `offset` on are exactly this range of sectors.
    fn is_whole(&self, offset: u64, len: usize) -> bool {
        self.start == offset && self.end - self.start == len as u64
    }

    /// Returns the numbers of the locks for the range, in ascending order, each once: threads that
    /// take several cannot deadlock.
    fn stripes(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, last) = (
            self.start / STRIPE_LEN,
            self.end.saturating_sub(1) / STRIPE_LEN,
        );
        let all = last - first >= STRIPES - 1;
        let taken = move |stripe: u64| {
            let distance = (stripe + STRIPES - first % STRIPES) % STRIPES;
            all || distance <= last - first
        };
        (0..STRIPES)
            .filter(move |&stripe| taken(stripe))
            .filter_map(|stripe| usize::try_from(stripe).ok())
    }

    /// Returns the `len` bytes at `offset` of the volume out of `whole`, which are the bytes of
    /// this range.
    ///
    /// # Errors
    /// `InvalidInput` when they are not within it.
    fn part<'a>(&self, whole: &'a [u8], offset: u64, len: usize) -> io::Result<&'a [u8]> {
        let from = usize::try_from(offset - self.start).map_err(io::Error::other)?;
        whole
            .get(from..from + len)
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Returns the `len` bytes at `offset` of the volume out of `whole`, which are the bytes of
    /// this range, for writing.
    ///
    /// # Errors
    /// `InvalidInput` when they are not within it.
    fn part_mut<'a>(
        &self,
        whole: &'a mut [u8],
        offset: u64,
        len: usize,
    ) -> io::Result<&'a mut [u8]> {
        let from = usize::try_from(offset - self.start).map_err(io::Error::other)?;
        whole
            .get_mut(from..from + len)
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

/// Returns the length of a file or block device in bytes. Moves the file's position to its end.
///
/// # Errors
/// [`LuksError::Io`].
pub fn device_size(mut file: &File) -> Result<u64, LuksError> {
    use std::io::{Seek as _, SeekFrom};
    file.seek(SeekFrom::End(0))
        .map_err(|error| LuksError::Io("looking for the end of the device".to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_each_lock_of_its_own_once_in_ascending_order() {
        let of = |start: u64, end: u64| Span { start, end }.stripes().collect::<Vec<_>>();
        assert_eq!(of(0, 512), [0]);
        assert_eq!(of(STRIPE_LEN - 512, STRIPE_LEN), [0]);
        assert_eq!(of(STRIPE_LEN - 512, STRIPE_LEN + 512), [0, 1]);
        assert_eq!(of(63 * STRIPE_LEN, 65 * STRIPE_LEN), [0, 63]);
        assert_eq!(of(130 * STRIPE_LEN, 130 * STRIPE_LEN + 512), [2]);
        assert_eq!(of(0, 64 * STRIPE_LEN).len(), 64);
        assert_eq!(
            of(STRIPE_LEN / 2, 64 * STRIPE_LEN + STRIPE_LEN / 2).len(),
            64
        );
        assert_eq!(of(5 * STRIPE_LEN, 500 * STRIPE_LEN).len(), 64);
    }
}
