//! What happens to partitions when a transaction or subtransaction ends.
//!
//! Storage that a transaction created is dropped when it aborts; storage that it dropped is dropped
//! when it commits, or retired while something may still read its rows; storage that it copied page
//! by page hands its partition to the copy just before it commits, so that the write-ahead log says
//! so before the commit record. Must not: raise at the end of a transaction. If the zone cannot be
//! told, values stay in it as garbage; it never frees too much.

use std::cell::Cell;
use std::ffi::c_void;

use pgrx::pg_sys;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Answer, Broken, Descriptor, Op};

use crate::call::guarded;
use crate::execution::{activity, statement};
use crate::ring::connection::Connection;
use crate::ring::{deferred_fault, settle, shared_memory, zone};
use crate::scanning::scans;
use crate::storage::pending::{self, Change};
use crate::storage::retired::RetiredPartition;
use crate::storage::storage_id::StorageId;
use crate::storage::{logical_slots, partition, promotion};
use crate::{fault, interrupts};

/// Registers the callbacks for the ends of transactions and subtransactions, and for changes of
/// tables.
pub(crate) fn install() {
    // SAFETY: registers functions for as long as the process lives.
    unsafe { pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut()) };
    partition::install();
}

/// The callback for a transaction: before it commits, raises the faults of posted operations and
/// moves partitions of copied storage; after its end, has the zone drop partitions, and ends the
/// statement. Raises an ERROR for PREPARE TRANSACTION if storage was copied; nothing after the
/// commit record.
extern "C-unwind" fn on_transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::{
        XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PRE_PREPARE,
        XACT_EVENT_PREPARE,
    };
    guarded(|| match event {
        XACT_EVENT_PRE_COMMIT => {
            settle::raise_faults();
            let due = pending::due_at_commit();
            if due.copied {
                move_partitions();
            } else if due.dropped {
                zone::connect_before_commit();
            }
        }
        XACT_EVENT_PRE_PREPARE => {
            settle::raise_faults();
            if pending::due_at_commit().copied {
                fault::Report::new(
                    "0A000",
                    "a transaction that has rewritten a table with \
                     confidential columns page by page cannot be prepared",
                )
                .hint("Commit CLUSTER and ALTER TABLE ... SET TABLESPACE by themselves.")
                .raise();
            }
        }
        XACT_EVENT_COMMIT => without_raising(|| end_transaction(true)),
        XACT_EVENT_ABORT => without_raising(|| end_transaction(false)),
        // What a prepared transaction dropped stays in the zone as garbage: its outcome is not
        // known here.
        XACT_EVENT_PREPARE => without_raising(forget_transaction),
        _ => {}
    });
}

/// Runs `work`, and discards a panic or ERROR of it: an ERROR after the commit record would be a
/// PANIC of the server.
fn without_raising(work: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        // SAFETY: forgets an error of PostgreSQL's that was caught.
        unsafe { pg_sys::FlushErrorState() };
    }
}

/// Carries out the changes of storage that waited for the end of the transaction: has the zone drop
/// partitions, or move them back after an abort. Then ends the statement. Waits for at most 2
/// seconds, and raises nothing.
fn end_transaction(committed: bool) {
    let changes = pending::take_all();
    interrupts::with_deadline(|| {
        // The last change first: a copy may have been copied. A copy that has the partition is not
        // dropped as created storage, whether or not the zone is told that the partition moves
        // back.
        let (mut copies, mut left) = (Vec::new(), Vec::new());
        for one in changes.iter().rev() {
            if let Change::Moved(from, to) = one.change {
                copies.push(to);
                left.push(from);
                if committed && !left.contains(&to) {
                    // Until the zone hears that it holds, a crash of the server may undo the move.
                    zone::at_transaction_end(|connection| {
                        partition::find(connection, to).map(drop)
                    });
                } else {
                    tell_zone(|connection| move_partition(connection, to, from));
                }
            }
        }
        for one in changes {
            match one.change {
                Change::Created(storage) if !committed && !copies.contains(&storage) => {
                    release_partition(storage, Readers::Own);
                }
                Change::Dropped(storage) if committed => {
                    let readers = match storage.is_temporary() {
                        true => Readers::Own,
                        false => Readers::All,
                    };
                    release_partition(storage, readers);
                }
                Change::DroppedDatabase(database) if committed => drop_partitions_of(database),
                Change::Copied(_, to) => partition::forget(to),
                Change::Created(_)
                | Change::Dropped(_)
                | Change::DroppedDatabase(_)
                | Change::Moved(..) => {}
            }
        }
    });
    deferred_fault::forget();
    forget_transaction();
}

/// Ends the statement with the transaction, and forgets its changes of storage.
fn forget_transaction() {
    statement::end_with_transaction();
    if activity::is_statement_over() {
        RETIRED_HERE.set(0);
    }
    pending::forget_all();
}

/// Has the zone move partitions whose storage was copied to the copies, and logs that. Raises
/// failures as an ERROR, so it must be called before the commit record: after it, an error could
/// not be raised, and a crash would put the table's next values into a second partition.
fn move_partitions() {
    for (from, to) in pending::mark_copies_moved() {
        let record = zone::with(|connection| move_partition(connection, from, to));
        if !record.is_empty() {
            promotion::log_record(&record);
        }
    }
}

/// At the end of a transaction: runs `work`, which has the zone do something and returns its redo
/// record, and puts the record into the write-ahead log, so that the zone knows of it after a
/// restart and standbys follow. Failures are ignored.
fn tell_zone(work: impl FnOnce(&mut Connection) -> Result<Vec<u8>, Broken>) {
    let mut record = Vec::new();
    zone::at_transaction_end(|connection| {
        record = work(connection)?;
        Ok(())
    });
    if !record.is_empty()
        && let Some(inserted) = promotion::insert_record(&record)
    {
        zone::at_transaction_end(|connection| connection.post(promotion::inserted(inserted)));
    }
}

/// Reads the redo record that came with an answer, whose length is in `aux`. `BadRequest` if it
/// does not lie in the data area, `Lost` if the zone is gone.
fn read_record(connection: &mut Connection, answer: Answer) -> Result<Vec<u8>, Broken> {
    connection.read(0, usize::try_from(answer.aux).unwrap_or(usize::MAX))
}

/// The most partitions that one statement has retired, by the tables that it undoes; and the most
/// that all have before those of further tables are dropped at once. Numbers of partitions would
/// run out otherwise.
const RETIRED_IN_STATEMENT_MAX: u32 = 64;
const RETIRED_MAX: u64 = 8192;

thread_local! {
    /// How many partitions this backend has retired since a statement was over.
    static RETIRED_HERE: Cell<u32> = const { Cell::new(0) };
}

/// Whose statements and cursors may have read the rows of a storage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// This session's only.
    Own,
    /// All sessions', and those of logical decoding.
    All,
}

impl Readers {
    /// Whether one of them may still have identifiers. The relation is locked, so that none gets
    /// more.
    fn may_hold_identifiers(self) -> bool {
        if self == Self::All && logical_slots::any() {
            return true;
        }
        let others = || self == Self::All && shared_memory::may_others_hold_identifiers();
        let too_many = RETIRED_HERE.get() >= RETIRED_IN_STATEMENT_MAX
            || shared_memory::retired_now() >= RETIRED_MAX;
        !too_many && (!activity::is_statement_over() || others())
    }
}

/// Tells the zone that no relation has this storage any more. If the zone has a partition for it,
/// drops the partition; or retires it ([`crate::storage::retired`]), to be dropped later, while one
/// of `readers` - a cursor, a running procedure, logical decoding - may still have identifiers of
/// its values. Puts the redo record of either into the write-ahead log. Failures are ignored: the
/// values stay in the zone as garbage.
fn release_partition(storage: StorageId, readers: Readers) {
    partition::forget(storage);
    let is_held = readers.may_hold_identifiers();
    tell_zone(|connection| {
        // Storage without a partition has no values.
        let Some(existing) = partition::find(connection, storage)? else {
            return Ok(Vec::new());
        };
        if is_held {
            let number = u16::try_from(existing.value).unwrap_or(0);
            let record = reassign(connection, existing.value, storage.retired(number))?;
            RETIRED_HERE.set(RETIRED_HERE.get() + 1);
            shared_memory::note_retired();
            return Ok(record);
        }
        drop_numbered(connection, existing.value, None)
    });
}

/// A partition that a drop is meant for, beside its number: flags and `n` of [`Op::Drop`].
type Meant = Option<(u16, u32)>;

/// Has the zone drop the partition of this number, if it is the one that is meant; returns the redo
/// record. Fails as [`Connection::call`] does.
fn drop_numbered(
    connection: &mut Connection,
    number: u64,
    meant: Meant,
) -> Result<Vec<u8>, Broken> {
    let (flags, n) = meant.unwrap_or_default();
    let answer = connection.call(Descriptor {
        a: number,
        flags,
        n,
        ..Descriptor::of(Op::Drop)
    })?;
    read_record(connection, answer)
}

/// Has the zone drop a retired partition, and logs that. Failures are ignored: it is still retired
/// then.
pub(super) fn drop_retired(retired: RetiredPartition) {
    let meant = Some((flag::RETIRED, retired.mark));
    tell_zone(|connection| drop_numbered(connection, u64::from(retired.number), meant));
}

/// Has the zone drop every partition of a database that is gone, and logs that. Failures are
/// ignored: what is left is reclaimed later ([`crate::storage::orphans`]).
pub(super) fn drop_partitions_of(database: pg_sys::Oid) {
    let meant = Some((flag::OF_DATABASE, database.to_u32()));
    let database = u64::from(database.to_u32());
    let mut is_dropped = true;
    while std::mem::take(&mut is_dropped) {
        tell_zone(|connection| {
            let next = connection.call(Descriptor {
                a: database.saturating_sub(1),
                ..Descriptor::of(Op::NextDatabase)
            })?;
            if next.value != database {
                return Ok(Vec::new());
            }
            let record = drop_numbered(connection, u64::from(next.aux), meant)?;
            is_dropped = true;
            Ok(record)
        });
    }
}

/// Has the zone give the partition of one storage to another; returns the redo record, which is
/// empty if there is no partition. Fails as [`Connection::call`] does.
fn move_partition(
    connection: &mut Connection,
    from: StorageId,
    to: StorageId,
) -> Result<Vec<u8>, Broken> {
    partition::forget(from);
    partition::forget(to);
    let Some(existing) = partition::find_moving(connection, from)? else {
        return Ok(Vec::new());
    };
    reassign(connection, existing.value, to)
}

/// Has the zone give the partition of this number to a storage; returns the redo record. Fails as
/// [`Connection::call`] does.
fn reassign(connection: &mut Connection, number: u64, to: StorageId) -> Result<Vec<u8>, Broken> {
    connection.write(0, &to.record(0))?;
    let answer = connection.call(Descriptor {
        a: number,
        ..Descriptor::of(Op::ReassignPartition)
    })?;
    read_record(connection, answer)
}

/// The callback for a subtransaction: at its start, keeps the faults of what was posted before it;
/// before its commit, raises those of what was posted in it; at its abort, forgets these and undoes
/// its changes of storage.
extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _this: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    use pg_sys::SubXactEvent::{
        SUBXACT_EVENT_ABORT_SUB, SUBXACT_EVENT_COMMIT_SUB, SUBXACT_EVENT_PRE_COMMIT_SUB,
        SUBXACT_EVENT_START_SUB,
    };
    guarded(|| {
        // SAFETY: reads the level of the subtransaction that begins or ends.
        let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
        match event {
            // An exception block of PL/pgSQL catches the faults of its own statements, and no
            // others (R2).
            SUBXACT_EVENT_START_SUB => {
                without_raising(|| settle::before_subtransaction(level - 1));
            }
            SUBXACT_EVENT_PRE_COMMIT_SUB => settle::raise_faults(),
            SUBXACT_EVENT_COMMIT_SUB => without_raising(|| pending::reassign_to_parent(level)),
            SUBXACT_EVENT_ABORT_SUB => {
                scans::forget_all();
                without_raising(|| settle::after_subtransaction_rollback(level));
                without_raising(|| undo(level));
            }
            _ => {}
        }
    });
}

/// Called when a subtransaction of this level was aborted: has the zone drop the partitions of the
/// storage that it created. What it dropped stays.
fn undo(level: i32) {
    let undone = pending::take_from(level);
    if undone.is_empty() {
        return;
    }
    interrupts::with_deadline(|| {
        for one in undone {
            match one.change {
                Change::Created(storage) => release_partition(storage, Readers::Own),
                Change::Copied(_, to) => partition::forget(to),
                Change::Dropped(_) | Change::DroppedDatabase(_) | Change::Moved(..) => {}
            }
        }
    });
}
