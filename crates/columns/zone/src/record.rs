//! Records for the operator: the requests of one backend and the answers, sealed, to be replayed
//! without the zone.
//!
//! Specified in docs/spec/columns-record.md. Invariants: a record has what the server sees and
//! nothing else, so an operation that carries a value in clear is refused while its ring is
//! recorded; each record has a key of its own, so its counter is a nonce; a record that was not
//! ended has no last piece and is not replayed. Must not: delay a ring that is not recorded.

pub mod replay;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use strongroom_columns_ring::{Answer, Area, Descriptor, Fault, Op};
use strongroom_crypto::GcmKey;
use strongroom_format::columns::record::{PieceHead, RECORD_MAX, RECORD_PIECE_MAX, RecordedCall};
use strongroom_keyring::{Error, NewObject, Object, Purpose, Recipient};

/// Longest name of a record.
const NAME_MAX: usize = 64;
/// Records in one directory; a server that asks for more is refused.
const RECORDS_MAX: usize = 100;
/// The suffix of the names of records.
const SUFFIX: &str = ".record";

/// Makes records, if the zone is configured for it.
#[derive(Default)]
pub(crate) struct Recorder {
    target: Option<(PathBuf, Recipient)>,
    open: BTreeMap<u16, Recording>,
    /// Rings whose record ended with an error that was not reported yet.
    failed: BTreeSet<u16>,
}

/// A record that is being made.
struct Recording {
    file: File,
    key: GcmKey,
    sequence: u64,
    written: u64,
    pending: Vec<u8>,
}

impl Recorder {
    /// A recorder that makes records in this directory, which has to exist, sealed for this
    /// recipient. Writes nothing yet.
    pub(crate) fn at(directory: PathBuf, recipient: Recipient) -> Self {
        Self {
            target: Some((directory, recipient)),
            ..Self::default()
        }
    }

    /// Begins a record of the ring: makes the file `NAME.record`. Ends the one that is being made,
    /// even if this fails.
    ///
    /// # Errors
    /// [`Fault::NotRecorded`] if the zone records nothing, the name is not valid or taken, there
    /// are 100 records already, or the file cannot be made.
    pub(crate) fn begin(&mut self, ring: u16, name: &[u8]) -> Result<(), Fault> {
        self.end(ring);
        let (directory, recipient) = self.target.as_ref().ok_or(Fault::NotRecorded)?;
        let name = valid_name(name).ok_or(Fault::NotRecorded)?;
        let started = Recording::start(directory, recipient, name);
        self.open
            .insert(ring, started.map_err(|_| Fault::NotRecorded)?);
        Ok(())
    }

    /// Ends the ring's record, if one is being made: writes its last piece and syncs the file. An
    /// error is ignored: a record without its last piece is not replayed.
    pub(crate) fn end(&mut self, ring: u16) {
        self.failed.remove(&ring);
        if let Some(recording) = self.open.remove(&ring) {
            // A record without its last piece is not replayed. No caller waits for the error.
            recording.finish();
        }
    }

    /// Copies the operation's arguments out of the data area, before the operation replaces them.
    /// Returns `None` if this ring or this operation is not recorded, or if the arguments do not
    /// lie in the area.
    pub(crate) fn input(
        &self,
        ring: u16,
        op: Op,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Option<Vec<u8>> {
        if self.open.is_empty() || !self.open.contains_key(&ring) || !shape::is_recorded(op) {
            return None;
        }
        shape::input(op, descriptor, area)
    }

    /// Whether the operation has to be refused because the ring is recorded: it carries a value in
    /// clear, or is one of many rows, for which the extension sends single ones then.
    pub(crate) fn forbids(&self, ring: u16, op: Op) -> bool {
        let is_forbidden = matches!(
            op,
            Op::Declassify | Op::Classify | Op::Program | Op::RunProgram | Op::Groups
        );
        is_forbidden && self.open.contains_key(&ring)
    }

    /// Whether the ring's record has ended because [`Self::append`] failed, since the last call.
    /// Clears that mark, as beginning or ending a record does. False for an unknown ring.
    pub(crate) fn has_failed(&mut self, ring: u16) -> bool {
        !self.failed.is_empty() && self.failed.remove(&ring)
    }

    /// Appends an operation that was executed, with the `input` that [`Self::input`] returned and
    /// the answer in `answer` and `area`, to the ring's record. Ends the record, without its last
    /// piece, if that fails; [`Self::has_failed`] then says so. Nothing for a ring that is not
    /// recorded.
    pub(crate) fn append(
        &mut self,
        ring: u16,
        (op, descriptor): (Op, &Descriptor),
        input: Vec<u8>,
        answer: &Answer,
        area: &Area,
    ) {
        let Some(recording) = self.open.get_mut(&ring) else {
            return;
        };
        let output = shape::output(op, descriptor, answer, area);
        let taken = output.and_then(|output| {
            let call = RecordedCall {
                op: descriptor.op,
                flags: descriptor.flags,
                n: descriptor.n,
                words: [descriptor.a, descriptor.b, descriptor.r],
                status: answer.status,
                aux: answer.aux,
                value: answer.value,
                input,
                output,
            };
            recording.append(&call)
        });
        if taken.is_none() {
            self.open.remove(&ring);
            self.failed.insert(ring);
        }
    }
}

/// The name as text, if it is a valid one: 1 to 64 letters, digits, `-` and `_`, all ASCII. `None`
/// otherwise.
fn valid_name(name: &[u8]) -> Option<&str> {
    let name = core::str::from_utf8(name).ok()?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let sound = !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(good);
    sound.then_some(name)
}

/// Makes the error SR-5001 for a failure of the operating system.
fn system(error: std::io::Error) -> Error {
    Error::new(&strongroom_format::code::IO, error.to_string())
}

impl Recording {
    /// Makes the file of a new record, readable by this user only, and writes its header, sealed
    /// for the recipient. SR-8124 if the directory has 100 entries already; SR-5001 if the file
    /// exists or cannot be made; errors of cryptography.
    fn start(directory: &Path, recipient: &Recipient, name: &str) -> Result<Self, Error> {
        let count = std::fs::read_dir(directory).map_err(system)?.count();
        if count >= RECORDS_MAX {
            return Err(Error::new(&strongroom_format::code::COLUMN_UNRECORDED, ""));
        }
        let object = Object::create(&NewObject::zone(), recipient)?;
        let key = GcmKey::new(&object.subkey(object.epoch(), Purpose::ZoneRecord)?)?;
        let path = directory.join(format!("{name}{SUFFIX}"));
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let mut file = opened.map_err(system)?;
        let header = object.initial_bytes();
        file.write_all(&header).map_err(system)?;
        Ok(Self {
            file,
            key,
            sequence: 0,
            written: header.len() as u64,
            pending: Vec::new(),
        })
    }

    /// Appends a call to the record; writes whole pieces, and keeps the rest in memory. `None` if
    /// the call is too long, the record would become too long, or sealing or writing fails; the
    /// record must then be given up.
    fn append(&mut self, call: &RecordedCall) -> Option<()> {
        call.append(&mut self.pending)?;
        while self.pending.len() >= RECORD_PIECE_MAX {
            let rest = self.pending.split_off(RECORD_PIECE_MAX);
            let piece = core::mem::replace(&mut self.pending, rest);
            self.write(piece, false)?;
        }
        Some(())
    }

    /// Seals a piece and writes it to the file, without a sync; `last` marks it as the record's
    /// last, without which the record is not replayed. `None` if sealing or writing fails, or the
    /// record would become longer than [`RECORD_MAX`]. The record must then be given up: a part of
    /// the piece may be in the file.
    fn write(&mut self, mut piece: Vec<u8>, last: bool) -> Option<()> {
        let head = PieceHead {
            last,
            sequence: self.sequence,
            size: piece.len(),
        };
        let bytes = head.to_bytes();
        let tag = self.key.seal(&head.nonce(), &bytes, &mut piece).ok()?;
        let parts = [&bytes[..], &piece, &tag].concat();
        self.written = self.written.checked_add(parts.len() as u64)?;
        if self.written > RECORD_MAX {
            return None;
        }
        self.sequence = self.sequence.checked_add(1)?;
        self.file.write_all(&parts).ok()
    }

    /// Writes what is kept in memory as the last piece, and syncs the file. Errors are ignored: a
    /// reader notices a record without a last piece.
    fn finish(mut self) {
        let rest = core::mem::take(&mut self.pending);
        if self.write(rest, true).is_some() {
            // A record is for use now: after a power cut it is made again.
            drop(self.file.sync_all());
        }
    }
}
