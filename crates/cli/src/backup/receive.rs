//! `strongroom backup wal-receive CONNINFO --to MEDIUM`: a server's log onto a medium as it is
//! written.
//!
//! Invariant: a signal ends it with everything durable that was received; so does `--until-lsn`.
//!
//! Must not: ask for anything; go on when the medium fails.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use strongroom_backup::{ReceiveOptions, Received, wal_receive};
use strongroom_postgres_replication::Lsn;

use super::create::{connection, set_options};
use super::medium_name::store;
use super::sealing::SealingOptions;
use super::until::lsn;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::signals;

/// Set by a signal.
static STOP: AtomicBool = AtomicBool::new(false);

/// Archive a PostgreSQL server's log as it is written, until a signal ends it.
///
/// Whole segments are archived as wal-push does; what the last one has so far is on the medium too.
/// The server hears that log is flushed when it is durable there.
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
    sealing: SealingOptions,
}

impl WalReceiveArgs {
    /// Receives the server's log onto the medium until a signal, `--until-lsn` or an error ends it.
    /// Notes where it begins, and each lost connection, which is made again unless `--no-retry` was
    /// given. Errors: SR-7114 or SR-1001 for the connection string, SR-2041 without a key, SR-7101,
    /// SR-7104 or SR-7105 for the medium, SR-7165 if the archive is another cluster's, SR-7166 if
    /// the server refuses; the errors of the keys; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let config = connection(&self.source)?;
        let keyring = context.keyring_path();
        let key = self.sealing.key("backup wal-receive")?;
        let recipients = self.sealing.recipients(key.as_ref(), &keyring)?;
        let mut sealing = set_options(recipients);
        sealing.cipher = self.sealing.cipher(&self.to)?;
        sealing.compression = self.sealing.compression;
        let options = ReceiveOptions {
            slot: self.slot,
            create_slot: self.create_slot,
            until: self.until_lsn,
            once: self.no_retry,
        };
        signals::stop_on_signals(&STOP)?;
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
