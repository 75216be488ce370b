//! Turns the stream into families and back, on several threads, in bounded memory.
//!
//! Invariants:
//! - B5: no more than `3 * threads + 2` pieces are anywhere in a pipeline, each with two buffers of
//!   a segment's size, whatever the stream's length.
//! - B6: segments are written and returned in order. Nothing of a segment is returned before it was
//!   authenticated, and the end only after the last segment of every family was.
//!
//! Must not: interpret the stream.

pub(crate) mod read;
pub(crate) mod write;

#[cfg(test)]
mod tests;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use strongroom_format::backup::SEGMENT_SIZE;

/// Bytes of a whole piece.
pub(crate) const PIECE: usize = SEGMENT_SIZE as usize;

/// The buffers of one piece: as it is in the stream, and as it is stored.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) plain: Vec<u8>,
    pub(crate) stored: Vec<u8>,
}

/// Most pieces in a pipeline with so many threads.
fn pieces(threads: usize) -> usize {
    threads.saturating_mul(3).saturating_add(2)
}

/// A channel that holds all buffers of a pipeline, unused: where used ones are given back, and
/// where free ones are taken.
fn pool(threads: usize) -> (SyncSender<Buffers>, Receiver<Buffers>) {
    let count = pieces(threads);
    let (give, take) = sync_channel(count);
    for _ in 0..count {
        // The channel has room for all of them.
        drop(give.send(Buffers::default()));
    }
    (give, take)
}

/// Waits for the next job of a channel that several threads share. `None` when the channel is
/// closed.
fn next_job<T>(jobs: &Mutex<Receiver<T>>) -> Option<T> {
    let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
    jobs.recv().ok()
}
