//! The sealed write-ahead log. docs/spec/sqlite.md, "Write-ahead log".
//!
//! Invariants:
//! W1. A generation has one prologue, one key and one pair of SQLite's salts. A header with other
//!     salts begins a new generation.
//! W2. A frame is one seal over header and page, bound to generation and index; SQLite's running
//!     checksum inside the sealed headers binds the order.
//! W3. Only the log whose generation the anchor names is read. Any other log counts as empty: its
//!     frames were checkpointed before the anchor named another generation.
//! W4. A frame that does not authenticate ends the log for recovery, as a bad checksum does in
//!     SQLite; for a reader that has the frame in its snapshot it is an error.
//! W5. A transaction that SQLite has written is in the file. Only a frame header whose page has not
//!     been written yet waits in memory.
//! W6. The header that begins a generation becomes durable together with the generation's first
//!     durable frames, not before. SQLite syncs it so that the log before it does not count, and
//!     the anchor has seen to that already (O3). With freshness it is synced.
//!
//! Must not: write SQLite's checksums, which are sums over plaintext, to the file in clear.

use std::ffi::c_int;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use strongroom_crypto::random32;
use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::sqlite::{
    AuxKind, Prologue, WAL_FRAME_HEADER, WAL_HEAD, WAL_HEADER, WalGeometry, prologue_layout,
};
use strongroom_keyring::{Error, Purpose, storage};

use crate::big_endian::be_u32_at;
use crate::capabilities::{sealed_characteristics, sealed_control};
use crate::ffi::{SQLITE_IOERR_SHORT_READ, SQLITE_IOERR_WRITE};
use crate::io_methods::IoMethods;
use crate::lower::LowerFile;
use crate::page_tail::{TAIL, Tail, tail_on_disk};
use crate::report::{report, report_error, warn};
use crate::seal::{UnitKey, crypto_error, unit_key};
use crate::sealed::SealedDatabase;
use crate::shared_state::SharedState;
use crate::sqlite_code::{SqliteCode, SqliteResult};

/// SQLite's salts: bytes 16..24 of the log's header and 8..16 of every frame's.
type Salts = [u8; 8];

struct Generation {
    prologue: Prologue,
    key: UnitKey,
    header: [u8; WAL_HEADER],
}

impl Generation {
    /// Returns the two salts in the log's header, which every frame of the generation repeats.
    fn salts(&self) -> Salts {
        let mut salts = [0; 8];
        salts.copy_from_slice(&self.header[16..24]);
        salts
    }
}

/// The state in which a frame was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameStatus {
    /// Authentic; its plaintext is in the buffer.
    Open,
    /// Present, but not authentic.
    Forged,
    /// Beyond the end of the file, or cut off by it.
    Absent,
}

/// A write-ahead log of a sealed database.
pub(crate) struct WalFile {
    lower: LowerFile,
    main: LowerFile,
    sealed: Arc<SealedDatabase>,
    shared: Arc<SharedState>,
    keeps_freshness: bool,
    geometry: WalGeometry,
    generation: Option<Generation>,
    /// A frame header that SQLite has written, and whose page it has not; both are written to the
    /// file together.
    pending: Option<(u64, [u8; WAL_FRAME_HEADER])>,
    /// Frames that this handle has written; none of them may be taken for the end of the log.
    written: u64,
    /// The generation of those frames. Another process may have started the log again since.
    written_in: [u8; 16],
    frame: Vec<u8>,
    warned: bool,
    /// The header of a new generation is all that this handle has written since its last sync.
    header_alone: bool,
}

impl WalFile {
    /// Makes the state of the log of the database `sealed`, whose file below is `main`; `lower` is
    /// the log's own. Notes in `shared` that the log is open. Nothing is read or written yet.
    pub(crate) fn new(
        lower: LowerFile,
        main: LowerFile,
        sealed: Arc<SealedDatabase>,
        shared: Arc<SharedState>,
    ) -> Self {
        let opened = sealed.opened_header();
        let header = opened.object.header();
        let (page_size, keeps_freshness) = (header.unit_size, header.freshness);
        shared.set_log_file(Some(lower));
        Self {
            shared,
            keeps_freshness,
            lower,
            main,
            sealed,
            geometry: WalGeometry { page_size },
            generation: None,
            pending: None,
            written: 0,
            written_in: [0; 16],
            frame: Vec::new(),
            warned: false,
            header_alone: false,
        }
    }

    /// Returns the path of the log, for messages.
    fn path(&self) -> String {
        format!("{}-wal", self.sealed.path())
    }

    /// Sets `self.generation` from the log's prologue and header. `None`, which counts as an empty
    /// log, if the file is too short, not authentic, of another database, or not of the anchor's
    /// generation; warns of the last two with SR-4006, once for each handle. SR-2017, SR-3004 or
    /// SR-3010 for the database's header, SR-5001 for the cryptography; else fails as the files do.
    fn load_header(&mut self) -> SqliteResult<()> {
        let mut bytes = [0; WAL_HEAD];
        self.generation = None;
        if !self.lower.read_whole(&mut bytes, 0)? {
            return Ok(());
        }
        let Some(prologue) = Prologue::parse(&bytes[..prologue_layout::SIZE]) else {
            return Ok(());
        };
        let opened = self.sealed.refresh(self.main)?;
        let ours = prologue.kind == AuxKind::Wal
            && prologue.unit == self.geometry.page_size
            && prologue.object_id == opened.object.object_id()
            && opened.cipher(prologue.epoch).is_some();
        if !ours || self.sealed.anchor(self.main)?.wal_generation != prologue.generation() {
            if !self.warned {
                // A crash between anchor and header leaves the same state, and loses nothing (O3,
                // W3).
                warn(&code::WAL_STALE, &self.path());
                self.warned = true;
            }
            return Ok(());
        }
        let key = self.generation_key(&prologue)?;
        let mut header = [0; WAL_HEADER];
        let Some(plain) = key.open(Role::WalHeader, 0, &mut bytes[prologue_layout::SIZE..]) else {
            return Ok(());
        };
        header.copy_from_slice(plain);
        self.generation = Some(Generation {
            prologue,
            key,
            header,
        });
        Ok(())
    }

    /// Derives the key of the frames of the generation whose prologue this is. Reports an error of
    /// the cryptography.
    fn generation_key(&self, prologue: &Prologue) -> SqliteResult<UnitKey> {
        unit_key(
            &self.sealed.opened_header().object,
            prologue,
            Role::WalFrame,
            Purpose::Wal,
        )
        .map_err(|error| report_error(&error))
    }

    /// Seals the log's header and writes it, with its prologue, when SQLite starts the log or
    /// writes its header again. If the salts are new, this first begins a new generation, which
    /// writes the anchor of the database. Does not sync the log. The caller holds SQLite's write
    /// lock on the log.
    fn write_header(&mut self, header: &[u8; WAL_HEADER]) -> SqliteResult<()> {
        self.pending = None;
        self.load_header()?;
        let same = self
            .generation
            .as_ref()
            .is_some_and(|generation| generation.salts() == header[16..24]);
        self.header_alone = false;
        if !same {
            self.begin_generation()?;
        }
        let Some(generation) = &mut self.generation else {
            return Err(SqliteCode(SQLITE_IOERR_WRITE));
        };
        generation.header = *header;
        let mut out = generation.prologue.to_bytes().to_vec();
        generation
            .key
            .seal(Role::WalHeader, 0, &[header], &mut out)
            .map_err(|error| report_error(&error))?;
        self.lower.write(&out, 0)?;
        self.header_alone = !same;
        Ok(())
    }

    /// Begins a new generation with a random salt and sets `self.generation`. Nothing is written to
    /// the log yet, but the database's anchor is made to name the generation first, durably.
    /// SR-3010 if no anchor is valid; SR-2017 or SR-3004 for a header that was replaced; SR-5001.
    fn begin_generation(&mut self) -> SqliteResult<()> {
        let opened = self.sealed.refresh(self.main)?;
        let prologue = Prologue {
            kind: AuxKind::Wal,
            unit: self.geometry.page_size,
            epoch: opened.object.epoch(),
            object_id: opened.object.object_id(),
            salt: random32().map_err(|error| report_error(&crypto_error(&error)))?,
            page1_before: [0; 32],
            page1_nonce: [0; 12],
        };
        self.sealed
            .set_generation(self.main, prologue.generation())?;
        let key = self.generation_key(&prologue)?;
        self.generation = Some(Generation {
            prologue,
            key,
            header: [0; WAL_HEADER],
        });
        self.written = 0;
        Ok(())
    }

    /// Seals a frame's header and page as one unit and writes it. `page` may be empty if `header`
    /// holds the whole frame. With freshness, the page's last 32 bytes become the tail that the
    /// page has in the database. `SQLITE_IOERR_WRITE` if there is no generation. Does not sync.
    fn write_whole_frame(&mut self, index: u64, header: &[u8], page: &[u8]) -> SqliteResult<()> {
        let Some(generation) = &self.generation else {
            return Err(SqliteCode(SQLITE_IOERR_WRITE));
        };
        self.header_alone = false;
        let mut tail = None;
        let mut image = page;
        if self.keeps_freshness
            && let Some((rest, _)) = page.split_last_chunk::<TAIL>()
        {
            // SQLite writes zeros in its place, and reads zeros.
            tail = Some(self.tail_on_disk_of(header)?);
            image = rest;
        }
        let tail = tail.as_ref().map_or(&[][..], |tail| &tail[..]);
        let mut out = std::mem::take(&mut self.frame);
        out.clear();
        let sealed = generation
            .key
            .seal(Role::WalFrame, index, &[header, image, tail], &mut out)
            .map_err(|error| report_error(&error));
        let result =
            sealed.and_then(|()| self.lower.write(&out, self.geometry.frame_offset(index)));
        let name = generation.prologue.generation();
        self.frame = out;
        result?;
        if self.written_in != name {
            self.written_in = name;
            self.written = 0;
        }
        self.written = self.written.max(index + 1);
        Ok(())
    }

    /// Reads the tail (the last 32 bytes: nonce, tag, epoch) that the page of this frame has in the
    /// database file; zero bytes if the frame names no page. Until the first checkpoint of the
    /// generation it is the page's tail before the generation.
    fn tail_on_disk_of(&self, header: &[u8]) -> SqliteResult<Tail> {
        let number = be_u32_at(header, 0).map_or(0, u64::from);
        match number {
            0 => Ok(Tail::default()),
            number => tail_on_disk(self.main, number, self.geometry.page_size),
        }
    }

    /// Whether this handle wrote frame `index`, or a later one, of the current generation.
    fn has_written(&self, index: u64) -> bool {
        let name = |generation: &Generation| generation.prologue.generation();
        index < self.written && self.generation.as_ref().map(name) == Some(self.written_in)
    }

    /// Reads frame `index`, from 0, and opens it in `self.frame`, its plaintext from byte 12. If it
    /// is not authentic, loads the log's header again and tries once more. Returns its state:
    /// damage is no error. Warns (SR-4006) and fails as [`Self::load_header`] and the file do.
    fn open_frame(&mut self, index: u64) -> SqliteResult<FrameStatus> {
        for reloaded in [false, true] {
            if reloaded || self.generation.is_none() {
                // Another process may have started the log again since it was last read.
                self.load_header()?;
            }
            let physical = usize::try_from(self.geometry.frame_physical()).unwrap_or(0);
            self.frame.resize(physical, 0);
            let whole = self
                .lower
                .read_whole(&mut self.frame, self.geometry.frame_offset(index))?;
            let Some(generation) = &self.generation else {
                return Ok(if whole {
                    FrameStatus::Forged
                } else {
                    FrameStatus::Absent
                });
            };
            if !whole {
                return Ok(FrameStatus::Absent);
            }
            if generation
                .key
                .open(Role::WalFrame, index, &mut self.frame)
                .is_some()
            {
                return Ok(FrameStatus::Open);
            }
        }
        Ok(FrameStatus::Forged)
    }

    /// Replaces `data.len()` bytes at `within` of frame `index`, which must be in the log, and
    /// writes the frame again, as SQLite does within a transaction. SR-4003 if the frame is absent
    /// or not authentic; otherwise fails as [`Self::open_frame`] does, and when it cannot write.
    fn patch_frame(&mut self, index: u64, within: usize, data: &[u8]) -> SqliteResult<()> {
        if self.open_frame(index)? != FrameStatus::Open {
            return Err(self.damage_error(index));
        }
        self.patch_open_frame(index, within, data)
    }

    /// Replaces `data.len()` bytes at `within` of frame `index`, whose plaintext is in
    /// `self.frame`, and writes the frame again. SR-9001 if the bytes reach beyond the frame.
    fn patch_open_frame(&mut self, index: u64, within: usize, data: &[u8]) -> SqliteResult<()> {
        let mut plain = self.frame[12..self.frame.len() - 16].to_vec();
        let Some(target) = plain.get_mut(within..within + data.len()) else {
            return Err(report(&code::BUG, "write across frames"));
        };
        target.copy_from_slice(data);
        // With another header the frame is of another page, also when nothing more of it is
        // written.
        if self.keeps_freshness && matches!(within, 0 | WAL_FRAME_HEADER) {
            let tail = self.tail_on_disk_of(&plain)?;
            if let Some(last) = plain.last_chunk_mut::<TAIL>() {
                *last = tail;
            }
        }
        let result = self.write_whole_frame(index, &plain, &[]);
        plain.fill(0);
        result
    }

    /// Writes a frame header that was held back into the frame that has its page already. Drops it,
    /// and succeeds, when there is no such frame. SR-4003 if this handle wrote the frame and it no
    /// longer opens, else as [`Self::patch_frame`]. Does nothing if no header is held back.
    fn flush_pending(&mut self) -> SqliteResult<()> {
        let Some((index, header)) = self.pending.take() else {
            return Ok(());
        };
        let found = self.open_frame(index)?;
        if found != FrameStatus::Open && !self.has_written(index) {
            // Its page was never written, and the frame is not in the file yet: SQLite has given
            // the write up, and for a reader the log ends here, as it does in SQLite at a header
            // without its page.
            return Ok(());
        }
        if found != FrameStatus::Open {
            return Err(self.damage_error(index));
        }
        self.patch_open_frame(index, 0, &header)
    }

    /// Reports SR-4003 with the number of the frame, counted from 1, and returns SQLite's code for
    /// it.
    fn damage_error(&self, index: u64) -> SqliteCode {
        report(
            &code::WAL_FRAME,
            format!("{}: frame {}", self.path(), index.saturating_add(1)),
        )
    }

    /// Checks that a frame header has the salts of the loaded generation. If not, loads the log's
    /// header again, and compares once more: SR-4006 if they still differ, or no valid header was
    /// found. While a generation is loaded, accepts a header with zero salts and checksums, which
    /// SQLite writes while it defers checksums. Otherwise fails as the files do.
    fn match_generation(&mut self, header: &[u8]) -> SqliteResult<()> {
        let salts = &header[8..16];
        // Salts and checksum are zero while SQLite defers checksums (`walEncodeFrame`): it does so
        // only later in a transaction that has rewritten a frame, so the generation was matched
        // before.
        if self.generation.is_some() && header[8..24] == [0; 16] {
            return Ok(());
        }
        if self
            .generation
            .as_ref()
            .is_some_and(|generation| generation.salts() == salts)
        {
            return Ok(());
        }
        self.load_header()?;
        if self
            .generation
            .as_ref()
            .is_some_and(|generation| generation.salts() == salts)
        {
            return Ok(());
        }
        Err(report(&code::WAL_STALE, self.path()))
    }

    /// Handles a write at byte `within` of frame `index`. A frame header is held in memory until
    /// its page follows, and both are then sealed and written together; if this handle wrote the
    /// frame before, the header is written at once. Any other write changes a frame that is in the
    /// log. Fails as [`Self::match_generation`] and [`Self::patch_frame`] do.
    fn write_frame(&mut self, index: u64, within: usize, data: &[u8]) -> SqliteResult<()> {
        if within == 0 && data.len() == WAL_FRAME_HEADER {
            self.flush_pending()?;
            self.match_generation(data)?;
            // W5: headers alone may be a transaction's last writes (`walRewriteChecksums`), without
            // a sync after them.
            if self.has_written(index) && self.open_frame(index)? == FrameStatus::Open {
                return self.patch_open_frame(index, 0, data);
            }
            let mut header = [0; WAL_FRAME_HEADER];
            header.copy_from_slice(data);
            self.pending = Some((index, header));
            return Ok(());
        }
        if within == WAL_FRAME_HEADER
            && data.len() == self.geometry.page_size as usize
            && let Some((pending, header)) = self.pending.take()
        {
            if pending == index {
                return self.write_whole_frame(index, &header, data);
            }
            self.pending = Some((pending, header));
        }
        self.flush_pending()?;
        self.patch_frame(index, within, data)
    }

    /// Loads the log's header and reads from it. If no generation opens: `SQLITE_IOERR_SHORT_READ`
    /// if the log ends before the read does, else `out` keeps the caller's zeros, which SQLite
    /// takes for an empty log. Warns (SR-4006) and fails as [`Self::load_header`] does.
    fn read_header(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        self.load_header()?;
        let size = self.geometry.logical_size(self.lower.size()?);
        let start = usize::try_from(at).map_err(|_| SqliteCode(SQLITE_IOERR_SHORT_READ))?;
        match &self.generation {
            Some(generation) if start + out.len() <= WAL_HEADER => {
                out.copy_from_slice(&generation.header[start..start + out.len()]);
                Ok(())
            }
            _ if size < at.saturating_add(out.len() as u64) => {
                Err(SqliteCode(SQLITE_IOERR_SHORT_READ))
            }
            // Zeros are no WAL header: the log is empty (W3).
            _ => Ok(()),
        }
    }

    /// Reads `out.len()` bytes at `within` of frame `index`. `SQLITE_IOERR_SHORT_READ` if the frame
    /// is absent. A damaged frame is SR-4003 if the read begins at its page, or if this connection
    /// wrote the frame; otherwise it reads as zeros, so that SQLite's recovery ends the log there.
    /// With freshness, the page's tail reads as zeros.
    fn read_frame(&mut self, out: &mut [u8], index: u64, within: usize) -> SqliteResult<()> {
        let frame = self.open_frame(index);
        if frame != Ok(FrameStatus::Open) {
            out.fill(0);
        }
        let frame = frame?;
        if frame == FrameStatus::Absent {
            return Err(SqliteCode(SQLITE_IOERR_SHORT_READ));
        }
        if frame == FrameStatus::Open {
            let plain = &mut self.frame[12..];
            if self.keeps_freshness
                && let Some((body, _)) = plain.split_last_chunk_mut::<16>()
                && let Some(tail) = body.last_chunk_mut::<TAIL>()
            {
                tail.fill(0);
            }
            let Some(part) = plain
                .get(within..within + out.len())
                .filter(|_| within + out.len() + 16 <= plain.len())
            else {
                out.fill(0);
                return Err(report(&code::BUG, "read across frames"));
            };
            out.copy_from_slice(part);
            plain.fill(0);
            return Ok(());
        }
        // W4: recovery reads from the frame's header on, a reader of a snapshot reads the page
        // alone.
        if within == WAL_FRAME_HEADER || self.has_written(index) {
            Err(self.damage_error(index))
        } else {
            Ok(())
        }
    }
}

/// Whether the write-ahead log beside the database at path `database` has any bytes. An I/O error
/// is reported.
pub(crate) fn has_log(database: &str) -> SqliteResult<bool> {
    log_length(database)
        .map(|length| length > 0)
        .map_err(|error| report_error(&error))
}

/// Returns the length in bytes of the write-ahead log beside the database at path `database`; 0 if
/// there is none. SR-5001 for any other error, which must not be taken for an empty log, because
/// the log may hold pages under the old key.
pub(crate) fn log_length(database: &str) -> Result<u64, Error> {
    let path = format!("{database}-wal");
    match storage::of(Path::new(&path)).about(Path::new(&path)) {
        Ok(about) => Ok(about.len),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::io(path, error)),
    }
}

impl IoMethods for WalFile {
    /// Returns the file below, which holds the sealed log.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Reads from the log as SQLite wrote it; `at` is the offset in the plain log. First writes a
    /// frame header that was held back. A log without a valid generation reads as empty. SR-4003
    /// for a damaged page or a damaged frame of this connection; other damaged frames read as
    /// zeros, with which SQLite's recovery ends the log.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        self.flush_pending()?;
        match self.geometry.frame_at(at) {
            None => {
                out.fill(0);
                self.read_header(out, at)
            }
            Some((index, within)) => {
                let within =
                    usize::try_from(within).map_err(|_| SqliteCode(SQLITE_IOERR_SHORT_READ))?;
                self.read_frame(out, index, within)
            }
        }
    }

    /// Writes to the log at `at`, an offset in the plain log: its whole header, or a part of a
    /// frame. A frame header may be held in memory. SR-9001 for a part of the log's header. Does
    /// not sync.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        match self.geometry.frame_at(at) {
            Some((index, within)) => {
                let within = usize::try_from(within).map_err(|_| SqliteCode(SQLITE_IOERR_WRITE))?;
                self.write_frame(index, within, data)
            }
            None => match <&[u8; WAL_HEADER]>::try_from(data) {
                Ok(header) if at == 0 => self.write_header(header),
                _ => Err(report(&code::BUG, "write into the log's header")),
            },
        }
    }

    /// Truncates the log to `size` bytes of the plain log, after writing a frame header that was
    /// held back. With size 0 the generation is forgotten. Does not sync.
    fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        self.flush_pending()?;
        self.header_alone = false;
        if size == 0 {
            self.generation = None;
            self.written = 0;
        }
        self.lower.truncate(self.geometry.physical_size(size))
    }

    /// Writes a frame header that was held back, then syncs the file. The sync is left out if only
    /// the header of a new generation was written since the last one and the database keeps no
    /// freshness.
    fn sync(&mut self, flags: c_int) -> SqliteResult<()> {
        self.flush_pending()?;
        if std::mem::take(&mut self.header_alone) && !self.keeps_freshness {
            return Ok(());
        }
        self.lower.sync(flags)
    }

    /// Returns the size of the plain log, as SQLite sees it, in bytes. First writes a frame header
    /// that was held back ([`Self::flush_pending`]).
    fn size(&mut self) -> SqliteResult<u64> {
        self.flush_pending()?;
        Ok(self.geometry.logical_size(self.lower.size()?))
    }

    /// Passes the operation to the file below, except the announcements of a size, which are
    /// ignored.
    fn file_control(&mut self, op: c_int, argument: *mut std::ffi::c_void) -> SqliteResult<()> {
        sealed_control(self.lower, op, argument)
    }

    /// Returns the characteristics of the device below, without those that sealed files do not
    /// have.
    fn device_characteristics(&self) -> c_int {
        sealed_characteristics(self.lower.device_characteristics())
    }

    /// Notes that the log is no longer open, then writes a frame header that was held back. Does
    /// not sync.
    fn before_close(&mut self) -> SqliteResult<()> {
        self.shared.set_log_file(None);
        self.flush_pending()
    }
}
