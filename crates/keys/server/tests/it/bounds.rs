//! No node exceeds its quotas in the store or its share of the server's memory, and none occupies
//! the id of another node's object.
//!
//! Method: servers with small quotas, nodes that reach and exceed them, and other nodes that must
//! not be affected.
use crate::common;

use common::{Client, Installation, Running};
use serde_json::json;

fn id(n: u8) -> String {
    format!("{n:032x}")
}

fn escrow(n: u8) -> String {
    format!("/v1/escrow/{}", id(n))
}

fn report(client: &mut Client, n: u8, key: &str) -> common::Answer {
    let report = json!({"kind": "volume", "name": "v", "cipher": "aes-xts-plain64", "key_id": key, "key_version": 1, "created": 1});
    let path = format!("/v1/objects/{}", id(n));
    client.ask("PUT", &path, Some(report.to_string().as_bytes()))
}

/// A server with these bounds.
fn installation(bounds: &[(&str, &str)]) -> Installation {
    let installation = Installation::with_provider();
    installation.edit(|mut text| {
        for (before, after) in bounds {
            assert!(text.contains(before), "{before}");
            text = text.replace(before, after);
        }
        text
    });
    installation
}

#[test]
fn headers_and_objects_of_a_node_are_bounded_and_only_of_that_node() {
    let installation = installation(&[
        ("headers_per_node = 64", "headers_per_node = 2"),
        ("header_mib_per_node = 256", "header_mib_per_node = 1"),
        ("objects_per_node = 4096", "objects_per_node = 3"),
    ]);
    let running = Running::open(&installation);
    let (a, b) = (
        running.node(&installation, "a"),
        running.node(&installation, "b"),
    );
    let (mut a, mut b) = (running.client(Some(&a)), running.client(Some(&b)));
    let mut admin = running.admin(&installation);
    for n in 0..3 {
        assert_eq!(report(&mut a, n, "").status, 204);
    }
    report(&mut a, 3, "").refused(403, "SR-8443");
    // What is reported already is no more than before; nor is it another node's affair.
    assert_eq!(report(&mut a, 0, "").status, 204);
    assert_eq!(report(&mut b, 4, "").status, 204);
    for n in 0..2 {
        assert_eq!(
            a.ask("PUT", &escrow(n), Some(&vec![1; 400_000])).status,
            200
        );
    }
    let third = a.ask("PUT", &escrow(2), Some(b"x"));
    third.refused(403, "SR-8443");
    assert!(
        third.text().contains("headers: at most 2"),
        "{}",
        third.text()
    );
    a.ask("PUT", &escrow(1), Some(&vec![1; 700_000]))
        .refused(403, "SR-8443");
    assert!(a.get(&escrow(1)).body == vec![1; 400_000]);
    assert_eq!(
        a.ask("PUT", &escrow(1), Some(&vec![2; 500_000])).status,
        200
    );
    assert_eq!(
        b.ask("PUT", &escrow(4), Some(&vec![1; 400_000])).status,
        200
    );
    // An administrator is held to nothing.
    assert_eq!(admin.ask("PUT", &escrow(2), Some(b"x")).status, 200);
    a.ask("PUT", &escrow(0), Some(&vec![1; 600_000]))
        .refused(403, "SR-8443");
    for n in 1..3 {
        assert_eq!(a.delete(&escrow(n)).status, 204);
    }
    assert_eq!(
        a.ask("PUT", &escrow(0), Some(&vec![1; 900_000])).status,
        200
    );
    assert_eq!(a.ask("PUT", &escrow(1), Some(b"x")).status, 200);
    let gone = format!("/v1/objects/{}", id(2));
    assert_eq!(admin.delete(&gone).status, 204);
    assert_eq!(report(&mut a, 3, "").status, 204);
    report(&mut a, 5, "").refused(403, "SR-8443");
}

#[test]
fn keys_and_their_versions_are_bounded_for_nodes() {
    let installation = installation(&[
        ("keys_per_node = 1024", "keys_per_node = 2"),
        ("rotations_per_day = 24", "rotations_per_day = 3"),
    ]);
    let running = Running::open(&installation);
    let (a, b) = (
        running.node(&installation, "a"),
        running.node(&installation, "b"),
    );
    let (mut a, mut b) = (running.client(Some(&a)), running.client(Some(&b)));
    let mut admin = running.admin(&installation);
    for name in ["a1", "a2"] {
        assert_eq!(a.post("/v1/keys", &json!({"name": name})).status, 201);
    }
    a.post("/v1/keys", &json!({"name": "a3"}))
        .refused(403, "SR-8443");
    assert_eq!(b.post("/v1/keys", &json!({"name": "b1"})).status, 201);
    for name in ["c1", "c2", "c3"] {
        assert_eq!(admin.post("/v1/keys", &json!({"name": name})).status, 201);
    }
    // A key that two nodes share: none of them uses up its versions.
    assert_eq!(
        admin
            .post("/v1/grants", &json!({"node": "b", "key": "a1"}))
            .status,
        204
    );
    for _ in 0..2 {
        assert_eq!(b.post("/v1/keys/a1/rotate", &json!({})).status, 200);
    }
    for node in [&mut a, &mut b] {
        node.post("/v1/keys/a1/rotate", &json!({}))
            .refused(403, "SR-8443");
    }
    let rotated = admin.post("/v1/keys/a1/rotate", &json!({}));
    assert_eq!(rotated.json()["version"], 4, "{}", rotated.text());
    assert_eq!(a.post("/v1/keys/a2/rotate", &json!({})).status, 200);
    let rows = admin.get("/v1/audit?limit=1000").text();
    assert!(rows.contains("rotate SR-8443"), "denials are written down");
}

#[test]
fn a_header_is_put_for_an_object_that_the_node_reports_or_has_the_key_of() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let (a, b) = (
        running.node(&installation, "a"),
        running.node(&installation, "b"),
    );
    let (mut a, mut b) = (running.client(Some(&a)), running.client(Some(&b)));
    let mut admin = running.admin(&installation);
    assert_eq!(a.post("/v1/keys", &json!({"name": "k"})).status, 201);
    a.ask("PUT", &escrow(1), Some(b"first come"))
        .refused(404, "SR-8423");
    assert_eq!(report(&mut a, 1, "k").status, 204);
    // Before its owner has put anything there.
    b.ask("PUT", &escrow(1), Some(b"squat"))
        .refused(404, "SR-8423");
    assert_eq!(a.ask("PUT", &escrow(1), Some(b"mine")).status, 200);
    // What an administrator puts there is still its owner's.
    assert_eq!(admin.ask("PUT", &escrow(1), Some(b"mended")).status, 200);
    assert_eq!(a.get(&escrow(1)).body, b"mended");
    assert_eq!(report(&mut a, 2, "k").status, 204);
    assert_eq!(admin.ask("PUT", &escrow(2), Some(b"restored")).status, 200);
    assert_eq!(a.get(&escrow(2)).body, b"restored");
    b.get(&escrow(2)).refused(404, "SR-8423");
    assert_eq!(report(&mut admin, 2, "k").status, 204);
    let nodes = admin.get("/v1/objects").text();
    assert!(!nodes.contains("\"node\":\"admin\""), "{nodes}");
    // Who has the key can open the object, and may keep its header where nobody does.
    assert_eq!(report(&mut a, 3, "k").status, 204);
    admin.post("/v1/grants", &json!({"node": "b", "key": "k"}));
    assert_eq!(b.ask("PUT", &escrow(3), Some(b"shared")).status, 200);
    // One that is there stays with who keeps it.
    b.ask("PUT", &escrow(1), Some(b"mine now"))
        .refused(404, "SR-8423");
}

#[test]
fn headers_that_come_slowly_keep_waiting_only_who_sends_them() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let nodes = ["a", "b"].map(|name| running.node(&installation, name));
    for (node, n) in nodes.iter().zip(0..) {
        let mut client = running.client(Some(node));
        assert_eq!(report(&mut client, n, "").status, 204);
    }
    let begin = |length: usize, body: &str| {
        let mut client = running.client(Some(&nodes[0]));
        let (path, host) = (escrow(0), "localhost");
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
        );
        client.send(format!("{head}{body}").as_bytes()).unwrap();
        client
    };
    let soon = std::time::Duration::from_millis(300);
    let mut slow = begin(8, "half");
    std::thread::sleep(soon);
    // The same node's next one waits, whole as it is; another node's does not.
    let mut waits = begin(5, "whole");
    std::thread::sleep(soon);
    running
        .admin(&installation)
        .get(&escrow(0))
        .refused(404, "SR-8423");
    let mut other = running.client(Some(&nodes[1]));
    assert_eq!(other.ask("PUT", &escrow(1), Some(b"quick")).status, 200);
    assert_eq!(other.get(&escrow(1)).body, b"quick");
    assert_eq!(other.get("/v1/keys").status, 200);
    slow.send(b"done").unwrap();
    assert_eq!(slow.answer().unwrap().status, 200);
    assert_eq!(waits.answer().unwrap().status, 200);
    assert_eq!(waits.get(&escrow(0)).body, b"whole");
}
