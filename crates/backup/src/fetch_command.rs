//! The command by which a restored PostgreSQL cluster fetches archived log, and the settings of its
//! recovery up to a target.
//!
//! Must not: put a secret into a command or a setting.

use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_keyring::KeySource;
use strongroom_postgres_replication::Lsn;

use crate::head::PostgresFacts;
use crate::medium_name::is_url;
use crate::recovery::{RecoveryTarget, recovery_settings};
use crate::{Error, Result};

/// What the command has to name.
#[derive(Clone, Copy)]
pub struct FetchCommand<'a> {
    /// The program that has `backup wal-fetch`.
    pub program: &'a Path,
    /// The keyring.
    pub keyring: &'a Path,
    /// The medium, as [`is_url`] tells it.
    pub medium: &'a Path,
    /// The source of the key.
    pub key: Option<&'a KeySource>,
}

impl FetchCommand<'_> {
    /// Returns the line for `restore_command`, quoted for the shell, with absolute paths.
    ///
    /// # Errors
    /// SR-1001 for a key that is typed, or a path that is not UTF-8 or has control characters;
    /// SR-5001 when a path cannot be made absolute.
    pub fn line(&self) -> Result<String> {
        let mut words = vec![
            word(self.program)?,
            String::from("--keyring"),
            word(&absolute(self.keyring)?)?,
            String::from("backup wal-fetch '%f' '%p' --from"),
            word(&absolute_medium(self.medium)?)?,
        ];
        let option = match self.key {
            None => None,
            Some(KeySource::KeyId { id }) => Some(("--key-id", word(Path::new(id))?)),
            Some(KeySource::Env(variable)) => Some(("--key-env", word(Path::new(variable))?)),
            Some(KeySource::File(file)) => Some(("--key-file", word(&absolute(file)?)?)),
            Some(KeySource::Command(line)) => Some(("--key-command", word(Path::new(line))?)),
            Some(KeySource::Ask | KeySource::Given(_)) => {
                let text = "recovery cannot ask for a passphrase: name a key by another option";
                return Err(Error::new(&code::USAGE, text));
            }
        };
        if let Some((name, value)) = option {
            words.extend([name.to_owned(), value]);
        }
        Ok(words.join(" "))
    }
}

/// Returns the settings by which a restored cluster recovers to `target`. `facts` are those of its
/// set, `None` for a set of something else.
///
/// # Errors
/// SR-1001 without `facts`, for a key that is typed, and for a path that cannot be written into the
/// command; SR-7122 when the target is a position before the end of the backup; SR-5001 when a path
/// cannot be made absolute.
pub fn settings_of_recovery(
    target: RecoveryTarget,
    facts: Option<&PostgresFacts>,
    command: &FetchCommand<'_>,
) -> Result<String> {
    let text = "--until-... is for sets of PostgreSQL clusters";
    let facts = facts.ok_or_else(|| Error::new(&code::USAGE, text))?;
    let end: Option<Lsn> = facts.end_lsn.parse().ok();
    if let RecoveryTarget::Lsn(until) = &target
        && end.is_none_or(|end| *until < end)
    {
        return Err(Error::new(&code::UNTIL_LATER, facts.end_lsn.as_str()));
    }
    Ok(recovery_settings(&command.line()?, target))
}

/// Makes a path absolute. SR-5001 without a working directory.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::on_path(path, error))
}

/// Returns the medium's path made absolute; a URL is returned unchanged. SR-5001 without a working
/// directory.
fn absolute_medium(medium: &Path) -> Result<PathBuf> {
    if is_url(medium) {
        return Ok(medium.to_path_buf());
    }
    absolute(medium)
}

/// Quotes a path as one word of the shell, with `%` doubled, because PostgreSQL replaces it before
/// the shell reads the line. SR-1001 when it is not UTF-8 or has control characters.
fn word(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .filter(|text| !text.chars().any(char::is_control));
    let refused = || Error::new(&code::USAGE, "a path that a PostgreSQL setting cannot hold");
    let text = text.ok_or_else(refused)?;
    Ok(format!(
        "'{}'",
        text.replace('\'', r"'\''").replace('%', "%%")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(target: RecoveryTarget, facts: &PostgresFacts) -> Result<String> {
        let command = FetchCommand {
            program: Path::new("/p"),
            keyring: Path::new("/k"),
            medium: Path::new("/m"),
            key: None,
        };
        settings_of_recovery(target, Some(facts), &command)
    }

    #[test]
    fn words_are_quoted_for_the_shell_and_for_postgresql() {
        let path = Path::new("/a b/it's 100%\\x");
        assert_eq!(word(path).unwrap(), r"'/a b/it'\''s 100%%\x'");
        assert!(word(Path::new("a\nb")).is_err());
    }

    #[test]
    fn a_key_that_is_typed_is_in_no_command() {
        let line = |key: KeySource| {
            let command = FetchCommand {
                program: Path::new("/p"),
                keyring: Path::new("/k"),
                medium: Path::new("s3://b/p"),
                key: Some(&key),
            };
            command.line()
        };
        let id = String::from("a");
        assert_eq!(
            line(KeySource::KeyId { id }).unwrap(),
            "'/p' --keyring '/k' backup wal-fetch '%f' '%p' --from 's3://b/p' --key-id 'a'"
        );
        assert_eq!(line(KeySource::Ask).unwrap_err().code(), &code::USAGE);
    }

    #[test]
    fn older_targets_are_reset_before_the_wanted_one() {
        let facts = PostgresFacts::default();
        let end = settings(RecoveryTarget::End, &facts).unwrap();
        for name in ["", "_name", "_time", "_xid", "_lsn"] {
            assert!(
                end.contains(&format!("\nrecovery_target{name} = ''\n")),
                "{end}"
            );
        }
        let moment = String::from("2026-11-22 09:30:00+00");
        let time = settings(RecoveryTarget::Time(moment), &facts).unwrap();
        let wanted = "recovery_target_time = '2026-11-22 09:30:00+00'\n";
        assert_eq!(time.strip_suffix(wanted), Some(end.as_str()));
    }

    #[test]
    fn a_target_before_the_backups_end_is_refused() {
        let facts = PostgresFacts {
            end_lsn: String::from("1/20"),
            ..PostgresFacts::default()
        };
        let until = |text: &str| settings(RecoveryTarget::Lsn(text.parse().unwrap()), &facts);
        assert!(until("1/20").is_ok());
        assert_eq!(until("1/1F").unwrap_err().code(), &code::UNTIL_LATER);
    }
}
