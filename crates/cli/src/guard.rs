//! The one way from the command to guard 1, the SQLite guard: open, encrypt, decrypt, rekey, verify.
//!
//! Must not: know a byte of the sealed format.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_keyring::KeySource;

use crate::Context;
use crate::failure::Failure;
use crate::verify::Verified;

pub(crate) struct Options;
type Progress<'a> = &'a mut dyn FnMut(u64, u64);
pub(crate) fn options(_key: KeySource, _context: &Context) -> Options {
    Options
}
fn todo() -> Failure {
    Failure::new(&code::BUG, "not wired")
}
impl Options {
    pub(crate) fn cipher(self, _: Cipher) -> Self {
        self
    }
    pub(crate) fn page_size(self, _: u32) -> Self {
        self
    }
    pub(crate) fn encrypt(self, _: &Path, _: &Path, _: Progress<'_>) -> Result<u64, Failure> {
        Err(todo())
    }
    pub(crate) fn decrypt(self, _: &Path, _: &Path, _: Progress<'_>) -> Result<u64, Failure> {
        Err(todo())
    }
    pub(crate) fn rekey(
        self,
        _: &Path,
        _: Option<&KeySource>,
        _: bool,
        _: Progress<'_>,
    ) -> Result<String, Failure> {
        Err(todo())
    }
    pub(crate) fn verify(
        self,
        _: &Path,
        _: Progress<'_>,
    ) -> Result<(Verified, Option<Failure>), Failure> {
        Err(todo())
    }
}
pub(crate) fn open(
    path: &Path,
    _key: Option<KeySource>,
    _keyring: Option<PathBuf>,
    read_only: bool,
) -> Result<Connection, Failure> {
    if crate::paths::sort(path)? == crate::paths::Sort::Sealed {
        return Err(Failure::new(&code::NO_KEY, path.display().to_string()));
    }
    let flags = if read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    Connection::open_with_flags(path, flags).map_err(|e| sql_failure(&e))
}
pub(crate) fn open_uri(
    uri: &str,
    _keyring: Option<PathBuf>,
    _read_only: bool,
) -> Result<Connection, Failure> {
    Connection::open(uri).map_err(|e| sql_failure(&e))
}

/// SQLite's error as one of ours, with SQLite's own message and without the statement.
pub(crate) fn sql_failure(error: &rusqlite::Error) -> Failure {
    use rusqlite::ErrorCode;
    let (inner, message) = match error {
        rusqlite::Error::SqliteFailure(inner, message) => (Some(inner), message.clone()),
        rusqlite::Error::SqlInputError { error, msg, .. } => (Some(error), Some(msg.clone())),
        _ => (None, None),
    };
    let message = message.unwrap_or_else(|| match inner {
        Some(inner) => inner.to_string(),
        None => error.to_string(),
    });
    let code = match inner.map(|inner| inner.code) {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => &code::BUSY,
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory,
        ) => &code::IO,
        _ => &code::SQL,
    };
    Failure::new(code, message)
}
