//! Recovery of a restored PostgreSQL cluster from the archive: the settings that `restore` writes.
//!
//! Must not: put a secret into a file of settings.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_backup::{PostgresFacts, RecoveryTarget, recovery_settings};
use strongroom_format::code;
use strongroom_postgres_replication::Lsn;

use super::medium_name::is_url;
use crate::failure::Failure;
use crate::key_options::KeyOptions;

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
    /// archived log; `None` without an `--until-` option. `facts` are those of the set.
    /// Errors: SR-1001 for a set of no PostgreSQL cluster, a passphrase that would be asked for, or
    /// a path that a setting cannot hold; SR-7122 if the position lies before the end of the
    /// backup; SR-5001.
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
        let facts = facts
            .ok_or_else(|| Failure::usage("--until-... is for sets of PostgreSQL clusters"))?;
        let end: Option<Lsn> = facts.end_lsn.parse().ok();
        if self
            .until_lsn
            .is_some_and(|until| end.is_none_or(|end| until < end))
        {
            return Err(Failure::new(&code::UNTIL_LATER, facts.end_lsn.as_str()));
        }
        let command = restore_command(medium, key, keyring)?;
        Ok(Some(recovery_settings(&command, target)))
    }
}

/// Returns the line for `restore_command`, quoted for the shell: this program with absolute paths
/// and the same key source. SR-1001 for `--ask`, or a path that is not UTF-8 or has control
/// characters; SR-5001 if a path cannot be made absolute.
fn restore_command(medium: &Path, key: &KeyOptions, keyring: &Path) -> Result<String, Failure> {
    let program = std::env::current_exe();
    let program = program.map_err(|error| Failure::io(Path::new("strongroom"), &error))?;
    let mut words = vec![
        word(&program)?,
        String::from("--keyring"),
        word(&absolute(keyring)?)?,
        String::from("backup wal-fetch '%f' '%p' --from"),
        word(&absolute_medium(medium)?)?,
    ];
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if let Some(id) = &key.key_id {
        option("--key-id", word(Path::new(id))?);
    } else if let Some(variable) = &key.key_env {
        option("--key-env", word(Path::new(variable))?);
    } else if let Some(file) = &key.key_file {
        option("--key-file", word(&absolute(file)?)?);
    } else if let Some(command) = &key.key_command {
        option("--key-command", word(Path::new(command))?);
    } else if key.ask {
        let text = "recovery cannot ask for a passphrase: name a key by another option";
        return Err(Failure::usage(text));
    }
    Ok(words.join(" "))
}

/// Makes a path absolute. SR-5001 without a working directory.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io(path, &error))
}

/// Returns the medium's path made absolute; a URL is returned unchanged.
fn absolute_medium(medium: &Path) -> Result<PathBuf, Failure> {
    if is_url(medium) {
        return Ok(medium.to_path_buf());
    }
    absolute(medium)
}

/// Quotes a path as one word of the shell, with `%` doubled, because PostgreSQL replaces it before
/// the shell reads the line. SR-1001 if it is not UTF-8 or has control characters.
fn word(path: &Path) -> Result<String, Failure> {
    let text = path
        .to_str()
        .filter(|text| !text.chars().any(char::is_control));
    let text =
        text.ok_or_else(|| Failure::usage("a path that a PostgreSQL setting cannot hold"))?;
    Ok(format!(
        "'{}'",
        text.replace('\'', r"'\''").replace('%', "%%")
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell_and_for_postgresql() {
        let path = Path::new("/a b/it's 100%\\x");
        assert_eq!(word(path).ok().unwrap(), r"'/a b/it'\''s 100%%\x'");
        assert!(word(Path::new("a\nb")).is_err());
    }

    #[test]
    fn older_targets_are_reset_before_the_wanted_one() {
        let facts = PostgresFacts::default();
        let settings = |time: Option<&str>| {
            let until = UntilOptions {
                until_time: time.map(str::to_owned),
                until_lsn: None,
                until_end: time.is_none(),
            };
            let key = KeyOptions::default();
            let made = until.settings(Some(&facts), Path::new("/m"), &key, Path::new("/k"));
            made.ok().flatten().unwrap()
        };
        let end = settings(None);
        for name in ["", "_name", "_time", "_xid", "_lsn"] {
            assert!(
                end.contains(&format!("\nrecovery_target{name} = ''\n")),
                "{end}"
            );
        }
        let time = settings(Some("2026-11-22 09:30:00+00"));
        let wanted = "recovery_target_time = '2026-11-22 09:30:00+00'\n";
        assert_eq!(time.strip_suffix(wanted), Some(end.as_str()));
    }

    #[test]
    fn a_target_before_the_backups_end_is_refused() {
        let facts = PostgresFacts {
            end_lsn: String::from("1/20"),
            ..PostgresFacts::default()
        };
        let until = |text: &str| UntilOptions {
            until_time: None,
            until_lsn: Some(text.parse().unwrap()),
            until_end: false,
        };
        let settings = |until: UntilOptions| {
            let key = KeyOptions::default();
            until.settings(Some(&facts), Path::new("/m"), &key, Path::new("/k"))
        };
        assert!(settings(until("1/20")).unwrap_or_default().is_some());
        assert!(settings(until("1/1F")).is_err());
    }
}
