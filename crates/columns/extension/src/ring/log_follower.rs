//! The background worker that follows the WAL for the zone.
//!
//! It holds a physical replication slot, so that the WAL with redo records that are not in a checkpoint of the zone's store stays. When
//! the zone has been started again it reads the log to its end to it (L4); while all is well it has the zone make its store durable up to a
//! position and lets the slot go there (L5). On a standby it reads on as the standby replays. When anything fails the worker
//! ends with an error and PostgreSQL starts it again. Must not: move the slot before the zone's store is durable; open a database.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use pg_sys::XLogRecPtr;
use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::pg_sys;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{AREA_SIZE, Broken, Descriptor, Fault, Op};
use strongroom_format::layout::{Field, array};

use crate::call::guarded;
use crate::ring::zone::Link;
use crate::ring::{shared_memory, zone};
use crate::storage::promotion::PREFIX;
use crate::{fault, settings};

/// The replication slot.
const SLOT: &CStr = c"strongroom_columns";
/// How often the worker looks.
const PAUSE: Duration = Duration::from_secs(1);
/// A checkpoint of the zone's store is due after this time, if the log has grown,
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(60);
/// or after this many bytes of log.
const CHECKPOINT_BYTES: u64 = 64 << 20;

unsafe extern "C-unwind" {
    // src/backend/access/transam/xlogutils.c. pgrx has them as functions of Rust, which cannot be passed on; they are called by the
    // server only.
    fn read_local_xlog_page(
        state: *mut pg_sys::XLogReaderState,
        page: XLogRecPtr,
        length: c_int,
        target: XLogRecPtr,
        into: *mut c_char,
    ) -> c_int;
    fn wal_segment_open(state: *mut pg_sys::XLogReaderState, segment: u64, timeline: *mut u32);
    fn wal_segment_close(state: *mut pg_sys::XLogReaderState);
    // src/backend/tcop/postgres.c.
    fn die(signal: c_int);
    // src/backend/access/transam/timeline.c; not among pgrx's bindings.
    fn readTimeLineHistory(timeline: u32) -> *mut pg_sys::List;
    fn tliInHistory(timeline: u32, history: *mut pg_sys::List) -> bool;
    fn tliSwitchPoint(timeline: u32, history: *mut pg_sys::List, next: *mut u32) -> XLogRecPtr;
}

/// The resource manager of logical messages (access/rmgrlist.h).
const LOGICAL_MESSAGE: u8 = 21;

/// Registers the worker.
pub(crate) fn register() {
    BackgroundWorkerBuilder::new("strongroom columns")
        .set_function("strongroom_follower_main")
        .set_library("strongroom_columns")
        .enable_shmem_access(None)
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .set_restart_time(Some(Duration::from_secs(1)))
        .load();
}

/// The worker.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strongroom_follower_main(_arg: pg_sys::Datum) {
    guarded(|| {
        // SAFETY: the server's own handler, which every wait and every loop here asks about: a fast shutdown ends this worker although the
        // zone does not answer.
        unsafe { pg_sys::pqsignal(pg_sys::SIGTERM.cast_signed(), Some(die)) };
        BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
        // What the reader allocates lives as long as the worker.
        // SAFETY: switches to a context that is there from the server's start.
        unsafe { pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext) };
        let mut follower = None;
        while BackgroundWorker::wait_latch(Some(PAUSE)) {
            pgrx::check_for_interrupts!();
            if BackgroundWorker::sighup_received() {
                // SAFETY: as every process of the server reads its settings again.
                unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            }
            if settings::zone().is_some() && zone::is_there() {
                follower.get_or_insert_with(Follower::new).step();
            }
        }
    });
}

/// Where the worker is.
struct Follower {
    reader: *mut pg_sys::XLogReaderState,
    /// The zone has everything before this.
    given: XLogRecPtr,
    checkpoint: Checkpoint,
    connection: u32,
    /// Messages of our name in the log that the zone did not write.
    foreign: u64,
}

/// The last checkpoint of the zone's store.
struct Checkpoint {
    at: Instant,
    position: XLogRecPtr,
}

impl Follower {
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
            given: 0,
            checkpoint: Checkpoint {
                at: Instant::now(),
                position: 0,
            },
            connection: 0,
            foreign: 0,
        }
    }

    fn step(&mut self) {
        let (position, state) = zone::with(|link| {
            let answer = link.call(Descriptor::of(Op::Position))?;
            Ok((answer.value, answer.aux))
        });
        let standby = in_recovery();
        let recovering = state & 1 != 0;
        // A zone that followed a primary's log is told when it ends: this server was promoted.
        let needed = recovering || (!standby && state & 2 != 0);
        let is_new = zone::connection() != self.connection;
        if is_new {
            self.connection = zone::connection();
            // Before the end of the log is looked for (L4).
            shared_memory::flip(self.with(|link| Ok(link.incarnation())));
            self.given = if needed || standby {
                begin(position)
            } else {
                0
            };
        }
        let (end, timeline) = end_of_log(standby);
        if self.given.max(position) > end {
            fault::Report::new("55000", "the zone's store is of a later log than this server's (SR-8030)")
                .hint("Restore the zone's store of a time not later than this server's, or let the zone begin a new one.")
                .raise();
        }
        if is_new {
            check_history(position, state >> 2, timeline);
        }
        if standby && state & 3 == 0 {
            fault::Report::new(
                "55000",
                "the zone has served a primary, and this server follows one now (SR-8030)",
            )
            .hint("Start the zone anew: it reads the log from its last checkpoint.")
            .raise();
        }
        if needed || standby {
            self.replay(end);
        }
        if needed {
            let a = self.given;
            self.with(|link| {
                link.call(Descriptor {
                    n: timeline,
                    a,
                    flags: if standby { flag::FOLLOWS } else { 0 },
                    ..Descriptor::of(Op::Replayed)
                })
            });
        }
        // On a primary the zone has had every value before the log had its record.
        self.checkpoint(if standby { self.given } else { end }, timeline);
    }

    /// Does something with the zone that the log was read to. Another one has not had it.
    fn with<R>(&self, work: impl FnOnce(&mut Link) -> Result<R, Broken>) -> R {
        zone::with_same(self.connection, work)
    }

    /// Gives the zone every redo record from where it is to `end`.
    fn replay(&mut self, end: XLogRecPtr) {
        if self.given >= end {
            return;
        }
        let (reader, from) = (self.reader, self.given);
        // SAFETY: a position inside the log: the reader looks for the first record that begins there or later.
        let first = unsafe { pg_sys::XLogFindNextRecord(reader, from) };
        if first == 0 {
            // SAFETY: the reader's buffer for messages.
            unreadable(unsafe { (*reader).errormsg_buf });
        }
        if first >= end {
            self.given = end;
            return;
        }
        // SAFETY: the reader found a record there.
        unsafe { pg_sys::XLogBeginRead(reader, first) };
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
                unreadable(message);
            }
            pgrx::check_for_interrupts!();
            // SAFETY: the reader stands on a record.
            if let Some(record) = unsafe { redo_record(reader) } {
                // SAFETY: as above.
                let a = unsafe { (*reader).ReadRecPtr };
                self.give(&record, a);
            }
        }
        self.given = end;
    }

    /// Gives the zone one record.
    ///
    /// Whoever may call `pg_logical_emit_message` can put anything of our name into the log. What the zone did not seal says nothing; if it
    /// was a record of the zone's that somebody changed, the next one of its chain says that one is missing (L2).
    fn give(&mut self, record: &[u8], a: XLogRecPtr) {
        let taken = record.len() <= AREA_SIZE
            && self.with(|link| {
                let n = link.write(0, record)?;
                match link.call(Descriptor {
                    n,
                    a,
                    ..Descriptor::of(Op::Replay)
                }) {
                    Err(Broken::Fault(Fault::BadRecord)) => Ok(false),
                    answer => answer.map(|_| true),
                }
            });
        if !taken {
            self.foreign += 1;
            if self.foreign == 1 {
                fault::Report::new("01000", "the log has a message named strongroom that the zone did not write; it is passed over")
                    .hint("See pg_waldump --rmgr=LogicalMessage. Further ones are not reported.")
                    .warn();
            }
        }
    }

    /// Has the zone make its store durable, when it is due, and lets go of the log before.
    fn checkpoint(&mut self, position: XLogRecPtr, timeline: u32) {
        let grown = position.saturating_sub(self.checkpoint.position);
        if grown == 0
            || (self.checkpoint.at.elapsed() < CHECKPOINT_PAUSE && grown < CHECKPOINT_BYTES)
        {
            return;
        }
        let answer = self.with(|link| {
            link.call(Descriptor {
                n: timeline,
                a: position,
                ..Descriptor::of(Op::Checkpoint)
            })
        });
        advance_slot(answer.value);
        self.checkpoint = Checkpoint {
            at: Instant::now(),
            position,
        };
    }
}

fn unreadable(message: *const c_char) -> ! {
    let report = fault::Report::new("58P01", "the log that the zone needs cannot be read");
    if message.is_null() {
        report.raise();
    }
    // SAFETY: the reader's own message: positions and segments, no contents.
    let detail = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    report.detail(&detail).raise()
}

fn in_recovery() -> bool {
    // SAFETY: asks the server.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The end of the log that can be read now, and its timeline; on a primary what has been inserted is flushed first.
fn end_of_log(standby: bool) -> (XLogRecPtr, u32) {
    let mut timeline = 0;
    // SAFETY: asks the server; flushing waits for the disk.
    let end = unsafe {
        if standby {
            pg_sys::GetXLogReplayRecPtr(&raw mut timeline)
        } else {
            let end = pg_sys::GetXLogInsertRecPtr();
            pg_sys::XLogFlush(end);
            pg_sys::GetFlushRecPtr(&raw mut timeline).min(end)
        }
    };
    (end, timeline)
}

/// Refuses a store that has seen what this server's log has not (L8): its position is of timeline `of`, which the history of the log's
/// timeline `now` must have, and have left behind it or not at all.
fn check_history(position: XLogRecPtr, of: u32, now: u32) {
    if position == 0 || of == 0 || now == 0 || of == now {
        return;
    }
    // SAFETY: reads the server's own file; a timeline that is in the history can be asked for its end.
    let sound = unsafe {
        let history = readTimeLineHistory(now);
        let known = tliInHistory(of, history);
        known && {
            let left = tliSwitchPoint(of, history, std::ptr::null_mut());
            left == 0 || position <= left
        }
    };
    if !sound {
        fault::Report::new("55000", "the zone's store and the server's log are of different histories (SR-8030)")
            .detail(&format!("The store has read timeline {of} to {:X}/{:X}; the server is on timeline {now}, whose history left it before.", position >> 32, position & 0xffff_ffff))
            .hint("Bring the zone a store from before the histories parted, or a copy of the store of the zone whose server this one follows.")
            .raise();
    }
}

/// Where replay begins: where the zone's store is, or where the slot holds the log.
fn begin(position: XLogRecPtr) -> XLogRecPtr {
    if position != 0 {
        return position;
    }
    // SAFETY: this worker holds the slot.
    unsafe { (*pg_sys::MyReplicationSlot).data.restart_lsn }
}

/// Takes the slot, which is made when it is not there.
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
            fault::Report::new("55000", "the replication slot of strongroom_columns has lost its log")
                .hint("Values that the zone had not made durable may be missing. See max_slot_wal_keep_size; drop the slot once the zone's store has been checked.")
                .raise();
        }
    }
}

/// Lets the slot go to this position, never back.
fn advance_slot(position: XLogRecPtr) {
    // SAFETY: this worker holds the slot.
    let slot = unsafe { pg_sys::MyReplicationSlot };
    // SAFETY: as above.
    if position <= unsafe { (*slot).data.restart_lsn } {
        return;
    }
    // SAFETY: the slot's lock is one byte that `xchg` takes and a store gives back (storage/s_lock.h, x86-64), held for one store.
    unsafe {
        let lock = AtomicU8::from_ptr(&raw mut (*slot).mutex);
        while lock.swap(1, Ordering::Acquire) != 0 {
            std::hint::spin_loop();
        }
        (*slot).data.restart_lsn = position;
        lock.store(0, Ordering::Release);
        pg_sys::ReplicationSlotMarkDirty();
        // Durable before the log behind it may go.
        pg_sys::ReplicationSlotSave();
        pg_sys::ReplicationSlotsComputeRequiredLSN();
    }
}

/// Layout of a logical message in the log (replication/message.h, `xl_logical_message`).
mod message {
    use super::Field;
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

/// The redo record in the record that the reader stands on.
///
/// # Safety
///
/// The reader stands on a record.
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
    if name != PREFIX.to_bytes_with_nul() {
        return None;
    }
    body.get(..size).map(<[u8]>::to_vec)
}
