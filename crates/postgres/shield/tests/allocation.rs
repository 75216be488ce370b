//! Goal: reading and writing sealed files allocates nothing once a thread has done it before (R4):
//! it happens in PostgreSQL's critical sections and in signal handlers.
//!
//! Method: an allocator that counts, and every treatment on a real file.
#![expect(unsafe_code, reason = "an allocator")]

#[path = "it/sealed/mod.rs"]
mod sealed;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sealed::{Handle, instance};
use strongroom_postgres_shield::layout::FileLayout;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system's allocator; counting touches a constant-initialised cell only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn transfers_allocate_nothing() {
    let instance = instance();
    let directory = sealed::directory();
    let data = vec![7_u8; 200_000];
    let mut into = vec![0_u8; 200_000];
    for layout in [
        FileLayout::Block,
        FileLayout::Temporary,
        FileLayout::NewLog,
        FileLayout::Stream,
        FileLayout::TemporaryStream,
        FileLayout::Container,
    ] {
        let first = Handle::create(
            &instance,
            layout,
            &directory.path().join(format!("{layout:?}")),
        );
        let path = directory.path().join(format!("{layout:?}2"));
        let mut work = |handle: &Handle<'_>| {
            handle.write_at(&data, 0).unwrap();
            handle.write_at(&data[..8192], 8192 * 3).unwrap();
            handle.append(&data[..160]).unwrap();
            handle.read_at(&mut into, 16).unwrap();
            handle.read_at(&mut into, 1 << 30).unwrap();
            handle.truncate(81_920).unwrap();
            handle.truncate(163_840).unwrap();
            handle.truncate(0).unwrap();
            assert_eq!(handle.size(), 0);
            handle.append(&data[..4096]).unwrap();
        };
        work(&first);
        let second = Handle::create(&instance, layout, &path);
        let before = COUNT.get();
        work(&second);
        assert_eq!(COUNT.get() - before, 0, "{layout:?}");
    }
    assert!(COUNT.get() > 0, "the allocator counts");
}
