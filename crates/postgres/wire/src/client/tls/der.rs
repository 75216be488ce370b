//! Parses three fields of an X.509 certificate that the TLS library does not expose: its signature
//! algorithm, and the beginning and end of its validity.
//!
//! Must not: parse other fields, or decide about trust. It returns `None` for any input that it
//! does not understand. RFC 5280, section 4.1; ITU-T X.690 for the encoding.

use jiff::civil::DateTime;

/// Object identifiers of signature algorithms, as encoded, and the hash that each names (RFC 8017,
/// RFC 5758).
const SIGNATURES: [(&[u8], Hash); 9] = [
    (
        &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x04],
        Hash::Sha256,
    ), // MD5 with RSA
    (
        &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x05],
        Hash::Sha256,
    ), // SHA-1 with RSA
    (
        &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0B],
        Hash::Sha256,
    ),
    (
        &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0C],
        Hash::Sha384,
    ),
    (
        &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0D],
        Hash::Sha512,
    ),
    (&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x01], Hash::Sha256), // ECDSA with SHA-1
    (
        &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x02],
        Hash::Sha256,
    ),
    (
        &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x03],
        Hash::Sha384,
    ),
    (
        &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x04],
        Hash::Sha512,
    ),
];

/// 1970-01-01 00:00:00.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The hash that channel binding takes of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// Returns the hash that `tls-server-end-point` uses for this certificate: that of its signature,
/// SHA-256 for MD5 and SHA-1 (RFC 5929, section 4.1). `None` where the standard names none, such as
/// for Ed25519, and if the certificate cannot be parsed.
pub(crate) fn binding_hash(certificate: &[u8]) -> Option<Hash> {
    let (inside, _) = element(certificate, SEQUENCE)?;
    let (_, after) = element(inside, SEQUENCE)?;
    let (algorithm, _) = element(after, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let found = SIGNATURES.iter().find(|(bytes, _)| *bytes == identifier);
    found.map(|(_, hash)| *hash)
}

/// Returns the first and the last second in which a certificate is valid, in seconds since 1970
/// UTC. `None` if it cannot be parsed.
pub(crate) fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let (inside, _) = element(certificate, SEQUENCE)?;
    let (mut rest, _) = element(inside, SEQUENCE)?;
    if let Some((_, after)) = element(rest, VERSION) {
        rest = after;
    }
    let (_, rest) = element(rest, INTEGER)?;
    let (_, rest) = element(rest, SEQUENCE)?; // signature
    let (_, rest) = element(rest, SEQUENCE)?; // issuer
    let (validity, _) = element(rest, SEQUENCE)?;
    let (from, rest) = time(validity)?;
    let (until, _) = time(rest)?;
    Some((from, until))
}

/// Splits off the element that `bytes` begins with: returns its content, and the bytes after it.
/// `None` when it has another tag, or is malformed or cut short.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = match *length {
        short @ 0..=0x7F => (usize::from(short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            if digits.is_empty() || digits.len() > 3 {
                return None;
            }
            let number = digits
                .iter()
                .fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit));
            (number, rest)
        }
    };
    rest.split_at_checked(length)
}

/// Takes a time of one of the only two forms of RFC 5280, `YYMMDDHHMMSSZ` and `YYYYMMDDHHMMSSZ`.
/// Returns it in seconds since 1970 UTC, and the bytes after it. `None` for every other form, and
/// for what is no date or no time of day.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (digits, rest, century) = match element(bytes, UTC_TIME) {
        Some((digits, rest)) => (digits, rest, 0),
        None => {
            let (digits, rest) = element(bytes, GENERALIZED_TIME)?;
            (digits, rest, 2)
        }
    };
    let digits = digits.strip_suffix(b"Z")?;
    if digits.len() != 12 + century || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, count: usize| {
        let digits = digits.get(from..from + count)?;
        let sum = digits
            .iter()
            .fold(0_i16, |sum, digit| sum * 10 + i16::from(digit - b'0'));
        Some(sum)
    };
    let year = match century {
        0 => match number(0, 2)? {
            late @ 50.. => 1900 + late,
            early => 2000 + early,
        },
        _ => number(0, 4)?,
    };
    let part = |at: usize| i8::try_from(number(century + at, 2)?).ok();
    let (month, day) = (part(2)?, part(4)?);
    let (hour, minute, second) = (part(6)?, part(8)?, part(10)?);
    let time = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    // Not a point in time: the last that jiff has is a day before the end of the year 9999, which
    // stands for "no end" in certificates.
    Some((time.duration_since(EPOCH).as_secs(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> Option<i64> {
        let length = u8::try_from(text.len()).expect("short");
        let tag = if text.len() == 13 {
            UTC_TIME
        } else {
            GENERALIZED_TIME
        };
        let bytes = [&[tag, length], text.as_bytes()].concat();
        time(&bytes).map(|(seconds, _)| seconds)
    }

    #[test]
    fn times_are_those_of_date() {
        // date -u -d ... +%s
        assert_eq!(utc("700101000000Z"), Some(0));
        assert_eq!(utc("491231235959Z"), Some(2_524_607_999));
        assert_eq!(utc("500101000000Z"), Some(-631_152_000));
        assert_eq!(utc("240229120000Z"), Some(1_709_208_000));
        assert_eq!(utc("20500301000000Z"), Some(2_529_705_600));
        assert_eq!(utc("99991231235959Z"), Some(253_402_300_799));
        for wrong in [
            "7001010000Z",
            "701301000000Z",
            "70010100000xZ",
            "7001010000000",
            "230229000000Z",
            "700101240000Z",
        ] {
            assert_eq!(utc(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1_u64;
        for length in 0..300 {
            let bytes: Vec<u8> = (0..length)
                .map(|at| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(99);
                    let tags = [SEQUENCE, VERSION, INTEGER, UTC_TIME, 0x82, 0x84, 0xFF, 9];
                    let chosen = tags.get((state >> 60) as usize % 8).copied();
                    if at % 3 == 0 {
                        chosen.unwrap_or(0)
                    } else {
                        state.to_le_bytes()[6] & 0x1F
                    }
                })
                .collect();
            let _: Option<Hash> = binding_hash(&bytes);
            let _: Option<(i64, i64)> = validity(&bytes);
        }
    }
}
