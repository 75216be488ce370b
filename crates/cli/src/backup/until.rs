//! Recovery of a restored PostgreSQL cluster from the archive: the settings that `restore` writes.
//!
//! Must not: put a secret into a file of settings.

use std::path::Path;

use clap::Args;
use strongroom_backup::{FetchCommand, PostgresFacts, RecoveryTarget, settings_of_recovery};
use strongroom_postgres_replication::Lsn;

use crate::failure::Failure;
use crate::key_options::KeyOptions;
use crate::keys;

/// How far the log is replayed.
#[derive(Args, Clone)]
#[group(required = false, multiple = false)]
pub(super) struct UntilOptions {
    /// Of a PostgreSQL cluster: recover from the archive to this time, as `recovery_target_time`
    /// takes it
    #[arg(long, value_name = "TIME", value_parser = plain)]
    until_time: Option<String>,
    /// Of a PostgreSQL cluster: recover from the archive to this position of the log
    #[arg(long, value_name = "LSN", value_parser = lsn)]
    until_lsn: Option<Lsn>,
    /// Of a PostgreSQL cluster: recover to the end of the archive
    #[arg(long)]
    until_end: bool,
}

impl UntilOptions {
    /// Returns the recovery settings for the restored cluster, with the command that fetches
    /// archived log; `None` without an `--until-` option. `facts` are those of the set. Errors:
    /// SR-1001 for a set of no PostgreSQL cluster, a passphrase that would be asked for, or a path
    /// that a setting cannot hold; SR-7122 if the position lies before the end of the backup;
    /// SR-5001 when the system reports an error.
    pub(super) fn settings(
        &self,
        facts: Option<&PostgresFacts>,
        medium: &Path,
        key: &KeyOptions,
        keyring: &Path,
    ) -> Result<Option<String>, Failure> {
        let target = match (&self.until_time, self.until_lsn, self.until_end) {
            (Some(time), _, _) => RecoveryTarget::Time(time.clone()),
            (_, Some(lsn), _) => RecoveryTarget::Lsn(lsn),
            (_, _, true) => RecoveryTarget::End,
            _ => return Ok(None),
        };
        let program = std::env::current_exe();
        let program = program.map_err(|error| Failure::io(Path::new("strongroom"), &error))?;
        let key = keys::source(key.clone());
        let command = FetchCommand {
            program: &program,
            keyring,
            medium,
            key: key.as_ref(),
        };
        Ok(Some(settings_of_recovery(target, facts, &command)?))
    }
}

/// Checks a time for `recovery_target_time`: neither empty nor with control characters. The error
/// is the text that clap shows.
fn plain(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("use a time as PostgreSQL reads it".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a position of the log, as 16/B374D848. The error is the text that clap shows.
pub(super) fn lsn(text: &str) -> Result<Lsn, String> {
    text.parse()
        .map_err(|_| "use a position as 16/B374D848".to_owned())
}
