//! The known-answer vectors in testing/vectors/header: made from the specification by another
//! implementation (`generate.py` beside them), read here byte for byte. A file of an unknown kind
//! fails the test.

use serde_json::Value;
use strongroom_crypto::{PrivateKey, SecretBytes, SecretKey};
use strongroom_format::header::{Anchor, Cipher, ObjectKind};
use strongroom_format::slot::SlotKind;

use crate::Argon2Params;
use crate::error::Error;
use crate::fresh::Fresh;
use crate::object::{NewObject, Object};
use crate::opener::Opener;
use crate::purpose::Purpose;
use crate::recipient::Recipient;
use crate::symmetric_key::KeyVersion;

const DIRECTORY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../testing/vectors/header"
);
const FILES_MAKE: usize = 10;
const FILES_OPEN: usize = 4;
const FILES_REFUSE: usize = 49;

/// The inputs of one vector, in the order in which they are asked for.
struct Fixed {
    ids: Vec<Vec<u8>>,
    keys: Vec<Vec<u8>>,
    salts: Vec<Vec<u8>>,
    nonces: Vec<Vec<u8>>,
    now_unix_s: u64,
}

/// Takes the first input from the queue. Panics when it is empty, or the input has another length.
fn next<const N: usize>(queue: &mut Vec<Vec<u8>>) -> [u8; N] {
    queue
        .remove(0)
        .try_into()
        .expect("an input of the right length")
}

impl Fresh for Fixed {
    /// Returns the next object id of the vector. Panics when there is none left, as those below do;
    /// never fails.
    fn id(&mut self) -> Result<[u8; 16], Error> {
        Ok(next(&mut self.ids))
    }

    /// Returns the next salt of the vector.
    fn salt(&mut self) -> Result<[u8; 32], Error> {
        Ok(next(&mut self.salts))
    }

    /// Returns the next key of the vector, in locked memory. Errors: SR-5001 without memory for
    /// keys.
    fn key(&mut self) -> Result<SecretKey, Error> {
        Ok(SecretKey::take(&mut next(&mut self.keys))?)
    }

    /// Returns the next nonce of the vector.
    fn nonce(&mut self) -> Result<[u8; 12], Error> {
        Ok(next(&mut self.nonces))
    }

    /// Returns the time of the vector, in seconds since the Unix epoch.
    fn now_unix_s(&mut self) -> u64 {
        self.now_unix_s
    }
}

/// Tests every file of the directory, by its kind, and that there are as many of each kind as
/// expected.
#[test]
fn every_vector_is_met() {
    let (mut made, mut opened, mut refused) = (0, 0, 0);
    for entry in std::fs::read_dir(DIRECTORY).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if ["generate.py", "README.md"].contains(&name.as_str()) {
            continue;
        }
        let vector: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        match text(&vector["test"]) {
            "make" => {
                makes(&name, &vector);
                made += 1;
            }
            "open" => {
                opens(&name, &vector);
                opened += 1;
            }
            "refuse" => {
                refuses(&name, &vector);
                refused += 1;
            }
            other => panic!("{name}: unknown test {other}"),
        }
    }
    assert_eq!(
        (made, opened, refused),
        (FILES_MAKE, FILES_OPEN, FILES_REFUSE),
        "vector files were added or lost"
    );
}

/// Makes an object of the vector's inputs and changes it by its steps, and checks its header byte
/// for byte, that no input is left over, and that every opener of the vector opens it.
fn makes(name: &str, vector: &Value) {
    let queue = |what: &str| -> Vec<Vec<u8>> {
        vector["inputs"][what]
            .as_array()
            .unwrap()
            .iter()
            .map(hex)
            .collect()
    };
    let mut fresh = Fixed {
        ids: queue("ids"),
        keys: queue("keys"),
        salts: queue("salts"),
        nonces: queue("nonces"),
        now_unix_s: vector["created_unix_s"].as_u64().unwrap(),
    };
    let new = NewObject {
        kind: kind(vector),
        cipher: match number(&vector["cipher"]) {
            1 => Cipher::Aes256Gcm,
            2 => Cipher::Aes256Ctr,
            3 => Cipher::Aes128Xts,
            _ => Cipher::Aes256Xts,
        },
        unit_size: number(&vector["unit_size"]),
        unit_reserve: number(&vector["unit_reserve"]),
    };
    let mut openers = vec![opener(&vector["opener"])];
    let mut object = Object::create_with(&mut fresh, &new, &recipient(&vector["opener"])).unwrap();
    for step in vector["steps"].as_array().unwrap() {
        let given = step["openers"].as_array().unwrap();
        let recipients: Vec<Recipient> = given.iter().map(recipient).collect();
        let borrowed: Vec<&Recipient> = recipients.iter().collect();
        object = match text(&step["do"]) {
            "rewrapped" => object.rewrapped_with(&mut fresh, &borrowed).unwrap(),
            "rekey_begun" => object.rekey_begun_with(&mut fresh, &borrowed).unwrap(),
            "rekey_finished" => object.rekey_finished().unwrap(),
            other => panic!("{name}: unknown step {other}"),
        };
        if !given.is_empty() {
            openers = given.iter().map(opener).collect();
        }
    }
    assert_eq!(
        object.header_bytes(),
        hex(&vector["header"]),
        "{name}: header"
    );
    let unused = [&fresh.ids, &fresh.keys, &fresh.salts, &fresh.nonces];
    assert!(
        unused.iter().all(|queue| queue.is_empty()),
        "{name}: unused inputs"
    );

    for opener in &openers {
        let opened = Object::open(&hex(&vector["header"]), new.kind, opener).unwrap();
        meets(name, vector, &opened);
    }
    meets(name, vector, &object);
}

/// Checks the epoch, the sub-keys and the anchors of an object against the vector's.
fn meets(name: &str, vector: &Value, object: &Object) {
    assert_eq!(object.epoch(), number(&vector["epoch"]), "{name}");
    let sub_keys = vector["subkeys"].as_object().unwrap();
    assert_eq!(sub_keys.len(), 7, "{name}");
    for (label, expected) in sub_keys {
        let purpose = match label.as_str() {
            "page" => Purpose::Page,
            "page-iv" => Purpose::PageIv,
            "wal" => Purpose::Wal,
            "journal" => Purpose::Journal,
            "super-journal" => Purpose::SuperJournal,
            "keyring-entries" => Purpose::KeyringEntries,
            "keyring-body" => Purpose::KeyringBody,
            "pg-relation" => Purpose::PgRelation,
            "pg-wal" => Purpose::PgWal,
            "pg-slru" => Purpose::PgSlru,
            "pg-control" => Purpose::PgControl,
            "pg-map" => Purpose::PgMap,
            "pg-stream" => Purpose::PgStream,
            "pg-container" => Purpose::PgContainer,
            other => panic!("{name}: unknown label {other}"),
        };
        let epoch = object.epoch();
        let xts = label.starts_with("pg-") && !["pg-stream", "pg-container"].contains(&&**label);
        if xts {
            let key = object.xts_subkey(epoch, purpose).unwrap();
            assert_eq!(key.as_slice(), hex(expected), "{name}: {label}");
        } else {
            let key = object.subkey(epoch, purpose).unwrap();
            assert_eq!(key.expose().as_slice(), hex(expected), "{name}: {label}");
        }
    }
    if !vector["anchor"].is_null() {
        meets_anchor(name, &vector["anchor"], object);
    }
    let anchor = hex(&vector["first_anchor"]);
    let initial = object.initial_bytes();
    assert_eq!(
        &initial[3072..3072 + anchor.len()],
        anchor,
        "{name}: first anchor"
    );
    assert!(
        initial[3072 + anchor.len()..].iter().all(|byte| *byte == 0),
        "{name}"
    );
    assert_eq!(
        object.anchor(&initial).is_ok(),
        !anchor.is_empty(),
        "{name}"
    );
}

/// Checks that the object seals the vector's anchor, which names a log and counts seals, and reads
/// it back.
fn meets_anchor(name: &str, anchor: &Value, object: &Object) {
    let generation = hex(&anchor["wal_generation"]).try_into().unwrap();
    let (sequence, seals) = (
        anchor["sequence"].as_u64().unwrap(),
        anchor["seals"].as_u64().unwrap(),
    );
    let sealed = object
        .seal_anchor(sequence, generation, None, seals)
        .unwrap();
    let sector = hex(&anchor["sector"]);
    assert_eq!(sealed.to_bytes().as_slice(), sector, "{name}: anchor");
    let mut header = object.initial_bytes();
    let at = Anchor::offset(sequence);
    header[at..at + sector.len()].copy_from_slice(&sector);
    let found = object.anchor(&header).unwrap();
    assert_eq!((found.sequence, found.seals), (sequence, seals), "{name}");
}

/// Checks that each opener of the vector opens its header, which was made elsewhere, and that a
/// rewrite of it is followed without the opener.
fn opens(name: &str, vector: &Value) {
    let header = hex(&vector["header"]);
    let openers = vector["openers"].as_array().unwrap();
    assert!(!openers.is_empty(), "{name}");
    for value in openers {
        let object = Object::open(&header, kind(vector), &opener(value));
        let object = object.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(object.opened_by().name(), text(&value["kind"]), "{name}");
        meets(name, vector, &object);
        // Following a rekey takes the slot's own key-encryption key only, not the private key.
        let next = object.rewrapped(&[&Opener::raw(key(&value_of_a_key())).recipient().unwrap()]);
        assert!(object.reload(&next.unwrap().header_bytes()).is_ok());
    }
}

/// Returns a raw key in the form of a vector, for a recipient that no vector has.
fn value_of_a_key() -> Value {
    Value::String("07".repeat(32))
}

/// Checks that opening the vector's header fails with the vector's error code.
fn refuses(name: &str, vector: &Value) {
    let outcome = Object::open(
        &hex(&vector["header"]),
        kind(vector),
        &opener(&vector["opener"]),
    );
    let code = outcome.err().map(|error| u32::from(error.code().number));
    assert_eq!(code, Some(number(&vector["error"])), "{name}");
}

/// Makes the opener that the vector describes.
fn opener(value: &Value) -> Opener {
    match text(&value["kind"]) {
        "raw" => Opener::raw(key(&value["key"])),
        "passphrase" => {
            let secret = SecretBytes::take(&mut hex(&value["bytes"])).unwrap();
            Opener::passphrase(secret)
        }
        "certificate" => {
            let private = PrivateKey::from_der(&hex(&value["pkcs8"])).unwrap();
            Opener::private_keys(vec![private])
        }
        _ => {
            let versions = value["versions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|version| KeyVersion {
                    version: number(&version["version"]),
                    active: version["active"].as_bool().unwrap(),
                    key: key(&version["key"]),
                });
            Opener::keyring(text(&value["id"]).to_owned(), versions.collect())
        }
    }
}

/// Makes the recipient whose slots the described opener opens, with the described Argon2id cost.
fn recipient(value: &Value) -> Recipient {
    let recipient = opener(value).recipient().unwrap();
    if text(&value["kind"]) != "passphrase" {
        return recipient;
    }
    let (m_kib, t, p) = (
        number(&value["m_kib"]),
        number(&value["t"]),
        number(&value["p"]),
    );
    recipient.with_argon2(Argon2Params { m_kib, t, p }).unwrap()
}

/// Tests which slots the opener of a keyring's key opens and seals, and with which code it fails
/// for another version, name or key.
#[test]
fn a_keyring_opener_opens_old_versions_and_seals_with_the_newest_active_one() {
    let version = |version, active, byte: u8| KeyVersion {
        version,
        active,
        key: SecretKey::take(&mut [byte; 32]).unwrap(),
    };
    let new = NewObject {
        kind: ObjectKind::Sqlite,
        cipher: Cipher::Aes256Gcm,
        unit_size: 4096,
        unit_reserve: 32,
    };
    let before = Opener::keyring("k".to_owned(), vec![version(1, true, 1)]);
    let after = Opener::keyring(
        "k".to_owned(),
        vec![version(1, false, 1), version(2, true, 2)],
    );
    let old = Object::create(&new, &before.recipient().unwrap()).unwrap();
    let opened = Object::open(&old.header_bytes(), ObjectKind::Sqlite, &after).unwrap();
    assert_eq!(
        *opened.opened_by(),
        SlotKind::Keyring {
            id: "k".to_owned(),
            version: 1
        }
    );
    let rewrapped = opened.rewrapped(&[&after.recipient().unwrap()]).unwrap();
    assert_eq!(
        *rewrapped.opened_by(),
        SlotKind::Keyring {
            id: "k".to_owned(),
            version: 2
        }
    );
    let code = |outcome: Result<Object, Error>| outcome.err().unwrap().code().number;
    let bytes = rewrapped.header_bytes();
    assert_eq!(
        code(Object::open(&bytes, ObjectKind::Sqlite, &before)),
        2003
    );
    let other_name = Opener::keyring("j".to_owned(), vec![version(2, true, 2)]);
    assert_eq!(
        code(Object::open(&bytes, ObjectKind::Sqlite, &other_name)),
        2002
    );
    let other_key = Opener::keyring("k".to_owned(), vec![version(2, true, 3)]);
    assert_eq!(
        code(Object::open(&bytes, ObjectKind::Sqlite, &other_key)),
        2002
    );
    let retired = Opener::keyring("k".to_owned(), vec![version(1, false, 1)]);
    assert_eq!(
        code(Object::create(&new, &retired.recipient().unwrap())),
        2012
    );
}

/// Returns the kind of object that the vector names by its number.
fn kind(vector: &Value) -> ObjectKind {
    match number(&vector["kind"]) {
        1 => ObjectKind::Sqlite,
        2 => ObjectKind::Keyring,
        3 => ObjectKind::Postgres,
        5 => ObjectKind::Backup,
        other => panic!("kind {other}"),
    }
}

/// Reads a key of 64 hexadecimal digits.
fn key(value: &Value) -> SecretKey {
    SecretKey::take(&mut hex(value).try_into().expect("32 bytes")).unwrap()
}

/// Reads hexadecimal digits as bytes.
fn hex(value: &Value) -> Vec<u8> {
    let digits = text(value).as_bytes();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

/// Reads a number below 2^32; panics on anything else.
fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a number")).unwrap()
}

/// Reads a text; panics on anything else.
fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}
