//! The allocator behind every secret: cells of 64-byte units in locked arenas of 64 KiB.
//!
//! Invariants:
//! - C1: every arena is locked if the kernel permits; if not, [`all_locked`] says so.
//! - C2: every arena is excluded from core dumps and lies between inaccessible pages.
//! - C3: a free cell is all zeros: arenas start as zeros and [`Cell`] wipes itself on drop.
//! - C4: two live cells never share a 64-byte unit.
//!
//! Bookkeeping lives outside the arenas, so an overrun of a secret cannot corrupt it.
//!
//! Must not: hand out memory that is not zero, or fail only because `mlock` was refused.
//!
//! Locks are not inherited across `fork` (mlock(2)). A page that the kernel wipes in the child
//! tells the first allocation there to lock the arenas again.
#![expect(unsafe_code, reason = "hands out raw memory and wipes it")]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use zeroize::Zeroize;

use crate::error::CryptoError;
use crate::mapping::Mapping;

/// Bytes per arena, and so the largest cell. A multiple of every base page size Linux uses.
pub(crate) const ARENA_LEN: usize = 64 * 1024;
/// Bytes per unit; also the alignment of every cell. One cache line, so that using one key does
/// not pull its neighbour into the cache.
pub(crate) const UNIT_LEN: usize = 64;

const UNITS: usize = ARENA_LEN / UNIT_LEN;

static POOL: Mutex<Pool> = Mutex::new(Pool {
    arenas: Vec::new(),
    fork_mark: None,
});

/// Exclusive ownership of some units of an arena.
pub(crate) struct Cell {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a cell owns its bytes exclusively (C4); the pool is behind a mutex.
unsafe impl Send for Cell {}
// SAFETY: `&Cell` only yields an address; code that dereferences it upholds aliasing.
unsafe impl Sync for Cell {}

impl Cell {
    /// Takes a zeroed cell of at least `len` bytes, aligned to [`UNIT_LEN`], from an arena; maps a
    /// new arena when none has room. Errors: [`CryptoError::TooLong`] above 64 KiB;
    /// [`CryptoError::OutOfLockedMemory`] when nothing can be mapped. That `mlock` is refused is no
    /// error.
    pub(crate) fn new(len: usize) -> Result<Self, CryptoError> {
        if len > ARENA_LEN {
            return Err(CryptoError::TooLong);
        }
        let units = len.div_ceil(UNIT_LEN).max(1);
        let base = pool().allocate(units)?;
        Ok(Self {
            base,
            len: units * UNIT_LEN,
        })
    }

    /// Returns the address of the first byte, valid for reads and writes of the requested length
    /// while the cell lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Cell {
    /// Wipes the cell and gives its units back to the arena.
    fn drop(&mut self) {
        // SAFETY: the cell owns these bytes, and they were initialised when the arena was mapped.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) };
        bytes.zeroize();
        pool().release(self.base, self.len / UNIT_LEN);
    }
}

/// Whether every arena is locked into memory. Maps the first one if there is none, so that the
/// answer is known before the first key; locks again after a fork. False, too, when none can be
/// mapped.
pub(crate) fn all_locked() -> bool {
    let mut pool = pool();
    pool.relock_after_fork();
    if pool.arenas.is_empty() && pool.grow().is_err() {
        return false;
    }
    pool.arenas.iter().all(|arena| arena.locked)
}

/// Locks every arena again if this process was forked since the last call. Does nothing while
/// another thread holds the pool.
pub(crate) fn relock() {
    // In a forked child a thread that does not exist may hold the lock, which is then never
    // released. Waiting for it would hang the process.
    match POOL.try_lock() {
        Ok(mut pool) => pool.relock_after_fork(),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().relock_after_fork(),
        Err(TryLockError::WouldBlock) => {}
    }
}

/// Takes the mutex of the pool, also after a panic of another thread.
fn pool() -> MutexGuard<'static, Pool> {
    // Nothing in this module panics while holding the lock with the bitmap half changed.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All arenas of the process.
struct Pool {
    arenas: Vec<Arena>,
    fork_mark: Option<ForkMark>,
}

impl Pool {
    /// Takes `units` units of 64 bytes, all zeros, that follow one another in one arena, and
    /// returns the address of the first. Maps a new arena when none has room. After a fork, locks
    /// the arenas again first. Errors: [`CryptoError::OutOfLockedMemory`] when the kernel refuses
    /// the mapping; that it refuses to lock it is no error.
    fn allocate(&mut self, units: usize) -> Result<NonNull<u8>, CryptoError> {
        self.relock_after_fork();
        for arena in &mut self.arenas {
            if let Some(base) = arena.allocate(units) {
                return Ok(base);
            }
        }
        self.grow()?
            .allocate(units)
            .ok_or(CryptoError::OutOfLockedMemory)
    }

    /// Gives `units` units of 64 bytes, which the caller has wiped to zeros, back to their arena.
    /// Unmaps all empty arenas but one. Panics when the address is in no arena, or one of the units
    /// is free already.
    fn release(&mut self, base: NonNull<u8>, units: usize) {
        let owner = self
            .arenas
            .iter_mut()
            .find(|arena| arena.unit_of(base).is_some());
        // A cell never outlives its arena: only empty arenas are unmapped.
        assert!(owner.is_some(), "a cell belongs to an arena");
        if let Some(arena) = owner {
            arena.release(base, units);
        }
        self.shrink();
    }

    /// Maps one more arena, and locks it where the kernel permits. Errors:
    /// [`CryptoError::OutOfLockedMemory`] when the kernel refuses the mapping.
    fn grow(&mut self) -> Result<&mut Arena, CryptoError> {
        if self.fork_mark.is_none() {
            self.fork_mark = ForkMark::new();
        }
        let arena = Arena::new().ok_or(CryptoError::OutOfLockedMemory)?;
        self.arenas.push(arena);
        self.arenas.last_mut().ok_or(CryptoError::OutOfLockedMemory)
    }

    /// Unmaps empty arenas, all but one: the default lock limit may be as small as one arena, while
    /// a program that makes and drops one key at a time should not map each time.
    fn shrink(&mut self) {
        let mut kept_one = false;
        self.arenas.retain(|arena| {
            let keep = arena.units_used > 0 || !kept_one;
            kept_one |= arena.units_used == 0;
            keep
        });
    }

    /// Locks the arenas again, and notes whether the kernel allowed it, if this is a forked child's
    /// first call.
    fn relock_after_fork(&mut self) {
        let forked = self
            .fork_mark
            .as_mut()
            .is_some_and(ForkMark::wiped_since_last_look);
        if forked {
            for arena in &mut self.arenas {
                arena.locked = arena.pages.lock_again();
            }
        }
    }
}

/// 64 KiB of memory, divided into units.
struct Arena {
    pages: Mapping,
    locked: bool,
    units_used: usize,
    /// One entry per unit: in use.
    used: [bool; UNITS],
    /// No unit below this one is free; keeps allocation of many keys linear.
    first_free: usize,
}

impl Arena {
    /// Maps an arena with a guard page on each side, and locks it where the kernel permits. `None`
    /// when the kernel refuses the mapping.
    fn new() -> Option<Self> {
        let pages = Mapping::guarded(ARENA_LEN)?;
        let locked = pages.lock();
        Some(Self {
            pages,
            locked,
            units_used: 0,
            used: [false; UNITS],
            first_free: 0,
        })
    }

    /// Takes the first free units of 64 bytes that follow one another, and returns the address of
    /// the first. `None` when the arena does not have so many in a row.
    fn allocate(&mut self, units: usize) -> Option<NonNull<u8>> {
        if units > UNITS - self.units_used {
            return None;
        }
        let mut run = 0;
        for unit in self.first_free..UNITS {
            run = if self.used.get(unit).copied()? {
                0
            } else {
                run + 1
            };
            if run == units {
                return self.claim(unit + 1 - units, units);
            }
        }
        None
    }

    /// Marks units from the index `start` on as used, and returns the address of the first. `None`
    /// when they are not all in the arena.
    fn claim(&mut self, start: usize, units: usize) -> Option<NonNull<u8>> {
        self.used.get_mut(start..start + units)?.fill(true);
        self.units_used += units;
        if start == self.first_free {
            self.first_free = start + units;
        }
        // SAFETY: start + units <= UNITS, checked by the slice above, so the offset is in bounds.
        Some(unsafe { self.pages.base().add(start * UNIT_LEN) })
    }

    /// Marks units from the address `base` on as free; wipes nothing. Panics when one of them was
    /// free already.
    fn release(&mut self, base: NonNull<u8>, units: usize) {
        let range = self
            .unit_of(base)
            .and_then(|start| self.used.get_mut(start..start + units));
        // Both asserts guard C4: a double release would hand one cell to two owners.
        assert!(
            range
                .as_ref()
                .is_some_and(|range| range.iter().all(|used| *used))
        );
        if let Some(range) = range {
            range.fill(false);
        }
        assert!(self.units_used >= units);
        self.units_used -= units;
        self.first_free = self.unit_of(base).unwrap_or(0).min(self.first_free);
    }

    /// Returns the index of the unit at this address. `None` when the address is not in this arena.
    fn unit_of(&self, base: NonNull<u8>) -> Option<usize> {
        let offset = base
            .addr()
            .get()
            .checked_sub(self.pages.base().addr().get())?;
        (offset < self.pages.len()).then_some(offset / UNIT_LEN)
    }
}

/// A page the kernel zeroes in every forked child.
struct ForkMark(Mapping);

impl ForkMark {
    /// Maps the page and sets the mark. `None` when the kernel does not wipe pages on fork.
    fn new() -> Option<Self> {
        let page = Mapping::new(UNIT_LEN)?;
        if !page.wipe_on_fork() {
            return None;
        }
        let mut mark = Self(page);
        mark.set();
        Some(mark)
    }

    /// Whether the kernel has zeroed the page since the last call: then this process is a forked
    /// child. If so, sets the mark again, so that the next call says false.
    fn wiped_since_last_look(&mut self) -> bool {
        // SAFETY: the mapping is owned, readable and at least one byte long. Volatile because the
        // kernel changes it behind the compiler's back.
        let wiped = unsafe { self.0.base().read_volatile() } == 0;
        if wiped {
            self.set();
        }
        wiped
    }

    /// Writes the mark that a fork wipes.
    fn set(&mut self) {
        // SAFETY: as above, and `&mut self` makes this the only writer.
        unsafe { self.0.base().write_volatile(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_zeroed_and_disjoint() {
        let cells: Vec<Cell> = [1, 32, 64, 65, 640, 4096, ARENA_LEN]
            .map(|len| Cell::new(len).unwrap())
            .into();
        let mut spans: Vec<(usize, usize)> = cells
            .iter()
            .map(|cell| (cell.base.addr().get(), cell.len))
            .collect();
        for cell in &cells {
            assert_eq!(cell.base.addr().get() % UNIT_LEN, 0);
            // SAFETY: the cell is alive and initialised.
            let bytes = unsafe { std::slice::from_raw_parts_mut(cell.base.as_ptr(), cell.len) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(0xff);
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "cells overlap");
        }
    }

    #[test]
    fn an_arena_fills_up_and_reuses_freed_units() {
        let mut arena = Arena::new().unwrap();
        let mut bases: Vec<NonNull<u8>> = Vec::new();
        while let Some(base) = arena.allocate(3) {
            bases.push(base);
        }
        assert_eq!(bases.len(), UNITS / 3);
        arena.release(bases[10], 3);
        arena.release(bases[11], 3);
        assert!(
            arena.allocate(7).is_none(),
            "only six units in a row are free"
        );
        assert_eq!(arena.allocate(6), Some(bases[10]));
        assert!(arena.allocate(3).is_none());
    }

    #[test]
    fn empty_arenas_are_returned_all_but_one() {
        let mut pool = Pool {
            arenas: Vec::new(),
            fork_mark: None,
        };
        let cells: Vec<_> = (0..4).map(|_| pool.allocate(UNITS).unwrap()).collect();
        assert_eq!(pool.arenas.len(), 4);
        for cell in cells {
            pool.release(cell, UNITS);
        }
        assert_eq!(pool.arenas.len(), 1);
    }

    #[test]
    fn a_cell_larger_than_an_arena_is_refused() {
        assert_eq!(Cell::new(ARENA_LEN + 1).err(), Some(CryptoError::TooLong));
    }

    #[test]
    #[should_panic(expected = "is_some_and")]
    fn a_double_release_is_caught() {
        let mut arena = Arena::new().unwrap();
        let base = arena.allocate(1).unwrap();
        arena.release(base, 1);
        arena.release(base, 1);
    }
}
