//! The real key server on a port of the kernel's choice, for tests of volumes; nodes join it with
//! one-time tokens.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, Run};

/// A key server, and this host joined to it.
pub(crate) struct Server {
    /// Its directory, and that of the nodes that join.
    pub(crate) place: Place,
    child: Option<Child>,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    /// Makes one and starts it.
    pub(crate) fn new() -> Self {
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

    /// Starts it again.
    pub(crate) fn start(&mut self) {
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

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// A node that may make and destroy keys, with its configuration in a directory of its name.
    pub(crate) fn join(&self, node: &str) {
        self.join_with(node, &["--may-create", "--may-destroy"]);
    }

    /// A client whose token is made with these options, with its configuration in a directory of
    /// its name.
    pub(crate) fn join_with(&self, node: &str, options: &[&str]) {
        let token = format!("{node}.token");
        let admin = ["keyserver", "token", "--node", "server/admin.toml", node];
        let admin = [&admin[..], options, &["--out", &token]].concat();
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
    pub(crate) fn volume(&self, node: &str, arguments: &[&str]) -> Run {
        let config = format!("{node}/node.toml");
        let all = [&["volume"][..], arguments, &["--node", &config]].concat();
        self.place.run(&all)
    }
}
