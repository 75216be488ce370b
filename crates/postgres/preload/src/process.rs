//! Interposes fork and chdir.
//!
//! Invariants: a forked child locks the memory that holds keys again, because memory locks are not
//! inherited, and has its own table of descriptors, whichever fork function made it (D2); the
//! working directory is known without a system call.
//!
//! Must not: allocate or lock in a child of fork.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::pid_t;
use shield::open_instances;

use crate::next;

symbols! {
    /// As fork(2). While an instance is open, the child locks the memory that holds keys again.
    fn fork() -> pid_t {
        fork_and_relock()
    }
    /// As fork(2), not vfork(2). A child of the real vfork shares the memory of its parent. A
    /// descriptor that it closes before it executes another program would be removed from the
    /// parent's table of descriptors, and the parent would then write that file in clear.
    fn vfork() -> pid_t {
        fork_and_relock()
    }
    /// Changes the working directory as the C library does, and on success remembers the new one
    /// for resolving paths.
    fn chdir(path: *const c_char) -> c_int {
        let done = next::chdir(path);
        if done == 0 {
            update_working_directory();
        }
        done
    }
    /// Changes the working directory as the C library does, and on success remembers the new one
    /// for resolving paths.
    fn fchdir(fd: c_int) -> c_int {
        let done = next::fchdir(fd);
        if done == 0 {
            update_working_directory();
        }
        done
    }
}

/// Forks. While an instance is open, the child locks the memory that holds keys again. Returns as
/// fork(2).
///
/// # Safety
/// As fork(2).
unsafe fn fork_and_relock() -> pid_t {
    // SAFETY: by this function's contract.
    let child = unsafe { next::fork() };
    if child == 0 && !open_instances::is_empty() {
        strongroom_crypto::relock_after_fork();
    }
    child
}

static DIRECTORY: AtomicPtr<Vec<u8>> = AtomicPtr::new(std::ptr::null_mut());

/// The working directory. Empty when it is not known; a relative path is then refused.
pub(crate) fn working_directory() -> &'static [u8] {
    let known = DIRECTORY.load(Ordering::Acquire);
    if known.is_null() {
        return b"";
    }
    // SAFETY: stored by `update_working_directory`, never changed and never freed.
    unsafe { &*known }
}

/// Asks the kernel for the working directory, and keeps it for [`working_directory`]; empty if the
/// kernel does not tell. errno is unchanged. The former path is never freed, because another thread
/// may be reading it; a program changes its directory a few times at most.
pub(crate) fn update_working_directory() {
    let errno = shield::real::Errno::last();
    let path = std::env::current_dir().map(|path| path.into_os_string().into_vec());
    let kept = Box::new(path.unwrap_or_default());
    DIRECTORY.store(Box::into_raw(kept), Ordering::Release);
    next::set_errno(errno.0);
}
