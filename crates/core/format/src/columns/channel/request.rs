//! What a client asks of the zone inside a sealed message.
//!
//! Must not: seal or open a message.

use alloc::vec::Vec;

use super::{CHANNEL_KEYS_MAX, CLIENT_NAME_MAX};
use crate::layout::{array, layout, put, u64_at};

layout! {
    /// Layout of the body of [`Request::Limit`].
    limit_layout, 40, {
        KEY_ID @ 0, 16;
        PERIOD @ 16, 8;
        TRUTHS @ 24, 8;
        OUTPUTS @ 32, 8;
    }
}

/// What a client asks inside a sealed message: one byte, then its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Opens a session: length of the client's name (1) and the name, `u16` number of keys, for
    /// each id (16) and key (32), then the ticket with its MACs. Answered by the session's id.
    Open,
    /// Ends the session. Answered by nothing.
    Close,
    /// The ledger of the session's ticket, as JSON.
    Ledger,
    /// Replaces the session's ticket by the one in the body, with its MACs, which has the same id
    /// and keys. Answered by nothing.
    Renew,
    /// The ledgers of the column keys that the session's ticket names, as JSON.
    KeyLedgers,
    /// Sets the limit of a column key that the session's ticket names: a [`Limit`]. Answered by
    /// nothing.
    Limit,
}

/// Every request.
const REQUESTS: [Request; 6] = [
    Request::Open,
    Request::Close,
    Request::Ledger,
    Request::Renew,
    Request::KeyLedgers,
    Request::Limit,
];

impl Request {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Close => 2,
            Self::Ledger => 3,
            Self::Renew => 4,
            Self::KeyLedgers => 5,
            Self::Limit => 6,
        }
    }

    /// Parses an opened message; returns the request and its body. `None` when the request is not
    /// known.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let (number, body) = message.split_first()?;
        let request = REQUESTS
            .into_iter()
            .find(|known| known.number() == *number)?;
        Some((request, body))
    }
}

/// How much may be told under one column key, to all sessions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The column key.
    pub key_id: [u8; 16],
    /// Seconds after which what was spent is forgotten; 0 for never.
    pub period: u64,
    /// Answers that may be given in a period; [`LIMITLESS`](super::LIMITLESS) for any number.
    pub truths: u64,
    /// Values that may leave the zone in a period; [`LIMITLESS`](super::LIMITLESS) for any number.
    pub outputs: u64,
}

impl Limit {
    /// Parses the body of [`Request::Limit`]. `None` when it is not exactly as long.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        use limit_layout as at;
        let limit = Self {
            key_id: array(body, at::KEY_ID)?,
            period: u64_at(body, at::PERIOD)?,
            truths: u64_at(body, at::TRUTHS)?,
            outputs: u64_at(body, at::OUTPUTS)?,
        };
        (body.len() == at::SIZE).then_some(limit)
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; limit_layout::SIZE] {
        use limit_layout as at;
        let mut out = [0; at::SIZE];
        let fields = [
            put(&mut out, at::KEY_ID, &self.key_id),
            put(&mut out, at::PERIOD, &self.period.to_le_bytes()),
            put(&mut out, at::TRUTHS, &self.truths.to_le_bytes()),
            put(&mut out, at::OUTPUTS, &self.outputs.to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "limit layout");
        out
    }
}

/// Whether a text may be the name that a client gives itself: not empty, at most
/// [`CLIENT_NAME_MAX`] bytes, without control characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=CLIENT_NAME_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A column key's id and the key.
pub type GivenKey<'a> = ([u8; 16], &'a [u8; 32]);

/// The body of [`Request::Open`].
pub struct Opening<'a> {
    /// The name that the client gives itself.
    pub name: &'a str,
    /// The column keys. Secrets: there is no `Debug`.
    pub keys: Vec<GivenKey<'a>>,
    /// The ticket with its MACs.
    pub ticket: &'a [u8],
}

/// Parses the body of [`Request::Open`]. `None` when it is cut short, has too many keys, or its
/// name is none ([`is_name`]).
#[must_use]
pub fn parse_opening(body: &[u8]) -> Option<Opening<'_>> {
    let (length, rest) = body.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let name = core::str::from_utf8(name)
        .ok()
        .filter(|name| is_name(name))?;
    let (count, mut rest) = rest.split_first_chunk::<2>()?;
    let count = usize::from(u16::from_le_bytes(*count));
    if count > CHANNEL_KEYS_MAX {
        return None;
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, behind) = rest.split_first_chunk::<16>()?;
        let (key, behind) = behind.split_first_chunk::<32>()?;
        keys.push((*id, key));
        rest = behind;
    }
    Some(Opening {
        name,
        keys,
        ticket: rest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::channel::LIMITLESS;

    #[test]
    fn an_opening_holds_the_keys_that_it_says() {
        let mut body = b"\x07payroll\x01\x00".to_vec();
        body.extend_from_slice(&[7; 16]);
        body.extend_from_slice(&[8; 32]);
        body.extend_from_slice(b"ticket");
        let opening = parse_opening(&body).unwrap();
        assert_eq!((opening.name, opening.keys.len()), ("payroll", 1));
        assert_eq!(
            (opening.keys[0].0, opening.ticket),
            ([7; 16], &b"ticket"[..])
        );
        // More keys than there are; a name that is longer than the body, empty, or none.
        for (at, value) in [(8, 2), (8, 65), (0, 255), (0, 0), (3, 10), (3, 0xff)] {
            let mut bad = body.clone();
            bad[at] = value;
            assert!(parse_opening(&bad).is_none(), "byte {at}");
        }
        for cut in 0..58 {
            assert!(parse_opening(&body[..cut]).is_none(), "{cut} bytes");
        }
    }

    #[test]
    fn a_limit_comes_back() {
        let limit = Limit {
            key_id: [1; 16],
            period: 86_400,
            truths: 1000,
            outputs: LIMITLESS,
        };
        let bytes = limit.to_bytes();
        assert_eq!(Limit::parse(&bytes), Some(limit));
        assert_eq!(Limit::parse(&bytes[..39]), None);
        assert_eq!(Limit::parse(&[&bytes[..], &[0]].concat()), None);
    }
}
