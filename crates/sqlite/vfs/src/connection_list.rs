//! The connections of this process that the VFS knows, and the statements that they execute.
//!
//! Invariants:
//! N1. A connection is in the list only while it is open: the destructor of its functions, or the
//!     closing of its files, removes it under the list's lock. A file of a shared cache outlives
//!     connections, and so adds none to the list.
//! N2. The list never waits for another thread's connection, nor examines it while it works: a
//!     connection whose mutex is taken is skipped, and the statement that runs on this thread is
//!     always on a connection whose mutex this thread holds. A connection without a mutex
//!     (`SQLITE_OPEN_NOMUTEX`) is never examined, unless the process has no other thread: the
//!     `sqlite3` shell opens all its connections so.
//!
//! Must not: execute SQL while the list is locked.
#![expect(unsafe_code, reason = "calls SQLite")]

use std::ffi::{CStr, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::api;
use crate::ffi::{SQLITE_OK, sqlite3, sqlite3_file, sqlite3_stmt};
use crate::statement::{Attach, attach_key, vacuum_into};

#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownConnection {
    /// 0 for a file of a cache that several connections share: only SQLite knows which of them is
    /// using it, and each of them may be closed while the file stays open.
    connection: usize,
    /// The file that added the entry, or 0 when its functions did.
    file: usize,
    /// Where SQLite stores the connection that is using the file, as long as the file is open; 0
    /// without a file.
    at_work: usize,
}

static KNOWN: Mutex<Vec<KnownConnection>> = Mutex::new(Vec::new());

/// Locks and returns the list of known connections. Waits for another thread that has it locked. A
/// panic of another thread does not poison it.
fn known() -> MutexGuard<'static, Vec<KnownConnection>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a connection to the list, after it has been given the SQL functions.
pub(crate) fn remember_connection(connection: *mut sqlite3) {
    known().push(KnownConnection {
        connection: connection as usize,
        file: 0,
        at_work: 0,
    });
}

/// Notes that `file` belongs to `connection`, as SQLite has said with `SQLITE_FCNTL_PDB`. Replaces
/// an earlier entry of the file; if there was one, several connections share the file, and none of
/// them is noted as its owner. `at_work` is the address where SQLite stores the connection that is
/// using the file, valid as long as the file is open.
pub(crate) fn remember_file(
    connection: *mut sqlite3,
    file: *mut sqlite3_file,
    at_work: *mut c_void,
) {
    // SQLite says it once for each connection that opens the file or joins its cache.
    let joins_others = known().iter().any(|entry| entry.file == file as usize);
    forget_file(file);
    known().push(KnownConnection {
        connection: if joins_others { 0 } else { connection as usize },
        file: file as usize,
        at_work: at_work as usize,
    });
}

/// Whether the connection has been given the SQL functions, that is, whether
/// [`remember_connection`] added it and it was not removed since.
pub(crate) fn has_functions(connection: *mut sqlite3) -> bool {
    known()
        .iter()
        .any(|entry| entry.connection == connection as usize && entry.file == 0)
}

/// Removes the entry that [`remember_connection`] added. Entries of the connection's files stay.
/// The destructor of its SQL functions calls this when the connection is closed.
pub(crate) fn forget_connection(connection: usize) {
    known().retain(|entry| entry.connection != connection || entry.file != 0);
}

/// Removes the entry of a file that is being closed. Does nothing if there is none.
pub(crate) fn forget_file(file: *mut sqlite3_file) {
    known().retain(|entry| entry.file != file as usize);
}

/// Returns the connection that `file` belongs to. `None` if SQLite has not said so yet, or if no
/// connection is using a shared file. To be called only while SQLite calls a method of the file: of
/// the connections that share the file, it is the one that makes this call, since SQLite has locked
/// the cache for it (`sqlite3BtreeEnter` in src/btmutex.c).
#[must_use]
pub(crate) fn connection_of(file: *mut sqlite3_file) -> Option<*mut sqlite3> {
    let entry = known()
        .iter()
        .find(|entry| entry.file == file as usize)
        .copied()?;
    if entry.connection != 0 {
        return Some(entry.connection as *mut sqlite3);
    }
    // SAFETY: the place is in the shared cache, which lives until its file is closed
    // (`forget_file`).
    let connection = unsafe { (entry.at_work as *const *mut sqlite3).read() };
    (!connection.is_null()).then_some(connection)
}

/// Calls `wanted` with each statement that is running on `connection`, and returns the first value
/// that it gives. `None` if it gives none, or if SQLite's functions are not known yet. To be called
/// while the connection's mutex is held, by the caller or by SQLite on this thread.
fn find_running_statement<T>(
    connection: *mut sqlite3,
    wanted: impl Fn(*mut sqlite3_stmt) -> Option<T>,
) -> Option<T> {
    let api = api()?;
    let mut statement: *mut sqlite3_stmt = std::ptr::null_mut();
    loop {
        // SAFETY: the mutex is held; the statement is one of this connection.
        statement = unsafe { (api.next_stmt)(connection, statement) };
        if statement.is_null() {
            return None;
        }
        // SAFETY: as above.
        if unsafe { (api.stmt_busy)(statement) } == 0 {
            continue;
        }
        if let Some(found) = wanted(statement) {
            return Some(found);
        }
    }
}

/// Calls `wanted` with the SQL text of each statement that is running on `connection`, and returns
/// the first value that it gives. `None` if it gives none. Statements without a text are left out.
/// To be called while the connection's mutex is held.
pub(crate) fn find_running_sql<T>(
    connection: *mut sqlite3,
    wanted: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let api = api()?;
    find_running_statement(connection, |statement| {
        // SAFETY: a statement of this connection; null for one of the legacy interface.
        let text = unsafe { (api.sql)(statement) };
        if text.is_null() {
            return None;
        }
        // SAFETY: SQLite's text ends with a zero byte and lives as long as the statement.
        wanted(&unsafe { CStr::from_ptr(text) }.to_string_lossy())
    })
}

/// Whether a statement is running on the connection that `file` belongs to: any statement, or with
/// `may_write` only one that is not read-only. `None` when SQLite has not said which connection
/// that is. To be called while SQLite calls a method of the file.
#[must_use]
pub(crate) fn runs_statement(file: *mut sqlite3_file, may_write: bool) -> Option<bool> {
    let api = api()?;
    let found = find_running_statement(connection_of(file)?, |statement| {
        // SAFETY: a statement of this connection.
        (!may_write || unsafe { (api.stmt_readonly)(statement) } == 0).then_some(())
    });
    Some(found.is_some())
}

/// Whether a `VACUUM INTO` is running on the connection that `file` belongs to. False when SQLite
/// has not said which connection that is.
#[must_use]
pub(crate) fn runs_vacuum_into(file: *mut sqlite3_file) -> bool {
    connection_of(file)
        .is_some_and(|connection| find_running_sql(connection, vacuum_into).is_some())
}

/// Calls `wanted` with the SQL text of each statement that this thread is executing, on whatever
/// connection (N2), and returns the first value that it gives, with that connection. `None` if it
/// gives none. Never waits for a connection: those that another thread uses are skipped, and so are
/// those without a mutex, unless the process has only one thread. The list stays locked meanwhile.
pub(crate) fn find_sql_on_this_thread<T>(
    wanted: impl Fn(&str) -> Option<T>,
) -> Option<(*mut sqlite3, T)> {
    let api = api()?;
    let known = known();
    // The system is asked once, however many connections there are.
    let alone = std::cell::LazyCell::new(is_single_threaded);
    for entry in known.iter().filter(|entry| entry.connection != 0) {
        let connection = entry.connection as *mut sqlite3;
        // SAFETY: N1: the connection is open while the list is locked.
        let mutex = unsafe { (api.db_mutex)(connection) };
        if mutex.is_null() && !*alone {
            continue;
        }
        // SAFETY: the connection's own mutex; recursive, so this thread's own connection lets us
        // in.
        if unsafe { (api.mutex_try)(mutex) } != SQLITE_OK {
            continue;
        }
        let found = find_running_sql(connection, &wanted);
        // SAFETY: taken just above.
        unsafe { (api.mutex_leave)(mutex) };
        if let Some(found) = found {
            return Some((connection, found));
        }
    }
    None
}

/// Whether an ATTACH or VACUUM INTO on this thread may be opening a file now. True also if there is
/// a connection without a mutex in a process with several threads, since its statements cannot be
/// examined (N2).
#[must_use]
pub(crate) fn may_be_opened_by_sql() -> bool {
    if has_connection_without_mutex() {
        return true;
    }
    find_sql_on_this_thread(|sql| {
        (attach_key(sql) != Attach::Other || vacuum_into(sql).is_some()).then_some(())
    })
    .is_some()
}

/// Whether the list has a connection whose statements cannot be examined: one without a mutex, in a
/// process that may have more than one thread.
fn has_connection_without_mutex() -> bool {
    let Some(api) = api() else { return false };
    if is_single_threaded() {
        return false;
    }
    // SAFETY: N1: the connections are open while the list is locked.
    known()
        .iter()
        .filter(|entry| entry.connection != 0)
        .any(|entry| unsafe { (api.db_mutex)(entry.connection as *mut sqlite3) }.is_null())
}

/// Whether this process has only one thread, so that no other thread uses a connection. Asks the
/// system (/proc); false when it does not say.
fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.take(2).count() == 1)
}
