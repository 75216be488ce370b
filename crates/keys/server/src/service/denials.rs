//! Which denials are recorded in the audit log: each one, until a client is denied too often in a
//! minute; then the others are counted and the count is recorded.
//!
//! A denied request costs its sender nothing, but its row stays in the log. The number of rows that
//! one client, one certificate or one network can cause in a minute is therefore bounded.
//!
//! Must not: lose the fact or the number of denials.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::audit::Event;

/// After how long a count is recorded and starts from zero.
const WINDOW: Duration = Duration::from_secs(60);
/// The most parties that are counted separately. All others are counted together.
const PARTIES_MAX: usize = 1024;
/// The longest subject that is recorded, in characters: an unknown client may have chosen it.
const SUBJECT_MAX: usize = 128;

/// The parties that were denied lately, and how often.
#[derive(Default)]
pub(super) struct Denials {
    parties: Mutex<BTreeMap<String, Party>>,
}

struct Party {
    since: Instant,
    recorded: u32,
    counted: u64,
    last: Event,
}

impl Denials {
    /// Adds a denial of `party`. Returns the events to record: the denial itself, if it is among
    /// the first `most` of a minute, and before it the count of the last minute if that is due.
    /// Parties beyond the first 1024 are counted together.
    pub(super) fn add(&self, party: &str, most: u32, event: Event, now: Instant) -> Vec<Event> {
        let mut parties = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        let party = match parties.len() < PARTIES_MAX || parties.contains_key(party) {
            true => party,
            false => "others",
        };
        let mut rows = Vec::new();
        if let Some(one) = parties.get(party)
            && now.saturating_duration_since(one.since) >= WINDOW
        {
            rows.extend(parties.remove(party).and_then(Party::count_event));
        }
        let one = parties.entry(party.to_owned()).or_insert_with(|| Party {
            since: now,
            recorded: 0,
            counted: 0,
            last: event.clone(),
        });
        if one.recorded < most {
            one.recorded = one.recorded.saturating_add(1);
            rows.push(event);
        } else {
            one.counted = one.counted.saturating_add(1);
            one.last = event;
        }
        rows
    }

    /// Removes the counts whose minute is over, and returns the events that record them.
    pub(super) fn take_due(&self, now: Instant) -> Vec<Event> {
        let mut parties = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |one: &Party| now.saturating_duration_since(one.since) >= WINDOW;
        let over: Vec<String> = parties
            .iter()
            .filter(|(_, one)| is_over(one))
            .map(|(party, _)| party.clone())
            .collect();
        let over = over.iter().filter_map(|party| parties.remove(party));
        over.filter_map(Party::count_event).collect()
    }
}

impl Party {
    /// Makes the event that records how many denials were counted; `None` when all were recorded.
    fn count_event(self) -> Option<Event> {
        let mut event = self.last;
        event.detail = format!("{} more, the last: {}", self.counted, event.detail);
        (self.counted > 0).then_some(event)
    }
}

/// Returns the visible ASCII characters of a text, at most [`SUBJECT_MAX`] of them.
pub(super) fn printable(subject: &str) -> String {
    let plain = subject.chars().filter(char::is_ascii_graphic);
    plain.take(SUBJECT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(subject: &str) -> Event {
        Event {
            subject: subject.to_owned(),
            detail: "deliver SR-8421".to_owned(),
            ..Event::default()
        }
    }

    #[test]
    fn frequent_denials_are_counted() {
        let (denials, began) = (Denials::default(), Instant::now());
        assert_eq!(denials.add("a", 2, event("1"), began).len(), 1);
        assert_eq!(denials.add("a", 2, event("2"), began).len(), 1);
        for _ in 0..500 {
            assert!(denials.add("a", 2, event("3"), began).is_empty());
        }
        assert_eq!(denials.add("b", 2, event("4"), began).len(), 1);
        assert!(denials.take_due(began).is_empty());
        let later = began + WINDOW;
        let rows = denials.add("a", 2, event("5"), later);
        assert_eq!(rows[0].detail, "500 more, the last: deliver SR-8421");
        assert_eq!((rows.len(), rows[0].subject.as_str()), (2, "3"));
        // All denials of b were recorded.
        assert!(denials.take_due(later).is_empty());
    }

    #[test]
    fn many_parties_are_counted_together_in_bounded_memory() {
        let (denials, now) = (Denials::default(), Instant::now());
        let rows = (0..5000).map(|n| denials.add(&n.to_string(), 1, event("x"), now).len());
        assert_eq!(rows.sum::<usize>(), PARTIES_MAX + 1);
        let due = denials.take_due(now + WINDOW);
        assert_eq!(due.len(), 1);
        assert!(due[0].detail.starts_with("3975 more"));
    }

    #[test]
    fn a_subject_is_short_and_printable() {
        assert_eq!(printable("a\u{202e}b\nc d"), "abcd");
        assert_eq!(printable(&"x".repeat(31_000)).len(), SUBJECT_MAX);
    }
}
