//! Goal: a recorded query runs again without the zone, the same way, without a value; and nothing
//! but what was recorded does.
//!
//! Method: the real command; the zone is killed before the replay, and the record is changed, cut
//! and given another key.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::setup::{is_in_a_file, make_file, messages, start_all_with};
use strongroom_testing_support::port::is_listening;
use tempfile::TempDir;

/// A directory with a key for records.
fn key() -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("record.key");
    make_file(&path, b"a key for records, not for values");
    let path = path.to_str().expect("UTF-8").to_owned();
    (directory, path)
}

fn scene(key: &str) -> (Owner, Server) {
    let (owner, server) = start_all_with(&["--record-key-file", key], &[]);
    drop(owner.rows(
        "create table t (id int, name enc_text, v enc_int4) using strongroom;
        insert into t values (1, 'canary-one', 30), (2, 'canary-two', 10), (3, 'canary-three', 20), (4, 'canary-four', 10), (5, null, 5)",
    ));
    (owner, server)
}

/// Runs a query in a session that is recorded; its rows.
fn recorded(owner: &Owner, name: &str, query: &str) -> String {
    let said = owner.rows(&format!(
        "set strongroom.record = '{name}'; {query}; reset strongroom.record; select 'end' from t where v = 30"
    ));
    let rows = said.strip_suffix("\nend").expect("the last answer");
    rows.to_owned()
}

fn record_of(owner: &Owner, name: &str) -> PathBuf {
    owner
        .path("zone")
        .join("records")
        .join(format!("{name}.record"))
}

fn command(owner: &Owner, record: &Path, key: &str) -> Command {
    let mut command = owner.columns();
    command.arg("replay").arg(record).arg("--socket");
    command.arg(owner.path("replay.sock"));
    command.args(["--user", "postgres", "--key-file", key]);
    command
}

/// A replay that is served.
struct Replaying(Child);

impl Replaying {
    fn start(mut command: Command, socket: &Path) -> Self {
        let mut replaying = Self(command.spawn().expect("the command can be run"));
        let mut waited = 0;
        while !is_listening(socket) {
            let ended = replaying.0.try_wait().expect("a child");
            assert!(ended.is_none() && waited < 1200, "it does not serve");
            std::thread::sleep(Duration::from_millis(50));
            waited += 1;
        }
        replaying
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The first column of rows.
fn ids(rows: &str) -> Vec<&str> {
    let fields = rows.lines().map(|row| row.split('|').next());
    fields.flatten().collect()
}

#[test]
fn a_recorded_query_is_replayed_without_the_zone() {
    let (_directory, key) = key();
    let (mut owner, server) = scene(&key);
    // A constant as an operator has it: an envelope.
    let envelope = server.rows("select v from t where id = 2");
    let with_constant = format!(
        "select id, name, v + v from t where v > '{envelope}'::enc_int4 order by v desc, id"
    );
    let queries = [
        "select id, name, v + v from t where v <> (select max(v) from t) order by v, id",
        with_constant.as_str(),
        "select count(*), sum(v), min(name) from t group by v order by v",
    ];
    let mut expected = Vec::new();
    for (number, query) in queries.iter().enumerate() {
        expected.push(recorded(&owner, &format!("query-{number}"), query));
    }
    assert_eq!(ids(&expected[0]), ["5", "2", "4", "3"]);
    assert_eq!(ids(&expected[1]), ["1", "3"]);
    owner.kill_zone();
    let socket = owner.path("replay.sock");
    let at = format!("set strongroom.zone = '{}'", socket.display());
    for (number, (query, expected)) in queries.iter().zip(&expected).enumerate() {
        let record = record_of(&owner, &format!("query-{number}"));
        assert!(!is_in_a_file(&record, "canary"));
        drop(std::fs::remove_file(&socket));
        let _replaying = Replaying::start(command(&owner, &record, &key), &socket);
        let again = server.run(&format!("{at}; {query}"));
        assert_eq!(again.messages, "", "{query}");
        assert_eq!(ids(&again.rows), ids(expected), "{query}");
        assert!(!again.rows.contains("canary") && again.rows.contains("sr1:"));
        for departing in [
            "select id from t where v < v + v order by v desc, id",
            "insert into t select id, name, v + v from t",
            "select upper(name) from t",
        ] {
            let said = server.run(&format!("{at}; {departing}"));
            assert!(
                said.messages.contains("SR-8125"),
                "{departing}: {}",
                said.messages
            );
        }
    }
}

#[test]
fn a_record_is_refused_whose_name_or_bytes_are_not_right() {
    let (_directory, key) = key();
    let (owner, server) = scene(&key);
    drop(recorded(&owner, "one", "select id from t where v < 25"));
    for refused in [
        "set strongroom.record = 'one'; select v from t",
        "set strongroom.record = '../two'; select v from t",
    ] {
        let said = owner.run(refused);
        assert!(
            said.messages.contains("SR-8124"),
            "{refused}: {}",
            said.messages
        );
    }
    let nobody = server.run("create role nobody; set role nobody; set strongroom.record = 'x'");
    assert!(nobody.messages.contains("42501"), "{}", nobody.messages);
    let record = record_of(&owner, "one");
    let bytes = std::fs::read(&record).expect("the record");
    let (changed, cut) = (owner.path("changed.record"), owner.path("cut.record"));
    let mut other = bytes.clone();
    let middle = other.len() - 30;
    other[middle] ^= 1;
    make_file(&changed, &other);
    make_file(&cut, &bytes[..4096]);
    let wrong = owner.path("zone.key");
    for (record, key, code) in [
        (&record, wrong.to_str().expect("UTF-8"), 3),
        (&changed, key.as_str(), 4),
        (&cut, key.as_str(), 4),
    ] {
        let output = command(&owner, record, key).output();
        let output = output.expect("the command can be run");
        assert_eq!(output.status.code(), Some(code), "{}", messages(&output));
    }
}

#[test]
fn values_in_clear_are_not_recorded() {
    let (_directory, key) = key();
    let (owner, _server) = start_all_with(&["--record-key-file", &key], &["--declassify"]);
    drop(owner.rows("create table t (v enc_int4) using strongroom; insert into t values (30)"));
    let clear = "select strongroom_columns.declassify(v) from t";
    assert_eq!(owner.rows(clear), "30");
    let said = owner.run(&format!(
        "set strongroom.record = 'clear'; select v from t; {clear}"
    ));
    assert!(said.messages.contains("SR-8124"), "{}", said.messages);
    // Without a key for records there are none.
    let (owner, _server) = start_all_with(&[], &[]);
    drop(owner.rows("create table t (v enc_int4) using strongroom; insert into t values (30)"));
    let said = owner.run("set strongroom.record = 'clear'; select v from t");
    assert!(said.messages.contains("SR-8124"), "{}", said.messages);
}
