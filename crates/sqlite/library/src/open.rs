//! Opens a database, sealed or plain, through the VFS.
//!
//! Invariant: the VFS knows a key given to [`open`] only during the call.
//! Must not: put key material into a URI.
#![expect(
    unsafe_code,
    reason = "registers an entry point with the bundled SQLite"
)]

use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_keyring::{Error, KeySource, Opener, SourceContext, storage};
use strongroom_sqlite_vfs as vfs;

/// How a database is to be opened.
pub struct OpenOptions {
    /// The source of the key; `None` for a plain database.
    pub key: Option<KeySource>,
    /// The keyring for [`KeySource::KeyId`]; `None` for `STRONGROOM_KEYRING` or the default path.
    pub keyring: Option<PathBuf>,
    /// Page cipher of a database that is created.
    pub cipher: Cipher,
    /// Page size in bytes of a database that is created; 0 for 4096, or for the source's when a
    /// database is copied.
    pub page_size: u32,
    /// A database that is created keeps a digest over its pages, so that [`crate::ops::verify`]
    /// finds an older copy of a page.
    pub freshness: bool,
    /// Opens for reading only.
    pub read_only: bool,
    /// Creates the database if it does not exist.
    pub create: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            key: None,
            keyring: None,
            cipher: Cipher::Aes256Gcm,
            page_size: 0,
            freshness: false,
            read_only: false,
            create: false,
        }
    }
}

impl OpenOptions {
    /// Fetches the key that these options name; `None` when they name none. `path` is shown where a
    /// passphrase is asked for. With `creating`, for a database that is new, a passphrase is asked
    /// for twice, and a key of the keyring must be able to seal (else SR-2012, SR-2039). Errors are
    /// those of [`KeySource::opener`], which include the keyring's and its provider's.
    pub(crate) fn opener(&self, path: &Path, creating: bool) -> Result<Option<Arc<Opener>>, Error> {
        self.key
            .as_ref()
            .map(|source| opener_of(source, self, path, creating))
            .transpose()
    }
}

/// Fetches the key that `source` gives, with the keyring of `options` or of the environment. `path`
/// is shown where a passphrase is asked for. With `creating`, for a database that is new, a
/// passphrase is asked for twice, and a key of the keyring must be able to seal (else SR-2012,
/// SR-2039). Errors are those of [`KeySource::opener`].
pub(crate) fn opener_of(
    source: &KeySource,
    options: &OpenOptions,
    path: &Path,
    creating: bool,
) -> Result<Arc<Opener>, Error> {
    let keyring = options
        .keyring
        .clone()
        .or_else(vfs::keyring_from_environment);
    let prompt = path.display().to_string();
    source
        .opener(&SourceContext {
            keyring,
            creating,
            prompt,
        })
        .map(Arc::new)
}

/// Registers the VFS with the bundled SQLite as its default, for all later connections of the
/// process, and the client for remote databases. Idempotent; [`open`] calls it.
///
/// # Errors
/// SR-9001 when SQLite refuses; SR-2289 when another copy of the VFS is registered; SR-5002 without
/// memory.
pub fn register() -> Result<(), Error> {
    static DONE: Mutex<bool> = Mutex::new(false);
    #[cfg(feature = "http")]
    strongroom_sqlite_http::register();
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if *done {
        return Ok(());
    }
    // SAFETY: SQLite calls the entry point back, for each new connection, with an entry point's
    // arguments.
    unsafe { rusqlite::ffi::sqlite3_auto_extension(Some(entry)) };
    // The first connection makes our VFS the default; it must not be the one that is to use it.
    let first = Connection::open_in_memory().map_err(explain)?;
    drop(first);
    // The VFS has registered itself for later connections now.
    // SAFETY: the pointer that was registered above.
    unsafe { rusqlite::ffi::sqlite3_cancel_auto_extension(Some(entry)) };
    vfs::enable(std::ptr::null_mut())?;
    *done = true;
    Ok(())
}

/// The extension's entry point for SQLite's list of automatic extensions, which takes no other
/// success than `SQLITE_OK`. Registers the VFS and the SQL functions.
unsafe extern "C" fn entry(
    connection: *mut rusqlite::ffi::sqlite3,
    error: *mut *mut c_char,
    routines: *const rusqlite::ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite's own arguments; the two names of its connection are the same opaque type.
    let rc = unsafe {
        vfs::entry_point(
            connection.cast::<vfs::sqlite3>(),
            error,
            routines.cast::<c_void>(),
        )
    };
    if rc == rusqlite::ffi::SQLITE_OK_LOAD_PERMANENTLY {
        rusqlite::ffi::SQLITE_OK
    } else {
        rc
    }
}

/// Opens the database at `path`, sealed or plain, or creates it if `options` say so. Reads its
/// schema, so that errors show at once. The VFS forgets the key afterwards.
///
/// # Errors
/// Every error of the key (SR-2xxx), of the header (SR-3xxx) and of page 1 (SR-4001) is returned
/// here, not at the first statement; SR-1006 when the file does not exist and is not to be created.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Connection, Error> {
    register()?;
    let about = storage::of(path).about(path);
    let exists = about.as_ref().is_ok_and(|about| about.len > 0);
    if about.is_err() && !options.create {
        return Err(Error::new(&code::NOT_FOUND, path.display().to_string()));
    }
    let opener = options.opener(path, !exists)?;
    open_with(path, options, opener)
}

/// Opens the database at `path`, sealed or plain, with a key that was fetched already; `None` for a
/// plain database. With `options.create` creates it if it does not exist. Reads its schema, so that
/// errors show at once. The VFS forgets the key afterwards.
pub(crate) fn open_with(
    path: &Path,
    options: &OpenOptions,
    opener: Option<Arc<Opener>>,
) -> Result<Connection, Error> {
    register()?;
    let access = if options.read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else if options.create {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    // With its mutex, so that the VFS can see which statement opens a file (VACUUM INTO, ATTACH).
    let flags = access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_FULL_MUTEX;
    let mut parameters = vec![("cipher", options.cipher.name().to_owned())];
    if options.page_size != 0 {
        parameters.push(("page_size", options.page_size.to_string()));
    }
    if options.freshness {
        parameters.push(("freshness", "1".to_owned()));
    }
    let uri = uri(path, &parameters)?;
    let connection = with_key(path, opener, || {
        Connection::open_with_flags(&uri, flags).map_err(explain)
    })?;
    let settled = connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0));
    settled.map_err(explain)?;
    Ok(connection)
}

/// Runs `call` while `opener` is registered as the key of `path`, and forgets the key afterwards.
/// Without an opener only runs `call`. Waits for another thread that is in such a call. SR-1006 if
/// SQLite cannot make the path absolute, SR-6009 if it is not UTF-8.
pub(crate) fn with_key<T>(
    path: &Path,
    opener: Option<Arc<Opener>>,
    call: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    // Two threads that open one path with different keys take turns.
    static TURN: Mutex<()> = Mutex::new(());
    let Some(opener) = opener else { return call() };
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let absolute = vfs::absolute(text(path)?)
        .ok_or_else(|| Error::new(&code::NOT_FOUND, path.display().to_string()))?;
    vfs::register_key(absolute.clone(), opener);
    let result = call();
    let _known = vfs::forget_key(&absolute);
    drop(turn);
    result
}

/// Returns the path as text, as SQLite takes it. SR-6009 when it is not UTF-8.
fn text(path: &Path) -> Result<&str, Error> {
    path.to_str()
        .ok_or_else(|| Error::new(&code::URI, "the path is not UTF-8"))
}

/// Builds the URI by which SQLite opens `path` through the sealing VFS, with `parameters`,
/// percent-encoded. SR-6009 when the path is not UTF-8.
pub(crate) fn uri(path: &Path, parameters: &[(&str, String)]) -> Result<String, Error> {
    let mut uri = String::from("file:");
    escape(text(path)?, &mut uri);
    uri.push_str("?vfs=strongroom");
    for (name, value) in parameters {
        uri.push('&');
        uri.push_str(name);
        uri.push('=');
        escape(value, &mut uri);
    }
    Ok(uri)
}

/// Appends `text` to `out`, percent-encoding what SQLite's URI parser would take for syntax.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let written = write!(out, "%{byte:02X}");
            assert!(written.is_ok(), "formatting into a string");
        }
    }
}

/// Turns an error of SQLite's into one of ours: the one that the VFS reported last on this thread,
/// if it fits, which is then forgotten. Otherwise SR-6010 for busy or locked, SR-5001 for I/O,
/// SR-3001 for "not a database", SR-4011 for a malformed one, and SR-1005 for all others.
#[must_use]
pub fn explain(error: rusqlite::Error) -> Error {
    let error = match error {
        // Its text repeats the whole statement, and a statement may hold a key.
        rusqlite::Error::SqlInputError { error, msg, .. } => {
            rusqlite::Error::SqliteFailure(error, Some(msg))
        }
        other => other,
    };
    let rc = error
        .sqlite_error()
        .map_or(rusqlite::ffi::SQLITE_ERROR, |error| error.extended_code);
    let text = error.to_string();
    // Pragmas and functions fail with the same result code whatever the error is: SQLite's text is
    // then ours.
    let told = vfs::last_text().is_some_and(|last| last == text);
    let last = match told {
        true => vfs::take_last(),
        false => vfs::take_last_for(rc),
    };
    if let Some((code, detail)) = last {
        return Error::new(code, detail);
    }
    let code = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            &code::BUSY
        }
        Some(
            rusqlite::ErrorCode::SystemIoFailure
            | rusqlite::ErrorCode::DiskFull
            | rusqlite::ErrorCode::CannotOpen
            | rusqlite::ErrorCode::ReadOnly
            | rusqlite::ErrorCode::PermissionDenied,
        ) => &code::IO,
        Some(rusqlite::ErrorCode::NotADatabase) => &code::NOT_SEALED,
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => &code::MALFORMED,
        _ => &code::SQL,
    };
    Error::new(code, text)
}
