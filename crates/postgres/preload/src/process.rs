//! fork and the working directory.
//!
//! Invariants: a forked child locks the memory that holds keys again (locks are not inherited), and has a table of
//! descriptors of its own, whatever it was forked with (D2); the working directory is known without a system call.
//!
//! Must not: do anything in a child of fork that is not allowed there: no allocation, no lock.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::pid_t;
use shield::open_instances;

use crate::next;

symbols! {
    fn fork() -> pid_t {
        forked()
    }
    // A child of the real vfork shares the memory of its parent: what it closes before it becomes another program
    // would be forgotten in the parent's table of descriptors, whose files would then be written in clear.
    fn vfork() -> pid_t {
        forked()
    }
    fn chdir(path: *const c_char) -> c_int {
        let done = next::chdir(path);
        if done == 0 {
            learn_working_directory();
        }
        done
    }
    fn fchdir(fd: c_int) -> c_int {
        let done = next::fchdir(fd);
        if done == 0 {
            learn_working_directory();
        }
        done
    }
}

/// # Safety
/// As fork(2).
unsafe fn forked() -> pid_t {
    // SAFETY: by this function's contract.
    let child = unsafe { next::fork() };
    if child == 0 && !open_instances::is_empty() {
        strongroom_crypto::relock_after_fork();
    }
    child
}

static DIRECTORY: AtomicPtr<Vec<u8>> = AtomicPtr::new(std::ptr::null_mut());

/// The working directory; empty when it cannot be told, and then a relative path is refused.
pub(crate) fn working_directory() -> &'static [u8] {
    let known = DIRECTORY.load(Ordering::Acquire);
    if known.is_null() {
        return b"";
    }
    // SAFETY: stored by `learn_working_directory`, never changed and never freed.
    unsafe { &*known }
}

/// Asks the kernel. The former answer is never freed: another thread may be looking at it, and a program changes its
/// directory a few times at most.
pub(crate) fn learn_working_directory() {
    let errno = shield::real::Errno::last();
    let path = std::env::current_dir().map(|path| path.into_os_string().into_vec());
    let kept = Box::new(path.unwrap_or_default());
    DIRECTORY.store(Box::into_raw(kept), Ordering::Release);
    next::set_errno(errno.0);
}
