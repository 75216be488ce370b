//! What the server says while it runs: one JSON object a line on standard error.
//!
//! Invariant LG1: what a request can make the server write again and again is bounded for each
//! event and code: [`log_failure`].
//!
//! Must not: be given key material, tokens, shares, or anything a client sent that was not checked to be a name.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use strongroom_keyring::Error;

/// After how long failures are written again, and those that were left out are told.
const WINDOW: Duration = Duration::from_secs(60);
/// Failures of one event and code that are written within that time.
const FAILURES_MOST: u32 = 10;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Worth a look.
    Warning,
    /// Somebody has to act.
    Error,
}

/// Writes one line. A closed standard error stops nothing.
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

/// Failures within the last [`WINDOW`], by event and number of the code.
static FAILURES: Mutex<Failures> = Mutex::new(Failures(BTreeMap::new()));

struct Failures(BTreeMap<(&'static str, u16), Failing>);

struct Failing {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Failures {
    /// Whether this failure is to be written.
    fn take(&mut self, event: &'static str, number: u16, now: Instant) -> bool {
        let failing = self.0.entry((event, number)).or_insert(Failing {
            since: now,
            written: 0,
            left_out: 0,
        });
        let is_written = failing.written < FAILURES_MOST;
        match is_written {
            true => failing.written = failing.written.saturating_add(1),
            false => failing.left_out = failing.left_out.saturating_add(1),
        }
        is_written
    }

    /// Forgets what is older than [`WINDOW`]: event, number, and how many were left out.
    fn over(&mut self, now: Instant) -> Vec<(&'static str, u16, u64)> {
        let mut over = Vec::new();
        self.0.retain(|(event, number), failing| {
            let is_recent = now.saturating_duration_since(failing.since) < WINDOW;
            if !is_recent && failing.left_out > 0 {
                over.push((*event, *number, failing.left_out));
            }
            is_recent
        });
        over
    }
}

/// Writes a failure that requests can bring about as often as they come: ten lines a minute for
/// each event and code, and then how many were left out ([`log_failures_left_out`]).
pub(crate) fn log_failure(event: &'static str, error: &Error) {
    log_failures_left_out();
    let number = error.code().number;
    let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_written = failures.take(event, number, Instant::now());
    drop(failures);
    if is_written {
        let code = format!("SR-{number:04}");
        let members = [("code", &*code), ("detail", error.detail())];
        log(Level::Error, event, &members);
    }
}

/// Writes how many failures were left out of the log in the minute before, if any were.
pub(crate) fn log_failures_left_out() {
    let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    let over = failures.over(Instant::now());
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
            let each = (0..5000).map(|_| failures.take("failed", number, began));
            each.filter(|is_written| *is_written).count()
        };
        assert_eq!(written(&mut failures, 8435), 10);
        assert_eq!(written(&mut failures, 9001), 10);
        assert!(failures.take("accept", 8435, began));
        assert_eq!(failures.over(began), []);
        let over = failures.over(began + WINDOW);
        assert_eq!(over, [("failed", 8435, 4990), ("failed", 9001, 4990)]);
        assert!(failures.take("failed", 8435, began + WINDOW));
        assert_eq!(failures.over(began + WINDOW), []);
    }
}
