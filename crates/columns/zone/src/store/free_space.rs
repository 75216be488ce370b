//! Which parts of the block file are free.
//!
//! Invariants: S3, a place that is in use, or that the last durable manifest names, is never given out; lengths and offsets are
//! multiples of [`BLOCK_UNIT`]. Must not: do I/O.

use std::collections::BTreeMap;

use strongroom_format::columns::block::BLOCK_UNIT;

/// The free parts, by offset; behind `end` everything is free.
#[derive(Default)]
pub(super) struct Places {
    free: BTreeMap<u64, u64>,
    end: u64,
}

/// Bytes that `len` bytes take in the file.
pub(super) fn rounded(len: u64) -> u64 {
    len.next_multiple_of(BLOCK_UNIT)
}

impl Places {
    /// A place for `len` bytes.
    pub(super) fn take(&mut self, len: u64) -> u64 {
        let len = rounded(len);
        // First fit keeps the file short; the list is short because places next to one another are joined.
        let found = self
            .free
            .iter()
            .find(|(_, room)| **room >= len)
            .map(|(at, room)| (*at, *room));
        let Some((at, room)) = found else {
            let at = self.end;
            self.end += len;
            return at;
        };
        self.free.remove(&at);
        if room > len {
            self.free.insert(at + len, room - len);
        }
        at
    }

    /// Gives a place back.
    pub(super) fn give_back(&mut self, at: u64, len: u64) {
        let (mut at, mut len) = (at, rounded(len));
        if let Some((before, room)) = self.free.range(..at).next_back().map(|(a, b)| (*a, *b))
            && before + room == at
        {
            self.free.remove(&before);
            at = before;
            len += room;
        }
        if let Some(room) = self.free.remove(&(at + len)) {
            len += room;
        }
        if at + len == self.end {
            self.end = at;
        } else {
            self.free.insert(at, len);
        }
    }

    /// Says that a place is in use, of a store that is being opened. False when it is already.
    pub(super) fn claim(&mut self, at: u64, len: u64) -> bool {
        let len = rounded(len);
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
        let Some((from, room)) = self.free.range(..=at).next_back().map(|(a, b)| (*a, *b)) else {
            return false;
        };
        if from + room < to {
            return false;
        }
        self.free.remove(&from);
        if at > from {
            self.free.insert(from, at - from);
        }
        if from + room > to {
            self.free.insert(to, from + room - to);
        }
        true
    }

    /// Where the file may end.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_is_given_out_twice_and_all_room_comes_back() {
        let mut places = Places::default();
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
                let at = places.take(len);
                for (other, size) in &held {
                    assert!(
                        at + rounded(len) <= *other || other + rounded(*size) <= at,
                        "overlap"
                    );
                }
                held.push((at, len));
            } else {
                let index = usize::try_from(random(held.len() as u64)).unwrap();
                let (at, len) = held.swap_remove(index);
                places.give_back(at, len);
            }
        }
        let mut again = Places::default();
        for (at, len) in &held {
            assert!(again.claim(*at, *len));
            assert!(!again.claim(*at, *len));
        }
        assert_eq!((again.end, &again.free), (places.end, &places.free));
        for (at, len) in held {
            places.give_back(at, len);
        }
        assert_eq!((places.end, places.free.len()), (0, 0));
    }
}
