//! The positions of a database's units, and parallel work on them.
//!
//! Invariant D3: memory is a few buffers for each thread, whatever the size of the file.
//!
//! Must not: know a key.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use strongroom_format::code;
use strongroom_format::duckdb::{
    DUCKDB_BLOCK_MAX, DUCKDB_BLOCK_MIN, DUCKDB_BLOCKS_AT, DUCKDB_HEADER_LEN, UndoKind,
};
use strongroom_keyring::Error;

/// Why a unit is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFault {
    /// Its tag does not match its bytes under this key.
    Tag,
    /// Its inner checksum does not match its data.
    Checksum,
}

impl UnitFault {
    /// Returns the stable code: SR-2206 for the tag, SR-2207 for the checksum.
    #[must_use]
    pub fn code(self) -> &'static code::Code {
        match self {
            Self::Tag => &code::DUCKDB_UNIT,
            Self::Checksum => &code::DUCKDB_CHECKSUM,
        }
    }
}

/// Units of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Units {
    pub(crate) kind: UndoKind,
    /// Length of each, in bytes.
    pub(crate) len: usize,
    /// Their number.
    pub(crate) count: u64,
}

impl Units {
    /// Describes the two database headers.
    pub(crate) fn headers() -> Self {
        Self {
            kind: UndoKind::DatabaseHeaders,
            len: DUCKDB_HEADER_LEN,
            count: 2,
        }
    }

    /// Describes `count` whole blocks of `block_size` bytes each.
    pub(crate) fn blocks(block_size: u32, count: u64) -> Self {
        Self {
            kind: UndoKind::Blocks,
            len: usize::try_from(block_size).unwrap_or(usize::MAX),
            count,
        }
    }

    /// Describes the positions at which a block begins for every block size: each is a multiple of
    /// the largest block size from the first, and leaves room for the smallest. The length of these
    /// blocks is unknown.
    pub(crate) fn certain(file_len: u64) -> Self {
        let body = file_len.saturating_sub(DUCKDB_BLOCKS_AT);
        let room = body.saturating_add(DUCKDB_BLOCK_MAX - DUCKDB_BLOCK_MIN);
        let size = u32::try_from(DUCKDB_BLOCK_MAX).unwrap_or(u32::MAX);
        Self::blocks(size, room / DUCKDB_BLOCK_MAX)
    }

    /// Returns the offset of a unit in the file, in bytes.
    pub(crate) fn offset(self, number: u64) -> u64 {
        let (from, len) = match self.kind {
            UndoKind::Blocks => (DUCKDB_BLOCKS_AT, self.len as u64),
            UndoKind::DatabaseHeaders => (DUCKDB_HEADER_LEN as u64, self.len as u64),
        };
        from.saturating_add(number.saturating_mul(len))
    }
}

/// Returns the number of threads for work on units: the number of processors, at most 8 because
/// each thread has buffers of its own.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, |count| count.get().min(8))
}

/// The number of units that a thread takes at a time.
const STRIDE: u64 = 8;

/// Calls `work` for each number in `range`, in any order, on `threads` threads, each with a state
/// of its own that `state` makes. Waits for all of them. `progress` gets the number of units done.
///
/// Ends at the first error, and returns it; SR-9001 when a thread panicked.
pub(crate) fn for_each<S>(
    range: Range<u64>,
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, u64) -> Result<(), Error> + Sync,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    if threads <= 1 {
        let mut state = state();
        for number in range.clone() {
            work(&mut state, number)?;
            progress(number - range.start + 1);
        }
        return Ok(());
    }
    let next = AtomicU64::new(range.start);
    let stop = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    let run = |tell: mpsc::Sender<u64>| -> Result<(), Error> {
        let mut state = state();
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(STRIDE, Ordering::Relaxed);
            let to = from.saturating_add(STRIDE).min(range.end);
            for number in from..to {
                if let Err(error) = work(&mut state, number) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            // The receiver is gone only when everything is done.
            if from >= range.end || tell.send(to - from).is_err() {
                break;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let tell = tell.clone();
                scope.spawn(|| run(tell))
            })
            .collect();
        drop(tell);
        let mut done = 0;
        for more in told {
            done += more;
            progress(done);
        }
        // The first error, in order of threads; a panic of a thread is a defect.
        workers.into_iter().try_for_each(|worker| {
            let ended = worker.join();
            ended.unwrap_or_else(|_| Err(Error::new(&code::BUG, "a thread panicked")))
        })
    })
}

/// Returns a function that makes SR-5001 of an error of the operating system about `what`.
pub(crate) fn io_error(what: &str) -> impl Fn(io::Error) -> Error {
    move |error| Error::io(what, error)
}
