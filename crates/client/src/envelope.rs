//! Sealing and opening of envelopes, and their text form.
//!
//! Invariants: an envelope is sealed under a random nonce, with its key's id and its kind as associated data, so that a value
//! moved under another key or declared of another type does not open; what is not canonical (padding, base64, reserved
//! bytes) does not open either. Must not: know what a value means. Specified in docs/spec/columns.md.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use strongroom_crypto::{CryptoError, nonce12};
use strongroom_format::columns::envelope::{
    ENVELOPE_OVERHEAD, ENVELOPE_PREFIX, envelope_layout, pad, unpadded,
};
use strongroom_format::columns::{EnvelopeHeader, Kind};
use zeroize::{Zeroize, Zeroizing};

use crate::keys::ColumnKeys;

const TAG_LEN: usize = 16;

/// Without padding, and a text that another text would decode like is refused.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(false),
);

/// Why an envelope does not open. Says nothing of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeError {
    /// Not the form of an envelope.
    Malformed,
    /// Sealed under a key that is not at hand.
    UnknownKey,
    /// Of another kind than was expected.
    OtherKind,
    /// Damaged or forged.
    NotAuthentic,
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the envelope is malformed",
            Self::UnknownKey => {
                "the envelope is sealed under a column key that the keyring does not hold"
            }
            Self::OtherKind => "the envelope holds a value of another type",
            Self::NotAuthentic => "the envelope is damaged or forged",
        })
    }
}

impl std::error::Error for EnvelopeError {}

/// Seals one value, given in PostgreSQL's binary form, under the key that new values get.
///
/// # Errors
/// The host's generator of random numbers fails, or the value has 64 GiB.
pub fn seal(keys: &ColumnKeys, kind: Kind, value: &[u8]) -> Result<Vec<u8>, CryptoError> {
    let (key_id, key) = keys.sealing();
    let header = EnvelopeHeader {
        kind,
        key_id,
        nonce: nonce12()?,
    };
    let mut body = Zeroizing::new(Vec::with_capacity(value.len().saturating_add(TAG_LEN)));
    body.extend_from_slice(value);
    pad(kind, &mut body);
    let tag = key.seal(&header.nonce, &header.bound(), &mut body)?;
    let mut out = Vec::with_capacity(ENVELOPE_OVERHEAD.saturating_add(body.len()));
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(&body);
    out.extend_from_slice(&tag);
    Ok(out)
}

/// Opens an envelope of this kind into PostgreSQL's binary form of the value.
///
/// # Errors
/// [`EnvelopeError`].
pub fn open(
    keys: &ColumnKeys,
    kind: Kind,
    envelope: &[u8],
) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
    let header = EnvelopeHeader::parse(envelope).ok_or(EnvelopeError::Malformed)?;
    if header.kind != kind {
        return Err(EnvelopeError::OtherKind);
    }
    let key = keys.find(&header.key_id).ok_or(EnvelopeError::UnknownKey)?;
    let sealed = envelope
        .get(envelope_layout::SIZE..)
        .ok_or(EnvelopeError::Malformed)?;
    let (body, tag) = sealed
        .split_last_chunk::<TAG_LEN>()
        .ok_or(EnvelopeError::Malformed)?;
    let mut value = Zeroizing::new(body.to_vec());
    key.open(&header.nonce, &header.bound(), &mut value, tag)
        .map_err(|_| EnvelopeError::NotAuthentic)?;
    let len = unpadded(kind, &value).ok_or(EnvelopeError::Malformed)?;
    if kind.fixed_len().is_some_and(|fixed| fixed != len) {
        return Err(EnvelopeError::Malformed);
    }
    // Vec::truncate leaves what it cuts off in place; only the padding is there, but the rule has no exceptions.
    if let Some(rest) = value.get_mut(len..) {
        rest.zeroize();
    }
    value.truncate(len);
    Ok(value)
}

/// The text form.
#[must_use]
pub fn to_text(envelope: &[u8]) -> String {
    let mut text = String::from(ENVELOPE_PREFIX);
    ENGINE.encode_string(envelope, &mut text);
    text
}

/// The envelope of a text form.
///
/// # Errors
/// [`EnvelopeError::Malformed`] unless the text is the one that [`to_text`] would give.
pub fn from_text(text: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
    let digits = text
        .strip_prefix(ENVELOPE_PREFIX.as_bytes())
        .ok_or(EnvelopeError::Malformed)?;
    ENGINE.decode(digits).map_err(|_| EnvelopeError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_crypto::SecretKey;

    fn keys() -> ColumnKeys {
        ColumnKeys::from_keys(&[
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        ])
        .unwrap()
    }

    fn sample(kind: Kind, len: usize) -> Vec<u8> {
        let len = kind.fixed_len().unwrap_or(len);
        (0..len)
            .map(|at| u8::try_from(at * 37 % 256).unwrap())
            .collect()
    }

    #[test]
    fn every_kind_and_length_comes_back_in_both_forms() {
        let keys = keys();
        for kind in Kind::ALL {
            for len in [0, 1, 15, 16, 17, 4096] {
                let value = sample(*kind, len);
                let envelope = seal(&keys, *kind, &value).unwrap();
                assert_eq!(*open(&keys, *kind, &envelope).unwrap(), value);
                let text = to_text(&envelope);
                assert_eq!(from_text(text.as_bytes()).unwrap(), envelope);
            }
        }
    }

    #[test]
    fn no_two_envelopes_of_a_value_are_equal() {
        let keys = keys();
        let a = seal(&keys, Kind::Int4, &[0, 0, 0, 1]).unwrap();
        let b = seal(&keys, Kind::Int4, &[0, 0, 0, 1]).unwrap();
        assert_ne!(a[20..], b[20..]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let keys = keys();
        for kind in [Kind::Int4, Kind::Text] {
            let envelope = seal(&keys, kind, &sample(kind, 5)).unwrap();
            for bit in 0..envelope.len() * 8 {
                let mut bad = envelope.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(open(&keys, kind, &bad).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn another_kind_does_not_open() {
        let keys = keys();
        let envelope = seal(&keys, Kind::Int8, &[0; 8]).unwrap();
        for kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Int8) {
            assert_eq!(open(&keys, *kind, &envelope), Err(EnvelopeError::OtherKind));
            let mut relabelled = envelope.clone();
            relabelled[1] = kind.number();
            assert_eq!(
                open(&keys, *kind, &relabelled),
                Err(EnvelopeError::NotAuthentic)
            );
        }
    }

    #[test]
    fn another_key_does_not_open_even_under_its_own_id() {
        let (a, b) = (keys(), keys());
        let envelope = seal(&a, Kind::Date, &[1, 2, 3, 4]).unwrap();
        assert_eq!(
            open(&b, Kind::Date, &envelope),
            Err(EnvelopeError::UnknownKey)
        );
        let mut relabelled = envelope;
        relabelled[4..20].copy_from_slice(&b.sealing().0);
        assert_eq!(
            open(&b, Kind::Date, &relabelled),
            Err(EnvelopeError::NotAuthentic)
        );
    }

    #[test]
    fn an_older_key_opens_and_the_newest_seals() {
        let old = SecretKey::generate().unwrap();
        let before = ColumnKeys::from_keys(&[old.try_clone().unwrap()]).unwrap();
        let after = ColumnKeys::from_keys(&[old, SecretKey::generate().unwrap()]).unwrap();
        let envelope = seal(&before, Kind::Bool, &[1]).unwrap();
        assert_eq!(*open(&after, Kind::Bool, &envelope).unwrap(), [1]);
        let newer = seal(&after, Kind::Bool, &[1]).unwrap();
        assert_eq!(
            open(&before, Kind::Bool, &newer),
            Err(EnvelopeError::UnknownKey)
        );
    }

    #[test]
    fn every_truncation_and_extension_is_refused() {
        let keys = keys();
        let envelope = seal(&keys, Kind::Text, b"some text").unwrap();
        for len in 0..envelope.len() {
            assert!(open(&keys, Kind::Text, &envelope[..len]).is_err(), "{len}");
        }
        let longer = [envelope.as_slice(), &[0]].concat();
        assert!(open(&keys, Kind::Text, &longer).is_err());
    }

    #[test]
    fn a_sealed_value_of_the_wrong_length_is_refused() {
        let keys = keys();
        let envelope = seal(&keys, Kind::Int4, &[1, 2, 3]).unwrap();
        assert_eq!(
            open(&keys, Kind::Int4, &envelope),
            Err(EnvelopeError::Malformed)
        );
    }

    #[test]
    fn text_has_one_form() {
        let keys = keys();
        let text = to_text(&seal(&keys, Kind::Int4, &[1, 2, 3, 4]).unwrap());
        for bad in [
            text.replacen("sr1:", "SR1:", 1),
            text.replacen("sr1:", "", 1),
            format!("{text}="),
            format!("{text} "),
            format!(" {text}"),
            text.replacen("sr1:", "sr1:+", 1),
            String::new(),
            "sr1:A".to_owned(),
        ] {
            assert_eq!(
                from_text(bad.as_bytes()),
                Err(EnvelopeError::Malformed),
                "{bad}"
            );
        }
        // 52 bytes leave two digits for the last byte: four bits of the last one must be zero.
        let last = text.chars().last().unwrap();
        let others = ('A'..='Z').filter(|digit| *digit != last).filter(|digit| {
            let changed = format!("{}{digit}", &text[..text.len() - 1]);
            from_text(changed.as_bytes()).is_ok()
        });
        assert!(others.count() <= 2, "only digits whose low bits are zero");
    }
}
