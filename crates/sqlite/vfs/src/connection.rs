//! Statements that would bypass encryption without an error: `ATTACH ... KEY`, a sealed database
//! attached to a connection whose temporary files do not go through this VFS, and a target of
//! `VACUUM INTO`.
//!
//! Must not: execute SQL while the list of connections is locked.
#![expect(unsafe_code, reason = "calls SQLite")]

use std::ffi::{CString, c_int, c_void};

use strongroom_format::code;
use strongroom_format::sqlite::PAGE_RESERVE;
use strongroom_keyring::Error;

use crate::api::api;
use crate::connection_list;
use crate::connection_list::{find_running_sql, find_sql_on_this_thread};
use crate::defaults;
use crate::ffi::{
    SQLITE_ERROR, SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_RESERVE_BYTES, SQLITE_FCNTL_VFS_POINTER,
    SQLITE_NOMEM, SQLITE_OK, SQLITE_ROW, sqlite3, sqlite3_file, sqlite3_stmt, sqlite3_vfs,
};
use crate::handle::{is_closed, is_ours, with};
use crate::io_methods::IoMethods as _;
use crate::registration;
use crate::report::{registration_error, report, take_last};
use crate::sqlite_text::text_of;
use crate::statement::{Attach, attach_key, vacuum_into};

/// Returns the page size of the source of a VACUUM INTO that runs on this thread, which may be
/// opening its target now. `None` if there is none; the inner `None` if the page size is unknown.
#[must_use]
pub(crate) fn vacuum_source_page_size() -> Option<Option<u32>> {
    let (connection, schema) = find_sql_on_this_thread(vacuum_into)?;
    Some(page_size_of(connection, &schema))
}

/// Returns the page size of a schema's database in bytes: as the sealed database has it, or from
/// the first page of a plain one. `None` if the sealing VFS has not opened the file, or it has no
/// page 1.
fn page_size_of(connection: *mut sqlite3, schema: &str) -> Option<u32> {
    let file = file_of_schema(connection, schema)?;
    if !is_ours(file) {
        return None;
    }
    with(file, |open| {
        if let Some(main) = open.file.as_main() {
            return Ok(Some(main.page_size()));
        }
        let mut field = [0; 2];
        let whole = open.file.lower().read_whole(&mut field, 16)?;
        let size = (u32::from(field[0]) << 8) | u32::from(field[1]);
        // In SQLite's format, 1 means 65536.
        Ok(whole.then_some(if size == 1 { 65536 } else { size }))
    })
    .ok()
    .flatten()
}

/// Returns SQLite's file object of an attached database. `None` if there is no such schema.
#[must_use]
pub(crate) fn file_of_schema(connection: *mut sqlite3, schema: &str) -> Option<*mut sqlite3_file> {
    let mut file: *mut sqlite3_file = std::ptr::null_mut();
    file_control(
        connection,
        schema,
        SQLITE_FCNTL_FILE_POINTER,
        (&raw mut file).cast(),
    )?;
    (!file.is_null()).then_some(file)
}

/// Calls `sqlite3_file_control` on a schema. `None` when there is no such schema or the call fails.
pub(crate) fn file_control(
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

/// Makes SQLite reserve the 32 bytes that a sealed page needs at its end, in a database that is
/// still empty, or in copies of a database. `None` if SQLite refuses.
#[must_use]
pub(crate) fn reserve_page_bytes(connection: *mut sqlite3, schema: &str) -> Option<()> {
    let mut bytes = c_int::try_from(PAGE_RESERVE).ok()?;
    file_control(
        connection,
        schema,
        SQLITE_FCNTL_RESERVE_BYTES,
        (&raw mut bytes).cast(),
    )
}

/// If the connection's own database is a sealed one that is still to be created, tells SQLite the
/// page size and the bytes to reserve; does nothing to others, except to one in memory
/// ([`lay_out_in_memory`]). Called when a connection has just been opened. If this call does not
/// happen, the first page is refused (M1).
///
/// # Errors
/// SR-5002 without memory; SR-6001 when SQLite does not reserve the bytes.
pub(crate) fn lay_out_new_database(connection: *mut sqlite3) -> Result<(), Error> {
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
        let main = open.file.as_main().filter(|main| !main.has_header());
        Ok(main.map(|main| main.page_size()))
    });
    let Ok(Some(page_size)) = page_size else {
        return Ok(());
    };
    let set = execute_rc(connection, &format!("PRAGMA main.page_size={page_size}"));
    let failed = |rc: c_int| match rc & 0xff {
        SQLITE_NOMEM => registration_error("PRAGMA page_size", rc),
        _ => Error::new(&code::RESERVE, "a new database"),
    };
    set.map_err(|(rc, _)| failed(rc))?;
    reserve_page_bytes(connection, "main").ok_or_else(|| failed(SQLITE_ERROR))
}

/// In a program whose new databases are sealed by default, gives a database in memory, or a
/// temporary one, the page size and the reserved bytes of those: the backup API copies pages
/// unchanged, also into a sealed file. Does nothing where existing plain databases are opened,
/// because they do not take a copy with the reserved bytes. A shared database in memory that has
/// pages already cannot be laid out; a sealed copy of it is refused. Errors are ignored.
fn lay_out_in_memory(connection: *mut sqlite3) {
    let Ok(Some(defaults)) = defaults::get() else {
        return;
    };
    if defaults.open_existing_plain() {
        return;
    }
    let page_size = defaults.options().page_size.unwrap_or(4096);
    let set = execute(connection, &format!("PRAGMA main.page_size={page_size}"));
    if set.is_ok() {
        let _ = reserve_page_bytes(connection, "main");
    }
}

/// Whether a transaction is open on the connection, that is, whether it is not in autocommit mode.
pub(crate) fn in_transaction(connection: *mut sqlite3) -> bool {
    // SAFETY: an open connection.
    api().is_some_and(|api| unsafe { (api.get_autocommit)(connection) } == 0)
}

/// Returns the connection's own VFS, to which its temporary files go. `None` while the connection
/// is being opened.
fn vfs_of(connection: *mut sqlite3) -> Option<*mut sqlite3_vfs> {
    let mut found: *mut sqlite3_vfs = std::ptr::null_mut();
    file_control(
        connection,
        "main",
        SQLITE_FCNTL_VFS_POINTER,
        (&raw mut found).cast(),
    )?;
    Some(found)
}

/// Whether the connection's own files, and so its temporary ones, go through this VFS. True while a
/// connection is being opened: it then uses the default VFS, which is ours.
#[must_use]
pub(crate) fn uses_our_vfs(connection: *mut sqlite3) -> bool {
    vfs_of(connection).is_none_or(registration::is_ours)
}

/// Returns the name and path of each database that is attached to `connection`, in SQLite's order.
/// Empty if SQLite does not answer. Executes `PRAGMA database_list`.
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
        // SAFETY: the statement is at a row; the text lives until the next step.
        let text = |column| unsafe { text_of((api.column_text)(statement, column)) };
        found.push((text(1), text(2)));
    }
    // SAFETY: made above, finalised once.
    unsafe { (api.finalize)(statement) };
    found
}

/// Returns the name under which `file` is attached to `connection`. `None` if it is not.
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

/// Executes SQL, and drops the rows that it returns. First forgets the last reported error of this
/// thread. The error is SQLite's message.
pub(crate) fn execute(connection: *mut sqlite3, sql: &str) -> Result<(), String> {
    execute_rc(connection, sql).map_err(|(_, message)| message)
}

/// Executes SQL, and drops the rows that it returns. First forgets the last reported error of this
/// thread. The error is SQLite's result code and its message.
fn execute_rc(connection: *mut sqlite3, sql: &str) -> Result<(), (c_int, String)> {
    let (Some(api), Ok(sql)) = (api(), CString::new(sql)) else {
        return Err((SQLITE_ERROR, "not initialised".to_owned()));
    };
    // Errors reported from here on belong to this statement.
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

/// Notes which connection a database file belongs to, as SQLite says with `SQLITE_FCNTL_PDB`,
/// before anything is read or written through the file. Refuses the file, so that no lock can be
/// taken on it, and reports why, where a statement would bypass encryption: SR-6004 for an ATTACH
/// with a KEY clause, SR-6005 for a sealed database on a connection of another VFS. For a sealed
/// target of VACUUM INTO, makes SQLite reserve the bytes in the copy (SR-6001 is reported if it
/// does not).
///
/// # Safety
/// `argument` is what SQLite gave with the operation: a pointer to the connection.
pub(crate) unsafe fn check_attached(file: *mut sqlite3_file, argument: *mut c_void) {
    // SAFETY: the caller's word.
    let connection = unsafe { argument.cast::<*mut sqlite3>().read() };
    if connection.is_null() {
        return;
    }
    connection_list::remember_file(connection, file, argument);
    let told = with(file, |open| {
        if let Some(plain) = open.file.as_plain() {
            plain.set_file(file);
        }
        Ok(())
    });
    if told.is_err() {
        return; // A call on the file has panicked, and it takes no more of them.
    }
    let Some(own_vfs) = vfs_of(connection) else {
        return; // The connection's first database: there is nothing that it could be attached to.
    };
    let clause = find_running_sql(connection, |sql| match attach_key(sql) {
        Attach::Other => None,
        other => Some(other),
    });
    let foreign = !registration::is_ours(own_vfs);
    let marked = with(file, |open| {
        let key_clause = clause == Some(Attach::WithKey);
        if let Some(main) = open.file.as_main() {
            if key_clause {
                main.refuse(&code::ATTACH_KEY);
                report(&code::ATTACH_KEY, main.path());
            } else if foreign {
                main.refuse(&code::FOREIGN_VFS);
                report(&code::FOREIGN_VFS, main.path());
            }
        } else if let Some(plain) = open.file.as_plain()
            && key_clause
        {
            plain.refuse(&code::ATTACH_KEY);
            report(&code::ATTACH_KEY, plain.path());
        }
        Ok(open.file.as_main().is_some_and(|main| !main.has_header()))
    });
    if marked == Ok(true)
        && let Some(schema) = find_running_sql(connection, vacuum_into)
    {
        // A copy has as many reserved bytes as its source. A plain source must be told to reserve
        // them; it is not changed itself.
        let reserved = reserve_page_bytes(connection, &schema);
        if reserved.is_none() {
            report(&code::RESERVE, schema);
        }
    }
}
