//! What the guard knows of SQLite's connections, and the traps that it closes there: `ATTACH ... KEY`, a sealed
//! database attached to a connection whose temporary files go elsewhere, and the target of `VACUUM INTO`.
//!
//! Invariants:
//! N1. A connection is in the list only while it is open: its functions' destructor, or its files' close, takes it out
//!     under the list's lock. A file of a shared cache outlives connections, and so brings none into the list.
//! N2. Another thread's connection is never waited for, nor looked into while it works: a connection whose mutex is
//!     taken is passed over, and the statement that runs on this thread is by definition on a connection whose mutex
//!     this thread holds. A connection without a mutex (`SQLITE_OPEN_NOMUTEX`) is never looked into from here, unless the
//!     process has no other thread: the `sqlite3` shell opens all its connections so.
//!
//! Must not: execute SQL while the list is locked.
#![expect(unsafe_code, reason = "calls SQLite")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use strongroom_format::code;
use strongroom_format::sqlite::PAGE_RESERVE;
use strongroom_keyring::Error;

use crate::api::{Api, api};
use crate::defaults;
use crate::ffi::{
    SQLITE_ERROR, SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_RESERVE_BYTES, SQLITE_FCNTL_VFS_POINTER,
    SQLITE_NOMEM, SQLITE_OK, SQLITE_ROW, sqlite3, sqlite3_file, sqlite3_stmt, sqlite3_vfs,
};
use crate::handle::{is_closed, is_ours, with};
use crate::report::{refused, report, take_last};
use crate::statement::{Attach, attach_key, vacuum_into};
use crate::vfs;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    /// 0 for a file of a cache that several connections share: which of them is at work only SQLite
    /// knows, and each of them may be closed while the file stays open.
    connection: usize,
    /// The file that brought it here, or 0 when its functions did.
    file: usize,
    /// Where SQLite keeps the connection that is at work on the file, as long as the file is open;
    /// 0 without a file.
    at_work: usize,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection has the guard's functions.
pub(crate) fn remember(connection: *mut sqlite3) {
    known().push(Known {
        connection: connection as usize,
        file: 0,
        at_work: 0,
    });
}

/// Whether the connection has the guard's functions.
pub(crate) fn is_known(connection: *mut sqlite3) -> bool {
    known()
        .iter()
        .any(|entry| entry.connection == connection as usize && entry.file == 0)
}

/// The connection is being closed: the destructor of the guard's functions says so.
pub(crate) fn forget_connection(connection: usize) {
    known().retain(|entry| entry.connection != connection || entry.file != 0);
}

/// The file is being closed.
pub(crate) fn forget(file: *mut sqlite3_file) {
    known().retain(|entry| entry.file != file as usize);
}

/// The connection that `file` belongs to, once SQLite has said so. To be called from a call of
/// SQLite's on the file: of connections that share it, it is the one that makes this call, since
/// SQLite has locked the cache for it (`sqlite3BtreeEnter` in src/btmutex.c).
#[must_use]
pub(crate) fn of_file(file: *mut sqlite3_file) -> Option<*mut sqlite3> {
    let entry = known()
        .iter()
        .find(|entry| entry.file == file as usize)
        .copied()?;
    if entry.connection != 0 {
        return Some(entry.connection as *mut sqlite3);
    }
    // SAFETY: the place is in the shared cache, which lives until its file is closed (`forget`).
    let connection = unsafe { (entry.at_work as *const *mut sqlite3).read() };
    (!connection.is_null()).then_some(connection)
}

/// The first answer that `wanted` gives of a statement that is running on `connection`. To be
/// called while the connection's mutex is held, by the caller or by SQLite on this thread.
fn of_running<T>(
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

/// As [`of_running`], of the statements' texts.
fn running<T>(connection: *mut sqlite3, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
    let api = api()?;
    of_running(connection, |statement| {
        // SAFETY: a statement of this connection; null for one of the legacy interface.
        let text = unsafe { (api.sql)(statement) };
        if text.is_null() {
            return None;
        }
        // SAFETY: SQLite's text ends with a zero byte and lives as long as the statement.
        wanted(&unsafe { CStr::from_ptr(text) }.to_string_lossy())
    })
}

/// Whether a statement is running on the connection that `file` belongs to: any, or one that may
/// write. `None` when SQLite has not said which connection that is. To be called from a call of
/// SQLite's on the file.
#[must_use]
pub(crate) fn runs_statement(file: *mut sqlite3_file, may_write: bool) -> Option<bool> {
    let api = api()?;
    let found = of_running(of_file(file)?, |statement| {
        // SAFETY: a statement of this connection.
        (!may_write || unsafe { (api.stmt_readonly)(statement) } == 0).then_some(())
    });
    Some(found.is_some())
}

/// Whether a `VACUUM INTO` is running on the connection that `file` belongs to.
#[must_use]
pub(crate) fn is_vacuumed_into(file: *mut sqlite3_file) -> bool {
    of_file(file).is_some_and(|connection| running(connection, vacuum_into).is_some())
}

/// As [`running`], on whichever connection of this process this thread is executing on (N2).
fn running_here<T>(wanted: impl Fn(&str) -> Option<T>) -> Option<(*mut sqlite3, T)> {
    let api = api()?;
    let known = known();
    // Asked of the system once, however many connections there are.
    let alone = std::cell::LazyCell::new(single_threaded);
    for entry in known.iter().filter(|entry| entry.connection != 0) {
        let connection = entry.connection as *mut sqlite3;
        // SAFETY: N1: the connection is open while the list is locked.
        let mutex = unsafe { (api.db_mutex)(connection) };
        if mutex.is_null() && !*alone {
            continue;
        }
        // SAFETY: the connection's own mutex; recursive, so this thread's own connection lets us in.
        if unsafe { (api.mutex_try)(mutex) } != SQLITE_OK {
            continue;
        }
        let found = running(connection, &wanted);
        // SAFETY: taken just above.
        unsafe { (api.mutex_leave)(mutex) };
        if let Some(found) = found {
            return Some((connection, found));
        }
    }
    None
}

/// Whether an ATTACH or VACUUM INTO is, or may be, what opens a file right now (N2).
#[must_use]
pub(crate) fn opened_by_sql() -> bool {
    if any_without_mutex() {
        return true;
    }
    running_here(|sql| {
        (attach_key(sql) != Attach::Other || vacuum_into(sql).is_some()).then_some(())
    })
    .is_some()
}

/// Whether there is a connection of which nobody can say what it is doing.
fn any_without_mutex() -> bool {
    let Some(api) = api() else { return false };
    if single_threaded() {
        return false;
    }
    // SAFETY: N1: the connections are open while the list is locked.
    known()
        .iter()
        .filter(|entry| entry.connection != 0)
        .any(|entry| unsafe { (api.db_mutex)(entry.connection as *mut sqlite3) }.is_null())
}

/// Whether this process has one thread, so that nobody else can be using a connection. False when it cannot be told.
fn single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.take(2).count() == 1)
}

/// If a VACUUM INTO is what opens a file right now: page size of its source. (`None` when it cannot be told.)
#[must_use]
pub(crate) fn vacuum_source_page_size() -> Option<Option<u32>> {
    let (connection, schema) = running_here(vacuum_into)?;
    Some(page_size_of(connection, &schema))
}

fn page_size_of(connection: *mut sqlite3, schema: &str) -> Option<u32> {
    let file = file_of_schema(connection, schema)?;
    if !is_ours(file) {
        return None;
    }
    with(file, |open| {
        if let Some(main) = open.body.as_main() {
            return Ok(Some(main.page_size()));
        }
        let mut field = [0; 2];
        let whole = open.body.lower().read_whole(&mut field, 16)?;
        let size = (u32::from(field[0]) << 8) | u32::from(field[1]);
        // SQLite's own format: 1 stands for 65536.
        Ok(whole.then_some(if size == 1 { 65536 } else { size }))
    })
    .ok()
    .flatten()
}

/// The file of an attached database.
#[must_use]
pub(crate) fn file_of_schema(connection: *mut sqlite3, schema: &str) -> Option<*mut sqlite3_file> {
    let mut file: *mut sqlite3_file = std::ptr::null_mut();
    control(
        connection,
        schema,
        SQLITE_FCNTL_FILE_POINTER,
        (&raw mut file).cast(),
    )?;
    (!file.is_null()).then_some(file)
}

/// `sqlite3_file_control`. `None` when there is no such schema or the call fails.
pub(crate) fn control(
    connection: *mut sqlite3,
    schema: &str,
    op: c_int,
    argument: *mut c_void,
) -> Option<()> {
    let schema = CString::new(schema).ok()?;
    // SAFETY: an open connection; `argument` fits `op` by the caller's word.
    let rc = unsafe { (api()?.file_control)(connection, schema.as_ptr(), op, argument) };
    (rc == SQLITE_OK).then_some(())
}

/// Asks SQLite to reserve bytes at the end of each page of a database that is still empty, or of its copies.
#[must_use]
pub(crate) fn reserve(connection: *mut sqlite3, schema: &str) -> Option<()> {
    let mut bytes = c_int::try_from(PAGE_RESERVE).ok()?;
    control(
        connection,
        schema,
        SQLITE_FCNTL_RESERVE_BYTES,
        (&raw mut bytes).cast(),
    )
}

/// A connection has just been opened: if its own database is a sealed one that is still to be created, SQLite learns
/// here of its page size and of the bytes to reserve. Where this is not reached, the first page is refused (M1).
///
/// # Errors
/// SR-5002 without memory; SR-6001 when SQLite does not reserve the bytes.
pub(crate) fn lay_out(connection: *mut sqlite3) -> Result<(), Error> {
    let Some(file) = file_of_schema(connection, "main") else {
        return Ok(());
    };
    if is_closed(file) {
        lay_out_in_memory(connection);
        return Ok(());
    }
    if !is_ours(file) {
        return Ok(());
    }
    let page_size = with(file, |open| {
        let main = open.body.as_main().filter(|main| !main.is_on_disk());
        Ok(main.map(|main| main.page_size()))
    });
    let Ok(Some(page_size)) = page_size else {
        return Ok(());
    };
    let set = execute_rc(connection, &format!("PRAGMA main.page_size={page_size}"));
    let failed = |rc: c_int| match rc & 0xff {
        SQLITE_NOMEM => refused("PRAGMA page_size", rc),
        _ => Error::new(&code::RESERVE, "a new database"),
    };
    set.map_err(|(rc, _)| failed(rc))?;
    reserve(connection, "main").ok_or_else(|| failed(SQLITE_ERROR))
}

/// In a program whose new databases are sealed by default, a database in memory, or a temporary
/// one, is laid out as those are: the backup API copies pages as they are, into a sealed file too.
/// Not where existing plain databases are opened: they do not take a copy with the reserved bytes.
/// A database in memory that cannot be laid out, because a shared one has pages already, stays as
/// it is, and such a copy of it is refused.
fn lay_out_in_memory(connection: *mut sqlite3) {
    let Ok(Some(defaults)) = defaults::get() else {
        return;
    };
    if defaults.open_existing_plain() {
        return;
    }
    let page_size = defaults.parameters().page_size.unwrap_or(4096);
    let set = execute(connection, &format!("PRAGMA main.page_size={page_size}"));
    if set.is_ok() {
        let _ = reserve(connection, "main");
    }
}

/// Whether a transaction was begun on the connection and is not ended.
pub(crate) fn in_transaction(connection: *mut sqlite3) -> bool {
    // SAFETY: an open connection.
    api().is_some_and(|api| unsafe { (api.get_autocommit)(connection) } == 0)
}

/// The connection's own VFS, which is where its temporary files go. `None` while the connection is being opened.
fn vfs_of(connection: *mut sqlite3) -> Option<*mut sqlite3_vfs> {
    let mut found: *mut sqlite3_vfs = std::ptr::null_mut();
    control(
        connection,
        "main",
        SQLITE_FCNTL_VFS_POINTER,
        (&raw mut found).cast(),
    )?;
    Some(found)
}

/// Whether the connection's own files, and so its temporary ones, go through the guard. While a connection is being
/// opened nothing can be said yet, and nothing needs to be: it is opened through the default VFS, which is the guard.
#[must_use]
pub(crate) fn uses_guard(connection: *mut sqlite3) -> bool {
    vfs_of(connection).is_none_or(vfs::is_ours)
}

/// Names and paths of the databases attached to `connection`, in order.
#[must_use]
pub(crate) fn schemas(connection: *mut sqlite3) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let Some(api) = api() else { return found };
    let mut statement: *mut sqlite3_stmt = std::ptr::null_mut();
    // SAFETY: an open connection; the text ends with a zero byte.
    unsafe {
        (api.prepare_v2)(
            connection,
            c"PRAGMA database_list".as_ptr(),
            -1,
            &raw mut statement,
            std::ptr::null_mut(),
        );
    }
    if statement.is_null() {
        return found;
    }
    // SAFETY: a statement made just now.
    while unsafe { (api.step)(statement) } == SQLITE_ROW {
        // SAFETY: the statement stands on a row; the text lives until the next step.
        let text = |column| unsafe { text_of((api.column_text)(statement, column)) };
        found.push((text(1), text(2)));
    }
    // SAFETY: made above, finalised once.
    unsafe { (api.finalize)(statement) };
    found
}

/// A text of SQLite's, or an empty one for null.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn text_of(text: *const u8) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(text.cast::<c_char>()) }
        .to_string_lossy()
        .into_owned()
}

/// The name under which `file` is attached to `connection`.
#[must_use]
pub(crate) fn schema_of_file(connection: *mut sqlite3, file: *mut sqlite3_file) -> Option<String> {
    let is_it = |name: &str| file_of_schema(connection, name) == Some(file);
    if is_it("main") {
        return Some("main".to_owned());
    }
    schemas(connection)
        .into_iter()
        .map(|(name, _)| name)
        .find(|name| is_it(name))
}

/// Executes SQL that returns nothing of interest. The error is SQLite's message.
pub(crate) fn execute(connection: *mut sqlite3, sql: &str) -> Result<(), String> {
    execute_rc(connection, sql).map_err(|(_, message)| message)
}

/// As [`execute`], with SQLite's result code.
fn execute_rc(connection: *mut sqlite3, sql: &str) -> Result<(), (c_int, String)> {
    let (Some(api), Ok(sql)) = (api(), CString::new(sql)) else {
        return Err((SQLITE_ERROR, "not initialised".to_owned()));
    };
    // What is reported from here on belongs to this statement.
    drop(take_last());
    let none = std::ptr::null_mut();
    // SAFETY: an open connection; the text ends with a zero byte; no callback.
    let rc = unsafe {
        (api.exec)(
            connection,
            sql.as_ptr(),
            std::ptr::null(),
            none,
            std::ptr::null_mut(),
        )
    };
    if rc == SQLITE_OK {
        return Ok(());
    }
    // SAFETY: SQLite's text, valid until the next call on the connection.
    Err((rc, unsafe { text_of((api.errmsg)(connection).cast()) }))
}

/// SQLite tells which connection a database file belongs to (`SQLITE_FCNTL_PDB`): the first moment at which the
/// traps can be seen, and before anything is read or written through the file.
///
/// # Safety
/// `argument` is what SQLite gave with the operation: a pointer to the connection.
pub(crate) unsafe fn attached(file: *mut sqlite3_file, argument: *mut c_void) {
    // SAFETY: the caller's word.
    let connection = unsafe { argument.cast::<*mut sqlite3>().read() };
    if connection.is_null() {
        return;
    }
    // SQLite says it once for each connection that opens the file or joins its cache.
    let joins_others = known().iter().any(|entry| entry.file == file as usize);
    forget(file);
    known().push(Known {
        connection: if joins_others { 0 } else { connection as usize },
        file: file as usize,
        at_work: argument as usize,
    });
    let told = with(file, |open| {
        if let Some(plain) = open.body.as_plain() {
            plain.is_file(file);
        }
        Ok(())
    });
    if told.is_err() {
        return; // A call on the file has panicked, and it takes no more of them.
    }
    let Some(own_vfs) = vfs_of(connection) else {
        return; // The connection's first database: there is nothing that it could be attached to.
    };
    let clause = running(connection, |sql| match attach_key(sql) {
        Attach::Other => None,
        other => Some(other),
    });
    let foreign = !vfs::is_ours(own_vfs);
    let marked = with(file, |open| {
        let key_clause = clause == Some(Attach::WithKey);
        if let Some(main) = open.body.as_main() {
            if key_clause {
                main.refuse(&code::ATTACH_KEY);
                report(&code::ATTACH_KEY, main.path());
            } else if foreign {
                main.refuse(&code::FOREIGN_VFS);
                report(&code::FOREIGN_VFS, main.path());
            }
        } else if let Some(plain) = open.body.as_plain()
            && key_clause
        {
            plain.refuse(&code::ATTACH_KEY);
            report(&code::ATTACH_KEY, plain.path());
        }
        Ok(open.body.as_main().is_some_and(|main| !main.is_on_disk()))
    });
    if marked == Ok(true)
        && let Some(schema) = running(connection, vacuum_into)
    {
        // A copy gets the source's reserve; a plain source must be told to leave room (it is not changed itself).
        let reserved = reserve(connection, &schema);
        if reserved.is_none() {
            report(&code::RESERVE, schema);
        }
    }
}

/// Puts our name before the name of the VFS below (`SQLITE_FCNTL_VFSNAME`).
///
/// # Safety
/// `argument` points to a string of SQLite's allocator, or to null.
pub(crate) unsafe fn prefix_vfs_name(argument: *mut c_void) {
    let Some(api) = api() else { return };
    let place = argument.cast::<*mut c_char>();
    // SAFETY: the caller's word.
    let below = unsafe { place.read() };
    // SAFETY: a string or null.
    let text = format!("strongroom/{}", unsafe { text_of(below.cast::<u8>()) });
    // SAFETY: allocated by SQLite, as the operation says.
    unsafe { (api.free)(below.cast::<c_void>()) };
    // SAFETY: `place` is writable.
    unsafe { place.write(sqlite_string(&text)) };
}

/// A copy of `text` in SQLite's allocator; null when there is no memory.
#[must_use]
pub(crate) fn sqlite_string(text: &str) -> *mut c_char {
    api().map_or(std::ptr::null_mut(), |api| string_of(api, text))
}

/// As [`sqlite_string`], in the allocator of the library that `api` is.
pub(crate) fn string_of(api: &Api, text: &str) -> *mut c_char {
    let bytes = text.as_bytes();
    // SAFETY: plain allocation.
    let copy = unsafe { (api.malloc64)(bytes.len() as u64 + 1) }.cast::<u8>();
    if copy.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: `copy` has room for the text and the zero byte.
    unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    // SAFETY: within the allocation.
    unsafe { copy.add(bytes.len()).write(0) };
    copy.cast::<c_char>()
}
