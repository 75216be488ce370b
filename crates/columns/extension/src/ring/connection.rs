//! One connection to the zone: the operations, and the data area that carries their arguments and
//! answers.
//!
//! The data area has a half for arguments and a half for answers. The end of each half belongs to
//! batches of rows (`batches.rs`) and to prefetched questions ([`Prefetched`]); the start of the
//! answers' half also holds envelopes of posted operations until the zone has read them. Invariant:
//! no part is written while a posted operation may still read it. Must not: raise an ERROR, except
//! for an interrupt during a wait.

use std::cell::Cell;

use pgrx::pg_sys;
use strongroom_columns_ring::op::{MORE, flag};
use strongroom_columns_ring::{
    ANSWER_HALF, AREA_SIZE, Answer, Broken, Descriptor, Fault, Host, Interrupted, Op,
};
use strongroom_format::columns::{Fid, Kind};

use crate::interrupts::check_while_waiting;
use crate::ring::batches::{BATCH_OFFSET, Batches};
use crate::settings;

/// Bytes at the end of each half of the data area that prefetched questions use.
pub(crate) const PREFETCH_SIZE: usize = 1 << 17;
pub(super) const PREFETCH_OFFSET: usize = ANSWER_HALF - PREFETCH_SIZE;
/// The longest envelope that is opened without waiting for the zone, in bytes.
const POSTED_ENVELOPE_MAX: usize = 1 << 15;

thread_local! {
    /// Number of connections made so far: what was learned over an earlier one is void.
    static LATEST: Cell<u32> = const { Cell::new(0) };
}

/// The number of this backend's latest connection; 0 before the first.
pub(crate) fn latest_number() -> u32 {
    LATEST.get()
}

/// A connection, and what was done over it since the end of the last statement.
pub(crate) struct Connection {
    pub(super) host: Host,
    /// Operations were posted whose faults nothing has asked for.
    unconfirmed: bool,
    /// The statement has ephemerals.
    has_ephemerals: bool,
    /// The time zone that the zone knows.
    time_zone: *mut pg_sys::pg_tz,
    /// The parallel group that this session leads: its arena, and the group's secret.
    group: Option<(u16, u64)>,
    /// The zone was seen alive since the end of the last statement.
    seen_alive: bool,
    /// Name of the record that the zone makes.
    record_name: Vec<u8>,
    /// Bytes of the answers' half that posted operations may still read envelopes from.
    envelope_bytes: usize,
    /// The last prefetched operation that may still use its part of the data area.
    last_prefetch: Option<u32>,
    /// How often a long argument or answer has overwritten prefetched answers.
    pub(super) overwritten: u32,
    pub(super) batches: Batches,
}

/// A prefetched question: an operation whose answers are read later.
#[derive(Clone, Copy)]
pub(crate) struct Prefetched {
    operation: u32,
    offset: usize,
    overwritten: u32,
    connection: u32,
}

impl Connection {
    /// A connection over the backend's end of a new ring. It gets the next number.
    pub(super) fn new(host: Host) -> Self {
        LATEST.set(LATEST.get().wrapping_add(1));
        Self {
            host,
            unconfirmed: false,
            has_ephemerals: false,
            time_zone: std::ptr::null_mut(),
            group: None,
            seen_alive: true,
            record_name: Vec::new(),
            envelope_bytes: 0,
            last_prefetch: None,
            overwritten: 0,
            batches: Batches::default(),
        }
    }

    /// The random number of the zone's start that this connection is to.
    pub(crate) const fn incarnation(&self) -> [u8; 16] {
        *self.host.incarnation()
    }

    /// Whether operations were posted whose faults no call has reported since.
    pub(super) const fn has_unconfirmed(&self) -> bool {
        self.unconfirmed
    }

    /// The number of the leader's ring (its arena) and the secret of the parallel group that this
    /// session leads. `None` if it leads none.
    pub(super) const fn group(&self) -> Option<(u16, u64)> {
        self.group
    }

    /// Whether the zone lives; the kernel is asked once for each statement.
    pub(super) fn is_alive(&mut self) -> bool {
        self.seen_alive = self.seen_alive || self.host.is_alive();
        self.seen_alive
    }

    /// Has the zone execute an operation, and waits for the answer; handles interrupts meanwhile,
    /// so it may unwind.
    ///
    /// # Errors
    ///
    /// `Fault` if it failed; `Earlier` for the fault of a posted operation, and then it was not
    /// executed; `Lost` if the zone is gone; `Interrupted` at the end of a transaction.
    pub(crate) fn call(&mut self, descriptor: Descriptor) -> Result<Answer, Broken> {
        self.finish_due_batches()?;
        let answer = self.host.call(descriptor, check_while_waiting);
        if matches!(answer, Ok(_) | Err(Broken::Fault(_) | Broken::Earlier(_))) {
            // There was no earlier fault, or it is the one that is reported now.
            let apart = Op::from_number(descriptor.op).is_some_and(Op::is_independent);
            self.unconfirmed = self.unconfirmed && apart;
            // Every operation before this one is done.
            self.envelope_bytes = 0;
        }
        answer
    }

    /// Posts an operation, without waiting for it. A later call reports its fault. Waits only if
    /// the ring is full; `Lost` if the zone is gone, `Interrupted` at the end of a transaction.
    pub(crate) fn post(&mut self, descriptor: Descriptor) -> Result<(), Broken> {
        self.finish_due_batches()?;
        self.host.post(descriptor, check_while_waiting)?;
        self.unconfirmed = true;
        Ok(())
    }

    /// A new identifier for a result of this statement, at whose end it becomes void. Sends
    /// nothing. `ArenaFull` if the statement has used all.
    pub(crate) fn new_identifier(&mut self) -> Result<u64, Broken> {
        self.has_ephemerals = true;
        self.host.fresh().map(Fid::bits)
    }

    /// Posts the end of the statement to the zone, without waiting, if it has identifiers.
    /// `Interrupted` if the ring is full: to be called again then. `Lost` if the zone is gone.
    pub(super) fn end_statement(&mut self) -> Result<(), Broken> {
        self.seen_alive = false;
        self.batches.forget_answers();
        if self.has_ephemerals {
            self.host.end_statement(|| Err(Interrupted))?;
            self.has_ephemerals = false;
            self.unconfirmed = false;
        }
        Ok(())
    }

    /// Joins the parallel group of the session whose ring has this number (its arena), with the
    /// group's secret, and waits for the answer. Fails as [`Self::call`] does; the fault is
    /// `NotAllowed` for a wrong secret.
    pub(super) fn join_group(&mut self, arena: u16, secret: u64) -> Result<(), Broken> {
        self.call(Descriptor {
            a: u64::from(arena),
            b: secret,
            ..Descriptor::of(Op::Join)
        })?;
        Ok(())
    }

    /// Makes this session the leader of a parallel group, if it is none yet; returns the number of
    /// its ring (its arena) and the group's secret. Waits for the zone, and fails as
    /// [`Self::call`] does.
    pub(super) fn lead_group(&mut self) -> Result<(u16, u64), Broken> {
        if let Some(group) = self.group {
            return Ok(group);
        }
        let secret = self.call(Descriptor::of(Op::Lead))?.value;
        let group = (self.host.arena(), secret);
        self.group = Some(group);
        Ok(group)
    }

    /// Sends the session's time zone, if it has changed, and waits for the answer. Fails as
    /// [`Self::call`] does; the fault is `TimeZoneUnknown` for one that the zone does not know.
    pub(crate) fn send_time_zone(&mut self) -> Result<(), Broken> {
        // SAFETY: reads a pointer; PostgreSQL keeps one structure for each time zone, for ever.
        let now = unsafe { pg_sys::session_timezone };
        if now == self.time_zone {
            return Ok(());
        }
        // SAFETY: the structure has a name that ends with a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(pg_sys::pg_get_timezone_name(now)) };
        let n = self.write(0, name.to_bytes())?;
        self.call(Descriptor {
            n,
            ..Descriptor::of(Op::TimeZone)
        })?;
        self.time_zone = now;
        Ok(())
    }

    /// If the setting `strongroom.record` has changed, tells the zone under which name to record
    /// this backend's requests for a replay, or with an empty name to stop, and waits for the
    /// answer. Fails as [`Self::call`] does; the fault is `NotRecorded` if the zone makes no
    /// records, or the name is not valid or in use.
    pub(super) fn send_record_name(&mut self) -> Result<(), Broken> {
        let name = settings::record_name();
        if name.is_empty() && self.record_name.is_empty() || name == self.record_name {
            return Ok(());
        }
        let n = self.write(0, name)?;
        self.call(Descriptor {
            n,
            ..Descriptor::of(Op::Record)
        })?;
        self.record_name = name.to_vec();
        self.batches.forget_abilities();
        Ok(())
    }

    /// Has the zone open an envelope; returns the identifier of its value. A literal lives as long
    /// as the connection, other values until the statement is over. A short one that is no literal
    /// is posted, so that a later call reports its fault; otherwise waits, and fails as
    /// [`Self::call`] does.
    pub(crate) fn open_envelope(
        &mut self,
        kind: Kind,
        envelope: &[u8],
        literal: bool,
    ) -> Result<u64, Broken> {
        if !literal && envelope.len() <= POSTED_ENVELOPE_MAX {
            return self.post_envelope(kind, envelope);
        }
        let n = self.write(0, envelope)?;
        let (r, flags) = if literal {
            (self.host.fresh_literal()?.bits(), flag::LITERAL)
        } else {
            (self.new_identifier()?, 0)
        };
        let answer = self.call(Descriptor {
            flags: flags | u16::from(kind.number()),
            n,
            r,
            ..Descriptor::of(Op::OpenEnvelope)
        })?;
        Ok(answer.value)
    }

    /// Has the zone open an envelope without waiting for it, because rows that are copied in have
    /// one in each column; returns the identifier of its value. Waits only if the data area is
    /// full. Returns the fault of an operation posted before, `StringTooLong`, or `Lost` if the
    /// zone is gone.
    fn post_envelope(&mut self, kind: Kind, envelope: &[u8]) -> Result<u64, Broken> {
        let size = envelope.len().next_multiple_of(8);
        if self.envelope_bytes.saturating_add(size) > BATCH_OFFSET {
            self.call(Descriptor::of(Op::Sync))?;
        }
        let offset = ANSWER_HALF + self.envelope_bytes;
        let too_long = Broken::Fault(Fault::StringTooLong);
        let area = self.host.area(check_while_waiting)?;
        area.write(offset, envelope).ok_or(too_long)?;
        let r = self.new_identifier()?;
        self.post(Descriptor {
            flags: u16::from(kind.number()),
            n: u32::try_from(envelope.len()).map_err(|_| too_long)?,
            b: offset as u64,
            r,
            ..Descriptor::of(Op::PostEnvelope)
        })?;
        self.envelope_bytes += size;
        Ok(r)
    }

    /// Sends a question without waiting for its answers. `words` are written to `offset` within the
    /// part of the data area for prefetched questions, and the answers to the same offset within
    /// the part for their answers. `BadRequest` if they do not fit, `Lost` if the zone is gone,
    /// `Interrupted` at the end of a transaction.
    pub(crate) fn prefetch(
        &mut self,
        descriptor: Descriptor,
        offset: usize,
        words: &[u64],
    ) -> Result<Prefetched, Broken> {
        self.finish_due_batches()?;
        let at = PREFETCH_OFFSET + offset;
        let area = self.host.area(check_while_waiting)?;
        area.write_words(at, words)
            .ok_or(Broken::Fault(Fault::BadRequest))?;
        let descriptor = Descriptor {
            b: at as u64,
            flags: descriptor.flags | flag::AHEAD,
            ..descriptor
        };
        let operation = self.host.submit(descriptor, check_while_waiting)?;
        self.last_prefetch = Some(operation);
        Ok(Prefetched {
            operation,
            offset,
            overwritten: self.overwritten,
            connection: latest_number(),
        })
    }

    /// Waits for the answers to a prefetched question, and returns a copy of them: `len` bytes.
    /// Handles interrupts meanwhile, so it may unwind. `None` if the operation failed, if its
    /// answers were overwritten since, or if the session has another connection by now.
    ///
    /// # Errors
    ///
    /// `Lost` if the zone is gone, `Interrupted` at the end of a transaction, `BadRequest` if `len`
    /// bytes reach beyond the data area.
    pub(crate) fn prefetched_answers(
        &mut self,
        question: Prefetched,
        len: usize,
    ) -> Result<Option<Vec<u8>>, Broken> {
        if question.connection != latest_number() || question.overwritten != self.overwritten {
            return Ok(None);
        }
        let answer = self.host.answer(question.operation, check_while_waiting)?;
        if answer.is_none_or(|answer| answer.failure().is_some()) {
            return Ok(None);
        }
        let at = ANSWER_HALF + PREFETCH_OFFSET + question.offset;
        self.copy(at, len).map(Some)
    }

    /// Waits until no prefetched operation uses its part of the data area; handles interrupts
    /// meanwhile. `Lost` if the zone is gone, `Interrupted` at the end of a transaction.
    pub(crate) fn finish_prefetches(&mut self) -> Result<(), Broken> {
        if let Some(operation) = self.last_prefetch {
            self.host.answer(operation, check_while_waiting)?;
            self.last_prefetch = None;
        }
        Ok(())
    }

    /// Waits until no posted or prefetched operation uses the data area up to `end`, which is about
    /// to be written. May report the fault of a posted operation. `Lost` if the zone is gone,
    /// `Interrupted` at the end of a transaction.
    pub(super) fn wait_until_writable(&mut self, end: usize) -> Result<(), Broken> {
        if end > BATCH_OFFSET {
            self.finish_batches()?;
        }
        if end > PREFETCH_OFFSET {
            self.finish_prefetches()?;
        }
        if self.envelope_bytes > 0 && end > ANSWER_HALF {
            self.call(Descriptor::of(Op::Sync))?;
        }
        Ok(())
    }

    /// Has the zone seal one value of this kind, as a result if it goes to the client, and waits;
    /// returns its envelope. Fails as [`Self::call`] does.
    pub(crate) fn seal(
        &mut self,
        kind: Kind,
        fid: u64,
        to_client: bool,
    ) -> Result<Vec<u8>, Broken> {
        let flags = u16::from(kind.number()) | result_flag(to_client);
        let one = self.seal_all(flags, &[fid])?.pop();
        one.ok_or(Broken::Fault(Fault::BadRequest))
    }

    /// Has the zone seal values of any kinds, as results if they go to the client, and waits;
    /// returns their envelopes in this order, or none at all if they do not fit into one answer.
    /// Fails as [`Self::call`] does.
    pub(crate) fn seal_many(
        &mut self,
        fids: &[u64],
        to_client: bool,
    ) -> Result<Vec<Vec<u8>>, Broken> {
        self.seal_all(result_flag(to_client), fids)
    }

    /// Has the zone seal values, all of the kind in `flags` if it has one, and waits; returns their
    /// envelopes in this order, or none at all if they do not fit into one answer. Fails as
    /// [`Self::call`] does.
    fn seal_all(&mut self, flags: u16, fids: &[u64]) -> Result<Vec<Vec<u8>>, Broken> {
        self.write_words(0, fids)?;
        let answer = self.call(Descriptor {
            flags,
            n: u32::try_from(fids.len()).unwrap_or(u32::MAX),
            ..Descriptor::of(Op::Output)
        })?;
        let bytes = self.read(0, usize::try_from(answer.value).unwrap_or(usize::MAX))?;
        let mut rest = bytes.as_slice();
        let mut envelopes = Vec::with_capacity(fids.len());
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
            let cut = after.split_at_checked(len);
            let (envelope, after) = cut.ok_or(Broken::Fault(Fault::BadRequest))?;
            envelopes.push(envelope.to_vec());
            rest = after;
        }
        Ok(envelopes)
    }

    /// Has the zone give a value in clear, and waits; returns its binary form. Fails as
    /// [`Self::call`] does; the fault is `NotAllowed` without the right.
    pub(crate) fn declassify(&mut self, kind: Kind, fid: u64) -> Result<Vec<u8>, Broken> {
        let answer = self.call(Descriptor {
            flags: u16::from(kind.number()),
            a: fid,
            ..Descriptor::of(Op::Declassify)
        })?;
        self.read(0, usize::try_from(answer.value).unwrap_or(usize::MAX))
    }

    /// Gives the zone a value in clear, in its binary form, and waits; returns its identifier.
    /// Fails as [`Self::call`] does; the fault is `NotAllowed` without the right.
    pub(crate) fn classify(&mut self, kind: Kind, bytes: &[u8]) -> Result<u64, Broken> {
        let n = self.write(0, bytes)?;
        let r = self.new_identifier()?;
        let answer = self.call(Descriptor {
            flags: u16::from(kind.number()),
            n,
            r,
            ..Descriptor::of(Op::Classify)
        })?;
        Ok(answer.value)
    }

    /// Sends bytes as the argument of an operation, waits, and returns the bytes of its answer.
    /// `None` if the operation has not ended, and is to be called again. `StringTooLong` for more
    /// than 1 MiB; else fails as [`Self::call`]: with the zone's fault or an earlier one, `Lost`,
    /// or `Interrupted`.
    pub(crate) fn exchange(&mut self, op: Op, bytes: &[u8]) -> Result<Option<Vec<u8>>, Broken> {
        let n = self.write(0, bytes)?;
        let answer = self.call(Descriptor {
            n,
            ..Descriptor::of(op)
        })?;
        if answer.aux & MORE != 0 {
            return Ok(None);
        }
        self.read(0, usize::try_from(answer.value).unwrap_or(usize::MAX))
            .map(Some)
    }

    /// Writes bytes into the data area, after what is still using it; returns their number.
    /// `StringTooLong` if they do not fit, else as [`Self::call`] while it waits: `Lost` if the
    /// zone is gone, `Earlier` for the fault of a posted operation.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<u32, Broken> {
        let too_long = Broken::Fault(Fault::StringTooLong);
        let n = u32::try_from(bytes.len()).map_err(|_| too_long)?;
        self.wait_until_writable(offset.saturating_add(bytes.len()))?;
        self.host
            .area(check_while_waiting)?
            .write(offset, bytes)
            .ok_or(too_long)?;
        Ok(n)
    }

    /// Writes words into the data area, after what is still using it. `BadRequest` if they do not
    /// fit, else as [`Self::call`] while it waits: `Lost` if the zone is gone, `Earlier` for the
    /// fault of a posted operation.
    pub(crate) fn write_words(&mut self, offset: usize, words: &[u64]) -> Result<(), Broken> {
        self.wait_until_writable(offset.saturating_add(words.len().saturating_mul(8)))?;
        let area = self.host.area(check_while_waiting)?;
        area.write_words(offset, words)
            .ok_or(Broken::Fault(Fault::BadRequest))
    }

    /// Copies words of an answer out of the data area. `BadRequest` if they do not lie in it,
    /// `Lost` if the zone is gone.
    pub(crate) fn read_words(&mut self, offset: usize, words: &mut [u64]) -> Result<(), Broken> {
        self.note_answer(offset, words.len().saturating_mul(8));
        let area = self.host.area(check_while_waiting)?;
        area.read_words(offset, words)
            .ok_or(Broken::Fault(Fault::BadRequest))
    }

    /// Copies `len` bytes of an answer, which begins at `offset` of the data area. `BadRequest` if
    /// not all of these bytes are in the area, `Lost` if the zone is gone.
    pub(crate) fn read(&mut self, offset: usize, len: usize) -> Result<Vec<u8>, Broken> {
        self.note_answer(offset, len);
        self.copy(offset, len)
    }

    /// Notes that an answer in this range may have overwritten prefetched questions or their
    /// answers.
    const fn note_answer(&mut self, offset: usize, len: usize) {
        let end = offset.saturating_add(len);
        let over_questions = offset < ANSWER_HALF && end > BATCH_OFFSET;
        if over_questions || end > ANSWER_HALF + BATCH_OFFSET {
            self.overwritten = self.overwritten.wrapping_add(1);
        }
    }

    /// Copies bytes out of the data area. `BadRequest` if they do not lie in it, `Lost` if the zone
    /// is gone.
    pub(super) fn copy(&mut self, offset: usize, len: usize) -> Result<Vec<u8>, Broken> {
        let bad = Broken::Fault(Fault::BadRequest);
        if len > AREA_SIZE {
            return Err(bad);
        }
        let mut bytes = vec![0; len];
        self.host
            .area(check_while_waiting)?
            .read(offset, &mut bytes)
            .ok_or(bad)?;
        Ok(bytes)
    }
}

/// The flag of an operation that seals values, whose envelopes are results if they go to the
/// client.
const fn result_flag(to_client: bool) -> u16 {
    if to_client { flag::RESULT } else { 0 }
}
