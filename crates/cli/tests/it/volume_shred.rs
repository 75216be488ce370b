//! Goal: `volume shred` succeeds only when nothing is left undone at the key server; what it could
//! not have destroyed there is told with a code, and the volume is noise nevertheless. Method: the
//! real server, whose rules and rights are changed between volumes.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common::server;

use server::Server;

/// A volume with a key of the key server. Its UUID.
fn made(server: &Server, volume: &str, key: &str) -> String {
    let size = ["--size", "24M", "--no-recovery", "--json"];
    let create = [&["create", volume, "--key-id", key][..], &size].concat();
    let run = server.volume("db-7", &create);
    let uuid = run.json()["uuid"].as_str().unwrap().to_owned();
    run.succeeded();
    uuid
}

/// Shreds it with `more`, which has to fail with SR-8358 and to leave noise; the JSON record.
fn not_all_done(server: &Server, volume: &str, uuid: &str) -> serde_json::Value {
    let shred = ["shred", volume, "--confirm", uuid, "--json"];
    let run = server.volume("db-7", &shred);
    let record = run.json();
    let told = run.failed(6, "SR-8358");
    assert!(told.contains("strongroom keyserver destroy"), "{told}");
    assert_eq!(record["error"]["code"], "SR-8358", "{record}");
    assert_eq!(
        (&record["key_destroyed"], &record["key_state"]),
        (&false.into(), &"kept".into()),
        "{record}"
    );
    let head = &server.place.read(volume)[..16 << 20];
    assert!(!head.starts_with(b"LUKS"), "the header is still there");
    let status = ["volume", "status", volume];
    server.place.run(&status).failed(4, "SR-8322");
    record
}

fn state_of(server: &Server, key: &str) -> String {
    let admin = server.place.path("server/admin.toml");
    let client = strongroom_keys_client::Node::load(&admin).unwrap().client();
    client.key(key).unwrap().state
}

#[test]
fn a_key_that_the_server_does_not_destroy_is_a_failure() {
    let mut server = Server::new();
    server.join("db-7");
    let uuids = ["one", "two", "three"].map(|name| made(&server, name, name));

    // With a time for the key all was done that could be done: a success, with the time told.
    let shred = ["shred", "one", "--confirm", &uuids[0], "--json"];
    let run = server.volume("db-7", &shred);
    let record = run.json();
    run.succeeded();
    assert_eq!(record["key_state"], "destroy-pending");
    assert_eq!(record["not_done"], serde_json::json!([]));
    assert!(record.get("error").is_none(), "{record}");

    // Two administrators have to want it, so that the server refuses it to a node.
    with(
        &mut server,
        "destroy_administrators = 1",
        "destroy_administrators = 2",
    );
    let record = not_all_done(&server, "two", &uuids[1]);
    let not_done = record["not_done"].as_array().unwrap();
    assert_eq!(not_done.len(), 1, "{record}");
    assert!(
        not_done[0]
            .as_str()
            .unwrap()
            .starts_with("the key two: SR-8422"),
        "{record}"
    );
    assert_eq!(record["escrow_removed"], true);
    assert_eq!(state_of(&server, "two"), "active");

    // The wish of one administrator does not destroy it either, and is not told as if it did.
    let asked = |confirm: &str| {
        let node = ["--node", "server/admin.toml"];
        let destroy = ["keyserver", "destroy", "two", "--confirm", confirm];
        server.place.run(&[&destroy[..], &node].concat())
    };
    asked("one").failed(6, "SR-8453");
    asked("two").failed(6, "SR-8411");
    assert_eq!(state_of(&server, "two"), "active");

    // A server that does not answer.
    server.stop();
    let config = String::from_utf8(server.place.read("db-7/node.toml")).unwrap();
    let config = config.replace("total_timeout_seconds = 60", "total_timeout_seconds = 1");
    server.place.write("db-7/node.toml", config);
    let record = not_all_done(&server, "three", &uuids[2]);
    let not_done = record["not_done"].to_string();
    assert!(not_done.contains("SR-8402"), "{record}");
}

/// Sets what `server.toml` says of one thing, and starts the server again.
fn with(server: &mut Server, before: &str, after: &str) {
    server.stop();
    let config = String::from_utf8(server.place.read("server/server.toml")).unwrap();
    assert!(config.contains(before), "{config}");
    let config = config.replace(before, after);
    server.place.write("server/server.toml", config);
    server.start();
}

#[test]
fn a_key_that_was_erased_before_is_not_left_undone() {
    let mut server = Server::new();
    server.join("db-7");
    with(
        &mut server,
        "destroy_least_days = 7",
        "destroy_least_days = 0",
    );
    let [erased, waits] = ["erased", "waits"].map(|name| made(&server, name, name));
    for (key, days) in [("erased", "0"), ("waits", "7")] {
        let node = ["--node", "server/admin.toml", "--confirm", key];
        let destroy = ["keyserver", "destroy", key, "--after-days", days];
        server
            .place
            .run(&[&destroy[..], &node].concat())
            .succeeded();
    }
    assert_eq!(state_of(&server, "erased"), "destroyed");
    let shred = ["shred", "erased", "--confirm", &erased, "--json"];
    let run = server.volume("db-7", &shred);
    let record = run.json();
    run.succeeded();
    assert_eq!(
        (&record["key_destroyed"], &record["not_done"]),
        (&true.into(), &serde_json::json!([])),
        "{record}"
    );
    // A key that can still be restored, and is not delivered, could not be seen to be this one.
    let record = not_all_done(&server, "waits", &waits);
    assert!(record.to_string().contains("SR-8426"), "{record}");
}
