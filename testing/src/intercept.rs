//! Steps in front of the system calls through which SQLite's unix VFS changes files: to stop there and let another
//! process look, or to die there.
//!
//! Invariants:
//! I1. Every call is passed on unchanged, except the one that the process dies at: of a write, half may be done.
//! I2. Installed once per process, before the first database is opened.
//!
//! Must not: be installed in a test's own process.
#![expect(
    unsafe_code,
    reason = "replaces entries in SQLite's table of system calls"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::ffi;

static CALLS: AtomicU64 = AtomicU64::new(0);
static DIE_AT: AtomicU64 = AtomicU64::new(0);
static TORN: AtomicBool = AtomicBool::new(false);
static BEFORE_REMOVAL: Mutex<Option<fn()>> = Mutex::new(None);

/// Puts the steps in place.
///
/// # Errors
/// SQLite's result code when it does not take one.
pub fn install() -> Result<(), c_int> {
    // SAFETY: null asks for the default VFS; "unix" is the name of SQLite's own.
    let vfs = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
    // SAFETY: a registered VFS lives as long as the process.
    let Some(set) = (unsafe { vfs.as_ref() }).and_then(|vfs| vfs.xSetSystemCall) else {
        return Err(ffi::SQLITE_NOTFOUND);
    };
    type Call = unsafe extern "C" fn();
    // SAFETY: SQLite keeps these as untyped pointers and calls each with the signature that belongs to its name.
    let calls: [(&CStr, Call); 5] = unsafe {
        [
            (
                c"write",
                std::mem::transmute::<*const c_void, Call>(write as *const c_void),
            ),
            (
                c"pwrite64",
                std::mem::transmute::<*const c_void, Call>(pwrite64 as *const c_void),
            ),
            (
                c"pwrite",
                std::mem::transmute::<*const c_void, Call>(pwrite64 as *const c_void),
            ),
            (
                c"ftruncate",
                std::mem::transmute::<*const c_void, Call>(ftruncate as *const c_void),
            ),
            (
                c"unlink",
                std::mem::transmute::<*const c_void, Call>(unlink as *const c_void),
            ),
        ]
    };
    for (name, call) in calls {
        // SAFETY: the VFS's own method, with a name that it knows.
        let rc = unsafe { set(vfs, name.as_ptr(), Some(call)) };
        if rc != ffi::SQLITE_OK {
            return Err(rc);
        }
    }
    Ok(())
}

/// From now on the process dies by SIGKILL before its `call`th changing system call, counted from here; with `torn`,
/// half of a write is done first.
pub fn die_at(call: u64, torn: bool) {
    CALLS.store(0, Ordering::SeqCst);
    TORN.store(torn, Ordering::SeqCst);
    DIE_AT.store(call, Ordering::SeqCst);
}

/// Changing system calls so far.
#[must_use]
pub fn calls() -> u64 {
    CALLS.load(Ordering::SeqCst)
}

/// `look` is called before each file is removed or cut.
pub fn before_removal(look: Option<fn()>) {
    *BEFORE_REMOVAL
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = look;
}

fn is_the_last() -> bool {
    let call = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    call == DIE_AT.load(Ordering::SeqCst)
}

fn look() {
    let look = *BEFORE_REMOVAL
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(look) = look {
        look();
    }
}

fn die() -> ! {
    // SAFETY: a signal to this process itself.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        std::thread::park();
    }
}

fn half(len: usize) -> usize {
    if TORN.load(Ordering::SeqCst) {
        len / 2
    } else {
        0
    }
}

unsafe extern "C" fn write(fd: c_int, data: *const c_void, len: usize) -> isize {
    if is_the_last() {
        // SAFETY: less of what the caller gave.
        unsafe { libc::write(fd, data, half(len)) };
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::write(fd, data, len) }
}

unsafe extern "C" fn pwrite64(fd: c_int, data: *const c_void, len: usize, at: i64) -> isize {
    if is_the_last() {
        // SAFETY: less of what the caller gave.
        unsafe { libc::pwrite64(fd, data, half(len), at) };
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::pwrite64(fd, data, len, at) }
}

unsafe extern "C" fn ftruncate(fd: c_int, size: i64) -> c_int {
    look();
    if is_the_last() {
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::ftruncate(fd, size) }
}

unsafe extern "C" fn unlink(name: *const c_char) -> c_int {
    look();
    if is_the_last() {
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::unlink(name) }
}
