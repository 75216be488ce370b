//! Goal: a key's text means here what it means to DuckDB, in every version, or is refused. Method:
//! each version makes a database for each of many odd texts; the ones that it took must open it
//! here, the ones that it refused must be refused.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;
use crate::real_duckdb as real;

use std::fmt::Write as _;

use common::Place;
use real::{OLD, VERSIONS, ask, failed, rekey, verify};

/// Padding, lengths, alphabets, white space, escapes.
const ODD: [&str; 44] = [
    "a",
    "ab",
    "abc",
    "abcd",
    "abcde",
    "abcdefgh",
    "=",
    "==",
    "===",
    "====",
    "a===",
    "ab==",
    "ab=c",
    "abc=",
    "abd=",
    "a=bc",
    "=abc",
    "ab==abcd",
    "abcdab==",
    "abcdab=c",
    "abcd====",
    "abcd=",
    "ab=",
    "abc-",
    "ab-_",
    "ab+/",
    " abc",
    "abc ",
    "ab c",
    "abcd\n",
    "\nabc",
    "\t",
    "'",
    "''''",
    "\"$;--",
    "\\",
    "\\x",
    "\\x4",
    "\\x41",
    "\\x61bcd",
    "a\\q",
    "\\X41\\x4",
    "\\xff\\xFE",
    "é",
];

/// More of the same kind, by chance but always the same.
fn texts() -> Vec<String> {
    const PIECES: [&str; 16] = [
        "A", "z", "9", "+", "/", "=", "=", "-", "_", " ", "\n", "ab", "Zm9v", "\\x3d", "\\x00",
        "\\",
    ];
    let mut random: u64 = 0x5eed_5eed_5eed_5eed;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).unwrap()
    };
    let mut texts: Vec<String> = ODD.map(str::to_owned).into();
    for _ in 0..60 {
        let pieces = 1 + next() % 9;
        texts.push((0..pieces).map(|_| PIECES[next() % PIECES.len()]).collect());
    }
    texts
}

#[test]
fn odd_texts_mean_what_they_mean_to_duckdb() {
    let texts = texts();
    for version in VERSIONS {
        let place = Place::new();
        let mut lines = String::new();
        for text in &texts {
            writeln!(lines, "{}", serde_json::to_string(text).unwrap()).unwrap();
        }
        place.write("keys", lines);
        let taken = ask(&place, version, &["keys", "."]).unwrap();
        let (mut opened, mut refused) = (0, 0);
        for (number, text) in texts.iter().enumerate() {
            // One line end at the end of a file does not count.
            place.write("key", format!("{text}\n"));
            let database = format!("{number}.db");
            if taken[number] == true {
                let run = place.run(&["verify", &database, "--key-file", "key"]);
                assert_eq!(run.code, 0, "{version} takes {text:?}: {}", run.err);
                opened += 1;
            } else {
                place.write("any.db", place.read("0.db"));
                let run = place.run(&["verify", "any.db", "--key-file", "key"]);
                failed(&run, "SR-2205");
                refused += 1;
            }
        }
        assert!(opened > 60 && refused > 5, "{opened}, {refused}");
    }
}

#[test]
fn a_key_of_the_keyring_is_what_duckdb_gets() {
    let place = Place::new();
    place.with_key();
    let text = || {
        place
            .run(&["duckdb", "key", "app"])
            .succeeded()
            .trim()
            .to_owned()
    };
    let first = text();
    assert_eq!(first.len(), 44);
    ask(&place, "2.0.0", &["make", "app.db", &first, "", "100"]).unwrap();
    let check = || place.run(&["verify", "app.db", "--key-id", "app"]);
    assert_eq!(check().code, 0);
    place.run(&["key", "rotate", "app"]).succeeded();
    // Every version opens; a rekey seals for the newest.
    assert_eq!(check().code, 0);
    let same = [
        "duckdb",
        "rekey",
        "app.db",
        "--key-id",
        "app",
        "--new-key-id",
        "app",
    ];
    place.run(&same).succeeded();
    let second = text();
    assert_ne!(first, second);
    ask(&place, "2.0.0", &["total", "app.db", &second, ""]).unwrap();
    ask(&place, "2.0.0", &["total", "app.db", &first, ""]).unwrap_err();
    failed(&place.run(&same), "SR-2213");
    failed(
        &place.run(&["verify", "app.db", "--key-id", "nobody"]),
        "SR-2003",
    );
    failed(&place.run(&["verify", "app.db"]), "SR-2041");
}

#[test]
fn no_key_is_told() {
    let place = real::place("2.0.0", "", "100");
    place.write("odd", "not-a-key-that-fits");
    for run in [
        verify(&place, "odd"),
        rekey(&place, "odd", "new"),
        rekey(&place, "old", "odd"),
    ] {
        let told = format!("{}{}", run.out, run.err);
        assert!(!told.contains("not-a-key-that-fits"), "{told}");
        assert!(!told.contains(OLD), "{told}");
    }
    // A short key is warned of.
    let warned = rekey(&place, "odd", "old");
    assert!(warned.err.contains("SR-2214"), "{}", warned.err);
}
