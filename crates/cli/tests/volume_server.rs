//! Goal: a volume whose key is at the key server opens, changes and ends with it, and with nobody else's. Method: the real server on a
//! port of the kernel's choice, joined with a one-time token; volumes in plain files.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, Run};

/// A key server, and this host joined to it.
struct Server {
    place: Place,
    child: Option<Child>,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    fn new() -> Self {
        let place = Place::new();
        std::fs::create_dir(place.path("server")).unwrap();
        // Free now, and taken by the server a moment later.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let listen = format!("127.0.0.1:{port}");
        let init = [
            "keyserver",
            "init",
            "--store",
            "server/keys.db",
            "--root-provider",
            "env:ROOT",
            "--name",
            "127.0.0.1",
            "--address",
            &listen,
        ];
        place.run(&init).succeeded();
        let mut server = Self {
            place,
            child: None,
            port,
        };
        server.start();
        server
    }

    fn start(&mut self) {
        let mut command: Command = self.place.command();
        command.args(["keyserver", "run", "--config", "server/server.toml"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // Its log is read, so that it never waits for us.
        let log = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || log.lines().for_each(drop));
        self.child = Some(child);
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                began.elapsed() < Duration::from_secs(120),
                "the server does not start"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn join(&self, node: &str) {
        let token = format!("{node}.token");
        let admin = [
            "keyserver",
            "token",
            "--node",
            "server/admin.toml",
            node,
            "--may-create",
            "--may-destroy",
            "--out",
            &token,
        ];
        self.place.run(&admin).succeeded();
        let url = format!("https://127.0.0.1:{}", self.port);
        let config = format!("{node}/node.toml");
        let join = [
            "keyserver",
            "join",
            &url,
            "--authority",
            "server/authority.pem",
            "--node",
            node,
            "--token-file",
            &token,
            "--config",
            &config,
        ];
        self.place.run(&join).succeeded();
    }

    /// A verb of `volume`, as this node.
    fn volume(&self, node: &str, arguments: &[&str]) -> Run {
        let config = format!("{node}/node.toml");
        let all = [&["volume"][..], arguments, &["--node", &config]].concat();
        self.place.run(&all)
    }
}

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

    answers_no_more(&mut server);

    let uuid = made["uuid"].as_str().unwrap();
    let run = server.volume("db-7", &["shred", "v", "--confirm", uuid, "--json"]);
    let record = run.json();
    run.succeeded();
    assert_eq!(
        (&record["key_destroyed"], &record["escrow_removed"]),
        (&true.into(), &true.into()),
        "{record}"
    );
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

/// Down: an end, and the way that is left.
fn answers_no_more(server: &mut Server) {
    server.stop();
    let config = server.place.path("db-7/node.toml");
    let mut text = String::from_utf8(std::fs::read(&config).unwrap()).unwrap();
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
    server.start();
}
