//! Headers damaged in every byte and in every member: noticed, named, never a panic.
//!
//! Method: headers made by cryptsetup, changed byte by byte; and changed member by member with the
//! checksum computed anew, because a checksum only stops chance.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use common::{
    BINARY, COPY, PASS, Place, header_of, json_of, secret, set_sequence, summed, with_json,
};
use serde_json::{Value, json};
use strongroom_luks2::{CopyState, LuksError, Slots, Which, read, unlock};

#[test]
fn every_changed_byte_of_one_copy_is_noticed_and_the_other_copy_serves() {
    let place = Place::new();
    let header = header_of(&place.image("v", 18, &["--label", "name"]));
    let whole = read(header.as_slice()).unwrap();
    assert_eq!(whole.warning(), None);
    assert!(whole.may_write());
    assert_eq!(whole.header.binary.label, "name");
    let mut header = header;
    for at in 0..2 * COPY {
        header[at] ^= 1 << (at % 8);
        let found = read(header.as_slice()).unwrap();
        assert!(found.warning().is_some(), "byte {at}");
        let (from, damaged) = match at < COPY {
            true => (Which::Secondary, &found.primary),
            false => (Which::Primary, &found.secondary),
        };
        assert_eq!(found.from, from, "byte {at}");
        assert!(!matches!(damaged, CopyState::Good(_)), "byte {at}");
        assert_eq!(found.header.metadata, whole.header.metadata, "byte {at}");
        assert_eq!(found.may_write(), at >= COPY, "byte {at}");
        header[at] ^= 1 << (at % 8);
    }
}

#[test]
fn the_same_byte_changed_in_both_copies_is_refused() {
    let place = Place::new();
    let mut header = header_of(&place.image("v", 18, &[]));
    for at in 0..COPY {
        for start in [0, COPY] {
            header[start + at] ^= 0x20;
        }
        let error = read(header.as_slice()).unwrap_err();
        match error {
            LuksError::Damaged(field) => assert!(!field.is_empty(), "byte {at}"),
            LuksError::NotLuks => assert!(at < 6, "byte {at}"),
            other => panic!("byte {at}: {other}"),
        }
        for start in [0, COPY] {
            header[start + at] ^= 0x20;
        }
    }
}

#[test]
fn a_header_that_was_cut_is_refused_or_read_from_what_is_left() {
    let place = Place::new();
    let header = header_of(&place.image("v", 18, &[]));
    for len in (0..header.len())
        .step_by(509)
        .chain([1, 7, 8, 4095, 4096, COPY - 1, COPY, COPY + 1])
    {
        let found = read(&header[..len]);
        if len < COPY {
            assert!(found.is_err(), "{len} bytes");
        } else {
            let found = found.unwrap();
            assert!(found.warning().is_some(), "{len} bytes");
            assert_eq!(found.from, Which::Primary);
        }
    }
    // A beginning that was overwritten: the secondary copy is found where it can be.
    for overwritten in [1, 512, 4096, COPY] {
        let mut header = header.clone();
        header[..overwritten].fill(0x55);
        assert_eq!(read(header.as_slice()).unwrap().from, Which::Secondary);
    }
}

#[test]
fn what_is_no_luks2_is_told_apart() {
    let place = Place::new();
    let old = place.path("luks1");
    std::fs::File::create(&old)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    let words = [
        "luksFormat",
        "-q",
        "--type",
        "luks1",
        "--pbkdf-force-iterations",
        "1000",
    ];
    place.cryptsetup(&words, &old);
    let old = std::fs::read(&old).unwrap();
    assert!(matches!(read(old.as_slice()), Err(LuksError::Luks1)));
    for other in [
        vec![],
        vec![0; 1 << 16],
        b"SQLite format 3\0".to_vec(),
        vec![0x55; 5 << 20],
    ] {
        assert!(matches!(read(other.as_slice()), Err(LuksError::NotLuks)));
    }
}

#[test]
fn sequence_ids_say_which_copy_counts() {
    let place = Place::new();
    let header = header_of(&place.image("v", 18, &[]));
    let sequences = |first: u64, second: u64| {
        let mut header = header.clone();
        set_sequence(&mut header, 0, first);
        set_sequence(&mut header, COPY, second);
        read(header.as_slice()).unwrap()
    };
    assert_eq!(sequences(7, 7).warning(), None);
    // A change that was interrupted after the first copy.
    let interrupted = sequences(8, 7);
    assert!(interrupted.may_write() && interrupted.warning().is_some());
    // Which no crash leaves behind.
    let strange = sequences(7, 8);
    assert!(!strange.may_write() && strange.warning().is_some());
    assert_eq!(strange.from, Which::Secondary);
    // Two different headers that both claim to be the newest.
    let mut json = json_of(&header);
    json["config"]["flags"] = json!(["allow-discards"]);
    let other = with_json(&header, &json.to_string());
    let mixed = [&header[..COPY], &other[COPY..]].concat();
    assert!(
        matches!(read(mixed.as_slice()), Err(LuksError::Damaged(field)) if field.contains("seqid"))
    );
}

/// What can be changed, with the checksums computed anew, without any reader noticing: the format
/// authenticates nothing. Where data lies and with which tweak; room that a key slot does not need;
/// what tokens say; the order of slots.
fn is_beyond_checking(path: &str, value: &str) -> bool {
    let place =
        ["offset", "size", "iv_tweak", "sector_size"].map(|name| format!("segments.0.{name}"));
    let there = place.iter().any(|known| known == path) || path == "keyslots.0.area.size";
    there || path.starts_with("tokens") || path == "keyslots.0.priority" && value != "added"
}

#[test]
fn every_member_changed_is_refused_or_opens_nothing() {
    let place = Place::new();
    let kinds: [&[&str]; 2] = [
        &[],
        &[
            "--pbkdf",
            "argon2id",
            "--pbkdf-memory",
            "32",
            "--pbkdf-force-iterations",
            "4",
            "--pbkdf-parallel",
            "1",
        ],
    ];
    for options in kinds {
        let path = place.image("v", 18, options);
        let image = std::fs::read(&path).unwrap();
        let mut json = json_of(&image);
        json["tokens"]["0"] = json!({"type": "other", "keyslots": ["0"], "more": {"a": 1}});
        json["keyslots"]["0"]["priority"] = json!(2);
        let good = with_json(&image, &json.to_string());
        let key = |image: &[u8]| {
            let found = read(image)?;
            unlock(image, &found.header, &secret(PASS), &Slots::default())
        };
        let known = key(&good).unwrap().key;
        let (mut refused, mut unopened) = (0, 0);
        for (path, text, changed) in changes(&json) {
            match key(&with_json(&image, &changed.to_string())) {
                Err(LuksError::Damaged(field)) => {
                    assert!(!field.is_empty(), "{path} = {text}");
                    refused += 1;
                }
                Err(LuksError::Io(..) | LuksError::Crypto(_)) => panic!("{path} = {text}"),
                Err(_) => unopened += 1,
                Ok(found) => {
                    assert_eq!(found.key.as_slice(), known.as_slice());
                    assert!(
                        is_beyond_checking(&path, &text),
                        "{path} = {text} was taken"
                    );
                }
            }
        }
        assert!(
            refused > 300 && unopened > 10,
            "{refused} refused, {unopened} unopened"
        );
    }
}

/// Each member removed, of every other type, and of values at and beyond its bounds; each object
/// with one member more.
fn changes(json: &Value) -> Vec<(String, String, Value)> {
    let mut paths = Vec::new();
    collect(json, String::new(), &mut paths);
    let mut out = Vec::new();
    for pointer in paths {
        let path = pointer.trim_start_matches('/').replace('/', ".");
        let now = json.pointer(&pointer).unwrap();
        for new in values_instead_of(now) {
            let mut changed = json.clone();
            *changed.pointer_mut(&pointer).unwrap() = new.clone();
            if changed != *json {
                out.push((path.clone(), new.to_string(), changed));
            }
        }
        let (parent, name) = pointer.rsplit_once('/').unwrap_or(("", ""));
        let mut changed = json.clone();
        if let Some(Value::Object(parent)) = changed.pointer_mut(parent)
            && parent.remove(name).is_some()
        {
            out.push((path.clone(), "removed".to_owned(), changed));
        }
        let mut changed = json.clone();
        if let Some(Value::Object(object)) = changed.pointer_mut(&pointer) {
            object.insert("unheard-of".to_owned(), json!(1));
            out.push((path, "added".to_owned(), changed));
        }
    }
    out
}

fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(object) => object
            .iter()
            .map(|(name, value)| (name.clone(), value))
            .collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(at, value)| (at.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    paths.push(path.clone());
    for (name, child) in children {
        collect(child, format!("{path}/{name}"), paths);
    }
}

fn values_instead_of(now: &Value) -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!(-1),
        json!(1.5),
        json!([[]]),
    ];
    match now {
        Value::String(text) if text.parse::<u64>().is_ok() => {
            values.extend(texts_instead_of(text.parse().unwrap()));
        }
        Value::String(text) => {
            for other in [
                "",
                "unheard-of",
                "\u{0}",
                "linear",
                "reencrypt",
                "sha1",
                "AAAA",
            ] {
                values.push(json!(other));
            }
            values.push(json!(format!("{text}A")));
            values.push(json!(text.replacen(
                |c: char| c.is_ascii_alphanumeric(),
                "9",
                1
            )));
            values.push(json!(1));
        }
        Value::Number(_) => {
            let number = now.as_u64().unwrap();
            for other in [
                0,
                1,
                number + 1,
                number * 2,
                1 << 24,
                u64::from(u32::MAX),
                1 << 32,
            ] {
                // What would only take long is tested by what it costs, not by waiting for it.
                if other != 1 << 24 || number != 1000 {
                    values.push(json!(other));
                }
            }
            values.push(json!(number.to_string()));
        }
        Value::Array(_) => {
            for other in [
                json!(["0", "0"]),
                json!(["31"]),
                json!([0]),
                json!(["x"]),
                json!(["0", "1"]),
            ] {
                values.push(other);
            }
        }
        _ => values.push(json!("text")),
    }
    values
}

/// Values at and beyond the bounds of a number that stands as text.
fn texts_instead_of(number: u64) -> Vec<Value> {
    let mut values = vec![json!(number)];
    for text in [
        "",
        "-1",
        "01",
        "1",
        "0x10",
        " 1",
        "dynamic",
        "31",
        "18446744073709551615",
        "18446744073709551616",
    ] {
        values.push(json!(text));
    }
    for near in [
        number.wrapping_add(512),
        number.wrapping_add(4096),
        number.wrapping_sub(512),
    ] {
        values.push(json!(near.to_string()));
    }
    values
}

#[test]
fn a_cost_without_reason_is_refused_before_it_costs_anything() {
    let place = Place::new();
    let image = std::fs::read(place.image("v", 18, &[])).unwrap();
    let json = json_of(&image);
    let salt = json["keyslots"]["0"]["kdf"]["salt"].clone();
    let argon2 = |time: u64, memory: u64, cpus: u64| json!({"type": "argon2id", "time": time, "memory": memory, "cpus": cpus, "salt": salt});
    let pbkdf2 = json!({"type": "pbkdf2", "hash": "sha256", "iterations": u32::MAX, "salt": salt});
    for kdf in [
        pbkdf2,
        argon2(1, u64::from(u32::MAX), 1),
        argon2(u64::from(u32::MAX), 1024, 1),
        argon2(1, 1 << 22 | 1, 4),
        argon2(1, 1024, 65),
    ] {
        let mut json = json.clone();
        json["keyslots"]["0"]["kdf"] = kdf.clone();
        let image = with_json(&image, &json.to_string());
        let found = read(image.as_slice()).unwrap();
        let outcome = unlock(
            image.as_slice(),
            &found.header,
            &secret(PASS),
            &Slots::default(),
        );
        assert!(matches!(outcome, Err(LuksError::Cost(_))), "{kdf}");
    }
}

#[test]
fn what_is_not_understood_is_not_opened() {
    let place = Place::new();
    let image = std::fs::read(place.image("v", 18, &[])).unwrap();
    let json = json_of(&image);
    let opened = |change: &dyn Fn(&mut Value)| {
        let mut json = json.clone();
        change(&mut json);
        let image = with_json(&image, &json.to_string());
        let found = read(image.as_slice())?;
        unlock(
            image.as_slice(),
            &found.header,
            &secret(PASS),
            &Slots::default(),
        )
    };
    assert!(opened(&|_| ()).is_ok());
    for requirement in [
        "opal",
        "inline-hw-tags",
        "online-reencrypt-v10",
        "unheard-of",
        "",
    ] {
        let outcome = opened(&|json| {
            json["config"]["requirements"] = json!({"mandatory": [requirement]});
        });
        assert!(
            matches!(outcome, Err(LuksError::Unsupported(_))),
            "{requirement}"
        );
    }
    let flagged = opened(&|json| json["segments"]["0"]["flags"] = json!(["unheard-of"]));
    assert!(matches!(flagged, Err(LuksError::Damaged(field)) if field == "segments.0.flags.0"));
    // Twice the same member: readers differ in which one they take.
    let text = json
        .to_string()
        .replacen("\"config\":{", "\"config\":{\"json_size\":\"12288\",", 1);
    let image = with_json(&image, &text);
    assert!(matches!(read(image.as_slice()), Err(LuksError::Damaged(_))));
}

#[test]
fn bytes_after_the_json_and_in_the_padding_are_refused() {
    let place = Place::new();
    let header = header_of(&place.image("v", 18, &[]));
    for at in [BINARY - 1, 264, 447, 480, 511, 512, COPY - 1, COPY - 100] {
        let mut header = header.clone();
        for start in [0, COPY] {
            if (480..512).contains(&at) {
                summed(&mut header, start);
                header[start + at] = 1;
            } else {
                header[start + at] = 1;
                summed(&mut header, start);
            }
        }
        assert!(
            matches!(read(header.as_slice()), Err(LuksError::Damaged(_))),
            "byte {at}"
        );
    }
}
