//! `strongroom backup wal-fetch` as a server's restore command: which exit codes may mean that the
//! log ends; and who can open what after `rewrap`.
//!
//! Method: the real binary; recovery by real servers is in `backup_pg.rs`.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;

use common::Place;

/// A tree, and a keyring with a key.
fn place() -> Place {
    let place = Place::new();
    place.with_key();
    fs::create_dir(place.path("tree")).unwrap();
    place
}

#[test]
fn arguments_that_are_refused_are_not_the_end_of_the_archive() {
    let place = Place::new();
    let cases: [&[&str]; 3] = [
        &["backup", "wal-fetch"],
        &["backup", "wal-fetch", "a", "b", "--from", "c", "--colour"],
        &[
            "--keyring",
            "k",
            "backup",
            "wal-fetch",
            "a",
            "b",
            "--from",
            "c",
            "--key-id",
            "x",
            "--key-file",
            "y",
        ],
    ];
    for arguments in cases {
        place.run(arguments).failed(194, "SR-1001");
    }
}

#[test]
fn a_lost_segment_stops_recovery_unless_the_server_has_it() {
    let place = place();
    place
        .run(&[
            "backup", "create", "tree", "--to", "medium", "--key-id", "app",
        ])
        .succeeded();
    let later = "000000010000000200000006";
    place.write(later, common::segment(later, "later"));
    let with_key = ["--key-id", "app"];
    let push = [
        "backup",
        "wal-push",
        "000000010000000200000006",
        "--to",
        "medium",
    ];
    place.run(&[&push[..], &with_key].concat()).succeeded();
    fs::create_dir(place.path("pg_wal")).unwrap();
    let fetch = || {
        let lost = "000000010000000200000005";
        let to = "pg_wal/RECOVERYXLOG";
        let arguments = ["backup", "wal-fetch", lost, to, "--from", "medium"];
        place.run(&[&arguments[..], &with_key].concat())
    };
    fetch().failed(196, "SR-7130");
    // Its first page: magic, long header, timeline, address, remaining length, system identifier,
    // sizes.
    let mut page = vec![0; 8192];
    page[..4].copy_from_slice(&[0x16, 0xd1, 2, 0]);
    page[4] = 1;
    page[32..36].copy_from_slice(&(16_u32 << 20).to_le_bytes());
    let address =
        |page: &mut [u8], address: u64| page[8..16].copy_from_slice(&address.to_le_bytes());
    // An older one, whose file is to be used again.
    address(&mut page, (2 << 32) + (4 << 24));
    place.write("pg_wal/000000010000000200000005", &page);
    fetch().failed(196, "SR-7130");
    address(&mut page, (2 << 32) + (5 << 24));
    place.write("pg_wal/000000010000000200000005", &page);
    fetch().failed(1, "SR-7130");
}

/// What the server would not have archived is not archived: noise, a segment under another's name,
/// any other file.
#[test]
fn what_is_no_file_of_the_log_is_not_archived() {
    let place = place();
    let key = ["--key-id", "app"];
    let create = ["backup", "create", "tree", "--to", "medium"];
    place.run(&[&create[..], &key].concat()).succeeded();
    let push = |file: &str, content: &[u8]| {
        place.write(file, content);
        place.run(&[&["backup", "wal-push", file, "--to", "medium"], &key[..]].concat())
    };
    let name = "000000010000000000000007";
    let segment = common::segment(name, "true");
    let noise: Vec<u8> = segment.iter().map(|byte| byte ^ 0x5c).collect();
    push(name, &noise).failed(6, "SR-7173");
    push("000000010000000000000008", &segment).failed(6, "SR-7173");
    push(name, &segment[..4096]).failed(6, "SR-7173");
    push("postgresql.conf", b"port = 5432").failed(6, "SR-7173");
    push("00000002.history", b"\x00\x01").failed(6, "SR-7173");
    assert!(
        !place.path("medium/wal").exists()
            || fs::read_dir(place.path("medium/wal")).unwrap().count() == 0
    );
    push(name, &segment).succeeded();
}

#[test]
fn rewrap_names_what_others_can_open() {
    let place = place();
    place.run(&["key", "create", "new"]).succeeded();
    place.run(&["cert", "create", "escrow"]).succeeded();
    let create = |more: &[&str]| {
        let arguments = [
            "backup", "create", "tree", "--to", "medium", "--key-id", "app",
        ];
        place.run(&[&arguments[..], more].concat()).succeeded();
    };
    create(&[]);
    create(&["--certificate", "escrow"]);
    let rewrap = |more: &[&str]| {
        let arguments = [
            "backup",
            "rewrap",
            "medium",
            "--key-id",
            "app",
            "--new-key-id",
            "new",
        ];
        place.run(&[&arguments[..], more].concat())
    };
    rewrap(&["--set", "2"]).failed(6, "SR-7132");
    let run = rewrap(&[]);
    assert_eq!(run.out, "rewrapped 1 sets and 0 files of the log\n");
    let told = run.failed(6, "SR-7132");
    assert!(told.contains("note: set 2 can be opened by others too"));
    // By the private key of the certificate.
    let verify = ["backup", "verify", "medium", "--set", "2"];
    place.run(&verify).succeeded();
    rewrap(&["--set", "2", "--drop-others"]).succeeded();
    place.run(&verify).failed(3, "SR-2001");
    place
        .run(&[&verify[..], &["--key-id", "new"]].concat())
        .succeeded();
}

/// A certificate for what was sealed for a key only; then the private key alone gives it to another
/// key.
#[test]
fn rewrap_adds_certificates_and_takes_keys_away() {
    let place = place();
    place.run(&["key", "create", "new"]).succeeded();
    place.run(&["cert", "create", "escrow"]).succeeded();
    let create = [
        "backup", "create", "tree", "--to", "medium", "--key-id", "app",
    ];
    place.run(&create).succeeded();
    let verify = ["backup", "verify", "medium"];
    let with = |key: &str| place.run(&[&verify[..], &["--key-id", key]].concat());
    place.run(&verify).failed(3, "SR-2001");
    let rewrap = |more: &[&str]| place.run(&[&["backup", "rewrap", "medium"], more].concat());
    rewrap(&["--key-id", "app"]).failed(2, "SR-1001");
    let add = ["--key-id", "app", "--new-certificate", "escrow", "--add"];
    let run = rewrap(&add);
    assert!(run.err.contains("warning[SR-2033]"), "{}", run.err);
    run.succeeded();
    // Again it finds it there.
    rewrap(&add).succeeded();
    let header = place
        .run(&["backup", "header", "medium", "--json"])
        .succeeded();
    assert_eq!(header.matches("\"certificate\"").count(), 1, "{header}");
    place.run(&verify).succeeded();
    with("app").succeeded();
    rewrap(&["--new-key-id", "new", "--add", "--drop-others"]).failed(2, "SR-1001");
    rewrap(&["--new-key-id", "new", "--drop-others"]).succeeded();
    with("new").succeeded();
    with("app").failed(3, "SR-2002");
    place.run(&verify).failed(3, "SR-2001");
    // No private key opens it any more.
    rewrap(&["--new-certificate", "escrow"]).failed(3, "SR-2002");
}
