//! The background worker that follows the write-ahead log for the zone.
//!
//! It holds a physical replication slot, so that the log with redo records that are in no
//! checkpoint of the zone's store is kept. When the zone has been started again, the worker replays
//! the log to it up to the end (L4). In normal operation it has the zone checkpoint its store, and
//! advances the slot to the checkpoint's position (L5). On a standby it replays as the standby
//! does. When anything fails, the worker ends with an error and PostgreSQL starts it again. Must
//! not: advance the slot before the zone's store is durable; open a database.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use pg_sys::XLogRecPtr;
use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::pg_sys;
use strongroom_columns_ring::op::{MORE, flag};
use strongroom_columns_ring::{AREA_SIZE, Broken, Descriptor, Fault, Op};
use strongroom_format::layout::array;

use crate::call::guarded;
use crate::ring::connection::{self, Connection};
use crate::ring::history::{self, Reached};
use crate::ring::standby::in_recovery;
use crate::ring::{log_end, shared_memory, zone};
use crate::storage::promotion;
use crate::{fault, settings};

/// Name of the replication slot.
const SLOT: &CStr = c"strongroom_columns";
/// How often the worker runs a step at least, unless a statement of a standby wakes it.
const STEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often it asks while a checkpoint is being made. The zone writes for a millisecond each time
/// before it serves others again.
const CHECKPOINT_STEP_INTERVAL: Duration = Duration::from_millis(4);

/// How often it says in the server's log how far it has read the log to a zone.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

unsafe extern "C-unwind" {
    /// Reads a page of the server's log, waiting for it if needed; returns its length.
    // src/backend/access/transam/xlogutils.c. pgrx wraps them in Rust functions, whose addresses
    // cannot be passed to the server; only the server calls these.
    fn read_local_xlog_page(
        state: *mut pg_sys::XLogReaderState,
        page: XLogRecPtr,
        length: c_int,
        target: XLogRecPtr,
        into: *mut c_char,
    ) -> c_int;
    /// Opens a file of the log for the reader.
    fn wal_segment_open(state: *mut pg_sys::XLogReaderState, segment: u64, timeline: *mut u32);
    /// Closes the reader's file.
    fn wal_segment_close(state: *mut pg_sys::XLogReaderState);
    /// The server's handler for SIGTERM: has the process end at the next check for interrupts.
    // src/backend/tcop/postgres.c.
    fn die(signal: c_int);
}

/// The resource manager of logical messages (access/rmgrlist.h).
const LOGICAL_MESSAGE: u8 = 21;

/// Registers the background worker, which the server starts when it is consistent, and again a
/// second after it has ended.
pub(crate) fn register() {
    BackgroundWorkerBuilder::new("strongroom columns")
        .set_function("strongroom_follower_main")
        .set_library("strongroom_columns")
        .enable_shmem_access(None)
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .set_restart_time(Some(Duration::from_secs(1)))
        .load();
}

/// The main function of the background worker: once a second at least, if the zone can be reached,
/// replays the log to it and has it checkpoint. Ends at SIGTERM; any error ends it too, and the
/// server starts it again.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strongroom_follower_main(_arg: pg_sys::Datum) {
    guarded(|| {
        // SAFETY: the server's own handler; every wait and every loop here checks for interrupts,
        // so that a fast shutdown ends this worker even if the zone does not answer.
        unsafe { pg_sys::pqsignal(pg_sys::SIGTERM.cast_signed(), Some(die)) };
        BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
        // What the reader allocates lives as long as the worker.
        // SAFETY: switches to a context that exists from the server's start.
        unsafe { pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext) };
        shared_memory::announce_follower();
        let mut follower: Option<Follower> = None;
        let interval = |follower: &Option<Follower>| {
            let is_asking = follower
                .as_ref()
                .is_some_and(|follower| follower.checkpoint.going_on.is_some());
            if is_asking {
                CHECKPOINT_STEP_INTERVAL
            } else {
                let due = settings::checkpoint_interval();
                due.clamp(CHECKPOINT_STEP_INTERVAL, STEP_INTERVAL)
            }
        };
        while BackgroundWorker::wait_latch(Some(interval(&follower))) {
            pgrx::check_for_interrupts!();
            if BackgroundWorker::sighup_received() {
                // SAFETY: as every process of the server reads its settings again.
                unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            }
            if settings::zone_socket().is_some() && zone::is_reachable() {
                let follower = follower.get_or_insert_with(Follower::new);
                if !follower.go_on_with_checkpoint() {
                    follower.step();
                }
            }
        }
    });
}

/// The state of the worker.
struct Follower {
    reader: *mut pg_sys::XLogReaderState,
    /// The zone has every record before this position.
    replayed_to: XLogRecPtr,
    checkpoint: Checkpoint,
    /// Number of the connection to the zone.
    connection: u32,
    /// The timeline of whose history the store at that connection is known to be.
    checked: Option<u32>,
    /// Number of messages with this library's prefix in the log that the zone did not seal.
    foreign: u64,
}

/// The last checkpoint of the zone's store.
struct Checkpoint {
    /// `None` before the first one that this worker has asked for.
    at: Option<Instant>,
    position: XLogRecPtr,
    /// Position and timeline of one that is being made.
    going_on: Option<(XLogRecPtr, u32)>,
}

impl Follower {
    /// A reader of the log; acquires the replication slot that keeps the log, or creates it. Raises
    /// an ERROR if no memory is left, or the slot cannot be had.
    fn new() -> Self {
        let mut routine = pg_sys::XLogReaderRoutine {
            page_read: Some(read_local_xlog_page),
            segment_open: Some(wal_segment_open),
            segment_close: Some(wal_segment_close),
        };
        // SAFETY: the routine is copied.
        let reader = unsafe {
            pg_sys::XLogReaderAllocate(
                pg_sys::wal_segment_size,
                std::ptr::null(),
                &raw mut routine,
                std::ptr::null_mut(),
            )
        };
        if reader.is_null() {
            fault::Report::new("53200", "out of memory for reading the log").raise();
        }
        acquire_slot();
        Self {
            reader,
            replayed_to: 0,
            checkpoint: Checkpoint {
                at: None,
                position: 0,
                going_on: None,
            },
            connection: 0,
            checked: None,
            foreign: 0,
        }
    }

    /// Replays to the zone what it lacks, tells it the end of the log if it is recovering, and has
    /// it checkpoint its store if that is due. Raises an ERROR if the zone's store is of a later
    /// log or another history, is new although the server has had another one, or has served a
    /// primary while this is a standby.
    fn step(&mut self) {
        let (position, state) = zone::with(|connection| {
            let answer = connection.call(Descriptor::of(Op::Position))?;
            Ok((answer.value, answer.aux))
        });
        let standby = in_recovery();
        let recovering = state & 1 != 0;
        // A zone that followed a primary's log has to be told its end when this server is promoted.
        let needed = recovering || (!standby && state & 2 != 0);
        let is_new = connection::latest_number() != self.connection;
        if is_new {
            if position == 0 {
                // SAFETY: this worker holds the slot (see `advance_slot`).
                let had_one = unsafe { (*pg_sys::MyReplicationSlot).data.confirmed_flush != 0 };
                history::refuse_unless_first(standby, had_one);
            }
            self.checked = None;
            self.connection = connection::latest_number();
            shared_memory::note_followed(0);
            // Before the end of the log is determined (L4).
            shared_memory::admit_only(self.with(|connection| Ok(connection.incarnation())));
            self.replayed_to = if needed || standby {
                replay_start(position)
            } else {
                0
            };
        }
        let (end, timeline) = log_end::readable(standby);
        if standby && state & 3 == 0 {
            fault::Report::new(
                "55000",
                "the zone has served a primary, and this server follows one now (SR-8030)",
            )
            .hint("Start the zone anew: it reads the log from its last checkpoint.")
            .raise();
        }
        let store = Reached {
            position,
            timeline: state >> 2,
        };
        let server = Reached {
            position: end,
            timeline,
        };
        if !self.is_at_store(store, server, standby, is_new) {
            return;
        }
        if needed || standby {
            self.replay(end);
        }
        if needed {
            let a = self.replayed_to;
            self.with(|connection| {
                connection.call(Descriptor {
                    n: timeline,
                    a,
                    flags: if standby { flag::FOLLOWS } else { 0 },
                    ..Descriptor::of(Op::Replayed)
                })
            });
            // The end of recovery was a checkpoint.
            if !standby {
                self.checkpoint = Checkpoint {
                    at: Some(Instant::now()),
                    position: a,
                    going_on: None,
                };
            }
        }
        if standby {
            shared_memory::note_followed(self.replayed_to);
        }
        // On a primary the zone has had every value before the log had its record.
        self.checkpoint(if standby { self.replayed_to } else { end }, timeline);
    }

    /// Whether the server's log has reached the store's position; once for each connection and
    /// timeline, that the store is of the server's history, with what it holds behind its position.
    /// False on a standby that has yet to replay again what it had replayed before it was killed:
    /// it is consistent before that. Raises an ERROR for a store of another history, and on a
    /// primary for one of a later log.
    fn is_at_store(
        &mut self,
        store: Reached,
        server: Reached,
        standby: bool,
        is_new: bool,
    ) -> bool {
        let is_before = self.replayed_to.max(store.position) > server.position;
        if is_before && !standby {
            fault::Report::new(
                "55000",
                "the zone's store is of a later log than this server's (SR-8030)",
            )
            .hint("Restore the zone's store of a time not later than this server's.")
            .raise();
        }
        if is_before {
            history::check_to_come(store, server);
            history::check_to_come(reached(), server);
            if is_new {
                let text = "waiting until this standby has replayed what the zone's store has";
                fault::Report::new("00000", text).log();
            }
            return false;
        }
        if self.checked != Some(server.timeline) {
            history::check(store, server);
            if standby {
                history::check_to_come(reached(), server);
            } else {
                history::check(reached(), server);
            }
            self.checked = Some(server.timeline);
        }
        true
    }

    /// Runs `work` over the connection to the zone that the log was replayed to, and returns its
    /// result. Raises an ERROR if it fails, or there is another connection by now.
    fn with<R>(&self, work: impl FnOnce(&mut Connection) -> Result<R, Broken>) -> R {
        zone::with_connection(self.connection, work)
    }

    /// Sends the zone every redo record of the log from `replayed_to` to `end`, and moves
    /// `replayed_to` there. Raises an ERROR if the log cannot be read or the zone fails.
    fn replay(&mut self, end: XLogRecPtr) {
        if self.replayed_to >= end {
            return;
        }
        let (reader, from) = (self.reader, self.replayed_to);
        // SAFETY: a position inside the log: the reader searches the first record that begins there
        // or later.
        let first = unsafe { pg_sys::XLogFindNextRecord(reader, from) };
        if first == 0 {
            // SAFETY: the reader's buffer for messages.
            raise_unreadable(unsafe { (*reader).errormsg_buf });
        }
        if first >= end {
            self.replayed_to = end;
            return;
        }
        // SAFETY: the reader found a record there.
        unsafe { pg_sys::XLogBeginRead(reader, first) };
        let mut told = Instant::now();
        loop {
            // SAFETY: the reader's own position.
            let at = unsafe { (*reader).EndRecPtr };
            if at >= end {
                break;
            }
            let mut message = std::ptr::null_mut();
            // SAFETY: the log is there up to `end`; it does not wait for more.
            let record = unsafe { pg_sys::XLogReadRecord(reader, &raw mut message) };
            if record.is_null() {
                raise_unreadable(message);
            }
            pgrx::check_for_interrupts!();
            if told.elapsed() >= PROGRESS_INTERVAL {
                told = Instant::now();
                let left = end.saturating_sub(at) >> 20;
                let text = format!("reading the log to the zone: {left} MiB are left");
                fault::Report::new("00000", &text).log();
            }
            // SAFETY: the reader has just read a record.
            if let Some(record) = unsafe { redo_record(reader) } {
                // SAFETY: as above.
                let a = unsafe { (*reader).ReadRecPtr };
                self.send(&record, a);
            }
        }
        self.replayed_to = end;
    }

    /// Sends the zone one redo record, which is at position `a` of the log. The first one that the
    /// zone did not seal is reported as a WARNING; all such are ignored.
    ///
    /// Every role that may call `pg_logical_emit_message` can put messages with this prefix into
    /// the log. If it was a record of the zone's that was changed, the zone finds at the next
    /// record of its chain that one is missing (L2).
    fn send(&mut self, record: &[u8], a: XLogRecPtr) {
        let accepted = record.len() <= AREA_SIZE
            && self.with(|connection| {
                let n = connection.write(0, record)?;
                match connection.call(Descriptor {
                    n,
                    a,
                    ..Descriptor::of(Op::Replay)
                }) {
                    Err(Broken::Fault(Fault::BadRecord)) => Ok(false),
                    answer => answer.map(|_| true),
                }
            });
        if !accepted {
            self.foreign += 1;
            if self.foreign == 1 {
                fault::Report::new(
                    "01000",
                    "the log has a message named strongroom that the zone \
                     did not write; it is passed over",
                )
                .hint("See pg_waldump --rmgr=LogicalMessage. Further ones are not reported.")
                .warn();
            }
        }
    }

    /// Has the zone checkpoint its store at `position`: for the first time, and then if the log has
    /// grown and `strongroom.checkpoint_interval` or `strongroom.checkpoint_distance` has passed.
    /// Raises an ERROR if another process has told the zone that it reads the log: this worker
    /// connects anew then, and tries again.
    fn checkpoint(&mut self, position: XLogRecPtr, timeline: u32) {
        if self.checkpoint.going_on.is_some() {
            return;
        }
        let grown = position.saturating_sub(self.checkpoint.position);
        let recently = |at: Instant| at.elapsed() < settings::checkpoint_interval();
        let is_far = settings::checkpoint_distance().is_some_and(|distance| grown >= distance);
        if grown == 0 || (self.checkpoint.at.is_some_and(recently) && !is_far) {
            return;
        }
        self.ask_for_checkpoint(position, timeline);
    }

    /// Goes on with a checkpoint that is being made. Returns whether there is one, and the worker
    /// has nothing else to do meanwhile: a standby's worker goes on replaying.
    fn go_on_with_checkpoint(&mut self) -> bool {
        let Some((position, timeline)) = self.checkpoint.going_on else {
            return false;
        };
        self.ask_for_checkpoint(position, timeline);
        !in_recovery()
    }

    /// Asks the zone for a checkpoint, and again until it has ended. Then advances the slot, which
    /// releases the log before the checkpoint.
    fn ask_for_checkpoint(&mut self, position: XLogRecPtr, timeline: u32) {
        let answer = self.with(|connection| {
            connection.call(Descriptor {
                n: timeline,
                a: position,
                ..Descriptor::of(Op::Checkpoint)
            })
        });
        if answer.aux & MORE != 0 {
            self.checkpoint.going_on = Some((position, timeline));
            return;
        }
        advance_slot(answer.value);
        self.checkpoint = Checkpoint {
            at: Some(Instant::now()),
            position: answer.value,
            going_on: None,
        };
    }
}

/// Up to where the log has what the zone's store may hold: checkpoints that the store needs for
/// itself keep an earlier position. Raises an ERROR if the zone cannot be asked.
fn reached() -> Reached {
    let asked = Descriptor {
        flags: flag::REACHED,
        ..Descriptor::of(Op::Position)
    };
    let answer = zone::with(|connection| connection.call(asked));
    Reached {
        position: answer.value,
        timeline: answer.aux >> 2,
    }
}

/// Raises the ERROR for a log that cannot be read, with the reader's own message if there is one.
fn raise_unreadable(message: *const c_char) -> ! {
    let report = fault::Report::new("58P01", "the log that the zone needs cannot be read");
    if message.is_null() {
        report.raise();
    }
    // SAFETY: the reader's own message: positions and segments, no contents.
    let detail = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    report.detail(&detail).raise()
}

/// Where replay begins: at the position of the zone's store, or for a new store (0) where the slot
/// keeps the log from.
fn replay_start(position: XLogRecPtr) -> XLogRecPtr {
    if position != 0 {
        return position;
    }
    // SAFETY: this worker holds the slot.
    unsafe { (*pg_sys::MyReplicationSlot).data.restart_lsn }
}

/// Acquires the replication slot for this process, and creates it durably first if there is none.
/// Raises an ERROR if it is in use, or has lost its log.
fn acquire_slot() {
    // SAFETY: the server's own functions for slots; this process has its place in shared memory.
    unsafe {
        pg_sys::CheckSlotRequirements();
        if pg_sys::SearchNamedReplicationSlot(SLOT.as_ptr(), true).is_null() {
            let persistent = pg_sys::ReplicationSlotPersistency::RS_PERSISTENT;
            pg_sys::ReplicationSlotCreate(SLOT.as_ptr(), false, persistent, false);
            pg_sys::ReplicationSlotReserveWal();
            pg_sys::ReplicationSlotMarkDirty();
            pg_sys::ReplicationSlotSave();
        } else {
            pg_sys::ReplicationSlotAcquire(SLOT.as_ptr(), false);
        }
        if (*pg_sys::MyReplicationSlot).data.restart_lsn == 0 {
            fault::Report::new(
                "55000",
                "the replication slot of strongroom_columns has lost its log",
            )
            .hint(
                "Bring the log since the zone's last checkpoint back into pg_wal, from the \
                 archive, and drop the slot: it is made again, and read from there. Values that \
                 the zone had not made durable are missing otherwise. See max_slot_wal_keep_size.",
            )
            .raise();
        }
    }
}

/// Advances the slot to this position and makes it durable, so that the server may remove the log
/// before. Never moves it back. Notes the position as the confirmed one too, which PostgreSQL uses
/// of logical slots only: a slot that has one has served a zone's store.
fn advance_slot(position: XLogRecPtr) {
    // SAFETY: this worker holds the slot.
    let slot = unsafe { pg_sys::MyReplicationSlot };
    // SAFETY: as above.
    if position <= unsafe { (*slot).data.restart_lsn } {
        return;
    }
    // SAFETY: the slot's lock is one byte that `xchg` takes and a store gives back
    // (storage/s_lock.h, x86-64), held for one store.
    unsafe {
        let lock = AtomicU8::from_ptr(&raw mut (*slot).mutex);
        while lock.swap(1, Ordering::Acquire) != 0 {
            std::hint::spin_loop();
        }
        (*slot).data.restart_lsn = position;
        (*slot).data.confirmed_flush = position;
        lock.store(0, Ordering::Release);
        pg_sys::ReplicationSlotMarkDirty();
        // The slot is made durable before the log in front of it may be removed.
        pg_sys::ReplicationSlotSave();
        pg_sys::ReplicationSlotsComputeRequiredLSN();
    }
}

/// Layout of a logical message in the log (replication/message.h, `xl_logical_message`).
mod message {
    use strongroom_format::layout::Field;

    pub(super) const PREFIX_SIZE: Field = Field {
        name: "PREFIX_SIZE",
        offset: 8,
        len: 8,
    };
    pub(super) const SIZE: Field = Field {
        name: "SIZE",
        offset: 16,
        len: 8,
    };
    pub(super) const HEAD: usize = 24;
}

/// The redo record in the log record that the reader has just read. `None` if that is something
/// else than a message with this library's prefix.
///
/// # Safety
///
/// The reader has just read a record.
unsafe fn redo_record(reader: *mut pg_sys::XLogReaderState) -> Option<Vec<u8>> {
    // SAFETY: the caller's promise.
    let data = unsafe {
        let record = (*reader).record;
        if (*record).header.xl_rmid != LOGICAL_MESSAGE || (*record).main_data.is_null() {
            return None;
        }
        let length = usize::try_from((*record).main_data_len).ok()?;
        std::slice::from_raw_parts((*record).main_data.cast::<u8>(), length)
    };
    let prefix = usize::try_from(u64::from_le_bytes(array(data, message::PREFIX_SIZE)?)).ok()?;
    let size = usize::try_from(u64::from_le_bytes(array(data, message::SIZE)?)).ok()?;
    let (name, body) = data.get(message::HEAD..)?.split_at_checked(prefix)?;
    if name != promotion::MESSAGE_PREFIX.to_bytes_with_nul() {
        return None;
    }
    body.get(..size).map(<[u8]>::to_vec)
}
