//! Anonymous private mappings, kept out of core dumps: the raw material of the arena, the nonce
//! buffer and the Argon2 matrix.
//!
//! Invariants: a `Mapping` owns its pages until it is dropped; they start as zeros; they are
//! marked `MADV_DONTDUMP` before anybody can write to them (C2).
//!
//! Must not: wipe. The owner wipes secrets before it drops the mapping.
#![expect(unsafe_code, reason = "mmap, mlock and madvise have no safe interface")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// Private anonymous pages, readable and writable.
pub(crate) struct Mapping {
    /// Start of the whole reservation, guard pages included.
    reservation: NonNull<u8>,
    reservation_len: usize,
    /// First usable byte.
    base: NonNull<u8>,
    /// Usable bytes.
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access goes through the owner.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` zero bytes, kept out of core dumps; `None` if the kernel refuses.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let base = reserve(len, libc::PROT_READ | libc::PROT_WRITE)?;
        Some(
            Self {
                reservation: base,
                reservation_len: len,
                base,
                len,
            }
            .dump_excluded(),
        )
    }

    /// Maps `len` zero bytes, kept out of core dumps, with an inaccessible page on each side, so
    /// that a read running off the end of a neighbouring buffer faults instead of returning keys.
    /// `None` if the kernel refuses.
    ///
    /// `len` must be a multiple of the page size.
    pub(crate) fn guarded(len: usize) -> Option<Self> {
        let page = page_len();
        let reservation_len = len.checked_add(page.checked_mul(2)?)?;
        let reservation = reserve(reservation_len, libc::PROT_NONE)?;
        // SAFETY: one page into a reservation of two pages more than `len`.
        let base = unsafe { reservation.add(page) };
        let mapping = Self {
            reservation,
            reservation_len,
            base,
            len,
        };
        // SAFETY: the range lies within the reservation just made, which nobody else knows of.
        let rc = unsafe {
            libc::mprotect(
                base.as_ptr().cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        (rc == 0).then(|| mapping.dump_excluded())
    }

    /// Returns the first usable byte; valid for reads and writes of [`Mapping::len`] bytes while
    /// `self` lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of usable bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Asks the kernel never to page this memory out. Returns false if it refuses
    /// (`RLIMIT_MEMLOCK`).
    pub(crate) fn lock(&self) -> bool {
        // SAFETY: the range is owned by `self`; locking changes no contents.
        unsafe { libc::mlock(self.base.as_ptr().cast::<c_void>(), self.len) == 0 }
    }

    /// Locks the memory in a forked child, as [`Mapping::lock`], but each page when the child first
    /// uses it. Returns false if the kernel refuses. An ordinary lock would copy every page at
    /// once, which costs more than the fork itself.
    pub(crate) fn lock_again(&self) -> bool {
        let base = self.base.as_ptr().cast::<c_void>();
        // SAFETY: as in `lock`.
        let locked = unsafe { libc::mlock2(base, self.len, libc::MLOCK_ONFAULT) == 0 };
        // Unknown before Linux 4.4.
        locked || self.lock()
    }

    /// Asks the kernel to give a forked child zeros in place of these pages. Returns false if it
    /// refuses (before Linux 4.14, or in a sandbox).
    pub(crate) fn wipe_on_fork(&self) -> bool {
        self.advise(libc::MADV_WIPEONFORK)
    }

    /// Asks the kernel to leave these pages out of core dumps, and returns the mapping. A refusal
    /// is ignored.
    fn dump_excluded(self) -> Self {
        // Known since Linux 3.4. A refusal leaves the pages as private as ordinary memory, and
        // RLIMIT_CORE remains the caller's second line, so it is not an error.
        let _refused = !self.advise(libc::MADV_DONTDUMP);
        self
    }

    /// Calls `madvise` on the usable bytes. Returns false when the kernel refuses.
    fn advise(&self, advice: libc::c_int) -> bool {
        // SAFETY: the range is owned by `self`; neither advice used here changes its contents in
        // this process.
        unsafe { libc::madvise(self.base.as_ptr().cast::<c_void>(), self.len, advice) == 0 }
    }
}

impl Drop for Mapping {
    /// Unmaps the pages, guard pages included, without wiping them.
    fn drop(&mut self) {
        // SAFETY: the reservation was returned by mmap with this length and is unmapped once.
        let rc = unsafe { libc::munmap(self.reservation.as_ptr().cast(), self.reservation_len) };
        assert_eq!(rc, 0, "unmapping a range this process mapped");
    }
}

/// Maps anonymous private pages with this protection. `None` when the kernel refuses.
fn reserve(len: usize, protection: libc::c_int) -> Option<NonNull<u8>> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no existing
    // memory.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(address.cast())
}

/// Returns the number of bytes per page of this host.
fn page_len() -> usize {
    // SAFETY: sysconf reads a constant.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // POSIX requires the value; 64 KiB is the largest base page Linux uses, so the fallback is
    // aligned on every host.
    usize::try_from(len).unwrap_or(64 * 1024)
}
