//! `strongroom backup`: one file per verb.
//!
//! Must not: know a byte of a medium; that is strongroom-backup's.

mod create;
mod drill;
mod expire;
mod header;
mod history;
mod metrics;
mod place;
mod progress;
mod receive;
mod restore;
mod rewrap;
mod sealing;
mod signature;
mod until;
mod verify;
mod wal;

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use clap::{Args, Subcommand};
use strongroom_format::header::Header;
use strongroom_format::slot::SlotKind;
use strongroom_format::{code, hex};
use strongroom_keyring::{KeySource, Keyring, Opener, SourceContext};

pub(crate) use self::history::{Past, past};
use self::place::{is_url, store};
pub(crate) use self::wal::{is_wal_fetch, never_absent, stopping};

use crate::Context;
use crate::args::KeyOptions;
use crate::failure::{Failure, warn};
use crate::help::tail;
use crate::keys;

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
    WalReceive(receive::WalReceiveArgs),
    Rewrap(rewrap::RewrapArgs),
    Expire(expire::ExpireArgs),
    History(history::HistoryArgs),
}

impl BackupArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Create(args) => args.json,
            Verb::Header(args) => args.json,
            Verb::Verify(args) => args.json,
            Verb::Restore(args) => args.json,
            Verb::History(args) => args.json,
            Verb::WalPush(_)
            | Verb::WalFetch(_)
            | Verb::WalReceive(_)
            | Verb::Rewrap(_)
            | Verb::Expire(_) => false,
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
            Verb::WalReceive(args) => args.run(context),
            Verb::Rewrap(args) => args.run(context),
            Verb::Expire(args) => args.run(context),
            Verb::History(args) => args.run(context),
        }
    }
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

/// Who a set is sealed for: the certificates that are named, then the key. Warns of certificates whose private key was never
/// exported, every time.
fn sealing_openers(
    key: Option<&KeySource>,
    certificates: &[String],
    keyring: &Path,
) -> Result<Vec<Opener>, Failure> {
    let mut openers = Vec::new();
    if !certificates.is_empty() {
        let keys = Keyring::open(keyring)?;
        for name in certificates {
            openers.push(keys.recipient(name)?);
            let about = keys.certificate(name)?;
            if let Some((code, detail)) = about.export_warning() {
                warn(code, &detail);
            }
            if !about.is_valid_now() {
                warn(&code::CERT_DATES, name);
            }
        }
    }
    if let Some(key) = key {
        openers.push(opener(key, Some(keyring.to_path_buf()), true)?);
    }
    Ok(openers)
}

/// Does something that needs a set's key: with the key that is named, else without any, else with the private keys of the
/// keyring's certificates.
fn with_key<T>(
    key: KeyOptions,
    keyring: &Path,
    open: impl FnMut(Option<&Opener>) -> strongroom_backup::Result<T>,
) -> Result<T, Failure> {
    with_kept_key(key, keyring, open).map(|(done, _)| done)
}

/// As [`with_key`]; gives back the key that served, for what is opened later.
fn with_kept_key<T>(
    key: KeyOptions,
    keyring: &Path,
    mut open: impl FnMut(Option<&Opener>) -> strongroom_backup::Result<T>,
) -> Result<(T, Option<Opener>), Failure> {
    if let Some(source) = keys::source(key) {
        let opener = opener(&source, Some(keyring.to_path_buf()), false)?;
        return Ok((open(Some(&opener))?, Some(opener)));
    }
    let needed = match open(None) {
        Err(error) if error.code() == &code::NO_KEY => error,
        other => return Ok((other?, None)),
    };
    if !keyring.exists() {
        return Err(needed.into());
    }
    let private = Keyring::open(keyring)?.private_keys()?;
    match open(Some(&private)) {
        // It has no slot for a certificate at all.
        Err(error) if error.code() == &code::WRONG_KEY => Err(needed.into()),
        other => Ok((other?, Some(private))),
    }
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
        SlotKind::Certificate { id, .. } => format!("certificate {}", hex::hex(id)),
        other => other.name().to_owned(),
    };
    header.slots.iter().map(|slot| name(&slot.kind)).collect()
}
