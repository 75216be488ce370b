//! The backend's end of a ring.
//!
//! Made for a PostgreSQL extension: nothing here panics, starts a thread or, once connected,
//! allocates. Every wait calls the caller's `check` before each sleep and after it, at least every
//! 100 ms, and ends with [`Broken::Interrupted`] when that says so, and with [`Broken::Lost`] when
//! the zone is gone. `check` may also unwind: the ring stays usable.
//!
//! Posted operations are published together: when 32 have gathered, when one is called, at
//! [`Host::flush`], and at once for those that end something. The order is kept whatever happens
//! (R1).
//!
//! Must not: know PostgreSQL, or what a value means.

use core::fmt;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::fence;
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use strongroom_format::columns::Fid;

use crate::doorbell::{self, AdaptiveWait, Doorbell, SLEEP_MAX};
use crate::memory::Mapping;
use crate::ring::{Answer, Area, Descriptor, ENTRIES, FIRST, Ring};
use crate::socket;
use crate::{Fault, Op};

/// Posted operations that are published together.
const GATHER: u32 = 32;
/// The slot after which the numbering of ephemeral slots begins again.
const SLOTS_MAX: u64 = 1 << 38;

/// The caller's `check` wants the wait to end: a statement was cancelled, the server shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// Why an operation has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The caller's `check` ended the wait. The operation may still be executed; the ring stays
    /// usable.
    Interrupted,
    /// The zone is gone, or has closed this ring. A new [`Host`] is needed; identifiers of this
    /// arena are void.
    Lost,
    /// The zone's answer is a fault.
    Fault(Fault),
    /// The zone has not executed it: an operation posted before has failed, and that was not
    /// reported yet (R2). A caller that would try another way after a fault has to raise this one:
    /// it is not reported again.
    Earlier(Fault),
}

impl Broken {
    /// The SQLSTATE to report, five characters.
    #[must_use]
    pub const fn sqlstate(self) -> &'static str {
        match self {
            Self::Interrupted => "57014",
            Self::Lost => "08006",
            Self::Fault(fault) | Self::Earlier(fault) => fault.sqlstate(),
        }
    }

    /// The message to report, in English.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Interrupted => "canceling statement due to user request",
            Self::Lost => {
                "the connection to the zone is lost; the next statement connects anew (SR-8003)"
            }
            Self::Fault(fault) | Self::Earlier(fault) => fault.message(),
        }
    }
}

impl From<Interrupted> for Broken {
    fn from(Interrupted: Interrupted) -> Self {
        Self::Interrupted
    }
}

impl fmt::Display for Broken {
    /// Writes the message of [`Self::message`], without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for Broken {}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// The caller's `check` ended the wait.
    Interrupted,
    /// The zone did not answer within the time allowed.
    TimedOut,
    /// The zone is of another version of Strongroom, and speaks this version of the ring.
    OtherVersion(u32),
    /// The zone refused, or the kernel did.
    Refused(io::Error),
}

impl fmt::Display for ConnectError {
    /// Writes the message for the user: the statement was cancelled, SR-8019 for a zone of another
    /// version, otherwise SR-8003 and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("canceling statement due to user request"),
            Self::TimedOut => f.write_str("the zone does not answer (SR-8003)"),
            Self::OtherVersion(zone) => write!(
                f,
                "the zone speaks version {zone} of the ring, this server's extension version {}: \
                 use the zone and the extension of one version of Strongroom (SR-8019)",
                socket::VERSION
            ),
            Self::Refused(error) => write!(f, "the zone cannot be reached (SR-8003): {error}"),
        }
    }
}

impl core::error::Error for ConnectError {}

impl From<io::Error> for ConnectError {
    /// The zone or the kernel refused the connection.
    fn from(error: io::Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Interrupted> for ConnectError {
    fn from(Interrupted: Interrupted) -> Self {
        Self::Interrupted
    }
}

/// One backend's connection to the zone.
pub struct Host {
    ring: Mapping<Ring>,
    bell: Mapping<Doorbell>,
    socket: OwnedFd,
    incarnation: [u8; 16],
    arena: u16,
    /// Number of the next descriptor.
    next: u32,
    /// Descriptors before this are published.
    published: u32,
    /// Descriptors before this are known to be executed.
    done: u32,
    /// A wait for an answer was interrupted: the zone may still use the data area.
    abandoned: bool,
    lost: bool,
    wait: AdaptiveWait,
    statement: u8,
    slot: u64,
    literal: u64,
}

impl Host {
    /// Connects to the zone that listens at `path`, waits for its welcome and maps the ring and the
    /// doorbell. Calls `check` before each wait.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: `check` ended the wait, the zone did not answer within `limit`, is of
    /// another version, or it or the kernel refused.
    pub fn connect(
        path: &Path,
        limit: Duration,
        mut check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<Self, ConnectError> {
        let start = Instant::now();
        let mut pause = || -> Result<(), ConnectError> {
            check()?;
            if start.elapsed() >= limit {
                return Err(ConnectError::TimedOut);
            }
            Ok(())
        };
        let socket = loop {
            if let Some(socket) = socket::connect(path)? {
                break socket;
            }
            pause()?;
            std::thread::sleep(Duration::from_millis(5));
        };
        let (welcome, ring, bell) = loop {
            if let Some(received) = socket::receive_welcome(&socket)? {
                break received;
            }
            pause()?;
            let left = limit.saturating_sub(start.elapsed());
            socket::wait_readable(&socket, left.min(SLEEP_MAX));
        };
        Ok(Self {
            ring: Mapping::open(&ring)?,
            bell: Mapping::open(&bell)?,
            socket,
            incarnation: welcome.incarnation,
            arena: welcome.arena,
            next: FIRST,
            published: FIRST,
            done: FIRST,
            abandoned: false,
            lost: false,
            wait: AdaptiveWait::new(),
            statement: 0,
            slot: 0,
            literal: 0,
        })
    }

    /// The random number of the zone's start that this ring is connected to: values of statements
    /// of another start are void.
    #[must_use]
    pub const fn incarnation(&self) -> &[u8; 16] {
        &self.incarnation
    }

    /// Returns the number of this backend's arena: of the memory in the zone that holds the values
    /// of its statements. No other open ring has the same.
    #[must_use]
    pub const fn arena(&self) -> u16 {
        self.arena
    }

    /// Number of the current statement, modulo 256.
    #[must_use]
    pub const fn statement(&self) -> u8 {
        self.statement
    }

    /// Whether an earlier call has found the zone gone. Makes no system call.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Asks the kernel whether the zone lives and this ring is open; false is remembered: the ring
    /// counts as lost from then on. [`Self::is_lost`] makes no system call.
    pub fn is_alive(&mut self) -> bool {
        self.lost = self.lost || self.is_over();
        !self.lost
    }

    /// A new identifier for a result of the current statement. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Broken::Fault`] with [`Fault::ArenaFull`] if the slots are used up (2^38).
    pub fn fresh(&mut self) -> Result<Fid, Broken> {
        let fid = Fid::ephemeral(self.arena, self.statement, self.slot);
        let fid = fid.ok_or(Broken::Fault(Fault::ArenaFull))?;
        self.slot += 1;
        Ok(fid)
    }

    /// Returns a new identifier for a literal, for operations with [`crate::op::flag::LITERAL`],
    /// and counts it as used. If the zone answers with another identifier, this one stays unused.
    /// Sends nothing.
    ///
    /// # Errors
    /// [`Broken::Fault`] with [`Fault::ArenaFull`] if the connection has used all its identifiers
    /// for literals. The connection remains usable.
    pub fn fresh_literal(&mut self) -> Result<Fid, Broken> {
        let fid = Fid::literal(self.arena, self.literal);
        let fid = fid.ok_or(Broken::Fault(Fault::ArenaFull))?;
        self.literal += 1;
        Ok(fid)
    }

    /// Posts the end of the statement: its values become void in the zone; those of the next
    /// statement have other identifiers. Waits only if the ring is full.
    ///
    /// # Errors
    ///
    /// [`Broken::Interrupted`], [`Broken::Lost`]: the zone does not know of the end then, and the
    /// call may be repeated.
    pub fn end_statement(
        &mut self,
        check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<(), Broken> {
        let statement = self.statement.wrapping_add(1);
        // Slots go on counting from statement to statement, so that an identifier of an earlier
        // statement is found to be stale even after the statements' numbers have come round.
        let slot = if self.slot < SLOTS_MAX { self.slot } else { 0 };
        let end = Descriptor {
            n: u32::from(statement),
            a: slot,
            ..Descriptor::of(Op::StatementEnd)
        };
        self.post(end, check)?;
        self.statement = statement;
        self.slot = slot;
        Ok(())
    }

    /// The data area, as soon as the zone no longer uses it: at once, unless an earlier call was
    /// interrupted, for which this waits.
    ///
    /// # Errors
    ///
    /// [`Broken::Interrupted`] if `check` ends the wait, [`Broken::Lost`] if the zone is gone.
    pub fn area(
        &mut self,
        check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<&Area, Broken> {
        if self.abandoned {
            self.publish();
            self.wait(self.next, check)?;
            self.abandoned = false;
        }
        Ok(self.ring.area())
    }

    /// Posts an operation: returns as soon as it is in the ring. Publishes it to the zone at once
    /// if it ends something, otherwise when 32 have gathered. Waits only if the ring is full.
    ///
    /// # Errors
    ///
    /// [`Broken::Interrupted`], [`Broken::Lost`]: then it is not in the ring.
    pub fn post(
        &mut self,
        descriptor: Descriptor,
        check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<(), Broken> {
        self.put(&descriptor, check)?;
        let op = Op::from_number(descriptor.op);
        let ends = matches!(op, Some(Op::StatementEnd | Op::Inserted | Op::Prefetch));
        if ends || self.next.wrapping_sub(self.published) >= GATHER {
            self.publish();
        }
        Ok(())
    }

    /// Publishes the posted operations to the zone, and wakes it if needed. Does not wait for them.
    pub fn flush(&mut self) {
        if self.published != self.next {
            self.publish();
        }
    }

    /// Has the zone execute an operation, after all that were posted before, and waits for the
    /// answer.
    ///
    /// # Errors
    ///
    /// [`Broken`]: after `Interrupted` the operation may still be executed; `Lost` if the zone is
    /// gone; `Fault` if it failed; `Earlier` if it was not executed because a posted one had
    /// failed.
    pub fn call(
        &mut self,
        descriptor: Descriptor,
        mut check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<Answer, Broken> {
        self.put(&descriptor, &mut check)?;
        // Before the wait: `check` may unwind out of it.
        self.abandoned = true;
        self.publish();
        self.wait(self.next, check)?;
        self.abandoned = false;
        let answer = self.ring.read_answer(self.next.wrapping_sub(1));
        match answer.failure() {
            None => Ok(answer),
            Some(fault) if answer.is_earlier() => Err(Broken::Earlier(fault)),
            Some(fault) => Err(Broken::Fault(fault)),
        }
    }

    /// Submits a called operation without waiting for it; returns its number, for [`Self::answer`].
    /// Until then the caller must not touch the parts of the data area that the operation uses.
    /// Waits only if the ring is full.
    ///
    /// # Errors
    ///
    /// [`Broken::Interrupted`], [`Broken::Lost`]: then it is not in the ring.
    pub fn submit(
        &mut self,
        descriptor: Descriptor,
        check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<u32, Broken> {
        self.put(&descriptor, check)?;
        self.publish();
        Ok(self.next.wrapping_sub(1))
    }

    /// Waits for the answer to a submitted operation, and returns it, a fault included. `None` if
    /// its entry in the ring was used again.
    ///
    /// # Errors
    ///
    /// [`Broken::Interrupted`] if `check` ends the wait, [`Broken::Lost`] if the zone is gone.
    pub fn answer(
        &mut self,
        number: u32,
        check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<Option<Answer>, Broken> {
        if self.lost {
            return Err(Broken::Lost);
        }
        if self.next.wrapping_sub(number) > ENTRIES {
            return Ok(None);
        }
        self.wait(number.wrapping_add(1), check)?;
        Ok(Some(self.ring.read_answer(number)))
    }

    /// Writes a descriptor into the ring, unpublished. If the ring is full, publishes what is in it
    /// and waits until a quarter is free. `Broken::Lost` or `Interrupted`: it is not in the ring.
    fn put(
        &mut self,
        descriptor: &Descriptor,
        check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<(), Broken> {
        if self.lost {
            return Err(Broken::Lost);
        }
        if self.next.wrapping_sub(self.done) >= ENTRIES {
            self.publish();
            // Until a quarter is free: so the two sides do not hand over single places.
            self.wait(self.next.wrapping_sub(ENTRIES - ENTRIES / 4), check)?;
        }
        self.ring.put(self.next, descriptor);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Makes all descriptors in the ring visible to the zone, and wakes it if it has parked this
    /// ring.
    fn publish(&mut self) {
        self.ring.publish_tail(self.next);
        self.published = self.next;
        fence(SeqCst);
        let parked = &self.ring.header.parked.0;
        if parked.load(SeqCst) != 0 && parked.swap(0, SeqCst) != 0 {
            self.bell.ring();
        }
    }

    /// Waits until all descriptors before `target` are done: polls, then sleeps, and calls `check`
    /// around each sleep. `Broken::Interrupted` if `check` says so, `Broken::Lost` if the zone is
    /// gone.
    fn wait(
        &mut self,
        target: u32,
        mut check: impl FnMut() -> Result<(), Interrupted>,
    ) -> Result<(), Broken> {
        let mut round = 0;
        while !self.is_done(target)? && self.wait.pause(round) {
            round += 1;
        }
        if self.is_done(target)? {
            return Ok(());
        }
        loop {
            check()?;
            if self.sleep(target)? {
                return Ok(());
            }
            check()?;
            if self.is_over() && !self.is_done(target)? {
                self.lost = true;
                return Err(Broken::Lost);
            }
        }
    }

    /// Sleeps once, for 100 ms at most, unless `target` is reached or the ring closed before.
    /// Returns whether `target` is reached. `Broken::Lost` for a count that no zone can have
    /// written.
    fn sleep(&mut self, target: u32) -> Result<bool, Broken> {
        let header = &self.ring.header;
        header.waiting.0.store(1, SeqCst);
        fence(SeqCst);
        let seen = header.done.0.load(SeqCst);
        if !reached(seen, target) && header.closed.0.load(SeqCst) == 0 {
            self.wait
                .sleep(|| doorbell::wait(&header.done.0, seen, Some(SLEEP_MAX)));
        }
        header.waiting.0.store(0, SeqCst);
        self.is_done(target)
    }

    /// Whether the zone has closed the ring, or has ended. Asks the kernel.
    fn is_over(&self) -> bool {
        self.ring.header.closed.0.load(SeqCst) != 0 || socket::is_over(&self.socket)
    }

    /// Whether the zone has executed all descriptors before `target`. `Broken::Lost` for a count
    /// that no zone can have written; the ring counts as lost from then on.
    fn is_done(&mut self, target: u32) -> Result<bool, Broken> {
        let done = self.ring.done();
        // The zone never executes more than was published: such a number was not written by a zone.
        if self.next.wrapping_sub(done) > ENTRIES {
            self.lost = true;
            return Err(Broken::Lost);
        }
        self.done = done;
        Ok(reached(done, target))
    }
}

/// Whether the count `done` is `target` or later, modulo 2^32.
const fn reached(done: u32, target: u32) -> bool {
    done.wrapping_sub(target) <= ENTRIES
}
