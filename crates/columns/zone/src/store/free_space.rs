//! Which parts of the block file are free.
//!
//! Invariants: S3, a part that is in use, or that the last durable manifest names, is never given
//! out; lengths and offsets are multiples of [`BLOCK_UNIT`]. Must not: do I/O.

use std::collections::BTreeMap;

use strongroom_format::columns::block::BLOCK_UNIT;

/// The free parts of the block file: length by offset. Everything from `end` on is free.
#[derive(Default)]
pub(super) struct FreeSpace {
    free: BTreeMap<u64, u64>,
    end: u64,
}

/// The bytes that `len` bytes take in the file: the next multiple of [`BLOCK_UNIT`].
pub(super) fn round_up(len: u64) -> u64 {
    len.next_multiple_of(BLOCK_UNIT)
}

impl FreeSpace {
    /// Takes the first free part of at least `len` bytes, or one at the end; returns its offset.
    pub(super) fn allocate(&mut self, len: u64) -> u64 {
        let len = round_up(len);
        // First fit keeps the file short; the list is short because neighbours are joined.
        let found = self
            .free
            .iter()
            .find(|(_, size)| **size >= len)
            .map(|(at, size)| (*at, *size));
        let Some((at, size)) = found else {
            let at = self.end;
            self.end += len;
            return at;
        };
        self.free.remove(&at);
        if size > len {
            self.free.insert(at + len, size - len);
        }
        at
    }

    /// Makes the `len` bytes at `at` free, joined with free neighbours. They may be given out at
    /// once.
    pub(super) fn free(&mut self, at: u64, len: u64) {
        let (mut at, mut len) = (at, round_up(len));
        if let Some((before, size)) = self.free.range(..at).next_back().map(|(a, b)| (*a, *b))
            && before + size == at
        {
            self.free.remove(&before);
            at = before;
            len += size;
        }
        if let Some(size) = self.free.remove(&(at + len)) {
            len += size;
        }
        if at + len == self.end {
            self.end = at;
        } else {
            self.free.insert(at, len);
        }
    }

    /// Marks a part as in use while a store is being opened. False if any of it is in use already,
    /// or the offsets overflow.
    pub(super) fn claim(&mut self, at: u64, len: u64) -> bool {
        let len = round_up(len);
        let Some(to) = at.checked_add(len) else {
            return false;
        };
        if at > self.end {
            self.free.insert(self.end, at - self.end);
            self.end = at;
        }
        if at == self.end {
            self.end = to;
            return true;
        }
        let Some((from, size)) = self.free.range(..=at).next_back().map(|(a, b)| (*a, *b)) else {
            return false;
        };
        if from + size < to {
            return false;
        }
        self.free.remove(&from);
        if at > from {
            self.free.insert(from, at - from);
        }
        if from + size > to {
            self.free.insert(to, from + size - to);
        }
        true
    }

    /// The length that the file needs: everything from here on is free.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_is_given_out_twice_and_all_space_comes_back() {
        let mut space = FreeSpace::default();
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            if random(5) < 3 || held.is_empty() {
                let len = 1 + random(20_000);
                let at = space.allocate(len);
                for (other, size) in &held {
                    assert!(
                        at + round_up(len) <= *other || other + round_up(*size) <= at,
                        "overlap"
                    );
                }
                held.push((at, len));
            } else {
                let index = usize::try_from(random(held.len() as u64)).unwrap();
                let (at, len) = held.swap_remove(index);
                space.free(at, len);
            }
        }
        let mut again = FreeSpace::default();
        for (at, len) in &held {
            assert!(again.claim(*at, *len));
            assert!(!again.claim(*at, *len));
        }
        assert_eq!((again.end, &again.free), (space.end, &space.free));
        for (at, len) in held {
            space.free(at, len);
        }
        assert_eq!((space.end, space.free.len()), (0, 0));
    }
}
