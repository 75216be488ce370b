//! How long a provider may take, and the moment at which it has taken too long.
//!
//! Must not: be bypassed: every wait for a device, a module or a server goes by a [`Deadline`];
//! extend a deadline.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use strongroom_format::code;
use strongroom_keyring::Error;

/// The environment variable that sets the usual limit, in whole seconds.
const VARIABLE: &str = "STRONGROOM_PROVIDER_TIMEOUT";
/// The usual limit where the variable is not set.
const DEFAULT_S: u64 = 30;
/// The longest limit that the variable may set.
const MAX_S: u64 = 3600;

/// Returns how long a provider may take if its argument does not say:
/// `STRONGROOM_PROVIDER_TIMEOUT`, or 30 s when it is not set.
///
/// # Errors
/// SR-2043 when the variable is not a whole number of seconds from 1 to 3600.
pub(crate) fn usual_limit() -> Result<Duration, Error> {
    let Some(text) = std::env::var_os(VARIABLE) else {
        return Ok(Duration::from_secs(DEFAULT_S));
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.filter(|seconds| (1..=MAX_S).contains(seconds));
    let wrong = || {
        let detail = format!("{VARIABLE} must be 1 to {MAX_S} seconds");
        Error::new(&code::ENVIRONMENT_SECONDS, detail)
    };
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

/// The moment at which a provider has taken too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Instant,
    limit: Duration,
}

impl Deadline {
    /// Returns the moment that is `limit` from now.
    pub(crate) fn after(limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
            limit,
        }
    }

    /// Returns the moment that is the usual limit ([`usual_limit`]) from now.
    ///
    /// # Errors
    /// SR-2043 when the variable is not a whole number of seconds from 1 to 3600.
    pub(crate) fn usual() -> Result<Self, Error> {
        Ok(Self::after(usual_limit()?))
    }

    /// Returns the time that remains, never zero.
    ///
    /// # Errors
    /// SR-2101 when the deadline has passed.
    pub(crate) fn remaining(&self) -> Result<Duration, Error> {
        let remaining = self.end.saturating_duration_since(Instant::now());
        match remaining.is_zero() {
            true => Err(self.expired()),
            false => Ok(remaining),
        }
    }

    /// Makes the error of a deadline that has passed, SR-2101, with the length of the limit.
    pub(crate) fn expired(&self) -> Error {
        let detail = format!("no answer within {} s", self.limit.as_secs());
        Error::new(&code::PROVIDER_UNREACHABLE, detail)
    }

    /// Runs `work` in a thread of its own and waits for it until the deadline. This bounds what the
    /// operating system does not, such as name resolution. After the deadline the thread is left
    /// alone: it ends by itself or with the process.
    ///
    /// # Errors
    /// SR-2101 when the deadline passes first; what `work` returns; SR-9001 when `work` panics;
    /// SR-5001 without a thread.
    pub(crate) fn run_in_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, wait) = sync_channel(1);
        let builder = thread::Builder::new().name(String::from("provider"));
        let spawned = builder.spawn(move || drop(done.send(work())));
        let thread = spawned.map_err(|error| Error::io("starting a thread", error))?;
        match wait.recv_timeout(self.remaining()?) {
            Ok(result) => {
                drop(thread.join());
                result
            }
            Err(RecvTimeoutError::Timeout) => Err(self.expired()),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::new(&code::BUG, "a provider's thread has failed"))
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
        let late = deadline.run_in_thread(move || {
            never.recv().unwrap_or_default();
            Ok(())
        });
        assert_eq!(late.err().map(|error| error.code().number), Some(2101));
        assert!(deadline.remaining().is_err());
        let deadline = Deadline::after(Duration::from_secs(600));
        assert_eq!(deadline.run_in_thread(|| Ok(7)).ok(), Some(7));
        let failed: Result<(), Error> = deadline.run_in_thread(|| {
            assert!(std::hint::black_box(false), "on purpose");
            Ok(())
        });
        assert_eq!(failed.err().map(|error| error.code().number), Some(9001));
    }
}
