//! The stat family: sealed files have the size that the program sees.
//!
//! Invariants: the size of a stream or a container follows from the physical one, so nothing is opened or read for it;
//! everything else is the C library's answer. N2: Strongroom's own files are not found.
//!
//! Must not: ask for more than the C library was asked for.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int, c_uint};

use shield::descriptors;
use shield::file_io::size_of_closed;
use shield::layout::FileLayout;
use shield::real::Errno;
use shield::resolve::Resolved;

use crate::arguments::{bytes, resolve_path, resolve_path_at};
use crate::next;
use crate::open::failed;

/// On a 64-bit system this is `struct stat64` too.
type Stat = libc::stat;
type Statx = libc::statx;

symbols! {
    fn stat(path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::stat(path, about))
    }
    fn stat64(path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::stat(path, about))
    }
    fn lstat(path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::lstat(path, about))
    }
    fn lstat64(path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::lstat(path, about))
    }
    fn fstat(fd: c_int, about: *mut Stat) -> c_int {
        by_descriptor(fd, About::Stat(about), || next::fstat(fd, about))
    }
    fn fstat64(fd: c_int, about: *mut Stat) -> c_int {
        by_descriptor(fd, About::Stat(about), || next::fstat(fd, about))
    }
    fn fstatat(base: c_int, path: *const c_char, about: *mut Stat, flags: c_int) -> c_int {
        at(base, path, flags, About::Stat(about), || next::fstatat(base, path, about, flags))
    }
    fn fstatat64(base: c_int, path: *const c_char, about: *mut Stat, flags: c_int) -> c_int {
        at(base, path, flags, About::Stat(about), || next::fstatat(base, path, about, flags))
    }
    // What programs linked with a C library before 2.33 call.
    fn __xstat(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::__xstat(version, path, about))
    }
    fn __xstat64(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::__xstat(version, path, about))
    }
    fn __lxstat(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::__lxstat(version, path, about))
    }
    fn __lxstat64(version: c_int, path: *const c_char, about: *mut Stat) -> c_int {
        by_path(resolve_path(path), About::Stat(about), || next::__lxstat(version, path, about))
    }
    fn __fxstat(version: c_int, fd: c_int, about: *mut Stat) -> c_int {
        by_descriptor(fd, About::Stat(about), || next::__fxstat(version, fd, about))
    }
    fn __fxstat64(version: c_int, fd: c_int, about: *mut Stat) -> c_int {
        by_descriptor(fd, About::Stat(about), || next::__fxstat(version, fd, about))
    }
    fn __fxstatat(version: c_int, base: c_int, path: *const c_char, about: *mut Stat, flags: c_int) -> c_int {
        at(base, path, flags, About::Stat(about), || next::__fxstatat(version, base, path, about, flags))
    }
    fn __fxstatat64(version: c_int, base: c_int, path: *const c_char, about: *mut Stat, flags: c_int) -> c_int {
        at(base, path, flags, About::Stat(about), || next::__fxstatat(version, base, path, about, flags))
    }
    fn statx(base: c_int, path: *const c_char, flags: c_int, mask: c_uint, about: *mut Statx) -> c_int {
        at(base, path, flags, About::Statx(about), || next::statx(base, path, flags, mask, about))
    }
}

/// Where the C library puts its answer.
#[derive(Clone, Copy)]
enum About {
    Stat(*mut Stat),
    Statx(*mut Statx),
}

/// # Safety
/// What `about` points to is filled when `how` has succeeded.
unsafe fn by_path(
    resolved: Result<Resolved, Errno>,
    about: About,
    how: impl FnOnce() -> c_int,
) -> c_int {
    match resolved {
        Ok(Resolved::Hidden) => failed(libc::ENOENT),
        Err(errno) => failed(errno.0),
        Ok(Resolved::Outside | Resolved::Plain(_) | Resolved::Refused(_)) => how(),
        Ok(Resolved::Sealed(seal)) => {
            let done = how();
            if done == 0 {
                // SAFETY: by this function's contract.
                unsafe { correct(about, seal.layout) };
            }
            done
        }
    }
}

/// # Safety
/// As [`by_path`].
unsafe fn by_descriptor(fd: c_int, about: About, how: impl FnOnce() -> c_int) -> c_int {
    let done = how();
    if done != 0 {
        return done;
    }
    match descriptors::find(fd) {
        Ok(None) => {}
        // SAFETY: by this function's contract.
        Ok(Some(open)) => unsafe { correct(about, open.file.layout) },
        Err(errno) => return failed(errno.0),
    }
    done
}

/// # Safety
/// As [`by_path`]; `path` is null or a terminated string.
unsafe fn at(
    base: c_int,
    path: *const c_char,
    flags: c_int,
    about: About,
    how: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let names_descriptor = flags & libc::AT_EMPTY_PATH != 0 && unsafe { bytes(path) }.is_empty();
    if names_descriptor && base != libc::AT_FDCWD {
        // SAFETY: by this function's contract.
        return unsafe { by_descriptor(base, about, how) };
    }
    // SAFETY: by this function's contract.
    unsafe { by_path(resolve_path_at(base, path), about, how) }
}

/// Puts the logical size in the place of the physical one.
///
/// # Safety
/// What `about` points to is filled.
unsafe fn correct(about: About, layout: FileLayout) {
    if layout.is_headerless() {
        return;
    }
    let is_regular = |mode: u32| mode & libc::S_IFMT == libc::S_IFREG;
    match about {
        About::Stat(about) => {
            // SAFETY: by this function's contract.
            let about = unsafe { &mut *about };
            if let (true, Ok(physical)) = (is_regular(about.st_mode), u64::try_from(about.st_size))
            {
                let logical = size_of_closed(layout, physical);
                about.st_size = libc::off_t::try_from(logical).unwrap_or(libc::off_t::MAX);
            }
        }
        About::Statx(about) => {
            // SAFETY: by this function's contract.
            let about = unsafe { &mut *about };
            if is_regular(u32::from(about.stx_mode)) {
                about.stx_size = size_of_closed(layout, about.stx_size);
            }
        }
    }
}
