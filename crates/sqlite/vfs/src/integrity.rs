//! `PRAGMA cipher_integrity_check`, as `SQLCipher`'s users know it: no row when every page is
//! authentic, else the units that are not.
//!
//! The answer is one text, because a file control has room for one only, with a line for each bad
//! page, frame or slot.
//!
//! Must not: return nothing when something was not checked.

use std::path::Path;

use strongroom_format::code;

use crate::ffi::sqlite3_file;
use crate::freshness::Freshness;
use crate::handle::with;
use crate::lower::LowerFile;
use crate::read_only_file::ReadOnlyFile;
use crate::remote::is_remote;
use crate::report::{report, report_error};
use crate::sealed::OpenedHeader;
use crate::sqlite_code::SqliteResult;
use crate::verify::{HeaderKey, VerifyReport, verify_pages_of_open_file, verify_with};

/// Most lines of an answer.
const LINES: usize = 100;

/// The database to be checked.
struct Open {
    path: String,
    opened: std::sync::Arc<OpenedHeader>,
    lower: LowerFile,
    /// This connection is in a transaction, or holds the file exclusively: no other file object
    /// gets a lock.
    writing: bool,
}

/// Answers `PRAGMA cipher_integrity_check`: verifies every page of the database of `file`, and
/// returns what is not authentic as text, a line for each unit. `None` when everything is
/// authentic, or nothing was written yet. Takes SQLite's shared lock, and verifies log and journal
/// too, unless this connection is writing or the file is remote. Changes nothing.
///
/// # Errors
/// SR-2280 for a plain database; SR-2001 for one that no key has opened; SR-6010 while another
/// connection writes; SR-5001 if a file cannot be read; those of opening the header. Each is
/// reported.
pub(crate) fn check(file: *mut sqlite3_file) -> SqliteResult<Option<String>> {
    let open = with(file, |open| {
        let Some(main) = open.file.as_main() else {
            let detail = "PRAGMA cipher_integrity_check: nothing authenticates a plain database";
            return Err(report(&code::FOREIGN_WORD, detail));
        };
        let opened = main.opened_header().cloned();
        let opened = opened.ok_or_else(|| report(&code::NO_KEY, main.path()))?;
        Ok(main.has_header().then(|| Open {
            path: main.path().to_owned(),
            opened,
            lower: main.lower(),
            writing: main.is_writing(),
        }))
    })?;
    let Some(open) = open else {
        return Ok(None); // Nothing was written yet.
    };
    let path = Path::new(&open.path);
    let object = &open.opened.object;
    let found = if open.writing || is_remote(open.lower) {
        verify_pages_of_open_file(
            &ReadOnlyFile::borrowed(open.lower, &open.path),
            path,
            object,
        )
    } else {
        verify_with(path, HeaderKey::Known(object), &mut |_, _| {})
    };
    let found = found.map_err(|error| report_error(&error))?;
    Ok(lines(&found))
}

/// Formats the report as lines of text: the first 100 bad units, "and N more", SR-4012 if the pages
/// are not the newest, and a remark on AES-256-CTR, which authenticates nothing. `None` when there
/// is nothing to say.
fn lines(found: &VerifyReport) -> Option<String> {
    let mut lines: Vec<String> = found
        .bad
        .iter()
        .take(LINES)
        .map(|bad| {
            let (kind, index, number) = (bad.kind.name(), bad.index, bad.code.number);
            format!("{kind} {index}: SR-{number}, {}", bad.code.what)
        })
        .collect();
    if let Some(more) = found.bad.len().checked_sub(LINES).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    if found.freshness == Freshness::Stale {
        let stale = &code::STALE;
        lines.push(format!("SR-{}, {}", stale.number, stale.what));
    }
    if found.cipher == strongroom_format::header::Cipher::Aes256Ctr.name() {
        lines.push("AES-256-CTR does not authenticate: changed pages go unnoticed".to_owned());
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}
