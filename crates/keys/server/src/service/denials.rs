//! Denials on their way into the audit log: each is written down, until somebody is denied again
//! and again; then they are counted, and the count is written down.
//!
//! Whoever is denied costs nothing to ask again, and rows stay. So what one client, one certificate
//! or one network adds to the log in a minute is bounded, whatever it asks for.
//!
//! Must not: lose that there were denials, or how many.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::audit::Event;

/// After how long a count is written down, and it begins anew.
const WINDOW: Duration = Duration::from_secs(60);
/// Most that are told apart; the others are counted as one.
const APART_MAX: usize = 1024;
/// Longest subject of a denial: what was asked for is a stranger's word.
const SUBJECT_MAX: usize = 128;

/// Who was denied of late, and how often.
#[derive(Default)]
pub(super) struct Denials {
    seen: Mutex<BTreeMap<String, Seen>>,
}

struct Seen {
    since: Instant,
    written: u32,
    left_out: u64,
    last: Event,
}

impl Denials {
    /// What to write down when `who` is denied: the denial itself, of which there are `most` in a
    /// minute, and a count that is due.
    pub(super) fn take(&self, who: &str, most: u32, event: Event, now: Instant) -> Vec<Event> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let who = match seen.len() < APART_MAX || seen.contains_key(who) {
            true => who,
            false => "others",
        };
        let mut rows = Vec::new();
        if let Some(one) = seen.get(who)
            && now.saturating_duration_since(one.since) >= WINDOW
        {
            rows.extend(seen.remove(who).and_then(Seen::counted));
        }
        let one = seen.entry(who.to_owned()).or_insert_with(|| Seen {
            since: now,
            written: 0,
            left_out: 0,
            last: event.clone(),
        });
        if one.written < most {
            one.written = one.written.saturating_add(1);
            rows.push(event);
        } else {
            one.left_out = one.left_out.saturating_add(1);
            one.last = event;
        }
        rows
    }

    /// The counts that are due.
    pub(super) fn due(&self, now: Instant) -> Vec<Event> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |one: &Seen| now.saturating_duration_since(one.since) >= WINDOW;
        let over: Vec<String> = seen
            .iter()
            .filter(|(_, one)| is_over(one))
            .map(|(who, _)| who.clone())
            .collect();
        let over = over.iter().filter_map(|who| seen.remove(who));
        over.filter_map(Seen::counted).collect()
    }
}

impl Seen {
    fn counted(self) -> Option<Event> {
        let mut event = self.last;
        event.detail = format!("{} more, the last: {}", self.left_out, event.detail);
        (self.left_out > 0).then_some(event)
    }
}

/// A subject as it is kept: printable, and not long.
pub(super) fn kept(subject: &str) -> String {
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
    fn who_is_denied_again_and_again_is_counted() {
        let (denials, began) = (Denials::default(), Instant::now());
        assert_eq!(denials.take("a", 2, event("1"), began).len(), 1);
        assert_eq!(denials.take("a", 2, event("2"), began).len(), 1);
        for _ in 0..500 {
            assert!(denials.take("a", 2, event("3"), began).is_empty());
        }
        assert_eq!(denials.take("b", 2, event("4"), began).len(), 1);
        assert!(denials.due(began).is_empty());
        let later = began + WINDOW;
        let rows = denials.take("a", 2, event("5"), later);
        assert_eq!(rows[0].detail, "500 more, the last: deliver SR-8421");
        assert_eq!((rows.len(), rows[0].subject.as_str()), (2, "3"));
        // Nothing was left out of b's, so there is nothing to tell.
        assert!(denials.due(later).is_empty());
    }

    #[test]
    fn a_crowd_is_counted_as_one_and_takes_bounded_room() {
        let (denials, now) = (Denials::default(), Instant::now());
        let rows = (0..5000).map(|n| denials.take(&n.to_string(), 1, event("x"), now).len());
        assert_eq!(rows.sum::<usize>(), APART_MAX + 1);
        let due = denials.due(now + WINDOW);
        assert_eq!(due.len(), 1);
        assert!(due[0].detail.starts_with("3975 more"));
    }

    #[test]
    fn a_subject_is_short_and_printable() {
        assert_eq!(kept("a\u{202e}b\nc d"), "abcd");
        assert_eq!(kept(&"x".repeat(31_000)).len(), SUBJECT_MAX);
    }
}
