//! How many blocks to request at once. A sequential read doubles the size of its requests, up to 1
//! MiB. A read elsewhere requests one block, and halves the size for the other positions. A few
//! positions are remembered, so that a scan that also looks up rows in an index still counts as a
//! scan.
//!
//! Must not: do I/O.

use crate::sizes::RUN_MAX;

/// Most read positions that are remembered.
const POSITIONS: usize = 4;
/// Most blocks that a sequential read may skip.
const GAP: u64 = 2;

#[derive(Clone, Copy)]
struct Position {
    /// The block after the last one that was fetched.
    next: u64,
    /// Length of the last request in blocks.
    run: u64,
}

/// The positions at which sequential reads continue, the latest first.
#[derive(Default)]
pub(crate) struct ReadAhead(Vec<Position>);

impl ReadAhead {
    /// Returns how many blocks to request, beginning with `block`, which is neither in memory nor
    /// cached, and notes the request. Twice as many as before, up to 64, if the read continues a
    /// known one; else 1.
    pub(crate) fn plan(&mut self, block: u64) -> u64 {
        let continues =
            |known: &Position| (known.next..=known.next.saturating_add(GAP)).contains(&block);
        let run = match self.0.iter().position(continues) {
            Some(index) => self.0.remove(index).run.saturating_mul(2).min(RUN_MAX),
            None => {
                for position in &mut self.0 {
                    position.run = (position.run / 2).max(1);
                }
                self.0.truncate(POSITIONS - 1);
                1
            }
        };
        let next = block.saturating_add(run);
        self.0.insert(0, Position { next, run });
        run
    }

    /// Notes that the last planned request brought the blocks before `next`, and no others.
    pub(crate) fn note_fetched(&mut self, next: u64) {
        if let Some(position) = self.0.first_mut() {
            position.next = next;
        }
    }

    /// Notes that an attempt of the last planned request failed: if the read goes on behind it, the
    /// next request is half as long, but 2 blocks at least. Does nothing before the first request.
    pub(crate) fn note_failed(&mut self) {
        if let Some(position) = self.0.first_mut() {
            position.run = (position.run / 4).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_on_grows_and_jumping_shrinks() {
        let mut read_ahead = ReadAhead::default();
        let mut block = 100;
        let mut runs = Vec::new();
        for _ in 0..9 {
            let run = read_ahead.plan(block);
            runs.push(run);
            block += run;
        }
        assert_eq!(runs, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(read_ahead.plan(100_000), 1);
        assert_eq!(read_ahead.plan(5), 1);
        // The scan goes on, with less: it was halved twice, and doubles again.
        assert_eq!(read_ahead.plan(block), 32);
        read_ahead.note_failed();
        assert_eq!(read_ahead.plan(block + 32), 16);
    }

    #[test]
    fn random_places_stay_small_and_few() {
        let mut read_ahead = ReadAhead::default();
        for step in 0..1000_u64 {
            assert_eq!(read_ahead.plan(step * 7919 % 100_003 * 100), 1);
            assert!(read_ahead.0.len() <= POSITIONS);
        }
    }

    #[test]
    fn a_request_that_was_cut_short_goes_on_where_it_ended() {
        let mut read_ahead = ReadAhead::default();
        assert_eq!(read_ahead.plan(0), 1);
        assert_eq!(read_ahead.plan(1), 2);
        assert_eq!(read_ahead.plan(3), 4);
        read_ahead.note_fetched(5);
        assert_eq!(read_ahead.plan(5), 8);
    }
}
