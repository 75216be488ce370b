//! Whether another process holds the lock of a volume's file, and which one.
//!
//! libcryptsetup locks a volume's file (`flock`) whenever it reads or changes the header, and waits
//! for the lock without limit (`lib/utils_device_locking.c`). `volume attach` holds that lock as
//! long as a volume is attached. So this tries the lock first, for a bounded time.
//!
//! Must not: keep the lock, or break another process's.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use strongroom_keyring::{Error, Locked};
use strongroom_luks2::lock_holder;

use crate::error::{in_use, io};

/// How long to wait for a lock: other commands hold it while they change a header.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// What the caller is about to do with the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Read its header.
    Read,
    /// Change or destroy it.
    Change,
}

/// Waits until no other process holds a lock (`flock`) that would make `purpose` wait. Keeps no
/// lock. Everything but a regular file passes, also what does not exist: for block devices
/// libcryptsetup has lock files of its own, and a device that is attached is busy.
///
/// # Errors
/// SR-8320 after [`PATIENCE`], with the process that holds it; SR-5001 when the system reports an
/// error.
pub(crate) fn check_not_locked(path: &Path, purpose: Purpose) -> Result<(), Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        // The caller reports a missing file in its own words.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(path, error)),
    };
    let about = file.metadata().map_err(|error| io(path, error))?;
    if !about.is_file() {
        return Ok(());
    }
    let lock = match purpose {
        Purpose::Read => FlockOperation::NonBlockingLockShared,
        Purpose::Change => FlockOperation::NonBlockingLockExclusive,
    };
    let end = Instant::now() + PATIENCE;
    loop {
        match flock(&file, lock) {
            Ok(()) => {
                drop(Locked::from(file));
                return Ok(());
            }
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(PAUSE),
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(path, &lock_holder(&about))),
            Err(error) => return Err(io(path, error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_another_is_waited_for_and_its_holder_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v.img");
        let file = File::create(&path).unwrap();
        assert!(check_not_locked(&path, Purpose::Change).is_ok());
        flock(&file, FlockOperation::LockShared).unwrap();
        assert!(check_not_locked(&path, Purpose::Read).is_ok());
        let begun = Instant::now();
        let error = check_not_locked(&path, Purpose::Change).err().unwrap();
        assert!(begun.elapsed() < 3 * PATIENCE, "{:?}", begun.elapsed());
        assert_eq!(error.code().number, 8320);
        let pid = std::process::id().to_string();
        assert!(error.detail().contains(&pid), "{}", error.detail());
        // A lock that is released in time is waited for.
        let soon = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(Locked::from(file));
        });
        assert!(check_not_locked(&path, Purpose::Change).is_ok());
        soon.join().unwrap();
    }
}
