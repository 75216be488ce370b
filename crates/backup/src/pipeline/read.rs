//! Reads families round-robin, opens and decompresses their segments on several threads, and
//! returns the stream in order.
//!
//! Invariants B5 and B6 (`pipeline`): the end of the stream comes only after every family's last
//! segment was authenticated and nothing followed it.
//!
//! Must not: return a byte of a segment that was not authenticated.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use strongroom_format::backup::SegmentHead;
use strongroom_format::code;

use super::{Buffers, PIECE, next_job, pieces, pool};
use crate::family::{FamilyReader, bad_segment};
use crate::head::FamilyEnd;
use crate::set::{FamilyKey, Trailer};
use crate::{Error, Result};

/// A family and its key.
pub(crate) struct Origin {
    pub(crate) key: FamilyKey,
    pub(crate) reader: FamilyReader,
}

struct Job {
    index: u64,
    family: usize,
    number: u32,
    head: SegmentHead,
    trailer: Trailer,
    buffers: Buffers,
}

enum Done {
    Piece(u64, Buffers),
    /// All families ended after this many pieces.
    End(u64, Vec<FamilyEnd>),
    Failed(Error),
}

/// The stream, piece by piece.
pub(crate) struct Opened {
    done: Receiver<Done>,
    free: SyncSender<Buffers>,
    waiting: BTreeMap<u64, Buffers>,
    next: u64,
    current: Option<Buffers>,
    end: Option<(u64, Vec<FamilyEnd>)>,
}

impl Opened {
    /// Waits for the next piece, which is authenticated and not empty; `None` at the stream's end,
    /// after every family's last segment was authenticated. The caller may swap its buffer for
    /// another one. SR-7109 or SR-7110 when a family is damaged.
    pub(crate) fn next_piece(&mut self) -> Result<Option<&mut Vec<u8>>> {
        if let Some(used) = self.current.take() {
            // The channel has room for a buffer that came from it. The reader may have ended, and
            // then takes no more.
            drop(self.free.send(used));
        }
        loop {
            if let Some(buffers) = self.waiting.remove(&self.next) {
                self.next = self.next.saturating_add(1);
                let current = self.current.insert(buffers);
                return Ok(Some(&mut current.plain));
            }
            if self
                .end
                .as_ref()
                .is_some_and(|(pieces, _)| *pieces == self.next)
            {
                return Ok(None);
            }
            match self.done.recv() {
                Ok(Done::Piece(index, buffers)) => drop(self.waiting.insert(index, buffers)),
                Ok(Done::End(pieces, ends)) => self.end = Some((pieces, ends)),
                Ok(Done::Failed(error)) => return Err(error),
                Err(_) => return Err(Error::new(&code::BUG, "the pipeline has stopped")),
            }
        }
    }
}

/// Opens and decompresses the families on `threads` threads, runs `consume`, which must read the
/// stream to its end, and returns its result and how the families ended.
///
/// # Errors
/// SR-7109 and SR-7110 of reading and opening; those of `consume`; SR-7111 when `consume` left a
/// part of the stream unread.
pub(crate) fn run<T>(
    origins: Vec<Origin>,
    threads: usize,
    consume: impl FnOnce(&mut Opened) -> Result<T>,
) -> Result<(T, Vec<FamilyEnd>)> {
    let threads = threads.max(1);
    let (keys, readers): (Vec<FamilyKey>, Vec<FamilyReader>) = origins
        .into_iter()
        .map(|origin| (origin.key, origin.reader))
        .unzip();
    let keys = keys.as_slice();
    let (free, take) = pool(threads);
    let (jobs, to_do) = sync_channel(pieces(threads));
    let to_do = Mutex::new(to_do);
    let to_do = &to_do;
    let (tell, done) = channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let tell = tell.clone();
            scope.spawn(move || work(keys, to_do, &tell));
        }
        scope.spawn(move || {
            let end = match read_all(keys, readers, &take, &jobs) {
                Ok(Some((pieces, ends))) => Done::End(pieces, ends),
                // The consumer has stopped reading.
                Ok(None) => return,
                Err(error) => Done::Failed(error),
            };
            drop(tell.send(end));
        });
        let mut opened = Opened {
            done,
            free,
            waiting: BTreeMap::new(),
            next: 0,
            current: None,
            end: None,
        };
        let value = consume(&mut opened)?;
        if opened.next_piece()?.is_some() {
            return Err(Error::new(&code::STREAM, "bytes after its end"));
        }
        let ends = opened.end.take().map(|(_, ends)| ends);
        ends.map(|ends| (value, ends))
            .ok_or_else(|| Error::new(&code::BUG, "a stream without its end"))
    })
}

/// Runs on each thread that opens and decompresses, until there are no more jobs or one fails, and
/// sends each result, or the error, to `tell`.
fn work(keys: &[FamilyKey], jobs: &Mutex<Receiver<Job>>, tell: &Sender<Done>) {
    let mut decompressor = match zstd::bulk::Decompressor::new() {
        Ok(decompressor) => decompressor,
        Err(error) => {
            drop(tell.send(Done::Failed(Error::io("zstd", error))));
            return;
        }
    };
    while let Some(job) = next_job(jobs) {
        let done = match open_one(keys, &mut decompressor, job) {
            Ok((index, buffers)) => Done::Piece(index, buffers),
            Err(error) => Done::Failed(error),
        };
        let failed = matches!(done, Done::Failed(_));
        if tell.send(done).is_err() || failed {
            return;
        }
    }
}

/// Authenticates, decrypts and decompresses one segment, and returns its index with its buffers.
/// SR-7109 when it is not authentic or malformed.
fn open_one(
    keys: &[FamilyKey],
    decompressor: &mut zstd::bulk::Decompressor<'_>,
    job: Job,
) -> Result<(u64, Buffers)> {
    let mut buffers = job.buffers;
    let key = keys.get(job.family);
    let key = key.ok_or_else(|| Error::new(&code::BUG, "no family"))?;
    let bad = || bad_segment(key.family(), job.number);
    if !key.open(job.number, job.head, &mut buffers.stored, &job.trailer)? {
        return Err(bad());
    }
    let length = usize::try_from(job.head.plain_length).map_err(|_| bad())?;
    if job.head.compressed {
        buffers.plain.clear();
        // The length is that of the authenticated head, and no more than a segment holds. The
        // buffer is not filled with zeros first.
        buffers.plain.reserve_exact(length);
        let written = decompressor
            .decompress_to_buffer(&buffers.stored, &mut buffers.plain)
            .map_err(|_| bad())?;
        if written != length {
            return Err(bad());
        }
    } else {
        std::mem::swap(&mut buffers.plain, &mut buffers.stored);
    }
    Ok((job.index, buffers))
}

/// Runs on the thread that reads: passes segments to the other threads, and returns the number of
/// pieces and how the families ended. `None` when the other threads have stopped. SR-7109 or
/// SR-7110 when a file is malformed or cut short.
fn read_all(
    keys: &[FamilyKey],
    mut readers: Vec<FamilyReader>,
    free: &Receiver<Buffers>,
    jobs: &SyncSender<Job>,
) -> Result<Option<(u64, Vec<FamilyEnd>)>> {
    let (mut index, mut family, mut short) = (0_u64, 0_usize, false);
    loop {
        let Ok(mut buffers) = free.recv() else {
            return Ok(None);
        };
        let reader = readers.get_mut(family);
        let reader = reader.ok_or_else(|| Error::new(&code::BUG, "no family"))?;
        let (number, head, trailer) = reader.segment(&mut buffers.stored)?;
        if head.last {
            let first = (family, number, trailer);
            return read_last_segments(keys, readers, index, first).map(Some);
        }
        let whole = usize::try_from(head.plain_length) == Ok(PIECE);
        let family_number = u16::try_from(family).unwrap_or(u16::MAX);
        // Only the stream's last piece may be short.
        if short {
            return Err(bad_segment(family_number, number));
        }
        short = !whole;
        let job = Job {
            index,
            family,
            number,
            head,
            trailer,
            buffers,
        };
        if jobs.send(job).is_err() {
            return Ok(None);
        }
        index = index.saturating_add(1);
        family = if family + 1 == keys.len() {
            0
        } else {
            family + 1
        };
    }
}

/// Reads and authenticates every family's last segment, `first` being the one that was read
/// already, and checks that nothing follows them. SR-7109 when one is not the last or not
/// authentic; SR-7110 when a family ends before or after it.
fn read_last_segments(
    keys: &[FamilyKey],
    mut readers: Vec<FamilyReader>,
    pieces: u64,
    first: (usize, u32, Trailer),
) -> Result<(u64, Vec<FamilyEnd>)> {
    let mut nothing = Vec::new();
    for (family, (key, reader)) in keys.iter().zip(&mut readers).enumerate() {
        let (number, head, trailer) = if family == first.0 {
            (first.1, SegmentHead::LAST, first.2)
        } else {
            reader.segment(&mut nothing)?
        };
        if !head.last || !key.open(number, head, &mut [], &trailer)? {
            return Err(bad_segment(key.family(), number));
        }
    }
    let ends: Result<Vec<FamilyEnd>> = readers.into_iter().map(FamilyReader::end).collect();
    Ok((pieces, ends?))
}
