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

/// Whether `vfs` is this one.
#[must_use]
pub(crate) fn is_ours(vfs: *mut sqlite3_vfs) -> bool {
    REGISTERED
        .get()
        .is_some_and(|ours| std::ptr::eq(ours.0, vfs))
}

/// Makes the VFS the default again if the one below it is the default, which `sqlite3_initialize`
/// after `sqlite3_shutdown` causes. Another default was chosen by the program, and stays. Returns
/// whether the default was changed.
pub(crate) fn become_default_again() -> bool {
    let (Some(api), Some(ours)) = (api(), REGISTERED.get()) else {
        return false;
    };
    // SAFETY: null asks for the default VFS.
    let default = unsafe { (api.vfs_find)(std::ptr::null()) };
    // SAFETY: registered before, and never freed.
    default == below_of(ours.0) && unsafe { (api.vfs_register)(ours.0, 1) } == SQLITE_OK
}

/// The VFS below this one. `None` before it is registered.
pub(crate) fn below() -> Option<*mut sqlite3_vfs> {
    REGISTERED.get().map(|ours| below_of(ours.0))
}

/// The VFS on which this VFS's files are opened.
pub(crate) fn below_of(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: SQLite calls with our own VFS object, whose app_data is the VFS below.
    unsafe { (*vfs).app_data }.cast::<sqlite3_vfs>()
}

/// The absolute path that SQLite makes of `path`, by which databases are known here.
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
