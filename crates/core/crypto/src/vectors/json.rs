//! Runs Wycheproof's JSON files, whose cases aim at the mistakes implementations have made.

use serde_json::Value;

use super::{GcmCase, Tally, fixed, from_hex};
use crate::kdf::hkdf_into;
use crate::{CryptoError, MacKey, PrivateKey, SecretKey};

/// Reads all cases of a file, with the group that each belongs to; checks algorithm and number of
/// cases against the file's own.
fn cases(text: &str, algorithm: &str) -> Vec<(Value, Value)> {
    let file: Value = serde_json::from_str(text).unwrap();
    assert_eq!(file["algorithm"], algorithm);
    let mut all = Vec::new();
    for group in file["testGroups"].as_array().unwrap() {
        for case in group["tests"].as_array().unwrap() {
            all.push((group.clone(), case.clone()));
        }
    }
    assert_eq!(file["numberOfTests"], all.len());
    all
}

/// Reads a field of hexadecimal digits.
fn bytes(case: &Value, name: &str) -> Vec<u8> {
    from_hex(case[name].as_str().unwrap())
}

/// Whether the case must be accepted; panics for a result that is neither valid nor invalid.
fn is_valid(case: &Value) -> bool {
    match case["result"].as_str().unwrap() {
        "valid" => true,
        "invalid" => false,
        other => panic!("result {other}: decide what it means"),
    }
}

/// Runs a file of AES-GCM cases, and counts them. Panics when one fails.
pub(super) fn aes_gcm(text: &str) -> Tally {
    let mut tally = Tally::default();
    for (group, case) in cases(text, "AES-GCM") {
        if group["keySize"] == 256 && group["ivSize"] == 128 && group["tagSize"] == 128 {
            aes_gcm_iv16(&case, &mut tally);
            continue;
        }
        let offered = group["keySize"] == 256 && group["ivSize"] == 96 && group["tagSize"] == 128;
        if !offered {
            tally.not_offered += 1;
            continue;
        }
        let gcm = GcmCase {
            key: bytes(&case, "key"),
            nonce: fixed(&bytes(&case, "iv")),
            aad: bytes(&case, "aad"),
            plain: is_valid(&case).then(|| bytes(&case, "msg")),
            sealed: bytes(&case, "ct"),
            tag: fixed(&bytes(&case, "tag")),
        };
        gcm.check(&mut tally, &case["tcId"].to_string());
    }
    tally
}

/// Runs a case with a nonce of 128 bits, and counts it; every such case of the file is valid and
/// has no associated data.
fn aes_gcm_iv16(case: &Value, tally: &mut Tally) {
    let id = &case["tcId"];
    assert!(
        is_valid(case) && bytes(case, "aad").is_empty(),
        "case {id} is of a kind that is not run"
    );
    let key = SecretKey::take(&mut fixed(&bytes(case, "key"))).unwrap();
    let key = crate::GcmIv16Key::new(&key).unwrap();
    let (nonce, tag) = (fixed(&bytes(case, "iv")), fixed(&bytes(case, "tag")));
    let (plain, sealed) = (bytes(case, "msg"), bytes(case, "ct"));
    let mut message = plain.clone();
    assert_eq!(key.seal(&nonce, &mut message).unwrap(), tag, "case {id}");
    assert_eq!(message, sealed, "case {id}");
    key.open(&nonce, &mut message, &tag).unwrap();
    assert_eq!(message, plain, "case {id}");
    tally.accepted += 1;
}

/// Runs a file of HKDF cases, and counts them. Panics when one fails.
pub(super) fn hkdf_sha256(text: &str) -> Tally {
    let mut tally = Tally::default();
    for (group, case) in cases(text, "HKDF-SHA-256") {
        let id = &case["tcId"];
        let (ikm, salt, info) = (
            bytes(&case, "ikm"),
            bytes(&case, "salt"),
            bytes(&case, "info"),
        );
        let mut okm = vec![0; usize::try_from(case["size"].as_u64().unwrap()).unwrap()];
        let derived = hkdf_into(&ikm, &salt, &info, &mut okm);
        if !is_valid(&case) {
            assert_eq!(
                derived,
                Err(CryptoError::TooLong),
                "case {id} must be refused"
            );
            tally.refused += 1;
            continue;
        }
        assert_eq!(derived, Ok(()), "case {id}");
        assert_eq!(okm, bytes(&case, "okm"), "case {id}");
        if group["keySize"] == 256 {
            // A shorter output of HKDF is a prefix of a longer one (RFC 5869, section 2.3).
            let ikm = SecretKey::take(&mut fixed(&ikm)).unwrap();
            let key = crate::hkdf(&ikm, &salt, &info).unwrap();
            let common = okm.len().min(32);
            assert_eq!(key.expose()[..common], okm[..common], "case {id}");
        }
        tally.accepted += 1;
    }
    tally
}

/// Runs a file of HMAC cases, and counts them. Panics when one fails.
pub(super) fn hmac_sha256(text: &str) -> Tally {
    let mut tally = Tally::default();
    for (group, case) in cases(text, "HMACSHA256") {
        if group["tagSize"] != 256 {
            tally.not_offered += 1;
            continue;
        }
        let id = &case["tcId"];
        let key = MacKey::from_bytes(&bytes(&case, "key")).unwrap();
        let (message, tag) = (bytes(&case, "msg"), fixed(&bytes(&case, "tag")));
        assert_eq!(key.verify(&[&message], &tag), is_valid(&case), "case {id}");
        if is_valid(&case) {
            assert_eq!(key.mac(&[&message]), tag, "case {id}");
            tally.accepted += 1;
        } else {
            tally.refused += 1;
        }
    }
    tally
}

/// Reads the private key of each group.
pub(super) fn oaep_keys(text: &str) -> Vec<PrivateKey> {
    let file: Value = serde_json::from_str(text).unwrap();
    let groups = file["testGroups"].as_array().unwrap().iter();
    groups
        .map(|group| PrivateKey::from_der(&bytes(group, "privateKeyPkcs8")).unwrap())
        .collect()
}

/// Runs a file of RSAES-OAEP cases, all of one key, and counts them. Panics when one fails.
pub(super) fn rsa_oaep(text: &str) -> Tally {
    let mut tally = Tally::default();
    let [key] = oaep_keys(text).try_into().ok().unwrap();
    for (group, case) in cases(text, "RSAES-OAEP") {
        let id = &case["tcId"];
        let digests = ["sha", "mgfSha"].map(|name| group[name].as_str());
        assert_eq!(
            (digests, key.bits()),
            (
                [Some("SHA-256"); 2],
                group["keySize"].as_u64().unwrap().try_into().unwrap()
            )
        );
        let (sealed, label) = (bytes(&case, "ct"), bytes(&case, "label"));
        let opened = key.open(&sealed, &label);
        if is_valid(&case) {
            let opened = opened.unwrap_or_else(|_| panic!("case {id}"));
            assert_eq!(opened.as_slice(), bytes(&case, "msg"), "case {id}");
            tally.accepted += 1;
        } else {
            assert!(opened.is_err(), "case {id} must be refused");
            tally.refused += 1;
        }
        // As a wrapped key it opens exactly when it is one of 32 bytes.
        let is_key = is_valid(&case) && bytes(&case, "msg").len() == 32;
        assert_eq!(key.unwrap(&sealed, &label).is_ok(), is_key, "case {id}");
    }
    tally
}
