//! Known answers for sealed pages, log frames and journal slots: testing/vectors/page, made by a
//! second implementation from the specification. Every file there is discovered and run; their
//! number is asserted.

use std::path::{Path, PathBuf};

use serde_json::Value;
use strongroom_crypto::SecretKey;
use strongroom_format::aad::Role;
use strongroom_format::header::{HEADER_LEN, ObjectKind};
use strongroom_format::journal::{JournalMark, JournalState, Segment};
use strongroom_format::sqlite::Prologue;
use strongroom_keyring::{Object, Opener, Purpose};

use crate::journal::{JournalHead, open_slot};
use crate::seal::{UnitKey, unit_key};
use crate::sealed::OpenedHeader;

/// Files that must be there: a vector that is not run is no test.
const POSITIVE: usize = 10;
const NEGATIVE: usize = 16;

/// Returns the directory of the known-answer vectors in the source tree.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testing/vectors")
}

/// Reads and parses a JSON file. Panics if it cannot be read.
fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Decodes a JSON string of hexadecimal digits. Panics if it is not one.
fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Returns a JSON number. Panics if it is not an unsigned one.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Opens the header vector of that name with its own opener, the last one that its steps name.
fn object(name: &str) -> Object {
    let made = json(&vectors().join("header").join(format!("{name}.json")));
    let steps = made["steps"].as_array().unwrap();
    let opener = steps
        .last()
        .map_or(&made["opener"], |step| &step["openers"][0]);
    let opener = match opener["kind"].as_str().unwrap() {
        "raw" => {
            let mut key: [u8; 32] = bytes(&opener["key"]).try_into().unwrap();
            Opener::raw(SecretKey::take(&mut key).unwrap())
        }
        _ => {
            let pass = strongroom_crypto::SecretBytes::take(&mut bytes(&opener["bytes"])).unwrap();
            Opener::passphrase(pass)
        }
    };
    let mut header = bytes(&made["header"]);
    header.resize(HEADER_LEN, 0);
    Object::open(&header, ObjectKind::Sqlite, &opener).unwrap()
}

/// Checks one page vector: sealing its plaintext gives its sealed bytes, and opening these the
/// plaintext. Panics otherwise.
fn page(vector: &Value, opened: &OpenedHeader) {
    let (plain, sealed) = (bytes(&vector["plain"]), bytes(&vector["sealed"]));
    let epoch = u32::try_from(number(&vector["epoch"])).unwrap();
    let cipher = opened.cipher(epoch).unwrap();
    let mut page = plain.clone();
    let nonce: [u8; 12] = bytes(&vector["nonce"]).try_into().unwrap();
    cipher
        .seal(number(&vector["number"]), &nonce, &mut page)
        .unwrap();
    assert_eq!(page, sealed, "sealed");
    cipher.open(number(&vector["number"]), &mut page).unwrap();
    assert_eq!(page, plain, "opened");
}

/// Derives the unit key of the vector's prologue for this role and purpose.
fn key_of(vector: &Value, opened: &OpenedHeader, role: Role, purpose: Purpose) -> UnitKey {
    let prologue = Prologue::parse(&bytes(&vector["prologue"])).unwrap();
    unit_key(&opened.object, &prologue, role, purpose).unwrap()
}

/// Runs one vector, and panics if the result is not the expected one. Returns whether it is one
/// that must be refused.
fn run(vector: &Value) -> bool {
    let opened = OpenedHeader::new(object(vector["header"].as_str().unwrap())).unwrap();
    let mut sealed = bytes(&vector["sealed"]);
    let test = vector["test"].as_str().unwrap();
    match test {
        "page" => page(vector, &opened),
        "refuse-page" => {
            let before = sealed.clone();
            assert!(
                opened
                    .current
                    .open(number(&vector["number"]), &mut sealed)
                    .is_err()
            );
            let data = sealed.len() - 32;
            let untouched_or_wiped =
                sealed[..data] == before[..data] || sealed[..data].iter().all(|&byte| byte == 0);
            assert!(untouched_or_wiped, "plaintext after a refusal");
        }
        "frame" | "refuse-frame" => {
            let key = key_of(vector, &opened, Role::WalFrame, Purpose::Wal);
            let opened = key.open(Role::WalFrame, number(&vector["index"]), &mut sealed);
            let expected = (test == "frame").then(|| bytes(&vector["plain"]));
            assert_eq!(opened.map(|plain| plain.to_vec()), expected);
        }
        "slot" | "refuse-slot" => {
            let key = key_of(vector, &opened, Role::Journal, Purpose::Journal);
            let opened = open_slot(&key, number(&vector["index"]), &mut sealed);
            let expected = (test == "slot").then(|| bytes(&vector["plain"]));
            assert_eq!(opened, expected);
        }
        "head" | "refuse-head" => {
            let head = JournalHead::parse(&sealed, &opened).unwrap().unwrap();
            let mark = head.mark.filter(|_| !head.mark_lost);
            let expected = (test == "head").then(|| JournalMark {
                sequence: number(&vector["sequence"]),
                state: JournalState::Counted,
                newest: Segment {
                    at: number(&vector["at"]),
                    records: u32::try_from(number(&vector["records"])).unwrap(),
                },
                length: number(&vector["length"]),
            });
            assert_eq!(mark, expected);
        }
        other => panic!("no such test: {other}"),
    }
    test.starts_with("refuse-")
}

/// Runs every vector in the directory, and checks how many were opened and how many refused.
#[test]
fn every_vector_of_pages_and_units() {
    let mut counts = [0, 0];
    for entry in std::fs::read_dir(vectors().join("page")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            println!("{}", path.display());
            counts[usize::from(run(&json(&path)))] += 1;
        }
    }
    assert_eq!(counts, [POSITIVE, NEGATIVE]);
}
