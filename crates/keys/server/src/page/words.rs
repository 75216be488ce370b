//! Ages, dates and names as text for people.
//!
//! Invariant: a name that a node chose is shown without characters that change how its neighbours are read, and never longer than
//! [`NAME_CHARACTERS`].
//!
//! Must not: read a clock, escape HTML (the templates do).

use super::records::DAY_S;

/// Characters of a name that are shown.
pub const NAME_CHARACTERS: usize = 160;

/// A length of time, in its largest useful unit.
#[must_use]
pub fn length(seconds: u64) -> String {
    let days = seconds / DAY_S;
    match seconds {
        0..60 => "under a minute".to_owned(),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ if days < 1000 => format!("{days} d"),
        _ => format!("{} y", days / 365),
    }
}

/// How long ago a time is, or how far ahead.
#[must_use]
pub fn ago(at: u64, now: u64) -> String {
    match (now.checked_sub(at), at.saturating_sub(now)) {
        (Some(0..60), _) | (None, 0..60) => "just now".to_owned(),
        (Some(past), _) => format!("{} ago", length(past)),
        (None, ahead) => format!("in {}", length(ahead)),
    }
}

/// A date with time, to the minute: `2026-11-22 17:30 UTC`.
#[must_use]
pub fn date(unix_s: u64) -> String {
    let Some((year, month, day)) = civil(unix_s) else {
        return format!("{unix_s} s");
    };
    let (hour, minute) = (unix_s / 3600 % 24, unix_s / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// A date with time as the attribute of a `time` element: RFC 3339.
#[must_use]
pub fn machine_date(unix_s: u64) -> String {
    let Some((year, month, day)) = civil(unix_s) else {
        return String::new();
    };
    let (hour, minute, second) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day (Hinnant, "chrono-compatible low-level date algorithms"); `None` from the year 10000 on.
fn civil(unix_s: u64) -> Option<(u64, u64, u64)> {
    const YEAR_10000_S: u64 = 253_402_300_800;
    if unix_s >= YEAR_10000_S {
        return None;
    }
    let from_march_0 = unix_s / DAY_S + 719_468;
    let (era, of_era) = (from_march_0 / 146_097, from_march_0 % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    Some((year_of_era + era * 400 + u64::from(month <= 2), month, day))
}

/// A name as it may be shown: controls and marks of direction replaced, the end of a long one cut off.
#[must_use]
pub fn name(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(NAME_CHARACTERS)
        .map(|c| if misleads(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(NAME_CHARACTERS).is_some() {
        shown.push('\u{2026}');
    }
    if shown.trim().is_empty() {
        return "(no name)".to_owned();
    }
    shown
}

/// Controls, marks of direction (Unicode UAX #9), characters without width, separators of lines, tags, private use.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}'
            | '\u{e0000}'..='\u{10ffff}')
}

/// `1 object`, `2 objects`.
#[must_use]
pub fn count(number: usize, one: &str, many: &str) -> String {
    let digits = grouped(number);
    format!("{digits} {}", if number == 1 { one } else { many })
}

/// A number with its thousands apart, by a narrow space that does not break.
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
    use super::{ago, date, grouped, length, machine_date, name};

    #[test]
    fn lengths_and_ages() {
        assert_eq!(length(59), "under a minute");
        assert_eq!(length(3599), "59 min");
        assert_eq!(length(3600), "1 h");
        assert_eq!(length(172_799), "47 h");
        assert_eq!(length(172_800), "2 d");
        assert_eq!(length(999 * 86_400), "999 d");
        assert_eq!(length(1000 * 86_400), "2 y");
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
    fn names_do_not_mislead() {
        assert_eq!(name("/var/lib/db"), "/var/lib/db");
        assert_eq!(
            name("a\u{202e}b\n\u{1b}[31mc"),
            "a\u{fffd}b\u{fffd}\u{fffd}[31mc"
        );
        assert_eq!(name("\u{2003} "), "(no name)");
        assert_eq!(name(""), "(no name)");
        assert_eq!(name(&"x".repeat(160)).chars().count(), 160);
        assert!(name(&"x".repeat(161)).ends_with('\u{2026}'));
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1\u{202f}000");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
