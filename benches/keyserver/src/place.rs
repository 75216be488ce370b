//! A key server of the released command and, for the other store, three members of etcd: processes
//! on this host.
//!
//! Must not: leave a process behind.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use strongroom_benches::Failure;
use strongroom_crypto::SecretBytes;
use strongroom_keyring::durable;
use strongroom_keys_client::{Client, Enrolment, Method, Node, enrol};
use strongroom_testing_support::etcd::Cluster;
use strongroom_testing_support::key::ROOT;
use strongroom_testing_support::keyserver::KeyServer;

/// No start takes longer.
const PATIENCE: Duration = Duration::from_secs(1800);
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

/// A server's files, and the store that it needs.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    strongroom: PathBuf,
    pub(crate) port: u16,
    _etcd: Option<Cluster>,
}

impl Place {
    pub(crate) fn new(kind: Kind, below: &Path, strongroom: &Path) -> Result<Self, Failure> {
        let directory = tempfile::tempdir_in(below)?;
        let etcd = match kind {
            Kind::Sqlite => None,
            Kind::Etcd => {
                let more = ["--quota-backend-bytes", "8589934592"].map(String::from);
                let members = tempfile::tempdir_in(below)?;
                Some(Cluster::start_in(members, "http", MEMBERS, &more))
            }
        };
        let text = |name: &str| directory.path().join(name).display().to_string();
        let store = etcd
            .as_ref()
            .map_or_else(|| text("keys.db"), Cluster::store);
        // A file delivers it to the server and to whoever fills the store.
        std::fs::File::create(text("root.key"))?.write_all(ROOT.as_bytes())?;
        let provider = format!("file:{}", text("root.key"));
        let config = text("server.toml");
        let options = ["--store", &store, "--config", &config];
        let more = ["--name", "127.0.0.1", "--root-provider", &provider];
        let options = [options, more].concat();
        let made = KeyServer::init(directory.path(), &options, Command::new(strongroom));
        let place = Self {
            port: made.port(),
            strongroom: strongroom.to_owned(),
            directory,
            _etcd: etcd,
        };
        place.lift_limits()?;
        Ok(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
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
        let mut server = KeyServer::at(self.directory.path(), self.port);
        let began = Instant::now();
        let mut failure = None;
        server.start_until(Command::new(&self.strongroom), PATIENCE, || {
            self.serves(name).unwrap_or_else(|error| {
                failure = Some(error);
                true
            })
        });
        match failure {
            Some(error) => Err(error),
            None => Ok((Running(server), began.elapsed())),
        }
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
pub(crate) struct Running(KeyServer);

impl Running {
    /// What it has of memory, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.process()));
        let text = status.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or_default();
        kib * 1024
    }
}
