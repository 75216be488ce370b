//! Positions in the write-ahead log, and the protocol's clock.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds from 1970-01-01 to 2000-01-01, where PostgreSQL's clock begins.
const EPOCH_SECONDS: i64 = 946_684_800;

/// A byte position in the write-ahead log. Zero is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Returns the beginning of the segment that holds this position, where segments have
    /// `segment_bytes`. For `segment_bytes` of zero it is the position itself.
    #[must_use]
    pub const fn segment_start(self, segment_bytes: u64) -> Self {
        match self.0.checked_rem(segment_bytes) {
            Some(within) => Self(self.0 - within),
            None => self,
        }
    }

    /// Returns the position `bytes` later, or the largest one if that would overflow.
    #[must_use]
    pub const fn after(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

impl fmt::Display for Lsn {
    /// PostgreSQL's form: the halves in hexadecimal, `0/3000060`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// The text is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLsnError;

impl fmt::Display for ParseLsnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a position in the log is two hexadecimal numbers, such as 0/3000060")
    }
}

impl std::error::Error for ParseLsnError {}

impl FromStr for Lsn {
    type Err = ParseLsnError;

    /// Reads PostgreSQL's form: two hexadecimal numbers of 32 bits, such as `0/3000060`.
    fn from_str(text: &str) -> Result<Self, ParseLsnError> {
        let (high, low) = text.split_once('/').ok_or(ParseLsnError)?;
        let half = |digits: &str| {
            let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u32::from_str_radix(digits, 16).map_err(|_| ParseLsnError)?;
            plain.then_some(u64::from(number)).ok_or(ParseLsnError)
        };
        Ok(Self(half(high)? << 32 | half(low)?))
    }
}

/// Returns the present time in microseconds since 2000-01-01 UTC, as the protocol has it. A clock
/// before 1970 counts as 1970.
pub(crate) fn timestamp() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = now.map_or(0, |passed| {
        i64::try_from(passed.as_micros()).unwrap_or(i64::MAX)
    });
    since.saturating_sub(EPOCH_SECONDS * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_and_written_as_postgresql_does() {
        for text in ["0/0", "0/3000060", "16/B374D848", "FFFFFFFF/FFFFFFFF"] {
            assert_eq!(text.parse::<Lsn>().expect("a position").to_string(), text);
        }
        for text in [
            "",
            "/",
            "0",
            "0/",
            "/0",
            "+1/0",
            "0/+1",
            "0/100000000",
            "g/0",
            "0/0/0",
            " 0/0",
        ] {
            assert_eq!(text.parse::<Lsn>(), Err(ParseLsnError), "{text}");
        }
    }

    #[test]
    fn a_segment_begins_at_a_multiple_of_its_size() {
        let at = Lsn(0x1_0123_4567);
        assert_eq!(at.segment_start(16 << 20), Lsn(0x1_0100_0000));
        assert_eq!(at.segment_start(0), at);
    }
}
