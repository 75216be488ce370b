//! Reports damage: EIO to the program, and a message on standard error.
//!
//! Invariants: the first damage of each descriptor writes one line. Nothing here allocates.
//!
//! Must not: be used for block files that cannot distinguish damage from data, which are all block
//! files but the transaction status files.
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

use crate::fault::Fault;
use crate::layout::FileLayout;
use crate::real::{Errno, Real};
use crate::sealed_file::SealedFile;

/// Turns a fault into the errno that the program gets. Damage becomes EIO, and the first one of
/// each descriptor is reported with a line on standard error.
pub(crate) fn into_errno<T>(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    outcome: Result<T, Fault>,
) -> Result<T, Errno> {
    outcome.map_err(|fault| match fault {
        Fault::Os(errno) => errno,
        Fault::Damaged => {
            let [.., reported] = file.cache;
            if reported.swap(1, Ordering::Relaxed) == 0 {
                report_damage(real, fd, file);
            }
            Errno(libc::EIO)
        }
    })
}

/// Writes one line with the code and the path to standard error: SR-7029 for stored zeros in a
/// transaction status file, SR-7022 for a plain file, and SR-7001 for any other damage.
fn report_damage(real: &Real, fd: RawFd, file: &SealedFile<'_>) {
    let mut path = [0_u8; 512];
    let path = real.path_of(fd, &mut path).unwrap_or(b"(unknown path)");
    let mut line = [0_u8; 1024];
    let mut rest = line.as_mut_slice();
    let code = match file.layout {
        FileLayout::Block => code::PG_STATUS_ZEROS,
        _ if has_no_header(real, fd) => code::PG_PLAIN_FILE,
        _ => code::PG_FILE,
    };
    // Text that does not fit is cut off.
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
    real.write_stderr(line.get(..used).unwrap_or_default());
}

/// Whether the file was not sealed at all: it does not begin with a header, not even a damaged one.
/// False for zeros, which a power cut may leave, and if it cannot be read.
fn has_no_header(real: &Real, fd: RawFd) -> bool {
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
            // A power cut may leave zeros.
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
