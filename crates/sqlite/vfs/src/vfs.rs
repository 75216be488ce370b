//! The VFS "strongroom". `choose` decides of which kind a file is that SQLite opens. Everything
//! else goes to the VFS below.
//!
//! Must not: replace a method that the VFS below already answers correctly.
#![expect(unsafe_code, reason = "called by SQLite with raw pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::api::api;
use crate::bypass;
use crate::choose::{OpenRequest, choose_file};
use crate::connection;
use crate::ffi::{
    SQLITE_ACCESS_EXISTS, SQLITE_CANTOPEN, SQLITE_ERROR, SQLITE_IOERR, SQLITE_OK, any_fn,
    sqlite3_file, sqlite3_vfs,
};
use crate::handle;
use crate::handle::{LOWER_OFFSET, lower_file_of};
use crate::hooks::{Hooks, set_hooks};
use crate::journal;
use crate::lower::LowerFile;
use crate::pragma;
use crate::registration::{NAME, REGISTERED, Registered, become_default_again, below_of};
use crate::remote;
use crate::report::{registration_error, report};
use crate::sqlite_code::SqliteCode;
use crate::sqlite_text;
use crate::super_journal;

/// Registers the VFS over SQLite's default one and makes it the default, sets the hooks, and
/// replaces `xOpen` of SQLite's own VFSs. If it is registered already, only makes it the default
/// again. `put_back` is called before SQLite opens a database without it. SR-2289 if another copy
/// of this library has registered its VFS, SR-5002 without memory, SR-9001 for any other failure.
pub(crate) fn register(put_back: fn()) -> Result<(), Error> {
    let Some(api) = api() else {
        return Err(Error::new(&code::BUG, "SQLite's functions are not known"));
    };
    if REGISTERED.get().is_some() {
        become_default_again();
        return Ok(());
    }
    set_hooks(Hooks {
        pragma: pragma::answer_pragma,
        check_attached: connection::check_attached,
    });
    // SAFETY: a name that ends with a zero byte.
    if !unsafe { (api.vfs_find)(NAME.as_ptr()) }.is_null() {
        // Another copy of this library is registered: each would seal again what the other has
        // sealed.
        return Err(Error::new(&code::VFS_LOADED_TWICE, ""));
    }
    // SAFETY: null asks for the default VFS.
    let below = unsafe { (api.vfs_find)(std::ptr::null()) };
    // SAFETY: a registered VFS lives as long as the process.
    let Some(model) = (unsafe { below.as_ref() }) else {
        return Err(Error::new(&code::BUG, "SQLite has no default VFS"));
    };
    let ours = Box::new(sqlite3_vfs {
        version: model.version.min(3),
        os_file_size: model
            .os_file_size
            .max(c_int::try_from(size_of::<remote::RemoteHandle>()).unwrap_or(16))
            .saturating_add(c_int::try_from(LOWER_OFFSET).unwrap_or(64)),
        max_pathname: model.max_pathname,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: below.cast::<c_void>(),
        open: Some(open),
        delete: Some(delete),
        access: Some(access),
        full_pathname: Some(full_pathname),
        dl_open: Some(dl_open),
        dl_error: Some(dl_error),
        dl_sym: Some(dl_sym),
        dl_close: Some(dl_close),
        randomness: Some(randomness),
        sleep: Some(sleep),
        current_time: Some(current_time),
        last_error: Some(last_error),
        current_time_int64: Some(current_time_int64),
        set_system_call: Some(set_system_call),
        get_system_call: Some(get_system_call),
        next_system_call: Some(next_system_call),
    });
    let ours = Box::into_raw(ours);
    if REGISTERED.set(Registered(ours)).is_err() {
        return Ok(());
    }
    // SAFETY: `ours` is never freed.
    let rc = unsafe { (api.vfs_register)(ours, 1) };
    bypass::replace_open(api, below, put_back);
    if rc == SQLITE_OK {
        Ok(())
    } else {
        Err(registration_error("sqlite3_vfs_register", rc))
    }
}

/// `xOpen`: opens the file below, or the remote file that the URI names, then chooses by its name,
/// flags and first bytes how this VFS treats it. After an error, which is reported, both are
/// closed.
unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the allocation that SQLite made for us; a null table says that nothing needs closing.
    unsafe { (*file).methods = std::ptr::null() };
    let below_vfs = below_of(vfs);
    // SAFETY: the allocation has our part first.
    let below = unsafe { lower_file_of(file) };
    let Some(call) = bypass::original_open(below_vfs) else {
        return SQLITE_CANTOPEN;
    };
    let rc = if remote::is_requested(name, flags) {
        remote::open(name, below, out_flags)
    } else {
        // SAFETY: the arguments are SQLite's own.
        unsafe { call(below_vfs, name, below, flags, out_flags) }
    };
    if rc != SQLITE_OK {
        // SAFETY: a VFS that failed may have left a table that wants closing; SQLite would close
        // our file only.
        if unsafe { !(*below).methods.is_null() } {
            // SAFETY: it has a method table, so it is open as far as it got.
            close_quietly(unsafe { LowerFile::new(below) });
        }
        return rc;
    }
    // SAFETY: opened just now.
    let lower = unsafe { LowerFile::new(below) };
    let path = if name.is_null() {
        String::new()
    } else {
        // SAFETY: SQLite's file name.
        unsafe { sqlite_text::text_of(name.cast()) }
    };
    let request = OpenRequest {
        name,
        path,
        flags,
        lower,
    };
    let chosen = catch_unwind(AssertUnwindSafe(|| choose_file(&request)))
        .unwrap_or_else(|_| Err(report(&code::BUG, "opening a file panicked")));
    match chosen {
        Ok(opened) => {
            // SAFETY: the allocation that SQLite made for us; the file below was opened above.
            match unsafe { handle::install(file, opened) } {
                Ok(()) => SQLITE_OK,
                Err(SqliteCode(rc)) => {
                    close_quietly(lower);
                    rc
                }
            }
        }
        Err(SqliteCode(rc)) => {
            close_quietly(lower);
            rc
        }
    }
}

/// Closes a file that cannot be used. An error is only reported (SR-5001).
fn close_quietly(lower: LowerFile) {
    if lower.close().is_err() {
        report(&code::IO, "closing a file that could not be used");
    }
}

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty = $missing:expr;)*) => {
        $(
            unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs, $($arg: $type),*) -> $ret {
                let below = below_of(vfs);
                // SAFETY: a registered VFS.
                match unsafe { (*below).$name } {
                    // SAFETY: the arguments are passed on unchanged.
                    Some(call) => unsafe { call(below, $($arg),*) },
                    None => $missing,
                }
            }
        )*
    };
}

pass_on! {
    delete(name: *const c_char, sync_dir: c_int) -> c_int = SQLITE_IOERR;
    full_pathname(name: *const c_char, size: c_int, out: *mut c_char) -> c_int = SQLITE_IOERR;
    dl_open(name: *const c_char) -> *mut c_void = std::ptr::null_mut();
    dl_error(size: c_int, out: *mut c_char) -> () = ();
    dl_sym(library: *mut c_void, name: *const c_char) -> any_fn = None;
    dl_close(library: *mut c_void) -> () = ();
    randomness(size: c_int, out: *mut c_char) -> c_int = 0;
    sleep(microseconds: c_int) -> c_int = 0;
    current_time(out: *mut f64) -> c_int = SQLITE_ERROR;
    last_error(size: c_int, out: *mut c_char) -> c_int = 0;
    set_system_call(name: *const c_char, call: any_fn) -> c_int = SQLITE_ERROR;
    get_system_call(name: *const c_char) -> any_fn = None;
    next_system_call(name: *const c_char) -> *const c_char = std::ptr::null();
}

/// `xCurrentTimeInt64`: writes the time in milliseconds since the beginning of the Julian
/// calendar's days. A VFS of version 2 may have the time as days only: SQLite asks ours for
/// milliseconds by its version alone (`sqlite3OsCurrentTimeInt64` in src/os.c).
unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, out: *mut i64) -> c_int {
    const DAY_MS: f64 = 86_400_000.0;
    let below = below_of(vfs);
    // SAFETY: a registered VFS; tables of version 1 end before the member, but ours has their
    // version then, and SQLite does not ask.
    if let Some(call) = unsafe { (*below).current_time_int64 } {
        // SAFETY: the arguments are passed on unchanged.
        return unsafe { call(below, out) };
    }
    let mut days = 0.0;
    // SAFETY: `days` is writable.
    let rc = unsafe { current_time(vfs, &raw mut days) };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "days of the calendar, times 8.64e7"
    )]
    // SAFETY: SQLite gives a place for the result.
    unsafe {
        out.write((days * DAY_MS) as i64);
    }
    rc
}

/// `xAccess`: passes the question on whether a file exists, or may be read or written. If it is
/// about the existence of a journal that a super-journal lists which is being read, its buffered
/// bytes are written first (J9); the error is returned if that fails.
unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let settled = catch_unwind(AssertUnwindSafe(|| {
        if name.is_null() || flags != SQLITE_ACCESS_EXISTS {
            return Ok(());
        }
        // SAFETY: SQLite gives a name that ends with a zero.
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok(path) if super_journal::super_journal_listing(path).is_some() => {
                journal::flush_journal_at(path)
            }
            _ => Ok(()),
        }
    }));
    match settled {
        Ok(Ok(())) => {}
        Ok(Err(SqliteCode(rc))) => return rc,
        Err(_) => return SQLITE_IOERR,
    }
    let below = below_of(vfs);
    // SAFETY: a registered VFS.
    match unsafe { (*below).access } {
        // SAFETY: the arguments are passed on unchanged.
        Some(call) => unsafe { call(below, name, flags, out) },
        None => SQLITE_IOERR,
    }
}
