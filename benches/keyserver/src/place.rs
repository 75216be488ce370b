//! A key server of the released command and, for the other store, three members of etcd: processes
//! on this host.
//!
//! Must not: leave a process behind.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use strongroom_benches::Failure;
use strongroom_crypto::SecretBytes;
use strongroom_keyring::durable;
use strongroom_keys_client::{Client, Enrolment, Method, Node, enrol};

/// No start takes longer.
const PATIENCE: Duration = Duration::from_secs(1800);
/// The root key of the servers that are measured. They keep nothing.
const ROOT: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const MEMBERS: usize = 3;

/// Where a server keeps its records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Etcd,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sealed SQLite",
            Self::Etcd => "etcd, 3 members",
        }
    }
}

/// Processes that end with this value.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A server's files, and the store that it needs.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    strongroom: PathBuf,
    pub(crate) port: u16,
    _etcd: Processes,
}

/// A port that is free now.
fn free() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Place {
    pub(crate) fn new(kind: Kind, below: &Path, strongroom: &Path) -> Result<Self, Failure> {
        let directory = tempfile::tempdir_in(below)?;
        let (store, etcd) = match kind {
            Kind::Sqlite => (
                directory.path().join("keys.db").display().to_string(),
                Vec::new(),
            ),
            Kind::Etcd => etcd(directory.path())?,
        };
        let place = Self {
            port: free()?,
            strongroom: strongroom.to_owned(),
            directory,
            _etcd: Processes(etcd),
        };
        let address = format!("127.0.0.1:{}", place.port);
        let config = place.path("server.toml").display().to_string();
        // A file delivers it to the server and to whoever fills the store.
        let root = place.path("root.key");
        std::fs::File::create(&root)?.write_all(ROOT.as_bytes())?;
        let provider = format!("file:{}", root.display());
        let init = [
            "--store",
            &store,
            "--config",
            &config,
            "--name",
            "127.0.0.1",
        ];
        let more = ["--address", &address, "--root-provider", &provider];
        let done = place.command("init").args(init).args(more).output()?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into());
        }
        place.lift_limits()?;
        Ok(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.strongroom);
        command.args(["keyserver", verb]);
        command
    }

    /// What is measured is the server, not its limits.
    fn lift_limits(&self) -> Result<(), Failure> {
        let path = self.path("server.toml");
        let mut text = std::fs::read_to_string(&path)?;
        for (member, value) in [
            ("client_per_second", "10000000"),
            ("client_burst", "10000000"),
            ("connections", "4096"),
            ("connections_per_address", "4096"),
        ] {
            let lines: Vec<String> = text
                .lines()
                .map(|line| match line.split_once(" = ") {
                    Some((name, _)) if name == member => format!("{member} = {value}"),
                    _ => line.to_owned(),
                })
                .collect();
            text = lines.join("\n");
        }
        let mut file = std::fs::File::create(&path)?;
        Ok(file.write_all(text.as_bytes())?)
    }

    /// The administrator's client.
    pub(crate) fn admin(&self) -> Result<Client, Failure> {
        Ok(Node::load(&self.path("admin.toml"))?.client())
    }

    /// A node's client: its key is `name`, which it makes. An administrator is delivered none.
    pub(crate) fn node(&self, name: &str) -> Result<Client, Failure> {
        let body = serde_json::json!({"node": "bench", "role": "node", "may_create": true, "expires_seconds": 600});
        let path = "/v1/tokens";
        let made = self
            .admin()?
            .call(&Method::POST, path, Some(&body), false)?;
        let token = made["token"].as_str().ok_or("no token")?.to_owned();
        let token = SecretBytes::take(&mut token.into_bytes())?;
        let enrolment = Enrolment {
            server: &format!("https://127.0.0.1:{}", self.port),
            authority: &std::fs::read(self.path("authority.pem"))?,
            node: "bench",
            token: &token,
        };
        let enrolled = enrol::<strongroom_keys_client::Error>(&enrolment, |_| Ok(()))?;
        let config = std::fs::read_to_string(self.path("admin.toml"))?;
        for (file, bytes, mode) in [
            ("node.key", enrolled.key.as_slice(), 0o600),
            ("node.pem", enrolled.certificate.as_bytes(), 0o644),
            (
                "node.toml",
                config.replace("admin.", "node.").as_bytes(),
                0o644,
            ),
        ] {
            durable::create_new(&self.path(file), bytes, mode)?;
        }
        let client = self.client()?;
        client.create(name)?;
        Ok(client)
    }

    /// The client of [`Place::node`].
    fn client(&self) -> Result<Client, Failure> {
        Ok(Node::load(&self.path("node.toml"))?.client())
    }

    /// Starts the server; the time until it delivers the key `name`, or lists keys where there is
    /// none yet.
    pub(crate) fn start(&self, name: Option<&str>) -> Result<(Running, Duration), Failure> {
        let began = Instant::now();
        let mut child = self
            .command("run")
            .arg("--config")
            .arg(self.path("server.toml"))
            .stderr(Stdio::null())
            .spawn()?;
        let pid = child.id();
        let mut running = Running(Processes(Vec::new()), pid);
        loop {
            if child.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                return Err("the server does not start".into());
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.serves(name)? {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        running.0.0.push(child);
        Ok((running, began.elapsed()))
    }

    fn serves(&self, name: Option<&str>) -> Result<bool, Failure> {
        let second = Duration::from_secs(1);
        Ok(match name {
            Some(name) => self
                .client()?
                .within(second)
                .material(name, strongroom_keys_client::Version::Latest)
                .is_ok(),
            None => self
                .admin()?
                .within(second)
                .key("nothing")
                .is_err_and(|error| error.kind() == strongroom_keys_client::Kind::NotFound),
        })
    }
}

/// A server that runs until this is dropped.
pub(crate) struct Running(Processes, u32);

impl Running {
    /// What it has of memory, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.1));
        let text = status.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or_default();
        kib * 1024
    }
}

/// Three members, and the store as the server names it.
fn etcd(directory: &Path) -> Result<(String, Vec<Child>), Failure> {
    let ports: Vec<(u16, u16)> = (0..MEMBERS)
        .map(|_| Ok::<_, Failure>((free()?, free()?)))
        .collect::<Result<_, _>>()?;
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let all: Vec<String> = ports
        .iter()
        .enumerate()
        .map(|(at, (_, peer))| format!("m{at}={}", url(*peer)))
        .collect();
    let mut members = Processes(Vec::new());
    for (at, (client, peer)) in ports.iter().enumerate() {
        let (client, peer) = (url(*client), url(*peer));
        let child = Command::new("etcd")
            .args(["--name", &format!("m{at}"), "--data-dir"])
            .arg(directory.join(format!("m{at}")))
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
                &all.join(","),
                "--quota-backend-bytes",
                "8589934592",
            ])
            .args(["--log-level", "error", "--logger", "zap"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        members.0.push(child);
    }
    let began = Instant::now();
    for (client, _) in &ports {
        while TcpStream::connect(("127.0.0.1", *client)).is_err() {
            if began.elapsed() > Duration::from_secs(60) {
                return Err("etcd does not start".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let urls: Vec<String> = ports.iter().map(|(client, _)| url(*client)).collect();
    let children = std::mem::take(&mut members.0);
    Ok((format!("etcd:{}", urls.join(",")), children))
}
