//! Goal: a forked child goes on with the parent's XTS keys as its own, and its memory is locked
//! after `relock_after_fork` (C1, C13), as a PostgreSQL backend needs it.
//!
//! Method: fork, and let the child say over a pipe what the kernel's `/proc/self/smaps` tells of
//! the mapping that holds a key, before and after. The child seals while the parent does, and both
//! must come to what was sealed before the fork. A file of its own, so that no other thread holds a
//! lock at the fork.
#![expect(unsafe_code, reason = "fork, pipe and _exit")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[expect(dead_code, reason = "shared with tests that read more of it")]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use strongroom_crypto::{SecretBytes, XtsKey, memory_is_locked, relock_after_fork};
use support::region_of;

const ROUNDS: usize = 2000;

/// Bytes of the mapping at `address` that are locked; whether it is flagged as locked, and as not
/// dumped.
fn state_of(address: usize) -> (usize, bool, bool) {
    let region = region_of(address);
    (region.locked, region.has("lo"), region.has("dd"))
}

fn sealed(key: &XtsKey) -> Vec<u8> {
    let mut out = vec![0; 8192];
    key.encrypt(&[4; 16], &[9; 8192], &mut out).unwrap();
    out
}

/// Whether a child with these keys works and locks; any panic is a failure of the child.
fn child_is_well(key: &XtsKey, address: usize, expected: &[u8]) -> bool {
    let (_, locked_before, hidden_before) = state_of(address);
    relock_after_fork();
    let (bytes, locked, hidden) = state_of(address);
    let works = (0..ROUNDS).all(|_| sealed(key) == expected);
    let mut opened = vec![0; 8192];
    key.decrypt(&[4; 16], expected, &mut opened).unwrap();
    !locked_before
        && hidden_before
        && memory_is_locked()
        && locked
        && hidden
        && bytes > 0
        && works
        && opened == [9; 8192]
}

#[test]
fn a_child_has_the_keys_and_locks_them_again() {
    let mut bytes: Vec<u8> = (0..64).collect();
    let secret = SecretBytes::take(&mut bytes).unwrap();
    let key = XtsKey::new(&secret).unwrap();
    assert!(
        memory_is_locked(),
        "this test needs a lock limit of at least 64 KiB"
    );
    let address = secret.as_slice().as_ptr().addr();
    assert!(state_of(address).1);
    let expected = sealed(&key);
    // SAFETY: no other thread of this process holds a lock: the test runner's waits for this one.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // Unwinding would end the child's only thread, and with it the child, as if all were well.
        let child = AssertUnwindSafe(|| child_is_well(&key, address, &expected));
        let well = catch_unwind(child).unwrap_or(false);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    for _ in 0..ROUNDS {
        assert_eq!(sealed(&key), expected, "the parent is not disturbed");
    }
    let mut status = 0;
    // SAFETY: `pid` is a child of this process that nobody else waits for.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(
        status, 0,
        "the child's keys were not locked or did not work"
    );
    assert!(state_of(address).1, "the parent's lock is still there");
}
