//! `strongroom_columns.sweep(regclass)`: finds the values of a table that no row or index refers to
//! any more, and frees those that earlier sweeps found.
//!
//! The method and why it is sound are in docs/internals/columns.md ("Reclamation", G1 to G5). Must
//! not: free values while the marks are incomplete.

use std::ffi::CString;

use pg_sys::{Datum, Oid, Relation};
use pgrx::pg_sys;
use strongroom_columns_ring::op::MORE;
use strongroom_columns_ring::{Descriptor, Op};

use crate::call::{Call, call_postgres, sql_functions};
use crate::ring::{log_end, shared_memory, zone};
use crate::storage::storage_id::StorageId;
use crate::storage::{access_method, logical_slots, marking, partition, pending, promotion};
use crate::{fault, interrupts};

sql_functions! {
    /// `strongroom_columns.sweep(regclass)`
    strongroom_sweep, pg_finfo_strongroom_sweep => sweep;
}

unsafe extern "C-unwind" {
    /// The process structure of a backend. Null for a number that no backend has.
    // src/backend/storage/ipc/sinvaladt.c of PostgreSQL 15; not among pgrx's bindings. Null for a
    // number that no backend has.
    fn BackendIdGetProc(backend: pg_sys::BackendId) -> *mut pg_sys::PGPROC;
}

/// Milliseconds between two checks whether a writing transaction has ended.
const CHECK_MILLISECONDS: i32 = 20;

/// The result of a sweep.
#[derive(Default)]
pub(crate) struct Swept {
    /// Number of the sweep.
    sweep: u64,
    /// Identifiers that were found in the table and its indexes.
    marked: u64,
    /// Values that were not found: a later sweep frees them.
    quarantined: u64,
    /// Values that were freed.
    freed: u64,
    /// Values that the partition still has.
    values: u64,
}

/// How long a sweep waits for the transactions that write to the table.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// Until they have ended, as for any lock, with detection of deadlocks.
    Unlimited,
    /// For so many milliseconds.
    Milliseconds(i32),
}

/// The SQL function: sweeps a table, waiting for its writers, and returns the counts as json; zeros
/// if it has no values. Raises an ERROR on a standby, and for a user that does not own the table.
fn sweep(call: &mut Call) -> Datum {
    let oid = Oid::from(u32::try_from(call.bits(0)).unwrap_or(0));
    // SAFETY: asks the server.
    unsafe {
        if pg_sys::RecoveryInProgress() {
            fault::Report::new("25006", "a standby frees values as its primary does").raise();
        }
        if !pg_sys::pg_class_ownercheck(oid, pg_sys::GetUserId()) {
            pg_sys::aclcheck_error(
                pg_sys::AclResult::ACLCHECK_NOT_OWNER,
                pg_sys::ObjectType::OBJECT_TABLE,
                pg_sys::get_rel_name(oid),
            );
        }
    }
    let swept = sweep_table(oid, Wait::Unlimited).unwrap_or_default();
    let Swept {
        sweep,
        marked,
        quarantined,
        freed,
        values,
    } = swept;
    let json = format!(
        "{{\"sweep\":{sweep},\"marked\":{marked},\"quarantined\":{quarantined},\
         \"freed\":{freed},\"values\":{values}}}"
    );
    let json = CString::new(json).unwrap_or_default();
    // SAFETY: copies the string into a text, which is how json is kept (json.c).
    Datum::from(unsafe { pg_sys::cstring_to_text(json.as_ptr()) })
}

/// Sweeps a table under a lock that keeps other sweeps and VACUUM away. `None` if it is temporary,
/// has no values, or the wait for its writers was too long. Raises failures as an ERROR.
pub(crate) fn sweep_table(oid: Oid, wait: Wait) -> Option<Swept> {
    let mode = pg_sys::ShareUpdateExclusiveLock.cast_signed();
    // SAFETY: opens the table, or raises.
    let relation = unsafe { pg_sys::table_open(oid, mode) };
    if !access_method::has_access_method(relation) {
        fault::Report::new(
            "42809",
            "only tables with the access method strongroom are swept",
        )
        .raise();
    }
    // SAFETY: an open relation.
    let persistence = unsafe { (*(*relation).rd_rel).relpersistence };
    let temporary = persistence == pg_sys::RELPERSISTENCE_TEMP.cast_signed();
    let done = if temporary {
        None
    } else {
        with_sweep_lock(true, || run_sweep(relation, oid, wait)).flatten()
    };
    // SAFETY: opened above.
    unsafe { pg_sys::table_close(relation, mode) };
    done
}

/// Runs `work`, which is a sweep or counts as one, under a lock that one process of the server has
/// at a time, and returns its result: sweeps end in the order of their numbers only if no two
/// overlap (G4). While another process has the lock: with `wait`, waits for it, handling
/// interrupts; otherwise returns `None` without running `work`. An error of `work` releases the
/// lock with the transaction.
pub(super) fn with_sweep_lock<R>(wait: bool, work: impl FnOnce() -> R) -> Option<R> {
    // An object that does not exist (storage/lock.h, SET_LOCKTAG_OBJECT).
    let tag = pg_sys::LOCKTAG {
        locktag_field1: 0,
        locktag_field2: pg_sys::AccessMethodRelationId.to_u32(),
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: u8::try_from(pg_sys::LockTagType::LOCKTAG_OBJECT).unwrap_or(0),
        locktag_lockmethodid: 1,
    };
    let mode = pg_sys::ExclusiveLock.cast_signed();
    // SAFETY: takes the lock, or without `wait` may return at once; an error releases it with the
    // transaction.
    let taken = unsafe { pg_sys::LockAcquire(&raw const tag, mode, false, !wait) };
    if taken == pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL {
        return None;
    }
    let result = work();
    // SAFETY: taken above.
    unsafe { pg_sys::LockRelease(&raw const tag, mode, false) };
    Some(result)
}

/// The request that begins marking in a partition, which has the number of the sweep as its answer.
pub(super) fn marking_of(partition: u64) -> Descriptor {
    Descriptor {
        a: partition,
        b: shared_memory::last_sweep(),
        ..Descriptor::of(Op::MarkBegin)
    }
}

/// The steps of a sweep: begin marking, wait for writers, mark what table and indexes hold,
/// quarantine what was not marked, free what earlier sweeps quarantined. `None` if the table has no
/// values, or writers took too long. Raises the zone's faults as an ERROR.
fn run_sweep(relation: Relation, oid: Oid, wait: Wait) -> Option<Swept> {
    let table = partition::table_of(relation);
    if table.columns.is_empty() {
        return None;
    }
    let storage = pending::origin(StorageId::of(relation));
    let number = zone::with(|connection| partition::find(connection, storage))?.value;
    let begun = zone::with(|connection| connection.call(marking_of(number)));
    if !wait_for_writers(oid, wait) {
        return None;
    }
    let mut marker = marking::Marker::new(u16::try_from(number).unwrap_or(0));
    // SAFETY: a current snapshot, so that rows that are deleted from now on stay on their pages;
    // released below, or with the transaction.
    let snapshot = unsafe { pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot()) };
    marking::mark_table(relation, &table.columns, &mut marker);
    marking::mark_indexes(relation, &mut marker);
    let marked = marker.finish();
    // SAFETY: registered above.
    unsafe { pg_sys::UnregisterSnapshot(snapshot) };
    let sweep = begun.value;
    let quarantined = call_until_done(Descriptor {
        a: number,
        ..Descriptor::of(Op::Sweep)
    });
    // A crash of the server alone takes the end of its log, and with that what has removed the last
    // row with a value; the zone lives on. So what the pages said has to be durable before anything
    // is freed.
    shared_memory::record_sweep(sweep, log_end::flush());
    let upto = shared_memory::last_freeable_sweep(logical_slots::decoded_position())
        .min(sweep.saturating_sub(1));
    let freed = call_until_done(Descriptor {
        a: upto,
        n: u32::try_from(number).unwrap_or(0),
        ..Descriptor::of(Op::Free)
    });
    let remaining = zone::with(|connection| partition::find(connection, storage));
    Some(Swept {
        sweep,
        marked,
        quarantined,
        freed,
        values: remaining.map_or(0, |answer| u64::from(answer.aux)),
    })
}

/// Calls an operation of the zone until it has nothing more to do, and logs its redo records;
/// returns the sum of its answers. Handles interrupts in between. Raises the zone's faults as an
/// ERROR.
fn call_until_done(descriptor: Descriptor) -> u64 {
    let mut sum = 0;
    loop {
        let (answer, record) = zone::with(|connection| {
            let answer = connection.call(descriptor)?;
            let length = usize::try_from(answer.aux & !MORE).unwrap_or(usize::MAX);
            Ok((answer, connection.read(0, length)?))
        });
        if !record.is_empty() {
            promotion::log_record(&record);
        }
        sum += answer.value;
        if answer.aux & MORE == 0 {
            return sum;
        }
        interrupts::check();
    }
}

/// Waits for the transactions that write to the table now. False if the time was over before all
/// have ended. Handles interrupts while it waits.
fn wait_for_writers(oid: Oid, wait: Wait) -> bool {
    // SAFETY: reads the number of this process's database.
    let database = unsafe { pg_sys::MyDatabaseId };
    // storage/lock.h, SET_LOCKTAG_RELATION.
    let tag = pg_sys::LOCKTAG {
        locktag_field1: database.to_u32(),
        locktag_field2: oid.to_u32(),
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: 0,
        locktag_lockmethodid: 1,
    };
    let mut remaining = match wait {
        Wait::Unlimited => 0,
        Wait::Milliseconds(milliseconds) => milliseconds,
    };
    let mut count = 0;
    // SAFETY: the transactions whose locks conflict with SHARE are those that write; the list is in
    // the current memory context.
    let writers = unsafe {
        let mode = pg_sys::ShareLock.cast_signed();
        let list = pg_sys::GetLockConflicts(&raw const tag, mode, &raw mut count);
        std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0))
    };
    // SAFETY: waits as for any lock, or only checks.
    let ended = |writer, wait| unsafe { pg_sys::VirtualXactLock(writer, wait) };
    let endless = matches!(wait, Wait::Unlimited);
    for writer in writers.iter().filter(|one| is_running(one)) {
        while !ended(*writer, endless) {
            if remaining <= 0 {
                return false;
            }
            interrupts::pause(CHECK_MILLISECONDS);
            remaining -= CHECK_MILLISECONDS;
        }
    }
    true
}

/// Whether a backend still runs this transaction. False for a prepared transaction, which has no
/// backend any more; what it has written is in its rows.
fn is_running(transaction: &pg_sys::VirtualTransactionId) -> bool {
    // SAFETY: looks a backend up; its structure is in shared memory, even if another backend has
    // the number by now.
    unsafe {
        let backend = call_postgres(|| BackendIdGetProc(transaction.backendId));
        backend
            .as_ref()
            .is_some_and(|backend| backend.lxid == transaction.localTransactionId)
    }
}
