//! Interposes read and write, and their positioned and checked forms.
//!
//! Invariants: R4; a call on a file that is not sealed costs one load more than without the shield.
//!
//! Must not: allocate or lock.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t, ssize_t};
use shield::{descriptors, transfer};

use crate::arguments::{buffer, buffer_mut, offset};
use crate::next::{self, count, real};

symbols! {
    /// As read(2), at the file's position; a sealed file's bytes are opened. EIO if the
    /// descriptor's entry is invalid.
    fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
        match descriptors::find(fd) {
            Ok(None) => next::read(fd, into, len),
            Err(errno) => count(Err(errno)),
            Ok(Some(open)) => {
                count(
                    buffer_mut(into, len).and_then(|into| transfer::read(real(), fd, &open, into))
                )
            }
        }
    }
    /// As the function that it checks for: `len` bytes into a buffer of `room` bytes. If `len`
    /// exceeds `room`, the C library reports it and ends the program.
    fn __read_chk(fd: c_int, into: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        // The C library ends the program when the count exceeds the buffer, and reports it.
        if !descriptors::is_sealed(fd) || len > room {
            return next::__read_chk(fd, into, len, room);
        }
        read(fd, into, len)
    }
    /// As write(2), at the file's position or in append mode at the end; bytes to a sealed file are
    /// sealed. EIO if the descriptor's entry is invalid.
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
        match descriptors::find(fd) {
            Ok(None) => next::write(fd, from, len),
            Err(errno) => count(Err(errno)),
            Ok(Some(open)) => {
                count(buffer(from, len).and_then(|from| transfer::write(real(), fd, &open, from)))
            }
        }
    }
    /// As pread(2); a sealed file's bytes are opened.
    fn pread(fd: c_int, into: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        pread_any(fd, into, len, at)
    }
    /// As pread(2); a sealed file's bytes are opened.
    fn pread64(fd: c_int, into: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        pread_any(fd, into, len, at)
    }
    /// As the function that it checks for: `len` bytes into a buffer of `room` bytes. If `len`
    /// exceeds `room`, the C library reports it and ends the program.
    fn __pread_chk(fd: c_int, into: *mut c_void, len: size_t, at: off_t, room: size_t) -> ssize_t {
        if !descriptors::is_sealed(fd) || len > room {
            return next::__pread_chk(fd, into, len, at, room);
        }
        pread_any(fd, into, len, at)
    }
    /// As the function that it checks for: `len` bytes into a buffer of `room` bytes. If `len`
    /// exceeds `room`, the C library reports it and ends the program.
    fn __pread64_chk(
        fd: c_int, into: *mut c_void, len: size_t, at: off_t, room: size_t
    ) -> ssize_t {
        if !descriptors::is_sealed(fd) || len > room {
            return next::__pread_chk(fd, into, len, at, room);
        }
        pread_any(fd, into, len, at)
    }
    /// As pwrite(2); bytes to a sealed file are sealed.
    fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
        pwrite_any(fd, from, len, at)
    }
    /// As pwrite(2); bytes to a sealed file are sealed.
    fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
        pwrite_any(fd, from, len, at)
    }
}

/// `pread`: of a sealed file, its logical bytes, opened. Returns the count, or -1 with errno: EIO
/// if the descriptor's entry is invalid, EINVAL for a negative offset, EBADF if the program opened
/// the file for writing only.
///
/// # Safety
/// As pread(2).
#[inline]
unsafe fn pread_any(fd: c_int, into: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: the program's arguments.
        Ok(None) => return unsafe { next::pread(fd, into, len, at) },
        Err(errno) => return count(Err(errno)),
    };
    // SAFETY: the program's buffer.
    let into = unsafe { buffer_mut(into, len) };
    count(into.and_then(|into| transfer::read_at(real(), fd, &open, into, offset(at)?)))
}

/// `pwrite`: to a sealed file, sealed; in append mode at its end, whatever the offset. Returns the
/// count, or -1 with errno: EIO if the descriptor's entry is invalid, EINVAL for a negative offset.
///
/// # Safety
/// As pwrite(2).
#[inline]
unsafe fn pwrite_any(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: the program's arguments.
        Ok(None) => return unsafe { next::pwrite(fd, from, len, at) },
        Err(errno) => return count(Err(errno)),
    };
    // SAFETY: the program's buffer.
    let from = unsafe { buffer(from, len) };
    count(from.and_then(|from| transfer::write_at(real(), fd, &open, from, offset(at)?)))
}
