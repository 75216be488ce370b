//! Goal: a key server whose store is full says so as documented, damages nothing, and continues by
//! itself when there is space again.
//!
//! Method: a real server on a small file system that is filled.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::io::Write as _;

use common::{Installation, Running};
use serde_json::json;
use strongroom_testing_support::disk::SmallDisk;
use strongroom_testing_support::process::until;

/// A server's files on a file system of 6 MiB.
fn installation() -> Option<(Installation, SmallDisk, tempfile::TempDir)> {
    let outer = tempfile::tempdir().unwrap();
    let at = outer.path().join("disk");
    let disk = SmallDisk::mount(&at, 6 << 10)?;
    let installation = Installation::with_provider_in(tempfile::tempdir_in(&at).unwrap());
    Some((installation, disk, outer))
}

#[test]
fn a_store_without_room_is_told_as_one_and_goes_on_when_there_is_some() {
    let Some((installation, disk, _outer)) = installation() else {
        return;
    };
    let running = Running::open(&installation);
    let node = running.node(&installation, "n");
    let mut client = running.client(Some(&node));
    let material = "/v1/keys/k/versions/1/material";
    assert_eq!(client.post("/v1/keys", &json!({"name": "k"})).status, 201);
    let before = client.get(material);
    assert_eq!(before.status, 200, "{}", before.text());

    disk.fill_but(0);
    let mut refused = 0;
    // Fewer requests than the limits of a client allow.
    for _ in 0..150 {
        let answer = client.get(material);
        // What room the write-ahead log has is used first.
        if answer.status != 200 {
            answer.refused(503, "SR-8435");
            assert!(answer.headers.contains_key("retry-after"));
            refused += 1;
        }
        if refused == 20 {
            break;
        }
    }
    assert_eq!(refused, 20);
    client
        .post("/v1/keys", &json!({"name": "new"}))
        .refused(503, "SR-8435");
    // A denial stands, although it cannot be written down.
    let foreign = client.get("/v1/keys/another/versions/1/material");
    foreign.refused(404, "SR-8423");
    // Who has to act sees why.
    let status = running.admin(&installation).get("/v1/status").json();
    let alarm = status["room"]["alarms"][0].as_str().unwrap().to_owned();
    assert!(alarm.contains("has 0 MiB free"), "{alarm}");
    assert_eq!(running.admin(&installation).get("/metrics").status, 200);

    disk.clear();
    let after = client.get(material);
    assert_eq!((after.status, after.body), (200, before.body));
    assert_eq!(client.post("/v1/keys", &json!({"name": "new"})).status, 201);
    let rows = running
        .admin(&installation)
        .get("/v1/audit?limit=5000")
        .json();
    assert!(rows["rows"].as_array().unwrap().len() > 3);
}

#[test]
fn a_server_that_starts_without_room_is_sealed_and_says_that_it_is_the_store() {
    let Some((installation, disk, _outer)) = installation() else {
        return;
    };
    drop(Running::open(&installation));
    // A thread of the server's may still close the store, which removes the store's log and gives
    // its room back.
    let log = installation.path("keys.db-wal");
    until("the store is closed", || !log.exists());
    disk.fill_but(0);
    let running = Running::sealed(&installation);
    let mut client = running.client(None);
    assert_eq!(client.get("/v1/status").json()["waits_for"], "provider");
    let error = running.server.unseal_by_provider().unwrap_err();
    assert_eq!(error.code().number, 8435, "{error}");
    assert!(error.detail().contains("0 bytes free"), "{error}");
    assert_eq!(client.get("/v1/status").json()["waits_for"], "store");
    let answer = client.get("/v1/keys");
    answer.refused(503, "SR-8428");
    assert!(answer.text().contains("the store"), "{}", answer.text());

    // The provider is named when it is the provider.
    let root = std::fs::read(installation.path("root.key")).unwrap();
    std::fs::remove_file(installation.path("root.key")).unwrap();
    running.server.unseal_by_provider().unwrap_err();
    assert_eq!(client.get("/v1/status").json()["waits_for"], "provider");
    disk.clear();
    let mut file = std::fs::File::create(installation.path("root.key")).unwrap();
    file.write_all(&root).unwrap();
    running.server.unseal_by_provider().unwrap();
    assert_eq!(client.get("/v1/status").json()["sealed"], false);
    assert_eq!(running.admin(&installation).get("/v1/keys").status, 200);
}
