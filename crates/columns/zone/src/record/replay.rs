//! Replay: a record answers in place of the zone, so that a query plan can be examined without a
//! value.
//!
//! The backend repeats the calls that it made when the record was made. Ephemeral identifiers
//! differ from those of the record: each is identified by the call that made it. Constants are
//! found by their envelopes, because a statement may get them in another form. Invariants: every
//! part of a record is authenticated before any of it is used; a call that departs from the record
//! is an error, and so is every call that would change something. Must not: hold a key of values,
//! or answer a call that is not in the record.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use strongroom_columns_ring::{
    Answer, Area, Descriptor, Fault, Handler, Op, Peer, Server, Stopper,
};
use strongroom_crypto::GcmKey;
use strongroom_format::code;
use strongroom_format::columns::record::{
    PieceHead, RECORD_MAX, RecordedCall, record_piece_layout,
};
use strongroom_format::header::{HEADER_LEN, ObjectKind};
use strongroom_keyring::{Error, Object, Opener, Purpose};

use super::shape;
use crate::sandbox::{self, Sandbox};

const TAG: usize = 16;

/// A record, authenticated as a whole.
pub struct Record(Vec<RecordedCall>);

/// The error SR-8123 for a record that cannot be read, with this detail.
fn damaged(what: &str) -> Error {
    Error::new(&code::COLUMN_RECORD, what)
}

impl Record {
    /// Reads the whole record at `path`, authenticates and decrypts it.
    ///
    /// # Errors
    /// SR-8123 if it is cut, changed or too long; SR-5001 of the operating system; those of a
    /// header that does not open with this opener.
    pub fn open(path: &Path, opener: &Opener) -> Result<Self, Error> {
        let trouble =
            |error: io::Error| Error::new(&code::IO, format!("{}: {error}", path.display()));
        if std::fs::metadata(path).map_err(trouble)?.len() > RECORD_MAX {
            return Err(damaged("too long for a record"));
        }
        let file = std::fs::read(path).map_err(trouble)?;
        let object = Object::open(&file, ObjectKind::Zone, opener)?;
        let key = GcmKey::new(&object.subkey(object.epoch(), Purpose::ZoneRecord)?)?;
        let pieces = file.get(HEADER_LEN..).unwrap_or_default();
        let plain = open_pieces(&key, pieces)?;
        let mut rest = plain.as_slice();
        let mut calls = Vec::new();
        while !rest.is_empty() {
            let (call, behind) =
                RecordedCall::parse(rest).ok_or_else(|| damaged("a call that is cut"))?;
            calls.push(call);
            rest = behind;
        }
        Ok(Self(calls))
    }

    /// The number of calls in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Decrypts all pieces of a record, which follow its header; returns their contents together.
/// SR-8123 if one is cut, changed, missing, out of order, or follows the last.
fn open_pieces(key: &GcmKey, mut pieces: &[u8]) -> Result<Vec<u8>, Error> {
    let mut plain = Vec::new();
    let mut expected = 0;
    loop {
        let head = PieceHead::parse(pieces).ok_or_else(|| damaged("it was cut"))?;
        let (bytes, rest) = pieces
            .split_at_checked(record_piece_layout::SIZE)
            .ok_or_else(|| damaged("it was cut"))?;
        let (sealed, rest) = rest
            .split_at_checked(head.size)
            .ok_or_else(|| damaged("it was cut"))?;
        let (tag, rest) = rest
            .split_first_chunk::<TAG>()
            .ok_or_else(|| damaged("it was cut"))?;
        let mut piece = sealed.to_vec();
        let open = key.open(&head.nonce(), bytes, &mut piece, tag);
        if open.is_err() || head.sequence != expected {
            return Err(damaged("it was changed"));
        }
        plain.extend_from_slice(&piece);
        if head.last {
            return if rest.is_empty() {
                Ok(plain)
            } else {
                Err(damaged("it goes on behind its end"))
            };
        }
        expected += 1;
        pieces = rest;
    }
}

/// The state of replay of one backend.
#[derive(Default)]
struct BackendReplay {
    /// The next call of the record.
    at: usize,
    /// For each identifier of this backend, the one in the record.
    known: BTreeMap<u64, u64>,
    /// The backend has departed from the record; nothing is answered any more.
    departed: bool,
}

impl BackendReplay {
    /// Answers a backend's call from the record, and writes the recorded bytes to the data area.
    /// Calls that only end or set something are answered without the record. `Fault::Departed` if
    /// the backend does something else than was recorded, or something that would change values;
    /// the caller then marks it as departed, and every later call of substance fails so.
    fn answer_call(
        &mut self,
        calls: &[RecordedCall],
        op: Op,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        match op {
            Op::StatementEnd | Op::Inserted | Op::Prefetch => return Ok(Answer::default()),
            // A record has single operations only: the extension then asks for no programs.
            Op::Program => return Ok(Answer::fault(Fault::BadRequest)),
            _ if self.departed => return Err(Fault::Departed),
            Op::Sync | Op::TimeZone | Op::ServerGeneration | Op::Record => {
                return Ok(Answer::of(0));
            }
            Op::OpenEnvelope | Op::PostEnvelope => {
                return self.open_envelope(calls, descriptor, area);
            }
            Op::Partition => return partition(calls, descriptor, area),
            op if shape::is_recorded(op) => {}
            _ => return Err(Fault::Departed),
        }
        let apart = [Op::OpenEnvelope, Op::PostEnvelope, Op::Partition].map(Op::number);
        while calls
            .get(self.at)
            .is_some_and(|call| apart.contains(&call.op))
        {
            self.at += 1;
        }
        let call = calls.get(self.at).ok_or(Fault::Departed)?;
        self.at += 1;
        self.compare(call, op, descriptor, area)?;
        let answer = Answer {
            status: call.status,
            aux: call.aux,
            value: call.value,
        };
        let (offset, len) = shape::answer_range(op, descriptor, &answer).ok_or(Fault::Departed)?;
        if len != call.output.len() {
            return Err(Fault::Departed);
        }
        area.write(offset, &call.output).ok_or(Fault::Departed)?;
        Ok(answer)
    }

    /// The word that the record has for a word of this backend: another identifier, or the same
    /// word.
    fn recorded(&self, word: u64) -> u64 {
        self.known.get(&word).copied().unwrap_or(word)
    }

    /// Checks that a call is the recorded one, with this backend's identifiers in place of the
    /// recorded ones. Notes the identifier of a new result. `Fault::Departed` if it is another
    /// call.
    fn compare(
        &mut self,
        call: &RecordedCall,
        op: Op,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<(), Fault> {
        let [a, b, r] = call.words;
        let same = call.op == descriptor.op
            && call.flags == descriptor.flags
            && call.n == descriptor.n
            && a == self.recorded(descriptor.a)
            && (shape::takes_words(op) || b == self.recorded(descriptor.b));
        if !same {
            return Err(Fault::Departed);
        }
        let input = shape::input(op, descriptor, area).ok_or(Fault::Departed)?;
        let (live, _) = input.as_chunks::<8>();
        let (then, _) = call.input.as_chunks::<8>();
        let alike = live.len() == then.len()
            && live.iter().zip(then).all(|(live, then)| {
                self.recorded(u64::from_le_bytes(*live)) == u64::from_le_bytes(*then)
            });
        if !alike {
            return Err(Fault::Departed);
        }
        let makes = matches!(op, Op::Compute | Op::Accumulate | Op::Combine | Op::Final);
        if makes && *self.known.entry(descriptor.r).or_insert(r) != r {
            return Err(Fault::Departed);
        }
        Ok(())
    }

    /// Answers the opening of a constant as it was recorded for the same envelope and kind,
    /// wherever in the record that is; notes the identifier. `Fault::Departed` if it is not
    /// recorded.
    fn open_envelope(
        &mut self,
        calls: &[RecordedCall],
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let input = shape::input(Op::OpenEnvelope, descriptor, area).ok_or(Fault::Departed)?;
        let kind = |flags: u16| flags.to_le_bytes()[0];
        let constants = [Op::OpenEnvelope, Op::PostEnvelope].map(Op::number);
        let found = calls.iter().find(|call| {
            constants.contains(&call.op)
                && kind(call.flags) == kind(descriptor.flags)
                && call.input == input
        });
        let call = found.ok_or(Fault::Departed)?;
        if call.status == 0 {
            // A posted operation has no answer: its identifier is the one that the backend chose.
            let [.., chosen] = call.words;
            let then = if call.op == Op::PostEnvelope.number() {
                chosen
            } else {
                call.value
            };
            self.known.insert(descriptor.r, then);
            return Ok(Answer::of(descriptor.r));
        }
        Ok(Answer {
            status: call.status,
            ..Answer::default()
        })
    }
}

/// Answers a call about a partition from the first recorded call for the same relation.
/// `Fault::Departed` if there is none. Makes no partition.
fn partition(
    calls: &[RecordedCall],
    descriptor: &Descriptor,
    area: &Area,
) -> Result<Answer, Fault> {
    let input = shape::input(Op::Partition, descriptor, area).ok_or(Fault::Departed)?;
    let mut found = calls.iter().filter(|call| call.op == descriptor.op);
    let call = found
        .find(|call| call.input == input)
        .ok_or(Fault::Departed)?;
    Ok(Answer {
        status: call.status,
        aux: call.aux,
        value: call.value,
    })
}

/// Answers from a record. Every backend begins at the beginning of the record.
struct Replayer {
    calls: Vec<RecordedCall>,
    users: Vec<u32>,
    backends: BTreeMap<u16, BackendReplay>,
}

impl Handler for Replayer {
    /// Returns a free number from 1 to 1000 for a backend, which begins at the start of the record.
    /// `None`, which refuses it, if its user id is not served, or no number is free.
    fn ring_opened(&mut self, peer: &Peer) -> Option<u16> {
        if !self.users.contains(&peer.uid) {
            return None;
        }
        let number = (1..=1000).find(|number| !self.backends.contains_key(number))?;
        self.backends.insert(number, BackendReplay::default());
        Some(number)
    }

    /// Forgets how far this backend has come in the record.
    fn ring_closed(&mut self, arena: u16) {
        self.backends.remove(&arena);
    }

    /// Answers a call from the record. With `Fault::Departed` if it is not the recorded one, and
    /// from then on; `Fault::BadRequest` for an unknown operation. Executes nothing.
    fn execute(&mut self, arena: u16, descriptor: &Descriptor, area: &Area) -> Answer {
        let (Some(op), Some(backend)) = (
            Op::from_number(descriptor.op),
            self.backends.get_mut(&arena),
        ) else {
            return Answer::fault(Fault::BadRequest);
        };
        let answer = backend.answer_call(&self.calls, op, descriptor, area);
        answer.unwrap_or_else(|fault| {
            backend.departed = true;
            Answer::fault(fault)
        })
    }
}

/// A server that replays a record.
pub struct Replaying {
    replayer: Replayer,
    server: Server,
}

impl Replaying {
    /// Binds the socket at `path`, with mode 0666, and listens. Only processes of `users`, which
    /// are user ids, are served, and only by [`Self::run`].
    ///
    /// # Errors
    /// `AddrInUse` if a zone listens there, or something other than a socket is there; otherwise
    /// the kernel's.
    pub fn bind(record: Record, users: Vec<u32>, path: &Path) -> io::Result<Self> {
        let incarnation = strongroom_crypto::random16().map_err(io::Error::other)?;
        Ok(Self {
            replayer: Replayer {
                calls: record.0,
                users,
                backends: BTreeMap::new(),
            },
            server: Server::bind(path, 0o666, incarnation)?,
        })
    }

    /// A handle that stops the server from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.server.stopper()
    }

    /// Closes the sandbox and serves on this thread until a [`Stopper`] stops it.
    ///
    /// # Errors
    /// If the sandbox cannot be closed; those of the kernel.
    pub fn run(mut self, sandbox: &Sandbox) -> io::Result<()> {
        sandbox::close(sandbox)?;
        self.server.run(&mut self.replayer)
    }
}
