//! Runs the line-based vector files: NIST's `.rsp` and the RFCs' examples in the same layout.
//!
//! A file is a list of `name = value` lines; a line named `Count`, `COUNT` or `Len` starts a case.
//! `[ENCRYPT]` and `[DECRYPT]` give the direction of what follows; `FAIL` means "must be refused".

use std::collections::BTreeMap;

use super::{GcmCase, Tally, fixed, from_hex};
use crate::kdf::{argon2id_into, hkdf_into};
use crate::{Argon2Params, CtrKey, MacKey, SecretBytes, SecretKey, XtsKey};

#[derive(Default)]
struct Record {
    fields: BTreeMap<String, String>,
    must_fail: bool,
    direction: String,
}

impl Record {
    /// Returns a field; panics when there is none.
    fn text(&self, name: &str) -> &str {
        self.fields
            .get(name)
            .unwrap_or_else(|| panic!("no field {name}"))
    }

    /// Returns a field of hexadecimal digits as bytes.
    fn bytes(&self, name: &str) -> Vec<u8> {
        from_hex(self.text(name))
    }

    /// Returns a field as a decimal number.
    fn number(&self, name: &str) -> u32 {
        self.text(name).parse().unwrap()
    }
}

/// Splits a file into its cases.
fn records(text: &str) -> Vec<Record> {
    let mut all: Vec<Record> = Vec::new();
    let mut direction = String::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
        } else if let Some(header) = line.strip_prefix('[') {
            direction = header.trim_end_matches(']').to_owned();
        } else if line == "FAIL" {
            all.last_mut().unwrap().must_fail = true;
        } else {
            let (name, value) = line
                .split_once('=')
                .unwrap_or_else(|| panic!("line: {line}"));
            let (name, value) = (name.trim(), value.trim());
            if matches!(name, "Count" | "COUNT" | "Len") {
                all.push(Record {
                    direction: direction.clone(),
                    ..Record::default()
                });
            }
            let fields = &mut all.last_mut().unwrap().fields;
            let earlier = fields.insert(name.to_owned(), value.to_owned());
            assert!(earlier.is_none(), "{name} twice in one case");
        }
    }
    all
}

/// Makes an AES-GCM case of a record.
fn gcm_case(record: &Record) -> GcmCase {
    GcmCase {
        key: record.bytes("Key"),
        nonce: fixed(&record.bytes("IV")),
        aad: record.bytes("AAD"),
        plain: (!record.must_fail).then(|| record.bytes("PT")),
        sealed: record.bytes("CT"),
        tag: fixed(&record.bytes("Tag")),
    }
}

/// Runs a file of encryptions with AES-GCM, and counts them. Panics when one fails.
pub(super) fn gcm_encrypt(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        assert!(!record.must_fail, "an encryption cannot fail");
        gcm_case(&record).check(&mut tally, record.text("Key"));
    }
    tally
}

/// Runs a file of decryptions with AES-GCM, and counts them. Panics when one fails.
pub(super) fn gcm_decrypt(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        assert_ne!(
            record.must_fail,
            record.fields.contains_key("PT"),
            "one of the two"
        );
        gcm_case(&record).check(&mut tally, record.text("Key"));
    }
    tally
}

/// Runs a file of AES-XTS cases in both directions, and counts them. Panics when one fails.
pub(super) fn xts(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        assert!(["ENCRYPT", "DECRYPT"].contains(&record.direction.as_str()));
        // The length is in bits; the last byte of 130 bits is a part of one.
        if !record.number("DataUnitLen").is_multiple_of(128) {
            tally.not_offered += 1;
            continue;
        }
        let key = XtsKey::new(&SecretBytes::take(&mut record.bytes("Key")).unwrap()).unwrap();
        let (plain, sealed) = (record.bytes("PT"), record.bytes("CT"));
        let tweak = fixed(&record.bytes("i"));
        let mut out = vec![0; plain.len()];
        key.encrypt(&tweak, &plain, &mut out).unwrap();
        assert_eq!(out, sealed, "{}", record.text("Key"));
        key.decrypt(&tweak, &sealed, &mut out).unwrap();
        assert_eq!(out, plain, "{}", record.text("Key"));
        tally.accepted += 1;
    }
    tally
}

/// Runs a file of SHA-256 cases, also in parts, and counts them. Panics when one fails.
pub(super) fn sha256(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        // The length is in bits; the empty message is written as one zero byte.
        let len = usize::try_from(record.number("Len")).unwrap() / 8;
        let message = &record.bytes("Msg")[..len];
        assert_eq!(
            crate::sha256(&[message]).to_vec(),
            record.bytes("MD"),
            "length {len}"
        );
        let (head, tail) = message.split_at(len / 3);
        assert_eq!(
            crate::sha256(&[head, tail]).to_vec(),
            record.bytes("MD"),
            "length {len}"
        );
        if len <= 1 << 12 {
            let secret = SecretBytes::take(&mut tail.to_vec()).unwrap();
            let key = crate::sha256_key(head, &secret).unwrap();
            assert_eq!(key.expose().to_vec(), record.bytes("MD"), "length {len}");
        }
        tally.accepted += 1;
    }
    tally
}

/// Runs a file of HMAC cases, and counts them. Panics when one fails.
pub(super) fn hmac(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        let key = MacKey::from_bytes(&record.bytes("Key")).unwrap();
        let message = record.bytes("Msg");
        let tag = fixed(&record.bytes("MD"));
        assert_eq!(key.mac(&[&message]), tag);
        assert!(key.verify(&[&message], &tag));
        tally.accepted += 1;
    }
    tally
}

/// Runs a file of HKDF cases, and counts them. Panics when one fails.
pub(super) fn hkdf(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        let mut okm = vec![0; usize::try_from(record.number("L")).unwrap()];
        hkdf_into(
            &record.bytes("IKM"),
            &record.bytes("salt"),
            &record.bytes("info"),
            &mut okm,
        )
        .unwrap();
        assert_eq!(okm, record.bytes("OKM"));
        tally.accepted += 1;
    }
    tally
}

/// Runs a file of cases of AES in counter mode, and counts them. Panics when one fails.
pub(super) fn ctr(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        let key = SecretKey::take(&mut fixed(&record.bytes("KEY"))).unwrap();
        let key = CtrKey::new(&key).unwrap();
        let (from, to) = match record.direction.as_str() {
            "ENCRYPT" => ("PLAINTEXT", "CIPHERTEXT"),
            "DECRYPT" => ("CIPHERTEXT", "PLAINTEXT"),
            other => panic!("direction {other}"),
        };
        let mut bytes = record.bytes(from);
        key.apply(&fixed(&record.bytes("IV")), &mut bytes);
        assert_eq!(bytes, record.bytes(to));
        tally.accepted += 1;
    }
    tally
}

/// Runs a file of Argon2id cases, and counts them. Panics when one fails.
pub(super) fn argon2id(text: &str) -> Tally {
    let mut tally = Tally::default();
    for record in records(text) {
        if record.fields.contains_key("secret") || record.fields.contains_key("ad") {
            tally.not_offered += 1;
            continue;
        }
        let params = Argon2Params {
            m_kib: record.number("memcost"),
            t: record.number("iter"),
            p: record.number("lanes"),
        };
        let (mut pass, salt) = (record.bytes("pass"), record.bytes("salt"));
        let mut out = vec![0; usize::try_from(record.number("length")).unwrap()];
        argon2id_into(&pass, &salt, params, &mut out).unwrap();
        assert_eq!(out, record.bytes("output"), "{params:?}");
        if out.len() == 32 {
            let pass = SecretBytes::take(&mut pass).unwrap();
            let key = crate::argon2id(&pass, &salt, params).unwrap();
            assert_eq!(key.expose().to_vec(), record.bytes("output"), "{params:?}");
        }
        tally.accepted += 1;
    }
    tally
}
