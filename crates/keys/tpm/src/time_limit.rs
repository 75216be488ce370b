//! How long a TPM may take.
//!
//! Must not: have a form without an end.

use std::time::{Duration, Instant};

use crate::failure::Failure;

/// The moment at which the TPM has taken too long.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    limit: Duration,
}

impl Deadline {
    /// Returns the moment that is `limit` from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
            limit,
        }
    }

    /// Returns the time that remains, never zero. Errors: [`Failure::TimedOut`] when the deadline
    /// has passed.
    pub(crate) fn remaining(&self) -> Result<Duration, Failure> {
        let remaining = self.end.saturating_duration_since(Instant::now());
        match remaining.is_zero() {
            true => Err(Failure::TimedOut(self.limit)),
            false => Ok(remaining),
        }
    }
}

/// What a limit is for.
#[derive(Clone, Copy, Debug)]
pub enum TimeLimit {
    /// Each task: one sealing, one unsealing, one command of a [`crate::Tpm`].
    EachTask(Duration),
    /// All tasks together.
    Until(Deadline),
}

impl TimeLimit {
    /// Returns the deadline of a task that begins now: the limit from now for [`Self::EachTask`],
    /// the common one for [`Self::Until`].
    pub(crate) fn begin_task(&self) -> Deadline {
        match self {
            Self::EachTask(limit) => Deadline::after(*limit),
            Self::Until(deadline) => *deadline,
        }
    }
}
