//! Several connections at once, for a time. Must not: count a transaction that was not
//! acknowledged.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::wire::{Client, Failure};

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Transactions that were acknowledged, and counted for the throughput.
    pub counted: u64,
    /// All others that ended without an error.
    pub others: u64,
    /// Transactions that failed by a conflict with another one: deadlocks, serialisation, keys that
    /// two inserted. They are not tried again.
    pub conflicts: u64,
}

impl Count {
    /// Counted transactions in a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a count of less than 2^52")]
    pub fn rate(&self, taken: Duration) -> f64 {
        self.counted as f64 / taken.as_secs_f64()
    }
}

/// Whether a transaction failed by a conflict with another one: serialisation, deadlock, a key that
/// two inserted.
#[must_use]
pub fn is_conflict(failure: &Failure) -> bool {
    matches!(failure.state(), Some("40001" | "40P01" | "23505"))
}

/// Runs `work` over `connections` connections to `directory` for `time`. `work` gets the connection
/// and its number, and returns whether its transaction is counted. Returns the time of the whole
/// run too.
///
/// # Errors
/// The first one that is not a conflict.
pub fn run(
    directory: &Path,
    connections: u32,
    time: Duration,
    work: impl Fn(&mut Client, u32, &mut fastrand::Rng) -> Result<bool, Failure> + Sync,
) -> Result<(Count, Duration), Failure> {
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let one = &|number: u32| -> Result<Count, Failure> {
        let mut client = Client::connect(directory)?;
        let mut random = fastrand::Rng::with_seed(u64::from(number) + 1);
        let mut count = Count::default();
        while begun.elapsed() < time && !over.load(Ordering::Relaxed) {
            match work(&mut client, number, &mut random) {
                Ok(true) => count.counted += 1,
                Ok(false) => count.others += 1,
                Err(failure) if is_conflict(&failure) => count.conflicts += 1,
                Err(failure) => {
                    over.store(true, Ordering::Relaxed);
                    return Err(failure);
                }
            }
        }
        Ok(count)
    };
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|number| scope.spawn(move || one(number)))
            .collect();
        let ended = threads.into_iter().map(|thread| {
            let gone = || Err(std::io::Error::other("a thread panicked").into());
            thread.join().unwrap_or_else(|_| gone())
        });
        ended.collect::<Result<Vec<Count>, Failure>>()
    })?;
    let total = counts.iter().fold(Count::default(), |sum, one| Count {
        counted: sum.counted + one.counted,
        others: sum.others + one.others,
        conflicts: sum.conflicts + one.conflicts,
    });
    Ok((total, begun.elapsed()))
}
