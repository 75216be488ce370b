//! A sealed database that this process has open: its opened header and the page ciphers of its key
//! epochs, shared by all connections of the process to the file.
//!
//! Invariants:
//! O1. The header in force is the newest one that authenticates, from the file or from its redo
//!     copy.
//! O2. A write uses the current epoch of the newest header: a connection that begins to write reads
//!     the header's sequence first.
//! O3. The anchor names the generation of the only valid write-ahead log, and is durable before
//!     that log's header.
//! O4. The anchors are read each time. They are verified again unless the bytes are those verified
//!     last, under the same header.
//! O5. The subkey from which the keys of journals are derived is kept as long as the data key from
//!     which it comes, and in the same kind of memory.
//!
//! Must not: know SQLite's calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use strongroom_crypto::SecretKey;
use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::freshness::FreshState;
use strongroom_format::header::{Anchor, FIXED_LEN, HEADER_LEN, ObjectKind, header_layout};
use strongroom_format::layout::u64_at;
use strongroom_format::sqlite::{Prologue, lock_byte_page};
use strongroom_keyring::{Error, Object, Opener, Purpose, redo};

use crate::ffi::SQLITE_SYNC_NORMAL;
use crate::freshness::DigestSum;
use crate::lower::LowerFile;
use crate::page_tail::{Tail, parse_tail};
use crate::remote::is_remote;
use crate::report::{report, report_error};
use crate::seal::{PageCipher, UnitKey, unit_key, unit_key_from};
use crate::seals;
use crate::sqlite_code::{SqliteCode, SqliteResult};
use crate::warnings::warn;

/// An opened header, and the page ciphers of its epochs.
pub(crate) struct OpenedHeader {
    /// The opened object.
    pub object: Object,
    /// Cipher of the current epoch, which new writes use.
    pub current: PageCipher,
    /// Cipher of the epoch that an unfinished rekey replaces.
    pub previous: Option<PageCipher>,
    /// The subkey from which the keys of journals of the current epoch are derived, once there was
    /// a journal.
    journal: OnceLock<SecretKey>,
}

impl OpenedHeader {
    /// Derives the page ciphers of an opened object: of its current epoch, and of the one that an
    /// unfinished rekey replaces. SR-5001 when the cryptographic library fails.
    pub(crate) fn new(object: Object) -> Result<Self, Error> {
        let current = PageCipher::new(&object, object.epoch())?;
        let previous = object
            .previous_epoch()
            .map(|epoch| PageCipher::new(&object, epoch))
            .transpose()?;
        Ok(Self {
            object,
            current,
            previous,
            journal: OnceLock::new(),
        })
    }

    /// Derives the key of the journal with this prologue. Each transaction has one, so the subkey
    /// of the current epoch is kept after the first time. SR-4008 if the header does not have the
    /// prologue's epoch; SR-5001 without memory for keys.
    pub(crate) fn journal_key(&self, prologue: &Prologue) -> Result<UnitKey, Error> {
        if prologue.epoch != self.object.epoch() {
            return unit_key(&self.object, prologue, Role::Journal, Purpose::Journal);
        }
        let from = match self.journal.get() {
            Some(from) => from,
            None => {
                let from = self.object.subkey(prologue.epoch, Purpose::Journal)?;
                self.journal.get_or_init(|| from)
            }
        };
        unit_key_from(from, prologue, Role::Journal)
    }

    /// Returns the page cipher of `epoch`. `None` if this header does not have the epoch.
    pub(crate) fn cipher(&self, epoch: u32) -> Option<&PageCipher> {
        if self.current.epoch() == epoch {
            return Some(&self.current);
        }
        self.previous
            .as_ref()
            .filter(|cipher| cipher.epoch() == epoch)
    }

    /// Returns what page `number` with this tail (its last 32 bytes) adds to the digest of the
    /// database, by which freshness is checked. Zero for the page of SQLite's lock bytes, and when
    /// the tail's epoch is unknown, as it is for a page that does not exist.
    pub(crate) fn contribution(&self, number: u64, tail: &Tail) -> DigestSum {
        let epoch = parse_tail(tail).map_or(0, |(_, _, epoch)| epoch);
        match self.cipher(epoch) {
            Some(cipher) if number != lock_byte_page(self.object.header().unit_size) => {
                cipher.contribution(number, tail)
            }
            _ => DigestSum::default(),
        }
    }

    /// Returns the header's sequence, which each rewrite of the header raises by one.
    pub(crate) fn sequence(&self) -> u64 {
        self.object.header().sequence
    }
}

/// A sealed database file. See the module comment.
pub(crate) struct SealedDatabase {
    path: String,
    opened: RwLock<Arc<OpenedHeader>>,
    /// The anchors as they were last verified.
    anchors: Mutex<Option<VerifiedAnchors>>,
}

/// The bytes of both anchors, and the one in force. The same bytes under the same header need not
/// be verified again.
struct VerifiedAnchors {
    bytes: [u8; ANCHORS_LEN],
    /// Sequence of the header whose keys verified them.
    sequence: u64,
    anchor: Anchor,
}

/// The anchors are the header's last part.
const ANCHORS_LEN: usize = HEADER_LEN - FIXED_LEN;

type OpenDatabases = BTreeMap<(String, [u8; 16]), Weak<SealedDatabase>>;
static OPEN: Mutex<OpenDatabases> = Mutex::new(BTreeMap::new());

/// Locks and returns the map of open databases.
fn open_databases() -> MutexGuard<'static, OpenDatabases> {
    // A panic while the map was locked leaves it consistent: it is changed by single insertions and
    // removals.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SealedDatabase {
    /// Whether this process has a sealed database open that a key has opened.
    pub(crate) fn is_any_open() -> bool {
        open_databases()
            .values()
            .any(|open| open.strong_count() > 0)
    }

    /// Reads the newest header of the sealed file and opens it with `opener`; shares the state with
    /// the other connections of this process that have the file open. Warns of a passphrase that
    /// opened as a raw key (SR-2038), an older keyring (SR-2040) and many seals (SR-6012, SR-6013).
    /// Reports SR-2002 for a wrong key, and SR-3001 to SR-3007 for a header that is not valid.
    pub(crate) fn open(path: &str, lower: LowerFile, opener: &Opener) -> SqliteResult<Arc<Self>> {
        let header = read_header(path, lower)?;
        let object = Object::open(&header, ObjectKind::Sqlite, opener)
            .map_err(|error| report_error(&error))?;
        if strongroom_keyring::take_text_as_raw_key_warning() {
            warn(&code::TEXT_AS_RAW_KEY, path);
        }
        if strongroom_keyring::take_older_keyring_warning() {
            warn(&code::KEYRING_OLDER_USED, path);
        }
        seals::warn_from_header(path, &object, &header);
        Self::share(path, object).map_err(|error| report_error(&error))
    }

    /// Returns the shared state of the file at `path`: that which the connections of this process
    /// have, or a new one. An `object` with a newer header replaces the shared header. SR-5001 if
    /// its keys cannot be derived.
    pub(crate) fn share(path: &str, object: Object) -> Result<Arc<Self>, Error> {
        let id = (path.to_owned(), object.object_id());
        let mut live = open_databases();
        live.retain(|_, weak| weak.strong_count() > 0);
        if let Some(sealed) = live.get(&id).and_then(Weak::upgrade) {
            // The header was opened, so the key is right; only a newer header replaces the shared
            // one.
            if sealed.opened_header().sequence() >= object.header().sequence {
                return Ok(sealed);
            }
        }
        let opened = Arc::new(OpenedHeader::new(object)?);
        if let Some(sealed) = live.get(&id).and_then(Weak::upgrade) {
            sealed.replace_header(opened);
            return Ok(sealed);
        }
        let sealed = Arc::new(Self {
            path: path.to_owned(),
            opened: RwLock::new(opened),
            anchors: Mutex::new(None),
        });
        live.insert(id, Arc::downgrade(&sealed));
        Ok(sealed)
    }

    /// Returns the sealed databases that this process has open and for which `wanted` is true of
    /// path and object id. Others are not touched, because a reference keeps a database and its
    /// keys alive.
    pub(crate) fn find_open(wanted: impl Fn(&str, &[u8; 16]) -> bool) -> Vec<Arc<Self>> {
        let live = open_databases();
        let wanted = live.iter().filter(|((path, id), _)| wanted(path, id));
        wanted.filter_map(|(_, weak)| weak.upgrade()).collect()
    }

    /// Returns the database's path as SQLite made it absolute.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns header and ciphers as they were last read. Does not read the file.
    pub(crate) fn opened_header(&self) -> Arc<OpenedHeader> {
        Arc::clone(&self.opened.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces header and ciphers in memory, for every connection of this process to the file.
    pub(crate) fn replace_header(&self, opened: Arc<OpenedHeader>) {
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = opened;
    }

    /// Reads the header's sequence in the file and, if it has changed, opens the new header with
    /// the retained keys, for every connection of this process (O1, O2). Returns the header in
    /// force. SR-2017 if the retained keys do not open the new header, SR-3004 if an older header
    /// was put back.
    pub(crate) fn refresh(&self, lower: LowerFile) -> SqliteResult<Arc<OpenedHeader>> {
        let known = self.opened_header();
        if is_remote(lower) {
            // A remote file has one version, from open to close.
            return Ok(known);
        }
        let mut sequence = [0; 8];
        let at = header_layout::SEQUENCE.offset as u64;
        if lower.read_whole(&mut sequence, at)? && u64::from_le_bytes(sequence) == known.sequence()
        {
            return Ok(known);
        }
        let header = read_header(&self.path, lower)?;
        if u64_at(&header, header_layout::SEQUENCE) == Some(known.sequence()) {
            return Ok(known);
        }
        let object = known
            .object
            .reload(&header)
            .map_err(|error| report_error(&error))?;
        let opened = Arc::new(OpenedHeader::new(object).map_err(|error| report_error(&error))?);
        self.replace_header(Arc::clone(&opened));
        Ok(opened)
    }

    /// Reads the anchor in force from the file: another process may have moved it. Bytes that were
    /// verified before are not verified again (O4). SR-3010 if neither anchor is valid.
    pub(crate) fn anchor(&self, lower: LowerFile) -> SqliteResult<Anchor> {
        let mut bytes = [0; ANCHORS_LEN];
        lower.read_whole(&mut bytes, FIXED_LEN as u64)?;
        let opened = self.opened_header();
        // A panic while this was locked leaves it whole: it is replaced at once.
        let mut seen = self.anchors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = &*seen
            && seen.bytes == bytes
            && seen.sequence == opened.sequence()
        {
            return Ok(seen.anchor);
        }
        *seen = None;
        drop(seen);
        let (opened, anchor) = self.verified_anchor(lower, opened, &bytes)?;
        let sequence = opened.sequence();
        let now = VerifiedAnchors {
            bytes,
            sequence,
            anchor,
        };
        *self.anchors.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(anchor)
    }

    /// Verifies the anchors in `bytes`, if need be under a header that is read again. Returns the
    /// anchor in force, and the header under which it is authentic. SR-3010 if neither anchor is
    /// valid.
    fn verified_anchor(
        &self,
        lower: LowerFile,
        opened: Arc<OpenedHeader>,
        bytes: &[u8; ANCHORS_LEN],
    ) -> SqliteResult<(Arc<OpenedHeader>, Anchor)> {
        let mut header = vec![0; HEADER_LEN];
        header[FIXED_LEN..].copy_from_slice(bytes);
        if let Ok(anchor) = opened.object.anchor(&header) {
            return Ok((opened, anchor));
        }
        // The anchor was made under an epoch that began after the header was read.
        let opened = self.refresh(lower)?;
        let anchor = opened.object.anchor(&header);
        let anchor = anchor.map_err(|error| report_error(&error))?;
        Ok((opened, anchor))
    }

    /// Makes the anchor name `generation` as the only valid write-ahead log, durably; 16 zero bytes
    /// for no log (O3). The caller holds the database's write lock. SR-3010 if no anchor is valid.
    ///
    /// Both sectors are written, one after the other, so that damage to one leaves the other. The
    /// file is synced between them.
    pub(crate) fn set_generation(
        &self,
        lower: LowerFile,
        generation: [u8; 16],
    ) -> SqliteResult<()> {
        let old = self.anchor(lower)?;
        let opened = self.refresh(lower)?;
        // A connection that begins another log, or none, has copied all of the one before into the
        // database.
        let fresh = match opened.object.header().freshness {
            true => Some(opened.object.fresh_state(&old)),
            false => None,
        };
        let fresh = fresh.transpose().map_err(|error| report_error(&error))?;
        let fresh = fresh.map(|state| state.without_log());
        let seals = old.seals_under(opened.object.epoch());
        for step in 1..=2 {
            let sequence = old
                .sequence
                .checked_add(step)
                .ok_or_else(|| report(&code::ANCHOR, "sequence is used up"))?;
            let anchor = opened
                .object
                .seal_anchor(sequence, generation, fresh.as_ref(), seals);
            put_anchor(lower, anchor)?;
            if step == 1 {
                // The second needs no sync: until it is durable, the first one is in force.
                lower.sync(SQLITE_SYNC_NORMAL)?;
            }
        }
        Ok(())
    }

    /// Writes the anchor that follows `old`, with the same log and count of seals and with this
    /// state of freshness, and returns it. Does not sync: SQLite's sync follows. The caller holds
    /// the database's write lock, or makes its checkpoint. SR-3010 if the sequence is used up;
    /// SR-9001 if the database keeps no freshness; SR-5001 without memory for keys; otherwise fails
    /// as the file below does.
    pub(crate) fn write_anchor(
        &self,
        lower: LowerFile,
        old: &Anchor,
        state: &FreshState,
    ) -> SqliteResult<Anchor> {
        let sequence = old
            .sequence
            .checked_add(1)
            .ok_or_else(|| report(&code::ANCHOR, "sequence is used up"))?;
        let opened = self.opened_header();
        let seals = old.seals_under(opened.object.epoch());
        let anchor = opened
            .object
            .seal_anchor(sequence, old.wal_generation, Some(state), seals);
        put_anchor(lower, anchor)
    }

    /// Returns the estimated number of pages sealed under the data key, by the anchor in the file.
    /// `None` when the cipher has no limit, no anchor is valid, or the file cannot be read.
    pub(crate) fn seals(&self, lower: LowerFile) -> Option<u64> {
        let object = &self.opened_header().object;
        let anchor = anchor_if_valid(object, lower).ok().flatten()?;
        seals::estimate(object, &anchor)
    }

    /// Counts `step` more pages as sealed under the data key (B1 in [`crate::seals`]): writes a
    /// copy of the anchor in force, with the count raised, as the next anchor, and returns it.
    /// Warns of many seals. To be called before a page is written, under the lock that keeps other
    /// writers of anchors away. `durable`: the file is synced before and after, so that no power
    /// cut destroys both anchors.
    ///
    /// `None`, and nothing is counted, when neither anchor is valid, as after damage. The page is
    /// written all the same, because no decision depends on the count; what needs an anchor reports
    /// the damage (SR-3010). After an error the page must not be written.
    pub(crate) fn add_seals(
        &self,
        lower: LowerFile,
        step: u64,
        durable: bool,
    ) -> SqliteResult<Option<Anchor>> {
        let opened = self.refresh(lower)?;
        let object = &opened.object;
        let Some(old) = anchor_if_valid(object, lower)? else {
            return Ok(None);
        };
        let Some(sequence) = old.sequence.checked_add(1) else {
            return Ok(None);
        };
        let seals = old.seals_under(object.epoch()).saturating_add(step);
        let mut state = None;
        if object.header().freshness {
            state = none_without_anchor(object.fresh_state(&old))
                .map_err(|error| report_error(&error))?;
            if state.is_none() {
                return Ok(None);
            }
        }
        let anchor = object.seal_anchor(sequence, old.wal_generation, state.as_ref(), seals);
        // While one anchor is being written, the other must be durable, since a power cut may tear
        // the first. No sync of SQLite's is certain to come in between, so these two do it.
        if durable {
            lower.sync(SQLITE_SYNC_NORMAL)?;
        }
        let anchor = put_anchor(lower, anchor)?;
        if durable {
            lower.sync(SQLITE_SYNC_NORMAL)?;
        }
        seals::warn_if_many(&self.path, object, &anchor);
        Ok(Some(anchor))
    }
}

/// Writes an anchor into the sector of its sequence, and returns it. Reports an error of sealing
/// it. Does not sync. Fails as the file below does.
fn put_anchor(lower: LowerFile, sealed: Result<Anchor, Error>) -> SqliteResult<Anchor> {
    let anchor = sealed.map_err(|error| report_error(&error))?;
    lower.write(&anchor.to_bytes(), Anchor::offset(anchor.sequence) as u64)?;
    Ok(anchor)
}

/// Reads and verifies the anchors of this object anew, and returns the one in force. `None`:
/// neither is valid, which is not reported. Fails as the file below does.
fn anchor_if_valid(object: &Object, lower: LowerFile) -> SqliteResult<Option<Anchor>> {
    let mut header = vec![0; HEADER_LEN];
    lower.read_whole(&mut header[FIXED_LEN..], FIXED_LEN as u64)?;
    none_without_anchor(object.anchor(&header)).map_err(|error| report_error(&error))
}

/// Turns the error SR-3010, that no anchor is valid, into `None`. Other errors are passed on.
fn none_without_anchor<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(known) => Ok(Some(known)),
        Err(error) if error.code() == &code::ANCHOR => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the header in force: the one in the file, or a newer redo copy of it (O1). 4096 bytes, or
/// fewer when the file is shorter. No redo copy is used for a remote file. Fails as the file below
/// does.
fn read_header(path: &str, lower: LowerFile) -> SqliteResult<Vec<u8>> {
    let mut header = vec![0; HEADER_LEN];
    if !lower.read_whole(&mut header, 0)? {
        let size =
            usize::try_from(lower.size()?).map_err(|_| SqliteCode(crate::ffi::SQLITE_IOERR))?;
        header.truncate(size);
    }
    if is_remote(lower) {
        // No local redo copy is considered for a remote file.
        return Ok(header);
    }
    Ok(redo::newest_header(Path::new(path), &header))
}
