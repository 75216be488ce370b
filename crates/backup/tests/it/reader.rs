//! Goal: docs/spec/backup.md is enough to read a set. Method: `testing/interop/backup_reader.py`,
//! which was written from it and shares no code with this crate, unpacks what this crate wrote, and
//! refuses what was changed.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::forged::{cluster, forged, link};
use common::{Place, made, options, picture, put, signing_key};
use strongroom_backup::{Cipher, Compression, CreateOptions, Kind};
use strongroom_crypto::SecretKey;
use strongroom_keyring::Opener;

const KEY: [u8; 32] = [0xa7; 32];

fn reader(place: &Place, key: &Path, out: &str) -> Command {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/interop/backup_reader.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(place.at("medium")).arg("1").arg(key);
    python.arg(place.at(out));
    python
}

fn read(place: &Place, key: &Path, out: &str) -> Output {
    reader(place, key, out).output().unwrap()
}

/// Names, kinds and contents. The reader sets no modes and times.
fn contents(root: &Path) -> Vec<(std::path::PathBuf, String, Vec<u8>)> {
    picture(root)
        .into_iter()
        .map(|(path, (sort, content, ..))| (path, sort, content))
        .collect()
}

#[test]
fn another_reader_reads_what_is_written() {
    for (cipher, compression, stripes) in [
        (Some(Cipher::Aes256), Compression::Zstd(3), 1),
        (Some(Cipher::Aes192), Compression::None, 3),
        (Some(Cipher::Aes128), Compression::Zstd(1), 2),
        (Some(Cipher::TripleDes), Compression::Zstd(1), 2),
        (Some(Cipher::TripleDes), Compression::None, 1),
        (None, Compression::Zstd(1), 2),
    ] {
        let place = Place::new();
        let tree = place.tree(2_500_000);
        let opener = Opener::raw(SecretKey::take(&mut KEY.clone()).unwrap());
        let wanted = CreateOptions {
            cipher: cipher.unwrap_or_default(),
            compression,
            stripes: Some(stripes),
            ..options(cipher.map(|_| &opener))
        };
        made(&place.medium(), &tree, &wanted).unwrap();
        let key = if cipher.is_some() {
            put(&place.at("key"), "a7".repeat(32).as_bytes());
            place.at("key")
        } else {
            "-".into()
        };
        let output = read(&place, &key, "out");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{err}");
        assert_eq!(
            String::from_utf8(output.stdout)
                .unwrap()
                .trim_end()
                .split(' ')
                .next(),
            Some("6")
        );
        assert_eq!(contents(&place.at("out")), contents(&tree));

        // It is not a reader that reads anything.
        let family = fs::read_dir(place.at("medium/data"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let mut bytes = fs::read(&family).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        put(&family, &bytes);
        assert!(!read(&place, &key, "changed").status.success());
    }
}

#[test]
fn another_reader_refuses_what_the_specification_refuses() {
    let place = Place::new();
    // A link is for sets of files; a cluster's would lead what is written later.
    let with_link = vec![link("pg_wal", Path::new("/elsewhere"))];
    let mut files = cluster(with_link.clone());
    files.described = Kind::Files;
    forged(&place, files).unwrap();
    let read_it = read(&place, Path::new("-"), "files");
    let err = String::from_utf8_lossy(&read_it.stderr);
    assert!(read_it.status.success(), "{err}");
    let place = Place::new();
    forged(&place, cluster(with_link)).unwrap();
    let refused = read(&place, Path::new("-"), "cluster");
    let err = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        err.contains("a link in a set of a kind that has none"),
        "{err}"
    );
    assert!(!place.at("cluster/pg_wal").exists());
}

#[test]
fn another_reader_takes_our_signature_and_no_other() {
    let place = Place::new();
    let tree = place.tree(1000);
    let openssl = |arguments: &str| {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(place.at("")).args(arguments.split(' '));
        assert!(openssl.status().unwrap().success());
    };
    let ours = ["ours", "theirs"].map(|name| {
        let key = signing_key(&place.at(name));
        openssl(&format!("pkey -in {name} -pubout -out {name}.pub"));
        key
    });
    let [ours, _] = ours;
    let wanted = CreateOptions {
        sign_key: Some(&ours),
        ..options(None)
    };
    let set = made(&place.medium(), &tree, &wanted).unwrap();
    let read = |public: &str, out: &str| {
        let mut python = reader(&place, Path::new("-"), out);
        python.arg(place.at(public)).output().unwrap()
    };
    let ok = read("ours.pub", "out");
    assert!(ok.status.success(), "{ok:?}");
    assert_eq!(contents(&place.at("out")), contents(&tree));
    assert!(!read("theirs.pub", "no").status.success());
    let refused = |file: &str, bad: &[u8]| {
        let good = fs::read(place.at(file)).unwrap();
        put(&place.at(file), bad);
        assert!(!read("ours.pub", "no").status.success(), "{file}");
        put(&place.at(file), &good);
    };
    let id = &set.description.set_id;
    let signature = format!("medium/data/{id}.signature");
    let good = fs::read(place.at(&signature)).unwrap();
    for at in [0, 9, 20, 40, 100] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        refused(&signature, &bad);
    }
    refused(&signature, &good[..127]);
    let medium = fs::read_to_string(place.at("medium/medium.json")).unwrap();
    let other = medium.replace(&set.description.medium_id, &"0".repeat(32));
    assert_ne!(other, medium);
    refused("medium/medium.json", other.as_bytes());
    let family = format!("medium/data/{id}.0");
    let mut bytes = fs::read(place.at(&family)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    refused(&family, &bytes);
    assert!(read("ours.pub", "again").status.success());
    made(&place.medium(), &tree, &options(None)).unwrap();
    let head = fs::read(place.at("medium/sets/00000002")).unwrap();
    put(&place.at("medium/sets/00000001"), &head);
    assert!(!read("ours.pub", "no").status.success());
}
