//! The lock of a file of the data owner's that several proxies read and replace.
//!
//! Must not: read or write the file itself.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use strongroom_keyring::Locked;

/// The longest that a connection waits for another process which has the file locked.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);

/// The file beside the one at `path` whose lock is that one's, which is replaced.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    PathBuf::from(beside)
}

/// Takes the lock of the file at `path`. `TimedOut` if another process holds it for too long.
pub(crate) fn lock(path: &Path) -> io::Result<Locked> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(lock_path(path))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Locked::from(file)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIME_MAX => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
