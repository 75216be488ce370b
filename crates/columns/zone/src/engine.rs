//! The engine: executes the operations of the rings, one after the other.
//!
//! Invariants: R2 (the next call reports the first fault of the posted operations, once), R6
//! (answers are results, identifiers, sealed bytes, truths, tokens and faults), A1 and A2 (every
//! operation on values asks [`crate::policy`] first). Arguments in the data area are copied before
//! they are checked (R3). Must not: compute itself, know where values are kept, or do I/O but
//! through the store.

mod aggregate;
mod backends;
mod batch;
mod compare;
mod compute;
mod functions;
mod groups;
mod log;
mod plain;
mod program;
mod promote;
mod running;
mod session;
mod status;
mod value_sources;
mod values;
mod vector;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strongroom_columns_ring::function::Aggregate;
use strongroom_columns_ring::{Answer, Area, Descriptor, Fault, Handler, Op, Peer};
use strongroom_columns_values::{Buf, Out};
use strongroom_keyring::Error;
use zeroize::Zeroize as _;

use crate::record::Recorder;
use crate::session::attest::{Attester, EvidenceSource};
use crate::session::channel::{Channel, Unattested};
use crate::session::{ColumnKeys, Session};
use crate::store::Store;
use backends::Ring;
use functions::Functions;
use value_sources::ValueSources;
use vector::Vector;

/// The zone: all state of the engine's one thread.
pub struct Zone {
    sources: ValueSources,
    channel: Channel,
    keys: ColumnKeys,
    evidence: EvidenceSource,
    /// By ring, the attestation that waits for its evidence.
    attesting: BTreeMap<u16, Unattested>,
    functions: Functions,
    scratch: ScratchBuffers,
    users: Vec<u32>,
    recorder: Recorder,
    /// The generation of the host's shared memory, as its backends say.
    server_generation: Option<u64>,
    reporter: ErrorReporter,
    /// The ring that reads the host's log and passes its records to the zone.
    reader: Option<u16>,
    /// How many values were computed, compared or tested since the start.
    computed: WorkCount,
}

/// Reports errors of the store to the zone's owner, and repeats none too soon.
struct ErrorReporter {
    tell: Box<dyn FnMut(&Error) + Send>,
    last: Option<(u16, Instant)>,
}

/// The bits of a descriptor's flags that have a kind's number.
const KIND_BITS: u16 = 0xff;

/// The same error is reported again after this time.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// Buffers that every operation uses again; the values in them are wiped.
struct ScratchBuffers {
    args: [Out; 3],
    out: Out,
    buf: Buf,
    plain: Vec<u8>,
    bytes: Vec<u8>,
    words: Vec<u64>,
    vectors: Vec<Vector>,
}

impl ScratchBuffers {
    /// Empty buffers.
    fn new() -> Self {
        Self {
            args: [Out::new(), Out::new(), Out::new()],
            out: Out::new(),
            buf: Buf::new(),
            plain: Vec::new(),
            bytes: Vec::new(),
            words: Vec::new(),
            vectors: Vec::new(),
        }
    }

    /// Overwrites the values of the last operation.
    fn wipe(&mut self) {
        for arg in &mut self.args {
            arg.set_word(0);
        }
        self.out.set_word(0);
        self.buf.clear();
        self.plain.zeroize();
        self.vectors.iter_mut().for_each(Vector::wipe);
    }
}

impl Drop for ScratchBuffers {
    /// Overwrites the values in the buffers.
    fn drop(&mut self) {
        self.wipe();
    }
}

impl Zone {
    /// A zone on this store, with the column keys that the store keeps; a kept key for which there
    /// is no locked memory is left out. It serves only processes of `users`, which are user ids.
    /// Starts nothing.
    #[must_use]
    pub fn new(
        store: Store,
        mut keys: ColumnKeys,
        attester: Box<dyn Attester>,
        users: Vec<u32>,
    ) -> Self {
        // From now on setting the clock back makes no ticket last longer.
        crate::clock::now();
        for (id, key) in store.kept_keys() {
            // A key for which there is no locked memory is missing until its client brings it
            // again.
            let _taken = key.try_clone().map(|key| keys.take(*id, key));
        }
        Self {
            sources: ValueSources::new(store),
            channel: Channel::default(),
            keys,
            evidence: EvidenceSource::new(attester),
            attesting: BTreeMap::new(),
            functions: Functions::new(),
            scratch: ScratchBuffers::new(),
            users,
            recorder: Recorder::default(),
            server_generation: None,
            reporter: ErrorReporter {
                tell: Box::new(|_| {}),
                last: None,
            },
            reader: None,
            computed: WorkCount::default(),
        }
    }

    /// Returns the zone with recording allowed: backends may have their requests recorded into
    /// files in `directory`, which has to exist, sealed for this recipient.
    #[must_use]
    pub fn recording(
        mut self,
        directory: std::path::PathBuf,
        recipient: strongroom_keyring::Recipient,
    ) -> Self {
        self.recorder = Recorder::at(directory, recipient);
        self
    }

    /// From now on, calls `tell` with each error of the store: the rings get a fault only. An error
    /// with the same code as the last one is left out for 10 seconds. An error contains no value.
    pub fn on_store_error(&mut self, tell: impl FnMut(&Error) + Send + 'static) {
        self.reporter.tell = Box::new(tell);
    }

    /// Makes the store durable, at the position of the host's log that it has reached: the next
    /// start has less to replay. What was counted of budgets in advance is given back.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.sources.store.last_checkpoint()
    }

    /// How many values were computed, compared or tested since the start, whether or not anybody
    /// got an answer; it goes on counting. What a ring may not ask must not raise it: the server
    /// sees for how long the zone computes. No ring is told: a value that cannot be computed with,
    /// because an earlier computation has failed, does not raise it.
    #[must_use]
    pub fn computed(&self) -> WorkCount {
        self.computed.clone()
    }

    /// The random number of this start of the zone, 16 bytes.
    #[must_use]
    pub fn incarnation(&self) -> [u8; 16] {
        self.sources.store.identity().1
    }

    /// Runs an operation, posted or called, and returns its answer; that of a posted one is empty.
    /// A called operation is not run if an earlier posted one has failed, and answers with that
    /// fault. Passes an error of the store on to the function of `on_store_error`.
    fn dispatch(&mut self, arena: u16, op: Op, descriptor: &Descriptor, area: &Area) -> Answer {
        if op.is_posted() {
            self.run_posted(arena, op, descriptor, area);
            return Answer::default();
        }
        let answer = self
            .report_first_fault(arena, op, is_ahead(op, descriptor))
            .map_err(Answer::earlier)
            .and_then(|()| {
                let answer = self.run_called(arena, op, descriptor, area);
                answer.map_err(Answer::fault)
            });
        answer.unwrap_or_else(|failure| {
            if let Some(error) = self.sources.store.take_last_error() {
                self.reporter.report(&error);
            }
            failure
        })
    }

    /// Returns the first fault of this ring's posted operations, once (R2), before the operation
    /// `op` is run; nothing for an operation that is independent of the statement's values. That
    /// there is a fault, or none, counts as one of the ticket's answers (A4): `Fault::BudgetSpent`
    /// if the budget is spent. An operation that is asked ahead of need counts as well, because it
    /// may fail on the value of a failed computation, but it reports no fault.
    fn report_first_fault(&mut self, ring: u16, op: Op, ahead: bool) -> Result<(), Fault> {
        let state = self.sources.rings.get_mut(ring)?;
        if op.is_independent() {
            return Ok(());
        }
        if matches!(op, Op::Final | Op::Groups) {
            // The result of an aggregate shows whether accumulating has failed.
            state.fallible = true;
        }
        if state.is_orphan {
            return Err(Fault::NotAllowed);
        }
        if state.fallible {
            let computed_from = state.computed_from;
            self.charge_check(ring, computed_from)?;
        }
        self.charge_for_group(ring)?;
        if ahead {
            return Ok(());
        }
        let state = self.sources.rings.get_mut(ring)?;
        state.fallible = state.failed;
        if !state.failed {
            state.computed_from = None;
        }
        match state.fault.take() {
            Some(fault) => {
                state.third_argument = None;
                Err(fault)
            }
            None => Ok(()),
        }
    }

    /// Runs a posted operation, which has no answer. A fault is stored in its result's slot, and
    /// kept for the next called operation if it is the first. `BadRequest` for a called operation.
    fn run_posted(&mut self, ring: u16, op: Op, descriptor: &Descriptor, area: &Area) {
        let third_argument = self
            .sources
            .rings
            .get_mut(ring)
            .ok()
            .and_then(|ring| ring.third_argument.take());
        let done = match op {
            Op::StatementEnd => self.end_statement(ring, descriptor),
            Op::Inserted => self.confirm_inserted(ring, descriptor),
            Op::ThirdArgument => self.set_third_argument(ring, descriptor.a),
            Op::PostEnvelope => self.post_envelope(ring, descriptor, area),
            Op::Compute => self.compute(ring, descriptor, third_argument),
            Op::Accumulate => self.accumulate(ring, descriptor),
            Op::Combine => self.combine(ring, descriptor),
            Op::Prefetch => self.prefetch(descriptor),
            Op::ForgetProgram => self.forget_program(ring, descriptor),
            _ => Err(Fault::BadRequest),
        };
        let computes = matches!(op, Op::Compute | Op::Accumulate | Op::Combine);
        let Ok(ring) = self.sources.rings.get_mut(ring) else {
            return;
        };
        ring.fallible |= computes;
        // Whether or not it has failed: the counts are shown to everybody.
        ring.computed += u64::from(op == Op::Compute);
        ring.attempts += u64::from(computes);
        if let Err(fault) = done {
            ring.fault.get_or_insert(fault);
            ring.failed |= computes;
            let makes = computes || op == Op::PostEnvelope;
            if let Some(fid) = strongroom_format::columns::Fid::from_bits(descriptor.r)
                && makes
            {
                ring.arena.fail(fid, fault);
            }
        }
    }

    /// Runs an operation whose answer the backend waits for, and returns this answer.
    /// `Fault::BadRequest` for a posted operation; otherwise the operation's faults. Forgets a
    /// third argument that it does not use.
    fn run_called(
        &mut self,
        ring: u16,
        op: Op,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let third_argument = self.sources.rings.get_mut(ring)?.third_argument.take();
        let value = match op {
            Op::Sync => Ok(0),
            Op::TimeZone => self.time_zone(ring, descriptor, area),
            Op::Join => self.join(ring, descriptor),
            Op::Lead => self.lead(ring),
            Op::OpenEnvelope => self.open_envelope(ring, descriptor, area),
            Op::Output => self.output(ring, descriptor, area),
            Op::Promote => self.promote(ring, descriptor, area),
            Op::Declassify => self.declassify(ring, descriptor, area),
            Op::Classify => self.classify(ring, descriptor, area),
            Op::Test => self.test(ring, descriptor, third_argument),
            Op::TestMany => self.test_many(ring, descriptor, area),
            Op::Compare => self.compare(ring, descriptor),
            Op::CompareKeyed => self.compare_keyed(ring, descriptor),
            Op::CompareMany => self.compare_many(ring, descriptor, area),
            Op::Token => self.token(ring, descriptor),
            Op::TokenMany => self.token_many(ring, descriptor, area),
            Op::RankMany => self.rank_many(ring, descriptor, area),
            Op::Program => self.keep_program(ring, descriptor, area),
            Op::RunProgram => self.run_program(ring, descriptor, area),
            Op::Groups => return self.groups(ring, descriptor, area),
            Op::Final => self.finish(ring, descriptor),
            Op::Partition => return self.partition(ring, descriptor, area),
            Op::Drop => return self.drop_partition(ring, descriptor, area),
            Op::ReassignPartition => return self.reassign_partition(ring, descriptor, area),
            Op::CountPartitions => Ok(self.sources.store.partitions_of(descriptor.a)),
            Op::NextDatabase => return Ok(self.next_database(descriptor)),
            Op::NextRetired => return self.next_retired(descriptor),
            Op::Position => return self.position(ring, descriptor.flags),
            Op::ServerGeneration => self.set_server_generation(descriptor),
            Op::Replay | Op::Replayed | Op::Checkpoint => {
                return self.log(ring, op, descriptor, area);
            }
            Op::MarkBegin | Op::Mark | Op::Sweep | Op::Free => {
                return self.reclaim(ring, op, descriptor, area);
            }
            Op::Attest => return self.attest(ring, descriptor, area),
            Op::Message => self.message(ring, descriptor, area),
            Op::Status => self.status(descriptor, area),
            Op::Record => self.record(ring, descriptor, area),
            _ => Err(Fault::BadRequest),
        };
        value.map(Answer::of)
    }

    /// Ends a statement of a ring: adds its computations to the session's ledger, and wipes the
    /// scratch buffers and the ring's values. Those of a parallel worker remain until its leader's
    /// statement ends. `Fault::ForgedFid` for an unknown ring.
    fn end_statement(&mut self, ring: u16, descriptor: &Descriptor) -> Result<(), Fault> {
        self.count_computed(ring);
        let statement = u8::try_from(descriptor.n % 256).map_err(|_| Fault::BadRequest)?;
        self.scratch.wipe();
        self.sources
            .rings
            .end_statement(ring, statement, descriptor.a)
    }

    /// [`Op::ThirdArgument`]: keeps the third argument for the ring's next operation, because a
    /// descriptor has room for two. `Fault::ForgedFid` for an unknown ring.
    fn set_third_argument(&mut self, ring: u16, argument: u64) -> Result<(), Fault> {
        self.sources.rings.get_mut(ring)?.third_argument = Some(argument);
        Ok(())
    }

    /// The session that the ring uses. `None` if it has none, or the session is closed.
    fn session<'a>(channel: &'a mut Channel, ring: &Ring) -> Option<&'a mut Session> {
        let id = ring.session()?;
        channel.session(&id)
    }

    /// Adds the computations that the ring has asked for since the last call to its session's
    /// ledger.
    fn count_computed(&mut self, ring: u16) {
        if let Ok(ring) = self.sources.rings.get_mut(ring) {
            let count = core::mem::take(&mut ring.computed);
            if let Some(session) = Self::session(&mut self.channel, ring) {
                session.ledger().count_computed(count);
            }
        }
    }
}

/// A count of work that one thread does, and others read.
#[derive(Clone, Debug, Default)]
pub struct WorkCount(Arc<AtomicU64>);

impl WorkCount {
    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises it. Called by the one thread that does the work.
    pub(crate) fn add(&self, count: u64) {
        self.0
            .store(self.get().wrapping_add(count), Ordering::Relaxed);
    }
}

impl ErrorReporter {
    /// Passes an error on to the function of `on_store_error`, unless the last one that it got had
    /// the same code less than 10 seconds ago.
    fn report(&mut self, error: &Error) {
        let number = error.code().number;
        let known = |(last, at): (u16, Instant)| last == number && at.elapsed() < REPORT_PAUSE;
        if !self.last.is_some_and(known) {
            (self.tell)(error);
            self.last = Some((number, Instant::now()));
        }
    }
}

impl Zone {
    /// Forgets column keys that no open session names and no column is bound to: otherwise a client
    /// that opens sessions could fill the memory for keys.
    fn forget_keys(&mut self) {
        let (channel, store) = (&self.channel, &self.sources.store);
        self.keys.retain(|id| {
            let mut sessions = channel.sessions();
            sessions.any(|session| session.ticket().keys.contains(id)) || store.is_bound(*id)
        });
    }
}

impl Handler for Zone {
    /// Opens a ring for a backend that has connected, and returns its number. `None`, which refuses
    /// the backend, if its user id is not one that the zone serves, or all numbers are taken.
    fn ring_opened(&mut self, peer: &Peer) -> Option<u16> {
        if !self.users.contains(&peer.uid) {
            return None;
        }
        self.sources.open()
    }

    /// Closes a ring: ends its session, its record and a pending attestation, and forgets keys that
    /// nothing needs any more.
    fn ring_closed(&mut self, arena: u16) {
        self.reader = self.reader.filter(|reader| *reader != arena);
        self.count_computed(arena);
        self.recorder.end(arena);
        self.channel.forget_pending(arena);
        self.attesting.remove(&arena);
        self.evidence.forget(arena);
        if let Some(session) = self.sources.close(arena) {
            self.channel.end(&session);
            self.forget_keys();
        }
    }

    /// Runs an operation and returns its answer. If this ring is recorded, records input and
    /// answer; then answers with `Fault::NotRecorded` what cannot be recorded or could not be
    /// written. `Fault::BadRequest` for an unknown operation.
    fn execute(&mut self, arena: u16, descriptor: &Descriptor, area: &Area) -> Answer {
        let Some(op) = Op::from_number(descriptor.op) else {
            return Answer::fault(Fault::BadRequest);
        };
        if self.recorder.forbids(arena, op) {
            return Answer::fault(Fault::NotRecorded);
        }
        let input = self.recorder.input(arena, op, descriptor, area);
        let answer = self.dispatch(arena, op, descriptor, area);
        self.sources.store.go_on();
        if let Some(input) = input {
            self.recorder
                .append(arena, (op, descriptor), input, &answer, area);
        }
        if !op.is_posted() && self.recorder.has_failed(arena) {
            return Answer::fault(Fault::NotRecorded);
        }
        answer
    }

    /// Overwrites the scratch buffers, and this thread's stack below here, on which values may be
    /// left.
    fn idle(&mut self) {
        self.scratch.wipe();
        // Values may be left on the stack by operations that have returned.
        strongroom_crypto::wipe_stack();
    }
}

/// Whether the backend asks for the operation's answers ahead of need, by its flag `AHEAD`.
const fn is_ahead(op: Op, descriptor: &Descriptor) -> bool {
    let known = matches!(
        op,
        Op::CompareMany | Op::TestMany | Op::TokenMany | Op::RunProgram
    );
    known && descriptor.flags & strongroom_columns_ring::op::flag::AHEAD != 0
}

/// The kind of value in the low byte of the flags. `Fault::BadRequest` for an unknown number.
fn kind_of(descriptor: &Descriptor) -> Result<strongroom_format::columns::Kind, Fault> {
    let [low, _] = (descriptor.flags & KIND_BITS).to_le_bytes();
    strongroom_format::columns::Kind::from_number(low).ok_or(Fault::BadRequest)
}

/// The aggregate whose number is the descriptor's `n`. `Fault::BadRequest` for an unknown one.
fn aggregate_of(descriptor: &Descriptor) -> Result<Aggregate, Fault> {
    let number = u16::try_from(descriptor.n).map_err(|_| Fault::BadRequest)?;
    Aggregate::from_number(number).ok_or(Fault::BadRequest)
}

/// The descriptor's `b` as an offset in the data area, unchecked. `Fault::BadRequest` if it does
/// not fit in a `usize`.
fn offset_of(descriptor: &Descriptor) -> Result<usize, Fault> {
    usize::try_from(descriptor.b).map_err(|_| Fault::BadRequest)
}

/// Offset in the data area of the answers of an operation that does not overwrite its arguments:
/// half the area after these. `Fault::BadRequest` on overflow.
fn answers_of(descriptor: &Descriptor) -> Result<usize, Fault> {
    let offset = offset_of(descriptor)?.checked_add(strongroom_columns_ring::ANSWER_HALF);
    offset.ok_or(Fault::BadRequest)
}

/// Replaces `words` by the `n` words of 8 bytes in the data area that the descriptor names.
/// `Fault::BadRequest` if they do not lie in the area.
fn copy_words(area: &Area, descriptor: &Descriptor, words: &mut Vec<u64>) -> Result<(), Fault> {
    let count = usize::try_from(descriptor.n).map_err(|_| Fault::BadRequest)?;
    if count > strongroom_columns_ring::AREA_SIZE / 8 {
        return Err(Fault::BadRequest);
    }
    words.clear();
    words.resize(count, 0);
    area.read_words(offset_of(descriptor)?, words)
        .ok_or(Fault::BadRequest)
}

/// Replaces `bytes` by the `len` bytes in the data area from the descriptor's offset.
/// `Fault::BadRequest` if they do not lie in the area.
fn copy_bytes(
    area: &Area,
    descriptor: &Descriptor,
    len: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), Fault> {
    if len > strongroom_columns_ring::AREA_SIZE {
        return Err(Fault::BadRequest);
    }
    bytes.clear();
    bytes.resize(len, 0);
    area.read(offset_of(descriptor)?, bytes)
        .ok_or(Fault::BadRequest)
}

/// The descriptor's `n` as a length in bytes. `Fault::BadRequest` if it does not fit in a `usize`.
fn len_of(descriptor: &Descriptor) -> Result<usize, Fault> {
    usize::try_from(descriptor.n).map_err(|_| Fault::BadRequest)
}
