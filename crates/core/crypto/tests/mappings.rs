//! Goal: the kernel treats the memory that holds secrets as C1, C2 and C7 say. Method: make one of
//! each, find the mapping it lies in, and read the kernel's own account of it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[expect(dead_code, reason = "shared with tests that read more of it")]
mod support;

use strongroom_crypto::{Locked, SecretBytes, SecretKey, memory_is_locked, nonce12};
use support::{region_of, regions};

#[test]
fn secrets_lie_in_locked_memory_that_is_not_dumped() {
    let key = SecretKey::generate().unwrap();
    let bytes = SecretBytes::with_capacity(64 * 1024).unwrap();
    let value = Locked::new([7_u8; 500]).unwrap();
    assert!(
        memory_is_locked(),
        "this test needs a lock limit of at least 256 KiB"
    );
    for address in [
        key.expose().as_ptr().addr(),
        bytes.as_slice().as_ptr().addr(),
        value.as_ptr().addr(),
    ] {
        let region = region_of(address);
        assert!(region.locked > 0, "nothing of the mapping is locked");
        assert!(region.has("lo"), "not locked: {:?}", region.flags);
        assert!(region.has("dd"), "would be dumped: {:?}", region.flags);
        assert!(region.permissions.starts_with("rw-p"));
    }
}

#[test]
fn an_arena_has_an_inaccessible_page_on_each_side() {
    let key = SecretKey::generate().unwrap();
    // Neighbouring arenas may be merged into one line only if nothing lies between them.
    let arena = region_of(key.expose().as_ptr().addr());
    for neighbour in [arena.range.start - 1, arena.range.end] {
        assert!(region_of(neighbour).permissions.starts_with("---"));
    }
}

#[test]
fn the_nonce_buffer_is_wiped_on_fork_and_not_dumped() {
    nonce12().unwrap();
    let wiped: Vec<_> = regions()
        .into_iter()
        .filter(|region| region.has("wf"))
        .collect();
    assert!(!wiped.is_empty(), "nonces are not buffered on this kernel");
    for region in wiped {
        assert!(region.has("dd"), "would be dumped: {:?}", region.flags);
    }
}
