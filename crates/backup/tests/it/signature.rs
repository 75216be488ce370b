//! Goal: a set that is taken for a signed one is the set that the holder of the key has made, whole
//! and at its place.
//! Method: real media on which signatures, heads and families are changed, exchanged, cut,
//! removed.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::process::Command;

use common::{Place, key, made, options, put, signing_key};
use strongroom_backup::{
    CreateOptions, Error, LocalStore, Others, expire, open_chain, open_set, rewrap_set, verify,
};
use strongroom_crypto::{SigningKey, VerifyingKey};
use strongroom_format::backup_signature::SignatureRecord;
use strongroom_format::code::{self, Code};
use strongroom_format::hex;
use strongroom_keyring::Opener;

fn signed<'a>(key: &'a SigningKey, opener: Option<&Opener>) -> CreateOptions<'a> {
    CreateOptions {
        sign_key: Some(key),
        ..options(opener)
    }
}

fn read(
    store: &LocalStore,
    set: Option<u32>,
    opener: Option<&Opener>,
    keys: &[VerifyingKey],
) -> Result<(), Error> {
    let mut set = open_set(store, set, opener)?;
    set.check_signed_by(keys)?;
    let verified = verify(&set, 2, &mut |_| {})?;
    // The signature says who made it.
    assert_eq!(verified.not_checked.len(), 1, "{:?}", verified.not_checked);
    Ok(())
}

fn signature(place: &Place, set_id: &str) -> std::path::PathBuf {
    place.at(&format!("medium/data/{set_id}.signature"))
}

#[track_caller]
fn refused(result: Result<(), Error>, code: &'static Code) {
    assert_eq!(result.unwrap_err().code(), code);
}

#[test]
fn a_signature_holds_for_its_set_alone() {
    let place = Place::new();
    let tree = place.tree(2_500_000);
    let opener = key();
    let (ours, theirs) = (
        signing_key(&place.at("ours")),
        signing_key(&place.at("theirs")),
    );
    let keys = [ours.public().clone()];
    for opener in [Some(&opener), None] {
        let place = Place::new();
        let store = place.medium();
        let signed = |key| CreateOptions {
            sign_key: key,
            stripes: Some(2),
            ..options(opener)
        };
        let first = made(&store, &tree, &signed(Some(&ours))).unwrap();
        let second = made(&store, &tree, &signed(Some(&ours))).unwrap();
        let ids = [first, second].map(|made| made.description.set_id);
        for set in [Some(1), Some(2), None] {
            read(&store, set, opener, &keys).unwrap();
        }
        refused(
            read(&store, None, opener, &[theirs.public().clone()]),
            &code::SET_SIGNATURE,
        );
        let both = [theirs.public().clone(), ours.public().clone()];
        read(&store, None, opener, &both).unwrap();

        let file = signature(&place, &ids[0]);
        let good = fs::read(&file).unwrap();
        assert_eq!(good.len(), 128);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            put(&file, &bad);
            let answer = read(&store, Some(1), opener, &keys).unwrap_err();
            let told = [&code::SET_SIGNATURE, &code::NEWER_FORMAT];
            assert!(told.contains(&answer.code()), "{bit}: {answer}");
        }
        for length in 0..good.len() {
            put(&file, &good[..length]);
            refused(read(&store, Some(1), opener, &keys), &code::SET_SIGNATURE);
        }
        put(&file, &[&good[..], &[0]].concat());
        refused(read(&store, Some(1), opener, &keys), &code::SET_SIGNATURE);
        // Another set's, as it is, and with this set's id.
        let mut other = fs::read(signature(&place, &ids[1])).unwrap();
        put(&file, &other);
        refused(read(&store, Some(1), opener, &keys), &code::SET_SIGNATURE);
        other[16..32].copy_from_slice(&good[16..32]);
        put(&file, &other);
        refused(read(&store, Some(1), opener, &keys), &code::SET_SIGNATURE);
        fs::remove_file(&file).unwrap();
        refused(read(&store, Some(1), opener, &keys), &code::SET_UNSIGNED);
        put(&file, &good);
        read(&store, Some(1), opener, &keys).unwrap();

        // The newest has to be signed: an older one is not taken in its place.
        made(&store, &tree, &signed(None)).unwrap();
        refused(read(&store, None, opener, &keys), &code::SET_UNSIGNED);
        let mut chain = open_chain(&store, None, opener).unwrap();
        assert!(chain.check_signed_by(&keys).is_err());
        // Nor a set that another has signed.
        made(&store, &tree, &signed(Some(&theirs))).unwrap();
        refused(read(&store, None, opener, &keys), &code::SET_SIGNATURE);
    }
}

#[test]
fn whoever_may_open_the_set_can_change_without_its_signature() {
    let place = Place::new();
    let tree = place.tree(1000);
    let (old, new) = (key(), key());
    let ours = signing_key(&place.at("ours"));
    let wanted = signed(&ours, Some(&old));
    let store = place.medium();
    made(&store, &tree, &wanted).unwrap();
    rewrap_set(&store, 1, &old, &[&new.recipient().unwrap()], Others::Drop).unwrap();
    read(&store, None, Some(&new), &[ours.public().clone()]).unwrap();
}

/// One host may sign the sets of several media.
#[test]
fn a_signed_set_of_another_medium_is_refused() {
    let place = Place::new();
    let tree = place.tree(200_000);
    let key = signing_key(&place.at("signer"));
    let keys = [key.public().clone()];
    let signed = signed(&key, None);
    let media = ["one", "two"].map(|name| LocalStore::new(&place.at(name)));
    for store in &media {
        made(store, &tree, &signed).unwrap();
    }
    made(&media[0], &tree, &signed).unwrap();
    read(&media[0], Some(2), None, &keys).unwrap();
    // Beside the medium's own sets, and in the place of one.
    for head in ["sets/00000002", "sets/00000001"] {
        let mut copy = Command::new("cp");
        copy.arg("-a")
            .arg(place.at("one").join("data/."))
            .arg(place.at("two").join("data"));
        assert!(copy.status().unwrap().success());
        fs::copy(place.at("one").join(head), place.at("two").join(head)).unwrap();
        let position = head.trim_start_matches("sets/").parse().unwrap();
        let answer = read(&media[1], Some(position), None, &keys).unwrap_err();
        assert!(answer.detail().contains("another medium"), "{answer}");
        assert_eq!(answer.code(), &code::SET_SIGNATURE);
    }
    fs::remove_file(place.at("one").join("medium.json")).unwrap();
    refused(read(&media[0], Some(2), None, &keys), &code::SET_SIGNATURE);
}

/// Without its digests the signature of a set says nothing of the data.
#[test]
fn a_signature_over_a_set_that_was_made_without_one_is_refused() {
    let place = Place::new();
    let tree = place.tree(1000);
    let key = signing_key(&place.at("signer"));
    made(&place.medium(), &tree, &options(None)).unwrap();
    let head = fs::read(place.at("medium/sets/00000001")).unwrap();
    let set_id: [u8; 16] = head[16..32].try_into().unwrap();
    let mut record = SignatureRecord {
        set_id,
        key_id: key.public().id(),
        signature: [0; 64],
    };
    record.signature = key.sign(&record.message(&head)).unwrap();
    put(&signature(&place, &hex::hex(&set_id)), &record.to_bytes());
    let keys = [key.public().clone()];
    let answer = read(&place.medium(), None, None, &keys).unwrap_err();
    assert_eq!(answer.code(), &code::SET_SIGNATURE);
    assert!(answer.detail().contains("every byte"), "{answer}");
}

#[test]
fn a_signature_goes_with_its_set() {
    let place = Place::new();
    let tree = place.tree(1000);
    let ours = signing_key(&place.at("ours"));
    let wanted = signed(&ours, None);
    let store = place.medium();
    let first = made(&store, &tree, &wanted).unwrap();
    let second = made(&store, &tree, &wanted).unwrap();
    expire(&store, 1, false).unwrap();
    assert!(!signature(&place, &first.description.set_id).exists());
    assert!(signature(&place, &second.description.set_id).exists());
    read(&store, None, None, &[ours.public().clone()]).unwrap();
}

/// A digest of heads and tags holds for other data too where somebody has the key: a signed set has
/// one of all bytes, and a set that was signed without is refused.
#[test]
fn every_byte_of_a_signed_set_is_covered() {
    let place = Place::new();
    let tree = place.tree(2_500_000);
    let ours = signing_key(&place.at("ours"));
    let opener = key();
    for sign_key in [Some(&ours), None] {
        let wanted = CreateOptions {
            sign_key,
            ..options(Some(&opener))
        };
        let made = made(&place.medium(), &tree, &wanted).unwrap();
        for (family, end) in made.description.families.iter().enumerate() {
            let name = format!("medium/data/{}.{family}", made.description.set_id);
            let bytes = fs::read(place.at(&name)).unwrap();
            let digest = strongroom_crypto::sha256(&[&bytes]);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(end.bytes_digest, sign_key.map(|_| digest));
        }
    }
}

/// The other way to make a family differ from its digest takes a forged tag: here the digest is
/// changed, in a set that is not sealed, whose head anybody can make.
#[test]
fn a_family_with_another_digest_of_its_bytes_is_refused() {
    let place = Place::new();
    let tree = place.tree(1000);
    let ours = signing_key(&place.at("ours"));
    let wanted = signed(&ours, None);
    let store = place.medium();
    let made = made(&store, &tree, &wanted).unwrap();
    let digest = made.description.families[0].bytes_digest.clone().unwrap();
    let path = place.at("medium/sets/00000001");
    let head = fs::read(&path).unwrap();
    let (record, text) = head.split_at(64);
    let text = String::from_utf8(text.to_vec()).unwrap();
    let text = text.replace(&digest, &"0".repeat(64));
    let seal = strongroom_crypto::sha256(&[&record[..32], text.as_bytes()]);
    put(&path, &[&record[..32], &seal, text.as_bytes()].concat());
    let set = open_set(&store, None, None).unwrap();
    let answer = verify(&set, 2, &mut |_| {}).unwrap_err();
    assert_eq!(answer.code(), &code::FAMILY_SHORT);
    refused(
        read(&store, None, None, &[ours.public().clone()]),
        &code::SET_SIGNATURE,
    );
}
