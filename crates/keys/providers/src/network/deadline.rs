//! When an exchange with a server has to be over.
//!
//! Must not: be extended once it was made.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use strongroom_format::code;
use strongroom_keyring::Error;

use super::error;

/// Longest time that a provider's argument may ask for.
pub(crate) const TIMEOUT_MAX_S: u64 = 600;

/// The end of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Instant,
    whole: Duration,
}

impl Deadline {
    /// In so long, from now.
    pub(crate) fn after(whole: Duration) -> Self {
        Self {
            end: Instant::now() + whole,
            whole,
        }
    }

    /// What is left of it; never zero.
    ///
    /// # Errors
    /// SR-2101 when nothing is.
    pub(crate) fn left(&self) -> Result<Duration, Error> {
        let left = self.end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(self.passed()),
            false => Ok(left),
        }
    }

    /// The error of a deadline that has passed.
    pub(crate) fn passed(&self) -> Error {
        let detail = format!("no answer within {} s", self.whole.as_secs());
        error(&code::PROVIDER_UNREACHABLE, detail)
    }

    /// Runs `work` in a thread of its own and waits for it until the deadline. What the operating
    /// system does not bound, such as the resolution of names, is then left behind: the thread ends
    /// by itself or with the process.
    ///
    /// # Errors
    /// SR-2101 when the time is up; what `work` returns; SR-5001 without a thread.
    pub(crate) fn bound<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, wait) = sync_channel(1);
        let builder = thread::Builder::new().name(String::from("provider"));
        let spawned = builder.spawn(move || drop(done.send(work())));
        let thread = spawned.map_err(|error| Error::io("starting a thread", error))?;
        match wait.recv_timeout(self.left()?) {
            Ok(result) => {
                drop(thread.join());
                result
            }
            Err(RecvTimeoutError::Timeout) => Err(self.passed()),
            Err(RecvTimeoutError::Disconnected) => {
                Err(error(&code::BUG, "a provider's thread has failed"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_end_is_left_behind() {
        let deadline = Deadline::after(Duration::from_millis(50));
        let (_held, never) = sync_channel::<()>(1);
        let late = deadline.bound(move || {
            never.recv().unwrap_or_default();
            Ok(())
        });
        assert_eq!(late.err().map(|error| error.code().number), Some(2101));
        assert!(deadline.left().is_err());
        let deadline = Deadline::after(Duration::from_secs(600));
        assert_eq!(deadline.bound(|| Ok(7)).ok(), Some(7));
        let failed: Result<(), Error> = deadline.bound(|| {
            assert!(std::hint::black_box(false), "on purpose");
            Ok(())
        });
        assert_eq!(failed.err().map(|error| error.code().number), Some(9001));
    }
}
