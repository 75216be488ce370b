//! The simulated disks as a VFS of SQLite's, "sim": the VFS stands on it as it stands on SQLite's
//! own.
//!
//! Must not: be registered after the VFS, which stands on what was the default when it came.
#![expect(unsafe_code, reason = "called by SQLite with raw pointers")]

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Once};

use rusqlite::ffi;

use super::file::{METHODS, Open, SimFile};
use super::machine::{Class, Kind, current, find};
use crate::random::Random;

/// The VFS's name, for `?vfs=`.
pub const NAME: &CStr = c"sim";
/// Longest path.
const PATH_MAX: c_int = 512;

/// Registers the VFS as the default, and then the VFS over it. Idempotent.
pub fn install() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let vfs = ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: c_int::try_from(size_of::<SimFile>()).unwrap_or(64),
            mxPathname: PATH_MAX,
            pNext: std::ptr::null_mut(),
            zName: NAME.as_ptr(),
            pAppData: std::ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: None,
            xCurrentTimeInt64: Some(current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        };
        // SAFETY: never freed, as SQLite demands.
        let rc = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 1) };
        assert_eq!(rc, ffi::SQLITE_OK, "registering the simulated disks");
        super::mount::install();
        let guard = strongroom_sqlite::register();
        assert!(guard.is_ok(), "registering the VFS");
    });
}

fn text<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite's names end with a zero byte.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}

fn kind_of(flags: c_int) -> Kind {
    match flags {
        _ if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 => Kind::Main,
        _ if flags & ffi::SQLITE_OPEN_MAIN_JOURNAL != 0 => Kind::Journal,
        _ if flags & ffi::SQLITE_OPEN_WAL != 0 => Kind::Wal,
        _ if flags & ffi::SQLITE_OPEN_SUPER_JOURNAL != 0 => Kind::Super,
        _ => Kind::Temp,
    }
}

/// The kind of a file whose name is all that is known.
fn kind_by_name(name: &str) -> Kind {
    match name {
        _ if name.contains("-mj") => Kind::Super,
        _ if name.ends_with("-journal") => Kind::Journal,
        _ if name.ends_with("-wal") => Kind::Wal,
        _ => Kind::Main,
    }
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let sim = file.cast::<SimFile>();
    // SAFETY: SQLite allocates `szOsFile` bytes; a null table says that nothing needs closing.
    unsafe { (*sim).base.pMethods = std::ptr::null() };
    let found = match text(name) {
        Some(path) => find(path).map(|(machine, name)| (machine, Some(name))),
        None => current().map(|machine| (machine, None)),
    };
    let Some((machine, name)) = found else {
        return ffi::SQLITE_CANTOPEN;
    };
    let kind = kind_of(flags);
    let mut state = machine.lock();
    if state.call(Class::Open, kind).is_some() {
        return ffi::SQLITE_CANTOPEN;
    }
    let (ino, new_name) = match &name {
        None => (state.disk.create_nameless(), false),
        Some(name) => match state.disk.find(name) {
            Some(_) if flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0 => return ffi::SQLITE_CANTOPEN,
            Some(ino) => (ino, false),
            None if flags & ffi::SQLITE_OPEN_CREATE == 0 => return ffi::SQLITE_CANTOPEN,
            None => (state.disk.create(name), kind != Kind::Main),
        },
    };
    let open = Open {
        ino,
        kind,
        handle: state.new_handle(),
        life: state.life,
        new_name,
        nameless: name.is_none(),
        machine: Arc::clone(&machine),
    };
    if !out_flags.is_null() {
        // SAFETY: SQLite gives a place for the result.
        unsafe { out_flags.write(flags) };
    }
    let opened = SimFile {
        base: ffi::sqlite3_file {
            pMethods: &raw const METHODS,
        },
        open: Box::into_raw(Box::new(open)),
    };
    // SAFETY: SQLite allocates `szOsFile` bytes.
    unsafe { sim.write(opened) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_names: c_int,
) -> c_int {
    let Some((machine, name)) = text(name).and_then(find) else {
        return ffi::SQLITE_IOERR_DELETE;
    };
    let kind = kind_by_name(&name);
    let mut state = machine.lock();
    if state.call(Class::Delete, kind).is_some() {
        return ffi::SQLITE_IOERR_DELETE;
    }
    if !state.disk.unlink(&name) {
        return ffi::SQLITE_IOERR_DELETE_NOENT;
    }
    if sync_names & 1 != 0 {
        if state.call(Class::SyncNames, kind).is_some() {
            return ffi::SQLITE_IOERR_DIR_FSYNC;
        }
        state.sync_names();
    }
    ffi::SQLITE_OK
}

/// As `unixAccess`: an empty file does not exist.
unsafe extern "C" fn access(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let mut answer = 0;
    let mut rc = ffi::SQLITE_OK;
    if let Some((machine, name)) = text(name).and_then(find) {
        let mut state = machine.lock();
        if state.call(Class::Access, kind_by_name(&name)).is_some() {
            rc = ffi::SQLITE_IOERR_ACCESS;
        } else if let Some(ino) = state.disk.find(&name) {
            let there = flags != ffi::SQLITE_ACCESS_EXISTS || !state.disk.bytes(ino).is_empty();
            answer = c_int::from(there);
        }
    }
    // SAFETY: SQLite gives a place for the result.
    unsafe { out.write(answer) };
    rc
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    let Some(name) = text(name) else {
        return ffi::SQLITE_CANTOPEN;
    };
    if usize::try_from(size).unwrap_or(0) <= name.len() {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has room for `size` bytes, which is more than the name has.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), out.cast::<u8>(), name.len()) };
    // SAFETY: as above: one more byte.
    unsafe { out.add(name.len()).write(0) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(
    _vfs: *mut ffi::sqlite3_vfs,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    let len = usize::try_from(size).unwrap_or(0);
    // SAFETY: SQLite gives `size` bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), len) };
    let mut random = Random::new(len as u64);
    for byte in out {
        *byte = u8::try_from(random.below(256)).unwrap_or(0);
    }
    size
}

/// No time passes.
unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: SQLite gives a place for the result.
    unsafe { out.write(2_460_000.5) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_int64(_vfs: *mut ffi::sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: SQLite gives a place for the result.
    unsafe { out.write(212_544_043_200_000) };
    ffi::SQLITE_OK
}
