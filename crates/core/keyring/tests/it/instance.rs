//! Blocks, streams and containers of an instance against a second implementation:
//! `testing/vectors/postgres`.
//!
//! Method: the files are discovered, and the number of cases is asserted. Keys are the sub-keys of
//! the header vectors, which the crate's own tests derive; format and primitives make of them what
//! the shield does, but for offsets.

#![expect(clippy::panic, reason = "a test that panics has failed")]

use std::path::PathBuf;

use serde_json::Value;
use strongroom_crypto::{CtrKey, GcmKey, SecretBytes, SecretKey, XtsKey};
use strongroom_format::header::{Cipher, ObjectKind};
use strongroom_format::postgres::container::{
    CONTAINER_CHUNK, CONTAINER_SEALED, ContainerHeader, chunk_offset, container_logical,
    container_physical,
};
use strongroom_format::postgres::stream::{STREAM_PREFIX, StreamHeader};
use strongroom_format::postgres::{
    Fork, SlruDirectory, relation_block, tail, tweak_control, tweak_map, tweak_relation,
    tweak_slru, tweak_wal, tweak_wal_unnamed,
};
use strongroom_keyring::{NewObject, Object, Purpose};

use crate::{code, raw, recipient};

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../testing/vectors")
        .join(name)
}

fn vector(folder: &str, name: &str) -> Value {
    let bytes = std::fs::read(directory(folder).join(name)).expect("a vector");
    serde_json::from_slice(&bytes).expect("JSON")
}

fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().expect("a string").as_bytes();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("digits")
        })
        .collect()
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a number")).expect("32 bits")
}

fn secret(value: &Value) -> SecretKey {
    let mut key: [u8; 32] = hex(value).try_into().expect("32 bytes");
    SecretKey::take(&mut key).expect("locked memory")
}

#[test]
fn every_vector_of_an_instance_is_met() {
    let mut cases = [0; 3];
    for entry in std::fs::read_dir(directory("postgres")).expect("vectors") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("a name");
        if !name.ends_with(".json") {
            continue;
        }
        let file = vector("postgres", name);
        let header = format!("{}.json", file["header"].as_str().expect("a header"));
        let keys = vector("header", &header)["subkeys"].clone();
        for case in file["cases"].as_array().expect("cases") {
            match file["test"].as_str() {
                Some("blocks") => block(case, &keys),
                Some("streams") => stream(case, &keys),
                Some("containers") => container(case, &keys),
                other => panic!("{name}: {other:?}"),
            }
        }
        let count = file["cases"].as_array().expect("cases").len();
        let kinds = ["blocks", "streams", "containers"];
        let kind = kinds.iter().position(|kind| file["test"] == *kind);
        cases[kind.expect("a kind")] += count;
    }
    assert_eq!(cases, [46, 3, 11], "vectors were added or lost");
}

fn tweak_of(address: &Value) -> [u8; 16] {
    let (kind, numbers) = address
        .as_object()
        .and_then(|one| one.iter().next())
        .expect("one kind of address");
    let at = |index: usize| number(&numbers[index]);
    match kind.as_str() {
        "relation" => {
            let fork = [Fork::Main, Fork::FreeSpace, Fork::Visibility, Fork::Init][at(2) as usize];
            let block = relation_block(at(4), at(5)).expect("a block");
            tweak_relation(at(0), at(1), fork, at(3).checked_sub(1), block).expect("a tweak")
        }
        "wal" => tweak_wal(at(0), at(1), at(2), at(3)),
        "unnamed" => tweak_wal_unnamed(at(0), at(1)),
        "slru" => {
            let all = [
                SlruDirectory::Xact,
                SlruDirectory::MultixactOffsets,
                SlruDirectory::MultixactMembers,
                SlruDirectory::Subtrans,
                SlruDirectory::CommitTs,
                SlruDirectory::Notify,
                SlruDirectory::Serial,
            ];
            let segment = numbers[1].as_u64().expect("a number");
            tweak_slru(all[at(0) as usize - 1], segment, at(2))
        }
        "control" => tweak_control(at(0)),
        "map" => tweak_map(at(0), at(1)),
        other => panic!("address {other}"),
    }
}

fn block(case: &Value, keys: &Value) {
    let what = &case["what"];
    let tweak = tweak_of(&case["address"]);
    assert_eq!(tweak.to_vec(), hex(&case["tweak"]), "{what}: tweak");
    let label = case["label"].as_str().expect("a label");
    let mut key = hex(&keys[label]);
    let key = XtsKey::new(&SecretBytes::take(&mut key).expect("memory")).expect("a key");
    let (plain, sealed) = (hex(&case["plain"]), hex(&case["sealed"]));
    // In transaction status files zeros are sealed like other bytes.
    if label != "pg-slru" && plain.len() == 8192 && plain.iter().all(|byte| *byte == 0) {
        assert_eq!(sealed, plain, "{what}: a block of zeros");
        return;
    }
    let whole = plain.len() / 16 * 16;
    let mut out = vec![0; plain.len()];
    key.encrypt(&tweak, &plain[..whole], &mut out[..whole])
        .expect("whole units");
    if whole < plain.len() {
        let unit = u32::try_from(whole / 16).expect("a unit");
        let (tweak, block) = tail(tweak, unit, plain.len() - whole).expect("a tail");
        let mut keystream = [0; 16];
        key.encrypt(&tweak, &block, &mut keystream).expect("a unit");
        for (at, stream) in (whole..plain.len()).zip(keystream) {
            out[at] = plain[at] ^ stream;
        }
    }
    assert_eq!(out, sealed, "{what}");
    key.decrypt(&tweak, &sealed[..whole], &mut out[..whole])
        .expect("whole units");
    assert_eq!(out[..whole], plain[..whole], "{what}: back");
}

fn stream(case: &Value, keys: &Value) {
    let header = StreamHeader::parse(&hex(&case["file_header"])).expect("a header");
    assert_eq!(header.nonce.to_vec(), hex(&case["nonce"]));
    assert_eq!(header.prefix().to_vec(), hex(&case["file_header"]));
    assert_eq!(header.prefix().len(), STREAM_PREFIX);
    let key = CtrKey::new(&secret(&keys["pg-stream"])).expect("a key");
    let (plain, sealed) = (hex(&case["plain"]), hex(&case["sealed"]));
    for from in [0, 1, 15, 16, 17, 33] {
        let mut part = sealed[from..].to_vec();
        key.apply_at(&header.nonce, from as u64, &mut part);
        assert_eq!(part, plain[from..], "from {from}");
    }
}

fn container(case: &Value, keys: &Value) {
    let (plain, file) = (hex(&case["plain"]), hex(&case["file"]));
    let (logical, physical) = (plain.len() as u64, file.len() as u64);
    assert_eq!(container_physical(logical), Some(physical));
    assert_eq!(container_logical(physical), Some(logical));
    if plain.is_empty() {
        return;
    }
    let header = ContainerHeader::parse(&file).expect("a header");
    assert_eq!(header.file_id.to_vec(), hex(&case["file_id"]));
    let text = case["name"].as_str();
    assert_eq!(header.bound, text.is_some());
    let digest = strongroom_crypto::sha256(&[text.unwrap_or_default().as_bytes()]);
    let name = *digest.first_chunk::<16>().expect("a digest");
    let key = GcmKey::new(&secret(&keys["pg-container"])).expect("a key");
    let mut opened = Vec::new();
    for index in 0..=logical / CONTAINER_CHUNK as u64 {
        let start = usize::try_from(chunk_offset(index).expect("an offset")).expect("in the file");
        let chunk = &file[start..file.len().min(start + CONTAINER_SEALED)];
        let (nonce, rest) = chunk.split_first_chunk::<12>().expect("a nonce");
        let (data, tag) = rest.split_last_chunk::<16>().expect("a tag");
        let mut data = data.to_vec();
        let place = header.chunk(index, &name);
        key.open(nonce, place.as_bytes(), &mut data, tag)
            .expect("an authentic chunk");
        opened.extend(data);
        let mut others = vec![header.chunk(index + 1, &name)];
        if header.bound {
            others.push(header.chunk(index, &[0; 16]));
        }
        for other in others {
            let mut data = chunk[12..chunk.len() - 16].to_vec();
            let elsewhere = key.open(nonce, other.as_bytes(), &mut data, tag);
            assert!(elsewhere.is_err(), "a chunk belongs to its place and name");
        }
    }
    assert_eq!(opened, plain);
}

#[test]
fn an_instance_has_xts_keys_of_its_ciphers_length_and_no_anchors() {
    for (cipher, len) in [(Cipher::Aes128Xts, 32), (Cipher::Aes256Xts, 64)] {
        let object =
            Object::create(&NewObject::instance(cipher), &recipient(&raw(1))).expect("an object");
        let bytes = object.initial_bytes();
        assert!(bytes[3072..].iter().all(|byte| *byte == 0), "no anchors");
        let opened = Object::open(&bytes, ObjectKind::Postgres, &raw(1)).expect("it opens");
        assert_eq!(code(opened.anchor(&bytes)), 3010);
        let mut seen = std::collections::BTreeSet::new();
        for purpose in [
            Purpose::PgRelation,
            Purpose::PgWal,
            Purpose::PgSlru,
            Purpose::PgControl,
            Purpose::PgMap,
        ] {
            let key = opened.xts_subkey(1, purpose).expect("a key");
            assert_eq!(key.len(), len);
            assert!(XtsKey::new(&key).is_ok());
            seen.insert(key.as_slice().to_vec());
            assert_eq!(code(opened.xts_subkey(2, purpose)), 4008);
        }
        assert_eq!(seen.len(), 5, "each purpose has a key of its own");
    }
    let database = crate::new_object(&raw(1));
    assert_eq!(code(database.xts_subkey(1, Purpose::PgRelation)), 9001);
}

/// A rotation: both epochs' keys are at hand until it is finished, and then only the new one's.
#[test]
fn an_instance_can_be_rekeyed() {
    let new = NewObject::instance(Cipher::Aes256Xts);
    let before = Object::create(&new, &recipient(&raw(1))).expect("an object");
    let during = before.rekey_begun(&[&recipient(&raw(1))]).expect("begun");
    let same = |one: &Object, other: &Object, epoch| {
        let key = |object: &Object| object.xts_subkey(epoch, Purpose::PgWal).expect("a key");
        key(one).as_slice() == key(other).as_slice()
    };
    assert!(same(&before, &during, 1));
    let after = during.rekey_finished().expect("finished");
    assert!(same(&during, &after, 2));
    assert_eq!(code(after.xts_subkey(1, Purpose::PgWal)), 4008);
    let bytes = after.initial_bytes();
    assert!(bytes[3072..].iter().all(|byte| *byte == 0), "no anchors");
}
