//! `strongroom backup`: one file per verb.
//!
//! Must not: know a byte of a medium; that is strongroom-backup's.

mod create;
mod expire;
mod header;
mod restore;
mod rewrap;
mod until;
mod verify;
mod wal;

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use clap::{Args, Subcommand};
use strongroom_backup::{LocalStore, Store};
use strongroom_format::header::Header;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::{KeySource, Opener, SourceContext};

use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Back up directories, SQLite databases and PostgreSQL servers; list, verify and restore backup sets.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup create /srv/files --to /mnt/backups --key-id backups"))]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(create::CreateArgs),
    Header(header::HeaderArgs),
    Verify(verify::VerifyArgs),
    Restore(restore::RestoreArgs),
    WalPush(wal::WalPushArgs),
    WalFetch(wal::WalFetchArgs),
    Rewrap(rewrap::RewrapArgs),
    Expire(expire::ExpireArgs),
}

impl BackupArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Create(args) => args.json,
            Verb::Header(args) => args.json,
            Verb::Verify(args) => args.json,
            Verb::Restore(args) => args.json,
            Verb::WalPush(_) | Verb::WalFetch(_) | Verb::Rewrap(_) | Verb::Expire(_) => false,
        }
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(args) => args.run(context),
            Verb::Header(args) => args.run(context),
            Verb::Verify(args) => args.run(context),
            Verb::Restore(args) => args.run(context),
            Verb::WalPush(args) => args.run(context),
            Verb::WalFetch(args) => args.run(context),
            Verb::Rewrap(args) => args.run(context),
            Verb::Expire(args) => args.run(context),
        }
    }
}

/// The medium at a path.
fn store(path: &Path) -> Box<dyn Store> {
    Box::new(LocalStore::new(path))
}

/// The key, fetched. Asked for twice when something is sealed with it.
fn opener(source: &KeySource, keyring: Option<PathBuf>, creating: bool) -> Result<Opener, Failure> {
    let about = SourceContext {
        keyring,
        creating,
        prompt: String::from("Passphrase of the backup"),
    };
    Ok(source.opener(&about)?)
}

/// As many threads as the machine runs at the same time.
fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| available_parallelism().map_or(1, usize::from))
}

fn thread_count(text: &str) -> Result<usize, String> {
    let count: Option<usize> = text.parse().ok();
    count
        .filter(|count| (1..=64).contains(count))
        .ok_or_else(|| "use a number from 1 to 64".to_owned())
}

/// Who can open a set, in words.
fn openers(header: &Header) -> Vec<String> {
    let name = |kind: &SlotKind| match kind {
        SlotKind::Keyring { id, version } => format!("keyring key {id} version {version}"),
        other => other.name().to_owned(),
    };
    header.slots.iter().map(|slot| name(&slot.kind)).collect()
}
