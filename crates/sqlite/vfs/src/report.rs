//! Reports errors. SQLite's interface carries only a number, so the text goes to SQLite's log, to
//! the "last error" that the SQL function and the Rust library read, and, in the loadable
//! extension, to standard error.
//!
//! Must not: be given anything secret. Nothing is redacted here.
#![expect(unsafe_code, reason = "calls sqlite3_log")]
#![expect(
    clippy::print_stderr,
    reason = "the extension's only way to show a text; off in the library"
)]

use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_format::code::{self, Class, Code};
use strongroom_keyring::Error;

use crate::api::api;
use crate::ffi::{
    SQLITE_AUTH, SQLITE_CANTOPEN, SQLITE_CORRUPT, SQLITE_ERROR, SQLITE_INTERRUPT, SQLITE_IOERR,
    SQLITE_IOERR_DATA, SQLITE_NOMEM, SQLITE_NOTADB, SQLITE_WARNING,
};
use crate::sqlite_code::SqliteCode;

static TO_STDERR: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LAST: RefCell<Option<(&'static Code, String)>> = const { RefCell::new(None) };
}

/// Sets for the whole process whether texts also go to standard error. The extension turns it on
/// unless `STRONGROOM_LOG=off`.
pub fn to_stderr(on: bool) {
    TO_STDERR.store(on, Ordering::Relaxed);
}

/// Whether texts go to standard error.
pub(crate) fn goes_to_stderr() -> bool {
    TO_STDERR.load(Ordering::Relaxed)
}

/// Returns the last error that was reported on this thread, and forgets it. `None` if there is
/// none.
#[must_use]
pub fn take_last() -> Option<(&'static Code, String)> {
    LAST.with(|last| last.borrow_mut().take())
}

/// Returns and forgets the last error that was reported on this thread. `None`, although it is
/// forgotten too, unless SQLite's result code for that error is `rc`, compared in the lowest 8
/// bits.
#[must_use]
pub fn take_last_for(rc: c_int) -> Option<(&'static Code, String)> {
    take_last().filter(|(code, _)| sqlite_code_of(code).0 & 0xff == rc & 0xff)
}

/// Returns and forgets the last error that was reported on this thread. `None`, although it is
/// forgotten too, unless an application sees it as the result code `rc`: `SQLITE_ERROR` fits every
/// error, because pragmas and functions fail with it, and `SQLITE_INTERRUPT` fits refusals, because
/// a statement that was stopped for its key clause fails with it.
pub(crate) fn take_last_shown_as(rc: c_int) -> Option<(&'static Code, String)> {
    take_last().filter(|(code, _)| match rc & 0xff {
        SQLITE_ERROR => true,
        SQLITE_INTERRUPT => matches!(code.class, Class::Refused),
        rc => sqlite_code_of(code).0 & 0xff == rc,
    })
}

/// Returns the last error that was reported on this thread as one line, and keeps it. `None` if
/// there is none.
#[must_use]
pub fn last_text() -> Option<String> {
    LAST.with(|last| {
        last.borrow()
            .as_ref()
            .map(|(code, detail)| line(code, detail))
    })
}

/// Formats an error as `SR-nnnn: what (detail)`, without the parentheses if `detail` is empty.
#[must_use]
pub fn line(code: &Code, detail: &str) -> String {
    let what = code.what;
    let number = code.number;
    if detail.is_empty() {
        format!("SR-{number}: {what}")
    } else {
        format!("SR-{number}: {what} ({detail})")
    }
}

/// Returns SQLite's result code for an error code of ours, by its class and in some cases its
/// number.
#[must_use]
pub(crate) fn sqlite_code_of(code: &Code) -> SqliteCode {
    const PAGES: [u16; 8] = [
        code::PAGE.number,
        code::PAGE_TRUNCATED.number,
        code::WAL_FRAME.number,
        code::JOURNAL.number,
        code::JOURNAL_STALE.number,
        code::SUPER_JOURNAL.number,
        code::UNKNOWN_EPOCH.number,
        code::TEMP.number,
    ];
    if PAGES.contains(&code.number) {
        return SqliteCode(SQLITE_IOERR_DATA);
    }
    SqliteCode(match code.class {
        Class::Key
            if code.number == code::WRONG_KEY.number || code.number == code::NO_KEY.number =>
        {
            SQLITE_NOTADB
        }
        Class::Key | Class::Usage => SQLITE_CANTOPEN,
        Class::Data if code.number == code::NEWER_FORMAT.number => SQLITE_CANTOPEN,
        Class::Data => SQLITE_CORRUPT,
        Class::Io if code.number == code::NO_MEMORY.number => SQLITE_NOMEM,
        Class::Io | Class::Bug => SQLITE_IOERR,
        Class::Refused => SQLITE_AUTH,
        Class::Warning => SQLITE_WARNING,
    })
}

/// Makes the error for a registration that SQLite refused with the result `rc`: SR-5002 if there
/// was no memory, else SR-9001. `what` is the function.
pub(crate) fn registration_error(what: &str, rc: c_int) -> Error {
    match rc & 0xff {
        SQLITE_NOMEM => Error::new(&code::NO_MEMORY, what),
        _ => Error::new(&code::BUG, format!("{what}: {rc}")),
    }
}

/// Reports the error `code` with details of the case: in SQLite's log, on standard error if that is
/// on, and as the last error of this thread. Returns the result code for SQLite.
pub(crate) fn report(code: &'static Code, detail: impl Into<String>) -> SqliteCode {
    let detail = detail.into();
    let rc = sqlite_code_of(code);
    emit(rc.0, &line(code, &detail));
    LAST.with(|last| last.borrow_mut().replace((code, detail)));
    rc
}

/// Reports an error of the keyring crate: in SQLite's log, on standard error if that is on, and as
/// the last error of this thread. Returns the result code for SQLite.
pub(crate) fn report_error(error: &Error) -> SqliteCode {
    report(error.code(), error.detail())
}

/// Reports a warning in SQLite's log, and on standard error if that is on. It does not become the
/// last error.
pub fn warn(code: &'static Code, detail: &str) {
    emit(SQLITE_WARNING, &line(code, detail));
}

/// Writes a text to SQLite's log, and to standard error if [`to_stderr`] has turned that on.
fn emit(rc: c_int, text: &str) {
    if TO_STDERR.load(Ordering::Relaxed) {
        eprintln!("strongroom: {text}");
    }
    let (Some(api), Ok(text)) = (api(), CString::new(text)) else {
        return;
    };
    // SAFETY: the format has one %s, and `text` is the one argument.
    unsafe { (api.log)(rc, c"%s".as_ptr(), text.as_ptr()) };
}
