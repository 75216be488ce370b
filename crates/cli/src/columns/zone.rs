//! `strongroom columns zone`: the process that holds confidential values. It serves until it is told to stop.
//!
//! Invariants:
//! 1. The store is open and the socket bound before the sandbox closes; nothing is served before that.
//! 2. SIGTERM and Ctrl-C end it with a checkpoint.
//!
//! Must not: print a value or a key.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_format::code;
use strongroom_keyring::SourceContext;
use strongroom_zone::engine::Zone;
use strongroom_zone::sandbox::{Closed, Sandbox};
use strongroom_zone::serve::Serving;
use strongroom_zone::session::ColumnKeys;
use strongroom_zone::session::attest::ProcessAttester;
use strongroom_zone::store::{self, Options};

use crate::Context;
use crate::args::KeyOptions;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::keys;

/// Serve confidential values to PostgreSQL's backends.
///
/// The state directory holds the sealed store; it is made when it is not there. Only processes of the users that are named may
/// connect. The zone has no network: its socket is all it has.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns zone --state /srv/zone --socket /run/strongroom/zone --user postgres --key-file /etc/strongroom/zone.key"))]
pub(super) struct ZoneArgs {
    /// Directory of the sealed store
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Socket that backends connect to
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// User whose processes may connect, by number or by name; the zone's own unless given
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
    /// Memory for values, in MiB; the rest is on disk
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(16..))]
    memory: u64,
    /// Freshness anchor: a file with a counter, on another disk if possible; in the state directory unless given
    #[arg(long, value_name = "FILE")]
    anchor: Option<PathBuf>,
    /// Open a store that is older than its anchor: a restore on purpose
    #[arg(long)]
    accept_restored: bool,
    /// Refuse to serve from memory that cannot be locked
    #[arg(long)]
    insist_on_locks: bool,
    #[command(flatten)]
    key: KeyOptions,
}

impl ZoneArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let users = self.allowed()?;
        let store = self.store(context)?;
        let attester = ProcessAttester::new()
            .map_err(|error| Failure::io(Path::new("/proc/self/exe"), &error))?;
        let mut zone = Zone::new(store, ColumnKeys::default(), Box::new(attester), users);
        zone.tell_trouble(|error| warn(error.code(), error.detail()));
        let about = |error: std::io::Error| Failure::io(&self.socket, &error);
        // Who may connect is decided by user id.
        let serving = Serving::bind(zone, &self.socket, 0o666).map_err(about)?;
        let stopper = serving.stopper();
        ctrlc::set_handler(move || stopper.stop())
            .map_err(|error| Failure::new(&code::BUG, error.to_string()))?;
        note(
            "attestation by the process itself: it proves nothing, and clients must be told to accept it",
        );
        note(&format!("serving at {}", self.socket.display()));
        let sandbox = Sandbox {
            directories: self.directories(),
            insist_on_locks: self.insist_on_locks,
        };
        let mut zone = serving.run(Some(&sandbox), tell_closed).map_err(about)?;
        zone.checkpoint()?;
        note("stopped");
        Ok(())
    }

    fn allowed(&self) -> Result<Vec<u32>, Failure> {
        if self.users.is_empty() {
            return Ok(vec![rustix::process::getuid().as_raw()]);
        }
        self.users.iter().map(|name| user_id(name)).collect()
    }

    fn anchor(&self) -> PathBuf {
        self.anchor
            .clone()
            .unwrap_or_else(|| self.state.join("anchor"))
    }

    /// What the sandbox leaves open.
    fn directories(&self) -> Vec<PathBuf> {
        let parent = |path: &Path| {
            path.parent()
                .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
        };
        vec![
            self.state.clone(),
            parent(&self.anchor()),
            parent(&self.socket),
        ]
    }

    fn store(&self, context: &Context) -> Result<store::Store, Failure> {
        let there = self.state.join(store::HEADER_NAME).exists();
        let key = keys::required(self.key.clone(), "the zone's store")?;
        let opener = key.opener(&SourceContext {
            keyring: context.keyring.clone(),
            creating: !there,
            prompt: format!("Passphrase of {}", self.state.display()),
        })?;
        if !there {
            std::fs::create_dir_all(&self.state)
                .map_err(|error| Failure::io(&self.state, &error))?;
            store::create(&self.state, &opener)?;
            note("a new store: whoever loses its key has lost every value in it");
        }
        let options = Options {
            memory_limit: self.memory.saturating_mul(1 << 20),
            insist_on_locks: self.insist_on_locks,
            accept_restored: self.accept_restored,
        };
        let anchor = Box::new(store::FileAnchor::at(self.anchor()));
        Ok(store::open(&self.state, &opener, anchor, options)?)
    }
}

/// Tells what the kernel would not close.
fn tell_closed(closed: Closed) {
    if !closed.locked {
        warn(&code::ZONE_UNLOCKED, "");
    }
    if !closed.files {
        note(
            "this kernel has no Landlock: files outside the zone's directories are within its reach",
        );
    }
}

/// A user's number: given as such, or looked up in `/etc/passwd`.
fn user_id(name: &str) -> Result<u32, Failure> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let path = Path::new("/etc/passwd");
    let users = std::fs::read_to_string(path).map_err(|error| Failure::io(path, &error))?;
    let number = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    number.ok_or_else(|| Failure::usage(&format!("there is no user {name}")))
}
