//! Whether the zone's store and the server's log belong together (L8).
//!
//! Must not: read the log, or ask the zone.

use pg_sys::XLogRecPtr;
use pgrx::pg_sys;

use crate::fault;

unsafe extern "C-unwind" {
    /// The history of a timeline; the timeline alone if there is no file of it.
    // src/backend/access/transam/timeline.c; not among pgrx's bindings.
    fn readTimeLineHistory(timeline: u32) -> *mut pg_sys::List;
    /// Whether a history contains a timeline.
    fn tliInHistory(timeline: u32, history: *mut pg_sys::List) -> bool;
    /// The position at which a history left a timeline; 0 for its last one.
    fn tliSwitchPoint(timeline: u32, history: *mut pg_sys::List, next: *mut u32) -> XLogRecPtr;
}

/// A position of a log, and its timeline; 0 if that is not known.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) position: XLogRecPtr,
    pub(crate) timeline: u32,
}

impl Reached {
    /// Whether the history of the timeline `later` contains this position: it is of that timeline,
    /// or of one that the history left there or later. True if either timeline is not known.
    fn is_in_history_of(self, later: u32) -> bool {
        let of = self.timeline;
        if of == 0 || later == 0 || of == later {
            return true;
        }
        // SAFETY: reads the server's own file; a timeline of the history has an end. The list is
        // this function's own.
        unsafe {
            let history = readTimeLineHistory(later);
            let contained = tliInHistory(of, history) && {
                let left = tliSwitchPoint(of, history, std::ptr::null_mut());
                left == 0 || self.position <= left
            };
            pg_sys::list_free_deep(history);
            contained
        }
    }
}

/// Raises an ERROR if the store has read log which this server's history does not contain.
/// `store` is how far the store is, `end` the end of the server's log. Nothing for a store without
/// a position.
pub(crate) fn check(store: Reached, end: Reached) {
    if store.position != 0 && !store.is_in_history_of(end.timeline) {
        raise_other(store, end);
    }
}

/// Raises an ERROR if a standby whose log ends before this position of the store's cannot come
/// there. It may have been killed before what it had replayed was durable, and replays it again;
/// then it may yet be on a timeline that the store's comes from.
pub(crate) fn check_to_come(store: Reached, end: Reached) {
    if !store.is_in_history_of(end.timeline) && !end.is_in_history_of(store.timeline) {
        raise_other(store, end);
    }
}

/// Raises the ERROR for a store and a log of different histories.
fn raise_other(store: Reached, end: Reached) -> ! {
    fault::Report::new(
        "55000",
        "the zone's store and the server's log belong to different histories (SR-8030)",
    )
    .detail(&format!(
        "The store has read timeline {} to {:X}/{:X}; the server is on timeline {}, \
         whose history left it before.",
        store.timeline,
        store.position >> 32,
        store.position & 0xffff_ffff,
        end.timeline
    ))
    .hint(
        "Bring the zone a store from before the histories parted, or a copy of the \
         store of the zone whose server this one follows.",
    )
    .raise()
}

/// Raises an ERROR if the zone's store is not the first one of this server: a store that has no
/// position in the log yet has none of the values of another one, and to advance the slot for it
/// would give up the log that the other one needs. `had_one` says whether a store has had a
/// position, which the slot knows. A standby's store is a copy of its primary's, which has one.
pub(crate) fn refuse_unless_first(standby: bool, had_one: bool) {
    let told = if standby {
        "the zone's store is new, and this server is a standby (SR-8030)"
    } else if had_one {
        "the zone's store is new, and this server has had another one (SR-8030)"
    } else {
        return;
    };
    fault::Report::new("55000", told)
        .hint(
            "Start the zone with the directory that its values are in (--state): is a disk not \
             mounted? A standby needs a copy of its primary's. To begin anew, without the values \
             that there are, drop the replication slot strongroom_columns.",
        )
        .raise();
}
