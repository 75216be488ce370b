//! SQLite's shared lock on a database file, taken without SQLite, so that nobody writes pages while they are verified.
//!
//! An open-file-description lock conflicts with the POSIX locks that SQLite takes, but does not vanish when another
//! descriptor of the same file is closed. Must not: be used on a descriptor that SQLite knows.
#![expect(unsafe_code, reason = "fcntl")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use strongroom_format::code;
use strongroom_keyring::Error;

/// First byte of SQLite's shared range (os.h: `SHARED_FIRST`), and its length.
const SHARED_FIRST: libc::off_t = 0x4000_0002;
const SHARED_SIZE: libc::off_t = 510;
/// How often the lock is tried, 50 ms apart.
const TRIES: u32 = 100;

/// Takes the lock; it goes when `file` is closed. Waits up to 5 seconds.
///
/// # Errors
/// SR-6010 when a writer keeps it, SR-5001.
pub(crate) fn shared(file: &File, path: &Path) -> Result<(), Error> {
    for _ in 0..TRIES {
        let lock = libc::flock {
            l_type: i16::try_from(libc::F_RDLCK).unwrap_or(0),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap_or(0),
            l_start: SHARED_FIRST,
            l_len: SHARED_SIZE,
            l_pid: 0,
        };
        // SAFETY: an open descriptor and a filled structure.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
            return Err(Error::io(path.display().to_string(), error));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(Error::new(&code::BUSY, path.display().to_string()))
}
