//! Interposes lseek, truncate and fallocate.
//!
//! Invariants: D4; the bytes by which a file is extended read as zeros.
//!
//! Must not: report the physical size.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int};

use libc::off_t;
use shield::descriptors::{self, OpenFile};
use shield::layout::FileLayout;
use shield::real::Errno;
use shield::resolve::Resolved;
use shield::{file_io, transfer};

use crate::arguments::{offset, resolve_path};
use crate::next::{self, real, status};
use crate::open::{fail, open_resolved};

symbols! {
    /// As lseek(2), at logical offsets of a sealed file.
    fn lseek(fd: c_int, to: off_t, whence: c_int) -> off_t {
        seek(fd, to, whence)
    }
    /// As lseek(2), at logical offsets of a sealed file.
    fn lseek64(fd: c_int, to: off_t, whence: c_int) -> off_t {
        seek(fd, to, whence)
    }
    /// As ftruncate(2), to a logical size of a sealed file.
    fn ftruncate(fd: c_int, size: off_t) -> c_int {
        truncate_any(fd, size)
    }
    /// As ftruncate(2), to a logical size of a sealed file.
    fn ftruncate64(fd: c_int, size: off_t) -> c_int {
        truncate_any(fd, size)
    }
    /// As truncate(2), to a logical size of a sealed file, which is opened for it. ENOENT for
    /// Strongroom's own files, EACCES where no file can be sealed.
    fn truncate(path: *const c_char, size: off_t) -> c_int {
        truncate_by_path(path, size)
    }
    /// As truncate(2), to a logical size of a sealed file, which is opened for it. ENOENT for
    /// Strongroom's own files, EACCES where no file can be sealed.
    fn truncate64(path: *const c_char, size: off_t) -> c_int {
        truncate_by_path(path, size)
    }
    /// As `posix_fallocate`(3); returns EINVAL for a sealed file that must not be extended by plain
    /// zeros.
    fn posix_fallocate(fd: c_int, from: off_t, len: off_t) -> c_int {
        posix_fallocate_any(fd, from, len)
    }
    /// As `posix_fallocate`(3); returns EINVAL for a sealed file that must not be extended by plain
    /// zeros.
    fn posix_fallocate64(fd: c_int, from: off_t, len: off_t) -> c_int {
        posix_fallocate_any(fd, from, len)
    }
    /// As fallocate(2); on a sealed file EOPNOTSUPP for a mode that does not extend, and where
    /// plain zeros must not extend it.
    fn fallocate(fd: c_int, mode: c_int, from: off_t, len: off_t) -> c_int {
        fallocate_any(fd, mode, from, len)
    }
    /// As fallocate(2); on a sealed file EOPNOTSUPP for a mode that does not extend, and where
    /// plain zeros must not extend it.
    fn fallocate64(fd: c_int, mode: c_int, from: off_t, len: off_t) -> c_int {
        fallocate_any(fd, mode, from, len)
    }
}

/// `lseek`, at logical offsets of a sealed file. Returns the new logical position, or -1 with
/// errno: EIO if the descriptor's entry is invalid.
///
/// # Safety
/// As lseek(2).
unsafe fn seek(fd: c_int, to: off_t, whence: c_int) -> off_t {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: plain arguments.
        Ok(None) => return unsafe { next::lseek(fd, to, whence) },
        Err(errno) => return off_t::from(fail(errno.0)),
    };
    match transfer::seek(real(), fd, &open, to, whence) {
        Ok(at) => off_t::try_from(at).unwrap_or(off_t::MAX),
        Err(errno) => off_t::from(fail(errno.0)),
    }
}

/// `ftruncate`, to a logical size of a sealed file. Returns 0, or -1 with errno: EINVAL for a
/// negative size, EIO if the descriptor's entry is invalid.
///
/// # Safety
/// As ftruncate(2).
unsafe fn truncate_any(fd: c_int, size: off_t) -> c_int {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: plain arguments.
        Ok(None) => return unsafe { next::ftruncate(fd, size) },
        Err(errno) => return fail(errno.0),
    };
    status(offset(size).and_then(|size| file_io::truncate(real(), fd, &open.file, size)))
}

/// `truncate`, to a logical size: a sealed file is opened for it and closed again, except where its
/// bytes do not matter (size 0 of a block file). ENOENT for a hidden path, EACCES for a refused
/// one.
///
/// # Safety
/// As truncate(2).
unsafe fn truncate_by_path(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: the program's string.
    match unsafe { resolve_path(path) } {
        Ok(Resolved::Outside | Resolved::Plain(_)) => {
            // SAFETY: the program's arguments.
            unsafe { next::truncate(path, size) }
        }
        Ok(Resolved::Sealed(seal))
            if seal.layout == FileLayout::Block && !seal.key.has_tails() && size == 0 =>
        {
            // SAFETY: the program's arguments.
            unsafe { next::truncate(path, size) }
        }
        resolved => {
            let flags = libc::O_RDWR | libc::O_CLOEXEC;
            // SAFETY: the program's string.
            let fd =
                unsafe { open_resolved(resolved, path, flags, |flags| next::open(path, flags, 0)) };
            if fd < 0 {
                return fd;
            }
            // SAFETY: opened above.
            let done = unsafe { truncate_any(fd, size) };
            let kept = Errno::last();
            descriptors::remove(fd);
            // SAFETY: opened above, and given to nobody.
            let _closed = unsafe { next::close(fd) };
            next::set_errno(kept.0);
            done
        }
    }
}

/// `posix_fallocate`: returns 0 or the error number, without setting errno. EINVAL for a sealed
/// file that must not be extended by plain zeros; EIO if the descriptor's entry is invalid.
///
/// # Safety
/// As `posix_fallocate`.
unsafe fn posix_fallocate_any(fd: c_int, from: off_t, len: off_t) -> c_int {
    match descriptors::find(fd) {
        // SAFETY: plain arguments.
        Ok(None) => unsafe { next::posix_fallocate(fd, from, len) },
        // The C library's emulation writes zeros into holes only, which is harmless (P4).
        Ok(Some(open)) if may_grow(fd, &open) => {
            // SAFETY: plain arguments.
            unsafe { next::posix_fallocate(fd, from, len) }
        }
        // This function returns the error number.
        Ok(Some(_)) => libc::EINVAL,
        Err(errno) => errno.0,
    }
}

/// `fallocate`. On a sealed file EOPNOTSUPP for other modes than 0 and `FALLOC_FL_KEEP_SIZE`, and
/// if it must not be extended by plain zeros; EIO if the descriptor's entry is invalid.
///
/// # Safety
/// As fallocate(2).
unsafe fn fallocate_any(fd: c_int, mode: c_int, from: off_t, len: off_t) -> c_int {
    match descriptors::find(fd) {
        // SAFETY: plain arguments.
        Ok(None) => unsafe { next::fallocate(fd, mode, from, len) },
        Ok(Some(open)) if may_grow(fd, &open) && matches!(mode, 0 | libc::FALLOC_FL_KEEP_SIZE) => {
            // SAFETY: plain arguments.
            unsafe { next::fallocate(fd, mode, from, len) }
        }
        Ok(Some(_)) => fail(libc::EOPNOTSUPP),
        Err(errno) => fail(errno.0),
    }
}

/// Whether the kernel may extend this file, from its present size, with zeros that are not sealed.
/// False if the size cannot be found out.
fn may_grow(fd: c_int, open: &OpenFile) -> bool {
    real()
        .file_size(fd)
        .is_ok_and(|size| open.file.may_grow_by_plain_zeros(size))
}
