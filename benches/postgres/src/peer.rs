//! The peers: plain PostgreSQL, and the shield with each of its ciphers.
//!
//! Must not: give a peer a setting that the others do not get (B3).

use std::path::Path;
use std::time::Duration;

use strongroom_benches::Failure;
use strongroom_benches::postgres::{Cluster, Place, Server};

use crate::Options;

/// Who runs the work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Stock PostgreSQL, nothing preloaded.
    Plain,
    /// The same under the shield, AES-256-XTS.
    Aes256,
    /// The same, AES-128-XTS.
    Aes128,
}

impl Peer {
    /// In the order of the tables' columns.
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Aes256, Self::Aes128];

    /// A word for file names and output; for a sealed peer its cipher, as the command calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Aes256 => "aes-256-xts",
            Self::Aes128 => "aes-128-xts",
        }
    }
}

/// A peer's data directory and its server, while it runs.
pub(crate) struct Node<'place> {
    pub(crate) peer: Peer,
    pub(crate) cluster: Cluster<'place>,
    pub(crate) server: Option<Server>,
}

impl<'place> Node<'place> {
    /// Makes the data directory in `directory` and starts its server. The key is in a file, so that
    /// the server starts unattended.
    pub(crate) fn make(
        place: &'place Place,
        peer: Peer,
        directory: &Path,
        key_file: &Path,
        options: &Options,
    ) -> Result<Self, Failure> {
        let key_file = key_file.to_str().ok_or("the path is not UTF-8")?;
        let seal = ["--cipher", peer.name(), "--key-file", key_file];
        let seal = (peer != Peer::Plain).then_some(seal.as_slice());
        let buffers = format!("{}MB", options.shared_buffers);
        let mut settings = vec![("shared_buffers", buffers.as_str())];
        settings.extend(SETTINGS);
        let data = directory.join(peer.name());
        let cluster = Cluster::initdb(place, &data, seal, &[], &settings)?;
        let (server, _) = Server::start(&cluster)?;
        Ok(Self {
            peer,
            cluster,
            server: Some(server),
        })
    }

    /// Processor time of the server's processes so far.
    pub(crate) fn processor_time(&self) -> Result<Duration, Failure> {
        self.server.as_ref().ok_or("no server")?.processor_time()
    }

    /// Stops the server in order.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        self.server.take().map_or(Ok(()), Server::stop)
    }
}

/// The same for all peers: what would happen at a time of its own is switched off, and each query
/// has one process. Durability is PostgreSQL's default: `fsync` and `synchronous_commit` are on.
const SETTINGS: [(&str, &str); 9] = [
    ("autovacuum", "off"),
    ("checkpoint_timeout", "1h"),
    ("max_wal_size", "4GB"),
    ("max_parallel_workers_per_gather", "0"),
    ("max_parallel_maintenance_workers", "0"),
    ("maintenance_work_mem", "8MB"),
    ("work_mem", "4MB"),
    ("jit", "off"),
    ("log_checkpoints", "off"),
];
