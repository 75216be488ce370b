//! How long a provider may take.
//!
//! Must not: be bypassed: every wait for a device, a module or a server goes by a [`Deadline`].

use std::time::{Duration, Instant};

use strongroom_format::code;
use strongroom_keyring::Error;

/// Unless [`VARIABLE`] says otherwise.
const DEFAULT_S: u64 = 30;
const MAX_S: u64 = 3600;
/// The variable that sets the limit, in whole seconds.
const VARIABLE: &str = "STRONGROOM_PROVIDER_TIMEOUT";

/// How long a provider may take whose argument does not say.
///
/// # Errors
/// SR-2043 when the variable is not a number from 1 to 3600.
pub(crate) fn limit() -> Result<Duration, Error> {
    let Some(text) = std::env::var_os(VARIABLE) else {
        return Ok(Duration::from_secs(DEFAULT_S));
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let fine = seconds.filter(|seconds| (1..=MAX_S).contains(seconds));
    let wrong = || {
        let detail = format!("{VARIABLE} must be 1 to {MAX_S} seconds");
        Error::new(&code::ENVIRONMENT_SECONDS, detail)
    };
    fine.map(Duration::from_secs).ok_or_else(wrong)
}

/// The moment at which a provider has taken too long.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    end: Instant,
    limit: Duration,
}

impl Deadline {
    /// From now on.
    ///
    /// # Errors
    /// SR-2043 when the variable is not a number from 1 to 3600.
    pub(crate) fn begin() -> Result<Self, Error> {
        let limit = limit()?;
        let end = Instant::now() + limit;
        Ok(Self { end, limit })
    }

    /// As [`Deadline::begin`], but this long where it is said.
    ///
    /// # Errors
    /// As [`Deadline::begin`].
    pub(crate) fn within(limit: Option<Duration>) -> Result<Self, Error> {
        let Some(limit) = limit else {
            return Self::begin();
        };
        let end = Instant::now() + limit;
        Ok(Self { end, limit })
    }

    /// What is left, more than nothing.
    ///
    /// # Errors
    /// SR-2101 when nothing is.
    pub(crate) fn left(&self) -> Result<Duration, Error> {
        let left = self.end.checked_duration_since(Instant::now());
        left.filter(|left| !left.is_zero()).ok_or_else(|| {
            let detail = format!("no answer within {} s", self.limit.as_secs());
            Error::new(&code::PROVIDER_UNREACHABLE, detail)
        })
    }
}
