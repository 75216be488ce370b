//! This backend's connection to the zone.
//!
//! Invariants: one connection at a time, made when it is first needed; after the zone was lost the statement under way ends with an
//! error, and the next statement connects anew (R5) with all plans made again, because their literals are of the old arena. Every wait asks for
//! interrupts (X5). Callbacks of a transaction's end never wait and never raise. Must not: be entered while it is entered.

mod owed;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, AREA_SIZE, Answer, Broken, Descriptor};
use strongroom_columns_ring::{Fault, Host, Interrupted, Op};
use strongroom_format::columns::{Fid, Kind};

use crate::{fault, life, settings, statement};
pub(crate) use owed::{forget_owed, part_begins, part_failed, settle};

/// How long the end of a transaction waits for the zone.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How long the zone may take to answer a new connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Bytes at the end of the arguments' half of the data area, and of the answers' half, that what is asked ahead uses.
pub(crate) const OUTLOOK_SIZE: usize = 1 << 17;
const OUTLOOK: usize = ANSWER_HALF - OUTLOOK_SIZE;
/// The longest envelope that is opened without waiting for it.
const PARCEL_MAX: usize = 1 << 15;

/// The connection, and what was done on it since the last statement's end.
pub(crate) struct Link {
    host: Host,
    /// Something was posted whose fault nobody has asked for yet.
    posted: bool,
    /// The statement has ephemerals.
    used: bool,
    /// The time zone that the zone was told.
    time_zone: *mut pg_sys::pg_tz,
    /// The parallel group that this session leads: its arena, and the group's secret.
    group: Option<(u16, u64)>,
    /// The zone was found alive since the last statement's end.
    verified: bool,
    /// Name of the record that the zone makes.
    record: Vec<u8>,
    /// Bytes of the data area's upper half that posted operations may still read.
    parcels: usize,
    /// The last operation that uses the part of the data area for what is asked ahead.
    outlook: Option<u32>,
    /// How often a long answer has overwritten what was answered there.
    overwritten: u32,
}

/// What was asked ahead.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    number: u32,
    offset: usize,
    overwritten: u32,
    connection: u32,
}

thread_local! {
    static LINK: RefCell<Option<Link>> = const { RefCell::new(None) };
    /// A connection was lost in the statement under way.
    static LOST: Cell<bool> = const { Cell::new(false) };
    /// Number of connections made so far: what was learned of an earlier one is void.
    static CONNECTIONS: Cell<u32> = const { Cell::new(0) };
    /// A transaction ends: how long it may be waited for the zone.
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Asks for interrupts, as `CHECK_FOR_INTERRUPTS` does. May unwind; the ring stays usable. At a transaction's end it does not, and
/// lets the wait go on for a while only.
pub(crate) fn check() -> Result<(), Interrupted> {
    if let Some(until) = UNTIL.get() {
        return if Instant::now() < until {
            Ok(())
        } else {
            Err(Interrupted)
        };
    }
    // SAFETY: reads a flag that a signal handler sets.
    if unsafe { (&raw const pg_sys::InterruptPending).read_volatile() } != 0 {
        // SAFETY: called where an ERROR may be raised.
        unsafe { pg_sys::ProcessInterrupts() };
    }
    Ok(())
}

/// Number of the connection.
pub(crate) fn connection() -> u32 {
    CONNECTIONS.get()
}

/// Does something with the zone. What fails is raised.
pub(crate) fn with<R>(work: impl FnOnce(&mut Link) -> Result<R, Broken>) -> R {
    owed::pay();
    let done = LINK.with(|cell| {
        let Ok(mut slot) = cell.try_borrow_mut() else {
            fault::internal("the connection to the zone is in use");
        };
        if statement::is_over() && slot.as_mut().is_some_and(|link| !link.is_alive()) {
            // Between statements nobody holds an identifier of the lost arena: the next statement need not fail.
            *slot = None;
            LOST.set(true);
        }
        if slot.is_none() {
            *slot = Some(connect());
        }
        let result = slot.as_mut().map_or(Err(Broken::Lost), |link| {
            link.tell_record()?;
            work(link)
        });
        if result.as_ref().is_err_and(|broken| *broken == Broken::Lost) {
            *slot = None;
            LOST.set(true);
        }
        result
    });
    done.unwrap_or_else(|broken| fault::broken(broken))
}

/// As [`with`], over this connection only: with a zone that was started meanwhile it is an error.
pub(crate) fn with_same<R>(
    connection: u32,
    work: impl FnOnce(&mut Link) -> Result<R, Broken>,
) -> R {
    with(|link| {
        if CONNECTIONS.get() == connection {
            work(link)
        } else {
            Err(Broken::Lost)
        }
    })
}

/// Does something with the zone if there is a connection that is not in use; neither waits nor raises.
fn quietly(work: impl FnOnce(&mut Link) -> Result<(), Broken>) {
    LINK.with(|cell| {
        if let Ok(mut slot) = cell.try_borrow_mut()
            && let Some(link) = slot.as_mut()
            && work(link) == Err(Broken::Lost)
        {
            *slot = None;
            LOST.set(true);
        }
    });
}

/// Tells the zone something at a transaction's end. It never raises and waits for a while only; what the zone does not hear of stays
/// as garbage.
pub(crate) fn at_end(work: impl FnOnce(&mut Link) -> Result<(), Broken>) {
    ending(|| quietly(work));
}

/// Does everything that a transaction's end has for the zone under one limit of time: interrupts are held meanwhile.
pub(crate) fn ending(work: impl FnOnce()) {
    let outermost = UNTIL.get().is_none();
    if outermost {
        UNTIL.set(Instant::now().checked_add(END_LIMIT));
    }
    work();
    if outermost {
        UNTIL.set(None);
    }
}

/// Whether there is a connection, or one can be made. Says nothing when there is none to be had.
pub(crate) fn is_there() -> bool {
    let there = LINK.with(|cell| cell.try_borrow().is_ok_and(|slot| slot.is_some()));
    there || attempt()
}

/// Makes a connection, if one is to be had.
fn attempt() -> bool {
    let made = settings::zone().map(|path| Host::connect(&path, CONNECT_LIMIT, check));
    let Some(Ok(mut host)) = made else {
        return false;
    };
    if life::tell(&mut host).is_err() {
        return false;
    }
    LINK.with(|cell| {
        let Ok(mut slot) = cell.try_borrow_mut() else {
            return false;
        };
        *slot = Some(Link::new(host));
        true
    })
}

/// Makes a connection before a transaction commits whose end the zone has to hear of. Only warns when there is none to be had.
pub(crate) fn reach() {
    let there = LINK.with(|cell| cell.try_borrow().map_or(true, |slot| slot.is_some()));
    if there || LOST.get() {
        return;
    }
    if !attempt() {
        fault::Report::new(
            "01000",
            "the zone cannot be reached: values of dropped tables stay in it as garbage",
        )
        .warn();
    }
}

fn connect() -> Link {
    if statement::is_over() {
        forget_loss();
    }
    if LOST.get() {
        // Identifiers of the lost arena may still be in this statement's hands, and the new arena may have its number.
        fault::broken(Broken::Lost);
    }
    let Some(path) = settings::zone() else {
        fault::Report::new("55000", "no zone is configured for confidential columns")
            .hint("Set strongroom.zone to the path of the zone's socket.")
            .raise()
    };
    let mut host = match Host::connect(&path, CONNECT_LIMIT, check) {
        Ok(host) => host,
        Err(error) => fault::unconnected(&error),
    };
    if let Err(broken) = life::tell(&mut host) {
        fault::broken(broken);
    }
    let mut link = Link::new(host);
    // SAFETY: reads the number of this worker.
    if unsafe { pg_sys::ParallelWorkerNumber } >= 0
        && let Some((arena, secret)) = settings::group()
        && let Err(broken) = link.join(arena, secret)
    {
        fault::broken(broken);
    }
    link
}

/// The statement in which a connection was lost is over: has every plan made again when it is next used, because literals in plans are
/// identifiers of the arena that was lost.
pub(crate) fn forget_loss() {
    if LOST.get() {
        // SAFETY: marks plans, and neither reads a catalog nor allocates.
        unsafe { pg_sys::ResetPlanCache() };
        LOST.set(false);
    }
}

/// Ends the statement, so that the zone frees its ephemerals. Neither waits nor raises: what cannot be told now is told
/// at the next end.
pub(crate) fn end_statement() {
    quietly(|link| {
        link.verified = false;
        if link.used {
            link.host.end_statement(|| Err(Interrupted))?;
            link.used = false;
            link.posted = false;
        }
        Ok(())
    });
}

/// Makes this session the leader of a parallel group, if it has a connection. Before the workers are started.
///
/// The setting is compared each time: a transaction that aborts takes it back, and so does RESET ALL.
pub(crate) fn lead() {
    let wanted = LINK.with(|cell| {
        let slot = cell.try_borrow();
        slot.map_or(None, |slot| slot.as_ref().map(|link| link.group))
    });
    let known = settings::group();
    match wanted {
        Some(group) if group.is_some() && group == known => {}
        Some(_) => {
            let group = with(Link::lead);
            settings::set_group(Some(group));
        }
        None if known.is_some() => settings::set_group(None),
        None => {}
    }
}

impl Link {
    fn new(host: Host) -> Self {
        CONNECTIONS.set(CONNECTIONS.get().wrapping_add(1));
        Self {
            host,
            posted: false,
            used: false,
            time_zone: std::ptr::null_mut(),
            group: None,
            verified: true,
            record: Vec::new(),
            parcels: 0,
            outlook: None,
            overwritten: 0,
        }
    }

    /// The zone's incarnation.
    pub(crate) const fn incarnation(&self) -> [u8; 16] {
        *self.host.incarnation()
    }

    /// Whether the zone lives; asked once for each statement.
    fn is_alive(&mut self) -> bool {
        self.verified = self.verified || self.host.is_alive();
        self.verified
    }

    /// Has an operation carried out and waits for it.
    pub(crate) fn call(&mut self, descriptor: Descriptor) -> Result<Answer, Broken> {
        let answer = self.host.call(descriptor, check);
        if matches!(answer, Ok(_) | Err(Broken::Fault(_) | Broken::Earlier(_))) {
            // Either there was no fault, or it is the one reported now.
            let apart = Op::from_number(descriptor.op).is_some_and(Op::is_apart);
            self.posted = self.posted && apart;
            // Everything before it is done.
            self.parcels = 0;
        }
        answer
    }

    /// Posts an operation.
    pub(crate) fn post(&mut self, descriptor: Descriptor) -> Result<(), Broken> {
        self.host.post(descriptor, check)?;
        self.posted = true;
        Ok(())
    }

    /// A new identifier of this statement.
    pub(crate) fn fresh(&mut self) -> Result<u64, Broken> {
        self.used = true;
        self.host.fresh().map(Fid::bits)
    }

    fn join(&mut self, arena: u16, secret: u64) -> Result<(), Broken> {
        self.call(Descriptor {
            a: u64::from(arena),
            b: secret,
            ..Descriptor::of(Op::Join)
        })?;
        Ok(())
    }

    fn lead(&mut self) -> Result<(u16, u64), Broken> {
        if let Some(group) = self.group {
            return Ok(group);
        }
        let secret = self.call(Descriptor::of(Op::Lead))?.value;
        let group = (self.host.arena(), secret);
        self.group = Some(group);
        Ok(group)
    }

    /// Tells the zone the session's time zone, unless it knows.
    pub(crate) fn tell_time_zone(&mut self) -> Result<(), Broken> {
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

    /// Tells the zone what record to make, unless it knows.
    fn tell_record(&mut self) -> Result<(), Broken> {
        let name = settings::record();
        if name.is_empty() && self.record.is_empty() || name == self.record {
            return Ok(());
        }
        let n = self.write(0, name)?;
        self.call(Descriptor {
            n,
            ..Descriptor::of(Op::Record)
        })?;
        self.record = name.to_vec();
        Ok(())
    }

    /// Opens an envelope: the identifier of its value.
    pub(crate) fn intake(
        &mut self,
        kind: Kind,
        envelope: &[u8],
        literal: bool,
    ) -> Result<u64, Broken> {
        if !literal && envelope.len() <= PARCEL_MAX {
            return self.accept(kind, envelope);
        }
        let n = self.write(0, envelope)?;
        let (r, flags) = if literal {
            (self.host.fresh_literal()?.bits(), flag::LITERAL)
        } else {
            (self.fresh()?, 0)
        };
        let answer = self.call(Descriptor {
            flags: flags | u16::from(kind.number()),
            n,
            r,
            ..Descriptor::of(Op::OpenEnvelope)
        })?;
        Ok(answer.value)
    }

    /// Has an envelope opened, and does not wait for it: rows that are copied in have one in each column.
    fn accept(&mut self, kind: Kind, envelope: &[u8]) -> Result<u64, Broken> {
        let room = envelope.len().next_multiple_of(8);
        if self.parcels.saturating_add(room) > ANSWER_HALF - OUTLOOK_SIZE {
            self.call(Descriptor::of(Op::Sync))?;
        }
        let offset = ANSWER_HALF + self.parcels;
        let too_long = Broken::Fault(Fault::StringTooLong);
        let area = self.host.area(check)?;
        area.write(offset, envelope).ok_or(too_long)?;
        let r = self.fresh()?;
        self.post(Descriptor {
            flags: u16::from(kind.number()),
            n: u32::try_from(envelope.len()).map_err(|_| too_long)?,
            b: offset as u64,
            r,
            ..Descriptor::of(Op::PostEnvelope)
        })?;
        self.parcels += room;
        Ok(r)
    }

    /// Asks ahead, and does not wait: `words` go to `offset` of the part of the data area for it, and the answers to the same offset of the
    /// answers' part.
    pub(crate) fn ask(
        &mut self,
        descriptor: Descriptor,
        offset: usize,
        words: &[u64],
    ) -> Result<Asked, Broken> {
        let at = OUTLOOK + offset;
        let area = self.host.area(check)?;
        area.write_words(at, words)
            .ok_or(Broken::Fault(Fault::BadRequest))?;
        let descriptor = Descriptor {
            b: at as u64,
            flags: descriptor.flags | flag::AHEAD,
            ..descriptor
        };
        let number = self.host.submit(descriptor, check)?;
        self.outlook = Some(number);
        Ok(Asked {
            number,
            offset,
            overwritten: self.overwritten,
            connection: connection(),
        })
    }

    /// The answers to what was asked ahead: `len` bytes. `None` when it failed, was asked too long ago, or of another zone.
    pub(crate) fn answers(&mut self, asked: Asked, len: usize) -> Result<Option<Vec<u8>>, Broken> {
        if asked.connection != connection() || asked.overwritten != self.overwritten {
            return Ok(None);
        }
        let answer = self.host.answer(asked.number, check)?;
        if answer.is_none_or(|answer| answer.failure().is_some()) {
            return Ok(None);
        }
        let at = ANSWER_HALF + OUTLOOK + asked.offset;
        self.copy(at, len).map(Some)
    }

    /// Waits until nothing uses the part of the data area for asking ahead.
    pub(crate) fn clear_outlook(&mut self) -> Result<(), Broken> {
        if let Some(number) = self.outlook {
            self.host.answer(number, check)?;
            self.outlook = None;
        }
        Ok(())
    }

    /// Waits until nothing posted reads the data area where it is about to be written, up to `end`.
    fn clear_for(&mut self, end: usize) -> Result<(), Broken> {
        if end > OUTLOOK {
            self.clear_outlook()?;
        }
        if self.parcels > 0 && end > ANSWER_HALF {
            self.call(Descriptor::of(Op::Sync))?;
        }
        Ok(())
    }

    /// Seals one value: its envelope.
    pub(crate) fn output(&mut self, kind: Kind, fid: u64) -> Result<Vec<u8>, Broken> {
        let one = self.sealed(u16::from(kind.number()), &[fid])?.pop();
        one.ok_or(Broken::Fault(Fault::BadRequest))
    }

    /// Seals values of any kinds: their envelopes in order, none when they do not fit together.
    pub(crate) fn outputs(&mut self, fids: &[u64]) -> Result<Vec<Vec<u8>>, Broken> {
        self.sealed(0, fids)
    }

    fn sealed(&mut self, flags: u16, fids: &[u64]) -> Result<Vec<Vec<u8>>, Broken> {
        self.area_words(0, fids)?;
        let answer = self.call(Descriptor {
            flags,
            n: u32::try_from(fids.len()).unwrap_or(u32::MAX),
            ..Descriptor::of(Op::Output)
        })?;
        let bytes = self.read(0, usize::try_from(answer.value).unwrap_or(usize::MAX))?;
        let mut rest = bytes.as_slice();
        let mut envelopes = Vec::with_capacity(fids.len());
        while let Some((len, behind)) = rest.split_first_chunk::<4>() {
            let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
            let cut = behind.split_at_checked(len);
            let (envelope, behind) = cut.ok_or(Broken::Fault(Fault::BadRequest))?;
            envelopes.push(envelope.to_vec());
            rest = behind;
        }
        Ok(envelopes)
    }

    /// A value in clear: its binary form.
    pub(crate) fn declassify(&mut self, kind: Kind, fid: u64) -> Result<Vec<u8>, Broken> {
        let answer = self.call(Descriptor {
            flags: u16::from(kind.number()),
            a: fid,
            ..Descriptor::of(Op::Declassify)
        })?;
        self.read(0, usize::try_from(answer.value).unwrap_or(usize::MAX))
    }

    /// The identifier of a value that is given in clear, in its binary form.
    pub(crate) fn classify(&mut self, kind: Kind, bytes: &[u8]) -> Result<u64, Broken> {
        let n = self.write(0, bytes)?;
        let r = self.fresh()?;
        let answer = self.call(Descriptor {
            flags: u16::from(kind.number()),
            n,
            r,
            ..Descriptor::of(Op::Classify)
        })?;
        Ok(answer.value)
    }

    /// Sends bytes and gets the bytes that replace them.
    pub(crate) fn exchange(&mut self, op: Op, bytes: &[u8]) -> Result<Vec<u8>, Broken> {
        let n = self.write(0, bytes)?;
        let answer = self.call(Descriptor {
            n,
            ..Descriptor::of(op)
        })?;
        self.read(0, usize::try_from(answer.value).unwrap_or(usize::MAX))
    }

    /// Writes bytes into the data area; their number.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<u32, Broken> {
        let too_long = Broken::Fault(Fault::StringTooLong);
        let n = u32::try_from(bytes.len()).map_err(|_| too_long)?;
        self.clear_for(offset.saturating_add(bytes.len()))?;
        self.host
            .area(check)?
            .write(offset, bytes)
            .ok_or(too_long)?;
        Ok(n)
    }

    /// Writes words into the data area.
    pub(crate) fn area_words(&mut self, offset: usize, words: &[u64]) -> Result<(), Broken> {
        self.clear_for(offset.saturating_add(words.len().saturating_mul(8)))?;
        let area = self.host.area(check)?;
        area.write_words(offset, words)
            .ok_or(Broken::Fault(Fault::BadRequest))
    }

    /// Copies words out of the data area.
    pub(crate) fn read_words(&mut self, offset: usize, words: &mut [u64]) -> Result<(), Broken> {
        self.answered(offset, words.len().saturating_mul(8));
        let area = self.host.area(check)?;
        area.read_words(offset, words)
            .ok_or(Broken::Fault(Fault::BadRequest))
    }

    /// Copies bytes out of the data area.
    pub(crate) fn read(&mut self, offset: usize, len: usize) -> Result<Vec<u8>, Broken> {
        self.answered(offset, len);
        self.copy(offset, len)
    }

    /// Takes note of an answer that may have overwritten those to what was asked ahead.
    const fn answered(&mut self, offset: usize, len: usize) {
        let end = offset.saturating_add(len);
        let arguments = offset < ANSWER_HALF && end > OUTLOOK;
        if arguments || end > ANSWER_HALF + OUTLOOK {
            self.overwritten = self.overwritten.wrapping_add(1);
        }
    }

    fn copy(&mut self, offset: usize, len: usize) -> Result<Vec<u8>, Broken> {
        let bad = Broken::Fault(Fault::BadRequest);
        if len > AREA_SIZE {
            return Err(bad);
        }
        let mut bytes = vec![0; len];
        self.host.area(check)?.read(offset, &mut bytes).ok_or(bad)?;
        Ok(bytes)
    }
}
