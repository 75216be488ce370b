//! `inspect` on files of every sort, with and without a picture.
//!
//! Method: files made here, the real binary, its JSON and its PNG decoded.

use crate::common;

use common::{Place, decoded, members, noise};
use serde_json::Value;
use strongroom_format::sqlite::AuxKind;

const MEMBERS: [&str; 17] = [
    "beside",
    "body_entropy_bits_per_byte",
    "body_offset_bytes",
    "duckdb",
    "entropy_bits_per_byte",
    "error",
    "foreign",
    "header",
    "kind",
    "log",
    "luks",
    "path",
    "png",
    "sealed",
    "size_bytes",
    "sqlite",
    "uniform",
];

#[track_caller]
fn inspected(place: &Place, name: &str) -> Value {
    let run = place.run(&["inspect", name, "--json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let object = run.json();
    assert_eq!(members(&object), MEMBERS);
    assert_eq!(object["error"], Value::Null);
    object
}

#[test]
fn plain_files() {
    let place = Place::new();
    place.plain_database("a.db", 1000);
    place.write("empty", "");
    place.write("zeros", vec![0; 5000]);
    place.write("noise", noise(200_000, 1));
    place.write("wal", [&[0x37, 0x7f, 0x06, 0x82][..], &[0; 100]].concat());
    let journal = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    place.write("journal", [&journal[..], &[0; 100]].concat());

    let database = inspected(&place, "a.db");
    assert_eq!(database["kind"], "sqlite");
    assert_eq!(database["sealed"], false);
    assert_eq!(database["sqlite"]["page_size"], 4096);
    assert_eq!(database["sqlite"]["page_reserve"], 0);
    assert_eq!(database["body_offset_bytes"], 100);
    assert_eq!(database["size_bytes"], place.read("a.db").len());
    let entropy = database["entropy_bits_per_byte"].as_f64().unwrap();
    assert!((1.0..7.0).contains(&entropy), "{entropy}");

    let empty = inspected(&place, "empty");
    assert_eq!(empty["kind"], "empty");
    assert_eq!(empty["entropy_bits_per_byte"], Value::Null);
    assert_eq!(inspected(&place, "zeros")["entropy_bits_per_byte"], 0.0);
    let random = inspected(&place, "noise");
    assert_eq!(random["kind"], "unknown");
    assert!(random["entropy_bits_per_byte"].as_f64().unwrap() > 7.99);
    assert_eq!(inspected(&place, "wal")["kind"], "sqlite-wal");
    assert_eq!(inspected(&place, "journal")["kind"], "sqlite-journal");
}

#[test]
fn files_beside_a_database_are_named() {
    let place = Place::new();
    place.write("a.db", "x");
    place.write("a.db-wal", "x");
    place.write("a.db-strongroom", "x");
    let object = inspected(&place, "a.db");
    assert_eq!(
        object["beside"],
        serde_json::json!(["a.db-wal", "a.db-strongroom"])
    );
}

#[test]
fn a_keyring_shows_its_header() {
    let place = Place::new();
    place.with_key();
    let object = inspected(&place, "keyring");
    assert_eq!(object["kind"], "sealed-keyring");
    assert_eq!(object["sealed"], true);
    let header = &object["header"];
    assert_eq!(header["object_kind"], "keyring");
    assert_eq!(header["cipher"], "aes-256-gcm");
    assert_eq!(header["checksum_ok"], true);
    assert_eq!(header["rekey_under_way"], false);
    assert_eq!(header["previous_epoch"], Value::Null);
    assert_eq!(header["slots"][0]["kind"], "raw");
    assert_eq!(header["object_id"].as_str().unwrap().len(), 32);
    assert!(header["created"].as_str().unwrap().ends_with('Z'));

    let text = place.run(&["inspect", "keyring"]).succeeded();
    assert!(text.contains("sealed:     yes\n"), "{text}");
    assert!(text.contains("slot 0:     raw key\n"), "{text}");
    assert!(
        text.contains("checksum matches; not authenticated"),
        "{text}"
    );
}

/// An instance's header is made by the keyring's own code: there need be no server.
#[test]
fn an_instance_and_its_files_are_recognised() {
    use strongroom_format::header::Cipher;
    use strongroom_format::postgres::{container::ContainerHeader, stream::StreamHeader};
    use strongroom_keyring::{NewObject, Object, Opener};
    let place = Place::new();
    let opener = Opener::raw(strongroom_crypto::SecretKey::generate().unwrap());
    let new = NewObject::instance(Cipher::Aes128Xts);
    let object = Object::create(&new, &opener.recipient().unwrap()).unwrap();
    place.write("strongroom.header", object.initial_bytes());
    let seen = inspected(&place, "strongroom.header");
    assert_eq!(seen["kind"], "sealed-postgres");
    assert_eq!(seen["header"]["object_kind"], "postgres");
    assert_eq!(seen["header"]["cipher"], "aes-128-xts");
    assert_eq!(seen["header"]["page_size"], 8192);
    assert_eq!(seen["header"]["anchors"], serde_json::json!([]));
    let text = place.run(&["inspect", "strongroom.header"]).succeeded();
    assert!(text.contains("data unit:  8192 bytes\n"), "{text}");
    let verified = place.run(&["verify", "strongroom.header"]);
    assert!(verified.err.contains("SR-3007"), "{}", verified.err);

    // The header of the zone's store stands in a file of its own, too.
    let object = Object::create(&NewObject::zone(), &opener.recipient().unwrap()).unwrap();
    place.write("header", object.initial_bytes());
    assert_eq!(inspected(&place, "header")["kind"], "sealed-zone");
    let text = place.run(&["inspect", "header"]).succeeded();
    let what = "what:       store of the zone of confidential columns\n";
    assert!(text.contains(what), "{text}");

    let header = ContainerHeader {
        file_id: [7; 16],
        bound: true,
    };
    let mut container = header.to_bytes().to_vec();
    container.extend(noise(2000, 5));
    place.write("state", container);
    assert_eq!(inspected(&place, "state")["kind"], "sealed-container");
    let mut stream = StreamHeader { nonce: [7; 16] }.prefix().to_vec();
    stream.resize(4096, 0);
    stream.extend(noise(2000, 6));
    place.write("map", stream);
    let seen = inspected(&place, "map");
    assert_eq!(seen["kind"], "sealed-stream");
    assert_eq!(seen["body_offset_bytes"], 4096);
}

#[test]
fn a_passphrase_slot_shows_what_a_guess_costs() {
    let place = Place::new();
    let mut command = place.command();
    command.env("ROOT", "correct horse battery staple");
    command.args(["keyring", "init", "--provider", "env:ROOT"]);
    assert!(command.output().unwrap().status.success());
    let object = inspected(&place, "keyring");
    let slot = &object["header"]["slots"][0];
    assert_eq!(slot["kind"], "passphrase");
    assert_eq!(
        members(&slot["argon2id"]),
        ["lanes", "memory_kib", "passes"]
    );
    assert!(slot["argon2id"]["memory_kib"].as_u64().unwrap() >= 65_536);
}

#[test]
fn damaged_headers_are_shown_as_far_as_they_can_be_read() {
    let place = Place::new();
    place.with_key();
    let good = place.read("keyring");
    let mut flipped = good.clone();
    flipped[45] ^= 1; // the creation time
    place.write("flipped", &flipped);
    let run = place.run(&["inspect", "flipped", "--json"]);
    let object = run.json();
    assert_eq!(members(&object), MEMBERS);
    assert_eq!(object["header"]["checksum_ok"], false);
    assert_eq!(object["error"]["code"], "SR-3003");
    run.failed(4, "SR-3003");

    let mut newer = good.clone();
    newer[16] = 9;
    place.write("newer", &newer);
    let run = place.run(&["inspect", "newer", "--json"]);
    assert_eq!(run.json()["kind"], "sealed-newer");
    run.failed(4, "SR-3002");

    place.write("cut", &good[..4000]);
    let run = place.run(&["inspect", "cut", "--json"]);
    assert_eq!(run.json()["kind"], "sealed-damaged");
    run.failed(4, "SR-3006");

    let mut reserved = good;
    reserved[100] = 1;
    place.write("reserved", &reserved);
    let run = place.run(&["inspect", "reserved", "--json"]);
    assert_eq!(run.json()["header"], Value::Null);
    assert!(run.failed(4, "SR-3003").contains("RESERVED_A"));

    for kind in AuxKind::ALL {
        place.write(
            "log",
            [kind.magic().as_slice(), b" and nothing more"].concat(),
        );
        let run = place.run(&["inspect", "log", "--json"]);
        assert_eq!(run.json()["kind"], "sealed-log-damaged");
        run.failed(4, "SR-3003");
    }
}

#[test]
fn the_picture_shows_structure_and_noise() {
    let place = Place::new();
    let text = b"SELECT name FROM customers; ".repeat(1000);
    place.write("text", [text.as_slice(), &vec![0; 28_000]].concat());
    place.write("noise", noise(56_000, 7));

    let (text_colours, text_changes) = picture(&place, "text", 56_000);
    let (noise_colours, noise_changes) = picture(&place, "noise", 56_000);
    assert!(text_colours < 30, "{text_colours}");
    assert!(noise_colours > 200, "{noise_colours}");
    // In noise neighbours nearly always differ; half of the other file is one colour.
    assert!(noise_changes * 100 > 56_000 * 95, "{noise_changes}");
    assert!(text_changes * 100 < 56_000 * 60, "{text_changes}");
}

/// Draws a file of `size` bytes; the number of colours, and of pixels that differ from the one
/// before.
fn picture(place: &Place, name: &str, size: usize) -> (usize, usize) {
    let out = format!("{name}.png");
    let object = place
        .run(&["inspect", name, "--json", "--png", &out])
        .json();
    let (width, height, pixels) = decoded(&place.path(&out));
    assert_eq!(object["png"]["width"], width);
    assert_eq!(object["png"]["height"], height);
    assert_eq!(object["png"]["bytes_per_pixel"], 1);
    assert!(width <= 1024 && height <= 1024);
    let bytes: Vec<&[u8]> = pixels.chunks_exact(3).take(size).collect();
    assert_eq!(bytes.len(), size);
    let changes = bytes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let colours: std::collections::BTreeSet<&[u8]> = bytes.into_iter().collect();
    (colours.len(), changes)
}

#[test]
fn a_large_file_gives_a_picture_of_at_most_1024_by_1024() {
    let place = Place::new();
    place.write("large", noise(5_000_001, 3));
    let object = place
        .run(&["inspect", "large", "--json", "--png", "l.png"])
        .json();
    let (width, height, pixels) = decoded(&place.path("l.png"));
    assert_eq!((width, height), (1024, 977));
    assert_eq!(object["png"]["bytes_per_pixel"], 5);
    let colours: std::collections::BTreeSet<&[u8]> = pixels.chunks_exact(3).collect();
    assert!(colours.len() > 200);
}

#[test]
fn a_picture_never_overwrites() {
    let place = Place::new();
    place.write("a", "some bytes");
    place.write("taken.png", "mine");
    place
        .run(&["inspect", "a", "--png", "taken.png"])
        .failed(6, "SR-1002");
    assert_eq!(place.read("taken.png"), b"mine");
    place
        .run(&["inspect", "a", "--png", "a"])
        .failed(2, "SR-1003");
    assert_eq!(place.read("a"), b"some bytes");
    std::os::unix::fs::symlink(place.path("nowhere"), place.path("link")).unwrap();
    place
        .run(&["inspect", "a", "--png", "link"])
        .failed(6, "SR-1002");
    place.write("empty", "");
    place
        .run(&["inspect", "empty", "--png", "e.png"])
        .failed(2, "SR-1001");
    assert_eq!(place.names(), ["a", "empty", "link", "taken.png"]);
}

#[test]
fn what_is_not_a_regular_file_is_refused_without_waiting() {
    let place = Place::new();
    place.run(&["inspect", "."]).failed(2, "SR-1007");
    place.run(&["inspect", "/dev/zero"]).failed(2, "SR-1007");
}

/// A data key that has sealed much: `inspect` and `verify` have the number, and whoever opens the
/// database is told.
#[test]
fn a_data_key_that_has_sealed_much_is_told_of() {
    let place = Place::new();
    place.plain_database("plain.db", 300);
    place.write("key", "11".repeat(32).as_bytes());
    let key = ["--key-file", "key"];
    let encrypt = ["sqlite", "encrypt", "plain.db", "sealed.db"];
    place.run(&[&encrypt[..], &key].concat()).succeeded();
    let verify = [&["verify", "sealed.db", "--json"][..], &key].concat();
    let count = [
        &["sqlite", "shell", "sealed.db"][..],
        &key,
        &["-c", "SELECT seals FROM strongroom_databases()"],
    ];
    let run = place.run(&verify);
    assert!(!run.err.contains("SR-601"), "{}", run.err);
    assert_eq!(run.json()["seals_limit"], 1_u64 << 32);
    for (seals, code) in [(1 << 30, "SR-6012"), ((1 << 32) + (1 << 16), "SR-6013")] {
        let seals: u64 = seals;
        has_sealed(&place, seals);
        let run = place.run(&verify);
        assert!(
            run.err.contains(&format!("warning[{code}]: ")),
            "{}",
            run.err
        );
        let report = run.json();
        assert_eq!(
            (&report["ok"], &report["seals"]),
            (&true.into(), &seals.into())
        );
        let text = place.run(&[&["verify", "sealed.db"][..], &key].concat());
        assert!(
            text.succeeded()
                .contains(&format!("  seals: about {seals} of 4294967296\n"))
        );
        let inspected = place.run(&["inspect", "sealed.db", "--json"]).json();
        assert_eq!(inspected["header"]["anchors"][0]["seals"], seals);
        let text = place.run(&["inspect", "sealed.db"]).succeeded();
        assert!(
            text.contains(&format!(", about {seals} of 4294967296 seals\n")),
            "{text}"
        );
        let run = place.run(&count.concat());
        assert!(
            run.err.contains(&format!("warning[{code}]: ")),
            "{}",
            run.err
        );
        assert!(run.succeeded().contains(&seals.to_string()));
    }
    // A new data key has sealed next to nothing, and nobody is told of the one before.
    let run = place.run(&[&["sqlite", "rekey", "sealed.db"][..], &key].concat());
    assert!(!run.err.contains("SR-601"), "{}", run.err);
    run.succeeded();
    let run = place.run(&verify);
    assert!(!run.err.contains("SR-601"), "{}", run.err);
    assert!(run.json()["seals"].as_u64().unwrap() < 1 << 20);
}

/// Writes into both anchors of `sealed.db`, whose raw key is 32 bytes of 0x11, that so many pages
/// were sealed.
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
fn has_sealed(place: &Place, seals: u64) {
    use strongroom_format::header::{Anchor, ObjectKind};
    use strongroom_keyring::{Object, Opener};
    let key = strongroom_crypto::SecretKey::take(&mut [0x11; 32]).unwrap();
    let mut bytes = place.read("sealed.db");
    let object = Object::open(&bytes, ObjectKind::Sqlite, &Opener::raw(key)).unwrap();
    let old = object.anchor(&bytes).unwrap();
    for sequence in [old.sequence + 1, old.sequence + 2] {
        let anchor = object
            .seal_anchor(sequence, old.wal_generation, None, seals)
            .unwrap();
        let at = Anchor::offset(sequence);
        bytes[at..at + 512].copy_from_slice(&anchor.to_bytes());
    }
    place.write("sealed.db", &bytes);
}
