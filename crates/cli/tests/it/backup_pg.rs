//! Goal: a server that archives through `strongroom backup wal-push` is restored to any point of
//! its log, and a key that is not there never looks like the end of the archive. Method: real
//! servers, the real binary as their archive and restore command.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::process::Output;

use strongroom_testing_support::postgres as support;
use strongroom_testing_support::postgres::{
    Room, Server, command, free_port, installed, put, stop_in, until,
};

const BINARY: &str = env!("CARGO_BIN_EXE_strongroom");

/// The binary, run as PostgreSQL's user, with the keyring in the room.
fn run(room: &Room, arguments: &[&str]) -> Output {
    let mut strongroom = command(BINARY);
    strongroom.env("STRONGROOM_KEYRING", room.at("keyring"));
    strongroom.args(arguments).output().unwrap()
}

#[track_caller]
fn succeeded(output: &Output) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {err}", output.status);
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A key file, a medium, a server that archives to it, and a set of it.
fn archiving(room: &Room) -> (Server<'_>, String, String) {
    let key = room.at("key");
    put(&key, "5a".repeat(32).as_bytes());
    room.directory("backups");
    let medium = text(&room.at("backups/medium"));
    let settings = format!(
        "archive_mode = on\narchive_command = '{BINARY} --keyring {} backup wal-push \"%p\" --to {medium} --key-file {}'\n",
        text(&room.at("keyring")),
        text(&key)
    );
    let server = Server::started(room, &installed(), &settings);
    let source = format!(
        "host={} port={} user=postgres",
        text(&room.at("")),
        server.port
    );
    let key = text(&key);
    let made = run(
        room,
        &[
            "backup",
            "create",
            &source,
            "--to",
            &medium,
            "--key-file",
            &key,
        ],
    );
    succeeded(&made);
    (server, medium, key)
}

/// Ends the present segment and waits for the archive to have it.
fn archived(server: &Server<'_>) {
    let segment = server.sql("SELECT pg_walfile_name(pg_switch_wal())");
    until("archived", || {
        server.sql("SELECT last_archived_wal FROM pg_stat_archiver") >= segment
    });
}

fn started(server: &Server<'_>, data: &Path) -> u16 {
    let port = free_port();
    server.start_in(data, port);
    until("recovered", || {
        server.sql_at(port, "SELECT pg_is_in_recovery()") == "f"
    });
    port
}

#[test]
fn a_server_is_restored_to_a_point_of_its_log() {
    let room = Room::new();
    let (server, medium, key) = archiving(&room);
    server.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) n");
    let position = server.sql("SELECT pg_current_wal_lsn()");
    server.sql("SELECT pg_sleep(1.1)");
    let time = server.sql("SELECT now()");
    server.sql("SELECT pg_sleep(1.1)");
    server.sql("INSERT INTO t SELECT n FROM generate_series(1, 1000) n");
    archived(&server);
    for (at, (option, value, expected)) in [
        ("--until-lsn", Some(&position), "1000"),
        ("--until-time", Some(&time), "1000"),
        ("--until-end", None, "2000"),
    ]
    .into_iter()
    .enumerate()
    {
        let data = room.at(&format!("restored-{at}"));
        let to = text(&data);
        let mut arguments = vec![
            "backup",
            "restore",
            &medium,
            "--to",
            &to,
            "--key-file",
            &key,
            option,
        ];
        arguments.extend(value.map(String::as_str));
        succeeded(&run(&room, &arguments));
        // Else the next recovery would follow the timeline that this one begins.
        support::append(&data.join("postgresql.auto.conf"), "archive_mode = off\n");
        let port = started(&server, &data);
        let counted = server.sql_at(port, "SELECT count(*) FROM t");
        stop_in(&server.bin, &data, "fast");
        assert_eq!(counted, expected, "{option}");
    }
}

#[test]
fn a_key_that_is_not_there_is_not_the_archives_end() {
    let room = Room::new();
    let (server, medium, key) = archiving(&room);
    server.sql("CREATE TABLE t AS SELECT 1");
    archived(&server);
    let segment = server.sql("SELECT last_archived_wal FROM pg_stat_archiver");
    let segment = segment.split('.').next().unwrap().to_owned();
    let out = text(&room.at("backups/out"));
    let fetch = |name: &str, key: &str| {
        run(
            &room,
            &[
                "backup",
                "wal-fetch",
                name,
                &out,
                "--from",
                &medium,
                "--key-file",
                key,
            ],
        )
    };
    succeeded(&fetch(&segment, &key));
    let content = std::fs::read(&out).unwrap();
    assert_eq!(content.len(), 16 << 20);
    assert_eq!(
        fetch("0000000100000000000000FF", &key).status.code(),
        Some(1)
    );
    let other = room.at("other");
    put(&other, "5b".repeat(32).as_bytes());
    for broken in [text(&other), text(&room.at("no-such-key"))] {
        assert_eq!(
            fetch(&segment, &broken).status.code(),
            Some(192 + 3),
            "{broken}"
        );
    }
    let object = room.at(&format!("backups/medium/wal/{segment}"));
    let mut bytes = std::fs::read(&object).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    put(&object, &bytes);
    assert_eq!(fetch(&segment, &key).status.code(), Some(192 + 4));
    bytes[last] ^= 1;
    put(&object, &bytes);
    // Under another name it is not that file.
    put(
        &room.at("backups/medium/wal/0000000100000000000000FE"),
        &bytes,
    );
    assert_eq!(
        fetch("0000000100000000000000FE", &key).status.code(),
        Some(192 + 4)
    );
}

#[test]
fn an_archived_file_is_never_replaced() {
    let room = Room::new();
    let (server, medium, key) = archiving(&room);
    archived(&server);
    let segment = server.sql("SELECT last_archived_wal FROM pg_stat_archiver");
    let segment = segment.split('.').next().unwrap().to_owned();
    let object = room.at(&format!("backups/medium/wal/{segment}"));
    let content = std::fs::read(room.at(&format!("data/pg_wal/{segment}"))).unwrap();
    let file = room.at(&format!("backups/{segment}"));
    put(&file, &content);
    let push = || {
        run(
            &room,
            &[
                "backup",
                "wal-push",
                &text(&file),
                "--to",
                &medium,
                "--key-file",
                &key,
            ],
        )
    };
    let before = std::fs::read(&object).unwrap();
    succeeded(&push());
    assert_eq!(std::fs::read(&object).unwrap(), before);
    let mut changed = content;
    changed[12_345_678] ^= 1;
    put(&file, &changed);
    let refused = push();
    assert_eq!(refused.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("SR-7120"));
    assert_eq!(std::fs::read(&object).unwrap(), before);
}

#[test]
fn expiry_keeps_the_log_of_the_sets_that_are_left() {
    let room = Room::new();
    let (server, medium, key) = archiving(&room);
    server.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) n");
    archived(&server);
    let source = format!(
        "host={} port={} user=postgres",
        text(&room.at("")),
        server.port
    );
    succeeded(&run(
        &room,
        &[
            "backup",
            "create",
            &source,
            "--to",
            &medium,
            "--key-file",
            &key,
        ],
    ));
    server.sql("INSERT INTO t SELECT n FROM generate_series(1, 500) n");
    archived(&server);
    let segments = || {
        std::fs::read_dir(room.at("backups/medium/wal"))
            .unwrap()
            .count()
    };
    let before = segments();
    succeeded(&run(&room, &["backup", "expire", &medium, "--keep", "1"]));
    assert!(segments() < before && segments() > 0);
    let data = room.at("restored");
    let to = text(&data);
    succeeded(&run(
        &room,
        &[
            "backup",
            "restore",
            &medium,
            "--to",
            &to,
            "--key-file",
            &key,
            "--until-end",
        ],
    ));
    let port = started(&server, &data);
    let counted = server.sql_at(port, "SELECT count(*) FROM t");
    stop_in(&server.bin, &data, "fast");
    assert_eq!(counted, "1500");
    // Nothing is removed when no set is.
    let before = segments();
    succeeded(&run(&room, &["backup", "expire", &medium, "--keep", "1"]));
    assert_eq!(segments(), before);
}

/// The settings of an earlier recovery are in a cluster's files, and in every later set of it.
#[test]
fn an_earlier_target_does_not_end_a_later_recovery() {
    let room = Room::new();
    let (server, medium, key) = archiving(&room);
    let position = server.sql("SELECT pg_current_wal_lsn()");
    support::append(
        &room.at("data/postgresql.auto.conf"),
        &format!("recovery_target_lsn = '{position}'\nrecovery_target_action = 'shutdown'\n"),
    );
    let source = format!(
        "host={} port={} user=postgres",
        text(&room.at("")),
        server.port
    );
    let create = [
        "backup",
        "create",
        &source,
        "--to",
        &medium,
        "--key-file",
        &key,
    ];
    succeeded(&run(&room, &create));
    server.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) n");
    server.sql("SELECT pg_sleep(1.1)");
    let time = server.sql("SELECT now()");
    server.sql("SELECT pg_sleep(1.1)");
    server.sql("INSERT INTO t SELECT n FROM generate_series(1, 1000) n");
    archived(&server);
    for (name, option, expected) in [
        ("restored-end", &["--until-end"][..], "2000"),
        ("restored-time", &["--until-time", &time][..], "1000"),
    ] {
        let data = room.at(name);
        let to = text(&data);
        let restore = [
            "backup",
            "restore",
            &medium,
            "--to",
            &to,
            "--key-file",
            &key,
        ];
        succeeded(&run(&room, &[&restore[..], option].concat()));
        support::append(&data.join("postgresql.auto.conf"), "archive_mode = off\n");
        let port = started(&server, &data);
        let counted = server.sql_at(port, "SELECT count(*) FROM t");
        stop_in(&server.bin, &data, "fast");
        assert_eq!(counted, expected, "{name}");
    }
}

/// Segments that are there and are not what their names say: `verify` names them, and what it says
/// fails.
#[test]
fn verify_looks_into_the_archived_segments() {
    let room = Room::new();
    let (server, medium, key) = archiving(&room);
    server.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) n");
    archived(&server);
    server.sql("INSERT INTO t SELECT n FROM generate_series(1, 1000) n");
    archived(&server);
    let verify = || run(&room, &["backup", "verify", &medium, "--key-file", &key]);
    let sound = verify();
    succeeded(&sound);
    let said = String::from_utf8_lossy(&sound.stdout).into_owned();
    assert!(
        said.contains("none is missing\n  checked: the pages of "),
        "{said}"
    );
    // The next to last one, taken from the medium, changed and archived again.
    let of_medium = |name: &str| room.at(&format!("backups/medium/wal/{name}"));
    let mut names: Vec<String> = std::fs::read_dir(room.at("backups/medium/wal"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.len() == 24)
        .collect();
    names.sort();
    let [.., segment, _] = names.as_slice() else {
        panic!("{names:?}");
    };
    let file = room.at(&format!("backups/{segment}"));
    let path = text(&file);
    let fetch = ["backup", "wal-fetch", segment, &path, "--from", &medium];
    succeeded(&run(&room, &[&fetch[..], &["--key-file", &key]].concat()));
    let content = std::fs::read(&file).unwrap();
    // A cluster's number in the first page; the address in the second.
    for (at, why) in [
        (24, "of another cluster"),
        (8192 + 9, "its pages do not go on"),
    ] {
        std::fs::remove_file(of_medium(segment)).unwrap();
        let mut changed = content.clone();
        changed[at] ^= 1;
        put(&file, &changed);
        let push = ["backup", "wal-push", &path, "--to", &medium];
        succeeded(&run(&room, &[&push[..], &["--key-file", &key]].concat()));
        let failed = verify();
        assert_eq!(failed.status.code(), Some(4), "{why}");
        assert!(String::from_utf8_lossy(&failed.stderr).contains("SR-7174"));
        let said = String::from_utf8_lossy(&failed.stdout).into_owned();
        assert!(
            said.contains(&format!("  wrong: {segment}: {why}")),
            "{said}"
        );
    }
}
