//! Authenticates every page, log frame and journal slot of a sealed database, without SQLite and
//! without changing anything: a hot journal stays as it is.
//!
//! Invariants:
//! Y1. A unit counts as good only if its tag verifies (AES-256-GCM). Pages of an AES-256-CTR
//!     database are never "ok".
//! Y2. The report names what could not be checked.
//! Y3. A page of the free list whose tag does not verify is not damage, and is named in a note: its
//!     content is not needed, and SQLite does not journal it. Only a list that authenticates, of a
//!     database without a log or a hot journal, is used for this.
//!
//! Must not: write, or judge the contents of pages beyond the number of pages that page 1 gives.

mod logs;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_format::code::{self, Code};
use strongroom_format::header::{
    Anchor, Cipher, FIXED_LEN, HEADER_LEN, Header, ObjectKind, header_layout,
};
use strongroom_format::sqlite::{lock_byte_page, page_offset};
use strongroom_keyring::{Error, Object, Opener, redo};

use crate::big_endian::be_u32_at;
use crate::free_list::free_leaves;
use crate::freshness::{Freshness, judge};
use crate::read_only_file::ReadOnlyFile;
use crate::seal::PageError;
use crate::sealed::OpenedHeader;
use crate::seals;
use logs::{verify_journal, verify_wal};
pub use report::{BadUnit, UnitKind, VerifyReport};

/// How often a page is read before it counts as bad, because another process may be writing it.
const READS: u32 = 3;
/// Pages read at once.
const RUN: u64 = 64;

/// Verifies the pages, log, journal and anchors of the database at `path`, opened with `opener`,
/// and returns what it found. Takes SQLite's shared lock, and changes nothing. `progress` gets
/// pages done and pages in all.
///
/// # Errors
/// Those of opening the header, SR-6010 while another process writes, SR-5001 if a file cannot be
/// read. Bad units are not errors: they are in the report.
pub fn verify(
    path: &Path,
    opener: &Opener,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport, Error> {
    verify_with(path, HeaderKey::Key(opener), progress)
}

/// The key with which a header is opened.
#[derive(Clone, Copy)]
pub(crate) enum HeaderKey<'a> {
    /// An opener.
    Key(&'a Opener),
    /// The keys that an open database retains, for a newer header of the same database.
    Known(&'a Object),
}

/// Verifies the pages, log, journal and anchors of the database at `path`, whose header is opened
/// in either `way`, and returns what it found. Takes SQLite's shared lock, and changes nothing. May
/// report the warnings SR-6012 and SR-6013. Errors: those of opening the header, SR-6010 while a
/// writer keeps the lock, SR-5001 if a file cannot be read.
pub(crate) fn verify_with(
    path: &Path,
    way: HeaderKey<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport, Error> {
    let file = ReadOnlyFile::open(path)?;
    file.lock()?;
    let opened = open_header(path, &file, way)?;
    let mut report = new_report(&opened);
    let anchor = check_anchor(&file, &opened, &mut report)?;
    if let Some(anchor) = &anchor {
        report.seals = seals::estimate(&opened.object, anchor);
        seals::warn_if_many(&path.display().to_string(), &opened.object, anchor);
    }
    let anchor = anchor.map(|anchor| anchor.wal_generation);
    let wal = path_beside(path, "-wal");
    verify_pages(path, &file, &opened, way, &mut report, progress)?;
    verify_wal(&wal, &opened, anchor, &mut report)?;
    let to_roll_back = verify_journal(&path_beside(path, "-journal"), &opened, &mut report)?;
    if report.frames_ok == 0 && !to_roll_back {
        excuse_free_pages(&file, &opened, &mut report)?;
    }
    report.freshness = judge(&file, &opened, &wal, to_roll_back)?;
    note_freshness(&mut report);
    Ok(report)
}

/// Authenticates the pages in the file of a database that this connection may be writing, without a
/// lock, and without its log, journal, anchors and freshness. Errors are those of opening the
/// header, and SR-5001 if the file cannot be read.
pub(crate) fn verify_pages_of_open_file(
    file: &ReadOnlyFile,
    path: &Path,
    known: &Object,
) -> Result<VerifyReport, Error> {
    let way = HeaderKey::Known(known);
    let opened = open_header(path, file, way)?;
    let mut report = new_report(&opened);
    verify_pages(path, file, &opened, way, &mut report, &mut |_, _| {})?;
    Ok(report)
}

/// Makes a report in which nothing is counted yet, with the cipher's name and whether a rekey is
/// under way.
fn new_report(opened: &OpenedHeader) -> VerifyReport {
    VerifyReport {
        cipher: opened.object.header().cipher.name(),
        rekey_under_way: opened.object.previous_epoch().is_some(),
        ..VerifyReport::default()
    }
}

/// Compares only the digest of the database at `path` with the tails of its pages; no page is
/// authenticated. Takes SQLite's shared lock, and changes nothing.
///
/// # Errors
/// Those of opening the header, SR-6010 while another process writes, SR-5001 if a file cannot be
/// read.
pub fn freshness_of(path: &Path, opener: &Opener) -> Result<Freshness, Error> {
    let file = ReadOnlyFile::open(path)?;
    file.lock()?;
    let opened = open_header(path, &file, HeaderKey::Key(opener))?;
    let journal = verify_journal(
        &path_beside(path, "-journal"),
        &opened,
        &mut VerifyReport::default(),
    )?;
    judge(&file, &opened, &path_beside(path, "-wal"), journal)
}

/// Returns `path` with `suffix` appended to its name.
fn path_beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens the newest header of the file, be it in the file or in the redo copy that a rekey left
/// beside it. SR-3006 if the file ends within it; otherwise the errors of opening a header
/// (SR-2002, SR-2017, SR-3001 to SR-3007).
fn open_header(
    path: &Path,
    file: &ReadOnlyFile,
    way: HeaderKey<'_>,
) -> Result<OpenedHeader, Error> {
    let header = redo::newest_header(path, &file.head(HEADER_LEN)?);
    // The redo copy has no anchors. The structure is checked before the key, as when the file is
    // opened.
    if header.len() >= FIXED_LEN && Header::parse(&header).is_ok() && header.len() < HEADER_LEN {
        return Err(Error::new(
            &code::HEADER_TRUNCATED,
            path.display().to_string(),
        ));
    }
    let object = match way {
        HeaderKey::Key(opener) => Object::open(&header, ObjectKind::Sqlite, opener),
        HeaderKey::Known(object) => object.reload(&header),
    };
    OpenedHeader::new(object?)
}

/// Checks both anchors, each alone, and adds those that are not valid to the report as SR-3010.
/// Returns the one in force; `None` if neither is valid. The one in force names the log, and the
/// other replaces it after damage.
fn check_anchor(
    file: &ReadOnlyFile,
    opened: &OpenedHeader,
    report: &mut VerifyReport,
) -> Result<Option<Anchor>, Error> {
    let header = file.head(HEADER_LEN)?;
    let sectors = [header_layout::ANCHOR_A, header_layout::ANCHOR_B];
    for (index, (own, other)) in (1..).zip([(0, 1), (1, 0)]) {
        let mut alone = header.clone();
        if let Some(sector) =
            alone.get_mut(sectors[other].offset..sectors[other].offset + sectors[other].len)
        {
            sector.fill(0);
        }
        if !has_no_anchor(opened.object.anchor(&alone))? {
            continue;
        }
        report.bad.push(BadUnit {
            kind: UnitKind::Anchor,
            index,
            offset: sectors[own].offset as u64,
            code: &code::ANCHOR,
        });
    }
    Ok(opened.object.anchor(&header).ok())
}

/// Whether the answer is SR-3010, that no anchor is valid. Other errors are passed on.
fn has_no_anchor(found: Result<Anchor, Error>) -> Result<bool, Error> {
    match found {
        Ok(_) => Ok(false),
        Err(error) if error.code().number == code::ANCHOR.number => Ok(true),
        Err(error) => Err(error),
    }
}

/// Opens every page that is completely in the file, counts the good ones, and adds the bad ones to
/// the report, also a page in which the file ends. The page of SQLite's lock bytes, and every page
/// under AES-256-CTR, are named as not checked. `progress` gets pages done and pages in all.
/// SR-5001 if the file cannot be read.
fn verify_pages(
    path: &Path,
    file: &ReadOnlyFile,
    opened: &OpenedHeader,
    way: HeaderKey<'_>,
    report: &mut VerifyReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let size = opened.object.header().unit_size;
    let unit = size as usize;
    let length = file.size()?;
    let body = length.saturating_sub(page_offset(1, size));
    report.pages = body / u64::from(size);
    let authenticates = opened.object.header().cipher != Cipher::Aes256Ctr;
    let mut buffer = vec![0; unit * usize::try_from(RUN).unwrap_or(1)];
    let mut first = 1;
    while first <= report.pages {
        let count = RUN.min(report.pages - first + 1);
        let run = buffer
            .get_mut(..unit * usize::try_from(count).unwrap_or(0))
            .unwrap_or_default();
        file.read(run, page_offset(first, size))?;
        for (number, page) in (first..).zip(run.chunks_exact_mut(unit)) {
            if number == lock_byte_page(size) {
                report.not_checked.push(format!(
                    "page {number}: SQLite never writes the page of its lock bytes"
                ));
                continue;
            }
            match open_page(path, file, opened, way, number, page)? {
                None => {
                    report.pages_ok += u64::from(authenticates);
                    if number == 1 {
                        check_length(page, body, report, size);
                    }
                }
                Some(code) => report.bad.push(BadUnit {
                    kind: UnitKind::Page,
                    index: number,
                    offset: page_offset(number, size),
                    code,
                }),
            }
        }
        run.fill(0);
        first += count;
        progress(first - 1, report.pages);
    }
    if body % u64::from(size) != 0 {
        report.ends_early(size);
    }
    if !authenticates {
        report.not_checked.push(format!(
            "{} pages: AES-256-CTR does not authenticate",
            report.pages
        ));
    }
    Ok(())
}

/// Opens `page`, as it was read from the file, in place. If it does not open, reads it up to twice
/// more, 5 ms apart, because another process may be writing it; if it has not changed, opens it
/// with the newest header. `None`: its tag verifies; otherwise why it does not. Errors are those of
/// reading.
fn open_page(
    path: &Path,
    file: &ReadOnlyFile,
    opened: &OpenedHeader,
    way: HeaderKey<'_>,
    number: u64,
    page: &mut [u8],
) -> Result<Option<&'static Code>, Error> {
    let size = opened.object.header().unit_size;
    let raw = page.to_vec();
    let mut outcome = try_page(opened, number, page);
    for _ in 1..READS {
        if outcome.is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        file.read(page, page_offset(number, size))?;
        if page == raw {
            // No process is writing it: it is bad, unless a rekey began meanwhile.
            let newer = open_header(path, file, way)?;
            outcome = try_page(&newer, number, page);
            break;
        }
        outcome = try_page(opened, number, page);
    }
    Ok(outcome)
}

/// Opens a page in place, under the key of its epoch. `None` if it opens; else SR-4001 if it is not
/// authentic, or SR-4008 if the header does not have its epoch.
fn try_page(opened: &OpenedHeader, number: u64, page: &mut [u8]) -> Option<&'static Code> {
    let first = match opened.current.open(number, page) {
        Ok(()) => return None,
        Err(error) => error,
    };
    let PageError::Epoch(epoch) = first else {
        return Some(&code::PAGE);
    };
    match opened.cipher(epoch) {
        Some(cipher) => cipher.open(number, page).is_err().then_some(&code::PAGE),
        None if epoch == 0 || epoch > opened.current.epoch().saturating_add(1) => Some(&code::PAGE),
        None => Some(&code::UNKNOWN_EPOCH),
    }
}

/// Moves bad pages that are leaves of the free list from the bad units to the notes (Y3). Does
/// nothing unless the list itself is authentic. SR-5001 if the file cannot be read.
fn excuse_free_pages(
    file: &ReadOnlyFile,
    opened: &OpenedHeader,
    report: &mut VerifyReport,
) -> Result<(), Error> {
    let is_page = |bad: &BadUnit| {
        bad.kind == UnitKind::Page && bad.code.number != code::PAGE_TRUNCATED.number
    };
    let authenticates = opened.object.header().cipher != Cipher::Aes256Ctr;
    if !authenticates || !report.bad.iter().any(is_page) {
        return Ok(());
    }
    let (size, pages) = (opened.object.header().unit_size, report.pages);
    let leaves = free_leaves(size, |number, page| {
        if number > pages {
            return Ok::<bool, Error>(false);
        }
        file.read(page, page_offset(number, size))?;
        Ok(try_page(opened, number, page).is_none())
    })?;
    let leaves = leaves.unwrap_or_default();
    let (free, bad): (Vec<BadUnit>, Vec<BadUnit>) = std::mem::take(&mut report.bad)
        .into_iter()
        .partition(|bad| is_page(bad) && leaves.contains(&bad.index));
    report.bad = bad;
    if let Some(first) = free.first() {
        report.notes.push(format!(
            "{} pages of the free list are not authentic, the first is page {}: a write of them was cut short, or they were changed. Nothing is lost: SQLite has no use for what they held. A rekey seals them again",
            free.len(),
            first.index
        ));
    }
    Ok(())
}

/// Adds SR-4002 to the report if the file has fewer pages than page 1 says, where page 1 says that
/// its number is valid (SQLite file format, section 1.3.7). An incomplete page is reported
/// elsewhere.
fn check_length(page1: &[u8], body: u64, report: &mut VerifyReport, size: u32) {
    let (change, pages, valid_for) = (
        be_u32_at(page1, 24),
        be_u32_at(page1, 28),
        be_u32_at(page1, 92),
    );
    let (Some(change), Some(pages), Some(valid_for)) = (change, pages, valid_for) else {
        return;
    };
    let cut = !body.is_multiple_of(u64::from(size));
    if change == valid_for && u64::from(pages) > report.pages && !cut {
        report.ends_early(size);
    }
}

/// Adds to the report, as not checked, what could not be said of the database's freshness. Adds
/// nothing for stale pages, which the report has as a result.
fn note_freshness(report: &mut VerifyReport) {
    let what = match report.freshness {
        Freshness::NotKept => {
            "freshness: an older copy of a page, of the log's end or of the whole file carries valid tags"
        }
        Freshness::Holds { log: false, .. } => {
            "freshness of the whole file: compare the root with one that was kept elsewhere"
        }
        Freshness::Holds { log: true, .. } => {
            "freshness of the whole file, and of the end of the write-ahead log: the digest is of the file without it"
        }
        Freshness::Unknown => {
            "freshness: a transaction was rolled back after a crash, so it cannot be told whether a page is an older copy"
        }
        Freshness::RollbackPending => {
            "freshness: a transaction is to be rolled back first; open the database once"
        }
        Freshness::Busy => "freshness: the database was written meanwhile",
        Freshness::NoAnchor => "freshness: no anchor is valid",
        Freshness::Stale => return,
    };
    report.not_checked.push(what.to_owned());
}
