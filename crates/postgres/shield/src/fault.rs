//! What can go wrong with a file that can tell damage from data, and how that is reported; the lock
//! of its writers.
//!
//! Invariants: damage is EIO to the program, and one line on standard error for each descriptor that met it. Nothing
//! here allocates.
//!
//! Must not: be used for block files that cannot tell damage from data: all but transaction status
//! files.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::io::Write;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use strongroom_format::code;
use strongroom_format::postgres::container::CONTAINER_MAGIC;
use strongroom_format::postgres::stream::STREAM_MAGIC;

use crate::body::{Body, File};
use crate::real::{Errno, LockKind, Real};
use crate::scratch::OutOfMemory;

/// Why an operation on a file failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The kernel says so.
    Os(Errno),
    /// The file is not what was written.
    Damaged,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

impl From<OutOfMemory> for Fault {
    fn from(_: OutOfMemory) -> Self {
        Self::Os(Errno(libc::ENOMEM))
    }
}

/// What the program gets: damage becomes EIO, and is told once.
pub(crate) fn settle<T>(
    real: &Real,
    fd: RawFd,
    file: &File<'_>,
    outcome: Result<T, Fault>,
) -> Result<T, Errno> {
    outcome.map_err(|fault| match fault {
        Fault::Os(errno) => errno,
        Fault::Damaged => {
            let [.., told] = file.memory;
            if told.swap(1, Ordering::Relaxed) == 0 {
                tell(real, fd, file);
            }
            Errno(libc::EIO)
        }
    })
}

/// One line on standard error with the code and the path.
fn tell(real: &Real, fd: RawFd, file: &File<'_>) {
    let mut path = [0_u8; 512];
    let path = real.path_of(fd, &mut path).unwrap_or(b"(unknown path)");
    let mut line = [0_u8; 1024];
    let mut rest = line.as_mut_slice();
    let code = match file.body {
        Body::Block => code::PG_STATUS_ZEROS,
        _ if is_plain(real, fd) => code::PG_PLAIN_FILE,
        _ => code::PG_FILE,
    };
    // What does not fit is cut off.
    let _cut = writeln!(
        rest,
        "strongroom: SR-{:04}: {}: {}; {}",
        code.number,
        path.escape_ascii(),
        code.what,
        code.todo
    );
    let unused = rest.len();
    let used = line.len().saturating_sub(unused);
    real.tell(line.get(..used).unwrap_or_default());
}

/// Whether the file has no header of ours at all: somebody put it there as it is. Cut or damaged headers do not count.
fn is_plain(real: &Real, fd: RawFd) -> bool {
    let mut start = [0; CONTAINER_MAGIC.len()];
    match real.pread_full(fd, &mut start, 0) {
        Ok(count) if count == start.len() => {
            let differs = |magic: &[u8; 32]| {
                let equal = magic
                    .iter()
                    .zip(start)
                    .filter(|(one, other)| **one == *other);
                equal.count() < start.len() / 2
            };
            // Zeros are what a power cut leaves.
            differs(&CONTAINER_MAGIC)
                && differs(&STREAM_MAGIC)
                && start.iter().any(|byte| *byte != 0)
        }
        Ok(count) => !start
            .get(..count)
            .is_some_and(|start| CONTAINER_MAGIC.starts_with(start)),
        Err(_) => false,
    }
}

/// Which byte writers lock: one that no program has, so that locks of the program's own do not meet it.
const LOCKED_BYTE: i64 = 1 << 62;

/// The lock of a file's writers, until dropped. It belongs to the open file description: processes that opened the file
/// by themselves exclude one another.
pub(crate) struct Held<'a> {
    real: &'a Real,
    fd: RawFd,
}

impl<'a> Held<'a> {
    pub(crate) fn new(real: &'a Real, fd: RawFd, kind: LockKind) -> Result<Self, Errno> {
        real.lock(fd, kind, LOCKED_BYTE, 1)?;
        Ok(Self { real, fd })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Giving back a lock that is held cannot fail.
        let _given_back = self.real.lock(self.fd, LockKind::None, LOCKED_BYTE, 1);
    }
}
