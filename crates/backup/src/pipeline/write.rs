//! Cuts the stream into pieces, compresses and seals them on several threads, writes them
//! round-robin to the families.
//!
//! Invariants B5 and B6 (`pipeline`). A failure anywhere ends all threads; the families are then
//! orphans.
//!
//! Must not: remove the families after a failure.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use strongroom_format::backup::SegmentHead;
use strongroom_format::code;

use super::{Buffers, PIECE, next_job, pieces, pool};
use crate::family::FamilyWriter;
use crate::head::FamilyEnd;
use crate::set::{FamilyKey, Trailer};
use crate::{Error, Result};

/// A family and its key.
pub(crate) struct Target {
    pub(crate) key: FamilyKey,
    pub(crate) writer: FamilyWriter,
}

/// How pieces are compressed and sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Threads that compress and seal, at least 1.
    pub(crate) threads: usize,
    /// Level of zstd; `None` stores pieces as they are.
    pub(crate) level: Option<i32>,
}

struct Job {
    index: u64,
    buffers: Buffers,
}

struct Sealed {
    index: u64,
    head: SegmentHead,
    trailer: Trailer,
    buffers: Buffers,
}

/// The writer of the stream, which cuts it into pieces.
pub(crate) struct Pieces {
    free: Receiver<Buffers>,
    jobs: SyncSender<Job>,
    current: Buffers,
    index: u64,
}

impl Pieces {
    /// Takes the next bytes of the stream, and waits while all buffers are in use. SR-9001 when
    /// another thread has failed, whose own error [`run`] reports.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = PIECE - self.current.plain.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.current.plain.extend_from_slice(now);
            bytes = later;
            if self.current.plain.len() == PIECE {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    /// Passes the current piece to the other threads, and waits for a free buffer for the next one.
    /// SR-9001 when another thread has failed.
    fn hand_over(&mut self) -> Result<()> {
        let mut next = self.free.recv().map_err(|_| stopped_error())?;
        next.plain.clear();
        if next.plain.capacity() == 0 {
            next.plain.reserve_exact(PIECE);
        }
        let job = Job {
            index: self.index,
            buffers: std::mem::replace(&mut self.current, next),
        };
        self.index = self.index.saturating_add(1);
        self.jobs.send(job).map_err(|_| stopped_error())
    }

    /// Passes on the last piece, which may be short; does nothing when it is empty. SR-9001 when
    /// another thread has failed.
    fn finish(mut self) -> Result<()> {
        if self.current.plain.is_empty() {
            return Ok(());
        }
        self.hand_over()
    }
}

/// Makes the producer's error, SR-9001, for when another thread has failed; that thread reports the
/// reason.
fn stopped_error() -> Error {
    Error::new(&code::BUG, STOPPED)
}

const STOPPED: &str = "the pipeline has stopped";

/// Runs `produce`, which writes the stream, while `settings.threads` threads compress and seal its
/// pieces and one writes them. Returns its result and how the families ended, which are then
/// durable.
///
/// # Errors
/// Those of `produce`, of sealing and of writing; if one failure caused others, the first one.
pub(crate) fn run<T>(
    targets: Vec<Target>,
    settings: Settings,
    produce: impl FnOnce(&mut Pieces) -> Result<T>,
) -> Result<(T, Vec<FamilyEnd>)> {
    let threads = settings.threads.max(1);
    let (keys, writers): (Vec<FamilyKey>, Vec<FamilyWriter>) = targets
        .into_iter()
        .map(|target| (target.key, target.writer))
        .unzip();
    let keys = keys.as_slice();
    let (give, free) = pool(threads);
    let (jobs, to_do) = sync_channel(pieces(threads));
    let to_do = Mutex::new(to_do);
    let to_do = &to_do;
    let whole = &AtomicBool::new(false);
    let (done, sealed) = channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let done = done.clone();
            scope.spawn(move || work(keys, settings.level, to_do, &done));
        }
        drop(done);
        let writing = scope.spawn(move || write_all(keys, writers, &sealed, &give, whole));
        let produced = run_producer(free, jobs, whole, produce);
        let written = match writing.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        match (produced, written) {
            (Ok(value), Ok(ends)) => Ok((value, ends)),
            // The producer failed only because another thread had.
            (Err(told), Err(reason)) if told.detail() == STOPPED => Err(reason),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    })
}

/// Runs `produce`, sets `whole` because the stream is complete then, and passes on the last piece.
/// Errors of `produce`; SR-9001 when another thread has failed.
fn run_producer<T>(
    free: Receiver<Buffers>,
    jobs: SyncSender<Job>,
    whole: &AtomicBool,
    produce: impl FnOnce(&mut Pieces) -> Result<T>,
) -> Result<T> {
    let current = free.recv().map_err(|_| stopped_error())?;
    let mut pieces = Pieces {
        free,
        jobs,
        current,
        index: 0,
    };
    let value = produce(&mut pieces)?;
    // This is set before the jobs end, which the writing thread waits for.
    whole.store(true, Ordering::Release);
    pieces.finish()?;
    Ok(value)
}

/// Runs on each thread that compresses and seals, until there are no more jobs or one fails, and
/// sends each result, or the error, to `done`.
fn work(
    keys: &[FamilyKey],
    level: Option<i32>,
    jobs: &Mutex<Receiver<Job>>,
    done: &Sender<Result<Sealed>>,
) {
    let mut compressor = match level.map(zstd::bulk::Compressor::new).transpose() {
        Ok(compressor) => compressor,
        Err(error) => {
            drop(done.send(Err(Error::io("zstd", error))));
            return;
        }
    };
    while let Some(job) = next_job(jobs) {
        let sealed = seal_one(keys, compressor.as_mut(), job);
        let failed = sealed.is_err();
        if done.send(sealed).is_err() || failed {
            return;
        }
    }
}

/// Compresses a piece, if that makes it smaller, and seals it as the segment that its place in the
/// stream gives it. Errors of libcrypto; SR-9001 when it has no place.
fn seal_one(
    keys: &[FamilyKey],
    compressor: Option<&mut zstd::bulk::Compressor<'_>>,
    job: Job,
) -> Result<Sealed> {
    let Job { index, mut buffers } = job;
    let bug = || Error::new(&code::BUG, "a piece that has no place");
    let count = keys.len() as u64;
    let (number, family) = (
        index.checked_div(count).ok_or_else(bug)?,
        index.checked_rem(count).ok_or_else(bug)?,
    );
    let key = usize::try_from(family).ok().and_then(|at| keys.get(at));
    let key = key.ok_or_else(bug)?;
    let number = u32::try_from(number).map_err(|_| bug())?;
    let plain_length = buffers.plain.len();
    let smaller = compressor.is_some_and(|zstd| compress(zstd, &mut buffers));
    if !smaller {
        // Stored as it is, without a copy.
        std::mem::swap(&mut buffers.plain, &mut buffers.stored);
    }
    let head = SegmentHead {
        length: u32::try_from(buffers.stored.len()).map_err(|_| bug())?,
        plain_length: u32::try_from(plain_length).map_err(|_| bug())?,
        last: false,
        compressed: smaller,
    };
    let trailer = key.seal(number, head, &mut buffers.stored)?;
    Ok(Sealed {
        index,
        head,
        trailer,
        buffers,
    })
}

/// Compresses a piece into `stored`. False when it does not get smaller; the content of `stored` is
/// then undefined.
fn compress(zstd: &mut zstd::bulk::Compressor<'_>, buffers: &mut Buffers) -> bool {
    let Buffers { plain, stored } = buffers;
    stored.clear();
    if stored.capacity() == 0 {
        stored.reserve_exact(PIECE);
    }
    // The free room of the buffer is used, which is not filled with zeros first. An error means
    // that the result does not fit into it, and is thus not smaller than the piece.
    let length = zstd.compress_to_buffer(plain.as_slice(), stored).ok();
    length.is_some_and(|length| length > 0 && length < plain.len())
}

/// Runs on the thread that writes: puts the segments into the families in order, round-robin, then
/// every family's last segment, and makes the families durable. SR-9001 when a part of the stream
/// did not come; errors of sealing and writing.
fn write_all(
    keys: &[FamilyKey],
    mut writers: Vec<FamilyWriter>,
    sealed: &Receiver<Result<Sealed>>,
    free: &SyncSender<Buffers>,
    whole: &AtomicBool,
) -> Result<Vec<FamilyEnd>> {
    let mut waiting: BTreeMap<u64, Sealed> = BTreeMap::new();
    let mut next = 0_u64;
    let count = writers.len() as u64;
    while let Ok(piece) = sealed.recv() {
        let piece = piece?;
        waiting.insert(piece.index, piece);
        while let Some(piece) = waiting.remove(&next) {
            let family = next
                .checked_rem(count)
                .and_then(|at| usize::try_from(at).ok());
            let writer = family.and_then(|at| writers.get_mut(at));
            let writer = writer.ok_or_else(|| Error::new(&code::BUG, "no family"))?;
            writer.segment(piece.head, &piece.buffers.stored, &piece.trailer)?;
            // Once the stream has ended, nobody receives buffers any more.
            drop(free.send(piece.buffers));
            next = next.saturating_add(1);
        }
    }
    if !whole.load(Ordering::Acquire) || !waiting.is_empty() {
        return Err(stopped_error());
    }
    for (key, writer) in keys.iter().zip(&mut writers) {
        let trailer = key.seal(writer.next(), SegmentHead::LAST, &mut [])?;
        writer.segment(SegmentHead::LAST, &[], &trailer)?;
    }
    writers.into_iter().map(FamilyWriter::finish).collect()
}
