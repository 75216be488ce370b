//! C arguments as Rust sees them: paths and buffers; and what the core says of a path.
//!
//! Must not: keep a reference longer than the call it belongs to.
#![expect(unsafe_code, reason = "pointers from C")]

use std::ffi::{CStr, c_char, c_int, c_void};

use shield::place::{Ruling, rule};
use shield::real::Errno;
use shield::roots;

use crate::process::working_directory;
use crate::start::open_later;

/// The bytes of a C string. Empty for a null pointer, which the C library then answers for.
///
/// # Safety
/// Null, or a terminated string that lives as long as the result is used.
pub(crate) unsafe fn bytes<'a>(path: *const c_char) -> &'a [u8] {
    if path.is_null() {
        return b"";
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// What the core says of `path`, relative to the working directory.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn ruling(path: *const c_char) -> Result<Ruling, Errno> {
    // SAFETY: by this function's contract.
    let path = unsafe { bytes(path) };
    if roots::none() {
        open_later(path)?;
        if roots::none() {
            return Ok(Ruling::Outside);
        }
    }
    rule(working_directory(), path)
}

/// What the core says of `path`, relative to the directory open as `base`.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn ruling_at(base: c_int, path: *const c_char) -> Result<Ruling, Errno> {
    if roots::none() {
        return Ok(Ruling::Outside);
    }
    // SAFETY: by this function's contract.
    let path = unsafe { bytes(path) };
    if base == libc::AT_FDCWD || path.starts_with(b"/") {
        return rule(working_directory(), path);
    }
    // Not on any way of PostgreSQL's: its programs do not use the ...at() functions.
    match std::fs::read_link(format!("/proc/self/fd/{base}")) {
        Ok(directory) => rule(directory.as_os_str().as_encoded_bytes(), path),
        Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EBADF))),
    }
}

/// The caller's buffer, to be filled.
///
/// # Safety
/// `into` is valid for writing `count` bytes, and nobody else uses them during the call.
pub(crate) unsafe fn buffer_mut<'a>(
    into: *mut c_void,
    count: usize,
) -> Result<&'a mut [u8], Errno> {
    if count == 0 {
        return Ok(&mut []);
    }
    if into.is_null() || isize::try_from(count).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: by this function's contract; not null, not longer than isize::MAX.
    Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), count) })
}

/// The caller's bytes, to be written.
///
/// PostgreSQL changes hint bits in a buffer while it is being written. The core reads each byte once, by a copy to its
/// own memory, and looks at the copy only (P1); whichever value a changing byte has is one that PostgreSQL may write.
///
/// # Safety
/// `from` is valid for reading `count` bytes.
pub(crate) unsafe fn buffer<'a>(from: *const c_void, count: usize) -> Result<&'a [u8], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() || isize::try_from(count).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: by this function's contract; not null, not longer than isize::MAX.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), count) })
}

/// A file offset from C.
pub(crate) fn offset(value: i64) -> Result<u64, Errno> {
    u64::try_from(value).map_err(|_| Errno(libc::EINVAL))
}
