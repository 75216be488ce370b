//! The end of the server's log.
//!
//! Must not: read the log.

use pg_sys::XLogRecPtr;
use pgrx::pg_sys;

/// Length of a page of the log (`XLOG_BLCKSZ`).
const PAGE: u64 = pg_sys::XLOG_BLCKSZ as u64;
/// Length of a page's header (`access/xlog_internal.h`, `SizeOfXLogShortPHD`).
const PAGE_HEADER: u64 = 24;
/// Length of the header of a segment's first page (`SizeOfXLogLongPHD`).
const SEGMENT_HEADER: u64 = 40;

/// The end of the readable log, and its timeline. On a primary, makes durable what was inserted
/// until now first.
pub(crate) fn readable(standby: bool) -> (XLogRecPtr, u32) {
    let mut timeline = 0;
    if standby {
        // SAFETY: asks the server.
        let end = unsafe { pg_sys::GetXLogReplayRecPtr(&raw mut timeline) };
        return (end, timeline);
    }
    let end = flush();
    // SAFETY: asks the server.
    let durable = unsafe { pg_sys::GetFlushRecPtr(&raw mut timeline) };
    (durable.min(end), timeline)
}

/// Makes the log durable that was inserted until now, and returns where it ended. Not for a server
/// in recovery. Waits for the disk.
pub(crate) fn flush() -> XLogRecPtr {
    // SAFETY: asks the server; the size is set when it starts, and at least 1 MiB.
    let (next, segment) = unsafe { (pg_sys::GetXLogInsertRecPtr(), pg_sys::wal_segment_size) };
    let end = end_before(next, u64::from(segment.cast_unsigned()));
    // SAFETY: the log was inserted up to there.
    unsafe { pg_sys::XLogFlush(end) };
    end
}

/// The end of the log whose next record is inserted at `next`, in segments of `segment` bytes.
///
/// Where a record ends with its page, the next one is inserted behind the header of the page that
/// follows. That header is not written before a record is: the log ends where that page begins, and
/// PostgreSQL refuses to make it durable up to a position behind its end.
const fn end_before(next: u64, segment: u64) -> u64 {
    let in_page = next % PAGE;
    let page = next - in_page;
    let header = if page.is_multiple_of(segment) {
        SEGMENT_HEADER
    } else {
        PAGE_HEADER
    };
    if in_page <= header { page } else { next }
}
