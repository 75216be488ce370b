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
    fn lseek(fd: c_int, to: off_t, whence: c_int) -> off_t {
        seek(fd, to, whence)
    }
    fn lseek64(fd: c_int, to: off_t, whence: c_int) -> off_t {
        seek(fd, to, whence)
    }
    fn ftruncate(fd: c_int, size: off_t) -> c_int {
        truncate_any(fd, size)
    }
    fn ftruncate64(fd: c_int, size: off_t) -> c_int {
        truncate_any(fd, size)
    }
    fn truncate(path: *const c_char, size: off_t) -> c_int {
        truncate_by_path(path, size)
    }
    fn truncate64(path: *const c_char, size: off_t) -> c_int {
        truncate_by_path(path, size)
    }
    fn posix_fallocate(fd: c_int, from: off_t, len: off_t) -> c_int {
        posix_fallocate_any(fd, from, len)
    }
    fn posix_fallocate64(fd: c_int, from: off_t, len: off_t) -> c_int {
        posix_fallocate_any(fd, from, len)
    }
    fn fallocate(fd: c_int, mode: c_int, from: off_t, len: off_t) -> c_int {
        fallocate_any(fd, mode, from, len)
    }
    fn fallocate64(fd: c_int, mode: c_int, from: off_t, len: off_t) -> c_int {
        fallocate_any(fd, mode, from, len)
    }
}

/// `lseek`, at logical offsets.
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

/// `ftruncate`, to a logical size.
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

/// `truncate`: a sealed file is opened for it, unless its bytes do not matter.
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

/// `posix_fallocate`: EINVAL for a sealed file that must not be extended by plain zeros.
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

/// `fallocate`: EOPNOTSUPP for a sealed file that must not be extended by plain zeros, and for
/// other modes than extending.
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

/// Whether the kernel may extend this file with zeros that are not sealed.
fn may_grow(fd: c_int, open: &OpenFile) -> bool {
    real()
        .file_size(fd)
        .is_ok_and(|size| open.file.may_grow_by_plain_zeros(size))
}
