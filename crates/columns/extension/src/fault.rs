//! Raises faults as PostgreSQL's ERROR.
//!
//! Invariant X5: a fault is an ERROR, never more. PostgreSQL raises an error by longjmp, which must
//! not cross a Rust frame that has something to drop; pgrx's boundary turns the jump into an
//! unwinding, which [`crate::call::guarded`] turns back. Must not: put anything from a caller's
//! text into a message, because it may be a value in clear.

use std::ffi::{CString, c_char, c_int};

use pgrx::pg_sys;
use strongroom_columns_ring::Fault;
use strongroom_columns_ring::{Broken, ConnectError};

unsafe extern "C-unwind" {
    /// Begins a report of this level. False if it goes nowhere.
    // src/backend/utils/error/elog.c. pgrx does not export them, and its own reports have
    // PostgreSQL's SQLSTATEs only.
    fn errstart(level: c_int, domain: *const c_char) -> bool;
    /// Sets the report's packed SQLSTATE.
    fn errcode(state: c_int) -> c_int;
    /// Sets the report's message.
    fn errmsg(format: *const c_char, ...) -> c_int;
    /// Sets the report's detail.
    fn errdetail(format: *const c_char, ...) -> c_int;
    /// Sets the report's hint.
    fn errhint(format: *const c_char, ...) -> c_int;
    /// Sends the report to log and client. Does not return for an ERROR: it jumps out.
    fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
}

/// utils/elog.h of PostgreSQL 15.
const LOG: c_int = 15;
const WARNING: c_int = 19;
const ERROR: c_int = 21;

/// An error or warning that is being built.
pub(crate) struct Report {
    state: &'static str,
    message: CString,
    detail: Option<CString>,
    hint: Option<CString>,
}

impl Report {
    /// A report with its SQLSTATE and its message. Reports nothing yet.
    pub(crate) fn new(state: &'static str, message: &str) -> Self {
        Self {
            state,
            message: c_string(message),
            detail: None,
            hint: None,
        }
    }

    /// Returns the report with this detail.
    pub(crate) fn detail(mut self, detail: &str) -> Self {
        self.detail = Some(c_string(detail));
        self
    }

    /// Returns the report with this hint.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(c_string(hint));
        self
    }

    /// Raises it as an ERROR: unwinds to where PostgreSQL handles errors.
    pub(crate) fn raise(self) -> ! {
        self.report(ERROR);
        // errfinish does not return from an ERROR.
        unreachable!("an ERROR was reported")
    }

    /// Writes it to the server's log, and returns.
    pub(crate) fn log(self) {
        self.report(LOG);
    }

    /// Reports it as a WARNING, and returns.
    pub(crate) fn warn(self) {
        self.report(WARNING);
    }

    /// Reports through PostgreSQL at this level. For an ERROR this does not return, but unwinds to
    /// where PostgreSQL handles errors.
    fn report(self, level: c_int) {
        let pointer =
            |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let (state, message) = (pack_sqlstate(self.state), self.message.as_ptr());
        let (detail, hint) = (pointer(&self.detail), pointer(&self.hint));
        // SAFETY: elog.c's protocol; it copies the texts, which outlive the call; nothing in the
        // closure is dropped.
        unsafe {
            pg_sys::ffi::pg_guard_ffi_boundary(|| {
                if errstart(level, std::ptr::null()) {
                    errcode(state);
                    errmsg(c"%s".as_ptr(), message);
                    if !detail.is_null() {
                        errdetail(c"%s".as_ptr(), detail);
                    }
                    if !hint.is_null() {
                        errhint(c"%s".as_ptr(), hint);
                    }
                    errfinish(c"strongroom_columns".as_ptr(), 0, std::ptr::null());
                }
            });
        }
    }
}

/// Raises a failure that the ring reported as an ERROR, with its SQLSTATE, its message and perhaps
/// a hint.
pub(crate) fn raise_broken(broken: Broken) -> ! {
    let report = Report::new(broken.sqlstate(), broken.message());
    match broken {
        Broken::Fault(Fault::NotAllowed) | Broken::Earlier(Fault::NotAllowed) => report.hint(
            "Connect through the proxy, which opens a session with the zone; without \
             one only comparison of stored values of one column is allowed.",
        ),
        Broken::Fault(Fault::Recovering) | Broken::Earlier(Fault::Recovering) => report.hint(
            "The zone has been started again; a background worker reads the log to \
             it. Try again soon. The server's log tells how far it is, and why if it cannot.",
        ),
        _ => report,
    }
    .raise()
}

/// Raises a fault that this library found as an ERROR.
pub(crate) fn raise(fault: Fault) -> ! {
    raise_broken(Broken::Fault(fault))
}

/// Raises an ERROR with the reason why there is no connection to the zone (SR-8003, SR-8019 for a
/// zone of another version, or the statement was cancelled).
pub(crate) fn raise_unconnected(error: &ConnectError) -> ! {
    let hint = match error {
        ConnectError::OtherVersion(_) => {
            "After an update of the extension, restart the server; after one of the zone, restart \
             the zone."
        }
        _ => {
            "Is the zone running (strongroom columns zone), and is strongroom.zone the path of \
             its socket?"
        }
    };
    Report::new("08001", &error.to_string()).hint(hint).raise()
}

/// Raises an ERROR (XX000) that only a bug in this library can cause.
pub(crate) fn raise_internal(what: &str) -> ! {
    Report::new("XX000", what).raise()
}

/// The text as a C string; zero bytes in it become spaces.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// A SQLSTATE as PostgreSQL packs it: six bits for each character (utils/elog.h, `MAKE_SQLSTATE`).
fn pack_sqlstate(state: &str) -> c_int {
    let six_bits = |byte: u8| c_int::from(byte.wrapping_sub(b'0') & 0x3f);
    state
        .bytes()
        .rev()
        .fold(0, |packed, byte| packed << 6 | six_bits(byte))
}
