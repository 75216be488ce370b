//! Process-wide hardening and the wiping of dead stack frames.
//!
//! Invariants: nothing here can fail in a way the caller must handle; both are second lines of
//! defence behind the locked arenas.
//!
//! Must not: be called by a library guard on behalf of its host. Whether a database server may
//! dump core is its operator's decision; only the `strongroom` command forbids it for itself.
#![expect(unsafe_code, reason = "prctl and setrlimit")]

use zeroize::zeroize_stack;

/// Forbids this process to dump core and other processes of the same user to read its memory.
///
/// Sets `PR_SET_DUMPABLE` to 0 and `RLIMIT_CORE` to 0. Best effort: on failure the arenas are
/// still excluded from dumps.
pub fn forbid_core_dumps() {
    // SAFETY: PR_SET_DUMPABLE takes one integer and changes only an attribute of the process.
    let _refused = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a valid rlimit for the duration of the call.
    let _refused = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

/// Overwrites about 16 KiB of dead stack below the caller.
///
/// Key set-up leaves copies of keys in the frames of functions that have returned. Call this right
/// after such a function, from the function that called it, and make sure that neither was inlined
/// into the other. Best effort (docs/internals/crypto.md): registers and frames that are still
/// alive are not reached.
#[inline(never)]
pub fn wipe_stack() {
    zeroize_stack::<{ 16 * 1024 }>();
}

/// [`wipe_stack`] for the small frames of one MAC, 4 KiB: it runs more often.
#[inline(never)]
pub(crate) fn wipe_stack_short() {
    zeroize_stack::<{ 4 * 1024 }>();
}
