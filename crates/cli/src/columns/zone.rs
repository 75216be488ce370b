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

use clap::Args;
use strongroom_columns_zone::sandbox::Closed;
use strongroom_columns_zone::serve::Serving;
use strongroom_columns_zone::session::attest::Hardware;
use strongroom_columns_zone::setup::{AnchorPlace, Evidence, ZoneSetup};
use strongroom_format::code;
use strongroom_format::columns::tpm::PCRS;

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
    anchor: Option<AnchorPlace>,
    /// What the zone shows to be believed: process, which proves nothing; tpm:HANDLE:PCR,PCR..., a
    /// TPM's quote by the key at HANDLE; sev-snp or tdx, a report of the confidential virtual
    /// machine that the zone runs in
    #[arg(long, value_name = "EVIDENCE", default_value = "process", value_parser = attest_choice)]
    attest: Evidence,
    /// The TPM: its device, or a simulator's socket or HOST:PORT
    #[arg(long, value_name = "PLACE", default_value = "/dev/tpmrm0")]
    tpm: String,
    /// Entry of configfs-tsm that gives reports of a confidential virtual machine: made if it is
    /// not there, which needs root
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/sys/kernel/config/tsm/report/strongroom"
    )]
    tsm: PathBuf,
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

impl ZoneArgs {
    /// Opens or makes the store, binds the socket, closes the sandbox, and serves until a signal
    /// stops it; then writes a checkpoint. Notes to standard error say where it serves. Errors:
    /// SR-2041 without a key; the errors of the key, the store and the TPM; SR-1001 for an unknown
    /// user; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let setup = self.setup(context)?;
        let key = keys::required(self.key, "the zone's store")?;
        let made = || note("a new store: whoever loses its key has lost every value in it");
        let mut zone = setup.zone(&key, made)?;
        zone.on_store_error(|error| warn(error.code(), error.detail()));
        let about = |error: std::io::Error| Failure::io(&setup.socket, &error);
        // Who may connect is decided by user id.
        let serving = Serving::bind(zone, &setup.socket, 0o666).map_err(about)?;
        let stopper = serving.stopper();
        if setup.evidence == Evidence::Process {
            note(
                "attestation by the process itself: it proves nothing, and clients must be told to accept it",
            );
        }
        note(&format!("serving at {}", setup.socket.display()));
        let closed = move |closed| {
            tell_closed(closed);
            // Its thread begins inside the sandbox.
            ctrlc::set_handler(move || stopper.stop()).map_err(std::io::Error::other)
        };
        let mut zone = serving.run(Some(&setup.sandbox()), closed).map_err(about)?;
        zone.checkpoint()?;
        note("stopped");
        Ok(())
    }

    /// Returns how the options set the zone up. SR-1001 for an unknown user; SR-5001.
    fn setup(&self, context: &Context) -> Result<ZoneSetup, Failure> {
        Ok(ZoneSetup {
            state: self.state.clone(),
            socket: self.socket.clone(),
            users: allowed(&self.users)?,
            memory_limit: self.memory.saturating_mul(1 << 20),
            anchor: self.anchor.clone(),
            evidence: self.attest,
            tpm: self.tpm.clone(),
            tsm: self.tsm.clone(),
            accept_restored: self.accept_restored,
            insist_on_locks: self.insist_on_locks,
            record_key: self.record_key_file.clone(),
            keyring: context.keyring.clone(),
        })
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
fn anchor(text: &str) -> Result<AnchorPlace, String> {
    match text.strip_prefix("tpm:") {
        Some(index) => handle(index).map(AnchorPlace::Tpm),
        None => Ok(AnchorPlace::File(PathBuf::from(text))),
    }
}

/// Parses `process`, `sev-snp`, `tdx` or `tpm:HANDLE:PCR,PCR...`. The error is the text that clap
/// shows.
fn attest_choice(text: &str) -> Result<Evidence, String> {
    match text {
        "process" => return Ok(Evidence::Process),
        "sev-snp" => return Ok(Evidence::Report(Hardware::SevSnp)),
        "tdx" => return Ok(Evidence::Report(Hardware::Tdx)),
        _ => {}
    }
    let form = || String::from("process, sev-snp, tdx, or tpm:HANDLE:PCR,PCR...");
    let rest = text.strip_prefix("tpm:").ok_or_else(form)?;
    let (key, list) = rest.split_once(':').ok_or_else(form)?;
    let mut pcrs = 0;
    for number in list.split(',') {
        let number: u8 = number.parse().map_err(|_| form())?;
        let bit = (number < PCRS).then(|| 1_u32 << number).ok_or_else(form)?;
        pcrs |= bit;
    }
    let key = handle(key)?;
    Ok(Evidence::Tpm { key, pcrs })
}

/// Parses a handle or index of a TPM in hexadecimal after `0x`. The error is the text that clap
/// shows.
fn handle(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x");
    let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| format!("{text}: a number such as 0x81010002"))
}
