//! Goal: no nonce is handed out twice when a process forks with a half-used buffer (C7), and locks
//! lost by `fork` come back (C1).
//!
//! Method: several threads draw, fork, and draw on both sides at once. The child sends its nonces
//! through a pipe; all nonces of all processes must differ. A child does nothing but draw and
//! write, because it may have been copied while another thread held the allocator's lock.
#![expect(unsafe_code, reason = "fork, pipe and _exit")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Barrier};

use strongroom_crypto::{SecretKey, memory_is_locked, nonce12};

const THREADS: usize = 4;
const ROUNDS: usize = 5;
/// Fits a pipe's atomic write: 300 * 12 = 3600 bytes. More than two buffers full.
const DRAWN_AFTER: usize = 300;

/// Runs `child` in a forked process and returns the pipe it writes to. `child` returns the bytes
/// to write and must neither allocate nor lock.
fn forked<const N: usize>(child: impl FnOnce() -> [u8; N]) -> (libc::pid_t, File) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child calls only async-signal-safe functions and code that does not lock.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let message = child();
        // SAFETY: writes an array on the stack to an open pipe.
        let written = unsafe { libc::write(ends[1], message.as_ptr().cast(), message.len()) };
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(usize::try_from(written) != Ok(message.len()))) };
    }
    // SAFETY: both descriptors were just opened and are owned here alone.
    drop(unsafe { OwnedFd::from_raw_fd(ends[1]) });
    // SAFETY: as above.
    (pid, unsafe { File::from_raw_fd(ends[0]) })
}

fn finished(pid: libc::pid_t, mut pipe: File) -> Vec<u8> {
    let mut message = Vec::new();
    pipe.read_to_end(&mut message).unwrap();
    let mut status = 0;
    // SAFETY: `pid` is a child of this process that nobody else waits for.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
    message
}

fn draw<const N: usize>() -> [[u8; 12]; N] {
    let mut nonces = [[0; 12]; N];
    for nonce in &mut nonces {
        *nonce = nonce12().unwrap();
    }
    nonces
}

#[test]
fn parent_and_child_never_share_a_nonce() {
    let together = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let together = Arc::clone(&together);
            std::thread::spawn(move || fork_with_half_used_buffers(&together))
        })
        .collect();
    let nonces: Vec<[u8; 12]> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(nonces.len(), THREADS * ROUNDS * (40 + 2 * DRAWN_AFTER));
    let distinct: BTreeSet<[u8; 12]> = nonces.iter().copied().collect();
    assert_eq!(distinct.len(), nonces.len(), "a nonce was handed out twice");
}

fn fork_with_half_used_buffers(together: &Barrier) -> Vec<[u8; 12]> {
    let mut nonces = Vec::new();
    for _ in 0..ROUNDS {
        nonces.extend(draw::<40>());
        together.wait();
        let (pid, pipe) = forked(|| {
            let mut message = [0; 12 * DRAWN_AFTER];
            message.copy_from_slice(draw::<DRAWN_AFTER>().as_flattened());
            message
        });
        nonces.extend(draw::<DRAWN_AFTER>());
        let from_child = finished(pid, pipe);
        assert_eq!(from_child.len(), 12 * DRAWN_AFTER);
        nonces.extend(
            from_child
                .chunks_exact(12)
                .map(|nonce| <[u8; 12]>::try_from(nonce).unwrap()),
        );
    }
    nonces
}

/// `VmLck` of a child that asked, in KiB: before and after. The only test here that makes keys, so
/// no other thread can hold the allocator's lock while this one forks.
#[test]
fn a_child_locks_its_keys_again() {
    let key = SecretKey::generate().unwrap();
    assert!(
        memory_is_locked(),
        "this test needs a lock limit of at least 64 KiB"
    );
    let (pid, pipe) = forked(|| {
        let before = locked_kib();
        let says_locked = memory_is_locked();
        [before, u8::from(says_locked), locked_kib()]
    });
    let message = finished(pid, pipe);
    assert_eq!(
        message[0], 0,
        "locks are not inherited; if they are now, drop the relocking"
    );
    assert_eq!(message[1], 1, "the child could not lock again");
    assert!(
        message[2] >= 64,
        "the child says its keys are locked, the kernel says not"
    );
    assert_eq!(key.expose().len(), 32);
}

/// `VmLck` in `/proc/self/status`, capped at 255, read without allocating.
fn locked_kib() -> u8 {
    // SAFETY: a constant path.
    let status = unsafe { libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY) };
    let mut text = [0_u8; 4096];
    // SAFETY: `text` is writable for its length.
    let len = unsafe { libc::read(status, text.as_mut_ptr().cast(), text.len()) };
    let text = &text[..usize::try_from(len).unwrap()];
    let at = text.windows(6).position(|word| word == b"VmLck:").unwrap();
    let digits = text[at + 6..]
        .iter()
        .skip_while(|byte| byte.is_ascii_whitespace());
    digits
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0_u8, |value, digit| {
            value.saturating_mul(10).saturating_add(digit - b'0')
        })
}
