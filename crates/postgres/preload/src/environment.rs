//! Reads the settings in the server's environment, and removes the variables that its children must
//! not get.
//!
//! Invariants: R2, neither the library nor key material reaches a child of the server, whichever
//! variable held it, and `/proc/PID/environ` no longer shows it.
//!
//! Must not: be called after `main()` has begun, except [`plain_segment_policy`], and except in
//! `pg_ctl`, which has one thread.
#![expect(unsafe_code, reason = "the process's environment")]

use std::ffi::{CStr, CString, OsStr, OsString, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use shield::discover::ROOTS_VARIABLE;
use shield::restored::PlainSegments;
use shield::source;

use crate::next;

/// Runs the shield in any program, not only in PostgreSQL's.
pub(crate) const ALL_VARIABLE: &str = "STRONGROOM_SHIELD_ALL";
/// Whether segments in clear from the restore command are accepted: `accept`, or `refuse`, the
/// default.
const ARCHIVE_VARIABLE: &str = "STRONGROOM_PG_PLAIN_ARCHIVE";
/// The part of its file name by which the library finds itself in `LD_PRELOAD`.
const LIBRARY: &[u8] = b"libstrongroom_shield";

/// Whether segments in clear are refused. Nothing proves where they come from: somebody who can
/// write to the archive could have them replayed and sealed.
static REFUSED: AtomicBool = AtomicBool::new(true);

/// Reads from the environment whether segments in clear from the restore command are accepted, and
/// keeps it for [`plain_segment_policy`]. Any value but `accept` refuses them, also a misspelt one.
pub(crate) fn read_settings() {
    let value = std::env::var_os(ARCHIVE_VARIABLE).unwrap_or_default();
    // A misspelt value refuses.
    REFUSED.store(value != "accept", Ordering::Relaxed);
}

/// The policy that [`read_settings`] kept: `Sealed` if segments in clear are accepted and then
/// sealed, otherwise `Refused`, the default.
pub(crate) fn plain_segment_policy() -> PlainSegments {
    if REFUSED.load(Ordering::Relaxed) {
        PlainSegments::Refused
    } else {
        PlainSegments::Sealed
    }
}

/// Removes this library from `LD_PRELOAD`, under whichever name, and unsets the variable if nothing
/// else is in it. Returns the former value; `None` if the variable was not set.
pub(crate) fn remove_from_preload() -> Option<OsString> {
    let former = std::env::var_os("LD_PRELOAD")?;
    let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
    let kept: Vec<&[u8]> = former
        .as_bytes()
        .split(is_separator)
        .filter(|path| !path.is_empty() && !contains(path, LIBRARY) && !is_this_library(path))
        .collect();
    // SAFETY: before main(), or in `pg_ctl`, there is one thread.
    unsafe {
        if kept.is_empty() {
            std::env::remove_var("LD_PRELOAD");
        } else {
            std::env::set_var("LD_PRELOAD", OsStr::from_bytes(&kept.join(&b':')));
        }
    }
    Some(former)
}

/// Sets `LD_PRELOAD` to the value that [`remove_from_preload`] returned. `None` changes nothing.
pub(crate) fn restore_preload(preload: Option<OsString>) {
    if let Some(preload) = preload {
        // SAFETY: before main(), or in `pg_ctl`, there is one thread.
        unsafe { std::env::set_var("LD_PRELOAD", preload) };
    }
}

/// Whether `path` is the file of this library, perhaps under another name: device and inode are the
/// same. False if either cannot be looked at.
fn is_this_library(path: &[u8]) -> bool {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address of something in this library, and one structure to be filled.
    let found = unsafe { libc::dladdr((&raw const REFUSED).cast(), about.as_mut_ptr()) };
    // SAFETY: zeroed, or filled by the C library.
    let own = unsafe { about.assume_init() }.dli_fname;
    if found == 0 || own.is_null() {
        return false;
    }
    // SAFETY: the name of a loaded library, terminated, valid while it is loaded.
    let own = unsafe { CStr::from_ptr(own) }.to_bytes();
    let file = |path: &[u8]| Path::new(OsStr::from_bytes(path)).metadata().ok();
    match (file(own), file(path)) {
        (Some(own), Some(other)) => (own.dev(), own.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Whether `part` occurs in `path`.
fn contains(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|window| window == part)
}

/// Removes the variables that name keys, the keyring and the roots, so that children do not get
/// them. The values of those that hold key material, among them the variables in `secrets`, are
/// overwritten in place. The inherited descriptor with the key is closed, unless it is a standard
/// stream.
pub(crate) fn remove_key_variables(secrets: &[String]) {
    let prefix = source::VARIABLE_PREFIX;
    wipe(source::KEY_VARIABLE);
    if let Ok(named) = std::env::var(format!("{prefix}ENV")) {
        wipe(&named);
    }
    for name in secrets {
        wipe(name);
    }
    let inherited = std::env::var(format!("{prefix}FD")).ok();
    let inherited = inherited.and_then(|fd| fd.parse::<c_int>().ok());
    if let Some(fd) = inherited.filter(|fd| *fd > libc::STDERR_FILENO) {
        // SAFETY: the descriptor was inherited for this purpose, and nothing of this process uses
        // it.
        unsafe { next::close(fd) };
    }
    for kind in ["ID", "ENV", "FILE", "COMMAND", "FD"] {
        // SAFETY: before main() there is one thread.
        unsafe { std::env::remove_var(format!("{prefix}{kind}")) };
    }
    for name in [source::KEYRING_VARIABLE, ROOTS_VARIABLE, ALL_VARIABLE] {
        // SAFETY: as above.
        unsafe { std::env::remove_var(name) };
    }
}

/// Overwrites the value of a variable, in the environment block that `/proc/PID/environ` shows,
/// with zeros (`0`), and removes the variable. Does nothing if it is not set.
fn wipe(name: &str) {
    let Ok(name) = CString::new(name) else {
        return;
    };
    // SAFETY: a terminated name.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: the value is a terminated string of the environment block.
    let len = unsafe { CStr::from_ptr(value) }.count_bytes();
    // SAFETY: the block is writable, and before main() there is one thread.
    unsafe { std::ptr::write_bytes(value, b'0', len) };
    // SAFETY: as above.
    unsafe { libc::unsetenv(name.as_ptr()) };
}
