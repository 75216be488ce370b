//! Changes of storage that take effect on partitions when the transaction ends, as PostgreSQL keeps
//! them for files (catalog/storage.c, `pendingDeletes`).
//!
//! Must not: speak with the zone; carrying the changes out is
//! [`crate::storage::transaction_end`]'s.

use std::cell::RefCell;

use pgrx::pg_sys;

use crate::settings;
use crate::storage::storage_id::StorageId;

/// A change of storage, and when it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Storage that this transaction created: its partition is dropped if the transaction aborts.
    Created(StorageId),
    /// Storage that this transaction dropped: its partition is dropped if the transaction commits.
    Dropped(StorageId),
    /// A database that this transaction dropped: its partitions are dropped if it commits.
    DroppedDatabase(pg_sys::Oid),
    /// Storage that was copied with its identifiers: the partition moves to the copy before the
    /// transaction commits.
    Copied(StorageId, StorageId),
    /// Storage whose partition has moved to the copy: it moves back if the transaction aborts after
    /// all.
    Moved(StorageId, StorageId),
}

/// A change with the level of the subtransaction that made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) change: Change,
    level: i32,
}

/// Which changes the zone has to be told of when the transaction commits.
pub(super) struct DueAtCommit {
    /// Storage, or a database, was dropped.
    pub(super) dropped: bool,
    /// Storage was copied with its identifiers.
    pub(super) copied: bool,
}

thread_local! {
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

/// Notes a change that takes effect at the end of the transaction, at the current level of
/// subtransactions.
fn add(change: Change) {
    // SAFETY: reads the level of the current transaction.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
    PENDING.with(|pending| pending.borrow_mut().push(Pending { change, level }));
}

/// Notes that this transaction has created this storage: its partition is dropped if the
/// transaction, or the subtransaction that created it, aborts. Sends nothing now.
pub(crate) fn add_created(storage: StorageId) {
    add(Change::Created(storage));
}

/// Notes that a relation loses this storage: its partition is dropped if the transaction commits,
/// and kept if it, or this subtransaction, aborts. Does nothing if the transaction has copied the
/// storage (SET TABLESPACE, VACUUM FULL): then the partition moves.
pub(crate) fn add_dropped(storage: StorageId) {
    let is_copied = |one: &Pending| match one.change {
        Change::Copied(from, _) | Change::Moved(from, _) => from == storage,
        Change::Created(_) | Change::Dropped(_) | Change::DroppedDatabase(_) => false,
    };
    if !PENDING.with(|pending| pending.borrow().iter().any(is_copied)) {
        add(Change::Dropped(storage));
    }
}

/// Notes that this transaction drops a database: its partitions are dropped if it commits. Does
/// nothing where there is no zone.
pub(crate) fn add_dropped_database(database: pg_sys::Oid) {
    if settings::zone_socket().is_some() {
        add(Change::DroppedDatabase(database));
    }
}

/// Notes that a relation's storage was copied with its identifiers: the partition moves to the copy
/// before the transaction commits.
pub(crate) fn add_copied(from: StorageId, to: StorageId) {
    add(Change::Copied(from, to));
}

/// The storage whose partition holds this storage's identifiers: itself, unless this transaction
/// made it as a copy; then the storage that it was copied from.
pub(crate) fn origin(storage: StorageId) -> StorageId {
    PENDING.with(|pending| {
        let mut at = storage;
        // Later copies are of earlier ones, never the other way round.
        for one in pending.borrow().iter().rev() {
            match one.change {
                Change::Copied(from, to) if to == at => at = from,
                _ => {}
            }
        }
        at
    })
}

/// Whether storage was dropped, and whether storage was copied, so that the zone has to learn of it
/// when the transaction commits.
pub(super) fn due_at_commit() -> DueAtCommit {
    PENDING.with(|pending| {
        let pending = pending.borrow();
        let any = |is: fn(&Change) -> bool| pending.iter().any(|one| is(&one.change));
        DueAtCommit {
            dropped: any(|change| {
                matches!(change, Change::Dropped(_) | Change::DroppedDatabase(_))
            }),
            copied: any(|change| matches!(change, Change::Copied(..))),
        }
    })
}

/// Marks every copy as moved; returns those that were not yet, as from and to.
pub(super) fn mark_copies_moved() -> Vec<(StorageId, StorageId)> {
    PENDING.with(|pending| {
        let mut moves = Vec::new();
        for one in pending.borrow_mut().iter_mut() {
            if let Change::Copied(from, to) = one.change {
                one.change = Change::Moved(from, to);
                moves.push((from, to));
            }
        }
        moves
    })
}

/// Removes and returns all changes, the earliest first.
pub(super) fn take_all() -> Vec<Pending> {
    PENDING.with(|pending| {
        let taken = pending
            .try_borrow_mut()
            .map(|mut pending| std::mem::take(&mut *pending));
        taken.unwrap_or_default()
    })
}

/// Forgets all changes.
pub(super) fn forget_all() {
    PENDING.with(|pending| {
        if let Ok(mut pending) = pending.try_borrow_mut() {
            pending.clear();
        }
    });
}

/// Called when the subtransaction of this level has committed: its changes become its parent's.
pub(super) fn reassign_to_parent(level: i32) {
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

/// Removes and returns the changes of this level of subtransactions and deeper ones, for one that
/// was aborted.
pub(super) fn take_from(level: i32) -> Vec<Pending> {
    PENDING.with(|pending| {
        let mut pending = pending.borrow_mut();
        let taken = pending
            .iter()
            .filter(|one| one.level >= level)
            .copied()
            .collect();
        pending.retain(|one| one.level < level);
        taken
    })
}
