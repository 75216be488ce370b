//! Partitions of databases that are gone.
//!
//! `DROP DATABASE` has the zone drop them when it commits. Where the zone could not be told, or the
//! server ended between, they are reclaimed here. No other database has identifiers of theirs,
//! because a database with confidential tables is no template (`catalog/templates.rs`). Must
//! not: take a database for gone that is being made.

use std::collections::BTreeSet;

use pgrx::pg_sys;
use strongroom_columns_ring::{Descriptor, Op};

use crate::catalog::tuples;
use crate::interrupts;
use crate::ring::zone;
use crate::storage::transaction_end;

/// Has the zone drop the partitions of databases that do not exist. Returns true if no partition of
/// such a database remains, false if the caller has to try again: a zone that has been started anew
/// drops nothing until it has read the write-ahead log. To be called in a transaction of a process
/// that may read shared catalogs. Raises the zone's faults as an ERROR.
pub(crate) fn reclaim() -> bool {
    // The zone first: a database that has a partition then is in the catalog that is read next,
    // unless it is gone.
    let known = databases_of_zone();
    if known.is_empty() {
        return true;
    }
    let there: BTreeSet<u32> = databases().iter().map(|(oid, _)| oid.to_u32()).collect();
    let gone: Vec<u32> = known.difference(&there).copied().collect();
    for database in &gone {
        interrupts::with_deadline(|| transaction_end::drop_partitions_of((*database).into()));
    }
    gone.is_empty() || gone.iter().all(|one| !databases_of_zone().contains(one))
}

/// The OIDs of the databases of which the zone has partitions.
fn databases_of_zone() -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut after = 0;
    loop {
        let next = zone::with(|connection| {
            connection.call(Descriptor {
                a: after,
                ..Descriptor::of(Op::NextDatabase)
            })
        });
        let Ok(oid) = u32::try_from(next.value) else {
            return found;
        };
        if oid == 0 || !found.insert(oid) {
            return found;
        }
        after = next.value;
    }
}

/// The OIDs of all databases, each with whether it accepts connections and is no template. To be
/// called in a transaction.
pub(crate) fn databases() -> Vec<(pg_sys::Oid, bool)> {
    let mode = pg_sys::AccessShareLock.cast_signed();
    let mut found = Vec::new();
    // SAFETY: reads a shared catalog in a transaction; each row is a FormData_pg_database.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::DatabaseRelationId, mode);
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(
            catalog,
            pg_sys::InvalidOid,
            false,
            none,
            0,
            std::ptr::null_mut(),
        );
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            let form = tuples::fixed_part::<pg_sys::FormData_pg_database>(row);
            found.push(((*form).oid, (*form).datallowconn && !(*form).datistemplate));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, mode);
    }
    found
}
