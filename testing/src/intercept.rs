//! Steps in front of the system calls through which SQLite's unix VFS changes files: to stop there
//! and let another process look, or to die there.
//!
//! Invariants:
//! I1. Every call is passed on unchanged, except the one that the process dies at: of a write, a
//! part may be done.
//! I2. Installed once per process, before the first database is opened.
//!
//! Must not: be installed in a test's own process.
#![expect(
    unsafe_code,
    reason = "replaces entries in SQLite's table of system calls"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::ffi;

/// Smallest page of the page cache, in bytes.
const PAGE: i64 = 4096;

static CALLS: AtomicU64 = AtomicU64::new(0);
static DIE_AT: AtomicU64 = AtomicU64::new(0);
static TORN: AtomicU64 = AtomicU64::new(0);
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
    // SAFETY: SQLite keeps these as untyped pointers and calls each with the signature that belongs
    // to its name.
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

/// How much of the last write is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Torn {
    /// Nothing.
    Not = 0,
    /// Half of its bytes: what a power failure may leave.
    Half = 1,
    /// What goes into the first page of the page cache: the kernel looks for a signal between two
    /// of them (Linux, `generic_perform_write`).
    AtPage = 2,
}

impl Torn {
    /// By its number.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        match number % 3 {
            0 => Self::Not,
            1 => Self::Half,
            _ => Self::AtPage,
        }
    }
}

/// From now on the process dies by SIGKILL before its `call`th changing system call, counted from
/// here; of a write so much as `torn` says is done first.
pub fn die_at(call: u64, torn: Torn) {
    CALLS.store(0, Ordering::SeqCst);
    TORN.store(torn as u64, Ordering::SeqCst);
    DIE_AT.store(call, Ordering::SeqCst);
}

/// Changing system calls so far that count.
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

/// Counts a call. With [`Torn::AtPage`] only writes count that go on in another page, from within
/// one.
fn is_the_last(write: Option<(usize, i64)>) -> bool {
    if Torn::of(TORN.load(Ordering::SeqCst)) == Torn::AtPage
        && !write.is_some_and(|(len, at)| at % PAGE != 0 && part(len, at) < len)
    {
        return false;
    }
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

/// What is done of a write of `len` bytes at `at`.
fn part(len: usize, at: i64) -> usize {
    match Torn::of(TORN.load(Ordering::SeqCst)) {
        Torn::Not => 0,
        Torn::Half => len / 2,
        Torn::AtPage => usize::try_from(PAGE - at % PAGE).unwrap_or(0).min(len),
    }
}

unsafe extern "C" fn write(fd: c_int, data: *const c_void, len: usize) -> isize {
    if is_the_last(None) {
        // SAFETY: less of what the caller gave.
        unsafe { libc::write(fd, data, part(len, 0)) };
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::write(fd, data, len) }
}

unsafe extern "C" fn pwrite64(fd: c_int, data: *const c_void, len: usize, at: i64) -> isize {
    if is_the_last(Some((len, at))) {
        // SAFETY: less of what the caller gave.
        unsafe { libc::pwrite64(fd, data, part(len, at), at) };
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::pwrite64(fd, data, len, at) }
}

unsafe extern "C" fn ftruncate(fd: c_int, size: i64) -> c_int {
    look();
    if is_the_last(None) {
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::ftruncate(fd, size) }
}

unsafe extern "C" fn unlink(name: *const c_char) -> c_int {
    look();
    if is_the_last(None) {
        die();
    }
    // SAFETY: passed on (I1).
    unsafe { libc::unlink(name) }
}
