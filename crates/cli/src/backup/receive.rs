//! `strongroom backup wal-receive CONNINFO --to MEDIUM`: a server's log onto a medium as it is written.
//!
//! Invariant: a signal ends it with everything durable that was received; so does `--until-lsn`.
//!
//! Must not: ask for anything; go on when the medium fails.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use strongroom_backup::{Cipher, Compression, ReceiveOptions, Received, wal_receive};
use strongroom_format::code;
use strongroom_replication::Lsn;

use super::create::{allowed, cipher, compression, connection, set_options};
use super::until::lsn;
use super::{sealing_openers, store};
use crate::args::KeyOptions;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::{Context, keyring, keys};

/// Set by a signal.
static STOP: AtomicBool = AtomicBool::new(false);

/// Archive a PostgreSQL server's log as it is written, until a signal ends it.
///
/// Whole segments are archived as wal-push does; what the last one has so far is on the medium too. The server hears that log is flushed when it is durable there.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup wal-receive 'host=/run/postgresql user=postgres' --to /mnt/backups --slot backups --create-slot --key-id backups"))]
pub(super) struct WalReceiveArgs {
    /// A connection string of the server: postgresql://... or host=...
    #[arg(value_name = "CONNINFO")]
    source: String,
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(long, value_name = "MEDIUM")]
    to: PathBuf,
    /// The physical replication slot to use: the server keeps the log until it was received
    #[arg(long, value_name = "NAME")]
    slot: Option<String>,
    /// Make the slot if it is not there
    #[arg(long, requires = "slot")]
    create_slot: bool,
    /// End when the log is durable up to this position
    #[arg(long, value_name = "LSN", value_parser = lsn)]
    until_lsn: Option<Lsn>,
    /// End with an error when the connection is lost, instead of connecting again
    #[arg(long)]
    no_retry: bool,
    #[command(flatten)]
    key: KeyOptions,
    /// A certificate of the keyring to seal the log for; may be given several times, and beside a key
    #[arg(long, value_name = "NAME")]
    certificate: Vec<String>,
    /// Do not encrypt: whoever can read the medium can read the data
    #[arg(long, conflicts_with_all = ["key_id", "key_env", "key_file", "key_command", "ask", "certificate"])]
    no_encryption: bool,
    /// aes-256, aes-192, aes-128, or, with --allow-legacy, triple-des-3key
    #[arg(long, value_name = "NAME", default_value = "aes-256", value_parser = cipher)]
    algorithm: Cipher,
    /// Allow --algorithm triple-des-3key, which NIST allows for no encryption since 2024
    #[arg(long)]
    allow_legacy: bool,
    /// none, zstd, or zstd:LEVEL with a level from 1 to 19
    #[arg(long, value_name = "NAME", default_value = "zstd", value_parser = compression)]
    compression: Compression,
}

impl WalReceiveArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let config = connection(&self.source)?;
        let keyring = keyring::path(context);
        let key = if self.no_encryption || !self.certificate.is_empty() {
            keys::source(self.key)
        } else {
            let what = "backup wal-receive without --no-encryption";
            Some(keys::required(self.key, what)?)
        };
        let openers = sealing_openers(key.as_ref(), &self.certificate, &keyring)?;
        let mut sealing = set_options(openers.iter().collect());
        sealing.cipher = allowed(self.algorithm, self.allow_legacy, &self.to)?;
        sealing.compression = self.compression;
        let options = ReceiveOptions {
            slot: self.slot,
            create_slot: self.create_slot,
            until: self.until_lsn,
            once: self.no_retry,
        };
        ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
            .map_err(|error| Failure::new(&code::IO, format!("signal handler: {error}")))?;
        let store = store(&self.to)?;
        wal_receive(
            store.as_ref(),
            &config,
            &sealing,
            &options,
            &STOP,
            &mut |told| match told {
                Received::From(lsn, timeline) => {
                    note(&format!("receiving from {lsn} on timeline {timeline}"));
                }
                Received::Lost(why, wait) => {
                    let seconds = wait.as_secs();
                    note(&format!("{why}; connecting again in {seconds} s"));
                }
            },
        )?;
        Ok(())
    }
}
