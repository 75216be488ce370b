//! Reads the two small files of a data directory that tell its version of PostgreSQL, and whether a
//! server runs on it: `PG_VERSION` and `postmaster.pid`.
//!
//! Must not: write.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, getpid, getppid, test_kill_process};
use strongroom_keyring::read_text;

/// The longest file that is read, in bytes; PostgreSQL's are far shorter.
const FILE_MAX: u64 = 64 << 10;

/// Returns the path of `PG_VERSION`.
pub(crate) fn version_path(directory: &Path) -> PathBuf {
    directory.join("PG_VERSION")
}

/// Returns the path of `postmaster.pid`.
pub(crate) fn pid_path(directory: &Path) -> PathBuf {
    directory.join("postmaster.pid")
}

/// Reads the text of `PG_VERSION`, without the space around it.
pub(crate) fn version_text(directory: &Path) -> io::Result<String> {
    let text = read_text(&version_path(directory), FILE_MAX)?;
    Ok(text.trim().to_owned())
}

/// Reads the process id in `postmaster.pid`, which is negative for a single-user server. `None`
/// when the first line is not a number. An error when the file is missing or cannot be read.
pub(crate) fn recorded_process(directory: &Path) -> io::Result<Option<i32>> {
    let text = read_text(&pid_path(directory), FILE_MAX)?;
    let first = text.lines().next();
    Ok(first.and_then(|line| line.trim().parse().ok()))
}

/// Reads PostgreSQL's major version, even if it is not supported. `None` when the file is missing
/// or malformed.
#[must_use]
pub fn major_version(directory: &Path) -> Option<u32> {
    version_text(directory)
        .ok()?
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// Returns the process id of the server that runs on the directory: as for `pg_ctl`, the process
/// that `postmaster.pid` names, if it exists and is neither this process nor its parent. `None`
/// when there is none, and also when the file is malformed or cannot be read. A process that this
/// one may not signal counts, unless the directory is this user's own: then that process is another
/// user's, and got the number later.
#[must_use]
pub fn running_server(directory: &Path) -> Option<u32> {
    let number = recorded_process(directory).ok()??.checked_abs()?;
    let pid = Pid::from_raw(number)?;
    let exists = match test_kill_process(pid) {
        Ok(()) => true,
        Err(error) => error == Errno::PERM && !is_own(directory),
    };
    // As for pg_ctl: a number that is this process or its parent is left over from another server.
    let ours = [Some(getpid()), getppid()];
    (exists && !ours.contains(&Some(pid))).then(|| number.unsigned_abs())
}

/// Whether the data directory belongs to the user of this process. False if it cannot be examined.
#[must_use]
pub fn is_own(directory: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    std::fs::metadata(directory).is_ok_and(|about| about.uid() == me)
}
