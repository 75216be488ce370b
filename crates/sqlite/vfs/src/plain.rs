//! A plain database on the guard's VFS: everything passes, except a copy of a sealed database into it.
//!
//! Invariant P1: a file that was empty when it was opened never receives a first page that carries the guard's
//! reserved bytes, unless its URI says `allow_plaintext=1`: such a page is a copy of a sealed database
//! (the backup API and VACUUM INTO carry the reserve over).
//!
//! Must not: change a byte.

use strongroom_format::code::{self, Code};
use strongroom_format::sqlite::PAGE_RESERVE;

use crate::body::Body;
use crate::ffi::SQLITE_IOCAP_SUBPAGE_READ;
use crate::lower::{Lower, RcResult};
use crate::report::report;

/// A plain database file.
pub(crate) struct PlainFile {
    lower: Lower,
    path: String,
    born_empty: bool,
    allow_plaintext: bool,
    refused: Option<&'static Code>,
}

impl PlainFile {
    /// A plain file as opened.
    pub(crate) fn new(lower: Lower, path: String, born_empty: bool, allow_plaintext: bool) -> Self {
        Self {
            lower,
            path,
            born_empty,
            allow_plaintext,
            refused: None,
        }
    }

    /// Path as SQLite made it absolute.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Lets nothing through from now on.
    pub(crate) fn refuse(&mut self, code: &'static Code) {
        self.refused = Some(code);
    }
}

impl Body for PlainFile {
    fn lower(&self) -> Lower {
        self.lower
    }

    fn write(&mut self, data: &[u8], at: u64) -> RcResult<()> {
        let guarded = self.born_empty && !self.allow_plaintext && at == 0;
        if guarded
            && data
                .get(20)
                .is_some_and(|&reserve| u32::from(reserve) == PAGE_RESERVE)
        {
            return Err(report(&code::PLAINTEXT_COPY, self.path.as_str()));
        }
        self.lower.write(data, at)
    }

    fn lock(&mut self, level: std::ffi::c_int) -> RcResult<()> {
        match self.refused {
            Some(code) => Err(report(code, self.path.as_str())),
            None => self.lower.lock(level),
        }
    }

    fn device_characteristics(&self) -> std::ffi::c_int {
        self.lower.device_characteristics() & !SQLITE_IOCAP_SUBPAGE_READ
    }

    fn as_plain(&mut self) -> Option<&mut PlainFile> {
        Some(self)
    }
}
