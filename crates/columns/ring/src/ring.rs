//! The layout of a ring: the memory that one backend shares with the zone.
//!
//! A header of one page, 4096 descriptors of 32 bytes, 4096 answers of 16, a data area of 1 MiB.
//! Descriptors are numbered from [`FIRST`], modulo 2^32; number `k` and its answer are in entry `k`
//! modulo 4096.
//!
//! - `tail` (the backend writes): descriptors published.
//! - `done` (the zone writes): descriptors executed. The backend sleeps on it.
//! - `parked` (the zone sets it, either clears it): the zone does not look at this ring until its
//!   doorbell is rung.
//! - `waiting` (the backend sets it, either clears it): the backend sleeps on `done`, or is about
//!   to.
//! - `closed` (the zone writes): no further descriptor will be executed.
//!
//! Each pair of flag and index is Dekker's: write one's own, a sequentially consistent fence, read
//! the other's. So either the publisher sees the flag, or the sleeper sees the index.
//!
//! Must not: decide anything from what it reads.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::memory::AtomicOnly;
use crate::{Fault, Op};

/// Descriptors, and answers, of a ring.
pub const ENTRIES: u32 = 4096;
/// Length of the data area in bytes.
pub const AREA_SIZE: usize = 1 << 20;
/// Offset of the answers of operations whose answer does not replace their arguments.
pub const ANSWER_HALF: usize = AREA_SIZE / 2;

/// The first descriptor's number: near the end, so that every connection soon goes through the
/// wrap-around.
pub(crate) const FIRST: u32 = u32::MAX - 9_999;

/// One operation: [`crate::op`] describes the fields for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Number of the operation.
    pub op: u16,
    /// Kind in the low byte, [`crate::op::flag`] above.
    pub flags: u16,
    /// A count, a length, the code of a function, the number of a statement.
    pub n: u32,
    /// First argument.
    pub a: u64,
    /// Second argument, or offset in the data area.
    pub b: u64,
    /// The FID of the result.
    pub r: u64,
}

impl Descriptor {
    /// A descriptor of this operation, everything else zero.
    #[must_use]
    pub fn of(op: Op) -> Self {
        Self {
            op: op.number(),
            ..Self::default()
        }
    }
}

/// The answer to a called operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0, or the number of a [`Fault`].
    pub status: u32,
    /// Further bits of the answer, for the operations that say so.
    pub aux: u32,
    /// The answer.
    pub value: u64,
}

impl Answer {
    /// The answer of an operation that succeeded with this value.
    #[must_use]
    pub const fn of(value: u64) -> Self {
        Self {
            status: 0,
            aux: 0,
            value,
        }
    }

    /// The answer of an operation that failed with this fault.
    #[must_use]
    pub const fn fault(fault: Fault) -> Self {
        Self {
            status: fault.number(),
            aux: 0,
            value: 0,
        }
    }

    /// The answer of an operation that was not executed, because a posted one before it had failed
    /// with this fault, which was not reported yet.
    #[must_use]
    pub const fn earlier(fault: Fault) -> Self {
        Self {
            status: fault.number(),
            aux: Self::EARLIER,
            value: 0,
        }
    }

    /// Flag in `aux`: the fault is one of an earlier, posted operation.
    const EARLIER: u32 = 1;

    /// Whether this is an answer of [`Self::earlier`].
    #[must_use]
    pub const fn is_earlier(&self) -> bool {
        self.status != 0 && self.aux & Self::EARLIER != 0
    }

    /// The fault, if the operation failed or was not executed. A number that is not on the list
    /// counts as [`Fault::BadRequest`].
    #[must_use]
    pub fn failure(&self) -> Option<Fault> {
        if self.status == 0 {
            return None;
        }
        Some(Fault::from_number(self.status).unwrap_or(Fault::BadRequest))
    }
}

/// One word alone in its cache line, so that the two sides do not slow each other down.
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) AtomicU32);

#[repr(C, align(4096))]
pub(crate) struct Header {
    pub(crate) tail: Line,
    pub(crate) done: Line,
    pub(crate) parked: Line,
    pub(crate) waiting: Line,
    pub(crate) closed: Line,
}

#[repr(C, align(32))]
struct Submission([AtomicU64; 4]);

#[repr(C, align(16))]
struct Reply([AtomicU64; 2]);

const ENTRY_COUNT: usize = ENTRIES as usize;

/// The shared memory of a ring.
#[repr(C)]
pub(crate) struct Ring {
    pub(crate) header: Header,
    submissions: [Submission; ENTRY_COUNT],
    replies: [Reply; ENTRY_COUNT],
    area: Area,
}

const _: () = {
    assert!(size_of::<Header>() == 4096);
    assert!(core::mem::offset_of!(Ring, submissions) == 4096);
    assert!(size_of::<Submission>() == 32);
    assert!(size_of::<Reply>() == 16);
    assert!(core::mem::offset_of!(Ring, replies) == 4096 + 32 * ENTRY_COUNT);
    assert!(core::mem::offset_of!(Ring, area) == 4096 + 48 * ENTRY_COUNT);
    assert!(size_of::<Ring>() == 4096 + 48 * ENTRY_COUNT + AREA_SIZE);
};

mod shared {
    #![expect(unsafe_code, reason = "marks what consists of atomics only")]
    // SAFETY: `repr(C)`, made of AtomicU32 and AtomicU64, aligned to a page.
    unsafe impl super::AtomicOnly for super::Ring {}
}

impl Ring {
    /// Writes the descriptor of this number into its entry. The zone sees it only after
    /// [`Self::publish_tail`] with a later number.
    pub(crate) fn put(&self, number: u32, descriptor: &Descriptor) {
        let head = u64::from(descriptor.op)
            | u64::from(descriptor.flags) << 16
            | u64::from(descriptor.n) << 32;
        let [first, a, b, r] = &self.submissions[entry_index(number)].0;
        first.store(head, Relaxed);
        a.store(descriptor.a, Relaxed);
        b.store(descriptor.b, Relaxed);
        r.store(descriptor.r, Relaxed);
    }

    /// Copies the descriptor of this number out, each word once.
    #[expect(clippy::cast_possible_truncation, reason = "the word is taken apart")]
    pub(crate) fn read_descriptor(&self, number: u32) -> Descriptor {
        let [first, a, b, r] = &self.submissions[entry_index(number)].0;
        let head = first.load(Relaxed);
        Descriptor {
            op: head as u16,
            flags: (head >> 16) as u16,
            n: (head >> 32) as u32,
            a: a.load(Relaxed),
            b: b.load(Relaxed),
            r: r.load(Relaxed),
        }
    }

    /// Writes the answer to this number into its entry. The backend sees it only after
    /// [`Self::publish_done`] with a later number.
    pub(crate) fn put_answer(&self, number: u32, answer: &Answer) {
        let [first, value] = &self.replies[entry_index(number)].0;
        first.store(
            u64::from(answer.status) | u64::from(answer.aux) << 32,
            Relaxed,
        );
        value.store(answer.value, Relaxed);
    }

    /// Reads the answer in this number's entry: valid only if the number is done, and the entry was
    /// not used again.
    #[expect(clippy::cast_possible_truncation, reason = "the word is taken apart")]
    pub(crate) fn read_answer(&self, number: u32) -> Answer {
        let [first, value] = &self.replies[entry_index(number)].0;
        let head = first.load(Relaxed);
        Answer {
            status: head as u32,
            aux: (head >> 32) as u32,
            value: value.load(Relaxed),
        }
    }

    /// The number after the last descriptor that the backend has published.
    pub(crate) fn tail(&self) -> u32 {
        self.header.tail.0.load(Acquire)
    }

    /// Makes the descriptors before `tail` visible to the zone.
    pub(crate) fn publish_tail(&self, tail: u32) {
        self.header.tail.0.store(tail, Release);
    }

    /// The number after the last descriptor that the zone has executed.
    pub(crate) fn done(&self) -> u32 {
        self.header.done.0.load(Acquire)
    }

    /// Makes the answers before `done` visible to the backend.
    pub(crate) fn publish_done(&self, done: u32) {
        self.header.done.0.store(done, Release);
    }

    /// The data area.
    pub(crate) const fn area(&self) -> &Area {
        &self.area
    }
}

/// The index of a descriptor, and of its answer, in the ring.
const fn entry_index(number: u32) -> usize {
    (number % ENTRIES) as usize
}

/// The data area: bytes beside the ring, written by one side while the other waits.
///
/// Offsets are multiples of 8. The zone reads each argument once, into memory of its own.
#[repr(C)]
pub struct Area([AtomicU64; AREA_SIZE / 8]);

impl Area {
    /// Copies `out.len()` bytes from `offset` into `out`.
    ///
    /// `None` if the offset is not a multiple of 8 or the range leaves the area; `out` is untouched
    /// then.
    #[must_use]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let words = self.range(offset, out.len())?;
        let (whole, rest) = out.as_chunks_mut::<8>();
        let (body, tail) = words.split_at_checked(whole.len())?;
        for (chunk, word) in whole.iter_mut().zip(body) {
            *chunk = word.load(Relaxed).to_le_bytes();
        }
        if let Some(word) = tail.first() {
            let bytes = word.load(Relaxed).to_le_bytes();
            for (to, from) in rest.iter_mut().zip(bytes) {
                *to = from;
            }
        }
        Some(())
    }

    /// Copies `bytes` into the area, at `offset`.
    ///
    /// `None` if the offset is not a multiple of 8 or the range leaves the area; nothing is written
    /// then.
    #[must_use]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        let words = self.range(offset, bytes.len())?;
        let (whole, rest) = bytes.as_chunks::<8>();
        let (body, tail) = words.split_at_checked(whole.len())?;
        for (chunk, word) in whole.iter().zip(body) {
            word.store(u64::from_le_bytes(*chunk), Relaxed);
        }
        if let Some(word) = tail.first() {
            // The other bytes of the last word stay: they may belong to the next record.
            let mut last = word.load(Relaxed).to_le_bytes();
            for (to, from) in last.iter_mut().zip(rest) {
                *to = *from;
            }
            word.store(u64::from_le_bytes(last), Relaxed);
        }
        Some(())
    }

    /// The 8 bytes at `offset`. `None` as in [`Self::read`].
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<u64> {
        let [word] = self.range(offset, 8)? else {
            return None;
        };
        Some(word.load(Relaxed))
    }

    /// Writes 8 bytes at `offset`. `None` as in [`Self::write`].
    #[must_use]
    pub fn set_word(&self, offset: usize, value: u64) -> Option<()> {
        let [word] = self.range(offset, 8)? else {
            return None;
        };
        word.store(value, Relaxed);
        Some(())
    }

    /// Copies words from `offset`, which is in bytes, into `out`, as many as it holds. `None`, and
    /// `out` is untouched, if it is not a multiple of 8 or the range leaves the area.
    #[must_use]
    pub fn read_words(&self, offset: usize, out: &mut [u64]) -> Option<()> {
        let words = self.range(offset, out.len().checked_mul(8)?)?;
        for (to, from) in out.iter_mut().zip(words) {
            *to = from.load(Relaxed);
        }
        Some(())
    }

    /// Writes words at `offset`, which is in bytes. `None`, and nothing is written, if it is not a
    /// multiple of 8 or the words do not fit in the area.
    #[must_use]
    pub fn write_words(&self, offset: usize, values: &[u64]) -> Option<()> {
        let words = self.range(offset, values.len().checked_mul(8)?)?;
        for (to, from) in words.iter().zip(values) {
            to.store(*from, Relaxed);
        }
        Some(())
    }

    /// The words that these bytes are in. `None` unless they begin at a multiple of 8 and are
    /// completely in the area.
    fn range(&self, offset: usize, len: usize) -> Option<&[AtomicU64]> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        let first = offset / 8;
        self.0.get(first..first.checked_add(len.div_ceil(8))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    #[test]
    fn descriptors_and_answers_come_back_whole_in_every_place() {
        let (ring, _file) = Mapping::<Ring>::create("test").unwrap();
        let at = |number: u32| Descriptor {
            op: 0xfffe,
            flags: 0x8001,
            n: number ^ 0xa5a5_a5a5,
            a: u64::MAX - u64::from(number),
            b: u64::from(number) << 32,
            r: 1 << 63 | u64::from(number),
        };
        let numbers = (u32::MAX - 2047)..=u32::MAX;
        for number in numbers.clone().chain(0..2048) {
            ring.put(number, &at(number));
            let answer = Answer {
                status: number,
                aux: !number,
                value: u64::from(number) << 17,
            };
            ring.put_answer(number, &answer);
        }
        for number in numbers.chain(0..2048) {
            assert_eq!(ring.read_descriptor(number), at(number));
            let answer = ring.read_answer(number);
            assert_eq!((answer.status, answer.aux), (number, !number));
            assert_eq!(answer.value, u64::from(number) << 17);
        }
    }

    #[test]
    fn the_area_keeps_bytes_and_its_bounds() {
        let (ring, _file) = Mapping::<Ring>::create("test").unwrap();
        let area = ring.area();
        for len in 0..40 {
            area.write(64, &[0xee; 48]).unwrap();
            let bytes: Vec<u8> = (0..len).collect();
            area.write(64, &bytes).unwrap();
            let mut back = vec![0; usize::from(len)];
            area.read(64, &mut back).unwrap();
            assert_eq!(back, bytes);
            let mut all = [0; 48];
            area.read(64, &mut all).unwrap();
            assert!(all[usize::from(len)..].iter().all(|byte| *byte == 0xee));
        }
        area.write(AREA_SIZE - 8, &[7; 8]).unwrap();
        assert_eq!(area.word(AREA_SIZE - 8), Some(0x0707_0707_0707_0707));
        area.set_word(16, 5).unwrap();
        area.write_words(24, &[6, 7]).unwrap();
        let mut words = [0; 3];
        area.read_words(16, &mut words).unwrap();
        assert_eq!(words, [5, 6, 7]);
        for (offset, len) in [
            (AREA_SIZE - 8, 9),
            (AREA_SIZE, 1),
            (4, 4),
            (usize::MAX & !7, 8),
        ] {
            assert_eq!(area.write(offset, &vec![1; len]), None, "{offset} {len}");
            assert_eq!(area.read(offset, &mut vec![1; len]), None, "{offset} {len}");
        }
        assert_eq!(area.word(AREA_SIZE), None);
        assert_eq!(area.set_word(1, 1), None);
        assert_eq!(area.read_words(AREA_SIZE - 8, &mut [0; 2]), None);
        assert_eq!(area.write_words(8 * 3 + 1, &[0]), None);
    }

    #[test]
    fn an_unsealed_or_short_file_is_not_mapped() {
        use rustix::fs::{MemfdFlags, SealFlags};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&file, size_of::<Ring>() as u64).unwrap();
        assert!(Mapping::<Ring>::open(&file).is_err(), "not sealed");
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(Mapping::<Ring>::open(&file).is_ok());
        let short = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&short, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&short, SealFlags::SHRINK).unwrap();
        assert!(Mapping::<Ring>::open(&short).is_err(), "too short");
        let (_ring, file) = Mapping::<Ring>::create("test").unwrap();
        assert!(rustix::fs::ftruncate(&file, 4096).is_err(), "sealed");
        assert!(rustix::fs::ftruncate(&file, 1 << 30).is_err(), "sealed");
    }

    #[test]
    fn an_unknown_status_is_a_fault_all_the_same() {
        assert_eq!(Answer::of(3).failure(), None);
        assert_eq!(
            Answer::fault(Fault::StaleFid).failure(),
            Some(Fault::StaleFid)
        );
        let odd = Answer {
            status: 0xdead,
            ..Answer::default()
        };
        assert_eq!(odd.failure(), Some(Fault::BadRequest));
    }
}
