//! Times as text: seconds since the Unix epoch as dates in UTC.
//!
//! Must not: read a clock.

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// Returns seconds since the Unix epoch as `YYYY-MM-DDThh:mm:ssZ`. Times after the year 9999 are
/// given as a number of seconds.
#[must_use]
pub fn rfc3339(unix_s: u64) -> String {
    let since = i64::try_from(unix_s).map(SignedDuration::from_secs).ok();
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    match since.and_then(|since| epoch.checked_add(since).ok()) {
        Some(time) => format!("{time}Z"),
        None => format!("{unix_s} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn known_dates() {
        // Expected values from `date -u -d @N +%FT%TZ`.
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(rfc3339(4_102_444_800), "2100-01-01T00:00:00Z");
        assert_eq!(rfc3339(253_402_300_799), "9999-12-31T23:59:59Z");
        assert_eq!(rfc3339(u64::MAX), "18446744073709551615 s");
    }
}
