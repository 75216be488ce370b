//! Goal: encrypting and decrypting with an XTS key allocate nothing (C13), neither here nor in
//! libcrypto, from the first call on.
//!
//! Method: libcrypto allocates with `malloc` outside a key's set-up, and so does Rust's default
//! allocator; both are counted by standing before the C library's functions. One test, so that no
//! other thread counts.
#![expect(unsafe_code, reason = "stands before malloc")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use strongroom_crypto::{SecretBytes, XtsKey};

static CALLS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn __libc_malloc(len: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, len: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, len: usize) -> *mut c_void;
}

/// Counts, then does what the C library does.
#[unsafe(no_mangle)]
extern "C" fn malloc(len: usize) -> *mut c_void {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: any length is allowed.
    unsafe { __libc_malloc(len) }
}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn realloc(old: *mut c_void, len: usize) -> *mut c_void {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's pointer is from the C library, as all are.
    unsafe { __libc_realloc(old, len) }
}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, len: usize) -> *mut c_void {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: any numbers are allowed.
    unsafe { __libc_calloc(count, len) }
}

/// Rust's allocations, also where its standard library does not come by `malloc`.
struct Counting;

// SAFETY: passes everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(address, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn encrypting_and_decrypting_allocate_nothing() {
    for len in [32, 64] {
        let mut bytes: Vec<u8> = (0..=255).take(len).collect();
        let key = XtsKey::new(&SecretBytes::take(&mut bytes).unwrap()).unwrap();
        let from = vec![1; 8192];
        let mut to = vec![0; 8192];
        let before = CALLS.load(Ordering::Relaxed);
        assert!(before > 10, "allocations are not counted");
        for number in 0..100 {
            for part in [16, 48, 8192] {
                let sealed = key.encrypt(&[number; 16], &from[..part], &mut to[..part]);
                let opened = key.decrypt(&[number; 16], &from[..part], &mut to[..part]);
                assert!(sealed.is_ok() && opened.is_ok());
            }
            let refused = key.encrypt(&[number; 16], &from[..15], &mut to[..15]);
            assert!(refused.is_err());
        }
        let during = CALLS.load(Ordering::Relaxed) - before;
        assert_eq!(during, 0, "{len}-byte key");
    }
}
