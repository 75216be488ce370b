//! close, dup, fcntl: the life of a descriptor.
//!
//! Invariants: D1, an entry goes before its descriptor does; D5, `F_GETFL` tells what the program asked for.
//!
//! Must not: touch the file.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_int, c_uint};

use shield::descriptors;
use strongroom_format::code;

use crate::open::failed;
use crate::{next, report};

symbols! {
    fn close(fd: c_int) -> c_int {
        descriptors::remove(fd);
        next::close(fd)
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // With CLOEXEC set they stay open in this program.
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
        copied(fd, next::dup(fd))
    }
    fn dup2(fd: c_int, copy: c_int) -> c_int {
        if is_redirection(fd, copy) { refused() } else { copied(fd, next::dup2(fd, copy)) }
    }
    fn dup3(fd: c_int, copy: c_int, flags: c_int) -> c_int {
        if is_redirection(fd, copy) { refused() } else { copied(fd, next::dup3(fd, copy, flags)) }
    }
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        controlled(fd, command, argument)
    }
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        controlled(fd, command, argument)
    }
}

const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// Whether a sealed file is to become a standard stream. The C library's own stdin, stdout and stderr, and those of a
/// program that is run next, would read and write the file itself, in clear.
fn is_redirection(fd: c_int, copy: c_int) -> bool {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).contains(&copy)
        && fd != copy
        && descriptors::is_sealed(fd)
}

fn refused() -> c_int {
    report::refuse(
        &code::PG_REFUSED,
        format_args!("a redirection to or from a sealed file"),
    );
    failed(libc::EACCES)
}

/// Enters `copy`, the result of a dup of `fd`, for what `fd` is.
fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy < 0 || descriptors::duplicate(fd, copy) {
        return copy;
    }
    // SAFETY: the copy was made just now, and given to nobody.
    let _closed = unsafe { next::close(copy) };
    failed(libc::EMFILE)
}

/// # Safety
/// As fcntl(2).
unsafe fn controlled(fd: c_int, command: c_int, argument: usize) -> c_int {
    let open = match descriptors::find(fd) {
        Ok(Some(open)) => open,
        // SAFETY: the program's arguments.
        Ok(None) => return unsafe { next::fcntl(fd, command, argument) },
        Err(errno) => return failed(errno.0),
    };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: the program's arguments.
            let copy = unsafe { next::fcntl(fd, command, argument) };
            if is_redirection(fd, copy) {
                // SAFETY: made just now, and given to nobody.
                let _closed = unsafe { next::close(copy) };
                return refused();
            }
            copied(fd, copy)
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
            // Only the lower half of the register is the argument, an int.
            let bit = usize::try_from(libc::O_APPEND).unwrap_or(0);
            let (append, without) = (argument & bit != 0, argument & !bit);
            // SAFETY: the program's arguments but for the flag that is emulated.
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
