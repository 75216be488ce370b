//! The server's log: one JSON object in each line of standard error.
//!
//! Invariant LG1: the lines that requests can cause are bounded in number for each event and code
//! ([`log_failure`]).
//!
//! Must not: contain keys, tokens, shares, or text of a client that was not checked to be a name.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use strongroom_keyring::Error;

/// The time in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The most failures of one event and code that are written in that time.
const FAILURES_MAX: u32 = 10;

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Normal operation.
    Info,
    /// An operator should look at it.
    Warning,
    /// An operator has to act.
    Error,
}

/// Writes one line, a JSON object with the time, to standard error. A failure to write is ignored.
pub fn log(level: Level, event: &str, members: &[(&str, &str)]) {
    let level = match level {
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Error => "error",
    };
    let mut line = serde_json::Map::new();
    line.insert("time".to_owned(), crate::now().into());
    line.insert("level".to_owned(), level.into());
    line.insert("event".to_owned(), event.into());
    for (name, value) in members {
        line.insert((*name).to_owned(), (*value).into());
    }
    let mut text = serde_json::Value::Object(line).to_string();
    text.push('\n');
    drop(std::io::stderr().write_all(text.as_bytes()));
}

/// The failures within the last [`WINDOW`], by event and code.
static FAILURES: Mutex<Failures> = Mutex::new(Failures(BTreeMap::new()));

struct Failures(BTreeMap<(&'static str, u16), FailureCount>);

struct FailureCount {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Failures {
    /// Counts a failure. True when it is to be written: for the first ten of an event and code in a
    /// minute.
    fn add(&mut self, event: &'static str, number: u16, now: Instant) -> bool {
        let count = self.0.entry((event, number)).or_insert(FailureCount {
            since: now,
            written: 0,
            left_out: 0,
        });
        let is_written = count.written < FAILURES_MAX;
        match is_written {
            true => count.written = count.written.saturating_add(1),
            false => count.left_out = count.left_out.saturating_add(1),
        }
        is_written
    }

    /// Removes the counts that began at least [`WINDOW`] ago. Returns those with failures that were
    /// not written: event, code, and how many.
    fn take_expired(&mut self, now: Instant) -> Vec<(&'static str, u16, u64)> {
        let mut over = Vec::new();
        self.0.retain(|(event, number), count| {
            let is_recent = now.saturating_duration_since(count.since) < WINDOW;
            if !is_recent && count.left_out > 0 {
                over.push((*event, *number, count.left_out));
            }
            is_recent
        });
        over
    }
}

/// Logs a failure that requests can cause: at most ten lines a minute for each event and code.
/// Further ones are counted ([`log_failures_left_out`]).
pub(crate) fn log_failure(event: &'static str, error: &Error) {
    log_failures_left_out();
    let number = error.code().number;
    let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_written = failures.add(event, number, Instant::now());
    drop(failures);
    if is_written {
        let code = format!("SR-{number:04}");
        let members = [("code", &*code), ("detail", error.detail())];
        log(Level::Error, event, &members);
    }
}

/// Logs how many failures were counted and not written, for events whose minute is over, and begins
/// to count these anew.
pub(crate) fn log_failures_left_out() {
    let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    let over = failures.take_expired(Instant::now());
    drop(failures);
    for (event, number, left_out) in over {
        let (code, left_out) = (format!("SR-{number:04}"), left_out.to_string());
        let members = [("code", &*code), ("left_out", &*left_out)];
        log(Level::Error, event, &members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_repeat_are_counted_and_not_written() {
        let (mut failures, began) = (Failures(BTreeMap::new()), Instant::now());
        let written = |failures: &mut Failures, number| {
            let each = (0..5000).map(|_| failures.add("failed", number, began));
            each.filter(|is_written| *is_written).count()
        };
        assert_eq!(written(&mut failures, 8435), 10);
        assert_eq!(written(&mut failures, 9001), 10);
        assert!(failures.add("accept", 8435, began));
        assert_eq!(failures.take_expired(began), []);
        let over = failures.take_expired(began + WINDOW);
        assert_eq!(over, [("failed", 8435, 4990), ("failed", 9001, 4990)]);
        assert!(failures.add("failed", 8435, began + WINDOW));
        assert_eq!(failures.take_expired(began + WINDOW), []);
    }
}
