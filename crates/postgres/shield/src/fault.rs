//! Why an operation on a sealed file failed, before it becomes the program's errno.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use crate::real::Errno;
use crate::scratch::OutOfMemory;

/// Why an operation on a file failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The kernel returned this errno.
    Os(Errno),
    /// The file is damaged or forged.
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
