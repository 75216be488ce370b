//! The entry point, which the extension and the library share. SQLite calls it when it loads the
//! extension and, registered with `sqlite3_auto_extension`, for every connection that is opened
//! afterwards.
//!
//! Must not: fail half-way. Either the VFS is registered and the connection has its functions, or
//! an error is returned.
#![expect(unsafe_code, reason = "called by SQLite")]

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::api::{Api, api, set_api};
use crate::connection;
use crate::connection_list;
use crate::ffi::{
    SQLITE_DENY, SQLITE_ERROR, SQLITE_NOMEM, SQLITE_OK, SQLITE_OK_LOAD_PERMANENTLY, SQLITE_PRAGMA,
    SQLITE_TRACE_STMT, sqlite3, sqlite3_stmt,
};
use crate::foreign_words;
use crate::registration;
use crate::report;
use crate::sql;
use crate::sqlite_code::SqliteCode;
use crate::sqlite_text;
use crate::statement::{Attach, attach_key, vacuum_into};
use crate::vfs;

/// The oldest SQLite that has all functions that are called: 3.37.0.
const OLDEST: c_int = 3_037_000;
/// `sqlite3_libversion_number` in `sqlite3_api_routines`.
const LIBVERSION: usize = 67;

/// `sqlite3_exec` in it. Its address tells two libraries apart.
const EXEC: usize = 55;

/// The entry point of the extension, called with `(connection, error, routines)`. Takes SQLite's
/// functions, and registers the VFS, the SQL functions, and itself for later connections. Returns
/// `SQLITE_OK_LOAD_PERMANENTLY`, because our files may outlive the connection that loaded us. After
/// a failure returns `SQLITE_NOMEM` or `SQLITE_ERROR`, reports the error, and puts its text into
/// `error`.
///
/// # Safety
/// Called by SQLite with its own arguments.
pub unsafe extern "C" fn entry_point(
    connection: *mut sqlite3,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    let outcome = catch_unwind(|| {
        // SAFETY: the caller's word.
        unsafe { take_routines(routines) }?;
        enable(connection)
    });
    match outcome {
        Ok(Ok(())) => SQLITE_OK_LOAD_PERMANENTLY,
        Ok(Err(failed)) => {
            let shown = match report::report_error(&failed) {
                SqliteCode(SQLITE_NOMEM) => SQLITE_NOMEM,
                _ => SQLITE_ERROR,
            };
            // SAFETY: the caller's word.
            let table = unsafe { api_of(routines) };
            if let (Ok(table), false) = (table, error.is_null()) {
                let text = report::line(failed.code(), failed.detail());
                // SAFETY: SQLite gives a place for a text of its allocator; by its own table, which
                // need not be ours.
                unsafe { error.write(sqlite_text::string_of(&table, &text)) };
            }
            shown
        }
        Err(_) => SQLITE_ERROR,
    }
}

/// Takes the functions of the calling SQLite, if none were taken yet. SR-6007 if it is too old. If
/// they were, checks that they are those of the same library; SR-2274 if not.
///
/// # Safety
/// `routines` came from SQLite.
unsafe fn take_routines(routines: *const c_void) -> Result<(), Error> {
    if let Some(known) = api() {
        // SAFETY: the caller's word.
        return unsafe { check_same_library(known, routines) };
    }
    // SAFETY: the caller's word.
    set_api(unsafe { api_of(routines) }?);
    Ok(())
}

/// Reads the functions of the calling SQLite out of its `routines`. SR-6007 if there are none, or
/// if its version is below 3.37.0. Calls only `sqlite3_libversion_number`.
///
/// # Safety
/// As [`take_routines`].
unsafe fn api_of(routines: *const c_void) -> Result<Api, Error> {
    let too_old = || Error::new(&code::HOST_TOO_OLD, "");
    if routines.is_null() {
        return Err(too_old());
    }
    let entries = routines.cast::<Option<unsafe extern "C" fn() -> c_int>>();
    // SAFETY: every SQLite since 3.3 has this entry, with this type.
    let version = unsafe { entries.add(LIBVERSION).read() }.ok_or_else(too_old)?;
    // SAFETY: a function of no arguments.
    let version = unsafe { version() };
    if version < OLDEST {
        return Err(Error::new(&code::HOST_TOO_OLD, format!("{version}")));
    }
    // SAFETY: new enough, as just checked.
    unsafe { Api::from_routines(routines) }.ok_or_else(too_old)
}

/// Checks that `routines` are of the SQLite library whose functions are `known`; SR-2274 if not.
/// Null passes. A process can have two SQLite libraries, such as the ones of Python's modules
/// sqlite3 and apsw, and loads us once. The functions of one must never get a connection of the
/// other, because their structures differ.
///
/// # Safety
/// As [`take_routines`].
unsafe fn check_same_library(known: &Api, routines: *const c_void) -> Result<(), Error> {
    if routines.is_null() {
        return Ok(()); // A library that is linked in, which has one SQLite.
    }
    // SAFETY: every SQLite since 3.3 has this entry; a function pointer or null.
    let exec = unsafe { routines.cast::<*const c_void>().add(EXEC).read() };
    if std::ptr::eq(exec, known.exec as *const c_void) {
        Ok(())
    } else {
        Err(Error::new(&code::OTHER_SQLITE, ""))
    }
}

/// Registers the VFS as the default, gives `connection` the SQL functions, and does both for every
/// later connection. With a null connection only the VFS is registered.
///
/// # Errors
/// SR-5002 when SQLite has no memory for a registration, SR-9001 when it refuses one or its
/// functions are not known, SR-6001 when a new database cannot have the reserved bytes, SR-2289
/// when another copy of this library has registered its VFS.
pub fn enable(connection: *mut sqlite3) -> Result<(), Error> {
    vfs::register(restore_registration)?;
    if connection.is_null() {
        return Ok(());
    }
    // Functions are not installed twice: SQLite replaces no function while a statement runs, and
    // one may be loading the extension.
    if !connection_list::has_functions(connection) {
        sql::install(connection)?;
    }
    watch_foreign_connection(connection);
    connection::lay_out_new_database(connection)?;
    enable_later_connections()
}

/// Registers again what `sqlite3_shutdown` removes: the default VFS and the automatic extension.
/// Called as the next database is opened, before SQLite looks up its automatic extensions for that
/// connection. An error is only reported.
fn restore_registration() {
    if registration::become_default_again() && enable_later_connections().is_err() {
        report::report(&code::BUG, "SQLite was shut down, and takes no extension");
    }
}

/// Makes SQLite call [`auto_entry`] for every connection that is opened from now on. SR-5002
/// without memory, SR-9001 when SQLite refuses.
fn enable_later_connections() -> Result<(), Error> {
    let Some(api) = api() else {
        return Err(Error::new(&code::BUG, "not initialised"));
    };
    // SAFETY: SQLite calls it back with the three arguments of an entry point; the same pointer is
    // registered once.
    let rc = unsafe {
        (api.auto_extension)(Some(std::mem::transmute::<
            unsafe extern "C" fn(*mut sqlite3, *mut *mut c_char, *const c_void) -> c_int,
            unsafe extern "C" fn(),
        >(auto_entry)))
    };
    if rc == SQLITE_OK {
        Ok(())
    } else {
        Err(report::registration_error("sqlite3_auto_extension", rc))
    }
}

/// The entry point for connections that are opened after the extension was loaded: registers the
/// SQL functions with `connection`. Returns `SQLITE_OK`, which SQLite requires here, or the error's
/// code, whose text goes into `error`.
unsafe extern "C" fn auto_entry(
    connection: *mut sqlite3,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    match unsafe { entry_point(connection, error, routines) } {
        SQLITE_OK_LOAD_PERMANENTLY => SQLITE_OK,
        rc => rc,
    }
}

/// Sets a trace function and an authorizer on a connection whose own VFS is not this one; does
/// nothing to others. Such a connection was opened before the extension was loaded, and attaches
/// databases through its own VFS. There the statements themselves are watched, so that `ATTACH ...
/// KEY` does not silently make a plain database.
fn watch_foreign_connection(connection: *mut sqlite3) {
    let Some(api) = api() else { return };
    if connection::uses_our_vfs(connection) {
        return;
    }
    // SAFETY: the callback keeps to SQLite's conventions. An application's own trace replaces it:
    // docs/reference.
    unsafe {
        (api.trace_v2)(
            connection,
            SQLITE_TRACE_STMT.cast_unsigned(),
            Some(trace),
            connection.cast::<c_void>(),
        );
    }
    // SAFETY: as above.
    unsafe { (api.set_authorizer)(connection, Some(authorize), std::ptr::null_mut()) };
}

/// The authorizer of connections of another VFS. Denies, and reports as SR-2281, pragmas that give
/// a key and `PRAGMA cipher_integrity_check`; allows all else. The VFS would ignore such a pragma,
/// and the data that follow would be written in clear.
unsafe extern "C" fn authorize(
    _: *mut c_void,
    action: c_int,
    name: *const c_char,
    _value: *const c_char,
    _schema: *const c_char,
    _by: *const c_char,
) -> c_int {
    if action != SQLITE_PRAGMA {
        return SQLITE_OK;
    }
    // SAFETY: with this action, SQLite's text.
    let name = unsafe { sqlite_text::text_of(name.cast::<u8>()) };
    // `cipher_integrity_check` is refused too: SQLite would answer nothing, which means that all
    // pages are authentic.
    if !foreign_words::gives_a_key(&name) && !name.eq_ignore_ascii_case("cipher_integrity_check") {
        return SQLITE_OK;
    }
    report::report(
        &code::KEY_TOO_LATE,
        format!("PRAGMA {}", name.to_ascii_lowercase()),
    );
    SQLITE_DENY
}

/// Called by SQLite before each statement runs on connections of another VFS. Interrupts the
/// connection and reports SR-6004 for an ATTACH with a KEY clause, and SR-6005 for an ATTACH or
/// VACUUM INTO whose URI names a key. Always returns 0.
unsafe extern "C" fn trace(
    _event: c_int,
    data: *mut c_void,
    statement: *mut c_void,
    text: *mut c_void,
) -> c_int {
    // SAFETY: for this event SQLite gives the statement's text.
    let text = unsafe { sqlite_text::text_of(text.cast::<u8>()) };
    let attach = attach_key(&text);
    let refused = match attach {
        Attach::WithKey => Some(&code::ATTACH_KEY),
        Attach::Other if vacuum_into(&text).is_none() => None,
        // The VFS of this connection would ignore the key, and create a plain database.
        _ => names_a_key(statement).then_some(&code::FOREIGN_VFS),
    };
    if let (Some(refused), Some(api)) = (refused, api()) {
        report::report(refused, "the statement was interrupted");
        // SAFETY: the connection that the statement runs on. ATTACH reads the schema of what it
        // attaches, which an interrupted connection does not; SQLite then detaches it again.
        unsafe { (api.interruptx)(data.cast::<sqlite3>()) };
    }
    0
}

/// Whether the text of a statement, with its bound parameters filled in, contains a URI parameter
/// that names a key.
fn names_a_key(statement: *mut c_void) -> bool {
    let Some(api) = api() else { return false };
    // SAFETY: the statement that SQLite is tracing.
    let text = unsafe { (api.expanded_sql)(statement.cast::<sqlite3_stmt>()) };
    // SAFETY: null, or SQLite's text, ended by a zero byte.
    let expanded = unsafe { sqlite_text::text_of(text.cast::<u8>()) };
    // SAFETY: allocated by SQLite for us; null is allowed.
    unsafe { (api.free)(text.cast::<c_void>()) };
    ["key_id=", "key_env=", "key_file=", "key_command="]
        .iter()
        .any(|parameter| expanded.contains(parameter))
}
