//! Interposes the stat family, and reports the logical size of sealed files.
//!
//! Invariants: the logical size of a stream or a container is computed from the physical one, so no
//! file is opened or read for it; all other fields are the C library's. N2: Strongroom's own files
//! are not found.
//!
//! Must not: ask the kernel for more than the program asked for.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int, c_uint};

use shield::descriptors;
use shield::file_io::size_of_closed;
use shield::layout::FileLayout;
use shield::real::Errno;
use shield::resolve::Resolved;

use crate::arguments::{bytes, resolve_path, resolve_path_at};
use crate::next;
use crate::open::fail;

/// On a 64-bit system this is `struct stat64` too.
type Stat = libc::stat;
type Statx = libc::statx;

symbols! {
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn stat(path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(resolve_path(path), StatBuffer::Stat(about), || next::stat(path, about))
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn stat64(path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(resolve_path(path), StatBuffer::Stat(about), || next::stat(path, about))
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn lstat(path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(resolve_path(path), StatBuffer::Stat(about), || next::lstat(path, about))
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn lstat64(path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(resolve_path(path), StatBuffer::Stat(about), || next::lstat(path, about))
    }
    /// As the C library's function, with the logical size of a sealed file; EIO if the shield's
    /// entry for the descriptor is invalid.
    fn fstat(fd: c_int, about: *mut Stat) -> c_int {
        stat_by_descriptor(fd, StatBuffer::Stat(about), || next::fstat(fd, about))
    }
    /// As the C library's function, with the logical size of a sealed file; EIO if the shield's
    /// entry for the descriptor is invalid.
    fn fstat64(fd: c_int, about: *mut Stat) -> c_int {
        stat_by_descriptor(fd, StatBuffer::Stat(about), || next::fstat(fd, about))
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn fstatat(base: c_int, path: *const c_char, about: *mut Stat, flags: c_int) -> c_int {
        stat_at(
            base, path, flags, StatBuffer::Stat(about), || next::fstatat(base, path, about, flags)
        )
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn fstatat64(base: c_int, path: *const c_char, about: *mut Stat, flags: c_int) -> c_int {
        stat_at(
            base, path, flags, StatBuffer::Stat(about), || next::fstatat(base, path, about, flags)
        )
    }
    // Programs that were linked with a C library before 2.33 call these.
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn __xstat(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(
            resolve_path(path), StatBuffer::Stat(about), || next::__xstat(version, path, about)
        )
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn __xstat64(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(
            resolve_path(path), StatBuffer::Stat(about), || next::__xstat(version, path, about)
        )
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn __lxstat(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(
            resolve_path(path), StatBuffer::Stat(about), || next::__lxstat(version, path, about)
        )
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn __lxstat64(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        stat_by_path(
            resolve_path(path), StatBuffer::Stat(about), || next::__lxstat(version, path, about)
        )
    }
    /// As the C library's function, with the logical size of a sealed file; EIO if the shield's
    /// entry for the descriptor is invalid.
    fn __fxstat(version: c_int, fd: c_int, about: *mut Stat) -> c_int {
        stat_by_descriptor(fd, StatBuffer::Stat(about), || next::__fxstat(version, fd, about))
    }
    /// As the C library's function, with the logical size of a sealed file; EIO if the shield's
    /// entry for the descriptor is invalid.
    fn __fxstat64(version: c_int, fd: c_int, about: *mut Stat) -> c_int {
        stat_by_descriptor(fd, StatBuffer::Stat(about), || next::__fxstat(version, fd, about))
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn __fxstatat(
        version: c_int, base: c_int, path: *const c_char, about: *mut Stat, flags: c_int
    ) -> c_int {
        stat_at(
            base, path, flags, StatBuffer::Stat(about), || next::__fxstatat(
                version, base, path, about, flags
            )
        )
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn __fxstatat64(
        version: c_int, base: c_int, path: *const c_char, about: *mut Stat, flags: c_int
    ) -> c_int {
        stat_at(
            base, path, flags, StatBuffer::Stat(about), || next::__fxstatat(
                version, base, path, about, flags
            )
        )
    }
    /// As the C library's function, with the logical size of a sealed file; ENOENT for Strongroom's
    /// own files.
    fn statx(
        base: c_int, path: *const c_char, flags: c_int, mask: c_uint, about: *mut Statx
    ) -> c_int {
        stat_at(
            base, path, flags, StatBuffer::Statx(about), || next::statx(
                base, path, flags, mask, about
            )
        )
    }
}

/// The buffer that the C library fills.
#[derive(Clone, Copy)]
enum StatBuffer {
    Stat(*mut Stat),
    Statx(*mut Statx),
}

/// Calls `call`, which fills `about`, and replaces the size of a sealed file by the logical one.
/// Returns what `call` returns. Without calling it, returns -1 with ENOENT for a hidden path, or
/// with the error in `resolved`. A refused path is passed on.
///
/// # Safety
/// `about` points to a buffer that is filled when `call` returns 0.
unsafe fn stat_by_path(
    resolved: Result<Resolved, Errno>,
    about: StatBuffer,
    call: impl FnOnce() -> c_int,
) -> c_int {
    match resolved {
        Ok(Resolved::Hidden) => fail(libc::ENOENT),
        Err(errno) => fail(errno.0),
        Ok(Resolved::Outside | Resolved::Plain(_) | Resolved::Refused(_)) => call(),
        Ok(Resolved::Sealed(seal)) => {
            let done = call();
            if done == 0 {
                // SAFETY: by this function's contract.
                unsafe { set_logical_size(about, seal.layout) };
            }
            done
        }
    }
}

/// Calls `call`, which fills `about`, and replaces the size by the logical one if `fd` is a sealed
/// file. Returns what `call` returns; -1 with EIO if the descriptor's entry is invalid.
///
/// # Safety
/// As [`stat_by_path`].
unsafe fn stat_by_descriptor(fd: c_int, about: StatBuffer, call: impl FnOnce() -> c_int) -> c_int {
    let done = call();
    if done != 0 {
        return done;
    }
    match descriptors::find(fd) {
        Ok(None) => {}
        // SAFETY: by this function's contract.
        Ok(Some(open)) => unsafe { set_logical_size(about, open.file.layout) },
        Err(errno) => return fail(errno.0),
    }
    done
}

/// Calls `call` for a path relative to `base`, and replaces the size of a sealed file by the
/// logical one; with `AT_EMPTY_PATH` and an empty path, the file is `base` itself. Returns what
/// `call` returns; -1 with ENOENT for a hidden path.
///
/// # Safety
/// As [`stat_by_path`]; `path` is null or a terminated string.
unsafe fn stat_at(
    base: c_int,
    path: *const c_char,
    flags: c_int,
    about: StatBuffer,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let names_descriptor = flags & libc::AT_EMPTY_PATH != 0 && unsafe { bytes(path) }.is_empty();
    if names_descriptor && base != libc::AT_FDCWD {
        // SAFETY: by this function's contract.
        return unsafe { stat_by_descriptor(base, about, call) };
    }
    // SAFETY: by this function's contract.
    unsafe { stat_by_path(resolve_path_at(base, path), about, call) }
}

/// Replaces the physical size in the buffer by the logical one. Leaves it as it is for a layout
/// without header and for what is not a regular file.
///
/// # Safety
/// `about` points to a filled buffer.
unsafe fn set_logical_size(about: StatBuffer, layout: FileLayout) {
    if layout.is_headerless() {
        return;
    }
    let is_regular = |mode: u32| mode & libc::S_IFMT == libc::S_IFREG;
    match about {
        StatBuffer::Stat(about) => {
            // SAFETY: by this function's contract.
            let about = unsafe { &mut *about };
            if let (true, Ok(physical)) = (is_regular(about.st_mode), u64::try_from(about.st_size))
            {
                let logical = size_of_closed(layout, physical);
                about.st_size = libc::off_t::try_from(logical).unwrap_or(libc::off_t::MAX);
            }
        }
        StatBuffer::Statx(about) => {
            // SAFETY: by this function's contract.
            let about = unsafe { &mut *about };
            if is_regular(u32::from(about.stx_mode)) {
                about.stx_size = size_of_closed(layout, about.stx_size);
            }
        }
    }
}
