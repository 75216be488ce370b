//! Buffers of each thread: one for plaintext, one for ciphertext, one for vectored transfers.
//!
//! Invariants: R4: the main thread's buffers exist before `main` runs (see [`prepare`]), and every
//! later use takes and returns a pointer; another thread maps its own at first use and unmaps them
//! at its end. A use inside a use (a signal handler that does I/O) gets buffers of its own. Buffers
//! begin at a page, as `O_DIRECT` requires.
//!
//! Must not: be held across a call that may end the thread.
#![expect(unsafe_code, reason = "maps memory and lends it as slices")]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::thread::LocalKey;

/// Longest piece of a transfer that is encrypted at once, in bytes.
pub const LEN: usize = 256 * 1024;
/// Additional length: the start of the block that a piece begins in, and the end of its last unit.
const MARGIN: usize = 16 * 1024;
/// Bytes of each buffer.
pub const BUFFER: usize = LEN + MARGIN;

/// One pair of buffers.
#[repr(C, align(4096))]
struct Pair {
    plain: [u8; BUFFER],
    cipher: [u8; BUFFER],
}

/// The buffer in which the parts of a vectored transfer are collected.
#[repr(C, align(4096))]
struct Stage([u8; LEN]);

/// A mapping that is kept for this thread's next use. Empty while it is in use.
struct Slot<T>(Cell<Option<NonNull<T>>>);

impl<T> Drop for Slot<T> {
    /// Unmaps the buffers.
    fn drop(&mut self) {
        if let Some(kept) = self.0.take() {
            unmap(kept);
        }
    }
}

thread_local! {
    // Registering the destructor may allocate: `prepare` has it done on the main thread before it
    // matters.
    static PAIR: Slot<Pair> = const { Slot(Cell::new(None)) };
    static STAGE: Slot<Stage> = const { Slot(Cell::new(None)) };
}

/// Maps this thread's buffers, and registers their release at the thread's end.
///
/// # Errors
/// `OutOfMemory` when no memory can be mapped.
pub fn prepare() -> Result<(), OutOfMemory> {
    stage(|_| with(|_, _| ()))?
}

/// No memory for buffers could be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// Calls `work` with the thread's pair of buffers (plain, cipher), which hold bytes of an earlier
/// use, and returns its result.
///
/// # Errors
/// `OutOfMemory` when no memory can be mapped; `work` is not called then.
pub fn with<T>(
    work: impl FnOnce(&mut [u8; BUFFER], &mut [u8; BUFFER]) -> T,
) -> Result<T, OutOfMemory> {
    lend(&PAIR, |Pair { plain, cipher }| work(plain, cipher))
}

/// Calls `work` with the thread's stage, a third buffer that is in use together with the pair, and
/// returns its result.
///
/// # Errors
/// `OutOfMemory` when no memory can be mapped; `work` is not called then.
pub fn stage<T>(work: impl FnOnce(&mut [u8; LEN]) -> T) -> Result<T, OutOfMemory> {
    lend(&STAGE, |Stage(buffer)| work(buffer))
}

/// Calls `work` with the buffers of a slot, or with new ones when the slot is empty, as it is
/// inside another `work`. Afterwards puts them into the slot, and unmaps buffers that a call inside
/// `work` has put there. `OutOfMemory` when no new ones can be mapped; `work` is not called then.
fn lend<B, T>(
    slot: &'static LocalKey<Slot<B>>,
    work: impl FnOnce(&mut B) -> T,
) -> Result<T, OutOfMemory> {
    let kept = slot.try_with(|slot| slot.0.take()).ok().flatten();
    let buffers = kept.or_else(map::<B>).ok_or(OutOfMemory)?;
    let result = {
        // SAFETY: they were taken out of the slot, so nobody else has them; they are mapped, and
        // bytes of any value.
        work(unsafe { &mut *buffers.as_ptr() })
    };
    match slot.try_with(|slot| slot.0.replace(Some(buffers))) {
        Ok(None) => {}
        Ok(Some(inner)) => unmap(inner),
        // The thread is ending and its slot is gone.
        Err(_) => unmap(buffers),
    }
    Ok(result)
}

/// Maps zeroed memory for a `T`, and excludes it from core dumps if the kernel permits that. `None`
/// if no memory can be mapped. Call it only for a `T` for which any bytes are valid; [`unmap`]
/// frees it.
fn map<T>() -> Option<NonNull<T>> {
    // SAFETY: a fresh private mapping; arguments are plain.
    let base = unsafe {
        libc::mmap(
            null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    // The buffers hold plaintext, and are excluded from core dumps if possible. SAFETY: the mapping
    // just made.
    let _refused = unsafe { libc::madvise(base, size_of::<T>(), libc::MADV_DONTDUMP) };
    NonNull::new(base.cast())
}

/// Unmaps what [`map`] has mapped. An error is ignored.
fn unmap<T>(mapped: NonNull<T>) {
    // SAFETY: made by `map` with this size, and no longer lent.
    let _refused = unsafe { libc::munmap(mapped.as_ptr().cast(), size_of::<T>()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_inside_a_use_has_buffers_of_its_own() {
        with(|plain, _| {
            plain.fill(1);
            with(|inner, _| inner.fill(2)).unwrap();
            assert!(plain.iter().all(|byte| *byte == 1));
            assert_eq!(plain.as_ptr().addr() % 4096, 0);
        })
        .unwrap();
    }

    #[test]
    fn threads_do_not_share() {
        with(|plain, _| {
            plain.fill(3);
            std::thread::scope(|scope| {
                scope.spawn(|| with(|other, _| other.fill(4)).unwrap());
            });
            assert!(plain.iter().all(|byte| *byte == 3));
        })
        .unwrap();
    }
}
