//! Judging a time by an interval, and the findings that the page shows.
//!
//! Invariants:
//! 1. If something has never happened, the interval begins when the object was made, so that a new
//!    object is not overdue at once.
//! 2. A time that is later than the server's clock by more than [`SKEW_S`] is overdue, so that a
//!    node cannot avoid findings by reporting a time in the future.
//!
//! Must not: read a clock.

use super::records::DAY_S;

/// By how many seconds a node's clock may be ahead.
pub const SKEW_S: u64 = 600;

/// How urgent something is. The worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// In order.
    Fine,
    /// Within the last fifth of its interval, or worth attention.
    Soon,
    /// Later than its interval, or wrong.
    Overdue,
}

impl Severity {
    /// Every severity, the best first.
    pub const ALL: [Self; 3] = [Self::Fine, Self::Soon, Self::Overdue];

    /// Returns the word of the severity in links and CSS classes.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Soon => "soon",
            Self::Overdue => "overdue",
        }
    }

    /// Returns the severity of a word in links; `None` for another word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// The text of a badge.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fine => "in order",
            Self::Soon => "due soon",
            Self::Overdue => "overdue",
        }
    }
}

/// What a finding is about: an interval, or a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// The last rotation of the key.
    Rotation,
    /// The last backup.
    Backup,
    /// The last verification.
    Verification,
    /// The last report of the node.
    Report,
    /// The state and the version of the key.
    Key,
    /// The cipher.
    Cipher,
}

impl Concern {
    /// Every concern, in the order of the columns.
    pub const ALL: [Self; 6] = [
        Self::Rotation,
        Self::Backup,
        Self::Verification,
        Self::Report,
        Self::Key,
        Self::Cipher,
    ];
    /// The concerns with an interval.
    pub const MEASURED: [Self; 4] = [
        Self::Rotation,
        Self::Backup,
        Self::Verification,
        Self::Report,
    ];

    /// Returns the word of the concern in links.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rotation => "rotation",
            Self::Backup => "backup",
            Self::Verification => "verification",
            Self::Report => "report",
            Self::Key => "key",
            Self::Cipher => "cipher",
        }
    }

    /// Returns the concern of a word in links; `None` for another word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// The label of a column or a line.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Rotation => "Last rotation",
            Self::Backup => "Last backup",
            Self::Verification => "Last verification",
            Self::Report => "Last report",
            Self::Key => "Key",
            Self::Cipher => "Cipher",
        }
    }
}

/// When something happened last, judged by its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// When it happened last, in seconds since the Unix epoch; `None`: never.
    pub at: Option<u64>,
    /// When the interval begins, in seconds since the Unix epoch.
    pub since: u64,
    /// The interval in seconds; `None`: there is none.
    pub interval_s: Option<u64>,
    /// How urgent it is.
    pub severity: Severity,
}

impl Measure {
    /// Judges a time at `now` (both in seconds since the Unix epoch), by an interval of `days`,
    /// where 0 is no interval. If it never happened, the interval begins at `made`.
    #[must_use]
    pub fn new(at: Option<u64>, made: u64, days: u32, now: u64) -> Self {
        let since = at.unwrap_or(made);
        let interval_s = Some(u64::from(days) * DAY_S).filter(|&seconds| seconds > 0);
        Self {
            at,
            since,
            interval_s,
            severity: severity(since, interval_s, now),
        }
    }

    /// Makes a measure without an interval, which is always in order.
    #[must_use]
    pub const fn without_interval(at: Option<u64>, made: u64) -> Self {
        let since = match at {
            Some(at) => at,
            None => made,
        };
        Self {
            at,
            since,
            interval_s: None,
            severity: Severity::Fine,
        }
    }

    /// Whether the time is later than `now`, in seconds since the Unix epoch, by more than
    /// [`SKEW_S`] (what a node's clock may be ahead).
    #[must_use]
    pub const fn is_ahead(&self, now: u64) -> bool {
        self.since > now.saturating_add(SKEW_S)
    }

    /// Returns the seconds from the end of the interval to `now`, in seconds since the Unix epoch;
    /// `None` before its end, or without an interval.
    #[must_use]
    pub fn late_s(&self, now: u64) -> Option<u64> {
        let due = self.since.saturating_add(self.interval_s?);
        now.checked_sub(due).filter(|&late| late > 0)
    }
}

/// Judges a time: overdue after the interval, or in the future by more than [`SKEW_S`]; soon in the
/// last fifth of the interval; else, or without an interval, in order. Times are seconds since the
/// Unix epoch.
fn severity(since: u64, interval_s: Option<u64>, now: u64) -> Severity {
    let Some(interval) = interval_s else {
        return Severity::Fine;
    };
    if since > now.saturating_add(SKEW_S) {
        return Severity::Overdue;
    }
    let age = now.saturating_sub(since);
    if age > interval {
        Severity::Overdue
    } else if age > interval - interval / 5 {
        Severity::Soon
    } else {
        Severity::Fine
    }
}

/// A finding about an object, a key or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub concern: Concern,
    /// How urgent it is.
    pub severity: Severity,
    /// A short text. It contains no text of a node except names that went through
    /// [`super::text::displayed_name`].
    pub text: String,
}
