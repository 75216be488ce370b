//! Times as text: seconds since the Unix epoch as dates in UTC.
//!
//! Must not: read a clock.

use alloc::format;
use alloc::string::String;

/// Seconds of a day.
const DAY_S: u64 = 86_400;
/// The first second of the year 10000.
const YEAR_10000_UNIX_S: u64 = 253_402_300_800;

/// Seconds since the Unix epoch as `YYYY-MM-DDThh:mm:ssZ` (RFC 3339). Years beyond 9999 are given
/// as seconds.
#[must_use]
pub fn rfc3339(unix_s: u64) -> String {
    let Some((year, month, day)) = civil_date(unix_s) else {
        return format!("{unix_s} s");
    };
    let (hour, minute, second) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a time in seconds since the Unix epoch (Hinnant, "chrono-compatible
/// low-level date algorithms"); `None` from the year 10000 on.
#[must_use]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "below the year 10000 nothing of this overflows, and no difference is negative"
)]
pub fn civil_date(unix_s: u64) -> Option<(u64, u64, u64)> {
    if unix_s >= YEAR_10000_UNIX_S {
        return None;
    }
    let from_march_0 = unix_s / DAY_S + 719_468;
    let (era, day_of_era) = (from_march_0 / 146_097, from_march_0 % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    Some((year, month, day))
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
