//! The key server as its operators use it: made, run, administered, reloaded, opened by custodians.
//!
//! Method: the real binary, the server as a process of its own on a port of the kernel's choice.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, which is what it is for"
)]

mod common;

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::Place;
use serde_json::Value;

/// Longest wait for a line of the log.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped, and its log.
struct Server {
    child: Child,
    log: Receiver<Value>,
}

impl Server {
    /// Starts what was made in `srv` and writes where it listens into the administrator's configuration.
    fn start(place: &Place) -> Self {
        let mut command = place.command();
        command.args(["keyserver", "run", "--config", "srv/server.toml"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, log) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Every line is one object; what is not would be a message that escaped.
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if tell.send(value).is_err() {
                    break;
                }
            }
        });
        let server = Self { child, log };
        let address = server.wait_for("listening")["address"]
            .as_str()
            .unwrap()
            .to_owned();
        let path = place.path("srv/admin.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let rest = text.split_once('\n').unwrap().1;
        place.write(
            "srv/admin.toml",
            format!("servers = [\"https://{address}\"]\n{rest}"),
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        server
    }

    fn wait_for(&self, event: &str) -> Value {
        loop {
            let line = self
                .log
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("no {event}"));
            assert!(line.is_object(), "in the log: {line}");
            if line["event"] == event {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([name, &pid])
            .status()
            .unwrap();
        assert!(sent.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn init(place: &Place, root: &[&str]) {
    let fixed = [
        "keyserver",
        "init",
        "--store",
        "srv/keys.db",
        "--name",
        "127.0.0.1",
        "--address",
        "127.0.0.1:0",
    ];
    place.run(&[&fixed, root].concat()).succeeded();
}

fn admin(place: &Place, words: &[&str]) -> common::Run {
    place.run(&[&["keyserver"], words, &["--node", "srv/admin.toml"]].concat())
}

/// Asserts what the administrator's command prints.
#[track_caller]
fn says(place: &Place, words: &[&str], expected: &str) {
    assert_eq!(admin(place, words).succeeded(), format!("{expected}\n"));
}

fn host(place: &Place, words: &[&str]) -> common::Run {
    place.run(&[&["keyserver"], words, &["--node", "host.toml"]].concat())
}

#[test]
fn what_is_made_is_private_and_overwrites_nothing() {
    let place = Place::new();
    init(&place, &["--root-provider", "env:ROOT"]);
    for name in ["server.key", "admin.key", "root.keyring"] {
        let about = std::fs::metadata(place.path(&format!("srv/{name}"))).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let words = "keyserver init --store srv/keys.db --name x --root-provider env:ROOT";
    let again: Vec<&str> = words.split(' ').collect();
    place.run(&again).failed(6, "SR-1002");
}

#[test]
fn administered() {
    let place = Place::new();
    init(&place, &["--root-provider", "env:ROOT"]);
    let server = Server::start(&place);
    server.wait_for("unsealed");
    says(&place, &["create", "db-7"], "db-7 version 1");
    admin(&place, &["create", "db-7"]).failed(6, "SR-8424");
    says(&place, &["rotate", "db-7"], "db-7 version 2");
    let token = ["token", "host", "--key", "db-7", "--out", "token"];
    admin(&place, &token).succeeded();
    let text = String::from_utf8(place.read("srv/admin.toml")).unwrap();
    let url = text.split('"').nth(1).unwrap();
    let words = format!(
        "keyserver join {url} --authority srv/authority.pem --node host --token-file token --config host.toml"
    );
    let join: Vec<&str> = words.split(' ').collect();
    place.run(&join).succeeded();
    let keys: Value = host(&place, &["keys", "--json"]).json();
    assert_eq!(keys["keys"][0]["name"], "db-7");
    host(&place, &["nodes"]).failed(6, "SR-8422");
    let nodes = admin(&place, &["nodes"]).succeeded();
    assert!(nodes.contains("host   node"), "{nodes}");
    says(&place, &["disable", "db-7"], "db-7 disabled");
    says(&place, &["enable", "db-7"], "db-7 active");
    let pending = admin(&place, &["destroy", "db-7"]).succeeded();
    assert!(pending.starts_with("db-7 destroy-pending 2"), "{pending}");
    says(&place, &["restore", "db-7"], "db-7 disabled");
    let keys = admin(&place, &["keys"]).succeeded();
    assert!(keys.contains("db-7  disabled  2"), "{keys}");
    admin(&place, &["ungrant", "host", "db-7"]).succeeded();
    let keys: Value = host(&place, &["keys", "--json"]).json();
    assert_eq!(keys["keys"], serde_json::json!([]));
    admin(&place, &["grant", "host", "db-7"]).succeeded();
    admin(&place, &["revoke", "host"]).succeeded();
    host(&place, &["keys"]).failed(3, "SR-8421");
    let log = admin(&place, &["audit"]).succeeded();
    assert!(log.contains(" admin destroy db-7"), "{log}");
    assert!(log.contains(" host denied "), "{log}");
    let whole = admin(&place, &["audit", "--verify", "--json"]).json();
    assert_eq!(whole["rows"].as_u64().unwrap(), log.lines().count() as u64);
}

#[test]
fn reloaded_and_stopped_in_order() {
    let place = Place::new();
    init(&place, &["--root-provider", "env:ROOT"]);
    let mut server = Server::start(&place);
    server.wait_for("unsealed");
    // What cannot be used changes nothing.
    let config = String::from_utf8(place.read("srv/server.toml")).unwrap();
    let wrong = config.replace("client_burst = 200", "client_burst = 0");
    assert_ne!(wrong, config);
    place.write("srv/server.toml", wrong);
    server.signal("-HUP");
    let told = server.wait_for("not reloaded");
    assert!(
        told["error"].as_str().unwrap().contains("SR-8434"),
        "{told}"
    );
    says(&place, &["status"], "open");
    let longer = config.replace("destroy_after_days = 7", "destroy_after_days = 300");
    place.write("srv/server.toml", longer);
    server.signal("-HUP");
    server.wait_for("reloaded");
    // Not in force before; now it is: some 300 days ahead.
    admin(&place, &["create", "k"]).succeeded();
    admin(&place, &["destroy", "k"]).succeeded();
    let keys = admin(&place, &["keys", "--json"]).json();
    let key = &keys["keys"][0];
    let made = key["versions"][0]["created"].as_u64().unwrap();
    assert!(
        key["destroy_at"].as_u64().unwrap() >= made + 300 * 86_400,
        "{key}"
    );
    server.signal("-TERM");
    server.wait_for("stopped");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn custodians_open_it_and_an_administrator_seals_it() {
    let place = Place::new();
    init(
        &place,
        &[
            "--shares",
            "3",
            "--threshold",
            "2",
            "--shares-out",
            "shares",
        ],
    );
    let server = Server::start(&place);
    assert_eq!(
        admin(&place, &["status"]).succeeded(),
        "sealed: 0 of 2 shares were given\n"
    );
    let give = |n: u8| {
        admin(
            &place,
            &["unseal", "--share-file", &format!("shares/share-{n}.txt")],
        )
    };
    assert_eq!(give(3).succeeded(), "sealed: 1 of 2 shares were given\n");
    place.write("wrong", "strongroom-share-1-00");
    admin(&place, &["unseal", "--share-file", "wrong"]).failed(3, "SR-8432");
    assert_eq!(give(1).succeeded(), "open\n");
    server.wait_for("unsealed");
    admin(&place, &["create", "k"]).succeeded();
    assert_eq!(admin(&place, &["seal"]).succeeded(), "sealed\n");
    assert_eq!(give(1).succeeded(), "sealed: 1 of 2 shares were given\n");
    assert_eq!(give(2).succeeded(), "open\n");
    assert!(
        admin(&place, &["keys"])
            .succeeded()
            .contains("k     active")
    );
    // Nothing of a share reached a file of the server.
    let share = String::from_utf8(place.read("shares/share-1.txt")).unwrap();
    for name in std::fs::read_dir(place.path("srv")).unwrap() {
        let bytes = std::fs::read(name.unwrap().path()).unwrap();
        let needle = share.trim().as_bytes();
        assert!(!bytes.windows(needle.len()).any(|window| window == needle));
    }
}
