//! Envelopes under the owner's column keys, and their text form.
//!
//! `strongroom-columns-envelope` seals and opens them. Must not: know what a value means.
//! Specified in docs/spec/columns.md.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use strongroom_crypto::CryptoError;
use strongroom_format::columns::envelope::{ENVELOPE_PAD, ENVELOPE_PREFIX};
use strongroom_format::columns::{Kind, Lineage};
use zeroize::Zeroizing;

use crate::keys::ColumnKeys;
use crate::results::Results;
use crate::sql::Origins;
use crate::sql::catalog::Catalog;

use strongroom_columns_envelope::{Label, SealedBy};

pub(crate) use strongroom_columns_envelope::EnvelopeError;

/// Base64 without padding; a text that is not canonical is refused.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(false),
);

/// Seals one value, given in PostgreSQL's binary form, under the key for new values; returns the
/// envelope. `lineage` is that of the comparable column that it is to be stored in, or
/// [`Lineage::CLIENT`].
///
/// # Errors
/// The system's random number generator fails, there is no locked memory, or the value is too long
/// for AES-GCM (64 GiB).
pub(crate) fn seal(
    keys: &ColumnKeys,
    kind: Kind,
    lineage: Lineage,
    value: &[u8],
) -> Result<Vec<u8>, CryptoError> {
    // Reserves the padding too: a vector that grows leaves a copy of the value behind.
    let mut body = Zeroizing::new(Vec::with_capacity(value.len().saturating_add(ENVELOPE_PAD)));
    body.extend_from_slice(value);
    let mut out = Vec::new();
    keys.sealing()
        .seal(label(kind, lineage), &mut body, &mut out)?;
    Ok(out)
}

/// Returns what an envelope of this process says of its value: that a client has sealed it.
#[cfg(not(any(test, fuzzing)))]
const fn label(kind: Kind, lineage: Lineage) -> Label {
    Label {
        kind,
        by: SealedBy::Client,
        lineage,
    }
}

/// Returns what an envelope of this thread says of its value: that a client has sealed it, or, if a
/// test or fuzz target without a zone has set that, that it is a zone's result.
#[cfg(any(test, fuzzing))]
fn label(kind: Kind, lineage: Lineage) -> Label {
    let by = SEALS_AS.get();
    let lineage = match by {
        SealedBy::Client => lineage,
        _ => Lineage::RESULT,
    };
    Label { kind, by, lineage }
}

#[cfg(any(test, fuzzing))]
std::thread_local! {
    /// As which end this thread seals.
    pub(crate) static SEALS_AS: std::cell::Cell<SealedBy> = const { std::cell::Cell::new(SealedBy::Client) };
}

/// Opens a value of this kind in an answer of the server, and returns it in PostgreSQL's binary
/// form. `results` says which envelopes are taken, and `expected` what the value is to be.
///
/// # Errors
/// [`EnvelopeError`]: malformed, under an unknown key, of another kind, or not authentic, which an
/// envelope is too that is not taken; [`EnvelopeError::System`] without locked memory.
pub(crate) fn open(
    keys: &ColumnKeys,
    (results, expected): (&Results, Option<(&Origins, &Catalog)>),
    kind: Kind,
    envelope: &[u8],
) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
    let header = strongroom_columns_envelope::parse_header(kind, envelope)?;
    let key = keys.find(&header.key_id).ok_or(EnvelopeError::UnknownKey)?;
    let mut value = Zeroizing::new(Vec::new());
    let header = key.open(kind, results.session(), envelope, &mut value)?;
    results.take(&header, expected)?;
    Ok(value)
}

/// Returns the text form of an envelope: a prefix and Base64.
#[must_use]
pub(crate) fn to_text(envelope: &[u8]) -> String {
    let mut text = String::from(ENVELOPE_PREFIX);
    ENGINE.encode_string(envelope, &mut text);
    text
}

/// Returns the envelope of a text form. Only the text form is checked, not the envelope.
///
/// # Errors
/// [`EnvelopeError::Malformed`] unless the text is the one that [`to_text`] would give.
pub(crate) fn from_text(text: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
    let digits = text
        .strip_prefix(ENVELOPE_PREFIX.as_bytes())
        .ok_or(EnvelopeError::Malformed)?;
    ENGINE.decode(digits).map_err(|_| EnvelopeError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_crypto::SecretKey;
    use strongroom_format::columns::Class;

    fn keys() -> ColumnKeys {
        ColumnKeys::from_keys(&[
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        ])
        .unwrap()
    }

    /// As the zone seals a result.
    fn result(keys: &ColumnKeys, kind: Kind, value: &[u8]) -> Vec<u8> {
        let (mut value, mut out) = (value.to_vec(), Vec::new());
        let label = Label {
            kind,
            by: SealedBy::Zone,
            lineage: Lineage::RESULT,
        };
        keys.sealing().seal(label, &mut value, &mut out).unwrap();
        out
    }

    fn opened(
        keys: &ColumnKeys,
        kind: Kind,
        envelope: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
        open(keys, (&Results::of_anybody(), None), kind, envelope)
    }

    /// Attack: a result of another session, one twice, two that are exchanged, and what anybody may
    /// have sealed.
    #[test]
    fn results_come_once_in_order_and_in_their_session() {
        let keys = keys();
        let session = [5; 16];
        let seal = |by| {
            let (mut value, mut out) = (vec![1], Vec::new());
            let label = Label {
                kind: Kind::Bool,
                by,
                lineage: Lineage::RESULT,
            };
            keys.sealing().seal(label, &mut value, &mut out).unwrap();
            out
        };
        let own = |serial| seal(SealedBy::Session { session, serial });
        let other = seal(SealedBy::Session {
            session: [6; 16],
            serial: 9,
        });
        let results = Results::of_session(session);
        let taken = |envelope: &[u8]| open(&keys, (&results, None), Kind::Bool, envelope).is_ok();
        assert!(taken(&own(1)) && taken(&own(2)) && taken(&own(7)));
        for (what, envelope) in [
            ("twice", own(7)),
            ("one that came before", own(3)),
            ("another session's", other.clone()),
            ("a dump's", seal(SealedBy::Zone)),
            ("a constant", seal(SealedBy::Client)),
        ] {
            assert!(!taken(&envelope), "{what}");
        }
        let mut forged = own(8);
        forged[56] = 9;
        assert!(!taken(&forged), "a number that is not its own");
        assert!(taken(&own(8)), "nothing of that counts");
        for results in [Results::default(), Results::of_anybody()] {
            assert!(open(&keys, (&results, None), Kind::Bool, &other).is_err());
        }
    }

    #[test]
    fn what_a_client_sealed_is_no_result() {
        let keys = keys();
        for lineage in [Lineage::CLIENT, Lineage::of_column(9 << 8, Class::Ordered)] {
            let constant = seal(&keys, Kind::Bool, lineage, &[1]).unwrap();
            assert_eq!(
                opened(&keys, Kind::Bool, &constant),
                Err(EnvelopeError::NotAuthentic)
            );
        }
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
                let envelope = result(&keys, *kind, &value);
                assert_eq!(*opened(&keys, *kind, &envelope).unwrap(), value);
                let text = to_text(&envelope);
                assert_eq!(from_text(text.as_bytes()).unwrap(), envelope);
            }
        }
    }

    #[test]
    fn an_older_key_opens_and_the_newest_seals() {
        let old = SecretKey::generate().unwrap();
        let before = ColumnKeys::from_keys(&[old.try_clone().unwrap()]).unwrap();
        let after = ColumnKeys::from_keys(&[old, SecretKey::generate().unwrap()]).unwrap();
        let envelope = result(&before, Kind::Bool, &[1]);
        assert_eq!(*opened(&after, Kind::Bool, &envelope).unwrap(), [1]);
        let newer = result(&after, Kind::Bool, &[1]);
        assert_eq!(
            opened(&before, Kind::Bool, &newer),
            Err(EnvelopeError::UnknownKey)
        );
    }

    #[test]
    fn text_has_one_form() {
        let keys = keys();
        let text = to_text(&seal(&keys, Kind::Int4, Lineage::CLIENT, &[1, 2, 3, 4]).unwrap());
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
        // 68 bytes leave three digits for the last two: two bits of the last one must be zero.
        let last = text.chars().last().unwrap();
        let others = ('A'..='Z').filter(|digit| *digit != last).filter(|digit| {
            let changed = format!("{}{digit}", &text[..text.len() - 1]);
            from_text(changed.as_bytes()).is_ok()
        });
        assert!(others.count() <= 7, "only digits whose low bits are zero");
    }
}
