//! The stat family: sealed files have the size that the program sees.
//!
//! Invariants: the size of a stream or a container follows from the physical one, so nothing is opened or read for it;
//! everything else is the C library's answer. N2: Strongroom's own files are not found.
//!
//! Must not: ask for more than the C library was asked for.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int, c_uint};

use libc::{AT_EMPTY_PATH, off_t, stat, statx};
use shield::body::{Body, size_of_closed};
use shield::files;
use shield::place::Ruling;
use shield::real::Errno;

use crate::arguments::{bytes, ruling, ruling_at};
use crate::names::visible;
use crate::next;
use crate::open::failed;

next! {
    stat(path: *const c_char, about: *mut stat) -> c_int, -1;
    lstat(path: *const c_char, about: *mut stat) -> c_int, -1;
    fstatat(base: c_int, path: *const c_char, about: *mut stat, flags: c_int) -> c_int, -1;
    __xstat(version: c_int, path: *const c_char, about: *mut stat) -> c_int, -1;
    __lxstat(version: c_int, path: *const c_char, about: *mut stat) -> c_int, -1;
    __fxstat(version: c_int, fd: c_int, about: *mut stat) -> c_int, -1;
    __fxstatat(version: c_int, base: c_int, path: *const c_char, about: *mut stat, flags: c_int) -> c_int, -1;
    statx(base: c_int, path: *const c_char, flags: c_int, mask: c_uint, about: *mut statx) -> c_int, -1;
}

// On a 64-bit system `struct stat` and `struct stat64` are the same.
symbols! {
    fn stat(path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_stat(path, about))
    }
    fn stat64(path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_stat(path, about))
    }
    fn lstat(path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_lstat(path, about))
    }
    fn lstat64(path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_lstat(path, about))
    }
    fn fstat(fd: c_int, about: *mut stat) -> c_int {
        by_descriptor(fd, about, || next::fstat(fd, about))
    }
    fn fstat64(fd: c_int, about: *mut stat) -> c_int {
        by_descriptor(fd, about, || next::fstat(fd, about))
    }
    fn fstatat(base: c_int, path: *const c_char, about: *mut stat, flags: c_int) -> c_int {
        at(base, path, flags, about, || next_fstatat(base, path, about, flags))
    }
    fn fstatat64(base: c_int, path: *const c_char, about: *mut stat, flags: c_int) -> c_int {
        at(base, path, flags, about, || next_fstatat(base, path, about, flags))
    }
    // What programs linked with a C library before 2.33 call.
    fn __xstat(version: c_int, path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_xstat(version, path, about))
    }
    fn __xstat64(version: c_int, path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_xstat(version, path, about))
    }
    fn __lxstat(version: c_int, path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_lxstat(version, path, about))
    }
    fn __lxstat64(version: c_int, path: *const c_char, about: *mut stat) -> c_int {
        by_path(ruling(path), about, || next_lxstat(version, path, about))
    }
    fn __fxstat(version: c_int, fd: c_int, about: *mut stat) -> c_int {
        by_descriptor(fd, about, || next_fxstat(version, fd, about))
    }
    fn __fxstat64(version: c_int, fd: c_int, about: *mut stat) -> c_int {
        by_descriptor(fd, about, || next_fxstat(version, fd, about))
    }
    fn __fxstatat(version: c_int, base: c_int, path: *const c_char, about: *mut stat, flags: c_int) -> c_int {
        at(base, path, flags, about, || next_fxstatat(version, base, path, about, flags))
    }
    fn __fxstatat64(version: c_int, base: c_int, path: *const c_char, about: *mut stat, flags: c_int) -> c_int {
        at(base, path, flags, about, || next_fxstatat(version, base, path, about, flags))
    }
    fn statx(base: c_int, path: *const c_char, flags: c_int, mask: c_uint, about: *mut statx) -> c_int {
        at(base, path, flags, about, || next_statx(base, path, flags, mask, about))
    }
}
