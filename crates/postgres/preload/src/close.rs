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
    fn close(fd: c_int) -> c_int {
        descriptors::remove(fd);
        next::close(fd)
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // With this flag the descriptors stay open in this program.
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            descriptors::remove_range(first, last);
        }
        next::close_range(first, last, flags)
    }
    fn closefrom(first: c_int) -> () {
        descriptors::remove_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX);
        next::closefrom(first);
    }
    fn dup(fd: c_int) -> c_int {
        enter_copy(fd, next::dup(fd))
    }
    fn dup2(fd: c_int, copy: c_int) -> c_int {
        if is_redirection(fd, copy) {
            return refuse_redirection();
        }
        enter_copy(fd, next::dup2(fd, copy))
    }
    fn dup3(fd: c_int, copy: c_int, flags: c_int) -> c_int {
        if is_redirection(fd, copy) {
            return refuse_redirection();
        }
        enter_copy(fd, next::dup3(fd, copy, flags))
    }
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl_any(fd, command, argument)
    }
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        fcntl_any(fd, command, argument)
    }
}

const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// Whether a sealed file would become a standard stream. The C library's stdin, stdout and stderr,
/// and those of a program that is executed next, would read and write the stored bytes.
fn is_redirection(fd: c_int, copy: c_int) -> bool {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).contains(&copy)
        && fd != copy
        && descriptors::is_sealed(fd)
}

/// Reports the refusal, and returns -1 with EACCES.
fn refuse_redirection() -> c_int {
    report::refuse(
        &code::PG_REFUSED,
        format_args!("a redirection to or from a sealed file"),
    );
    fail(libc::EACCES)
}

/// Copies the entry of `fd` to `copy`, the result of a dup. Closes `copy` when its number does not
/// fit the table.
fn enter_copy(fd: c_int, copy: c_int) -> c_int {
    if copy < 0 || descriptors::duplicate(fd, copy) {
        return copy;
    }
    // SAFETY: the copy was made just now, and given to nobody.
    let _closed = unsafe { next::close(copy) };
    fail(libc::EMFILE)
}

/// `fcntl`: a copy of a sealed file's descriptor gets its entry; append mode is emulated.
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
