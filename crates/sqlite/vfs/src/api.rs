//! The functions of SQLite that this crate calls, as one table. It is filled from the routines that
//! SQLite gives to a loadable extension, or from a library that is linked in. This crate itself
//! links to no SQLite.
//!
//! Invariant A1: the table is set once, before the VFS is registered, and never changes.
//! Must not: call anything while the table is being filled, except `sqlite3_libversion_number`.
#![expect(unsafe_code, reason = "function pointers of a C library")]

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::sync::OnceLock;

use crate::ffi::{
    destructor, sqlite3, sqlite3_context, sqlite3_file, sqlite3_module, sqlite3_mutex,
    sqlite3_stmt, sqlite3_value, sqlite3_vfs,
};

type ScalarFn = unsafe extern "C" fn(*mut sqlite3_context, c_int, *mut *mut sqlite3_value);
type AuthorizerFn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    *const c_char,
    *const c_char,
    *const c_char,
) -> c_int;
type TraceFn = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, *mut c_void) -> c_int;

macro_rules! api {
    ($($name:ident @ $index:literal : fn($($arg:ty),* $(; $dots:tt)?) $(-> $ret:ty)?;)*) => {
        /// SQLite's functions, by the names of `sqlite3_api_routines`.
        #[derive(Clone, Copy)]
        pub(crate) struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),* $(, $dots)?) $(-> $ret)?,)*
        }

        /// Index of each function in `sqlite3_api_routines`, for the test that compares them with
        /// sqlite3ext.h.
        pub const ROUTINES: &[(&str, usize)] = &[$((stringify!($name), $index)),*];

        impl Api {
            /// Takes the functions out of the routines that SQLite hands to an extension.
            /// `None` when a function is missing, which no supported version does.
            ///
            /// # Safety
            /// `routines` is the `sqlite3_api_routines` pointer given to an extension's entry point
            /// by a SQLite of version 3.37 or later (checked by the caller through the first
            /// entries, which all versions have).
            #[must_use]
            pub(crate) unsafe fn from_routines(routines: *const c_void) -> Option<Self> {
                let table = routines.cast::<Option<unsafe extern "C" fn()>>();
                Some(Self {
                    $($name: {
                        // SAFETY: the table of 3.37 and later has more entries than the greatest
                        // index here.
                        let entry = unsafe { table.add($index).read() }?;
                        // SAFETY: the entry at this index has this type in every version of
                        // sqlite3ext.h: entries are only ever appended.
                        unsafe {
                            std::mem::transmute::<
                                unsafe extern "C" fn(),
                                unsafe extern "C" fn($($arg),* $(, $dots)?) $(-> $ret)?,
                            >(entry)
                        }
                    },)*
                })
            }
        }
    };
}

api! {
    column_int64 @ 29: fn(*mut sqlite3_stmt, c_int) -> i64;
    column_text @ 36: fn(*mut sqlite3_stmt, c_int) -> *const c_uchar;
    declare_vtab @ 50: fn(*mut sqlite3, *const c_char) -> c_int;
    errmsg @ 53: fn(*mut sqlite3) -> *const c_char;
    exec @ 55: fn(*mut sqlite3, *const c_char, *const c_void, *mut c_void, *mut *mut c_char) -> c_int;
    finalize @ 57: fn(*mut sqlite3_stmt) -> c_int;
    free @ 58: fn(*mut c_void);
    get_autocommit @ 60: fn(*mut sqlite3) -> c_int;
    interruptx @ 64: fn(*mut sqlite3);
    set_authorizer @ 91: fn(*mut sqlite3, Option<AuthorizerFn>, *mut c_void) -> c_int;
    result_error @ 80: fn(*mut sqlite3_context, *const c_char, c_int);
    result_int @ 82: fn(*mut sqlite3_context, c_int);
    result_int64 @ 83: fn(*mut sqlite3_context, i64);
    result_null @ 84: fn(*mut sqlite3_context);
    result_text @ 85: fn(*mut sqlite3_context, *const c_char, c_int, destructor);
    step @ 94: fn(*mut sqlite3_stmt) -> c_int;
    value_blob @ 102: fn(*mut sqlite3_value) -> *const c_void;
    value_bytes @ 103: fn(*mut sqlite3_value) -> c_int;
    value_text @ 109: fn(*mut sqlite3_value) -> *const c_uchar;
    value_type @ 113: fn(*mut sqlite3_value) -> c_int;
    prepare_v2 @ 116: fn(*mut sqlite3, *const c_char, c_int, *mut *mut sqlite3_stmt, *mut *const c_char) -> c_int;
    create_module_v2 @ 119: fn(*mut sqlite3, *const c_char, *const sqlite3_module, *mut c_void, destructor) -> c_int;
    file_control @ 127: fn(*mut sqlite3, *const c_char, c_int, *mut c_void) -> c_int;
    mutex_leave @ 133: fn(*mut sqlite3_mutex);
    mutex_try @ 134: fn(*mut sqlite3_mutex) -> c_int;
    vfs_find @ 141: fn(*const c_char) -> *mut sqlite3_vfs;
    vfs_register @ 142: fn(*mut sqlite3_vfs, c_int) -> c_int;
    next_stmt @ 152: fn(*mut sqlite3, *mut sqlite3_stmt) -> *mut sqlite3_stmt;
    sql @ 153: fn(*mut sqlite3_stmt) -> *const c_char;
    create_function_v2 @ 162: fn(*mut sqlite3, *const c_char, c_int, c_int, *mut c_void, Option<ScalarFn>, Option<ScalarFn>, Option<unsafe extern "C" fn(*mut sqlite3_context)>, destructor) -> c_int;
    db_mutex @ 164: fn(*mut sqlite3) -> *mut sqlite3_mutex;
    log @ 167: fn(c_int, *const c_char; ...);
    stmt_busy @ 184: fn(*mut sqlite3_stmt) -> c_int;
    stmt_readonly @ 185: fn(*mut sqlite3_stmt) -> c_int;
    uri_parameter @ 189: fn(*const c_char, *const c_char) -> *const c_char;
    auto_extension @ 192: fn(Option<unsafe extern "C" fn()>) -> c_int;
    malloc64 @ 197: fn(u64) -> *mut c_void;
    trace_v2 @ 214: fn(*mut sqlite3, u32, Option<TraceFn>, *mut c_void) -> c_int;
    expanded_sql @ 215: fn(*mut sqlite3_stmt) -> *mut c_char;
    database_file_object @ 251: fn(*const c_char) -> *mut sqlite3_file;
}

static API: OnceLock<Api> = OnceLock::new();

/// Sets the table of SQLite's functions for the whole process, once. A second call is ignored (A1).
pub(crate) fn set_api(api: Api) {
    API.get_or_init(|| api);
}

/// Returns the table of SQLite's functions. `None` before [`set_api`].
#[must_use]
pub(crate) fn api() -> Option<&'static Api> {
    API.get()
}
