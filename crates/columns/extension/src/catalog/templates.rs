//! Template databases: CREATE DATABASE copies them.
//!
//! A copy of a database would hold identifiers of the original's values, and the zone frees those
//! when the original no longer needs them. So a database with confidential tables cannot be a
//! template. Must not: read another database.

use std::ffi::CStr;

use pg_sys::Oid;
use pgrx::pg_sys;
use strongroom_columns_ring::{Descriptor, Op};

use crate::catalog::options;
use crate::fault;
use crate::ring::zone;

/// The database that CREATE DATABASE copies by default (`catalog/pg_database.dat`).
const TEMPLATE1: &CStr = c"template1";
/// Its OID: `Template1DbOid`.
const TEMPLATE1_OID: u32 = 1;

/// Raises an ERROR for CREATE DATABASE from a database with confidential tables.
///
/// The zone is asked, and has to be reachable, only if another template than `template1` is named:
/// `template1` never has confidential tables.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
pub(super) unsafe fn check_template(command: *mut pg_sys::CreatedbStmt) {
    // SAFETY: the caller's promise; a list of definitions.
    let template = unsafe {
        options::named((*command).options, c"template")
            .find(|definition| !(**definition).arg.is_null())
            .map(|definition| pg_sys::defGetString(definition))
    };
    // SAFETY: a C string of PostgreSQL's.
    let Some(template) = template.filter(|name| unsafe { CStr::from_ptr(*name) } != TEMPLATE1)
    else {
        return;
    };
    // SAFETY: looks the name up; PostgreSQL itself reports a database that does not exist.
    let database = unsafe { pg_sys::get_database_oid(template, true) };
    // initdb's other template accepts no connections, so nothing is in it.
    // SAFETY: as above.
    if database == Oid::INVALID || unsafe { CStr::from_ptr(template) } == c"template0" {
        return;
    }
    let partitions = zone::with(|connection| {
        let holds = Descriptor {
            a: u64::from(database.to_u32()),
            ..Descriptor::of(Op::CountPartitions)
        };
        connection.call(holds)
    });
    if partitions.value > 0 {
        fault::Report::new(
            "0A000",
            "a database with confidential tables cannot be a template",
        )
        .hint("Dump it with pg_dump, and restore the dump into a new database.")
        .raise();
    }
}

/// Raises an ERROR in the database `template1`, which CREATE DATABASE copies by default. To be
/// called for a table with confidential columns.
pub(super) fn refuse_in_template() {
    // SAFETY: set when the session begins.
    if unsafe { pg_sys::MyDatabaseId }.to_u32() == TEMPLATE1_OID {
        fault::Report::new(
            "0A000",
            "the database template1 cannot have confidential tables",
        )
        .hint("Every database is made from it: create the table in a database of its own.")
        .raise();
    }
}
