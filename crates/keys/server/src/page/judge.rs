//! How a time stands against an interval, and what is said of it.
//!
//! Invariants:
//! 1. What never happened counts from the making of the object: a new object is not overdue at once.
//! 2. A time ahead of the server's clock by more than [`SKEW_S`] is overdue: a node cannot buy peace with a date of next century.
//!
//! Must not: read a clock.

use super::records::DAY_S;

/// By how much a node's clock may be ahead.
pub const SKEW_S: u64 = 600;

/// How urgent something is. Ordered: the worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// In order.
    Fine,
    /// Within the last fifth of its interval, or worth a look.
    Soon,
    /// Beyond its interval, or wrong.
    Overdue,
}

impl Severity {
    /// Every severity, the best first.
    pub const ALL: [Self; 3] = [Self::Fine, Self::Soon, Self::Overdue];

    /// The word in links and classes.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Soon => "soon",
            Self::Overdue => "overdue",
        }
    }

    /// The severity of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// For people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fine => "in order",
            Self::Soon => "due soon",
            Self::Overdue => "overdue",
        }
    }
}

/// What is asked for at intervals, or looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// A new key.
    Rotation,
    /// A backup.
    Backup,
    /// Reading to the end.
    Verification,
    /// The node's report.
    Report,
    /// State and version of the key.
    Key,
    /// What it is sealed with.
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
    /// Those with an interval.
    pub const MEASURED: [Self; 4] = [
        Self::Rotation,
        Self::Backup,
        Self::Verification,
        Self::Report,
    ];

    /// The word in links.
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

    /// The concern of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// For people, at the head of a column or a line.
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

/// When something last happened, and how that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// When; `None` for never.
    pub at: Option<u64>,
    /// From when the interval counts.
    pub since: u64,
    /// Seconds; `None` if nothing is asked for.
    pub interval_s: Option<u64>,
    /// How it stands.
    pub severity: Severity,
}

impl Measure {
    /// Judges a time. `made` is what counts when it never happened.
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

    /// Nothing is asked for.
    #[must_use]
    pub const fn not_asked(at: Option<u64>, made: u64) -> Self {
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

    /// Whether the time is one that has not come.
    #[must_use]
    pub const fn is_ahead(&self, now: u64) -> bool {
        self.since > now.saturating_add(SKEW_S)
    }

    /// Seconds beyond the interval; `None` if it is kept.
    #[must_use]
    pub fn late_s(&self, now: u64) -> Option<u64> {
        let due = self.since.saturating_add(self.interval_s?);
        now.checked_sub(due).filter(|&late| late > 0)
    }
}

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

/// One thing to say about an object, a key or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub concern: Concern,
    /// How urgent it is.
    pub severity: Severity,
    /// What is the matter, in a few words. Made here: holds nothing that a node reported but escaped names of keys.
    pub text: String,
}
