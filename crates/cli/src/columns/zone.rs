//! `strongroom columns zone`: the process that holds confidential values. It serves until a signal
//! stops it.
//!
//! Invariants:
//! 1. The store is open and the socket bound before the sandbox closes; nothing is served before
//!    that.
//! 2. SIGTERM and Ctrl-C end it with a checkpoint.
//!
//! Must not: print a value or a key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use strongroom_columns_zone::engine::Zone;
use strongroom_columns_zone::sandbox::{Closed, Sandbox};
use strongroom_columns_zone::serve::Serving;
use strongroom_columns_zone::session::ColumnKeys;
use strongroom_columns_zone::session::attest::{Attester, ProcessAttester, TpmAttester};
use strongroom_columns_zone::store::{self, Anchor, Options};
use strongroom_format::code;
use strongroom_format::columns::tpm::PCRS;
use strongroom_keyring::{KeySource, SourceContext};
use strongroom_keys_tpm::Tpm;

use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;

/// Serve confidential values to PostgreSQL's backends.
///
/// The state directory holds the sealed store; it is made when it is not there. Only processes of
/// the users that are named may connect. The zone has no network: its socket is all it has.
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
    /// Freshness anchor: a file with a counter, on another disk if possible, or tpm:INDEX, a TPM's
    /// counter; a file in the state directory unless given
    #[arg(long, value_name = "ANCHOR", value_parser = anchor)]
    anchor: Option<AnchorChoice>,
    /// What the zone shows to be believed: process, which proves nothing, or tpm:HANDLE:PCR,PCR...,
    /// a TPM's quote by the key at HANDLE
    #[arg(long, value_name = "EVIDENCE", default_value = "process", value_parser = attest_choice)]
    attest: AttestChoice,
    /// The TPM: its device, or a simulator's socket or HOST:PORT
    #[arg(long, value_name = "PLACE", default_value = "/dev/tpmrm0")]
    tpm: String,
    /// Open a store that is older than its anchor: a restore on purpose
    #[arg(long)]
    accept_restored: bool,
    /// Refuse to serve from memory that cannot be locked
    #[arg(long)]
    insist_on_locks: bool,
    /// Key of the records that superusers may have made of a session's operations
    /// (strongroom.record); none unless given
    #[arg(long, value_name = "FILE")]
    record_key_file: Option<PathBuf>,
    #[command(flatten)]
    key: KeyOptions,
}

#[derive(Clone)]
enum AnchorChoice {
    File(PathBuf),
    Tpm(u32),
}

#[derive(Clone, Copy)]
enum AttestChoice {
    Process,
    Tpm { key: u32, pcrs: u32 },
}

impl ZoneArgs {
    /// Opens or makes the store, binds the socket, closes the sandbox, and serves until a signal
    /// stops it; then writes a checkpoint. Notes to standard error say where it serves. Errors:
    /// SR-2041 without a key; the errors of the key, the store and the TPM; SR-1001 for an unknown
    /// user; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let users = self.allowed()?;
        let tpm = self.open_tpm()?;
        let attester = self.attester(tpm.as_ref())?;
        // Before a store is made: a new one that found no anchor would look like one that was put
        // back.
        let anchor = self.anchor(tpm.as_ref())?;
        let store = self.store(context, anchor)?;
        let zone = Zone::new(store, ColumnKeys::default(), attester, users);
        let mut zone = self.recording(zone, context)?;
        zone.on_store_error(|error| warn(error.code(), error.detail()));
        let about = |error: std::io::Error| Failure::io(&self.socket, &error);
        // Who may connect is decided by user id.
        let serving = Serving::bind(zone, &self.socket, 0o666).map_err(about)?;
        let stopper = serving.stopper();
        if matches!(self.attest, AttestChoice::Process) {
            note(
                "attestation by the process itself: it proves nothing, and clients must be told to accept it",
            );
        }
        note(&format!("serving at {}", self.socket.display()));
        let sandbox = Sandbox {
            directories: self.directories(),
            insist_on_locks: self.insist_on_locks,
            all_threads: true,
        };
        let closed = move |closed| {
            tell_closed(closed);
            // Its thread begins inside the sandbox.
            ctrlc::set_handler(move || stopper.stop()).map_err(std::io::Error::other)
        };
        let mut zone = serving.run(Some(&sandbox), closed).map_err(about)?;
        zone.checkpoint()?;
        note("stopped");
        Ok(())
    }

    /// Returns the ids of the users whose processes may connect, as [`allowed`]: SR-1001 if there
    /// is no user of a given name.
    fn allowed(&self) -> Result<Vec<u32>, Failure> {
        allowed(&self.users)
    }

    /// Returns the zone, which then may write records of sessions, sealed for the key in the file
    /// that was named; unchanged if none was. Makes the directory for them. Errors: those of the
    /// key; SR-5001 when the system reports an error.
    fn recording(&self, zone: Zone, context: &Context) -> Result<Zone, Failure> {
        let Some(file) = &self.record_key_file else {
            return Ok(zone);
        };
        let opener = KeySource::File(file.clone()).opener(&SourceContext {
            keyring: context.keyring.clone(),
            creating: false,
            prompt: String::new(),
        })?;
        let directory = self.state.join("records");
        std::fs::create_dir_all(&directory).map_err(|error| Failure::io(&directory, &error))?;
        Ok(zone.recording(directory, opener.recipient()?))
    }

    /// Opens the TPM if the anchor or the attestation needs it, before the sandbox closes, after
    /// which nothing can be opened. `None` if nothing needs it; SR-5001 if it cannot be opened.
    fn open_tpm(&self) -> Result<Option<Arc<Tpm>>, Failure> {
        let anchored = matches!(self.anchor, Some(AnchorChoice::Tpm(_)));
        if !anchored && matches!(self.attest, AttestChoice::Process) {
            return Ok(None);
        }
        let tpm = Tpm::open(&self.tpm);
        tpm.map(Some)
            .map_err(|failure| self.tpm_failure(failure.into()))
    }

    /// Makes an SR-5001 failure about the TPM.
    fn tpm_failure(&self, error: std::io::Error) -> Failure {
        Failure::io(Path::new(&self.tpm), &error)
    }

    /// Returns what attests the zone: the TPM's quotes, or the process itself, which proves
    /// nothing. SR-5001 if the TPM or the program's own file cannot be used.
    fn attester(&self, tpm: Option<&Arc<Tpm>>) -> Result<Box<dyn Attester>, Failure> {
        match (self.attest, tpm) {
            (AttestChoice::Tpm { key, pcrs }, Some(tpm)) => {
                let attester = TpmAttester::new(Arc::clone(tpm), key, pcrs);
                Ok(Box::new(attester.map_err(|error| self.tpm_failure(error))?))
            }
            _ => {
                let attester = ProcessAttester::new()
                    .map_err(|error| Failure::io(Path::new("/proc/self/exe"), &error))?;
                Ok(Box::new(attester))
            }
        }
    }

    /// Returns the freshness anchor of the store: a counter of the TPM, or a file. SR-5001 if the
    /// TPM's counter cannot be used.
    fn anchor(&self, tpm: Option<&Arc<Tpm>>) -> Result<Box<dyn Anchor>, Failure> {
        match (&self.anchor, tpm) {
            (Some(AnchorChoice::Tpm(index)), Some(tpm)) => {
                let counter = tpm.counter(*index);
                let counter = counter.map_err(|failure| self.tpm_failure(failure.into()))?;
                Ok(Box::new(store::TpmAnchor::new(counter)))
            }
            _ => Ok(Box::new(store::FileAnchor::at(self.anchor_file()))),
        }
    }

    /// Returns the path of the anchor's file: the one that was named, otherwise one in the state
    /// directory, also if the anchor is in the TPM.
    fn anchor_file(&self) -> PathBuf {
        match &self.anchor {
            Some(AnchorChoice::File(path)) => path.clone(),
            _ => self.state.join(store::ANCHOR_NAME),
        }
    }

    /// Returns the directories that the sandbox leaves accessible: the state, and those of the
    /// anchor's file and of the socket.
    fn directories(&self) -> Vec<PathBuf> {
        let parent = |path: &Path| {
            path.parent()
                .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
        };
        vec![
            self.state.clone(),
            parent(&self.anchor_file()),
            parent(&self.socket),
        ]
    }

    /// Opens the sealed store with the key of the options. If there is none, makes it first and
    /// notes that its values are lost with the key. SR-2041 without a key, SR-8010 if the store is
    /// older than its anchor, SR-8025 if another process has it open; the errors of the key and the
    /// store; SR-5001 when the system reports an error.
    fn store(&self, context: &Context, anchor: Box<dyn Anchor>) -> Result<store::Store, Failure> {
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
            store::create(&self.state, &opener.recipient()?)?;
            note("a new store: whoever loses its key has lost every value in it");
        }
        let options = Options {
            memory_limit: self.memory.saturating_mul(1 << 20),
            insist_on_locks: self.insist_on_locks,
            // A TPM's counter does not begin at zero, and a store that was made just now cannot be
            // an older one.
            accept_restored: self.accept_restored || !there,
        };
        Ok(store::open(&self.state, &opener, anchor, options)?)
    }
}

/// Returns the ids of these users, which are given by number or name; the own one of this process
/// if none is given. SR-1001 if there is no user of that name; SR-5001 when the system reports an
/// error.
pub(super) fn allowed(users: &[String]) -> Result<Vec<u32>, Failure> {
    if users.is_empty() {
        return Ok(vec![rustix::process::getuid().as_raw()]);
    }
    users.iter().map(|name| user_id(name)).collect()
}

/// Reports what the sandbox could not close: warns with SR-8026 of memory that is not locked, and
/// notes that the kernel has no Landlock. Writes nothing if all is closed.
fn tell_closed(closed: Closed) {
    if !closed.locked {
        // The store locks the memory of values and keys by itself, and `columns status` tells of
        // that: this is about the rest.
        let detail =
            "not all of the process: what passes through its stacks and buffers is not locked";
        warn(&code::ZONE_UNLOCKED, detail);
    }
    if !closed.files {
        note(
            "this kernel has no Landlock: files outside the zone's directories are within its reach",
        );
    }
}

/// Returns a user's id: the number itself, or the one in `/etc/passwd`. SR-1001 if there is no such
/// user; SR-5001 if the file cannot be read.
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

/// Parses `tpm:INDEX` as a counter of the TPM, anything else as the path of a file. The error is
/// the text that clap shows.
fn anchor(text: &str) -> Result<AnchorChoice, String> {
    match text.strip_prefix("tpm:") {
        Some(index) => handle(index).map(AnchorChoice::Tpm),
        None => Ok(AnchorChoice::File(PathBuf::from(text))),
    }
}

/// Parses `process` or `tpm:HANDLE:PCR,PCR...`. The error is the text that clap shows.
fn attest_choice(text: &str) -> Result<AttestChoice, String> {
    if text == "process" {
        return Ok(AttestChoice::Process);
    }
    let form = || String::from("process, or tpm:HANDLE:PCR,PCR...");
    let rest = text.strip_prefix("tpm:").ok_or_else(form)?;
    let (key, list) = rest.split_once(':').ok_or_else(form)?;
    let mut pcrs = 0;
    for number in list.split(',') {
        let number: u8 = number.parse().map_err(|_| form())?;
        let bit = (number < PCRS).then(|| 1_u32 << number).ok_or_else(form)?;
        pcrs |= bit;
    }
    let key = handle(key)?;
    Ok(AttestChoice::Tpm { key, pcrs })
}

/// Parses a handle or index of a TPM in hexadecimal after `0x`. The error is the text that clap
/// shows.
fn handle(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x");
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| format!("{text}: a number such as 0x81010002"))
}
