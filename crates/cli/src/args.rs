//! The command line: one enum of nouns. Each verb's arguments are in the verb's own file.
//!
//! Must not: have an option that takes a secret. Key options name where the key comes from.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use strongroom_keyring::Keyring;

use crate::backup::BackupArgs;
use crate::cert::CertArgs;
use crate::columns::ColumnsArgs;
use crate::documentation::{CompletionArgs, ManArgs};
use crate::duckdb::DuckdbArgs;
use crate::explain::ExplainArgs;
use crate::help::tail;
use crate::inspect::InspectArgs;
use crate::key::KeyArgs;
use crate::keyring::KeyringArgs;
use crate::keyserver::KeyserverArgs;
use crate::pg::PgArgs;
use crate::sqlite::SqliteArgs;
use crate::verify::VerifyArgs;
use crate::volume::VolumeArgs;

/// Keeps databases unreadable wherever they rest: keyrings, keys, sealed SQLite files and
/// PostgreSQL instances.
#[derive(Parser)]
#[command(
    name = "strongroom",
    version,
    after_help = tail!("  strongroom keyring init --provider passphrase\n  strongroom key create app\n  strongroom sqlite encrypt plain.db sealed.db --key-id app")
)]
pub(crate) struct Cli {
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "The keyring [default: STRONGROOM_KEYRING, else ~/.local/share/strongroom/keyring]"
    )]
    pub(crate) keyring: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Keyring(KeyringArgs),
    Key(KeyArgs),
    Cert(CertArgs),
    Sqlite(SqliteArgs),
    Pg(PgArgs),
    Duckdb(DuckdbArgs),
    Backup(BackupArgs),
    Columns(ColumnsArgs),
    Volume(VolumeArgs),
    Keyserver(KeyserverArgs),
    Inspect(InspectArgs),
    Verify(VerifyArgs),
    Explain(ExplainArgs),
    Completion(CompletionArgs),
    Man(ManArgs),
}

impl Command {
    /// Returns the paths that the command works on, from which the owner is determined that root
    /// becomes before the command runs. `keyring` is the keyring that was named, if any.
    /// Empty for commands that root runs as itself: backups, volumes, key servers and confidential
    /// columns concern files of many owners, and access other users' files only by descriptor.
    pub(crate) fn subjects(&self, keyring: Option<&Path>) -> Vec<PathBuf> {
        let own_keyring = || vec![keyring.map_or_else(Keyring::default_path, PathBuf::from)];
        match self {
            Self::Keyring(_) | Self::Key(_) | Self::Cert(_) => own_keyring(),
            Self::Sqlite(args) => args.subjects(),
            Self::Pg(args) => args.subjects(),
            Self::Duckdb(args) => args.subjects(),
            Self::Inspect(args) => vec![args.file.clone()],
            Self::Verify(args) => vec![args.file.clone()],
            Self::Backup(_)
            | Self::Columns(_)
            | Self::Volume(_)
            | Self::Keyserver(_)
            | Self::Explain(_)
            | Self::Completion(_) => Vec::new(),
            Self::Man(args) => args.subjects(),
        }
    }

    /// Returns whether `--json` was given, so that standard output is to hold one JSON object.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Keyring(args) => args.wants_json(),
            Self::Key(args) => args.wants_json(),
            Self::Cert(args) => args.wants_json(),
            Self::Pg(args) => args.wants_json(),
            Self::Inspect(args) => args.json,
            Self::Verify(args) => args.json,
            Self::Backup(args) => args.wants_json(),
            Self::Columns(args) => args.wants_json(),
            Self::Volume(args) => args.wants_json(),
            Self::Keyserver(args) => args.wants_json(),
            Self::Sqlite(_)
            | Self::Duckdb(_)
            | Self::Explain(_)
            | Self::Completion(_)
            | Self::Man(_) => false,
        }
    }
}
