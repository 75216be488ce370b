//! What happens to partitions when transactions end: as PostgreSQL does it with files (catalog/storage.c, `pendingDeletes`).
//!
//! Storage that a transaction made goes when it aborts; storage that it dropped goes when it commits; storage that it copied page by page
//! to another place takes its partition along just before it commits, so that the log has it before the commit record. Each has the level of the subtransaction that did it. Must not: raise at a transaction's end;
//! what the zone does not hear of stays as garbage, never the other way round.

use std::cell::RefCell;
use std::ffi::c_void;

use pgrx::pg_sys;
use strongroom_columns_ring::{Answer, Broken, Descriptor, Fault, Op};

use crate::call::guarded;
use crate::partition::{self, Storage};
use crate::zone::Link;
use crate::{ahead, fault, promote, statement, sweep, zone};

/// What is to be done, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Made in this transaction: goes when it aborts.
    Made(Storage),
    /// Dropped in this transaction: goes when it commits.
    Dropped(Storage),
    /// Copied with its identifiers: its partition goes along before the transaction commits,
    Moved(Storage, Storage),
    /// and has gone along: it goes back when the transaction aborts after all.
    Rehomed(Storage, Storage),
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    deed: Deed,
    level: i32,
}

thread_local! {
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

/// Hangs this module into the server.
pub(crate) fn install() {
    // SAFETY: registers functions for as long as the process lives.
    unsafe { pg_sys::RegisterXactCallback(Some(transaction), std::ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { pg_sys::RegisterSubXactCallback(Some(subtransaction), std::ptr::null_mut()) };
    partition::watch();
}

fn add(deed: Deed) {
    // SAFETY: reads the level of the transaction under way.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
    PENDING.with(|pending| pending.borrow_mut().push(Pending { deed, level }));
}

/// A relation gets this storage.
pub(crate) fn made(storage: Storage) {
    add(Deed::Made(storage));
}

/// A relation loses this storage.
pub(crate) fn dropped(storage: Storage) {
    let moved = |one: &Pending| matches!(one.deed, Deed::Moved(from, _) | Deed::Rehomed(from, _) if from == storage);
    if !PENDING.with(|pending| pending.borrow().iter().any(moved)) {
        add(Deed::Dropped(storage));
    }
}

/// A relation's storage was copied as it is.
pub(crate) fn moved(from: Storage, to: Storage) {
    add(Deed::Moved(from, to));
}

/// The storage whose partition this storage's identifiers are of: itself, unless it is a copy of this transaction.
pub(crate) fn origin(storage: Storage) -> Storage {
    PENDING.with(|pending| {
        let mut at = storage;
        // Later copies are of earlier ones, never the other way round.
        for one in pending.borrow().iter().rev() {
            match one.deed {
                Deed::Moved(from, to) if to == at => at = from,
                _ => {}
            }
        }
        at
    })
}

/// Whether something was dropped and whether something was moved, of which the zone has to hear when the transaction commits.
fn waiting() -> (bool, bool) {
    PENDING.with(|pending| {
        let pending = pending.borrow();
        let any = |of: fn(&Deed) -> bool| pending.iter().any(|one| of(&one.deed));
        (
            any(|deed| matches!(deed, Deed::Dropped(_))),
            any(|deed| matches!(deed, Deed::Moved(..))),
        )
    })
}

/// Forgets everything.
pub(crate) fn forget() {
    PENDING.with(|pending| {
        if let Ok(mut pending) = pending.try_borrow_mut() {
            pending.clear();
        }
    });
}

extern "C-unwind" fn transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::{
        XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PRE_PREPARE,
        XACT_EVENT_PREPARE,
    };
    guarded(|| match event {
        XACT_EVENT_PRE_COMMIT => {
            zone::settle();
            let (dropped, moved) = waiting();
            if moved {
                move_partitions();
            } else if dropped {
                zone::reach();
            }
        }
        XACT_EVENT_PRE_PREPARE => {
            zone::settle();
            if waiting().1 {
                fault::Report::new("0A000", "a transaction that has rewritten a table with confidential columns page by page cannot be prepared")
                    .hint("Commit CLUSTER and ALTER TABLE ... SET TABLESPACE by themselves.")
                    .raise();
            }
        }
        XACT_EVENT_COMMIT => shielded(|| ended(true)),
        XACT_EVENT_ABORT => shielded(|| ended(false)),
        // What a prepared transaction dropped stays in the zone as garbage: nothing says here how it ends.
        XACT_EVENT_PREPARE => shielded(statement::transaction_ended),
        _ => {}
    });
}

/// Runs what must not raise: an ERROR behind the commit record would be a PANIC of the server.
fn shielded(work: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        // SAFETY: forgets an error of PostgreSQL's that was caught.
        unsafe { pg_sys::FlushErrorState() };
    }
}

/// Carries out what was waiting for the transaction's end.
fn ended(committed: bool) {
    let pending = PENDING.with(|pending| {
        let taken = pending
            .try_borrow_mut()
            .map(|mut pending| std::mem::take(&mut *pending));
        taken.unwrap_or_default()
    });
    zone::ending(|| {
        // The last one first: a copy may have been copied. A copy that has the partition is never dropped as something that was made,
        // whether or not the zone hears that it goes back.
        let mut copies = Vec::new();
        for one in pending.iter().rev() {
            if let Deed::Rehomed(from, to) = one.deed {
                copies.push(to);
                if !committed {
                    tell(|link| rehome(link, to, from));
                }
            }
        }
        for one in pending {
            match one.deed {
                Deed::Made(storage) if !committed && !copies.contains(&storage) => {
                    drop_partition(storage);
                }
                // Who decodes the log has still to read its rows: it stays as garbage.
                Deed::Dropped(storage) if committed && !sweep::is_decoded() => {
                    drop_partition(storage);
                }
                Deed::Moved(_, to) => partition::forget(to),
                Deed::Made(_) | Deed::Dropped(_) | Deed::Rehomed(..) => {}
            }
        }
    });
    zone::forget_owed();
    statement::transaction_ended();
}

/// Before the commit record: partitions whose storage was copied get the copy's name, and the log says so. Behind it an error could not be
/// raised and a crash would leave the table's next values in a second partition.
fn move_partitions() {
    let moves: Vec<(Storage, Storage)> = PENDING.with(|pending| {
        let mut moves = Vec::new();
        for one in pending.borrow_mut().iter_mut() {
            if let Deed::Moved(from, to) = one.deed {
                one.deed = Deed::Rehomed(from, to);
                moves.push((from, to));
            }
        }
        moves
    });
    for (from, to) in moves {
        let record = zone::with(|link| rehome(link, from, to));
        if !record.is_empty() {
            promote::log(&record);
        }
    }
}

/// Has the zone carry something out at a transaction's end, and puts its redo record into the WAL, so that it knows of it after a restart and
/// standbys follow.
fn tell(work: impl FnOnce(&mut Link) -> Result<Vec<u8>, Broken>) {
    let mut record = Vec::new();
    zone::at_end(|link| {
        record = work(link)?;
        Ok(())
    });
    if !record.is_empty()
        && let Some(number) = promote::insert(&record)
    {
        zone::at_end(|link| link.post(promote::inserted(number)));
    }
}

/// The redo record behind an answer.
fn record_of(link: &mut Link, answer: Answer) -> Result<Vec<u8>, Broken> {
    link.read(0, usize::try_from(answer.aux).unwrap_or(usize::MAX))
}

fn drop_partition(storage: Storage) {
    partition::forget(storage);
    tell(|link| {
        let a = match partition::existing(link, storage) {
            Ok(answer) => answer.value,
            // What has no partition has no values.
            Err(Broken::Fault(Fault::PartitionUnknown)) => return Ok(Vec::new()),
            Err(broken) => return Err(broken),
        };
        let answer = link.call(Descriptor {
            a,
            ..Descriptor::of(Op::Drop)
        })?;
        record_of(link, answer)
    });
}

/// Gives the partition of one storage the name of another. A storage without a partition has nothing to give.
fn rehome(link: &mut Link, from: Storage, to: Storage) -> Result<Vec<u8>, Broken> {
    partition::forget(from);
    partition::forget(to);
    let a = match partition::existing(link, from) {
        Ok(answer) => answer.value,
        Err(Broken::Fault(Fault::PartitionUnknown)) => return Ok(Vec::new()),
        Err(broken) => return Err(broken),
    };
    link.write(0, &partition::relation_record(to, 0))?;
    let answer = link.call(Descriptor {
        a,
        ..Descriptor::of(Op::ReassignPartition)
    })?;
    record_of(link, answer)
}

extern "C-unwind" fn subtransaction(
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
        // SAFETY: reads the level of the subtransaction that ends.
        let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
        match event {
            // An exception block of PL/pgSQL has to see the faults of its own statements, and no others (R2).
            SUBXACT_EVENT_START_SUB => shielded(|| zone::part_begins(level - 1)),
            SUBXACT_EVENT_PRE_COMMIT_SUB => zone::settle(),
            SUBXACT_EVENT_COMMIT_SUB => shielded(|| rise(level)),
            SUBXACT_EVENT_ABORT_SUB => {
                ahead::forget_scans();
                shielded(|| zone::part_failed(level));
                shielded(|| undo(level));
            }
            _ => {}
        }
    });
}

/// A subtransaction committed: its deeds are its parent's.
fn rise(level: i32) {
    PENDING.with(|pending| {
        for one in pending
            .borrow_mut()
            .iter_mut()
            .filter(|one| one.level >= level)
        {
            one.level = level - 1;
        }
    });
}

/// A subtransaction aborted: what it made goes, what it dropped stays.
fn undo(level: i32) {
    let undone: Vec<Pending> = PENDING.with(|pending| {
        let mut pending = pending.borrow_mut();
        let undone = pending
            .iter()
            .filter(|one| one.level >= level)
            .copied()
            .collect();
        pending.retain(|one| one.level < level);
        undone
    });
    if undone.is_empty() {
        return;
    }
    zone::ending(|| {
        for one in undone {
            match one.deed {
                Deed::Made(storage) => drop_partition(storage),
                Deed::Moved(_, to) => partition::forget(to),
                Deed::Dropped(_) | Deed::Rehomed(..) => {}
            }
        }
    });
}
