//! `strongroom backup`: one file per verb.
//!
//! Must not: know a byte of a medium; that is strongroom-backup's.

mod create;
mod drill;
mod expire;
mod header;
mod history;
mod medium_name;
mod metrics;
mod progress;
mod receive;
mod restore;
mod rewrap;
mod sealing;
mod signature;
mod threads;
mod until;
mod verify;
mod wal;

use clap::{Args, Subcommand};

pub(crate) use self::wal::{is_wal_fetch, run_never_absent, with_stopping_code};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Back up directories, SQLite databases and PostgreSQL servers; list, verify and restore backup
/// sets.
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
    /// Returns whether `--json` was given to a verb that has it.
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

    /// Runs the verb that was named and returns its result.
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
