//! Reads the first page of a segment of a PostgreSQL server's log.
//!
//! Must not: read records.

use crate::head::PostgresFacts;
use crate::log_names::{Piece, parse_segment_name};

/// Whether `start`, the beginning of a file in `pg_wal`, belongs to the segment `name`, and not to
/// an older segment whose file was renamed to be used again (PostgreSQL: `xlp_pageaddr` of
/// `XLogPageHeaderData`). False too when `name` is no segment's, or `start` is too short.
pub(crate) fn begins_segment(name: &str, start: &[u8]) -> bool {
    let facts = segment_facts(name, start);
    let Some((_, number)) = parse_segment_name(name) else {
        return false;
    };
    let in_file = (number & 0xffff_ffff).checked_mul(facts.segment_size_bytes);
    let begins = in_file.and_then(|at| at.checked_add(number & !0xffff_ffff));
    let address = start.get(8..16).and_then(|bytes| bytes.try_into().ok());
    let address = address.map(u64::from_le_bytes);
    // Without a long header the size is 0: every segment begins with one.
    facts.segment_size_bytes > 0 && address.is_some() && address == begins
}

/// What a segment's first page says about its cluster (PostgreSQL: `XLogLongPageHeaderData`,
/// `src/include/access/xlog_internal.h`): system identifier, segment size and timeline. For other
/// files, and without that header, only the file name is set. Nothing is verified.
pub(crate) fn segment_facts(name: &str, content: &[u8]) -> PostgresFacts {
    const LONG_HEADER: u16 = 2;
    let mut facts = PostgresFacts {
        file_name: name.to_owned(),
        ..PostgresFacts::default()
    };
    let first = Piece::of(name).filter(|piece| piece.start == 0);
    let is_segment = first.is_some() || parse_segment_name(name).is_some();
    let word = |at: usize| {
        Some(u32::from_le_bytes(
            content.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let info = content
        .get(2..4)
        .and_then(|info| info.try_into().ok())
        .map(u16::from_le_bytes);
    let long = is_segment && info.is_some_and(|info| info & LONG_HEADER != 0);
    if let (true, Some(low), Some(high)) = (long, word(24), word(28)) {
        facts.system_identifier = ((u64::from(high) << 32) | u64::from(low)).to_string();
        facts.segment_size_bytes = word(32).map_or(0, u64::from);
        facts.timeline = name
            .get(..8)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
            .unwrap_or(0);
    }
    facts
}
