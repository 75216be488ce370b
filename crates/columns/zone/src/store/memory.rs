//! Memory for values: anonymous mappings that are locked, kept out of core dumps, and zero when
//! they are handed out.
//!
//! Invariants: (1) a [`Piece`], a [`Region`] and a [`Buffer`] own their bytes alone; (2) their
//! contents are overwritten with zeros before they are given to another owner or back to the
//! system; (3) a lock that the system refuses is remembered ([`Memory::is_locked`]), never ignored.
//! Locks are taken on first touch (`MLOCK_ONFAULT`), so an untouched reserve costs nothing. Must
//! not: interpret its contents.
#![expect(
    unsafe_code,
    reason = "mmap, mlock2 and typed views of what they return have no safe interface"
)]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a chunk that pieces are cut from.
const CHUNK: usize = 1 << 20;

/// The accounting of all memory of one store.
pub(crate) struct Memory {
    /// Whether memory that cannot be locked is refused.
    insist: bool,
    refused: AtomicBool,
    mapped: AtomicU64,
}

impl Memory {
    /// The accounting of a store's memory. With `insist`, memory that cannot be locked is refused.
    pub(crate) fn new(insist: bool) -> Arc<Self> {
        Arc::new(Self {
            insist,
            refused: AtomicBool::new(false),
            mapped: AtomicU64::new(0),
        })
    }

    /// Whether all memory so far could be locked and left out of core dumps.
    pub(crate) fn is_locked(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// Bytes that are mapped now, touched or not.
    pub(crate) fn mapped(&self) -> u64 {
        self.mapped.load(Ordering::Relaxed)
    }
}

/// A mapping of whole pages.
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    memory: Arc<Memory>,
}

// SAFETY: a mapping belongs to the process, not to a thread, and the region owns it alone.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives only shared views.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `len` bytes of zeros, in whole pages, and locks them on first touch. `None` if
    /// the system has no memory, or refuses the lock and unlocked memory is not allowed.
    pub(crate) fn new(len: usize, memory: &Arc<Memory>) -> Option<Self> {
        let len = len.checked_next_multiple_of(4096)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        let base = NonNull::new(address.cast())?;
        // SAFETY: the range was just mapped; locking changes no contents.
        let locked = unsafe { libc::mlock2(address, len, libc::MLOCK_ONFAULT) } == 0;
        // SAFETY: as above; the advice changes no contents. Known since Linux 3.4.
        let hidden = unsafe { libc::madvise(address, len, libc::MADV_DONTDUMP) } == 0;
        memory.mapped.fetch_add(len as u64, Ordering::Relaxed);
        let region = Self {
            base,
            len,
            memory: Arc::clone(memory),
        };
        if !(locked && hidden) {
            memory.refused.store(true, Ordering::Relaxed);
            if memory.insist {
                return None;
            }
        }
        Some(region)
    }

    /// All bytes of the region, whole pages.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is initialised (zeros at first) and lives as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// All bytes of the region, to be changed.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes the view exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Region {
    /// Overwrites the bytes with zeros, and unmaps them.
    fn drop(&mut self) {
        // Pages go back to the kernel, which zeroes them before anyone else sees them, but not at
        // once.
        wipe(self.as_mut_slice());
        let address = self.base.as_ptr().cast::<c_void>();
        // SAFETY: mapped by `new` with this length, unmapped once.
        let done = unsafe { libc::munmap(address, self.len) };
        assert_eq!(done, 0, "unmapping a range that this process mapped");
        self.memory
            .mapped
            .fetch_sub(self.len as u64, Ordering::Relaxed);
    }
}

/// Overwrites `bytes` with zeros in a way that is not optimised out.
pub(crate) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(&*bytes);
    compiler_fence(Ordering::SeqCst);
}

/// A type that may be made of zero bytes.
///
/// # Safety
/// All bytes zero must be a value of the type; it must have no padding, need no drop, and be at
/// most [`CHUNK`] bytes long and aligned to at most a page.
pub(crate) unsafe trait Zeroed {}

// SAFETY: bytes.
unsafe impl<const N: usize> Zeroed for [u8; N] {}

/// Hands out pieces of one type.
pub(crate) struct Pool<T: Zeroed>(Arc<Shared<T>>);

struct Shared<T> {
    memory: Arc<Memory>,
    chunks: Mutex<Chunks>,
    of: PhantomData<fn() -> T>,
}

struct Chunks {
    all: Vec<Option<Chunk>>,
    /// Chunks with something free.
    open: Vec<usize>,
    /// Places in `all` that are empty.
    vacant: Vec<usize>,
}

struct Chunk {
    region: Region,
    free: Vec<usize>,
}

/// One value of the pool's type, zero at first.
pub(crate) struct Piece<T: Zeroed> {
    at: NonNull<T>,
    chunk: usize,
    item: usize,
    shared: Arc<Shared<T>>,
}

// SAFETY: a piece owns its bytes as a box does.
unsafe impl<T: Zeroed + Send> Send for Piece<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed + Sync> Sync for Piece<T> {}

impl<T: Zeroed> Pool<T> {
    const PER_CHUNK: usize = CHUNK / size_of::<T>();

    /// A pool without memory; it takes chunks of 1 MiB from `memory` as needed.
    pub(crate) fn new(memory: &Arc<Memory>) -> Self {
        let chunks = Chunks {
            all: Vec::new(),
            open: Vec::new(),
            vacant: Vec::new(),
        };
        Self(Arc::new(Shared {
            memory: Arc::clone(memory),
            chunks: Mutex::new(chunks),
            of: PhantomData,
        }))
    }

    /// A new piece, all zeros. `None` if the system has no memory.
    pub(crate) fn take(&self) -> Option<Piece<T>> {
        let mut chunks = self.0.chunks();
        let chunk = match chunks.open.last() {
            Some(chunk) => *chunk,
            None => chunks.grow(Self::PER_CHUNK, &self.0.memory)?,
        };
        let from = chunks.all.get_mut(chunk)?.as_mut()?;
        let item = from.free.pop()?;
        let offset = item * size_of::<T>();
        // SAFETY: item < PER_CHUNK, so the piece lies within the chunk's region.
        let at = unsafe { from.region.base.add(offset) }.cast();
        if from.free.is_empty() {
            chunks.open.pop();
        }
        Some(Piece {
            at,
            chunk,
            item,
            shared: Arc::clone(&self.0),
        })
    }
}

impl<T> Shared<T> {
    /// Locks the lists, and returns them. A panic of another thread does not poison them.
    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        // Nothing below panics while the lists are half changed.
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunks {
    /// Maps another chunk, for `pieces` items, and returns its index. `None` if no memory is left.
    fn grow(&mut self, pieces: usize, memory: &Arc<Memory>) -> Option<usize> {
        let chunk = Chunk {
            region: Region::new(CHUNK, memory)?,
            free: (0..pieces).rev().collect(),
        };
        let at = self.vacant.pop().unwrap_or(self.all.len());
        match self.all.get_mut(at) {
            Some(place) => *place = Some(chunk),
            None => self.all.push(Some(chunk)),
        }
        self.open.push(at);
        Some(at)
    }

    /// Makes an item free again; the caller has wiped it. `pieces` is how many items a chunk has. A
    /// chunk without items in use is unmapped, unless no other has free ones.
    fn give_back(&mut self, at: usize, item: usize, pieces: usize) {
        let Some(Some(chunk)) = self.all.get_mut(at) else {
            return;
        };
        chunk.free.push(item);
        match chunk.free.len() {
            1 => self.open.push(at),
            // One empty chunk stays: a store at its limit would map and unmap all the time.
            free if free == pieces && self.open.len() > 1 => {
                self.open.retain(|open| *open != at);
                self.vacant.push(at);
                self.all[at] = None;
            }
            _ => {}
        }
    }
}

impl<T: Zeroed> Deref for Piece<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: zero bytes are a `T`; the piece owns them and the chunk outlives it.
        unsafe { self.at.as_ref() }
    }
}

impl<T: Zeroed> DerefMut for Piece<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` makes the view exclusive.
        unsafe { self.at.as_mut() }
    }
}

impl<T: Zeroed> Drop for Piece<T> {
    /// Overwrites the piece with zeros, and gives it back to its pool.
    fn drop(&mut self) {
        let len = size_of::<T>();
        // SAFETY: the piece owns these initialised bytes; the type needs no drop and has no
        // padding.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast::<u8>(), len) };
        wipe(bytes);
        let pieces = Pool::<T>::PER_CHUNK;
        self.shared
            .chunks()
            .give_back(self.chunk, self.item, pieces);
    }
}

/// Bytes that grow, for images and records on their way.
pub(crate) struct Buffer {
    region: Option<Region>,
    len: usize,
    memory: Arc<Memory>,
}

/// The system has no memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

impl Buffer {
    /// An empty buffer; it takes memory as it grows.
    pub(crate) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            region: None,
            len: 0,
            memory: Arc::clone(memory),
        }
    }

    /// The buffer's contents.
    pub(crate) fn as_slice(&self) -> &[u8] {
        let whole = self.region.as_ref().map_or(&[][..], Region::as_slice);
        whole.get(..self.len).unwrap_or_default()
    }

    /// The buffer's contents, to be changed.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len;
        let whole = self
            .region
            .as_mut()
            .map_or(&mut [][..], Region::as_mut_slice);
        whole.get_mut(..len).unwrap_or_default()
    }

    /// Length of the contents in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Wipes the contents, and keeps the memory for later use, unless it is more than 16 MiB.
    pub(crate) fn clear(&mut self) {
        wipe(self.as_mut_slice());
        self.len = 0;
        // A rare large value must not keep its memory for ever.
        if self
            .region
            .as_ref()
            .is_some_and(|region| region.len > 16 * CHUNK)
        {
            self.region = None;
        }
    }

    /// Wipes and drops everything after the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        if let Some(cut) = self.as_mut_slice().get_mut(len..) {
            wipe(cut);
            self.len = len;
        }
    }

    /// Appends bytes. `NoMemory`, and nothing is appended, if no memory is left.
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        let at = self.len;
        self.lengthen(bytes.len())?;
        let to = self.as_mut_slice().get_mut(at..).ok_or(NoMemory)?;
        to.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends `more` zero bytes. `NoMemory` if no memory is left. Former memory is wiped.
    pub(crate) fn lengthen(&mut self, more: usize) -> Result<(), NoMemory> {
        let wanted = self.len.checked_add(more).ok_or(NoMemory)?;
        let room = self.region.as_ref().map_or(0, |region| region.len);
        if wanted > room {
            let doubled = wanted.max(room.saturating_mul(2)).max(64 * 1024);
            let mut region = Region::new(doubled, &self.memory).ok_or(NoMemory)?;
            let to = region.as_mut_slice().get_mut(..self.len).ok_or(NoMemory)?;
            to.copy_from_slice(self.as_slice());
            self.region = Some(region);
        }
        self.len = wanted;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_zero_again_for_the_next_owner() {
        let memory = Memory::new(false);
        let pool: Pool<[u8; 10_240]> = Pool::new(&memory);
        let mut first = pool.take().unwrap();
        let address = first.at;
        first.fill(7);
        drop(first);
        let second = pool.take().unwrap();
        assert_eq!(second.at, address);
        assert!(second.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn pieces_do_not_overlap_and_empty_chunks_go_back() {
        let memory = Memory::new(false);
        let pool: Pool<[u8; 65_536]> = Pool::new(&memory);
        let mut pieces: Vec<_> = (0..40).map(|_| pool.take().unwrap()).collect();
        for (at, piece) in pieces.iter_mut().enumerate() {
            piece.fill(u8::try_from(at).unwrap());
        }
        for (at, piece) in pieces.iter().enumerate() {
            assert!(piece.iter().all(|byte| usize::from(*byte) == at));
        }
        assert_eq!(memory.mapped(), 3 << 20);
        drop(pieces);
        assert_eq!(memory.mapped(), 1 << 20);
        let again: Vec<_> = (0..40).map(|_| pool.take().unwrap()).collect();
        assert_eq!(again.len(), 40);
        assert_eq!(memory.mapped(), 3 << 20);
    }

    #[test]
    fn a_buffer_grows_and_is_zero_after_clearing() {
        let memory = Memory::new(false);
        let mut buffer = Buffer::new(&memory);
        let piece: Vec<u8> = (0..=255).collect();
        for _ in 0..1000 {
            buffer.extend(&piece).unwrap();
        }
        assert_eq!(buffer.len(), 256_000);
        assert!(buffer.as_slice().chunks(256).all(|chunk| chunk == piece));
        buffer.clear();
        assert_eq!(buffer.len(), 0);
        buffer.lengthen(256_000).unwrap();
        assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
    }

    /// Reads the kernel's flags of the mapping: `lo` locked, `dd` not dumped.
    #[test]
    fn the_kernel_says_that_it_is_locked_and_not_dumped() {
        let memory = Memory::new(false);
        let region = Region::new(4096, &memory).unwrap();
        let address = region.base.as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            if let Some((range, _)) = line.split_once(' ')
                && let Some((from, to)) = range.split_once('-')
                && let (Ok(from), Ok(to)) = (
                    usize::from_str_radix(from, 16),
                    usize::from_str_radix(to, 16),
                )
            {
                inside = (from..to).contains(&address);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
                assert_eq!(
                    flags.split(' ').any(|flag| flag == "lo"),
                    memory.is_locked(),
                    "{flags}"
                );
                return;
            }
        }
        panic!("the mapping is not in /proc/self/smaps");
    }
}
