//! Members of etcd as processes on this host.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::port::free_port;
use crate::process::PATIENCE;

/// A cluster; its processes end with it.
pub struct Cluster {
    members: Vec<Option<Child>>,
    ports: Vec<(u16, u16)>,
    scheme: &'static str,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// `count` members that speak without TLS.
    pub fn start(count: usize) -> Self {
        Self::start_with("http", count, &[])
    }

    /// `count` members with further arguments.
    pub fn start_with(scheme: &'static str, count: usize, more: &[String]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), scheme, count, more)
    }

    /// The same, with everything that they write in this directory.
    pub fn start_in(
        directory: tempfile::TempDir,
        scheme: &'static str,
        count: usize,
        more: &[String],
    ) -> Self {
        let ports = (0..count).map(|_| (free_port(), free_port())).collect();
        let mut cluster = Self {
            members: Vec::new(),
            ports,
            scheme,
            directory,
        };
        for at in 0..count {
            let child = cluster.spawn(at, more);
            cluster.members.push(Some(child));
        }
        let deadline = Instant::now() + PATIENCE;
        for at in 0..count {
            while TcpStream::connect(("127.0.0.1", cluster.ports[at].0)).is_err() {
                let child = cluster.members[at].as_mut().unwrap();
                assert!(child.try_wait().unwrap().is_none(), "etcd has ended");
                assert!(Instant::now() < deadline, "etcd does not listen");
                std::thread::sleep(Duration::from_millis(30));
            }
        }
        cluster
    }

    fn spawn(&self, at: usize, more: &[String]) -> Child {
        let name = |at: usize| format!("m{at}");
        let (client, peer) = self.ports[at];
        let peers: Vec<String> = self
            .ports
            .iter()
            .enumerate()
            .map(|(at, (_, peer))| format!("{}=http://127.0.0.1:{peer}", name(at)))
            .collect();
        let client = format!("{}://127.0.0.1:{client}", self.scheme);
        let peer = format!("http://127.0.0.1:{peer}");
        Command::new("etcd")
            .args(["--name", &name(at), "--data-dir"])
            .arg(self.directory.path().join(name(at)))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args([
                "--initial-cluster",
                &peers.join(","),
                "--initial-cluster-state",
                "new",
            ])
            .args(["--heartbeat-interval", "100", "--election-timeout", "1000"])
            .args(["--log-level", "error", "--logger", "zap"])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("etcd (Debian package etcd-server): {error}"))
    }

    /// The store as a configuration names it.
    pub fn store(&self) -> String {
        let urls: Vec<String> = self
            .ports
            .iter()
            .map(|(port, _)| format!("{}://127.0.0.1:{port}", self.scheme))
            .collect();
        format!("etcd:{}", urls.join(","))
    }

    /// The member that leads.
    pub fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for (at, (port, _)) in self.ports.iter().enumerate() {
                let status = status(*port).unwrap_or_default();
                let leader = status["leader"].as_str().unwrap_or("0");
                if leader != "0" && status["header"]["member_id"] == leader {
                    return at;
                }
            }
            assert!(Instant::now() < deadline, "nobody leads");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Ends a member as a power cut would.
    pub fn kill(&mut self, at: usize) {
        let mut child = self.members[at].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts a member again.
    pub fn revive(&mut self, at: usize) {
        self.members[at] = Some(self.spawn(at, &[]));
    }

    /// Every byte that the members have on disk.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// What a member says of itself.
fn status(port: u16) -> Option<serde_json::Value> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    socket.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.members.iter_mut().flatten() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
