//! SQLite's C interface, as far as this crate uses it: the structures of a VFS and of a virtual
//! table, and constants.
//!
//! Layouts and values are those of `sqlite3.h`; `tests/header.rs` compares the values with the
//! installed header.
//! Must not: contain logic.
#![expect(non_camel_case_types, reason = "the names are SQLite's own")]
#![expect(clippy::use_self, reason = "signatures stand as in sqlite3.h")]

use std::ffi::{c_char, c_int, c_void};

/// `sqlite3`: a connection, opaque.
pub enum sqlite3 {}
/// `sqlite3_stmt`: a prepared statement, opaque.
pub(crate) enum sqlite3_stmt {}
/// `sqlite3_value`: a value, opaque.
pub(crate) enum sqlite3_value {}
/// `sqlite3_context`: where a function puts its result, opaque.
pub(crate) enum sqlite3_context {}
/// `sqlite3_mutex`: opaque.
pub(crate) enum sqlite3_mutex {}

#[repr(C)]
pub(crate) struct sqlite3_file {
    pub methods: *const sqlite3_io_methods,
}

#[repr(C)]
pub(crate) struct sqlite3_io_methods {
    pub version: c_int,
    pub close: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub read: Option<unsafe extern "C" fn(*mut sqlite3_file, *mut c_void, c_int, i64) -> c_int>,
    pub write: Option<unsafe extern "C" fn(*mut sqlite3_file, *const c_void, c_int, i64) -> c_int>,
    pub truncate: Option<unsafe extern "C" fn(*mut sqlite3_file, i64) -> c_int>,
    pub sync: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub file_size: Option<unsafe extern "C" fn(*mut sqlite3_file, *mut i64) -> c_int>,
    pub lock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub unlock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub check_reserved_lock: Option<unsafe extern "C" fn(*mut sqlite3_file, *mut c_int) -> c_int>,
    pub file_control: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int, *mut c_void) -> c_int>,
    pub sector_size: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub device_characteristics: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub shm_map: Option<
        unsafe extern "C" fn(*mut sqlite3_file, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    >,
    pub shm_lock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int, c_int, c_int) -> c_int>,
    pub shm_barrier: Option<unsafe extern "C" fn(*mut sqlite3_file)>,
    pub shm_unmap: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub fetch:
        Option<unsafe extern "C" fn(*mut sqlite3_file, i64, c_int, *mut *mut c_void) -> c_int>,
    pub unfetch: Option<unsafe extern "C" fn(*mut sqlite3_file, i64, *mut c_void) -> c_int>,
}

/// A function pointer of unknown type, as `xDlSym` and the system-call hooks use.
pub(crate) type any_fn = Option<unsafe extern "C" fn()>;

#[repr(C)]
pub(crate) struct sqlite3_vfs {
    pub version: c_int,
    pub os_file_size: c_int,
    pub max_pathname: c_int,
    pub next: *mut sqlite3_vfs,
    pub name: *const c_char,
    pub app_data: *mut c_void,
    pub open: Option<
        unsafe extern "C" fn(
            *mut sqlite3_vfs,
            *const c_char,
            *mut sqlite3_file,
            c_int,
            *mut c_int,
        ) -> c_int,
    >,
    pub delete: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int) -> c_int>,
    pub access:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub full_pathname:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub dl_open: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> *mut c_void>,
    pub dl_error: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char)>,
    pub dl_sym:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char) -> any_fn>,
    pub dl_close: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void)>,
    pub randomness: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub sleep: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int>,
    pub current_time: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut f64) -> c_int>,
    pub last_error: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub current_time_int64: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut i64) -> c_int>,
    pub set_system_call:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, any_fn) -> c_int>,
    pub get_system_call: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> any_fn>,
    pub next_system_call:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> *const c_char>,
}

#[repr(C)]
pub(crate) struct sqlite3_vtab {
    pub module: *const sqlite3_module,
    pub references: c_int,
    pub error_message: *mut c_char,
}

#[repr(C)]
pub(crate) struct sqlite3_vtab_cursor {
    pub vtab: *mut sqlite3_vtab,
}

/// `sqlite3_index_info`: only the fields that this crate writes have names; the rest is omitted.
#[repr(C)]
pub(crate) struct sqlite3_index_info {
    pub constraint_count: c_int,
    pub constraints: *const c_void,
    pub order_count: c_int,
    pub orders: *const c_void,
    pub usage: *mut c_void,
    pub index_number: c_int,
    pub index_text: *mut c_char,
    pub free_index_text: c_int,
    pub order_consumed: c_int,
    pub estimated_cost: f64,
}

#[repr(C)]
pub(crate) struct sqlite3_module {
    pub version: c_int,
    pub create: any_fn,
    pub connect: Option<
        unsafe extern "C" fn(
            *mut sqlite3,
            *mut c_void,
            c_int,
            *const *const c_char,
            *mut *mut sqlite3_vtab,
            *mut *mut c_char,
        ) -> c_int,
    >,
    pub best_index:
        Option<unsafe extern "C" fn(*mut sqlite3_vtab, *mut sqlite3_index_info) -> c_int>,
    pub disconnect: Option<unsafe extern "C" fn(*mut sqlite3_vtab) -> c_int>,
    pub destroy: Option<unsafe extern "C" fn(*mut sqlite3_vtab) -> c_int>,
    pub open:
        Option<unsafe extern "C" fn(*mut sqlite3_vtab, *mut *mut sqlite3_vtab_cursor) -> c_int>,
    pub close: Option<unsafe extern "C" fn(*mut sqlite3_vtab_cursor) -> c_int>,
    pub filter: Option<
        unsafe extern "C" fn(
            *mut sqlite3_vtab_cursor,
            c_int,
            *const c_char,
            c_int,
            *mut *mut sqlite3_value,
        ) -> c_int,
    >,
    pub next: Option<unsafe extern "C" fn(*mut sqlite3_vtab_cursor) -> c_int>,
    pub eof: Option<unsafe extern "C" fn(*mut sqlite3_vtab_cursor) -> c_int>,
    pub column: Option<
        unsafe extern "C" fn(*mut sqlite3_vtab_cursor, *mut sqlite3_context, c_int) -> c_int,
    >,
    pub rowid: Option<unsafe extern "C" fn(*mut sqlite3_vtab_cursor, *mut i64) -> c_int>,
    /// xUpdate to xIntegrity: none of them is offered.
    pub rest: [any_fn; 12],
}

/// `SQLITE_DESERIALIZE`-independent destructor value: SQLite copies the text.
pub(crate) type destructor = Option<unsafe extern "C" fn(*mut c_void)>;

macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {
        $(pub(crate) const $name: c_int = $value;)*
        /// Every constant with its name, for the test that compares them with sqlite3.h.
        pub const CONSTANTS: &[(&str, c_int)] = &[$((stringify!($name), $name)),*];
    };
}

constants! {
    SQLITE_OK = 0;
    SQLITE_ERROR = 1;
    SQLITE_BUSY = 5;
    SQLITE_NOMEM = 7;
    SQLITE_READONLY = 8;
    SQLITE_INTERRUPT = 9;
    SQLITE_IOERR = 10;
    SQLITE_CORRUPT = 11;
    SQLITE_NOTFOUND = 12;
    SQLITE_CANTOPEN = 14;
    SQLITE_AUTH = 23;
    SQLITE_DENY = 1;
    SQLITE_PRAGMA = 19;
    SQLITE_NOTADB = 26;
    SQLITE_WARNING = 28;
    SQLITE_ROW = 100;
    SQLITE_OK_LOAD_PERMANENTLY = 256;
    SQLITE_IOERR_READ = 266;
    SQLITE_IOERR_SHORT_READ = 522;
    SQLITE_IOERR_WRITE = 778;
    SQLITE_IOERR_FSYNC = 1034;
    SQLITE_IOERR_DATA = 8202;
    SQLITE_OPEN_READONLY = 0x1;
    SQLITE_OPEN_READWRITE = 0x2;
    SQLITE_OPEN_CREATE = 0x4;
    SQLITE_OPEN_DELETEONCLOSE = 0x8;
    SQLITE_OPEN_EXCLUSIVE = 0x10;
    SQLITE_OPEN_URI = 0x40;
    SQLITE_OPEN_MAIN_DB = 0x100;
    SQLITE_OPEN_TEMP_DB = 0x200;
    SQLITE_OPEN_TRANSIENT_DB = 0x400;
    SQLITE_OPEN_MAIN_JOURNAL = 0x800;
    SQLITE_OPEN_TEMP_JOURNAL = 0x1000;
    SQLITE_OPEN_SUBJOURNAL = 0x2000;
    SQLITE_OPEN_SUPER_JOURNAL = 0x4000;
    SQLITE_OPEN_WAL = 0x80000;
    SQLITE_ACCESS_EXISTS = 0;
    SQLITE_LOCK_SHARED = 1;
    SQLITE_LOCK_RESERVED = 2;
    SQLITE_LOCK_EXCLUSIVE = 4;
    SQLITE_SHM_LOCK = 2;
    SQLITE_SHM_EXCLUSIVE = 8;
    SQLITE_SYNC_NORMAL = 2;
    SQLITE_SYNC_FULL = 3;
    SQLITE_IOCAP_ATOMIC = 0x1;
    SQLITE_IOCAP_SAFE_APPEND = 0x200;
    SQLITE_IOCAP_IMMUTABLE = 0x2000;
    SQLITE_IOCAP_POWERSAFE_OVERWRITE = 0x1000;
    SQLITE_IOCAP_BATCH_ATOMIC = 0x4000;
    SQLITE_FCNTL_SIZE_HINT = 5;
    SQLITE_FCNTL_CHUNK_SIZE = 6;
    SQLITE_FCNTL_FILE_POINTER = 7;
    SQLITE_FCNTL_VFSNAME = 12;
    SQLITE_FCNTL_PRAGMA = 14;
    SQLITE_FCNTL_MMAP_SIZE = 18;
    SQLITE_FCNTL_SYNC = 21;
    SQLITE_FCNTL_VFS_POINTER = 27;
    SQLITE_FCNTL_PDB = 30;
    SQLITE_FCNTL_BEGIN_ATOMIC_WRITE = 31;
    SQLITE_FCNTL_COMMIT_ATOMIC_WRITE = 32;
    SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE = 33;
    SQLITE_FCNTL_CKPT_START = 39;
    SQLITE_FCNTL_RESERVE_BYTES = 38;
    SQLITE_UTF8 = 1;
    SQLITE_DIRECTONLY = 0x80000;
    SQLITE_INTEGER = 1;
    SQLITE_TEXT = 3;
    SQLITE_BLOB = 4;
    SQLITE_NULL = 5;
    SQLITE_TRACE_STMT = 1;
}

/// `SQLITE_IOCAP_ATOMIC512` to `SQLITE_IOCAP_ATOMIC64K` and `SQLITE_IOCAP_ATOMIC`.
pub(crate) const IOCAP_ATOMIC_ANY: c_int = 0x1ff;
/// `SQLITE_IOCAP_SUBPAGE_READ` (3.48 and later).
pub(crate) const SQLITE_IOCAP_SUBPAGE_READ: c_int = 0x8000;
/// Files that SQLite makes for itself and removes again.
pub(crate) const TEMPORARY_FILES: c_int = SQLITE_OPEN_TEMP_DB
    | SQLITE_OPEN_TRANSIENT_DB
    | SQLITE_OPEN_TEMP_JOURNAL
    | SQLITE_OPEN_SUBJOURNAL;
