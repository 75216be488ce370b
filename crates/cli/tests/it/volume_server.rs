//! Goal: a volume whose key is at the key server opens, changes and ends with it, and with nobody
//! else's. Method: the real server, joined with a one-time token; volumes in plain files.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common::server;

use std::process::Command;

use server::Server;
use strongroom_testing_support::process::run;

#[test]
fn a_volume_lives_and_ends_with_the_servers_key() {
    let mut server = Server::new();
    server.join("db-7");
    server.join("web-1");
    let create = [
        "create",
        "v",
        "--key-id",
        "vol-7",
        "--size",
        "24M",
        "--recovery-out",
        "recovery",
        "--json",
    ];
    let run = server.volume("db-7", &create);
    let made = run.json();
    run.succeeded();
    assert_eq!(
        (&made["provider"], &made["header_escrowed"]),
        (&"keyserver".into(), &true.into())
    );
    server.volume("db-7", &["open", "v", "--test"]).succeeded();
    another_volumes_token_destroys_nothing(&server);
    // Another node is not granted this key; the volume's token tells it nothing that helps.
    server
        .volume("web-1", &["open", "v", "--test"])
        .failed(3, "SR-8423");
    // The file has nothing of the server's key: what opens it is at the server only.
    let status = server.volume("db-7", &["rotate", "v", "--slots-only"]);
    status.succeeded();
    server.volume("db-7", &["open", "v", "--test"]).succeeded();
    server
        .volume("db-7", &["rotate", "v", "--recovery-file", "recovery"])
        .succeeded();
    server.volume("db-7", &["open", "v", "--test"]).succeeded();
    server.volume("db-7", &["backup", "v"]).succeeded();

    a_header_comes_back(&server, &made);
    the_fleet_page_knows(&server, &made);
    answers_no_more(&mut server);

    let uuid = made["uuid"].as_str().unwrap();
    let run = server.volume("db-7", &["shred", "v", "--confirm", uuid, "--json"]);
    let record = run.json();
    run.succeeded();
    the_key_is_said_to_wait(&server, &record, &made);
    let again = [
        "create",
        "w",
        "--key-id",
        "vol-7",
        "--size",
        "24M",
        "--no-recovery",
    ];
    let refused = server.volume("db-7", &again);
    assert_ne!(refused.code, 0, "a key that is being destroyed was used");
    assert!(!server.place.path("w").exists());
}

/// The key is there for as long as it can be restored, and nothing says otherwise: not the record,
/// not what the node reports, not the server. A shredded volume can be taken off the fleet page.
/// Two volumes with one key: who destroys one of them does not lose the other.
#[test]
fn a_key_that_opens_another_volume_is_not_destroyed_with_the_first() {
    let server = Server::new();
    server.join("db-7");
    std::fs::create_dir(server.place.path("cache")).unwrap();
    let (mut uuids, mut kept) = (Vec::new(), Vec::new());
    for name in ["one", "two"] {
        let create = [
            "create",
            name,
            "--key-id",
            "shared",
            "--size",
            "24M",
            "--no-recovery",
            "--json",
        ];
        let made = server.volume("db-7", &create);
        uuids.push(made.json()["uuid"].as_str().unwrap().to_owned());
        // In the place of a passphrase that is kept for starts without a server.
        let id = made.json()["object_id"].as_str().unwrap().to_owned();
        kept.push(server.place.write(&format!("cache/{id}"), "kept"));
        made.succeeded();
    }
    let with_cache = |arguments: &[&str]| {
        let mut command = server.place.command();
        command.arg("volume").args(arguments);
        command.args(["--node", "db-7/node.toml"]);
        command.env("STRONGROOM_CACHE", server.place.path("cache"));
        run(&mut command)
    };
    let shred = ["shred", "one", "--confirm", &uuids[0]];
    let said = with_cache(&shred).failed(6, "SR-8362");
    assert!(said.contains("two on db-7"), "{said}");
    // Nothing was changed, as the error says.
    assert!(kept[0].exists() && kept[1].exists());
    for name in ["one", "two"] {
        let open = server.volume("db-7", &["open", name, "--test"]);
        open.succeeded();
    }
    let alone = [&shred[..], &["--keep-key"]].concat();
    with_cache(&alone).succeeded();
    assert!(!kept[0].exists() && kept[1].exists());
    server
        .volume("db-7", &["open", "one", "--test"])
        .failed(4, "SR-8322");
    server
        .volume("db-7", &["open", "two", "--test"])
        .succeeded();
    // The first one was reported as destroyed, so that the key goes with the last.
    let last = ["shred", "two", "--confirm", &uuids[1]];
    let said = server.volume("db-7", &last).succeeded();
    assert!(said.contains("its key is NOT destroyed yet"), "{said}");
}

fn the_key_is_said_to_wait(server: &Server, record: &serde_json::Value, made: &serde_json::Value) {
    assert_eq!(
        (&record["key_destroyed"], &record["key_state"]),
        (&false.into(), &"destroy-pending".into()),
        "{record}"
    );
    assert_eq!(record["escrow_removed"], true);
    let at = record["key_destroy_at"].as_u64().unwrap();
    let admin = server.place.path("server/admin.toml");
    let client = strongroom_keys_client::Node::load(&admin).unwrap().client();
    let key = client.key("vol-7").unwrap();
    assert_eq!(key.state, "destroy-pending");
    let get = strongroom_keys_client::Method::GET;
    let keys = client.call(&get, "/v1/keys/vol-7", None, true).unwrap();
    assert_eq!(keys["destroy_at"], at);
    let reported = || -> Vec<serde_json::Value> {
        let mut objects = client.call(&get, "/v1/objects", None, true).unwrap();
        let serde_json::Value::Array(objects) = objects["objects"].take() else {
            return Vec::new();
        };
        let is_ours = |object: &serde_json::Value| object["object_id"] == made["object_id"];
        objects.into_iter().filter(is_ours).collect()
    };
    assert!(
        reported()[0]["shredded"]
            .as_u64()
            .is_some_and(|time| time < at)
    );
    let id = made["object_id"].as_str().unwrap();
    let audit = ["keyserver", "audit", "--node", "server/admin.toml"];
    let log = server.place.run(&audit).succeeded();
    assert!(log.contains(&format!("db-7 report {id} shredded")), "{log}");
    let words = |node: &str| ["keyserver", "forget", id, "--node", node].map(str::to_owned);
    let forget = |node: &str| {
        let words = words(node);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        server.place.run(&words)
    };
    forget("db-7/node.toml").failed(6, "SR-8422");
    assert_eq!(
        forget("server/admin.toml").succeeded(),
        format!("forgot {id}\n")
    );
    forget("server/admin.toml").failed(2, "SR-8457");
    let none = [
        "keyserver",
        "forget",
        "nothing",
        "--node",
        "server/admin.toml",
    ];
    server.place.run(&none).failed(2, "SR-8457");
    assert_eq!(reported(), Vec::<serde_json::Value>::new());
}

/// Whoever could write to a disk can have put the token of another volume there.
fn another_volumes_token_destroys_nothing(server: &Server) {
    let create = [
        "create",
        "other",
        "--key-id",
        "vol-8",
        "--size",
        "24M",
        "--no-recovery",
        "--json",
    ];
    let made = server.volume("db-7", &create).json();
    let place = &server.place;
    let token = place.path("token.json");
    let token = token.to_str().unwrap();
    let cryptsetup = |words: &[&str]| {
        let done = Command::new("cryptsetup")
            .arg("token")
            .args(words)
            .current_dir(place.path(""))
            .status();
        assert!(done.unwrap().success(), "{words:?}");
    };
    cryptsetup(&["export", "--token-id", "0", "--json-file", token, "v"]);
    cryptsetup(&["remove", "--token-id", "0", "other"]);
    cryptsetup(&["import", "--token-id", "0", "--json-file", token, "other"]);
    let uuid = made["uuid"].as_str().unwrap();
    let run = server.volume("db-7", &["shred", "other", "--confirm", uuid, "--json"]);
    let record = run.json();
    // The key that it had is not known any more, and may be at the server still.
    run.failed(6, "SR-8358");
    assert_eq!(
        (&record["key_destroyed"], &record["escrow_removed"]),
        (&false.into(), &serde_json::Value::Null),
        "{record}"
    );
    server.volume("db-7", &["open", "v", "--test"]).succeeded();
}

/// From the server, whatever is left on the device.
fn a_header_comes_back(server: &Server, made: &serde_json::Value) {
    let place = &server.place;
    let good = place.read("v");
    let destroy = |from: usize, to: usize| {
        let mut bytes = good.clone();
        bytes[from..to].fill(0);
        place.write("v", bytes);
    };
    // One copy is left: it says which volume it is.
    destroy(0, 4096);
    let restore = ["restore", "v", "--from-server"];
    server.volume("db-7", &restore).succeeded();
    assert!(place.read("v") == good);
    destroy(0, 16 << 20);
    server.volume("db-7", &restore).failed(2, "SR-8360");
    let id = made["object_id"].as_str().unwrap();
    let named = |key: &str, id: &str, node: &str| {
        let named = ["--object-id", id, "--key-id", key, "--json"];
        server.volume(node, &[&restore[..], &named].concat())
    };
    // Another node, another volume's key (without the header's version, and with one), no such
    // volume.
    assert_eq!(named("vol-7", id, "web-1").code, 3);
    named("vol-8", id, "db-7").failed(3, "SR-8423");
    let rotate = [
        "keyserver",
        "rotate",
        "vol-8",
        "--node",
        "server/admin.toml",
    ];
    place.run(&rotate).succeeded();
    named("vol-8", id, "db-7").failed(3, "SR-2002");
    named("vol-7", &"0".repeat(32), "db-7").failed(3, "SR-8423");
    assert!(place.read("v")[..16 << 20].iter().all(|byte| *byte == 0));
    let run = named("vol-7", &id.to_uppercase(), "db-7");
    assert_eq!(run.json()["uuid"], made["uuid"]);
    run.succeeded();
    assert!(place.read("v") == good);
    server.volume("db-7", &["open", "v", "--test"]).succeeded();
}

/// `create` and `rotate` have told it.
fn the_fleet_page_knows(server: &Server, made: &serde_json::Value) {
    let admin = server.place.path("server/admin.toml");
    let client = strongroom_keys_client::Node::load(&admin).unwrap().client();
    let get = strongroom_keys_client::Method::GET;
    let objects = client.call(&get, "/v1/objects", None, true).unwrap();
    let objects = objects["objects"].as_array().unwrap();
    let of = |id: &serde_json::Value| objects.iter().find(|object| &object["object_id"] == id);
    let ours = of(&made["object_id"]).unwrap();
    assert_eq!(
        (&ours["kind"], &ours["node"]),
        (&"volume".into(), &"db-7".into())
    );
    assert_eq!(
        (&ours["key_id"], &ours["cipher"]),
        (&"vol-7".into(), &"aes-xts-plain64".into())
    );
    assert_eq!(ours["key_version"], 2, "{ours}");
    assert!(ours["name"].as_str().unwrap().ends_with("/v"));
    assert!(
        ours["rotated"].as_u64() >= ours["created"].as_u64(),
        "{ours}"
    );
    let other = objects.iter().find(|object| object["key_id"] == "vol-8");
    assert_eq!(other.unwrap()["rotated"], serde_json::Value::Null);
}

/// Down: an end, and the way that is left.
fn answers_no_more(server: &mut Server) {
    server.stop();
    let before = server.place.read("db-7/node.toml");
    let mut text = String::from_utf8(before.clone()).unwrap();
    for name in ["request_timeout_seconds", "total_timeout_seconds"] {
        text = text
            .lines()
            .filter(|line| !line.starts_with(name))
            .map(|line| format!("{line}\n"))
            .collect();
        text.push_str(&format!("{name} = 1\n"));
    }
    server.place.write("db-7/node.toml", text);
    server
        .volume("db-7", &["open", "v", "--test"])
        .failed(3, "SR-8402");
    server
        .volume(
            "db-7",
            &["open", "v", "--test", "--recovery-file", "recovery"],
        )
        .succeeded();
    // A second is too little for a server on a busy machine.
    server.place.write("db-7/node.toml", before);
    server.start();
}
