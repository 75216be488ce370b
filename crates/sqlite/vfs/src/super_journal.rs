//! The super-journal of a transaction over several databases: the names of their journals.
//! docs/spec/sqlite.md, "Super-journal".
//!
//! Invariants:
//! U1. When every participant is sealed, the names are sealed under a key of their own, which is
//!     wrapped once for each participant. So the participant that is recovered first can read them.
//! U2. When a plain database takes part, the names stay in clear. Its recovery, perhaps by an
//!     SQLite without this VFS, must be able to read them; otherwise it would delete the
//!     super-journal, and with it the other databases' rollback.
//! U3. A sealed journal that cannot be opened here, but that the super-journal lists, is presumed
//!     to belong to it. The super-journal is then kept, which loses nothing.
//!
//! Must not: be treated as absent when it cannot be read.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_crypto::{GcmKey, SecretKey, nonce12, random32};
use strongroom_format::aad::{AssociatedData, Role};
use strongroom_format::code;
use strongroom_format::layout::{array, put};
use strongroom_format::sqlite::{AuxKind, Prologue, prologue_layout, super_slot_layout as slot};
use strongroom_keyring::{Error, Purpose};

use crate::ffi::SQLITE_IOERR_SHORT_READ;
use crate::io_methods::IoMethods;
use crate::lower::LowerFile;
use crate::report::{report, report_error};
use crate::seal::crypto_error;
use crate::sealed::SealedDatabase;
use crate::sqlite_code::{SqliteCode, SqliteResult};

/// Most participants: SQLite's limit on attached databases, with a margin.
const PARTICIPANTS_MAX: usize = 256;
/// Returns the path of a super-journal that this process is reading now and that lists the journal
/// at `path`. `None` if there is none.
pub(crate) fn super_journal_listing(path: &str) -> Option<String> {
    let lists = |names: &[u8]| {
        let mut names = names.split(|&byte| byte == 0);
        names.any(|name| name == path.as_bytes())
    };
    names_being_read(|list| {
        let owner = list.iter().find(|(_, names)| lists(names));
        owner.map(|(owner, _)| owner.clone())
    })
}

/// The end of a journal that belongs to a super-journal has these bytes (SQLite's `aJournalMagic`).
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// The super-journals that this process is reading: path and names, for U3.
static BEING_READ: Mutex<Vec<(String, Vec<u8>)>> = Mutex::new(Vec::new());

/// A super-journal that is being written: the names are buffered, and sealed at the first sync.
pub(crate) struct SuperWriter {
    lower: LowerFile,
    names: Vec<u8>,
    dirty: bool,
}

impl SuperWriter {
    /// Begins a new super-journal without names. Writes nothing.
    pub(crate) fn new(lower: LowerFile) -> Self {
        Self {
            lower,
            names: Vec::new(),
            dirty: false,
        }
    }

    /// Writes the names if they were changed, in place of what the file holds: sealed when all
    /// databases that take part are sealed, in clear otherwise. Does not sync. SR-5001 if they
    /// cannot be sealed; otherwise fails as the file below does.
    fn flush(&mut self) -> SqliteResult<()> {
        if !self.dirty {
            return Ok(());
        }
        let bytes = match sealed_participants(&self.names) {
            Some(sealed) => {
                seal_names(&sealed, &self.names).map_err(|error| report_error(&error))?
            }
            None => self.names.clone(),
        };
        self.lower.truncate(0)?;
        self.lower.write(&bytes, 0)?;
        self.dirty = false;
        Ok(())
    }
}

/// Returns the open sealed databases whose journals are named, in this order. `None` when one of
/// them is plain or not open in this process (U2), or there are no names.
fn sealed_participants(names: &[u8]) -> Option<Vec<Arc<SealedDatabase>>> {
    let mut found = Vec::new();
    for name in names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let database = name.strip_suffix(b"-journal")?;
        let mut known = SealedDatabase::find_open(|path, _| path.as_bytes() == database);
        found.push(known.pop()?);
    }
    (!found.is_empty()).then_some(found)
}

/// Returns the associated data of the sealed names.
fn names_place() -> AssociatedData {
    AssociatedData {
        role: Role::SuperJournal,
        cipher: 1,
        unit_size: 0,
        epoch: 0,
        object_id: [0; 16],
    }
}

/// Returns the associated data of the slot that wraps the file's key for one database.
fn slot_place(object_id: [u8; 16], epoch: u32) -> AssociatedData {
    AssociatedData {
        role: Role::SuperSlot,
        cipher: 1,
        unit_size: 0,
        epoch,
        object_id,
    }
}

/// Seals the names under a fresh key, and that key once for each database that takes part. Returns
/// the bytes of the whole file. SR-5001 if the cryptography fails.
fn seal_names(participants: &[Arc<SealedDatabase>], names: &[u8]) -> Result<Vec<u8>, Error> {
    let file_key = SecretKey::generate().map_err(|error| crypto_error(&error))?;
    let prologue = Prologue {
        kind: AuxKind::SuperJournal,
        unit: u32::try_from(participants.len()).unwrap_or(0),
        epoch: 0,
        object_id: [0; 16],
        salt: random32().map_err(|error| crypto_error(&error))?,
        page1_before: [0; 32],
        page1_nonce: [0; 12],
    };
    let mut out = prologue.to_bytes().to_vec();
    for sealed in participants {
        let opened = sealed.opened_header();
        let (id, epoch) = (opened.object.object_id(), opened.object.epoch());
        let wrap = opened.object.derive(
            epoch,
            Purpose::SuperJournal,
            &prologue.salt,
            &prologue.to_bytes(),
        )?;
        let nonce = nonce12().map_err(|error| crypto_error(&error))?;
        let mut key = *file_key.expose();
        let aad = slot_place(id, epoch).at(0);
        let tag = GcmKey::new(&wrap)
            .and_then(|wrap| wrap.seal(&nonce, &aad, &mut key))
            .map_err(|error| crypto_error(&error))?;
        let mut bytes = [0; slot::SIZE];
        let done = [
            put(&mut bytes, slot::OBJECT_ID, &id),
            put(&mut bytes, slot::EPOCH, &epoch.to_le_bytes()),
            put(&mut bytes, slot::NONCE, &nonce),
            put(&mut bytes, slot::KEY, &key),
            put(&mut bytes, slot::TAG, &tag),
        ];
        assert!(
            done.iter().all(Option::is_some),
            "super-journal slot layout"
        );
        out.extend_from_slice(&bytes);
    }
    let nonce = nonce12().map_err(|error| crypto_error(&error))?;
    let mut body = names.to_vec();
    let aad = names_place().at(0);
    let tag = GcmKey::new(&file_key)
        .and_then(|key| key.seal(&nonce, &aad, &mut body))
        .map_err(|error| crypto_error(&error))?;
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&body);
    out.extend_from_slice(&tag);
    Ok(out)
}

/// Opens the names in a sealed super-journal, through any participant that this process has open.
/// `None` if none of them opens it, or the file is malformed.
fn open_names(bytes: &[u8], prologue: &Prologue) -> Option<Vec<u8>> {
    let count = usize::try_from(prologue.unit)
        .ok()
        .filter(|count| *count <= PARTICIPANTS_MAX)?;
    let (slots, body) = bytes
        .get(prologue_layout::SIZE..)?
        .split_at_checked(count * slot::SIZE)?;
    for record in slots.chunks_exact(slot::SIZE) {
        let id: [u8; 16] = array(record, slot::OBJECT_ID)?;
        let epoch = u32::from_le_bytes(array(record, slot::EPOCH)?);
        for sealed in SealedDatabase::find_open(|_, known| *known == id) {
            let opened = sealed.opened_header();
            let Ok(wrap) = opened.object.derive(
                epoch,
                Purpose::SuperJournal,
                &prologue.salt,
                &prologue.to_bytes(),
            ) else {
                continue;
            };
            let mut key: [u8; 32] = array(record, slot::KEY)?;
            let aad = slot_place(id, epoch).at(0);
            let opened = GcmKey::new(&wrap).ok()?.open(
                &array(record, slot::NONCE)?,
                &aad,
                &mut key,
                &array(record, slot::TAG)?,
            );
            if opened.is_err() {
                continue;
            }
            let key = SecretKey::take(&mut key).ok()?;
            let (nonce, rest) = body.split_first_chunk::<12>()?;
            let (sealed_names, tag) = rest.split_last_chunk::<16>()?;
            let mut names = sealed_names.to_vec();
            GcmKey::new(&key)
                .ok()?
                .open(nonce, &names_place().at(0), &mut names, tag)
                .ok()?;
            return Some(names);
        }
    }
    None
}

impl IoMethods for SuperWriter {
    /// Returns the file below.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Reads from the names in memory. Past their end, `out` is zero and the result
    /// `SQLITE_IOERR_SHORT_READ`.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        read_image(&self.names, out, at)
    }

    /// Puts bytes into the names in memory. They are written at the next sync or at the close.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        let Ok(at) = usize::try_from(at) else {
            return Err(report(&code::BUG, "super-journal offset"));
        };
        if self.names.len() < at + data.len() {
            self.names.resize(at + data.len(), 0);
        }
        self.names[at..at + data.len()].copy_from_slice(data);
        self.dirty = true;
        Ok(())
    }

    /// Writes the names if they were changed, and syncs the file. Fails as [`Self::flush`] does, or
    /// as the file below does.
    fn sync(&mut self, flags: c_int) -> SqliteResult<()> {
        self.flush()?;
        self.lower.sync(flags)
    }

    /// Returns the length of the names in memory in bytes, as SQLite sees it. Never fails.
    fn size(&mut self) -> SqliteResult<u64> {
        Ok(self.names.len() as u64)
    }

    /// Writes the names if they were changed. Does not sync. Fails as [`Self::flush`] does.
    fn before_close(&mut self) -> SqliteResult<()> {
        self.flush()
    }
}

/// A super-journal, or a journal read as one, as an image in memory.
pub(crate) struct SuperReader {
    lower: LowerFile,
    image: Vec<u8>,
    path: String,
}

impl SuperReader {
    /// Opens the names in `bytes`, which is the whole file, and notes that they are being read,
    /// until drop. `path` is the file's own. SR-4005 if no database that is open here can open
    /// them.
    pub(crate) fn open(lower: LowerFile, path: String, bytes: &[u8]) -> SqliteResult<Self> {
        let prologue =
            Prologue::parse(bytes).filter(|prologue| prologue.kind == AuxKind::SuperJournal);
        let names = prologue.and_then(|prologue| open_names(bytes, &prologue));
        let Some(image) = names else {
            return Err(report(&code::SUPER_JOURNAL, path));
        };
        names_being_read(|list| list.push((path.clone(), image.clone())));
        Ok(Self { lower, image, path })
    }

    /// Takes the names in clear of a super-journal in which a plain database takes part (U2). They
    /// count as being read until drop, for U3.
    pub(crate) fn from_clear_names(lower: LowerFile, path: String, image: Vec<u8>) -> Self {
        names_being_read(|list| list.push((path.clone(), image.clone())));
        Self { lower, image, path }
    }

    /// Makes the image of a sealed journal of a database that is not open here (U3). SQLite asks
    /// whether it names the super-journal that is being read; the image says so if that
    /// super-journal lists the journal, and otherwise the error is SR-4005.
    pub(crate) fn presume(lower: LowerFile, path: String) -> SqliteResult<Self> {
        let Some(owner) = super_journal_listing(&path) else {
            return Err(report(&code::SUPER_JOURNAL, path));
        };
        Ok(Self {
            lower,
            image: super_journal_record(&owner),
            path: String::new(),
        })
    }
}

/// Builds the end of a journal that belongs to the super-journal `name`: name, length, checksum,
/// magic (SQLite's `writeSuperJournal`).
#[expect(clippy::big_endian_bytes, reason = "SQLite's own journal format")]
fn super_journal_record(name: &str) -> Vec<u8> {
    let mut image = name.as_bytes().to_vec();
    // SQLite sums the bytes as signed characters.
    let sum = name.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_add_signed(i32::from(byte.cast_signed()))
    });
    image.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_be_bytes());
    image.extend_from_slice(&sum.to_be_bytes());
    image.extend_from_slice(&JOURNAL_MAGIC);
    image
}

/// Locks the list of super-journals that are being read, calls `with` on it, and returns its
/// result.
fn names_being_read<T>(with: impl FnOnce(&mut Vec<(String, Vec<u8>)>) -> T) -> T {
    with(&mut BEING_READ.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads from an image in memory. Bytes after its end become zero, and the result is then
/// `SQLITE_IOERR_SHORT_READ`.
fn read_image(image: &[u8], out: &mut [u8], at: u64) -> SqliteResult<()> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let there = image.get(at..).unwrap_or_default();
    let len = there.len().min(out.len());
    let (head, tail) = out.split_at_mut(len);
    head.copy_from_slice(&there[..len]);
    tail.fill(0);
    if tail.is_empty() {
        Ok(())
    } else {
        Err(SqliteCode(SQLITE_IOERR_SHORT_READ))
    }
}

impl IoMethods for SuperReader {
    /// Returns the file below. Its content is in memory already.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Reads from the image in memory. Past its end, `out` is zero and the result
    /// `SQLITE_IOERR_SHORT_READ`.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        read_image(&self.image, out, at)
    }

    /// Refuses with `SQLITE_READONLY`.
    fn write(&mut self, _data: &[u8], _at: u64) -> SqliteResult<()> {
        Err(SqliteCode(crate::ffi::SQLITE_READONLY))
    }

    /// Returns the length of the image in bytes. Never fails.
    fn size(&mut self) -> SqliteResult<u64> {
        Ok(self.image.len() as u64)
    }
}

impl Drop for SuperReader {
    /// Removes this super-journal from the list of those that are being read.
    fn drop(&mut self) {
        names_being_read(|list| {
            if let Some(at) = list.iter().position(|(path, _)| *path == self.path) {
                list.swap_remove(at);
            }
        });
    }
}
