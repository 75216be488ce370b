//! Compares the contents of a file of a PostgreSQL server's log with its name.
//!
//! A segment's first page states which segment it is, of which cluster, and how long; every later
//! page states its address. A file that is sealed, belongs to another place in the log, or is
//! damaged at a page's beginning is therefore recognized without a server.
//!
//! Must not: interpret records. Only their lengths are read, to find the last one.

use strongroom_format::code;

use crate::log_names::parse_segment_name;
use crate::timeline_history::parse_history;
use crate::{Error, Result};

/// Bytes of a page of the log (`XLOG_BLCKSZ`; servers of another size are refused elsewhere).
const PAGE: usize = 8192;
/// `XLP_FIRST_IS_CONTRECORD`: a page begins with the rest of a record.
const CONTINUED: u16 = 1;
/// `XLP_LONG_HEADER`.
const LONG_HEADER: u16 = 2;
/// `XLP_FIRST_IS_OVERWRITE_CONTRECORD`: the record that should go on here was given up.
const OVERWRITES: u16 = 8;
/// Bytes of a page's header: the first page's of a segment, and any other's.
const LONG_HEADER_LEN: usize = 40;
const HEADER_LEN: usize = 24;
/// `SizeOfXLogRecord`: no record is shorter.
const RECORD_MIN: usize = 24;
/// The second byte of `XLOG_PAGE_MAGIC` in every version so far.
const MAGIC_KIND: u8 = 0xd1;
/// `WalSegMinSize`, `WalSegMaxSize`.
const SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// The result of examining the pages of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// The cluster's number (`Database system identifier`).
    pub(crate) system: u64,
    /// Whether every page either belongs to the segment, or is zero after the last one that does.
    /// The last segment of a timeline may have older pages at its end.
    pub(crate) whole: bool,
}

/// The used fields of a page's header (`XLogPageHeaderData`, `src/include/access/xlog_internal.h`).
struct Header {
    magic: [u8; 2],
    info: u16,
    timeline: u32,
    address: u64,
}

impl Header {
    /// Reads a page's header; `None` when there are too few bytes.
    fn of(page: &[u8]) -> Option<Self> {
        Some(Self {
            magic: array(page, 0)?,
            info: u16::from_le_bytes(array(page, 2)?),
            timeline: u32::from_le_bytes(array(page, 4)?),
            address: u64::from_le_bytes(array(page, 8)?),
        })
    }
}

/// The bytes at this position; `None` when there are too few.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Compares a file with its name before it is archived. Returns the cluster's number for a segment,
/// whole or partial, and `None` for a timeline's or a backup's history. Of records nothing is
/// checked. SR-7173 when PostgreSQL does not archive such a file, or its content does not match its
/// name.
pub(crate) fn check_archivable(name: &str, content: &[u8]) -> Result<Option<u64>> {
    let refused = |why: &str| Error::new(&code::NOT_LOG, format!("{name}: {why}"));
    let whole = name.strip_suffix(".partial").unwrap_or(name);
    if parse_segment_name(whole).is_some() {
        let pages = examine_pages(whole, content).map_err(refused)?;
        return Ok(Some(pages.system));
    }
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
    if name
        .strip_suffix(".history")
        .is_some_and(|id| digits(id, 8))
    {
        let found = parse_history(content).filter(|branches| !branches.is_empty());
        return match found {
            Some(_) => Ok(None),
            None => Err(refused("not a timeline's history")),
        };
    }
    let backup = name
        .strip_suffix(".backup")
        .and_then(|of| of.split_once('.'));
    if backup.is_some_and(|(of, at)| parse_segment_name(of).is_some() && digits(at, 8)) {
        return match content.starts_with(b"START WAL LOCATION: ") {
            true => Ok(None),
            false => Err(refused("not a backup's history")),
        };
    }
    Err(refused("not a name of a server's log"))
}

/// Examines the first page and the addresses of all pages of `content`, which should be the segment
/// `name`. Returns its cluster's number, and whether its pages go on to its end. The error says why
/// the content is not that segment: another place in the log, a later timeline, another length, or
/// no log at all.
pub(crate) fn examine_pages(
    name: &str,
    content: &[u8],
) -> std::result::Result<Pages, &'static str> {
    const NOT_ONE: &str = "not a segment of the log: it is sealed, damaged or something else";
    let (timeline, number) = parse_segment_name(name).ok_or(NOT_ONE)?;
    let first = Header::of(content).ok_or(NOT_ONE)?;
    let system = array(content, 24).map(u64::from_le_bytes).ok_or(NOT_ONE)?;
    let size = array(content, 32).map(u32::from_le_bytes).map(u64::from);
    let size = size.filter(|size| SIZES.contains(size) && size.is_power_of_two());
    let block = array(content, 36).map(u32::from_le_bytes);
    let [_, kind] = first.magic;
    let long = first.info & LONG_HEADER != 0 && block == Some(8192) && kind == MAGIC_KIND;
    let size = size.filter(|_| long).ok_or(NOT_ONE)?;
    let within = (number & 0xffff_ffff).checked_mul(size);
    let begins = within.and_then(|at| at.checked_add(number & !0xffff_ffff));
    if begins != Some(first.address) {
        return Err("a segment of another place in the log");
    }
    // What was written before a timeline began is copied into its first segment.
    if u64::from(first.timeline) > timeline {
        return Err("a segment of a later timeline");
    }
    if content.len() as u64 != size {
        return Err("not as long as a segment");
    }
    let whole = are_pages_in_order(&first, timeline, content);
    Ok(Pages { system, whole })
}

/// Whether each page has the segment's version and its own address, and everything after the last
/// such page is zero, as in a segment that the server left early.
fn are_pages_in_order(first: &Header, timeline: u64, content: &[u8]) -> bool {
    let mut address = first.address;
    let mut before = first.timeline;
    let mut ended = false;
    for page in content.chunks(PAGE) {
        let Some(header) = Header::of(page) else {
            return false;
        };
        let goes_on = header.magic == first.magic
            && header.address == address
            && header.timeline >= before
            && u64::from(header.timeline) <= timeline;
        if ended || !goes_on {
            ended = true;
            if page.iter().any(|&byte| byte != 0) {
                return false;
            }
        } else {
            before = header.timeline;
        }
        address = address.saturating_add(PAGE as u64);
    }
    true
}

/// The end of a record's bytes.
enum End {
    At(usize),
    /// The record was given up, and another one begins here.
    GivenUp(usize),
}

/// The position of the last complete record in a segment, found by the lengths of the records.
/// `None` when there is none, or this is not a segment.
pub(crate) fn last_record(content: &[u8]) -> Option<u64> {
    let first = Header::of(content).filter(|first| first.info & LONG_HEADER != 0)?;
    let mut at = LONG_HEADER_LEN;
    if first.info & CONTINUED != 0 {
        let rest = array(content, 16).map(u32::from_le_bytes)?;
        match record_end(&first, content, at, usize::try_from(rest).ok()?)? {
            End::At(end) | End::GivenUp(end) => at = end,
        }
    }
    let mut last: Option<usize> = None;
    while let Some(begins) = record_at(&first, content, at) {
        let length = array(content, begins).map(u32::from_le_bytes);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length >= RECORD_MIN) else {
            break;
        };
        // `xl_prev` of records that an older use of the file has left does not match. It is not
        // checked for a header that continues on the next page.
        let previous = array(content, begins.saturating_add(8)).map(u64::from_le_bytes);
        let in_page = begins % PAGE <= PAGE - 16;
        let before = last.map(|last| first.address.saturating_add(last as u64));
        if in_page && before.is_some_and(|before| previous != Some(before)) {
            break;
        }
        match record_end(&first, content, begins, length) {
            Some(End::At(end)) => {
                last = Some(begins);
                at = end;
            }
            Some(End::GivenUp(next)) => at = next,
            None => break,
        }
    }
    last.map(|last| first.address.saturating_add(last as u64))
}

/// The start of the record after one that ends at `at`. Records are aligned to 8 bytes, and never
/// start within a page's header. `None` outside of this segment.
fn record_at(first: &Header, content: &[u8], at: usize) -> Option<usize> {
    let aligned = at.next_multiple_of(8);
    if !aligned.is_multiple_of(PAGE) {
        return (aligned < content.len()).then_some(aligned);
    }
    page_at(first, content, aligned)?;
    Some(aligned.saturating_add(HEADER_LEN))
}

/// Finds the end of a record of which `left` bytes follow from `at` on, across the headers of
/// pages. `None` when it is not in this segment.
fn record_end(first: &Header, content: &[u8], mut at: usize, mut left: usize) -> Option<End> {
    loop {
        let page_end = at.saturating_add(1).next_multiple_of(PAGE);
        let room = page_end.saturating_sub(at);
        if left <= room {
            return Some(End::At(at.saturating_add(left)));
        }
        left = left.saturating_sub(room);
        let page = page_at(first, content, page_end)?;
        at = page_end.saturating_add(HEADER_LEN);
        if page.info & OVERWRITES != 0 {
            return Some(End::GivenUp(at));
        }
    }
}

/// The header of a later page, if it is this segment's. `None` when it is missing, or of another
/// place or version.
fn page_at(first: &Header, content: &[u8], at: usize) -> Option<Header> {
    let address = first.address.checked_add(at as u64)?;
    let page = Header::of(content.get(at..)?)?;
    (page.magic == first.magic && page.address == address).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "000000020000000100000003";
    const SIZE: usize = 1 << 20;

    /// The segment NAME of 1 MiB: `pages` pages, zeros after that.
    fn made(pages: usize) -> Vec<u8> {
        let mut content = vec![0; SIZE];
        for (at, page) in content.chunks_mut(PAGE).take(pages).enumerate() {
            let address = (1_u64 << 32) + 3 * SIZE as u64 + (at * PAGE) as u64;
            page[..4].copy_from_slice(&[0x10, 0xd1, if at == 0 { 2 } else { 0 }, 0]);
            page[4] = if at < 2 { 1 } else { 2 };
            page[8..16].copy_from_slice(&address.to_le_bytes());
            page[100] = 7;
        }
        content[24..32].copy_from_slice(&77_u64.to_le_bytes());
        content[32..36].copy_from_slice(&(1_u32 << 20).to_le_bytes());
        content[36..40].copy_from_slice(&8192_u32.to_le_bytes());
        content
    }

    fn is_refused(name: &str, content: &[u8]) -> bool {
        check_archivable(name, content).is_err_and(|error| error.code().number == 7173)
    }

    #[test]
    fn a_segment_is_what_its_pages_say() {
        let whole = Pages {
            system: 77,
            whole: true,
        };
        for count in [1, 2, 5, 128] {
            assert_eq!(examine_pages(NAME, &made(count)), Ok(whole), "{count}");
            assert_eq!(check_archivable(NAME, &made(count)).unwrap(), Some(77));
        }
        let partial = format!("{NAME}.partial");
        assert_eq!(check_archivable(&partial, &made(3)).unwrap(), Some(77));
        // A page of another address, magic, or a timeline that goes back or too far; something
        // behind the end.
        for (at, byte) in [
            (PAGE * 4 + 9, 1),
            (PAGE * 4, 0x11),
            (PAGE * 4 + 4, 1),
            (PAGE * 4 + 4, 3),
        ] {
            let mut content = made(128);
            content[at] = byte;
            assert_eq!(
                examine_pages(NAME, &content).map(|pages| pages.whole),
                Ok(false),
                "{at}"
            );
        }
        let mut content = made(5);
        content[SIZE - 1] = 1;
        assert_eq!(
            examine_pages(NAME, &content).map(|pages| pages.whole),
            Ok(false)
        );
    }

    /// A record at `at`, of `length` bytes, after one at `before`.
    fn put_record(content: &mut [u8], at: usize, length: u32, before: usize) {
        content[at..at + 4].copy_from_slice(&length.to_le_bytes());
        let before = (1_u64 << 32) + 3 * SIZE as u64 + before as u64;
        content[at + 8..at + 16].copy_from_slice(&before.to_le_bytes());
    }

    #[test]
    fn the_last_record_is_found_by_lengths() {
        let begins = (1_u64 << 32) + 3 * SIZE as u64;
        let position = |at: usize| Some(begins + at as u64);
        let mut content = made(5);
        for page in content.chunks_mut(PAGE).take(5) {
            page[100] = 0;
        }
        assert_eq!(last_record(&content), None);
        // The first page begins with 30 bytes of a record of the segment before.
        content[2] |= 1;
        content[16..20].copy_from_slice(&30_u32.to_le_bytes());
        put_record(&mut content, 72, 50, 0);
        assert_eq!(last_record(&content), position(72));
        // The next one goes over to the next page; the one after that begins behind its header and
        // 40 bytes of it.
        put_record(&mut content, 128, 8192 - 128 + 40, 72);
        assert_eq!(last_record(&content), position(128));
        let third = PAGE + 24 + 40;
        put_record(&mut content, third, 24, 128);
        assert_eq!(last_record(&content), position(third));
        // What an older use of the file has left, and what does not end in the pages that are
        // there.
        put_record(&mut content, third + 24, 24, 128);
        assert_eq!(last_record(&content), position(third));
        put_record(&mut content, third + 24, 60_000, third);
        assert_eq!(last_record(&content), position(third));
        // A record that was given up, and the one that takes its place on the next page.
        put_record(&mut content, third + 24, 8192, third);
        content[2 * PAGE + 2] = 8;
        put_record(&mut content, 2 * PAGE + 24, 32, third);
        assert_eq!(last_record(&content), position(2 * PAGE + 24));
        // One that ends with its page.
        let rest = u32::try_from(3 * PAGE - (2 * PAGE + 24 + 32)).unwrap();
        put_record(&mut content, 2 * PAGE + 24 + 32, rest, 2 * PAGE + 24);
        put_record(&mut content, 3 * PAGE + 24, 24, 2 * PAGE + 24 + 32);
        assert_eq!(last_record(&content), position(3 * PAGE + 24));
    }

    #[test]
    fn what_is_no_segment_of_its_name_is_refused() {
        let good = made(3);
        for at in [1, 2, 4, 9, 12, 33, 37] {
            let mut bad = good.clone();
            bad[at] ^= 0x12;
            assert!(is_refused(NAME, &bad), "{at}");
        }
        assert!(is_refused("000000020000000100000004", &good));
        assert!(is_refused("000000010000000200000003", &good));
        assert!(is_refused(NAME, &good[..SIZE - 1]));
        assert!(is_refused(NAME, &[&good[..], &[0]].concat()));
        for short in 0..64 {
            assert!(is_refused(NAME, &good[..short]), "{short}");
        }
        assert!(is_refused(NAME, &vec![0; SIZE]));
    }

    #[test]
    fn only_what_postgresql_archives_is_archived() {
        let line = b"1\t0/3000000\tno recovery target\n";
        assert_eq!(check_archivable("00000002.history", line).unwrap(), None);
        let backup = b"START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\n";
        let name = "000000010000000000000002.00000028.backup";
        assert_eq!(check_archivable(name, backup).unwrap(), None);
        for (name, content) in [
            ("00000002.history", &b"\x7fELF"[..]),
            ("00000002.history", b""),
            ("2.history", line),
            (name, line),
            ("000000010000000000000002.28.backup", backup),
            ("postgresql.conf", b"port = 5432\n"),
            ("00000001000000000000000A.00000000.00001000.piece", b"x"),
        ] {
            assert!(is_refused(name, content), "{name}");
        }
    }
}
