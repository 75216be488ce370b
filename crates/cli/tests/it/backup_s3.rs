//! Goal: `strongroom backup` does with a medium in an object store, and with mirrors, what it does
//! with a directory; a server archives there and recovers from there; credentials are in no output.
//! Method: the real binary, a real S3 server (moto), a real PostgreSQL.
#![cfg(feature = "object-store")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::{Place, Run};
use strongroom_testing_support::postgres as support;
use strongroom_testing_support::postgres::{
    Room, Server, free_port, installed, put, stop_in, until,
};
use strongroom_testing_support::s3::{BUCKET, KEY_ID, S3, SECRET, settings};

const BINARY: &str = env!("CARGO_BIN_EXE_strongroom");

/// The command with the credentials in its environment. Nothing that it prints has them.
fn run(place: &Place, port: u16, arguments: &[&str]) -> Run {
    let mut command = place.command();
    let output = command.args(arguments).envs(settings(port)).output();
    let output = output.unwrap();
    let run = Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    for secret in [KEY_ID, SECRET] {
        assert!(!run.out.contains(secret) && !run.err.contains(secret));
    }
    run
}

fn place() -> Place {
    let place = Place::new();
    place.with_key();
    place.run(&["key", "create", "new"]).succeeded();
    fs::create_dir(place.path("tree")).unwrap();
    place.write("tree/a", "CANARY-5e2d content");
    place.write("tree/b", common::noise(9_000_000, 7));
    place
}

#[test]
fn every_command_takes_a_url() {
    let (place, s3) = (place(), S3::started());
    let url = &format!("s3://{BUCKET}/backups/host");
    let run = |arguments: &[&str]| run(&place, s3.port, arguments);
    let create = ["backup", "create", "tree", "--to", url, "--key-id", "app"];
    let made = run(&create).succeeded();
    assert!(made.starts_with("set 1: 2 files"), "{made}");
    let more = ["--compression", "none", "--json"];
    let mirrored = ["--mirror", "beside", "--mirror"];
    let other = format!("s3://{BUCKET}/second");
    let third = [&create[..], &more, &mirrored, &[&other]].concat();
    let json = run(&third).json();
    assert_eq!(json["position"], 2);
    assert_eq!(json["mirrors"][0]["path"], "beside");
    assert_eq!(json["mirrors"][1]["position"], 1);
    for (at, medium) in [url.as_str(), "beside", &other].into_iter().enumerate() {
        let with_key = ["--key-id", "app"];
        let verify = [&["backup", "verify", medium][..], &with_key].concat();
        run(&verify).succeeded();
        let to = format!("restored-{at}");
        let restore = ["backup", "restore", medium, "--to", &to];
        run(&[&restore[..], &with_key].concat()).succeeded();
        for name in ["a", "b"] {
            let back = place.read(&format!("{to}/{name}"));
            assert_eq!(back, place.read(&format!("tree/{name}")));
        }
    }
    let name = "000000010000000000000001";
    let segment = common::segment(name, "a file of the log");
    place.write(name, &segment);
    let push = ["backup", "wal-push", name, "--to", url, "--key-id", "app"];
    run(&push).succeeded();
    let rewrap = ["backup", "rewrap", url, "--key-id", "app"];
    let told = run(&[&rewrap[..], &["--new-key-id", "new"]].concat()).succeeded();
    assert_eq!(told, "rewrapped 2 sets and 1 files of the log\n");
    let fetch = ["backup", "wal-fetch", name, "out", "--from", url];
    run(&[&fetch[..], &["--key-id", "new"]].concat()).succeeded();
    assert_eq!(place.read("out"), segment);
    run(&[&fetch[..], &["--key-id", "app"]].concat()).failed(195, "SR-2002");
    run(&["backup", "expire", url, "--keep", "1"]).succeeded();
    let header = run(&["backup", "header", url, "--json"]).json();
    assert_eq!(header["path"], url.as_str());
    assert_eq!(header["sets"][0]["position"], 2);
    assert_eq!(header["sets"].as_array().unwrap().len(), 1);
    s3.nothing_has("CANARY-5e2d");
    s3.nothing_has(SECRET);
}

#[test]
fn what_cannot_be_reached_or_named_is_refused() {
    let place = place();
    let gone = free_port();
    let url = format!("s3://{BUCKET}/m");
    let verify = ["backup", "verify", &url, "--key-id", "app"];
    run(&place, gone, &verify).failed(5, "SR-7141");
    let fetch = ["backup", "wal-fetch", "000000010000000000000001", "out"];
    let fetch = [&fetch[..], &["--from", &url, "--key-id", "app"]].concat();
    run(&place, gone, &fetch).failed(197, "SR-7141");
    for url in [
        "s3://user:CANARY-pw@bucket/m",
        "s3://bucket/m?CANARY-pw",
        "http://bucket/CANARY-pw",
    ] {
        let told = run(&place, gone, &["backup", "header", url]).failed(2, "SR-7140");
        assert!(!told.contains("CANARY-pw"), "{told}");
    }
    let many = ["backup", "create", "tree", "--to", "m", "--key-id", "app"];
    let mirrors = ["a", "b", "c", "d"].map(|name| ["--mirror", name]);
    let many = [&many[..], mirrors.as_flattened()].concat();
    place.run(&many).failed(2, "SR-1001");
    assert!(!place.path("m").exists());
    let within = ["backup", "create", "tree", "--to", "m", "--key-id", "app"];
    let within = [&within[..], &["--mirror", "tree/m"]].concat();
    place.run(&within).failed(2, "SR-1003");
}

/// Starts a server that finds the store's credentials in its environment.
fn start(server: &Server<'_>, data: &Path, port: u16, store: u16) {
    let options = format!(
        "-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={}",
        server.room.at("").display()
    );
    let log = server.room.at(&format!("log-{port}"));
    let mut start = server.program("pg_ctl");
    start.args(["start", "-w", "-s", "-t", "60", "-D"]);
    start.arg(data).arg("-l").arg(&log).arg("-o").arg(options);
    let start = start.envs(settings(store)).stdout(Stdio::null());
    let status = start.stderr(Stdio::null()).status().unwrap();
    let told = fs::read_to_string(&log).unwrap_or_default();
    assert!(status.success(), "{told}");
}

#[test]
fn a_server_archives_to_a_store_and_recovers_from_it() {
    let (room, s3) = (Room::new(), S3::started());
    let text = |name: &str| room.at(name).to_str().unwrap().to_owned();
    put(&room.at("key"), "5a".repeat(32).as_bytes());
    let (key, keyring) = (text("key"), text("keyring"));
    let url = format!("s3://{BUCKET}/it's 100%25/pg");
    let shell = url.replace('\'', r"'\''").replace('%', "%%");
    let archive = format!(
        "{BINARY} --keyring {keyring} backup wal-push \"%p\" --to '{shell}' --key-file {key}"
    );
    let archive = archive.replace('\\', r"\\").replace('\'', "''");
    let archiving = format!("archive_mode = on\narchive_command = '{archive}'\n");
    let server = Server::make(&room, &installed(), &archiving);
    start(&server, &server.data, server.port, s3.port);
    let run = |arguments: &[&str]| {
        let mut strongroom = support::command(BINARY);
        strongroom.args(["--keyring", &keyring, "backup"]);
        strongroom.args(arguments).args(["--key-file", &key]);
        let output = strongroom.envs(settings(s3.port)).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{err}");
        assert!(!err.contains(KEY_ID) && !err.contains(SECRET));
    };
    let source = format!("host={} port={} user=postgres", text(""), server.port);
    run(&["create", &source, "--to", &url]);
    server.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) n");
    let position = server.sql("SELECT pg_current_wal_lsn()");
    server.sql("INSERT INTO t SELECT n FROM generate_series(1, 1000) n");
    let segment = server.sql("SELECT pg_walfile_name(pg_switch_wal())");
    until("archived", || {
        server.sql("SELECT last_archived_wal FROM pg_stat_archiver") >= segment
    });
    for (name, target, expected) in [
        ("end", &["--until-end"][..], "2000"),
        ("lsn", &["--until-lsn", &position], "1000"),
    ] {
        let data = room.at(name);
        let to = text(name);
        run(&[&["restore", &url, "--to", &to][..], target].concat());
        let settings = data.join("postgresql.auto.conf");
        let written = fs::read_to_string(&settings).unwrap();
        assert!(!written.contains(KEY_ID) && !written.contains(SECRET));
        // Else the next recovery would follow the timeline that this one begins.
        support::append(&settings, "archive_mode = off\n");
        let port = free_port();
        start(&server, &data, port, s3.port);
        until("recovered", || {
            server.sql_at(port, "SELECT pg_is_in_recovery()") == "f"
        });
        let counted = server.sql_at(port, "SELECT count(*) FROM t");
        stop_in(&server.bin, &data, "fast");
        assert_eq!(counted, expected, "{name}");
    }
}
