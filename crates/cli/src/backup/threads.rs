//! `--threads`: how many threads seal and compress.
//!
//! Must not: start one.

use std::thread::available_parallelism;

/// Returns `wanted`, otherwise the number of threads that this machine runs at the same time,
/// otherwise 1.
pub(super) fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| available_parallelism().map_or(1, usize::from))
}

/// Parses a number from 1 to 64. The error is the text that clap shows.
pub(super) fn thread_count(text: &str) -> Result<usize, String> {
    let count: Option<usize> = text.parse().ok();
    count
        .filter(|count| (1..=64).contains(count))
        .ok_or_else(|| "use a number from 1 to 64".to_owned())
}
