//! How much to read ahead. A reader that goes on where it was gets twice as much as before, up to 1 MiB; one that jumps
//! gets one block, and the others half of what they had. A few places are remembered, so that a scan that looks things up in
//! an index on its way is still a scan.
//!
//! Must not: do I/O.

use crate::RUN_MAX;

/// Places that are remembered.
const PLACES: usize = 4;
/// Blocks that one may leave out and still be said to go on. What is read further ahead is a look at something else.
const GAP: u64 = 2;

#[derive(Clone, Copy)]
struct Head {
    /// The block behind the last one fetched.
    next: u64,
    /// Blocks of the last request.
    run: u64,
}

/// Where reading goes on, the latest first.
#[derive(Default)]
pub(crate) struct Heads(Vec<Head>);

impl Heads {
    /// How many blocks to fetch from `block` on, which is not at hand.
    pub(crate) fn plan(&mut self, block: u64) -> u64 {
        let goes_on = |head: &Head| (head.next..=head.next.saturating_add(GAP)).contains(&block);
        let run = match self.0.iter().position(goes_on) {
            Some(place) => self.0.remove(place).run.saturating_mul(2).min(RUN_MAX),
            None => {
                for head in &mut self.0 {
                    head.run = (head.run / 2).max(1);
                }
                self.0.truncate(PLACES - 1);
                1
            }
        };
        let next = block.saturating_add(run);
        self.0.insert(0, Head { next, run });
        run
    }

    /// The last request brought the blocks before `next`, and no more.
    pub(crate) fn fetched(&mut self, next: u64) {
        if let Some(head) = self.0.first_mut() {
            head.next = next;
        }
    }

    /// The last request failed: the next one of that place asks for half as much.
    pub(crate) fn failed(&mut self) {
        if let Some(head) = self.0.first_mut() {
            head.run = (head.run / 4).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_on_grows_and_jumping_shrinks() {
        let mut heads = Heads::default();
        let mut block = 100;
        let mut runs = Vec::new();
        for _ in 0..9 {
            let run = heads.plan(block);
            runs.push(run);
            block += run;
        }
        assert_eq!(runs, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(heads.plan(100_000), 1);
        assert_eq!(heads.plan(5), 1);
        // The scan goes on, with less: it was halved twice, and doubles again.
        assert_eq!(heads.plan(block), 32);
        heads.failed();
        assert_eq!(heads.plan(block + 32), 16);
    }

    #[test]
    fn random_places_stay_small_and_few() {
        let mut heads = Heads::default();
        for step in 0..1000_u64 {
            assert_eq!(heads.plan(step * 7919 % 100_003 * 100), 1);
            assert!(heads.0.len() <= PLACES);
        }
    }

    #[test]
    fn a_request_that_was_cut_short_goes_on_where_it_ended() {
        let mut heads = Heads::default();
        assert_eq!(heads.plan(0), 1);
        assert_eq!(heads.plan(1), 2);
        assert_eq!(heads.plan(3), 4);
        heads.fetched(5);
        assert_eq!(heads.plan(5), 8);
    }
}
