//! A file whose lock (`flock`) ends when it is dropped.
//!
//! Must not: take a lock: callers wait for one in different ways.

use std::fs::File;
use std::ops::Deref;

/// An open file or directory with a `flock` lock, shared or exclusive. Dropping this releases the
/// lock and closes the file.
///
/// Closing alone would not always release it: a child process that another thread has just forked
/// shares the open file, and with it the lock, until it calls `execve`. An attempt to take the lock
/// in that moment, without waiting, would fail.
#[derive(Debug)]
pub struct Locked(File);

impl From<File> for Locked {
    /// Wraps `file`, of which the caller has just taken the lock. Takes no lock itself.
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    /// Releases the lock. Ignores errors.
    fn drop(&mut self) {
        drop(self.0.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_ends_although_another_process_has_the_file_open() {
        let file = tempfile::tempfile().unwrap();
        file.try_lock().unwrap();
        // As a forked child has it: another descriptor of the same open file.
        let child = file.try_clone().unwrap();
        let other = File::open(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&file)
        ))
        .unwrap();
        assert!(other.try_lock().is_err());
        drop(Locked::from(file));
        other.try_lock().unwrap();
        drop(child);
    }
}
