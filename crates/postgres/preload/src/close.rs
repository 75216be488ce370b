//! Interposes close, dup and fcntl.
//!
//! Invariants: D1, the entry of a descriptor is removed before the descriptor is closed; D5,
//! `F_GETFL` returns the flags that the program opened the file with.
//!
//! Must not: touch the file.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_int, c_uint};

use shield::descriptors;
use strongroom_format::code;

use crate::open::fail;
use crate::{next, report};

symbols! {
    /// Removes the descriptor's entry from the table, then closes the descriptor.
    fn close(fd: c_int) -> c_int {
        descriptors::remove(fd);
        next::close(fd)
    }
    /// As `close_range`(2). Removes the descriptors' entries first, unless the flags say that they
    /// are only marked to be closed on exec.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // With this flag the descriptors stay open in this program.
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            descriptors::remove_range(first, last);
        }
        next::close_range(first, last, flags)
    }
    /// Removes the entries of `first` and all higher descriptors, then closes them.
    fn closefrom(first: c_int) -> () {
        descriptors::remove_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX);
        next::closefrom(first);
    }
    /// As dup(2); the copy of a sealed file gets its entry. EMFILE if the copy does not fit the
    /// table.
    fn dup(fd: c_int) -> c_int {
        enter_copy(fd, next::dup(fd))
    }
    /// As the C library's function; the copy of a sealed file gets its entry. EMFILE if the copy
    /// does not fit the table; EACCES, reported as SR-7002, if a sealed file would become a
    /// standard stream.
    fn dup2(fd: c_int, copy: c_int) -> c_int {
        if is_redirection(fd, copy) {
            return refuse_redirection();
        }
        enter_copy(fd, next::dup2(fd, copy))
    }
    /// As the C library's function; the copy of a sealed file gets its entry. EMFILE if the copy
    /// does not fit the table; EACCES, reported as SR-7002, if a sealed file would become a
    /// standard stream.
    fn dup3(fd: c_int, copy: c_int, flags: c_int) -> c_int {
        if is_redirection(fd, copy) {
            return refuse_redirection();
        }
        enter_copy(fd, next::dup3(fd, copy, flags))
    }
    /// As fcntl(2); append mode of a sealed file is emulated, and its copies get its entry. EACCES
    /// if a copy would be a standard stream.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl_any(fd, command, argument)
    }
    /// As fcntl(2); append mode of a sealed file is emulated, and its copies get its entry. EACCES
    /// if a copy would be a standard stream.
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl_any(fd, command, argument)
    }
}

const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// Whether copying `fd` to `copy` would make a sealed file a standard stream. The C library's
/// stdin, stdout and stderr, and those of a program that is executed next, would read and write the
/// stored bytes.
fn is_redirection(fd: c_int, copy: c_int) -> bool {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).contains(&copy)
        && fd != copy
        && descriptors::is_sealed(fd)
}

/// Reports SR-7002 for a redirection of a sealed file, and returns -1 with EACCES.
fn refuse_redirection() -> c_int {
    report::refuse(
        &code::PG_REFUSED,
        format_args!("a redirection to or from a sealed file"),
    );
    fail(libc::EACCES)
}

/// Copies the entry of `fd` to `copy`, the result of a dup, and returns `copy`; -1 is passed on. If
/// the number of `copy` does not fit the table, closes it and returns -1 with EMFILE.
fn enter_copy(fd: c_int, copy: c_int) -> c_int {
    if copy < 0 || descriptors::duplicate(fd, copy) {
        return copy;
    }
    // SAFETY: the copy was made just now, and given to nobody.
    let _closed = unsafe { next::close(copy) };
    fail(libc::EMFILE)
}

/// `fcntl`. On a sealed file, a copy of the descriptor gets its entry (EMFILE if it does not fit
/// the table; EACCES if it would be a standard stream), `F_GETFL` returns the flags that the
/// program opened the file with, and `F_SETFL` keeps `O_APPEND` in the table only. EIO if the
/// descriptor's entry is invalid.
///
/// # Safety
/// As fcntl(2).
unsafe fn fcntl_any(fd: c_int, command: c_int, argument: usize) -> c_int {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: the program's arguments.
        Ok(None) => return unsafe { next::fcntl(fd, command, argument) },
        Err(errno) => return fail(errno.0),
    };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: the program's arguments.
            let copy = unsafe { next::fcntl(fd, command, argument) };
            if is_redirection(fd, copy) {
                // SAFETY: made just now, and given to nobody.
                let _closed = unsafe { next::close(copy) };
                return refuse_redirection();
            }
            enter_copy(fd, copy)
        }
        libc::F_GETFL => {
            // SAFETY: the program's arguments.
            let flags = unsafe { next::fcntl(fd, command, argument) };
            if flags < 0 {
                return flags;
            }
            let access = if open.write_only {
                libc::O_WRONLY
            } else {
                flags & libc::O_ACCMODE
            };
            let append = if open.append { libc::O_APPEND } else { 0 };
            flags & !libc::O_ACCMODE | access | append
        }
        libc::F_SETFL => {
            // The argument is an int: only the lower half of the register counts.
            let bit = usize::try_from(libc::O_APPEND).unwrap_or(0);
            let (append, without) = (argument & bit != 0, argument & !bit);
            // SAFETY: the program's arguments without the flag that is emulated.
            let done = unsafe { next::fcntl(fd, command, without) };
            if done == 0 {
                descriptors::set_append(fd, append);
            }
            done
        }
        // SAFETY: the program's arguments.
        _ => unsafe { next::fcntl(fd, command, argument) },
    }
}
