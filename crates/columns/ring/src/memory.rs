//! Memory that the zone shares with one backend: a sealed memory file, mapped by both.
//!
//! Invariants: the file is sealed against shrinking and growing before it is given away, so no
//! access can end in SIGBUS; the mapped type consists of atomic integers only, for which every byte
//! is a valid value and every concurrent write is defined. So a [`Mapping`] can be read and written
//! safely whatever the other side does; the contents are not to be trusted (R3). Must not:
//! interpret what is in the memory.
#![expect(
    unsafe_code,
    reason = "maps shared memory: one cast, one mmap, one munmap"
)]

use core::ops::Deref;
use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// A type that may be in shared memory.
///
/// # Safety
///
/// The type is `repr(C)`, consists of atomic integers only, has no padding that is read, needs no
/// drop, and is aligned to at most a page.
pub(crate) unsafe trait AtomicOnly {}

/// A `T` in a sealed memory file.
pub(crate) struct Mapping<T: AtomicOnly> {
    at: NonNull<T>,
}

// SAFETY: a `AtomicOnly` is made of atomics; the mapping is not tied to a thread.
unsafe impl<T: AtomicOnly> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: AtomicOnly> Sync for Mapping<T> {}

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

impl<T: AtomicOnly> Mapping<T> {
    const LEN: usize = size_of::<T>();

    /// Makes an anonymous memory file of zeros, long enough for a `T`, seals its size, and maps it.
    /// The file descriptor is for the other side.
    ///
    /// # Errors
    ///
    /// Of the kernel: no memory, no descriptor.
    pub(crate) fn create(name: &str) -> io::Result<(Self, OwnedFd)> {
        // NOEXEC_SEAL is of Linux 6.3; without it the file merely could be made executable.
        let sealable = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, sealable | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create(name, sealable))?;
        rustix::fs::ftruncate(&file, Self::len64())?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((Self::map(&file)?, file))
    }

    /// Maps a memory file that the other side made.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it has another size or is not sealed against shrinking; otherwise the
    /// kernel's.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<Self> {
        let sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        let size = rustix::fs::fstat(file)?.st_size;
        if !sealed || u64::try_from(size).ok() != Some(Self::len64()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file)
    }

    /// The length of the file in bytes.
    const fn len64() -> u64 {
        Self::LEN as u64
    }

    /// Maps the file, to be read and written by both processes. Fails if the kernel has no memory
    /// for it.
    fn map(file: impl AsFd) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096, "a mapping begins at a page") };
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is touched.
        let at = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                Self::LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let at = NonNull::new(at).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at: at.cast() })
    }
}

impl<T: AtomicOnly> Deref for Mapping<T> {
    type Target = T;

    /// The mapped memory. The other side may change it at any time.
    fn deref(&self) -> &T {
        // SAFETY: the mapping is `LEN` bytes, page-aligned, lives as long as `self`, and its file
        // cannot shrink; `AtomicOnly` says that any bytes are a `T` and that others may change
        // them.
        unsafe { self.at.as_ref() }
    }
}

impl<T: AtomicOnly> Drop for Mapping<T> {
    /// Unmaps the memory. The other side's mapping remains.
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no reference outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), Self::LEN) };
        // It fails only for a range that was never mapped.
        assert!(unmapped.is_ok(), "munmap");
    }
}
