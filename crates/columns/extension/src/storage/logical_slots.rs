//! Up to where logical replication slots have decoded the write-ahead log.
//!
//! Decoding reads rows that were deleted since, so their values must stay. Must not: change a slot.

use pgrx::pg_sys;

/// Whether there is a logical replication slot, which may still have to decode what this
/// transaction does.
pub(super) fn any() -> bool {
    decoded_position().is_some()
}

/// The position up to which all logical replication slots have decoded the log. `None` if there is
/// no logical slot.
pub(super) fn decoded_position() -> Option<u64> {
    // SAFETY: reads a setting.
    let count = usize::try_from(unsafe { pg_sys::max_replication_slots }).unwrap_or(0);
    // SAFETY: the server's slots, as many as the setting says, for as long as it runs; numbers that
    // others may change are read once.
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
