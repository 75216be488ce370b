//! Durations, dates and names as text.
//!
//! Invariant: a name that a node chose is shown without characters that change how the text around
//! it is displayed, and with at most [`NAME_CHARACTERS`].
//!
//! Must not: read a clock; escape HTML (the templates do).

use jiff::SignedDuration;
use jiff::civil::DateTime;
use strongroom_format::text::is_misleading;

use super::records::DAY_S;

/// The most characters of a name that are shown.
pub const NAME_CHARACTERS: usize = 160;

/// Writes a duration in its largest useful unit, rounded down: minutes, hours below two days, days,
/// or years from 1000 days on.
#[must_use]
pub fn duration(seconds: u64) -> String {
    let days = seconds / DAY_S;
    match seconds {
        0..60 => "under a minute".to_owned(),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ if days < 1000 => format!("{days} d"),
        _ => format!("{} y", days / 365),
    }
}

/// Writes how long ago a time was, or how long until it comes; "just now" within a minute. Times
/// are seconds since the Unix epoch, here and below.
#[must_use]
pub fn ago(at: u64, now: u64) -> String {
    match (now.checked_sub(at), at.saturating_sub(now)) {
        (Some(0..60), _) | (None, 0..60) => "just now".to_owned(),
        (Some(past), _) => format!("{} ago", duration(past)),
        (None, ahead) => format!("in {}", duration(ahead)),
    }
}

/// Writes a date and time in UTC, to the minute: `2026-11-22 17:30 UTC`. Times after the year 9999
/// are given as seconds since the Unix epoch.
#[must_use]
pub fn date(unix_s: u64) -> String {
    match civil(unix_s) {
        Some(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        None => format!("{unix_s} s"),
    }
}

/// Writes a date and time in UTC for the attribute of a `time` element, by RFC 3339. Empty from the
/// year 10000 on.
#[must_use]
pub fn machine_date(unix_s: u64) -> String {
    civil(unix_s).map_or_else(String::new, |time| format!("{time}Z"))
}

/// Returns the date and time in UTC; `None` from the year 10000 on.
fn civil(unix_s: u64) -> Option<DateTime> {
    let since = SignedDuration::from_secs(i64::try_from(unix_s).ok()?);
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    epoch.checked_add(since).ok()
}

/// Returns a name as the page shows it: misleading characters are replaced by U+FFFD, a long name
/// is cut off with `…`, and an empty one is "(no name)".
#[must_use]
pub fn displayed_name(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(NAME_CHARACTERS)
        .map(|c| if is_misleading(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(NAME_CHARACTERS).is_some() {
        shown.push('\u{2026}');
    }
    if shown.trim().is_empty() {
        return "(no name)".to_owned();
    }
    shown
}

/// Writes a number with its noun: `1 object`, `2 objects`.
#[must_use]
pub fn count(number: usize, one: &str, many: &str) -> String {
    let digits = grouped(number);
    format!("{digits} {}", if number == 1 { one } else { many })
}

/// Writes a number with its thousands, from 1000 on, separated by narrow no-break spaces (U+202F).
#[must_use]
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{ago, date, displayed_name, duration, grouped, machine_date};

    #[test]
    fn durations_and_ages() {
        assert_eq!(duration(59), "under a minute");
        assert_eq!(duration(3599), "59 min");
        assert_eq!(duration(3600), "1 h");
        assert_eq!(duration(172_799), "47 h");
        assert_eq!(duration(172_800), "2 d");
        assert_eq!(duration(999 * 86_400), "999 d");
        assert_eq!(duration(1000 * 86_400), "2 y");
        assert_eq!(ago(100, 100), "just now");
        assert_eq!(ago(130, 100), "just now");
        assert_eq!(ago(100, 3700), "1 h ago");
        assert_eq!(ago(3700, 100), "in 1 h");
        assert_eq!(
            ago(u64::MAX, 0),
            format!("in {} y", u64::MAX / 86_400 / 365)
        );
    }

    #[test]
    fn dates() {
        // Expected values from `date -u -d @N`.
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(machine_date(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(date(253_402_300_799), "9999-12-31 23:59 UTC");
        assert_eq!(date(u64::MAX), "18446744073709551615 s");
        assert_eq!(machine_date(u64::MAX), "");
    }

    #[test]
    fn misleading_characters_are_replaced() {
        assert_eq!(displayed_name("/var/lib/db"), "/var/lib/db");
        assert_eq!(
            displayed_name("a\u{202e}b\n\u{1b}[31mc"),
            "a\u{fffd}b\u{fffd}\u{fffd}[31mc"
        );
        assert_eq!(displayed_name("\u{2003} "), "(no name)");
        assert_eq!(displayed_name(""), "(no name)");
        assert_eq!(displayed_name(&"x".repeat(160)).chars().count(), 160);
        assert!(displayed_name(&"x".repeat(161)).ends_with('\u{2026}'));
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1\u{202f}000");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
