//! What opens and what does not; the vectors of a second implementation; salts and what is
//! remembered of them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::recent_keys::RECENT_MAX;

fn key() -> ColumnKey {
    ColumnKey::new([1; 16], SecretKey::generate().unwrap())
}

/// The label of a result that the zone seals.
const fn result(kind: Kind) -> Label {
    Label {
        kind,
        by: SealedBy::Zone,
        lineage: Lineage::RESULT,
    }
}

fn sealed(key: &ColumnKey, kind: Kind, value: &[u8]) -> Vec<u8> {
    let (mut value, mut out) = (value.to_vec(), Vec::new());
    key.seal(result(kind), &mut value, &mut out).unwrap();
    assert!(value.is_empty());
    out
}

fn opened(key: &ColumnKey, kind: Kind, envelope: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
    opened_in(key, kind, None, envelope)
}

fn opened_in(
    key: &ColumnKey,
    kind: Kind,
    session: Option<&SessionId>,
    envelope: &[u8],
) -> Result<Vec<u8>, EnvelopeError> {
    let mut value = b"what was there before".to_vec();
    let done = key.open(kind, session, envelope, &mut value);
    assert!(done.is_ok() || value.is_empty(), "nothing is left behind");
    done.map(|_| value)
}

fn sample(kind: Kind, len: usize) -> Vec<u8> {
    let len = kind.fixed_len().unwrap_or(len);
    (0..len)
        .map(|at| u8::try_from(at * 37 % 256).unwrap())
        .collect()
}

#[test]
fn every_kind_and_length_comes_back() {
    let key = key();
    for kind in Kind::ALL {
        for len in [0, 1, 15, 16, 17, 4096] {
            let value = sample(*kind, len);
            let envelope = sealed(&key, *kind, &value);
            assert_eq!(opened(&key, *kind, &envelope), Ok(value));
        }
    }
}

#[test]
fn every_flipped_bit_every_cut_and_every_addition_is_refused() {
    let key = key();
    for kind in [Kind::Int4, Kind::Text] {
        let envelope = sealed(&key, kind, &sample(kind, 5));
        for bit in 0..envelope.len() * 8 {
            let mut bad = envelope.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(opened(&key, kind, &bad).is_err(), "bit {bit}");
        }
        for len in 0..envelope.len() {
            assert!(opened(&key, kind, &envelope[..len]).is_err(), "{len}");
        }
        let longer = [envelope.as_slice(), &[0]].concat();
        assert!(opened(&key, kind, &longer).is_err());
        assert!(opened(&key, kind, &envelope).is_ok(), "and it still opens");
    }
}

#[test]
fn another_kind_does_not_open() {
    let key = key();
    let envelope = sealed(&key, Kind::Int8, &[0; 8]);
    for kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Int8) {
        assert_eq!(
            opened(&key, *kind, &envelope),
            Err(EnvelopeError::OtherKind)
        );
        let mut relabelled = envelope.clone();
        relabelled[1] = kind.number();
        assert_eq!(
            opened(&key, *kind, &relabelled),
            Err(EnvelopeError::NotAuthentic)
        );
    }
}

#[test]
fn another_column_s_key_does_not_open_even_under_its_own_id() {
    let (a, b) = (key(), ColumnKey::new([2; 16], key().key));
    let envelope = sealed(&a, Kind::Date, &[1, 2, 3, 4]);
    assert_eq!(
        opened(&b, Kind::Date, &envelope),
        Err(EnvelopeError::UnknownKey)
    );
    let mut relabelled = envelope;
    relabelled[4..20].fill(2);
    assert_eq!(
        opened(&b, Kind::Date, &relabelled),
        Err(EnvelopeError::NotAuthentic)
    );
}

/// What the specification says of it: nothing in an envelope tells which of two is the newer one.
#[test]
fn an_older_envelope_of_the_column_opens() {
    let key = key();
    let older = sealed(&key, Kind::Bool, &[1]);
    for _ in 0..3 {
        sealed(&key, Kind::Bool, &[0]);
    }
    assert_eq!(opened(&key, Kind::Bool, &older), Ok(vec![1]));
}

#[test]
fn no_two_envelopes_of_a_value_are_equal() {
    let key = key();
    let (a, b) = (
        sealed(&key, Kind::Int4, &[0, 0, 0, 1]),
        sealed(&key, Kind::Int4, &[0, 0, 0, 1]),
    );
    assert_eq!(a[..36], b[..36], "one salt");
    assert!(a[36..48] != b[36..48] && a[56..60] != b[56..60]);
}

#[test]
fn a_salt_is_used_no_more_often_than_it_may_be_whoever_seals() {
    let key = key();
    let many = usize::try_from(ENVELOPE_SALT_USES).unwrap();
    let seal_all = || {
        let (mut value, mut out) = (Vec::new(), Vec::new());
        let mut salts = Vec::new();
        for _ in 0..many {
            out.clear();
            value.push(1);
            key.seal(result(Kind::Bool), &mut value, &mut out).unwrap();
            let salt: [u8; 16] = out[20..36].try_into().unwrap();
            salts.push(salt);
        }
        salts
    };
    let mut salts = std::thread::scope(|scope| {
        let threads = [scope.spawn(seal_all), scope.spawn(seal_all)];
        threads.map(|thread| thread.join().unwrap()).concat()
    });
    assert_eq!(salts.len(), 2 * many);
    salts.sort_unstable();
    let distinct: BTreeSet<_> = salts.iter().collect();
    assert_eq!(distinct.len(), 2, "drawn when it has to be, and not before");
    let most = salts.chunk_by(|a, b| a == b).map(<[_]>::len).max();
    assert_eq!(most, Some(many));
}

#[test]
fn two_processes_have_salts_of_their_own() {
    let root = SecretKey::generate().unwrap();
    let client = ColumnKey::new([1; 16], root.try_clone().unwrap());
    let zone = ColumnKey::new([1; 16], root);
    let (a, b) = (
        sealed(&client, Kind::Bool, &[1]),
        sealed(&zone, Kind::Bool, &[1]),
    );
    assert_ne!(a[20..36], b[20..36]);
    assert_eq!(opened(&zone, Kind::Bool, &a), Ok(vec![1]));
    assert_eq!(opened(&client, Kind::Bool, &b), Ok(vec![1]));
}

#[test]
fn what_is_remembered_is_bounded_and_only_of_envelopes_that_opened() {
    let root = SecretKey::generate().unwrap();
    let reader = ColumnKey::new([1; 16], root.try_clone().unwrap());
    let remembered = || reader.opening.read().unwrap().len();
    let writer = || ColumnKey::new([1; 16], root.try_clone().unwrap());
    let envelopes: Vec<_> = (0..RECENT_MAX + 8)
        .map(|_| sealed(&writer(), Kind::Bool, &[1]))
        .collect();
    let mut forged = envelopes[0].clone();
    forged[20] ^= 1;
    assert_eq!(
        opened(&reader, Kind::Bool, &forged),
        Err(EnvelopeError::NotAuthentic)
    );
    assert_eq!(remembered(), 0);
    for envelope in envelopes.iter().chain(&envelopes) {
        assert_eq!(opened(&reader, Kind::Bool, envelope), Ok(vec![1]));
    }
    assert_eq!(remembered(), RECENT_MAX);
    // The one that is used stays.
    for envelope in &envelopes {
        opened(&reader, Kind::Bool, &envelopes[3]).unwrap();
        opened(&reader, Kind::Bool, envelope).unwrap();
    }
    let salt = envelopes[3][20..36].try_into().unwrap();
    assert!(reader.opening.read().unwrap().get(&salt).is_some());
}

#[test]
fn a_column_s_name_gives_its_lineage() {
    let path = ["app", "public", "staff", "salary"];
    let ordered = lineage_by_name(Class::Ordered, path);
    // SHA-256 of the label and the names, a zero byte before each: by another program.
    assert_eq!(ordered.number(), 0xed99_ff06_38ff_b6e2);
    assert_eq!(ordered.class(), Some(Class::Ordered));
    let opaque = lineage_by_name(Class::Opaque, path);
    assert_eq!(opaque.number(), ordered.number() & !3);
    for other in [
        ["app", "public", "staf", "fsalary"],
        ["app", "public", "staff", "Salary"],
        ["apppublic", "", "staff", "salary"],
        ["app2", "public", "staff", "salary"],
    ] {
        assert_ne!(lineage_by_name(Class::Ordered, other), ordered, "{other:?}");
    }
}

#[test]
fn what_is_said_of_a_value_is_authenticated() {
    let key = key();
    let column = lineage_by_name(Class::Ordered, ["a", "b", "c", "d"]);
    for (by, none) in [
        (SealedBy::Client, Lineage::CLIENT),
        (SealedBy::Zone, Lineage::RESULT),
    ] {
        let label = Label {
            kind: Kind::Bool,
            by,
            lineage: column,
        };
        let (mut value, mut envelope) = (vec![1], Vec::new());
        key.seal(label, &mut value, &mut envelope).unwrap();
        assert_eq!(opened(&key, Kind::Bool, &envelope), Ok(vec![1]));
        let mut of_none = envelope.clone();
        of_none[48..56].copy_from_slice(&none.number().to_le_bytes());
        let mut other_class = envelope.clone();
        other_class[48] ^= 2;
        envelope[2] ^= 3;
        for forged in [envelope, of_none, other_class] {
            let answer = opened(&key, Kind::Bool, &forged);
            assert_eq!(answer, Err(EnvelopeError::NotAuthentic), "{by:?}");
        }
    }
}

#[test]
fn a_result_opens_in_its_session_and_at_its_place_only() {
    let key = key();
    let (session, other) = ([5; 16], [6; 16]);
    let label = |serial| Label {
        by: SealedBy::Session { session, serial },
        ..result(Kind::Text)
    };
    let seal = |serial| {
        let mut envelope = Vec::new();
        let sealed = key.seal(label(serial), &mut b"a secret".to_vec(), &mut envelope);
        sealed.unwrap();
        envelope
    };
    let first = seal(1);
    assert_eq!(first.len(), RESULT_OVERHEAD + 16);
    let mut value = Vec::new();
    let header = key.open(Kind::Text, Some(&session), &first, &mut value);
    assert_eq!(header.map(|header| header.serial), Ok(1));
    assert_eq!(value, b"a secret");
    let refused = Err(EnvelopeError::NotAuthentic);
    assert_eq!(opened_in(&key, Kind::Text, Some(&other), &first), refused);
    assert_eq!(opened(&key, Kind::Text, &first), refused, "for nobody");
    let mut moved = first.clone();
    moved[56..64].copy_from_slice(&2_u64.to_le_bytes());
    assert_eq!(opened_in(&key, Kind::Text, Some(&session), &moved), refused);
    // Neither the zone's other envelopes as results, nor results as those.
    let mut dumped = sealed(&key, Kind::Text, b"a secret");
    dumped[2] = 3;
    dumped.splice(56..56, 1_u64.to_le_bytes());
    assert_eq!(
        opened_in(&key, Kind::Text, Some(&session), &dumped),
        refused
    );
    let mut result = first.clone();
    result[2] = 2;
    result.drain(56..64);
    assert_eq!(
        opened_in(&key, Kind::Text, Some(&session), &result),
        refused
    );
    for bit in 0..first.len() * 8 {
        let mut bad = first.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(
            opened_in(&key, Kind::Text, Some(&session), &bad).is_err(),
            "bit {bit}"
        );
    }
    for len in 0..first.len() {
        let cut = opened_in(&key, Kind::Text, Some(&session), &first[..len]);
        assert!(cut.is_err(), "{len} bytes");
    }
    let longer = [first.as_slice(), &[0]].concat();
    assert!(opened_in(&key, Kind::Text, Some(&session), &longer).is_err());
}

fn from_hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    strongroom_format::hex::from_hex(text).unwrap()
}

/// Made by `testing/vectors/envelope/generate.py`.
#[test]
fn a_second_implementation_s_envelopes_open_or_are_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../testing/vectors/envelope/envelopes.json");
    let text = std::fs::read_to_string(path).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let mut key: [u8; 32] = from_hex(&file["key"]).try_into().unwrap();
    let id = from_hex(&file["key_id"]).try_into().unwrap();
    let key = ColumnKey::new(id, SecretKey::take(&mut key).unwrap());
    let session = from_hex(&file["session"]).try_into().unwrap();
    let (mut right, mut wrong) = (0, 0);
    for case in file["cases"].as_array().unwrap() {
        let number = u8::try_from(case["kind"].as_u64().unwrap()).unwrap();
        let kind = Kind::from_number(number).unwrap();
        let answer = opened_in(&key, kind, Some(&session), &from_hex(&case["envelope"]));
        let name = &case["name"];
        if case["refuse"] == true {
            assert!(answer.is_err(), "{name}");
            wrong += 1;
        } else {
            assert_eq!(answer, Ok(from_hex(&case["value"])), "{name}");
            right += 1;
        }
    }
    assert_eq!((right, wrong), (16, 22));
}
