//! Two administrators agree on a key's destruction with the command: what each of them is told,
//! across a restart of the server, and how a request is seen and taken back.
//!
//! Method: the real binary, the server as a process of its own.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;
use crate::common::server;

use common::{Place, Run};
use server::Server;

/// A verb of `keyserver` as the administrator with this configuration.
fn by(place: &Place, config: &str, words: &[&str]) -> Run {
    place.run(&[&["keyserver"], words, &["--node", config]].concat())
}

const ADMIN: &str = "server/admin.toml";
const BOSS: &str = "boss/node.toml";

/// Starts the server anew.
fn restart(server: &mut Server) {
    server.stop();
    server.start();
}

/// A server that wants two administrators, `admin` and `boss`, and has the key `k`.
fn with_two() -> Server {
    let mut server = Server::new();
    let config = String::from_utf8(server.place.read("server/server.toml")).unwrap();
    let one = "destroy_administrators = 1";
    assert!(config.contains(one), "{config}");
    let two = config.replace(one, "destroy_administrators = 2");
    server.place.write("server/server.toml", two);
    restart(&mut server);
    server.join_with("boss", &["--role", "admin"]);
    by(&server.place, ADMIN, &["create", "k"]).succeeded();
    server
}

#[test]
fn the_second_administrator_is_shown_what_the_first_one_asked_for() {
    let mut server = with_two();
    let ask = ["destroy", "k", "--confirm", "k", "--after-days", "30"];
    let asked = by(&server.place, ADMIN, &ask).failed(6, "SR-8411");
    let says = "k is active; asked for by admin at 2";
    assert!(asked.contains(says), "{asked}");
    restart(&mut server);
    let place = &server.place;
    let listed = by(place, BOSS, &["keys"]).succeeded();
    let says = "\nk waits for a second administrator: asked for by admin at 2";
    assert!(listed.contains(says), "{listed}");
    assert!(listed.contains(", to be destroyed 30 days after the second one agrees, until 2"));
    let keys = by(place, BOSS, &["keys", "--json"]).json();
    assert_eq!(keys["keys"][0]["destroy_asked_after_seconds"], 30 * 86_400);
    // Shown before the name is asked for once more.
    let unconfirmed = by(place, BOSS, &["destroy", "k"]);
    assert!(
        unconfirmed.err.contains("asked for by admin at 2"),
        "{}",
        unconfirmed.err
    );
    unconfirmed.failed(6, "SR-8453");
    let sooner = ["destroy", "k", "--confirm", "k", "--after-days", "8"];
    let refused = by(place, BOSS, &sooner);
    assert!(
        refused
            .err
            .contains("admin asked for after_seconds 2592000"),
        "{}",
        refused.err
    );
    refused.failed(6, "SR-8458");
    let agreed = by(place, BOSS, &["destroy", "k", "--confirm", "k"]).succeeded();
    assert!(agreed.starts_with("k destroy-pending 2"), "{agreed}");
    // Sooner takes two again; the request is taken back, and the key stays as both agreed.
    let asked = by(place, BOSS, &sooner).failed(6, "SR-8411");
    let says = "k is destroy-pending; asked for by boss at 2";
    assert!(asked.contains(says), "{asked}");
    let withdrawn = by(place, ADMIN, &["destroy", "k", "--withdraw"]).succeeded();
    assert_eq!(withdrawn, "k destroy-pending: the request was taken back\n");
    by(place, ADMIN, &["destroy", "k", "--withdraw"]).failed(6, "SR-8439");
    let listed = by(place, BOSS, &["keys"]).succeeded();
    assert!(!listed.contains("waits"), "{listed}");
    let log = by(place, ADMIN, &["audit"]).succeeded();
    for row in [
        " boss destroy k ",
        "after_seconds 2592000, destroy_at ",
        " admin destroy-withdraw k ",
    ] {
        assert!(log.contains(row), "{row}: {log}");
    }
}
