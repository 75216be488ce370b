//! A log of the store's own, for a host that has none: redo records in frames, one file.
//!
//! Invariants: a record that [`LogFile::sync`] has acknowledged is found again; the log ends at the
//! first frame that a crash can have left incomplete, and a bad frame that had been durable is an
//! error, not the end. Must not: open a record other than to check that it is authentic.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_format::columns::log::{FrameHead, LOG_MAGIC, log_frame_layout};
use strongroom_keyring::{Error, durable};

use super::Store;
use super::files::{io_error, path_error};

/// The file operations of a log.
pub trait LogStorage: Send {
    /// Reads the whole file.
    ///
    /// # Errors
    /// The system's.
    fn read(&mut self) -> io::Result<Vec<u8>>;
    /// Writes all `bytes` at offset `at`. Durable after [`Self::sync`].
    ///
    /// # Errors
    /// The system's.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Sets the length of the file to `len` bytes; does not sync.
    ///
    /// # Errors
    /// The system's.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Makes all writes durable.
    ///
    /// # Errors
    /// The system's. It must not be tried again.
    fn sync(&mut self) -> io::Result<()>;
    /// Replaces the whole contents by `bytes`, durably.
    ///
    /// # Errors
    /// The system's; either file is there then.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// A file of the operating system's.
struct OnDisk {
    path: PathBuf,
    file: File,
}

impl OnDisk {
    /// Opens the log's file. If there is none, creates an empty one, readable by this user only,
    /// and syncs the directory. Fails as the system does.
    fn open(path: &Path) -> io::Result<Self> {
        let made = !path.exists();
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(path)?;
        if made {
            durable::sync_dir_of(path)?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }
}

impl LogStorage for OnDisk {
    /// Reads the whole file from its path. Fails as the system does.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        std::fs::read(&self.path)
    }

    /// Writes at this offset, without a sync. Fails as the system does.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Sets the file's length, without a sync. Fails as the system does.
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Syncs the file's contents (`fdatasync`). Fails as the system does; it must not be tried
    /// again then.
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Replaces the file by a new one, durably, and opens that. Fails as the system does; either
    /// file is there then.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        durable::replace(&self.path, bytes, 0o600)?;
        self.file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        Ok(())
    }
}

/// The store's own log.
pub struct LogFile {
    storage: Box<dyn LogStorage>,
    /// Position of the file's first byte. Positions count the bytes of the log, also of the part
    /// that was cut off; the first file begins at the store's position.
    base: u64,
    /// Position after the last frame.
    end: u64,
    synced: u64,
    poisoned: bool,
}

const HEAD: u64 = log_frame_layout::SIZE as u64;

impl LogFile {
    /// Opens the log at `path`, makes it if there is none, replays it into `store` and ends the
    /// store's recovery. Cuts off what a crash left incomplete.
    ///
    /// # Errors
    /// SR-8012 if it begins after the store's checkpoint, or a record is missing; SR-8016 if a
    /// frame that was durable is damaged; SR-3002 if a later version of Strongroom has sealed a
    /// record, and the file stays as it is then; SR-8015 if the disk is full; SR-8023 if the file
    /// cannot be read or written; those of the checkpoint that ends the recovery.
    pub fn open(path: &Path, store: &mut Store) -> Result<Self, Error> {
        let storage = OnDisk::open(path).map_err(|error| path_error(path, error))?;
        Self::with_storage(Box::new(storage), store)
    }

    /// Opens the log in any storage, replays it into `store`, ends the store's recovery, and cuts
    /// off what a crash left incomplete.
    ///
    /// # Errors
    /// As [`LogFile::open`]: SR-8012 if it begins after the store's checkpoint, or a record is
    /// missing; SR-8016 if a frame that was durable is damaged; SR-8015 if the disk is full;
    /// SR-8023 if the storage cannot be read or written; those of the checkpoint.
    pub fn with_storage(
        mut storage: Box<dyn LogStorage>,
        store: &mut Store,
    ) -> Result<Self, Error> {
        let reading = |error| io_error("reading the log", error);
        let bytes = storage.read().map_err(reading)?;
        let base = FrameHead::parse(&bytes).map_or_else(|| store.position(), |head| head.position);
        let end = replay(&bytes, base, store)?;
        let mut log = Self {
            storage,
            base,
            end,
            synced: end,
            poisoned: false,
        };
        if end < store.position() {
            // The checkpoint is further than the log: the log begins anew after it.
            log.storage.replace(&[]).map_err(reading)?;
            (log.base, log.end) = (store.position(), store.position());
        } else {
            // Bytes that a crash has left after the end must not be taken for a frame once new
            // frames precede them.
            log.storage
                .cut(end - base)
                .and_then(|()| log.storage.sync())
                .map_err(reading)?;
        }
        log.synced = log.end;
        store.finish_recovery(log.end)?;
        Ok(log)
    }

    /// Writes a record after the last one. It is durable after [`LogFile::sync`]. Returns the
    /// position after it ([`LogFile::end`]).
    ///
    /// # Errors
    /// SR-8015 if the disk is full; SR-8023 if it cannot be written, and always after a failed
    /// sync; the record is then not in the log.
    pub fn append(&mut self, record: &[u8]) -> Result<u64, Error> {
        self.check_usable()?;
        let length = u32::try_from(record.len())
            .map_err(|_| Error::new(&code::BUG, "a record above 4 GiB"))?;
        let head = FrameHead {
            length,
            position: self.end,
            synced: self.synced,
        };
        let mut frame = head.to_bytes().to_vec();
        frame.extend_from_slice(record);
        let written = self.storage.write(self.end - self.base, &frame);
        written.map_err(|error| io_error("writing the log", error))?;
        self.end += frame.len() as u64;
        Ok(self.end)
    }

    /// Makes every record that was appended durable. Nothing if all are.
    ///
    /// # Errors
    /// SR-8015 if the disk is full, SR-8023 if the system reports another error; from then on
    /// always SR-8023.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.check_usable()?;
        if self.synced == self.end {
            return Ok(());
        }
        if let Err(error) = self.storage.sync() {
            self.poisoned = true;
            return Err(io_error("making the log durable", error));
        }
        self.synced = self.end;
        Ok(())
    }

    /// The position after the last record that was appended, durable or not. Positions count the
    /// bytes of the log, also of the part that was cut off: they are no offsets in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Drops frames before `position`, which a checkpoint has acknowledged, by replacing the file
    /// durably. Nothing if that would be less than half of the log.
    ///
    /// # Errors
    /// SR-8015 if the disk is full, SR-8023 if the file cannot be read or written; the log is then
    /// as it was, or cut, and may be unusable. SR-8016 if a frame is damaged.
    pub fn cut(&mut self, position: u64) -> Result<(), Error> {
        self.check_usable()?;
        let position = position.min(self.end);
        // Cutting copies the rest of the log: it is worth it only for half of it.
        if position < self.base || position - self.base < (self.end - self.base) / 2 {
            return Ok(());
        }
        let cutting = |error| io_error("cutting the log", error);
        self.sync()?;
        let bytes = self.storage.read().map_err(cutting)?;
        let mut from = 0;
        while self.base + from < position {
            let at = usize::try_from(from).unwrap_or(usize::MAX);
            let head = bytes.get(at..).and_then(FrameHead::parse);
            let head = head.ok_or_else(|| {
                Error::new(
                    &code::REDO_RECORD,
                    format!("at position {}", self.base + from),
                )
            })?;
            from += HEAD + u64::from(head.length);
        }
        let rest = usize::try_from(from).ok().and_then(|at| bytes.get(at..));
        let len = usize::try_from(self.end - self.base - from).unwrap_or(usize::MAX);
        let rest = rest.and_then(|rest| rest.get(..len)).unwrap_or_default();
        if let Err(error) = self.storage.replace(rest) {
            // Either file may be there: the offsets are unknown.
            self.poisoned = true;
            return Err(cutting(error));
        }
        self.base += from;
        Ok(())
    }

    /// Fails with SR-8023 after a sync, or a replacement of the file, has failed: what the disk has
    /// is unknown from then on.
    fn check_usable(&self) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::new(
                &code::STORE_IO,
                "writing the log failed before: start the zone anew",
            ));
        }
        Ok(())
    }
}

/// Replays the frames in `bytes` from the store's position up to the first that is not sound, into
/// the store. Returns the position of that end. SR-8012 if the log begins after the store's
/// position; SR-8016 if a frame after the end shows that the end had been durable; those of
/// replaying.
fn replay(bytes: &[u8], base: u64, store: &mut Store) -> Result<u64, Error> {
    let from = store.position();
    if base > from {
        return Err(Error::new(
            &code::LOG_GAP,
            format!("the log begins at {base}, the checkpoint ends at {from}"),
        ));
    }
    let mut at = 0;
    while let Some(record) = frame_at(bytes, at, base, store) {
        let position = base + at as u64;
        if position >= from {
            let replayed = store.recover(record, position);
            replayed.map_err(|_| {
                store
                    .take_last_error()
                    .unwrap_or_else(|| Error::new(&code::BUG, "replay"))
            })?;
        }
        at += log_frame_layout::SIZE + record.len();
    }
    let end = base + at as u64;
    let rest = bytes.get(at..).unwrap_or_default();
    for later in 0..rest.len() {
        if !rest
            .get(later..)
            .unwrap_or_default()
            .starts_with(&LOG_MAGIC)
        {
            continue;
        }
        let head = rest.get(later..).and_then(FrameHead::parse);
        let was_durable = head.is_some_and(|head| head.synced > end);
        if was_durable && frame_at(bytes, at + later, base, store).is_some() {
            return Err(Error::new(
                &code::REDO_RECORD,
                format!("at position {end}, which had been durable"),
            ));
        }
    }
    Ok(end)
}

/// The record of the frame at this offset. `None` if the frame is cut, names another position, or
/// its record is not authentic.
fn frame_at<'a>(bytes: &'a [u8], at: usize, base: u64, store: &Store) -> Option<&'a [u8]> {
    let frame = bytes.get(at..)?;
    let head = FrameHead::parse(frame)?;
    let length = usize::try_from(head.length).ok()?;
    let record = frame.get(log_frame_layout::SIZE..)?.get(..length)?;
    let sound = head.position == base.checked_add(at as u64)? && store.is_authentic(record);
    sound.then_some(record)
}
