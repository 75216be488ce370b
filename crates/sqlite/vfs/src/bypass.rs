//! Watches databases that SQLite opens without our VFS, through a VFS below it, and refuses those
//! whose URI names a key.
//!
//! SQLite does so on connections from before the extension was loaded, where a URI says `vfs=unix`,
//! and after `sqlite3_shutdown()` and `sqlite3_initialize()`, which make SQLite's own VFS the
//! default again and forget automatic extensions. SQLite would ignore a key in the URI, and the
//! database would be plain. The entries of SQLite's VFSs always stay in place, so their `xOpen` is
//! replaced by a function that checks first.
//!
//! Invariants:
//! - P1. SQLite's own VFSs, and the one below ours, refuse a URI that names a key, in any product's
//!   words. A VFS of another extension that a URI names is not watched.
//! - P2. Our VFS opens files through [`original_open`], never through the function that is in the
//!   entry now.
//! - P4. In a program that has a default key, these VFSs create no temporary file either: rows for
//!   which a database in memory has no room would be in it in clear.
//! - P3. After SQLite was shut down, the first database that is opened makes our VFS the default
//!   again.
//!
//! Must not: read parameters of a name that need not have any (`SQLITE_OPEN_URI`).
#![expect(unsafe_code, reason = "called by SQLite; changes entries of its VFSs")]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use strongroom_format::code;

use crate::api::Api;
use crate::defaults;
use crate::defaults::never_plain;
use crate::ffi::{
    SQLITE_CANTOPEN, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_URI, TEMPORARY_FILES, sqlite3_file,
    sqlite3_vfs,
};
use crate::key_options::KeyOptions;
use crate::report::report;
use crate::sqlite_code::SqliteCode;
use crate::sqlite_text;
use crate::sqlite_text::uri_parameter;

type Open = unsafe extern "C" fn(
    *mut sqlite3_vfs,
    *const c_char,
    *mut sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;

/// SQLite's own VFSs on Unix (`os_unix.c`, `sqlite3_os_init`).
const NAMES: [&CStr; 4] = [c"unix", c"unix-none", c"unix-dotfile", c"unix-excl"];

/// The entry of a VFS, and the `xOpen` that it had before.
struct WatchedVfs(*mut sqlite3_vfs, Open);

// SAFETY: entries of registered VFSs live as long as the process; the pointer is only compared.
unsafe impl Send for WatchedVfs {}
// SAFETY: as above.
unsafe impl Sync for WatchedVfs {}

static WATCHED: OnceLock<Vec<WatchedVfs>> = OnceLock::new();

/// Makes our VFS the default again after SQLite has forgotten it (P3).
static RESTORE: OnceLock<fn()> = OnceLock::new();

/// Replaces `xOpen` of SQLite's own VFSs and of `below`, the VFS below ours, by a function that
/// refuses databases with a key. Done once for the process. `put_back` is called before a database
/// is opened without our VFS.
pub(crate) fn replace_open(api: &Api, below: *mut sqlite3_vfs, put_back: fn()) {
    // SAFETY: a name that ends with a zero byte.
    let named = NAMES.map(|name| unsafe { (api.vfs_find)(name.as_ptr()) });
    let mut watched: Vec<WatchedVfs> = Vec::new();
    for vfs in named.into_iter().chain([below]) {
        let known = watched.iter().any(|WatchedVfs(other, _)| *other == vfs);
        // SAFETY: null, or a registered VFS, whose entry stays readable.
        let entry = unsafe { vfs.as_ref() };
        if let (false, Some(call)) = (known, entry.and_then(|entry| entry.open)) {
            watched.push(WatchedVfs(vfs, call));
        }
    }
    if RESTORE.set(put_back).is_err() || WATCHED.set(watched).is_err() {
        return;
    }
    for WatchedVfs(vfs, _) in WATCHED.get().into_iter().flatten() {
        // SAFETY: SQLite writes to entries itself when they are registered, so they can be written.
        // A thread that reads the pointer at this moment gets one or the other function, and both
        // open the file.
        unsafe { (&raw mut (**vfs).open).write_volatile(Some(open)) };
    }
}

/// Returns the function that opens a file of `vfs`, without the check that [`replace_open`] has
/// added. `None` if `vfs` has none, or is a copy of a changed entry whose origin is not found.
pub(crate) fn original_open(vfs: *mut sqlite3_vfs) -> Option<Open> {
    let watched = WATCHED.get().map_or(&[][..], Vec::as_slice);
    if let Some(WatchedVfs(_, call)) = watched.iter().find(|WatchedVfs(known, _)| *known == vfs) {
        return Some(*call);
    }
    // SAFETY: a registered VFS.
    let call = unsafe { (*vfs).open }?;
    let ours: Open = open;
    if !std::ptr::fn_addr_eq(call, ours) {
        return Some(call);
    }
    // A shim copied the entry after it was changed. Its origin is the VFS with the same application
    // data and the same size of files. If there is none, nothing is opened.
    // SAFETY: registered VFSs.
    let about = |vfs: *mut sqlite3_vfs| unsafe { ((*vfs).app_data, (*vfs).os_file_size) };
    let copied = watched
        .iter()
        .find(|WatchedVfs(known, _)| about(*known) == about(vfs));
    copied.map(|WatchedVfs(_, call)| *call)
}

/// Takes the place of `xOpen` of the VFS below: refuses a main database with a key, or, where they
/// must be sealed, any plain database or temporary file, and passes on all else.
unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let refused = catch_unwind(AssertUnwindSafe(|| refusal(name, flags)));
    let (Ok(None), Some(call)) = (&refused, original_open(vfs)) else {
        // SAFETY: the allocation that SQLite made for the file; a null table says that nothing
        // needs closing.
        unsafe { (*file).methods = std::ptr::null() };
        return refused.ok().flatten().unwrap_or(SQLITE_CANTOPEN);
    };
    // SAFETY: SQLite's own arguments, for the VFS that they are for.
    unsafe { call(vfs, name, file, flags, out_flags) }
}

/// Returns the result code that SQLite gets instead of the file (P1), after reporting why: SR-2283
/// for a main database whose URI names a key, or in a program with a default key; SR-2282 where
/// plain databases are forbidden. `None`: the file may be opened. First makes our VFS the default
/// again if SQLite was shut down.
fn refusal(name: *const c_char, flags: c_int) -> Option<c_int> {
    if flags & TEMPORARY_FILES != 0 {
        return temporary_refusal();
    }
    if flags & SQLITE_OPEN_MAIN_DB == 0 || name.is_null() {
        return None;
    }
    if let Some(put_back) = RESTORE.get() {
        put_back();
    }
    // SAFETY: with SQLITE_OPEN_URI, the name comes from SQLite's core with its parameters behind
    // it.
    let parameter = |key: &str| unsafe { uri_parameter(name, key) };
    let is_uri = flags & SQLITE_OPEN_URI != 0;
    // In a program with a default key, the key is meant for every database.
    let has_default = !matches!(defaults::get(), Ok(None));
    let names_a_key = has_default
        || is_uri
            && match KeyOptions::read(parameter) {
                Ok(parameters) => parameters.source.is_some(),
                Err(_) => true,
            };
    // SAFETY: SQLite's file name.
    let path = || unsafe { sqlite_text::text_of(name.cast()) };
    let SqliteCode(rc) = match names_a_key {
        true => report(&code::VFS_BYPASSED, path()),
        false if never_plain() => report(&code::NEVER_PLAIN, path()),
        false => return None,
    };
    Some(rc)
}

/// Reports SR-2283 for a temporary file of another VFS in a program with a default key (P4), and
/// returns SQLite's code for it. `None` in any other program. The file cannot be sealed here:
/// SQLite has allocated what the other VFS's own files need, and no more.
fn temporary_refusal() -> Option<c_int> {
    if matches!(defaults::get(), Ok(None)) {
        return None;
    }
    let detail = "a temporary file of a connection that does not use the sealing VFS";
    let SqliteCode(rc) = report(&code::VFS_BYPASSED, detail);
    Some(rc)
}
