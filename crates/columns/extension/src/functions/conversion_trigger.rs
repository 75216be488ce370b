//! `strongroom_columns.conversion()`: the trigger of a table while one of its columns is converted.
//!
//! `strongroom columns convert` fills a new column from an old one. When a row's old column is
//! written meanwhile, the trigger sets the new column to NULL, so that the row is converted again.
//! Values are compared by their stored form: the trigger needs no zone and no ticket. Must not:
//! read a value.

use std::ffi::c_int;

use pg_sys::Datum;
use pgrx::pg_sys;

use crate::call::{Call, call_postgres, sql_functions};
use crate::fault;

unsafe extern "C-unwind" {
    /// Whether two values have the same stored form, byte by byte.
    // src/backend/utils/adt/datum.c. Values that are stored out of line are compared by their
    // location.
    fn datumIsEqual(one: Datum, other: Datum, by_value: bool, len: isize) -> bool;
}

sql_functions! {
    /// `strongroom_columns.conversion()`, with the names of the old and of the new column
    strongroom_conversion, pg_finfo_strongroom_conversion => conversion;
}

/// commands/trigger.h: the operation, in the lowest bits of the event.
const OPERATION: u32 = 3;
const UPDATE: u32 = 2;
/// commands/trigger.h: for each row, before the operation.
const ROW: u32 = 4;
const BEFORE: u32 = 8;

/// Raises the ERROR for a trigger that was made in another way than this one needs.
fn raise_misuse() -> ! {
    fault::Report::new(
        "39P01",
        "strongroom_columns.conversion() is for BEFORE INSERT OR UPDATE triggers of rows, with \
         the names of two columns",
    )
    .raise()
}

/// The trigger: returns the new row, with its second named column set to NULL if the first one
/// changes or the row is new, so that it is converted again. Raises an ERROR if it was not called
/// as such a trigger.
fn conversion(call: &mut Call) -> Datum {
    let Some(data) = call.trigger() else {
        raise_misuse()
    };
    // SAFETY: the arguments of a trigger, valid as long as the call; the trigger's own arguments
    // are C strings.
    unsafe {
        let event = (*data).tg_event;
        let trigger = (*data).tg_trigger;
        if event & (ROW | BEFORE) != (ROW | BEFORE) || (*trigger).tgnargs != 2 {
            raise_misuse();
        }
        let columns = (*(*data).tg_relation).rd_att;
        let source = pg_sys::SPI_fnumber(columns, *(*trigger).tgargs);
        let target = pg_sys::SPI_fnumber(columns, *(*trigger).tgargs.add(1));
        if source <= 0 || target <= 0 {
            raise_misuse();
        }
        let (old, new) = match event & OPERATION {
            UPDATE => ((*data).tg_trigtuple, (*data).tg_newtuple),
            _ => (std::ptr::null_mut(), (*data).tg_trigtuple),
        };
        let is_unchanged = !old.is_null() && is_same(columns, source, old, new);
        if is_unchanged || value(columns, target, new).is_none() {
            return Datum::from(new);
        }
        let (null, is_null) = (Datum::null(), true);
        Datum::from(pg_sys::heap_modify_tuple_by_cols(
            new,
            columns,
            1,
            (&raw const target).cast_mut(),
            (&raw const null).cast_mut(),
            (&raw const is_null).cast_mut(),
        ))
    }
}

/// A column of a row. `None` if it is NULL.
///
/// # Safety
///
/// The row is of these columns.
unsafe fn value(columns: pg_sys::TupleDesc, at: c_int, row: pg_sys::HeapTuple) -> Option<Datum> {
    let mut is_null = false;
    // SAFETY: the caller's promise.
    let value = unsafe { pg_sys::SPI_getbinval(row, columns, at, &raw mut is_null) };
    (!is_null).then_some(value)
}

/// Whether a column's stored form is the same in both rows.
///
/// # Safety
///
/// Both rows are of these columns.
unsafe fn is_same(
    columns: pg_sys::TupleDesc,
    at: c_int,
    old: pg_sys::HeapTuple,
    new: pg_sys::HeapTuple,
) -> bool {
    // SAFETY: the caller's promise.
    let (before, after) = unsafe { (value(columns, at, old), value(columns, at, new)) };
    match (before, after) {
        (None, None) => true,
        (Some(before), Some(after)) => {
            let index = usize::try_from(at - 1).unwrap_or(0);
            // SAFETY: a row type has as many attributes as its columns' numbers say.
            let column = unsafe { &(*columns).attrs.as_slice(index + 1)[index] };
            let (by_value, len) = (column.attbyval, isize::from(column.attlen));
            // SAFETY: both are values of that column.
            unsafe { call_postgres(|| datumIsEqual(before, after, by_value, len)) }
        }
        _ => false,
    }
}
