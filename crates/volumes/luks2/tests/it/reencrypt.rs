//! A re-encryption under way is recognised and not opened; metadata of one that no key holder made
//! is refused.
//!
//! Method: re-encryptions begun by cryptsetup in every direction and with every kind of resilience,
//! whose proof must verify; then every field that the proof covers changed, and re-encryptions
//! invented (CVE-2021-4122).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]

use crate::common;

use std::path::PathBuf;

use common::{PASS, Place, json_of, secret, with_json};
use serde_json::{Value, json};
use strongroom_luks2::{LuksError, Slots, read, unlock};

fn outcome(image: &[u8]) -> LuksError {
    let found = match read(image) {
        Ok(found) => found,
        Err(error) => return error,
    };
    match unlock(image, &found.header, &secret(PASS), &Slots::default()) {
        Err(error) => error,
        Ok(_) => panic!("a re-encryption under way was opened"),
    }
}

fn begun(place: &Place, name: &str, options: &[&str]) -> PathBuf {
    let path = place.image(name, 18, &[]);
    let words = [
        "reencrypt",
        "-q",
        "--init-only",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
    ];
    place.cryptsetup(&[&words, options].concat(), &path);
    path
}

#[test]
fn what_cryptsetup_has_begun_is_verified_and_named() {
    let place = Place::new();
    let ways: [&[&str]; 5] = [
        &[],
        &["--resilience", "journal"],
        &["--resilience", "none"],
        &["--resilience-hash", "sha512"],
        &[
            "--cipher",
            "aes-xts-plain64",
            "--key-size",
            "256",
            "--sector-size",
            "512",
        ],
    ];
    for (number, options) in ways.iter().enumerate() {
        let image = std::fs::read(begun(&place, &format!("v{number}"), options)).unwrap();
        let error = outcome(&image);
        assert!(
            matches!(error, LuksError::Reencrypting("its metadata was verified")),
            "{options:?}: {error}"
        );
    }
}

#[test]
fn encryption_in_place_and_decryption_are_verified_too() {
    let place = Place::new();
    let plain = place.path("plain");
    std::fs::File::create(&plain)
        .unwrap()
        .set_len(48 << 20)
        .unwrap();
    let common = [
        "reencrypt",
        "-q",
        "--init-only",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
    ];
    let encrypt = [
        "--encrypt",
        "--type",
        "luks2",
        "--reduce-device-size",
        "32M",
    ];
    place.cryptsetup(&[&common[..], &encrypt[..]].concat(), &plain);
    let error = outcome(&std::fs::read(&plain).unwrap());
    assert!(
        matches!(error, LuksError::Reencrypting("its metadata was verified")),
        "{error}"
    );

    let (volume, header) = (place.image("v", 18, &[]), place.path("header"));
    let decrypt = [
        "--decrypt",
        "--force-offline-reencrypt",
        "--header",
        header.to_str().unwrap(),
    ];
    place.cryptsetup(&[&common[..3], &decrypt[..]].concat(), &volume);
    let error = outcome(&std::fs::read(&header).unwrap());
    assert!(
        matches!(error, LuksError::Reencrypting("its metadata was verified")),
        "{error}"
    );
}

#[test]
fn a_key_for_one_side_only_verifies_nothing_and_opens_nothing() {
    let place = Place::new();
    let image = std::fs::read(begun(&place, "v", &[])).unwrap();
    let found = read(image.as_slice()).unwrap();
    for only in [vec![0], vec![1]] {
        let slots = Slots { only: Some(only) };
        let outcome = unlock(image.as_slice(), &found.header, &secret(PASS), &slots).err();
        assert!(
            matches!(outcome, Some(LuksError::Reencrypting(text)) if text.contains("could not be verified"))
        );
    }
    let wrong = unlock(
        image.as_slice(),
        &found.header,
        &secret("wrong"),
        &Slots::default(),
    );
    assert!(matches!(wrong.err(), Some(LuksError::WrongKey(_))));
}

#[test]
fn every_field_that_the_proof_covers_is_covered() {
    let place = Place::new();
    let image = std::fs::read(begun(&place, "v", &[])).unwrap();
    let json = json_of(&image);
    let slot = slot_of(&json);
    let changes = [
        (format!("/keyslots/{slot}/mode"), json!("decrypt")),
        (format!("/keyslots/{slot}/direction"), json!("backward")),
        (format!("/keyslots/{slot}/area/hash"), json!("sha512")),
        (format!("/keyslots/{slot}/area/sector_size"), json!(512)),
        (format!("/keyslots/{slot}/area/size"), json!("8192")),
        (format!("/keyslots/{slot}/area"), {
            let area = &json["keyslots"][&slot]["area"];
            json!({"type": "none", "offset": area["offset"], "size": area["size"]})
        }),
        (format!("/keyslots/{slot}/area"), {
            let area = &json["keyslots"][&slot]["area"];
            json!({"type": "journal", "offset": area["offset"], "size": area["size"]})
        }),
        ("/segments/1/offset".to_owned(), json!("16781312")),
        ("/segments/2/offset".to_owned(), json!("16781312")),
        ("/segments/1/iv_tweak".to_owned(), json!("8")),
        ("/segments/2/iv_tweak".to_owned(), json!("8")),
        ("/segments/2/size".to_owned(), json!("1048576")),
        ("/segments/1/flags".to_owned(), json!(["backup-final"])),
        (
            "/config/requirements/mandatory".to_owned(),
            json!(["online-reencrypt-v3"]),
        ),
        ("/config/requirements/mandatory".to_owned(), json!([])),
    ];
    for (pointer, new) in changes {
        let mut changed = json.clone();
        *changed.pointer_mut(&pointer).unwrap() = new.clone();
        assert_ne!(changed, json, "{pointer}");
        let error = outcome(&with_json(&image, &changed.to_string()));
        assert!(
            matches!(error, LuksError::Forged(_)),
            "{pointer} = {new}: {error}"
        );
    }
    // What was encrypted becomes "linear": the next resumption would write the data out in clear.
    let mut changed = json.clone();
    changed["segments"]["2"] = json!({"type": "linear", "offset": "16777216", "size": "dynamic", "flags": ["backup-final"]});
    for digest in changed["digests"].as_object_mut().unwrap().values_mut() {
        let segments = digest["segments"].as_array_mut().unwrap();
        segments.retain(|segment| segment != "2");
    }
    let error = outcome(&with_json(&image, &changed.to_string()));
    assert!(matches!(error, LuksError::Forged(_)), "{error}");
    // The previous and the last exchanged: the proof names them by order.
    let mut changed = json;
    changed["segments"]["1"]["flags"] = json!(["backup-final"]);
    changed["segments"]["2"]["flags"] = json!(["backup-previous"]);
    let error = outcome(&with_json(&image, &changed.to_string()));
    assert!(matches!(error, LuksError::Forged(_)), "{error}");
}

/// CVE-2021-4122: a volume at rest, dressed up as one whose decryption is under way.
#[test]
fn an_invented_decryption_is_refused_in_every_dress() {
    let place = Place::new();
    let image = std::fs::read(place.image("v", 18, &[])).unwrap();
    let json = json_of(&image);
    let dressed = |requirement: &str, proof: Option<Value>| {
        let mut json = json.clone();
        json["keyslots"]["1"] = json!({
            "type": "reencrypt", "mode": "decrypt", "direction": "forward", "key_size": 1, "priority": 0,
            "area": {"type": "none", "offset": "290816", "size": "4096"},
        });
        json["segments"]["1"] = json["segments"]["0"].clone();
        json["segments"]["1"]["flags"] = json!(["backup-previous"]);
        json["segments"]["2"] = json!({
            "type": "linear", "offset": "16777216", "size": "dynamic", "flags": ["backup-final"],
        });
        json["digests"]["0"]["segments"] = json!(["0", "1"]);
        json["config"]["requirements"] = json!({"mandatory": [requirement]});
        if let Some(proof) = proof {
            json["digests"]["1"] = proof;
        }
        outcome(&with_json(&image, &json.to_string()))
    };
    let mut proof = json["digests"]["0"].clone();
    proof["segments"] = json!([]);
    proof["keyslots"] = json!(["1"]);
    for version in [
        "online-reencrypt-v2",
        "online-reencrypt-v3",
        "online-reencrypt-v9",
    ] {
        assert!(matches!(dressed(version, None), LuksError::Forged(_)));
        assert!(matches!(
            dressed(version, Some(proof.clone())),
            LuksError::Forged(_)
        ));
    }
    // As written before the digest existed. Nobody can tell; so it is not believed.
    let old = dressed("online-reencrypt", None);
    assert!(
        matches!(old, LuksError::Reencrypting(text) if text.contains("no proof")),
        "{old}"
    );
    let offline = dressed("offline-reencrypt", None);
    assert!(matches!(offline, LuksError::Forged(_)), "{offline}");
}

/// The one slot that holds the rules.
fn slot_of(json: &Value) -> String {
    let slots = json["keyslots"].as_object().unwrap();
    let found = slots.iter().find(|(_, slot)| slot["type"] == "reencrypt");
    found.unwrap().0.clone()
}
