//! The table of descriptors: which open files are sealed, and how.
//!
//! Invariants D1 to D4 and D7 (docs/internals/shield.md): an entry is set before the program gets
//! the descriptor, and cleared before the descriptor is closed; a lookup takes no lock and
//! allocates nothing; fork copies entries and descriptors alike.
//!
//! Must not: make a system call.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{BlockKey, FileLayout};
use crate::open_instances;
use crate::real::Errno;
use crate::sealed_file::{FileCache, SealedFile};

/// Number of entries: only descriptors below it can be sealed files.
pub const DESCRIPTORS: usize = 65_536;

/// A sealed file that is open in this process.
#[derive(Clone, Copy)]
pub struct OpenFile {
    /// What it is.
    pub file: SealedFile<'static>,
    /// Whether it was opened with `O_APPEND`: each write goes to the end.
    pub append: bool,
    /// Whether it was opened with `O_WRONLY`.
    pub write_only: bool,
}

/// One entry, on a cache line of its own. `state` is 0 when the descriptor is not a sealed file; it
/// is written last and read first.
#[repr(align(64))]
struct Entry {
    /// Layout (byte 0), key (1), flags (2), root (3).
    state: AtomicU64,
    tweak: [AtomicU64; 2],
    cache: FileCache,
}

const APPEND: u64 = 1;
const WRITE_ONLY: u64 = 2;

static TABLE: [Entry; DESCRIPTORS] = [const {
    Entry {
        state: AtomicU64::new(0),
        tweak: [AtomicU64::new(0), AtomicU64::new(0)],
        cache: [
            AtomicU64::new(0),
            AtomicU64::new(0),
            AtomicU64::new(0),
            AtomicU64::new(0),
        ],
    }
}; DESCRIPTORS];

/// Returns the entry of a descriptor; `None` when it does not fit the table.
fn entry(fd: RawFd) -> Option<&'static Entry> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Whether the table has a place for this descriptor: whether it is from 0 to 65535.
#[must_use]
pub fn fits(fd: RawFd) -> bool {
    entry(fd).is_some()
}

/// Returns the sealed file that is open as `fd`. `None` when it is not a sealed file.
///
/// # Errors
/// EIO when the entry is invalid: the file is sealed, but it is not known how.
#[inline]
pub fn find(fd: RawFd) -> Result<Option<OpenFile>, Errno> {
    let Some(entry) = entry(fd) else {
        return Ok(None);
    };
    let state = entry.state.load(Ordering::Acquire);
    if state == 0 {
        return Ok(None);
    }
    entry.open_file(state).map(Some).ok_or(Errno(libc::EIO))
}

/// Whether `fd` is a sealed file, even if its entry is invalid.
#[must_use]
#[inline]
pub fn is_sealed(fd: RawFd) -> bool {
    entry(fd).is_some_and(|entry| entry.state.load(Ordering::Acquire) != 0)
}

impl Entry {
    /// Returns the open file of an entry with this state. `None` when a field is invalid, or its
    /// instance is not open.
    fn open_file(&'static self, state: u64) -> Option<OpenFile> {
        let [layout, key, flags, root, ..] = state.to_le_bytes();
        let [low, high] = &self.tweak;
        let tweak = u128::from(low.load(Ordering::Relaxed))
            | u128::from(high.load(Ordering::Relaxed)) << 64;
        Some(OpenFile {
            file: SealedFile {
                instance: open_instances::get(usize::from(root))?,
                layout: FileLayout::from_number(layout)?,
                key: BlockKey::from_number(key)?,
                tweak: tweak.to_le_bytes(),
                cache: &self.cache,
            },
            append: u64::from(flags) & APPEND != 0,
            write_only: u64::from(flags) & WRITE_ONLY != 0,
        })
    }
}

/// The entry of a file that has just been opened.
#[derive(Clone, Copy)]
pub struct NewEntry {
    /// Its instance's number among the roots.
    pub root: u8,
    /// How it is sealed.
    pub layout: FileLayout,
    /// See [`SealedFile::key`].
    pub key: BlockKey,
    /// See [`SealedFile::tweak`].
    pub tweak: [u8; 16],
    /// See [`OpenFile::append`].
    pub append: bool,
    /// See [`OpenFile::write_only`].
    pub write_only: bool,
}

/// Enters an open sealed file, with an empty cache. False when the descriptor does not fit the
/// table.
#[must_use]
pub fn insert(fd: RawFd, new: &NewEntry) -> bool {
    let Some(entry) = entry(fd) else {
        return false;
    };
    entry.state.store(0, Ordering::Relaxed);
    for word in &entry.cache {
        word.store(0, Ordering::Relaxed);
    }
    entry.set_tweak(u128::from_le_bytes(new.tweak));
    let flags = if new.append { APPEND } else { 0 } | if new.write_only { WRITE_ONLY } else { 0 };
    let [layout, key, root] = [new.layout.number(), new.key.number(), new.root].map(u64::from);
    let state = layout | key << 8 | flags << 16 | root << 24;
    entry.state.store(state, Ordering::Release);
    true
}

impl Entry {
    /// Stores the tweak in the two words of the entry.
    fn set_tweak(&self, tweak: u128) {
        let [low, high] = &self.tweak;
        low.store(
            u64::try_from(tweak & u128::from(u64::MAX)).unwrap_or(0),
            Ordering::Relaxed,
        );
        high.store(u64::try_from(tweak >> 64).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Removes the entry of a descriptor that is about to be closed, or that is now another file. Does
/// nothing if there is none.
#[inline]
pub fn remove(fd: RawFd) {
    if let Some(entry) = entry(fd) {
        // Most descriptors are not sealed files: their cache lines stay clean.
        if entry.state.load(Ordering::Relaxed) != 0 {
            entry.state.store(0, Ordering::Release);
        }
    }
}

/// Removes the entries of descriptors from `first` to `last`, both inclusive.
pub fn remove_range(first: u32, last: u32) {
    let limit = u32::try_from(DESCRIPTORS).unwrap_or(u32::MAX);
    for fd in first..=last.min(limit) {
        if let Ok(fd) = RawFd::try_from(fd) {
            remove(fd);
        }
    }
}

/// Copies the entry of `original` to `copy`, after dup; removes that of `copy` when `original` is
/// not sealed. False, and nothing is copied, when `copy` does not fit the table.
#[must_use]
pub fn duplicate(original: RawFd, copy: RawFd) -> bool {
    if original == copy {
        return true;
    }
    let Some(from) = entry(original) else {
        remove(copy);
        return true;
    };
    let state = from.state.load(Ordering::Acquire);
    if state == 0 {
        remove(copy);
        return true;
    }
    let Some(to) = entry(copy) else {
        return false;
    };
    to.state.store(0, Ordering::Relaxed);
    for (to, from) in to.cache.iter().zip(&from.cache) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for (to, from) in to.tweak.iter().zip(&from.tweak) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    to.state.store(state, Ordering::Release);
    true
}

/// Sets or clears append mode in the entry (`fcntl` with `F_SETFL`). Does nothing for files that
/// are not sealed.
pub fn set_append(fd: RawFd, append: bool) {
    let Some(entry) = entry(fd) else {
        return;
    };
    let state = entry.state.load(Ordering::Acquire);
    if state != 0 {
        let bit = APPEND << 16;
        let changed = if append { state | bit } else { state & !bit };
        entry.state.store(changed, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_true_is_an_error() {
        const FD: RawFd = 60_001;
        assert!(matches!(find(FD), Ok(None)) && !is_sealed(FD));
        let entry = entry(FD).unwrap();
        let known = u64::from(FileLayout::Block.number());
        // No such layout; no such key; an instance that is not open.
        for state in [u64::from(u8::MAX), known | 200 << 8, known | 7 << 24] {
            entry.state.store(state, Ordering::Release);
            assert!(
                matches!(find(FD), Err(Errno(libc::EIO))) && is_sealed(FD),
                "{state:#x}"
            );
        }
        remove(FD);
        assert!(matches!(find(FD), Ok(None)));
        // What is no descriptor of the table is none of ours: D3 keeps sealed files out.
        assert!(matches!(find(RawFd::MAX), Ok(None)) && matches!(find(-1), Ok(None)));
    }
}
