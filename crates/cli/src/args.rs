//! The argument model: one enum of nouns; each verb's arguments stand in the verb's own file.
//!
//! Must not: have any option that takes a secret. Key options name where the key comes from.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
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

/// Keeps databases unreadable wherever they rest: keyrings, keys, sealed SQLite files and PostgreSQL instances.
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
    /// What the command is pointed at: as whose owner root acts. Backups, volumes, servers and
    /// zones are root's own work on things of many owners; what they do with others' files they do
    /// by descriptors.
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

    /// Whether standard output is to hold one JSON object.
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

/// Where the key comes from. At most one; secrets never stand on the command line.
#[derive(Args, Clone, Default)]
#[group(required = false, multiple = false)]
pub(crate) struct KeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "Key options")]
    pub(crate) key_id: Option<String>,
    /// The environment variable that holds the key
    #[arg(long, value_name = "VAR", help_heading = "Key options")]
    pub(crate) key_env: Option<String>,
    /// The file that holds the key
    #[arg(long, value_name = "FILE", help_heading = "Key options")]
    pub(crate) key_file: Option<PathBuf>,
    /// The command that prints the key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "Key options")]
    pub(crate) key_command: Option<String>,
    /// Ask for a passphrase on the terminal
    #[arg(long, help_heading = "Key options")]
    pub(crate) ask: bool,
}

/// Where the key of a sealed source comes from. At most one.
#[derive(Args, Clone)]
#[group(required = false, multiple = false)]
pub(crate) struct SourceKeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "Source key options")]
    source_key_id: Option<String>,
    /// The environment variable that holds the source's key
    #[arg(long, value_name = "VAR", help_heading = "Source key options")]
    source_key_env: Option<String>,
    /// The file that holds the source's key
    #[arg(long, value_name = "FILE", help_heading = "Source key options")]
    source_key_file: Option<PathBuf>,
    /// The command that prints the source's key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "Source key options")]
    source_key_command: Option<String>,
    /// Ask for the source's passphrase on the terminal
    #[arg(long, help_heading = "Source key options")]
    source_ask: bool,
}

impl From<SourceKeyOptions> for KeyOptions {
    fn from(source: SourceKeyOptions) -> Self {
        Self {
            key_id: source.source_key_id,
            key_env: source.source_key_env,
            key_file: source.source_key_file,
            key_command: source.source_key_command,
            ask: source.source_ask,
        }
    }
}

/// Where the new key comes from. At most one.
#[derive(Args)]
#[group(required = false, multiple = false)]
pub(crate) struct NewKeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "New key options")]
    new_key_id: Option<String>,
    /// The environment variable that holds the new key
    #[arg(long, value_name = "VAR", help_heading = "New key options")]
    new_key_env: Option<String>,
    /// The file that holds the new key
    #[arg(long, value_name = "FILE", help_heading = "New key options")]
    new_key_file: Option<PathBuf>,
    /// The command that prints the new key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "New key options")]
    new_key_command: Option<String>,
    /// Ask for a new passphrase on the terminal
    #[arg(long, help_heading = "New key options")]
    new_ask: bool,
}

impl From<NewKeyOptions> for KeyOptions {
    fn from(new: NewKeyOptions) -> Self {
        Self {
            key_id: new.new_key_id,
            key_env: new.new_key_env,
            key_file: new.new_key_file,
            key_command: new.new_key_command,
            ask: new.new_ask,
        }
    }
}

/// Where the key comes from that opens a restored instance. At most one.
#[derive(Args, Clone)]
#[group(required = false, multiple = false)]
pub(crate) struct InstanceKeyOptions {
    /// A key of the keyring, by name
    #[arg(long, value_name = "NAME", help_heading = "Instance key options")]
    instance_key_id: Option<String>,
    /// The environment variable that holds the instance's key
    #[arg(long, value_name = "VAR", help_heading = "Instance key options")]
    instance_key_env: Option<String>,
    /// The file that holds the instance's key
    #[arg(long, value_name = "FILE", help_heading = "Instance key options")]
    instance_key_file: Option<PathBuf>,
    /// The command that prints the instance's key on its standard output
    #[arg(long, value_name = "CMD", help_heading = "Instance key options")]
    instance_key_command: Option<String>,
    /// Ask for the instance's passphrase on the terminal
    #[arg(long, help_heading = "Instance key options")]
    instance_ask: bool,
}

impl InstanceKeyOptions {
    /// Whether one of them is given.
    pub(crate) const fn is_given(&self) -> bool {
        self.instance_key_id.is_some()
            || self.instance_key_env.is_some()
            || self.instance_key_file.is_some()
            || self.instance_key_command.is_some()
            || self.instance_ask
    }
}

impl From<InstanceKeyOptions> for KeyOptions {
    fn from(instance: InstanceKeyOptions) -> Self {
        Self {
            key_id: instance.instance_key_id,
            key_env: instance.instance_key_env,
            key_file: instance.instance_key_file,
            key_command: instance.instance_key_command,
            ask: instance.instance_ask,
        }
    }
}
