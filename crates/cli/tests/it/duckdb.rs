//! Goal: DuckDB's encrypted databases are verified and given other keys as DuckDB itself
//! understands them. Method: three real versions of DuckDB write and read the files; every field
//! and every unit is damaged; the command is killed at each write.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;
use crate::real_duckdb as real;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use common::Place;
use real::{NEW, OLD, ask, failed, holding, place, rekey, verify};

const CTR: &str = ", ENCRYPTION_CIPHER 'CTR'";

/// Who writes, options, who else must be able to read what was rekeyed.
const WRITTEN: [(&str, &str, &str); 10] = [
    ("1.4.4", "", "2.0.0"),
    (
        "1.4.4",
        ", ENCRYPTION_CIPHER 'CTR', BLOCK_SIZE 16384",
        "1.5.5",
    ),
    ("1.5.5", ", BLOCK_SIZE 16384", "2.0.0"),
    ("1.5.5", CTR, "2.0.0"),
    ("2.0.0", "", "1.5.5"),
    ("2.0.0", ", BLOCK_SIZE 65536", "1.5.5"),
    (
        "2.0.0",
        ", ENCRYPTION_CIPHER 'CTR', BLOCK_SIZE 32768",
        "1.5.5",
    ),
    (
        "2.0.0",
        ", STORAGE_VERSION 'v2.0.0', BLOCK_SIZE 131072",
        "2.0.0",
    ),
    (
        "2.0.0",
        ", STORAGE_VERSION 'v1.4.0', debug_encryption_version 'v0'",
        "1.4.4",
    ),
    (
        "2.0.0",
        ", STORAGE_VERSION 'v1.4.0', debug_encryption_version 'v0', ENCRYPTION_CIPHER 'CTR'",
        "1.4.4",
    ),
];

/// Another key for `app.db`.
const REKEY: [&str; 7] = [
    "duckdb",
    "rekey",
    "app.db",
    "--key-file",
    "old",
    "--new-key-file",
    "new",
];

#[test]
fn what_duckdb_writes_is_verified_and_rekeyed_and_read_by_duckdb() {
    for (writer, options, reader) in WRITTEN {
        let at = format!("{writer}{options}");
        let place = place(writer, options, "20000");
        let cipher = match options {
            _ if options.contains("CTR") => CTR,
            _ if options.contains("v2.0.0") => ", STORAGE_VERSION 'v2.0.0'",
            _ => "",
        };
        let total = |who, key| ask(&place, who, &["total", "app.db", key, cipher]);
        let before = total(writer, OLD).unwrap();
        let inspected = place.run(&["inspect", "app.db", "--json"]).json();
        assert_eq!(inspected["kind"], "duckdb-encrypted", "{at}");
        assert_eq!(inspected["duckdb"]["checksum_ok"], true, "{at}");
        let verified = verify(&place, "old").json();
        assert_eq!(verified["ok"], true, "{at}");
        let blocks = verified["checked"][2]["count"].as_u64().unwrap();
        assert!(blocks > 1, "{at}");
        failed(&verify(&place, "new"), "SR-2204");
        failed(&rekey(&place, "new", "old"), "SR-2204");

        let rekeyed = rekey(&place, "old", "new");
        assert_eq!(rekeyed.code, 0, "{at}: {}", rekeyed.err);
        assert_eq!(verify(&place, "new").json()["ok"], true, "{at}");
        failed(&verify(&place, "old"), "SR-2204");
        for who in [writer, reader] {
            assert_eq!(total(who, NEW).as_ref(), Ok(&before), "{at}, read by {who}");
            let refused = total(who, OLD).unwrap_err();
            assert!(refused.contains("Wrong encryption key"), "{at}: {refused}");
        }
        // It is still a database: DuckDB writes to it, and what it wrote is verified.
        ask(&place, writer, &["write", "app.db", NEW, cipher]).unwrap();
        let again = verify(&place, "new").json();
        assert_eq!(again["ok"], true, "{at}: {again}");
        assert_eq!(place.names(), ["app.db", "new", "old"], "{at}");
    }
}

/// Flips a bit of one byte, and back.
fn flip(place: &Place, at: u64) {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(place.path("app.db"))
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 0x10;
    file.write_all_at(&byte, at).unwrap();
}

#[test]
fn damage_in_every_field_and_every_unit_is_found() {
    for (writer, options) in [
        ("2.0.0", ", BLOCK_SIZE 16384"),
        ("1.4.4", ", BLOCK_SIZE 16384"),
        ("1.5.5", ", BLOCK_SIZE 16384, ENCRYPTION_CIPHER 'CTR'"),
    ] {
        let place = place(writer, options, "3000");
        let cipher_is_ctr = options.contains("CTR");
        let size = fs::metadata(place.path("app.db")).unwrap().len();
        let blocks = (size - 12_288) / 16_384;
        // Every field of the main header, and bytes behind the last one.
        let fields = [
            0, 7, 12, 20, 28, 52, 84, 116, 117, 118, 119, 120, 124, 139, 140, 148, 160, 175, 176,
            4095,
        ];
        for at in fields {
            flip(&place, at);
            failed(&verify(&place, "old"), "SR-2202");
            failed(&rekey(&place, "old", "new"), "SR-2202");
            flip(&place, at);
        }
        flip(&place, 8);
        failed(&verify(&place, "old"), "SR-3001");
        flip(&place, 8);
        let code = if cipher_is_ctr { "SR-2207" } else { "SR-2206" };
        let units = [4096, 8192]
            .into_iter()
            .chain((0..blocks).map(|n| 12_288 + n * 16_384));
        for (number, unit) in units.enumerate() {
            // Nonce, tag, inner checksum, data, its end. The tag is not there with CTR.
            let end = if number < 2 { 4095 } else { 16_383 };
            let places: &[u64] = if cipher_is_ctr {
                &[0, 32, end]
            } else {
                &[0, 27, 39, 40, end]
            };
            // All of them in the first units, then one, another in each.
            let chosen = if number < 4 {
                places
            } else {
                &places[number % places.len()..][..1]
            };
            for place_in in chosen {
                flip(&place, unit + place_in);
                let found = verify(&place, "old");
                failed(&found, code);
                let bad = found.json()["bad"].as_array().unwrap().clone();
                assert_eq!(bad.len(), 1, "{writer}, unit {number}, byte {place_in}");
                assert_eq!(bad[0]["offset_bytes"], unit);
                flip(&place, unit + place_in);
            }
        }
        assert_eq!(verify(&place, "old").code, 0);
        // A block of zeros is told, and not called good.
        let file = fs::File::options()
            .write(true)
            .open(place.path("app.db"))
            .unwrap();
        file.write_all_at(&[0; 16_384], 12_288).unwrap();
        let zero = verify(&place, "old");
        assert!(zero.out.contains("all zeros"), "{}", zero.out);
        // Half a block is missing at the end.
        file.set_len(size - 20_000).unwrap();
        failed(&verify(&place, "old"), "SR-2208");
        failed(&rekey(&place, "old", "new"), "SR-2208");
    }
}

#[test]
fn unused_bytes_are_counted_and_zeroed_and_nothing_else_changes() {
    for (writer, options, unused) in [
        ("2.0.0", ", BLOCK_SIZE 16384", 28..32),
        (
            "1.4.4",
            ", BLOCK_SIZE 16384, ENCRYPTION_CIPHER 'CTR'",
            16..32,
        ),
        ("2.0.0", "", 28..32),
    ] {
        let place = place(writer, options, "3000");
        let block = if options.is_empty() { 262_144 } else { 16_384 };
        let path = place.path("app.db");
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"\xde\xad", 12_288 + 28).unwrap();
        file.write_all_at(b"\xbe\xef", 12_288 + block + 30).unwrap();
        let before = place.read("app.db");
        let noted = verify(&place, "old");
        assert_eq!(noted.code, 0, "{}", noted.err);
        assert!(noted.out.contains("does not use"), "{}", noted.out);
        assert!(!noted.out.contains("dead"), "a count, no bytes");
        let inspected = place.run(&["inspect", "app.db", "--json"]).json();
        assert!(inspected["duckdb"]["unused_bytes_set"].as_u64().unwrap() > 0);

        let without = place.run(&["duckdb", "scrub", "app.db"]);
        assert_eq!(without.code, 0, "{}", without.err);
        assert!(verify(&place, "old").out.contains("does not use") == (block != 262_144));
        let with = place.run(&["duckdb", "scrub", "app.db", "--key-file", "old"]);
        assert_eq!(with.code, 0, "{}", with.err);
        assert!(!verify(&place, "old").out.contains("does not use"));
        let mut expected = before;
        let units = [4096, 8192]
            .into_iter()
            .chain((12_288..expected.len()).step_by(usize::try_from(block).unwrap()));
        for unit in units.collect::<Vec<_>>() {
            expected[unit + unused.start..unit + unused.end].fill(0);
        }
        assert!(place.read("app.db") == expected);
        let cipher = if options.contains("CTR") { CTR } else { "" };
        ask(&place, writer, &["total", "app.db", OLD, cipher]).unwrap();
    }
}

const CALLS: [&str; 3] = ["pwrite64", "?fdatasync,?fsync", "?unlink,?unlinkat"];

/// Runs a rekey until that call; false when it ended before.
fn killed(place: &Place, call: &str, at: u32) -> bool {
    place.killed_at(&["-f"], call, at, &REKEY)
}

#[test]
fn a_rekey_that_is_killed_at_any_write_is_finished_or_undone() {
    let place = place("2.0.0", ", BLOCK_SIZE 16384", "3000");
    let total = |key| ask(&place, "2.0.0", &["total", "app.db", key, ""]);
    let before = total(OLD).unwrap();
    fs::copy(place.path("app.db"), place.path("copy")).unwrap();
    let mut kills = 0;
    for call in CALLS {
        for at in 1..200 {
            fs::copy(place.path("copy"), place.path("app.db")).unwrap();
            drop(fs::remove_file(place.path("app.db.strongroom-rekey")));
            if !killed(&place, call, at) {
                break;
            }
            kills += 1;
            let told = format!("{call} {at}");
            let under_way = place.run(&["inspect", "app.db", "--json"]).json()["duckdb"]["rekey_under_way"]
                == true;
            if under_way {
                failed(&verify(&place, "old"), "SR-2211");
                if kills % 4 == 0 {
                    for key in [OLD, NEW] {
                        let refused = total(key).unwrap_err();
                        assert!(refused.contains("orrupt"), "{told}: {refused}");
                    }
                }
            }
            // Back, or on.
            if under_way && at % 2 == 0 {
                let back = rekey(&place, "new", "old");
                assert_eq!(back.code, 0, "{told}: {}", back.err);
                assert_eq!(verify(&place, "old").code, 0, "{told}");
            } else if verify(&place, "new").code != 0 {
                let on = rekey(&place, "old", "new");
                assert_eq!(on.code, 0, "{told}: {}", on.err);
                assert_eq!(verify(&place, "new").code, 0, "{told}");
            }
            if kills % 4 == 0 {
                assert_eq!(
                    total(NEW).or_else(|_| total(OLD)).as_ref(),
                    Ok(&before),
                    "{told}"
                );
            }
        }
    }
    assert!(kills > 15, "{kills} kills");
}

#[test]
fn a_header_that_is_lost_while_the_key_is_changed_is_put_back_and_the_rekey_finished() {
    let place = place("1.5.5", ", BLOCK_SIZE 16384", "3000");
    let backup = ["duckdb", "header-backup", "app.db", "kept"];
    place.run(&backup).succeeded();
    assert!(killed(&place, "?fdatasync,?fsync", 4));
    failed(&verify(&place, "old"), "SR-2211");
    let file = fs::File::options()
        .write(true)
        .open(place.path("app.db"))
        .unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let restore = [
        "duckdb",
        "header-restore",
        "app.db",
        "kept",
        "--key-file",
        "old",
    ];
    place.run(&restore).succeeded();
    failed(&verify(&place, "old"), "SR-2211");
    let finished = rekey(&place, "old", "new");
    assert_eq!(finished.code, 0, "{}", finished.err);
    assert!(finished.out.contains("finished"));
    assert_eq!(verify(&place, "new").code, 0);
    ask(&place, "1.5.5", &["total", "app.db", NEW, ""]).unwrap();
}

#[test]
fn a_database_that_duckdb_has_open_is_left_alone() {
    for version in ["1.4.4", "2.0.0"] {
        let place = place(version, "", "3000");
        let mut writer = holding(&place, version, &["hold", "app.db", OLD, ""]);
        failed(&verify(&place, "old"), "SR-2209");
        failed(&rekey(&place, "old", "new"), "SR-2209");
        failed(&place.run(&["duckdb", "scrub", "app.db"]), "SR-2209");
        assert!(
            rekey(&place, "old", "new")
                .err
                .contains(&writer.id().to_string())
        );
        drop(writer.stdin.take());
        writer.wait().unwrap();
        let mut reader = holding(&place, version, &["hold", "app.db", OLD, ", READ_ONLY"]);
        assert_eq!(verify(&place, "old").code, 0);
        failed(&rekey(&place, "old", "new"), "SR-2209");
        drop(reader.stdin.take());
        reader.wait().unwrap();
        assert_eq!(rekey(&place, "old", "new").code, 0);
    }
}

#[test]
fn duckdb_does_not_open_a_database_that_is_being_rekeyed() {
    let place = place("2.0.0", "", "3000");
    let plain = place.command();
    let mut slow = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"])
        .arg("--inject=fdatasync:delay_enter=3000000:when=1")
        .arg(plain.get_program())
        .args(REKEY)
        .current_dir(place.path(""))
        .spawn()
        .unwrap();
    let beside = place.path("app.db.strongroom-rekey");
    while !beside.exists() && slow.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let refused = ask(&place, "2.0.0", &["total", "app.db", OLD, ""]).unwrap_err();
    assert!(refused.contains("lock"), "{refused}");
    assert!(slow.wait().unwrap().success());
    ask(&place, "2.0.0", &["total", "app.db", NEW, ""]).unwrap();
}

#[test]
fn a_write_ahead_log_stops_a_rekey_and_is_named_by_verify() {
    for version in real::VERSIONS {
        let place = place(version, "", "3000");
        ask(&place, version, &["leave_log", "app.db", OLD, ""]).unwrap();
        assert!(place.path("app.db.wal").exists());
        let refused = rekey(&place, "old", "new");
        failed(&refused, "SR-2210");
        assert!(refused.err.contains("CHECKPOINT"));
        let verified = verify(&place, "old");
        assert_eq!(verified.code, 0, "{}", verified.err);
        assert!(verified.out.contains("app.db.wal"));
        let inspected = place.run(&["inspect", "app.db", "--json"]).json();
        assert_eq!(inspected["duckdb"]["wal"]["kind"], "encrypted");
        assert_eq!(inspected["duckdb"]["wal"]["belongs"], true);
        ask(&place, version, &["write", "app.db", OLD, ""]).unwrap();
        assert_eq!(rekey(&place, "old", "new").code, 0);
    }
}

#[test]
fn a_header_is_kept_and_put_back_only_where_it_belongs() {
    let place = place("2.0.0", "", "3000");
    ask(&place, "2.0.0", &["make", "other.db", OLD, "", "10"]).unwrap();
    let backup = |file: &str, out: &str| place.run(&["duckdb", "header-backup", file, out]);
    assert_eq!(backup("app.db", "kept").code, 0);
    assert_eq!(backup("other.db", "others").code, 0);
    failed(&backup("app.db", "kept"), "SR-1002");
    let restore = |copy: &str, key: &str| {
        place.run(&[
            "duckdb",
            "header-restore",
            "app.db",
            copy,
            "--key-file",
            key,
        ])
    };
    failed(&restore("kept", "old"), "SR-2215");
    let file = fs::File::options()
        .write(true)
        .open(place.path("app.db"))
        .unwrap();
    for (at, bytes) in [(124, &[0; 60][..]), (0, &[0; 4096])] {
        file.write_all_at(bytes, at).unwrap();
        failed(&restore("others", "old"), "SR-2215");
        failed(&restore("kept", "new"), "SR-2204");
        failed(&restore("old", "old"), "SR-2215");
        let restored = restore("kept", "old");
        assert_eq!(restored.code, 0, "{}", restored.err);
        assert_eq!(verify(&place, "old").code, 0);
    }
    ask(&place, "2.0.0", &["total", "app.db", OLD, ""]).unwrap();
}
