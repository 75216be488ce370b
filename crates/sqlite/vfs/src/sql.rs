//! The SQL functions: `strongroom_key()`, `strongroom_key_id()`, `strongroom_forget()`,
//! `strongroom_last_error()`, `strongroom_explain()`, `strongroom_log()`, `strongroom_version()`,
//! and the table-valued function `strongroom_databases()`.
//!
//! Must not: return key material, or be callable from a view or trigger where it changes something.
#![expect(unsafe_code, reason = "called by SQLite with raw pointers")]

use std::ffi::{CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::{Error, KeySource, SourceContext};

use crate::api::{Api, api};
use crate::connection_list;
use crate::database_key;
use crate::ffi::{
    SQLITE_BLOB, SQLITE_DIRECTONLY, SQLITE_ERROR, SQLITE_OK, SQLITE_TEXT, SQLITE_UTF8, sqlite3,
    sqlite3_context, sqlite3_value,
};
use crate::registration;
use crate::report;
use crate::seal::crypto_error;
use crate::sql_result::result;
use crate::sqlite_text;

type Scalar = unsafe extern "C" fn(*mut sqlite3_context, c_int, *mut *mut sqlite3_value);

/// Registers the SQL functions and the table-valued function `strongroom_databases` with
/// `connection`, and adds the connection to the list of known ones. SR-5002 when SQLite has no
/// memory, SR-9001 when it refuses a function.
pub(crate) fn install(connection: *mut sqlite3) -> Result<(), Error> {
    let Some(api) = api() else {
        return Err(Error::new(&code::BUG, "not initialised"));
    };
    let functions: [(&std::ffi::CStr, c_int, Scalar); 8] = [
        (c"strongroom_key", 2, register_key),
        (c"strongroom_key_id", 2, register_key_id),
        (c"strongroom_forget", 1, forget_key),
        (c"strongroom_last_error", 0, last_error),
        (c"strongroom_last_error", 1, take_error),
        (c"strongroom_explain", 1, explain),
        (c"strongroom_log", 1, log),
        (c"strongroom_version", 0, version),
    ];
    for (name, arguments, call) in functions {
        let flags = SQLITE_UTF8 | SQLITE_DIRECTONLY;
        // SAFETY: static names; the functions below keep to SQLite's conventions.
        let rc = unsafe {
            (api.create_function_v2)(
                connection,
                name.as_ptr(),
                arguments,
                flags,
                std::ptr::null_mut(),
                Some(call),
                None,
                None,
                None,
            )
        };
        if rc != SQLITE_OK {
            return Err(report::registration_error("sqlite3_create_function", rc));
        }
    }
    mark(api, connection)?;
    crate::databases::install(connection)
}

/// Registers the SQL function `strongroom_connection`, by whose destructor we learn that the
/// connection is closed, and adds the connection to the list of known ones. Errors as for
/// [`install`].
fn mark(api: &Api, connection: *mut sqlite3) -> Result<(), Error> {
    // SAFETY: as in `install`; the destructor gets the connection back as a number.
    let rc = unsafe {
        (api.create_function_v2)(
            connection,
            c"strongroom_connection".as_ptr(),
            0,
            SQLITE_UTF8 | SQLITE_DIRECTONLY,
            connection.cast::<c_void>(),
            Some(version),
            None,
            None,
            Some(connection_closed),
        )
    };
    if rc != SQLITE_OK {
        return Err(report::registration_error("sqlite3_create_function", rc));
    }
    // This comes last: if the function replaced an earlier one, that one's destructor has just
    // removed the connection from the list.
    connection_list::remember_connection(connection);
    Ok(())
}

/// Removes a connection from the list of known ones. SQLite calls this when the connection is
/// closed.
unsafe extern "C" fn connection_closed(connection: *mut c_void) {
    connection_list::forget_connection(connection as usize);
}

/// Reports an error and makes its text the error of the SQL function.
fn fail(context: *mut sqlite3_context, error: &Error) {
    report::report_error(error);
    let (Some(api), Ok(text)) = (
        api(),
        CString::new(report::line(error.code(), error.detail())),
    ) else {
        return;
    };
    // SAFETY: a context that SQLite gave; the text is copied.
    unsafe { (api.result_error)(context, text.as_ptr(), -1) };
}

/// Runs `call` and makes its text, or NULL, the result of the SQL function. An error is reported
/// and becomes the function's error; so does a panic, as SR-9001.
fn answer(context: *mut sqlite3_context, call: impl FnOnce() -> Result<Option<String>, Error>) {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(text)) => result(context, text.as_deref()),
        Ok(Err(error)) => fail(context, &error),
        Err(_) => fail(context, &Error::new(&code::BUG, "an SQL function panicked")),
    }
}

/// Returns argument `index` as text, as SQLite converts it; empty for NULL.
///
/// # Safety
/// `arguments` has more than `index` values.
unsafe fn text_argument(arguments: *mut *mut sqlite3_value, index: usize) -> String {
    let Some(api) = api() else {
        return String::new();
    };
    // SAFETY: the caller's word.
    let value = unsafe { arguments.add(index).read() };
    // SAFETY: a value that SQLite gave.
    unsafe { sqlite_text::text_of((api.value_text)(value)) }
}

/// Copies argument `index`, a text or a blob, into locked memory. SR-2011 for a value of another
/// type.
///
/// # Safety
/// As [`text_argument`].
unsafe fn secret_argument(
    arguments: *mut *mut sqlite3_value,
    index: usize,
) -> Result<SecretBytes, Error> {
    let Some(api) = api() else {
        return Err(Error::new(&code::BUG, "not initialised"));
    };
    // SAFETY: the caller's word.
    let value = unsafe { arguments.add(index).read() };
    // SAFETY: a value that SQLite gave.
    let kind = unsafe { (api.value_type)(value) };
    if kind != SQLITE_TEXT && kind != SQLITE_BLOB {
        return Err(Error::new(
            &code::KEY_MALFORMED,
            "strongroom_key: neither text nor blob",
        ));
    }
    // SAFETY: as above; before the length, as SQLite demands.
    let bytes = unsafe { (api.value_blob)(value) }.cast::<u8>();
    // SAFETY: as above.
    let len = usize::try_from(unsafe { (api.value_bytes)(value) }).unwrap_or(0);
    let mut copy = if bytes.is_null() {
        Vec::new()
    } else {
        // SAFETY: SQLite's value has `len` bytes.
        unsafe { std::slice::from_raw_parts(bytes, len) }.to_vec()
    };
    SecretBytes::take(&mut copy).map_err(|error| crypto_error(&error))
}

/// `strongroom_key(path, key)`: registers the key for every later open of `path` in this process,
/// in place of an earlier one, and returns "ok". The key is not tried. SR-6009 for an empty path or
/// a URI, SR-2011 for a malformed key.
unsafe extern "C" fn register_key(
    context: *mut sqlite3_context,
    _count: c_int,
    arguments: *mut *mut sqlite3_value,
) {
    // SAFETY: registered with two arguments.
    let path = unsafe { text_argument(arguments, 0) };
    // SAFETY: as above.
    let secret = unsafe { secret_argument(arguments, 1) };
    answer(context, || {
        let path = absolute(&path)?;
        let source = SourceContext {
            keyring: None,
            creating: true,
            prompt: path.clone(),
        };
        database_key::register(path, Arc::new(KeySource::Given(secret?).opener(&source)?));
        Ok(Some("ok".to_owned()))
    });
}

/// `strongroom_key_id(path, name)`: as `strongroom_key()`, with the name of a key of the keyring,
/// for programs that cannot write a URI. The key is looked up at once, and again at each open.
/// SR-6009 for an empty path or a URI, SR-2003 if the keyring has no such key, SR-2004 if there is
/// no keyring; other errors of the keyring and its provider. Nothing is registered then. The
/// keyring is the one that the environment names, else the default one: SQL cannot name another,
/// whose provider could be a command.
unsafe extern "C" fn register_key_id(
    context: *mut sqlite3_context,
    _count: c_int,
    arguments: *mut *mut sqlite3_value,
) {
    // SAFETY: registered with two arguments.
    let (path, id) = unsafe { (text_argument(arguments, 0), text_argument(arguments, 1)) };
    answer(context, || {
        database_key::register_key_id(absolute(&path)?, id)?;
        Ok(Some("ok".to_owned()))
    });
}

/// `strongroom_forget(path)`: forgets the key registered for `path`. Returns "ok", or NULL if none
/// was registered. Databases that are open stay open.
unsafe extern "C" fn forget_key(
    context: *mut sqlite3_context,
    _count: c_int,
    arguments: *mut *mut sqlite3_value,
) {
    // SAFETY: registered with one argument.
    let path = unsafe { text_argument(arguments, 0) };
    answer(context, || {
        Ok(database_key::unregister(&absolute(&path)?).then(|| "ok".to_owned()))
    });
}

/// Returns the absolute path that SQLite makes of `path` when it opens the file. SR-6009 if `path`
/// is empty (so is an argument that is NULL) or begins with `file:`, because a key that is
/// registered for it would never be used; and if the VFS below makes no absolute path of it.
fn absolute(path: &str) -> Result<String, Error> {
    if path.is_empty() || path.starts_with("file:") {
        let detail = "strongroom_key: the path of a file is needed, not a URI";
        return Err(Error::new(&code::URI, detail));
    }
    registration::absolute(path).ok_or_else(|| Error::new(&code::URI, "strongroom_key: path"))
}

/// `strongroom_last_error()`: returns the last error of the VFS on this thread as one line, or
/// NULL. The error is kept.
unsafe extern "C" fn last_error(
    context: *mut sqlite3_context,
    _count: c_int,
    _arguments: *mut *mut sqlite3_value,
) {
    answer(context, || Ok(report::last_text()));
}

/// `strongroom_last_error(rc)`: returns the last error of the VFS on this thread if an application
/// sees `rc` as its SQLite result code, else NULL; either way the error is forgotten. 1,
/// `SQLITE_ERROR`, fits every error, because pragmas and functions return it.
unsafe extern "C" fn take_error(
    context: *mut sqlite3_context,
    _count: c_int,
    arguments: *mut *mut sqlite3_value,
) {
    // SAFETY: registered with one argument.
    let rc = unsafe { text_argument(arguments, 0) };
    answer(context, || {
        let rc = rc.parse().unwrap_or(SQLITE_ERROR);
        let taken = report::take_last_shown_as(rc);
        Ok(taken.map(|(code, detail)| report::line(code, &detail)))
    });
}

/// `strongroom_explain(code)`: returns what to do about an error; NULL if there is no such code.
/// `code` is a number, with or without `SR-`.
unsafe extern "C" fn explain(
    context: *mut sqlite3_context,
    _count: c_int,
    arguments: *mut *mut sqlite3_value,
) {
    // SAFETY: registered with one argument.
    let text = unsafe { text_argument(arguments, 0) };
    answer(context, || {
        let number = text.trim_start_matches("SR-").parse().ok();
        let code = number.and_then(code::by_number);
        Ok(code.map(|code| code.todo.to_owned()))
    });
}

/// `strongroom_log('on')` and `strongroom_log('off')`: sets for the whole process whether errors
/// and warnings also go to standard error. Other words change nothing. Returns the setting in
/// force, "on" or "off".
unsafe extern "C" fn log(
    context: *mut sqlite3_context,
    _count: c_int,
    arguments: *mut *mut sqlite3_value,
) {
    // SAFETY: registered with one argument.
    let word = unsafe { text_argument(arguments, 0) };
    answer(context, || {
        if matches!(word.as_str(), "on" | "off") {
            report::to_stderr(word == "on");
        }
        let word = if report::goes_to_stderr() {
            "on"
        } else {
            "off"
        };
        Ok(Some(word.to_owned()))
    });
}

/// `strongroom_version()`: returns the version of this library as text.
unsafe extern "C" fn version(
    context: *mut sqlite3_context,
    _count: c_int,
    _arguments: *mut *mut sqlite3_value,
) {
    answer(context, || Ok(Some(env!("CARGO_PKG_VERSION").to_owned())));
}
