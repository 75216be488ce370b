//! `strongroom_columns.sweep(regclass)`: finds the values of a table that nothing refers to any more, and frees those of sweeps before.
//!
//! How, and why it is sound, is in the contract ("Reclamation", G1 to G5). Must not: free by marks that are not complete.

use std::ffi::CString;

use pg_sys::{Datum, Oid, Relation};
use pgrx::pg_sys;
use strongroom_columns_ring::{Answer, Broken, Descriptor, Fault, Op};

use crate::call::{Call, outside, sql_functions};
use crate::fault;
use crate::ring::zone::Link;
use crate::ring::{shared_memory, zone};
use crate::storage::partition::Storage;
use crate::storage::{access_method, marking, partition, promotion, transaction_end};

sql_functions! {
    /// `strongroom_columns.sweep(regclass)`
    strongroom_sweep, pg_finfo_strongroom_sweep => function;
}

unsafe extern "C-unwind" {
    // src/backend/storage/ipc/sinvaladt.c of PostgreSQL 15; not among pgrx's bindings. Null for a number that no backend has.
    fn BackendIdGetProc(backend: pg_sys::BackendId) -> *mut pg_sys::PGPROC;
}

/// In `aux`: there is more to be done.
const MORE: u32 = 1 << 31;
/// How often a worker looks whether those who write have ended.
const LOOK_MILLISECONDS: i32 = 20;

/// What a sweep has done.
#[derive(Default)]
pub(crate) struct Swept {
    sweep: u64,
    marked: u64,
    quarantined: u64,
    freed: u64,
    values: u64,
}

/// How long to wait for transactions that write to the table.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    /// Until they have ended: deadlocks are found.
    Endless,
    /// For so many milliseconds.
    Limited(i32),
}

fn function(call: &mut Call) -> Datum {
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
    let swept = table(oid, Patience::Endless).unwrap_or_default();
    let Swept {
        sweep,
        marked,
        quarantined,
        freed,
        values,
    } = swept;
    let json = format!(
        "{{\"sweep\":{sweep},\"marked\":{marked},\"quarantined\":{quarantined},\"freed\":{freed},\"values\":{values}}}"
    );
    let json = CString::new(json).unwrap_or_default();
    // SAFETY: copies the string into a text, which is how json is kept (json.c).
    Datum::from(unsafe { pg_sys::cstring_to_text(json.as_ptr()) })
}

/// Sweeps a table. `None` when it has no values, or patience ended. What fails is raised.
pub(crate) fn table(oid: Oid, patience: Patience) -> Option<Swept> {
    let mode = pg_sys::ShareUpdateExclusiveLock.cast_signed();
    // SAFETY: opens the table, or raises.
    let relation = unsafe { pg_sys::table_open(oid, mode) };
    if !access_method::is_ours(relation) {
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
        one_at_a_time(relation, oid, patience)
    };
    // SAFETY: opened above.
    unsafe { pg_sys::table_close(relation, mode) };
    done
}

/// One sweep at a time in the whole server: their numbers are in the order in which they end (G4).
fn one_at_a_time(relation: Relation, oid: Oid, patience: Patience) -> Option<Swept> {
    let class = Oid::from(pg_sys::AccessMethodRelationId.to_u32());
    let none = pg_sys::InvalidOid;
    let mode = pg_sys::ExclusiveLock.cast_signed();
    // SAFETY: a lock on nothing that there is; an error gives it back with the transaction.
    unsafe { pg_sys::LockSharedObject(class, none, 0, mode) };
    let done = run(relation, oid, patience);
    // SAFETY: taken above.
    unsafe { pg_sys::UnlockSharedObject(class, none, 0, mode) };
    done
}

fn run(relation: Relation, oid: Oid, patience: Patience) -> Option<Swept> {
    let table = partition::table(relation);
    if table.columns.is_empty() {
        return None;
    }
    let storage = transaction_end::origin(partition::storage(relation));
    let number = zone::with(|link| values_of(link, storage))?.value;
    let begun = zone::with(|link| {
        link.call(Descriptor {
            a: number,
            ..Descriptor::of(Op::MarkBegin)
        })
    });
    if !writers_ended(oid, patience) {
        return None;
    }
    let mut marker = marking::Marker::new(u16::try_from(number).unwrap_or(0));
    // SAFETY: a snapshot of now, that keeps what is deleted from now on where it is; given back below, or with the transaction.
    let snapshot = unsafe { pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot()) };
    marking::table(relation, &table.columns, &mut marker);
    marking::indexes(relation, &mut marker);
    let marked = marker.end();
    // SAFETY: registered above.
    unsafe { pg_sys::UnregisterSnapshot(snapshot) };
    let sweep = begun.value;
    let quarantined = repeat(Descriptor {
        a: number,
        ..Descriptor::of(Op::Sweep)
    });
    // SAFETY: asks the server.
    shared_memory::swept(sweep, unsafe { pg_sys::GetXLogInsertRecPtr() });
    let upto = shared_memory::free_upto(decoded()).min(sweep.saturating_sub(1));
    let freed = repeat(Descriptor {
        a: upto,
        n: u32::try_from(number).unwrap_or(0),
        ..Descriptor::of(Op::Free)
    });
    let left = zone::with(|link| values_of(link, storage));
    Some(Swept {
        sweep,
        marked,
        quarantined,
        freed,
        values: left.map_or(0, |answer| u64::from(answer.aux)),
    })
}

/// A storage's partition and how many values it has; `None` when there is none.
pub(crate) fn values_of(link: &mut Link, storage: Storage) -> Result<Option<Answer>, Broken> {
    match partition::existing(link, storage) {
        Ok(answer) => Ok(Some(answer)),
        Err(Broken::Fault(Fault::PartitionUnknown)) => Ok(None),
        Err(broken) => Err(broken),
    }
}

/// Has an operation carried out until nothing is left to be done, with its records in the log; the sum of its answers.
fn repeat(descriptor: Descriptor) -> u64 {
    let mut sum = 0;
    loop {
        let (answer, record) = zone::with(|link| {
            let answer = link.call(descriptor)?;
            let length = usize::try_from(answer.aux & !MORE).unwrap_or(usize::MAX);
            Ok((answer, link.read(0, length)?))
        });
        if !record.is_empty() {
            promotion::log(&record);
        }
        sum += answer.value;
        if answer.aux & MORE == 0 {
            return sum;
        }
        marking::check_for_interrupts();
    }
}

/// Waits for the transactions that write to the table now. False when patience ends before they do.
fn writers_ended(oid: Oid, patience: Patience) -> bool {
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
    let mut left = match patience {
        Patience::Endless => 0,
        Patience::Limited(milliseconds) => milliseconds,
    };
    let mut count = 0;
    // SAFETY: those whose locks conflict with SHARE are those who write; the list is in the current memory context.
    let writers = unsafe {
        let mode = pg_sys::ShareLock.cast_signed();
        let list = pg_sys::GetLockConflicts(&raw const tag, mode, &raw mut count);
        std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0))
    };
    // SAFETY: waits as for any lock, or only looks.
    let ended = |writer, wait| unsafe { pg_sys::VirtualXactLock(writer, wait) };
    let endless = matches!(patience, Patience::Endless);
    for writer in writers.iter().filter(|one| is_running(one)) {
        while !ended(*writer, endless) {
            if left <= 0 {
                return false;
            }
            marking::pause(LOOK_MILLISECONDS);
            left -= LOOK_MILLISECONDS;
        }
    }
    true
}

/// Whether a backend is still in this transaction. One that is prepared has no backend any more: what it has written is in its rows.
fn is_running(transaction: &pg_sys::VirtualTransactionId) -> bool {
    // SAFETY: looks a backend up; its structure is in shared memory, whoever it is by now.
    unsafe {
        let backend = outside(|| BackendIdGetProc(transaction.backendId));
        backend
            .as_ref()
            .is_some_and(|backend| backend.lxid == transaction.localTransactionId)
    }
}

/// Whether a logical slot may still have to decode what this database does now.
pub(crate) fn is_decoded() -> bool {
    decoded().is_some()
}

/// Up to where every logical slot has decoded the log; `None` when there is none.
fn decoded() -> Option<u64> {
    // SAFETY: reads a setting.
    let count = usize::try_from(unsafe { pg_sys::max_replication_slots }).unwrap_or(0);
    // SAFETY: the server's slots, as many as the setting says, for as long as it runs; numbers that others may change are read once.
    let slots = unsafe {
        let control = pg_sys::ReplicationSlotCtl;
        let first: *const pg_sys::ReplicationSlot =
            (&raw const (*control).replication_slots).cast();
        (0..count).map(move |at| first.add(at))
    };
    // SAFETY: as above.
    let logical = slots
        .filter(|slot| unsafe { (**slot).in_use && (**slot).data.database != pg_sys::InvalidOid });
    // SAFETY: as above.
    logical
        .map(|slot| unsafe { (&raw const (*slot).data.confirmed_flush).read_volatile() })
        .min()
}
