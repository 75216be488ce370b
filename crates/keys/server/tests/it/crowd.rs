//! Idle connections keep no enrolled client out, and not `/healthz` either.
//!
//! Method: a real server with a timeout of an hour for handshakes and requests, so that no slot
//! becomes free by itself, is filled with every kind of connection that an unknown client can open.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Client, Identity, Installation, Running};
use serde_json::json;

/// Places in all, and of one address.
const ALL: usize = 96;
const OF_ONE: usize = 48;
/// Longest time in which an enrolled client is to have its key beside a crowd.
const SOON: Duration = Duration::from_secs(5);

/// A server with few places in which an idle connection stays for an hour.
fn installation(connections: usize, of_one_address: usize) -> Installation {
    let installation = Installation::with_provider();
    let changes = [
        ("connections = 1024", format!("connections = {connections}")),
        (
            "connections_per_address = 256",
            format!("connections_per_address = {of_one_address}"),
        ),
        ("head_seconds = 10", "head_seconds = 3600".to_owned()),
        ("address_burst = 50", "address_burst = 10000".to_owned()),
    ];
    installation.edit(|mut text| {
        for (before, after) in changes {
            assert!(text.contains(before), "{before}");
            text = text.replace(before, &after);
        }
        text
    });
    installation
}

/// A node with a key of its own.
fn node_with_key(running: &Running, installation: &Installation, name: &str) -> Identity {
    let node = running.node(installation, name);
    let made = running
        .client(Some(&node))
        .post("/v1/keys", &json!({"name": name}));
    assert_eq!(made.status, 201, "{}", made.text());
    node
}

/// Connections without a certificate: silent ones, and ones whose handshake is done.
fn crowd(running: &Running, silent: usize, greeted: usize) -> (Vec<TcpStream>, Vec<Client>) {
    let silent = (0..silent).map(|_| TcpStream::connect(running.address).unwrap());
    let silent = silent.collect();
    (silent, (0..greeted).map(|_| running.client(None)).collect())
}

/// Asserts that a new connection of this node has its key soon, and that `/healthz` answers.
fn is_served(running: &Running, node: &Identity, key: &str) {
    let began = Instant::now();
    assert_eq!(running.client(Some(node)).material(key, "1").len(), 44);
    assert_eq!(running.client(None).get("/healthz").status, 200);
    let took = began.elapsed();
    assert!(took < SOON, "{took:?}");
}

#[test]
fn idle_strangers_keep_no_node_out() {
    let installation = installation(ALL, ALL * 100);
    let running = Running::open(&installation);
    let node = node_with_key(&running, &installation, "a");
    let mut early = running.client(Some(&node));
    assert_eq!(early.material("a", "1").len(), 44);
    for (silent, greeted) in [(ALL * 2, 0), (0, ALL * 2), (ALL, ALL)] {
        let crowd = crowd(&running, silent, greeted);
        is_served(&running, &node, "a");
        // A connection of an enrolled client is never closed for a stranger's sake.
        assert_eq!(early.material("a", "1").len(), 44);
        drop(crowd);
    }
    let told = running.admin(&installation).get("/metrics").text();
    let none = "strongroom_keyserver_displaced_total 0\n";
    assert!(
        told.contains(none.trim_end_matches("0\n")) && !told.contains(none),
        "what was closed is counted"
    );
}

#[test]
fn idle_connections_of_one_address_do_not_reset_what_comes_from_it() {
    let installation = installation(ALL * 100, OF_ONE);
    let running = Running::open(&installation);
    let node = node_with_key(&running, &installation, "a");
    let mut early = running.client(Some(&node));
    assert_eq!(early.material("a", "1").len(), 44);
    let crowd = crowd(&running, OF_ONE, OF_ONE);
    is_served(&running, &node, "a");
    assert_eq!(early.material("a", "1").len(), 44);
    drop(crowd);
}

#[test]
fn a_revoked_certificate_is_a_strangers() {
    let installation = installation(ALL, ALL * 100);
    let running = Running::open(&installation);
    let node = node_with_key(&running, &installation, "a");
    let revoked = node_with_key(&running, &installation, "b");
    let mut before: Vec<Client> = (0..ALL / 2)
        .map(|_| running.client(Some(&revoked)))
        .collect();
    for client in &mut before {
        assert_eq!(client.get("/v1/keys").status, 200);
    }
    let ended = running.admin(&installation).delete("/v1/nodes/b");
    assert_eq!(ended.status, 204, "{}", ended.text());
    for client in &mut before {
        client.get("/v1/keys").refused(403, "SR-8421");
    }
    let mut early = running.client(Some(&node));
    assert_eq!(early.material("a", "1").len(), 44);
    let after: Vec<Client> = (0..ALL).map(|_| running.client(Some(&revoked))).collect();
    is_served(&running, &node, "a");
    assert_eq!(early.material("a", "1").len(), 44);
    drop((before, after));
}

#[test]
fn one_enrolled_client_does_not_take_every_place() {
    let installation = installation(ALL, ALL * 100);
    let running = Running::open(&installation);
    let greedy = node_with_key(&running, &installation, "a");
    let node = node_with_key(&running, &installation, "b");
    let mut early = running.client(Some(&node));
    assert_eq!(early.material("b", "1").len(), 44);
    let mut many: Vec<Client> = (0..ALL - 1)
        .map(|_| running.client(Some(&greedy)))
        .collect();
    for client in &mut many {
        assert_eq!(client.get("/v1/keys").status, 200);
    }
    is_served(&running, &node, "b");
    assert_eq!(early.material("b", "1").len(), 44);
    // The oldest have made way, and the newest have not.
    assert!(many[0].try_ask("GET", "/v1/keys", None).is_err());
    assert_eq!(many[ALL - 2].get("/v1/keys").status, 200);
}
