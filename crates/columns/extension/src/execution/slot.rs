//! A row in a slot of the executor.
//!
//! Must not: change the row.

use pg_sys::TupleTableSlot;
use pgrx::pg_sys;

use crate::call::bits;

/// A row whose values have been fetched.
pub(crate) struct Row {
    slot: *mut TupleTableSlot,
    columns: i32,
}

impl Row {
    /// Fetches all values of the row in a slot.
    ///
    /// # Safety
    ///
    /// A slot with a row, which does not change while this lives.
    pub(crate) unsafe fn of(slot: *mut TupleTableSlot) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let columns = (*(*slot).tts_tupleDescriptor).natts;
            if i32::from((*slot).tts_nvalid) < columns {
                pg_sys::slot_getsomeattrs_int(slot, columns);
            }
            Self { slot, columns }
        }
    }

    /// The identifier in the confidential column `number`, from 1. `None` if it is NULL or the row
    /// has no such column.
    pub(crate) fn identifier(&self, number: i16) -> Option<u64> {
        let at = usize::try_from(number - 1).ok()?;
        if i32::from(number) > self.columns {
            return None;
        }
        // SAFETY: `of` has fetched the values up to the row type's length.
        unsafe {
            let null = *(*self.slot).tts_isnull.add(at);
            (!null).then(|| bits(*(*self.slot).tts_values.add(at)))
        }
    }
}
