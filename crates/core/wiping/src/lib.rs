//! An allocator that overwrites memory before it is freed.
//!
//! For a server that receives secrets through libraries whose buffers it cannot reach: TLS, HTTP
//! and the JSON parser free their buffers without wiping them. This is a second line of defence
//! after locked memory (`strongroom-crypto`). It does nothing until it is switched on, so that
//! commands which move much data do not pay for it.
//!
//! Invariant Z1: once it is switched on, memory is overwritten before it goes back to the allocator
//! below, by `dealloc` or by `realloc`. This includes memory that was allocated before.
//!
//! Must not: allocate; be installed by a library on behalf of its host.
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// An allocator that takes memory from the allocator `A`, and overwrites it before it gives it
/// back.
#[derive(Debug)]
pub struct Wiping<A = System> {
    below: A,
    on: AtomicBool,
}

impl Wiping {
    /// Makes an allocator above the system's, switched off.
    #[must_use]
    pub const fn new() -> Self {
        Self::above(System)
    }
}

impl Default for Wiping {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> Wiping<A> {
    /// Makes an allocator above `below`, switched off.
    #[must_use]
    pub const fn above(below: A) -> Self {
        Self {
            below,
            on: AtomicBool::new(false),
        }
    }

    /// Switches the overwriting on. It cannot be switched off again.
    pub fn switch_on(&self) {
        self.on.store(true, Relaxed);
    }
}

// SAFETY: memory comes from `below` and goes back to it with the layout that it was asked for with;
// what is written lies within that layout, while the memory is still this allocation's.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    /// Takes memory from the allocator below, unchanged.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { self.below.alloc(layout) }
    }

    /// Takes zeroed memory from the allocator below, unchanged.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { self.below.alloc_zeroed(layout) }
    }

    /// Overwrites the memory with zeros, if switched on, and gives it back to the allocator below.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if self.on.load(Relaxed) {
            // SAFETY: by the caller's contract all of the layout is this allocation's. The function
            // is one that no compiler leaves out.
            unsafe { libc::explicit_bzero(at.cast(), layout.size()) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.below.dealloc(at, layout) }
    }

    /// Resizes memory. If switched on, it always moves the contents to new memory and overwrites
    /// the former one with zeros; null when there is no memory, and nothing changes then.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.on.load(Relaxed) {
            // SAFETY: the caller's contract.
            return unsafe { self.below.realloc(at, layout, size) };
        }
        // The allocator below could move the contents, and leave a copy that is not wiped.
        // SAFETY: by the caller's contract `size` is not zero and fits a layout of this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero.
        let moved = unsafe { self.below.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both are as long as that at least, and the new one is nobody else's.
            unsafe { copy_nonoverlapping(at, moved, layout.size().min(size)) };
            // SAFETY: the caller's contract; nothing uses the former place any more.
            unsafe { self.dealloc(at, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts bytes that come back and are not zero.
    #[derive(Default)]
    struct Looking {
        left: AtomicUsize,
        freed: AtomicUsize,
    }

    // SAFETY: the system's allocator; what is looked at is the caller's until it is freed.
    unsafe impl GlobalAlloc for Looking {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's contract.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
            // SAFETY: these tests have written all of it.
            let bytes = unsafe { std::slice::from_raw_parts(at, layout.size()) };
            let left = bytes.iter().filter(|byte| **byte != 0).count();
            self.left.fetch_add(left, Relaxed);
            self.freed.fetch_add(1, Relaxed);
            // SAFETY: the caller's contract.
            unsafe { System.dealloc(at, layout) }
        }
    }

    /// Writes `size` bytes, has them moved to `then` bytes and frees them: what was left to see.
    fn left_behind(of: &Wiping<Looking>, size: usize, then: usize) -> (usize, usize) {
        let layout = Layout::array::<u8>(size).unwrap();
        // SAFETY: the sizes of these tests are not zero.
        let at = unsafe { of.alloc(layout) };
        // SAFETY: as long as that.
        unsafe { at.write_bytes(0xa5, size) };
        // SAFETY: allocated above with this layout.
        let at = unsafe { of.realloc(at, layout, then) };
        let kept = size.min(then);
        // SAFETY: written above and moved.
        let bytes = unsafe { std::slice::from_raw_parts(at, kept) };
        assert!(bytes.iter().all(|byte| *byte == 0xa5), "it was moved whole");
        // SAFETY: as long as that.
        unsafe { at.write_bytes(0xa5, then) };
        // SAFETY: allocated above with this layout.
        unsafe { of.dealloc(at, Layout::array::<u8>(then).unwrap()) };
        let seen = &of.below;
        (seen.left.swap(0, Relaxed), seen.freed.swap(0, Relaxed))
    }

    #[test]
    fn what_is_freed_or_moved_is_overwritten_once_it_is_switched_on() {
        let of = Wiping::above(Looking::default());
        assert_eq!(left_behind(&of, 100, 300), (400, 2));
        of.switch_on();
        for (size, then) in [(1, 2), (100, 300), (300, 100), (70_000, 1 << 20)] {
            assert_eq!(left_behind(&of, size, then), (0, 2), "{size} {then}");
        }
    }
}
