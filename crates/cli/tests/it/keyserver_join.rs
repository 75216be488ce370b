//! A host joins a key server, and keeps the root key of a keyring there: the real command against
//! the real server.
//!
//! Method: the server is a process of the same binary; what must not be sent or written is looked
//! for afterwards.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::os::unix::fs::PermissionsExt as _;

use common::{Place, keyserver};
use strongroom_testing_support::keyserver::KeyServer;

fn token(place: &Place, file: &str, more: &[&str]) {
    let fixed = [
        "keyserver",
        "token",
        "db-7",
        "--node",
        "a/admin.toml",
        "--out",
        file,
    ];
    place.run(&[&fixed[..], more].concat()).succeeded();
}

fn join(place: &Place, url: &str, authority: &str, token: &str, more: &[&str]) -> common::Run {
    let fixed = [
        "keyserver",
        "join",
        url,
        "--authority",
        authority,
        "--node",
        "db-7",
        "--token-file",
        token,
        "--config",
        "etc/node.toml",
    ];
    place.run(&[&fixed[..], more].concat())
}

#[test]
fn a_host_joins_once_for_each_token_and_keeps_its_root_key_there() {
    let place = Place::new();
    let mut server = keyserver::started(&place, "a");
    let other = keyserver::started(&place, "b");
    let url = server.url();
    token(&place, "token", &["--may-create"]);

    joins_that_cannot_be_right(&place, &url);
    joined_once(&place, &url);
    place
        .run(&["keyserver", "create", "root", "--node", "etc/node.toml"])
        .succeeded();

    let init = [
        "keyring",
        "init",
        "--provider",
        "keyserver:root?node=etc/node.toml",
    ];
    place.run(&init).succeeded();
    place.run(&["key", "create", "app"]).succeeded();
    place
        .run(&["keyserver", "rotate", "root", "--node", "etc/node.toml"])
        .succeeded();
    place.run(&["key", "create", "second"]).succeeded();
    place.run(&["keyring", "rotate-root"]).succeeded();
    place.run(&["key", "create", "third"]).succeeded();

    // A new certificate takes the place of the old one.
    token(&place, "token2", &[]);
    let out = join(&place, &url, "a/authority.pem", "token2", &["--replace"]).succeeded();
    assert!(out.starts_with("node db-7 role node: "), "{out}");
    assert!(
        String::from_utf8(place.read("etc/node.toml"))
            .unwrap()
            .contains("\"node-2.key\"")
    );
    // Of the former files nothing stays.
    let mut names: Vec<_> = std::fs::read_dir(place.path("etc"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["authority-2.pem", "node-2.key", "node-2.pem", "node.toml"]
    );
    place.run(&["key", "create", "fourth"]).succeeded();

    // What the server decides about the key, it decides about the keyring.
    let admin = |verb: &str| {
        place
            .run(&["keyserver", verb, "root", "--node", "a/admin.toml"])
            .succeeded();
    };
    admin("disable");
    place.run(&["key", "create", "no"]).failed(3, "SR-8426");
    admin("enable");
    place.run(&["key", "create", "fifth"]).succeeded();

    another_servers_key_of_that_name(&place, &other);

    // Down: an end in the time that is configured.
    server.stop();
    let node = String::from_utf8(place.read("etc/node.toml")).unwrap();
    place.write(
        "etc/node.toml",
        node.replace("total_timeout_seconds = 60", "total_timeout_seconds = 1"),
    );
    place.run(&["key", "create", "no"]).failed(3, "SR-8402");
}

/// Nothing is used up, and nothing stays, when it cannot be right.
fn joins_that_cannot_be_right(place: &Place, url: &str) {
    join(place, url, "b/authority.pem", "token", &[]).failed(3, "SR-8403");
    join(place, "http://127.0.0.1:1", "a/authority.pem", "token", &[]).failed(2, "SR-8408");
    join(place, url, "a/nothing.pem", "token", &[]).failed(2, "SR-1006");
    join(place, url, "token", "token", &[]).failed(3, "SR-8401");
    place.write("wrong", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let refused = join(place, url, "a/authority.pem", "wrong", &[]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(!refused.err.contains("AAAA"), "{}", refused.err);
    assert!(
        std::fs::read_dir(place.path("etc"))
            .unwrap()
            .next()
            .is_none()
    );
}

/// A host joins with the token, once.
fn joined_once(place: &Place, url: &str) {
    let out = join(place, url, "a/authority.pem", "token", &[]).succeeded();
    assert!(out.starts_with("node db-7 role node: "), "{out}");
    let mode = |name: &str| {
        std::fs::metadata(place.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode("etc/node.key"), mode("etc/node.toml")),
        (0o600, 0o644)
    );
    assert_eq!(
        place.read("etc/authority.pem"),
        place.read("a/authority.pem")
    );
    join(place, url, "a/authority.pem", "token", &[]).failed(6, "SR-1002");
    // The token is used up, and what is there stays in use.
    let again = join(place, url, "a/authority.pem", "token", &["--replace"]);
    assert_eq!(again.code, 3, "{}", again.err);
}

/// Another server that has a key of that name is not one that has that key.
fn another_servers_key_of_that_name(place: &Place, other: &KeyServer) {
    let node = String::from_utf8(place.read("etc/node.toml")).unwrap();
    let other_node = "etc-b/node.toml";
    let made = [
        "keyserver",
        "token",
        "db-7",
        "--node",
        "b/admin.toml",
        "--out",
        "token-b",
        "--may-create",
    ];
    place.run(&made).succeeded();
    let joined = [
        "keyserver",
        "join",
        &other.url(),
        "--authority",
        "b/authority.pem",
        "--node",
        "db-7",
        "--token-file",
        "token-b",
        "--config",
        other_node,
    ];
    place.run(&joined).succeeded();
    for verb in ["create", "rotate"] {
        place
            .run(&["keyserver", verb, "root", "--node", other_node])
            .succeeded();
    }
    let foreign = String::from_utf8(place.read(other_node)).unwrap();
    let foreign = foreign
        .replace("\"authority.pem\"", "\"../etc-b/authority.pem\"")
        .replace("\"node.pem\"", "\"../etc-b/node.pem\"")
        .replace("\"node.key\"", "\"../etc-b/node.key\"");
    assert!(foreign.contains(&other.url()) && foreign.contains("../etc-b/node.key"));
    place.write("etc/node.toml", foreign);
    place.run(&["key", "create", "no"]).failed(4, "SR-2105");
    place.write("etc/node.toml", node);
    place.run(&["key", "list"]).succeeded();
}
