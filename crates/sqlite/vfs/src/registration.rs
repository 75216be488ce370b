//! The registered VFS: recognises it, finds the VFS below it, and makes it the default again.
//!
//! Must not: open a file.
#![expect(unsafe_code, reason = "reads entries of SQLite's VFSs")]

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use crate::api::api;
use crate::ffi::{SQLITE_OK, sqlite3_vfs};
use crate::sqlite_code::check;

/// The VFS's name, for `?vfs=` and `sqlite3_vfs_find`.
pub const NAME: &CStr = c"strongroom";
pub(crate) struct Registered(pub *mut sqlite3_vfs);
// SAFETY: written once, before SQLite can use it; SQLite itself shares VFS objects between threads.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}
pub(crate) static REGISTERED: OnceLock<Registered> = OnceLock::new();

/// Whether `vfs` is the sealing VFS that this library has registered. False before it is
/// registered.
#[must_use]
pub(crate) fn is_ours(vfs: *mut sqlite3_vfs) -> bool {
    REGISTERED
        .get()
        .is_some_and(|ours| std::ptr::eq(ours.0, vfs))
}

/// Registers the VFS as SQLite's default again if the VFS below it is the default now, as it is
/// after `sqlite3_shutdown` and `sqlite3_initialize`. Any other default was chosen by the program,
/// and stays. Returns whether the default was changed: false also if this VFS was never registered,
/// or if SQLite refuses the registration.
pub(crate) fn become_default_again() -> bool {
    let (Some(api), Some(ours)) = (api(), REGISTERED.get()) else {
        return false;
    };
    // SAFETY: null asks for the default VFS.
    let default = unsafe { (api.vfs_find)(std::ptr::null()) };
    // SAFETY: registered before, and never freed.
    default == below_of(ours.0) && unsafe { (api.vfs_register)(ours.0, 1) } == SQLITE_OK
}

/// Returns the VFS below this one, which opens the real files. `None` before this VFS is
/// registered.
pub(crate) fn below() -> Option<*mut sqlite3_vfs> {
    REGISTERED.get().map(|ours| below_of(ours.0))
}

/// Returns the VFS below `vfs`, on which the files of this VFS are opened. `vfs` must be our own
/// VFS object.
pub(crate) fn below_of(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: SQLite calls with our own VFS object, whose app_data is the VFS below.
    unsafe { (*vfs).app_data }.cast::<sqlite3_vfs>()
}

/// Returns the absolute path that SQLite makes of `path`, by asking `xFullPathname` of the VFS
/// below. Databases are known by this path here. `None` if this VFS is not registered, if `path`
/// holds a zero byte, if the VFS below refuses the path, or if its answer is not UTF-8.
pub fn absolute(path: &str) -> Option<String> {
    let ours = REGISTERED.get()?.0;
    // SAFETY: registered and never freed.
    let size = unsafe { (*ours).max_pathname }.saturating_add(1);
    let name = CString::new(path).ok()?;
    let mut out = vec![0_u8; usize::try_from(size).ok()?];
    let below = below_of(ours);
    // SAFETY: a registered VFS.
    let full_pathname = unsafe { (*below).full_pathname }?;
    // SAFETY: `out` has room for `size` bytes.
    let rc = unsafe { full_pathname(below, name.as_ptr(), size, out.as_mut_ptr().cast()) };
    // A symbolic link is resolved and reported as such (SQLITE_OK_SYMLINK).
    check(rc & 0xff).ok()?;
    CStr::from_bytes_until_nul(&out)
        .ok()?
        .to_str()
        .ok()
        .map(str::to_owned)
}
