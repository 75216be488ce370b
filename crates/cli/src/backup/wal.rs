//! `strongroom backup wal-push` and `wal-fetch`: the programs for `archive_command` and
//! `restore_command`.
//!
//! Invariants: `wal-push` succeeds only when the file is durable in the archive. `wal-fetch` ends
//! with 1 only when the archive has no such file, whereupon PostgreSQL ends recovery. Every other
//! failure, also refused arguments and a panic, ends with a code above 125, which stops the server
//! (`RestoreArchivedFile`, src/backend/access/transam/xlogarchive.c). The archive holds files in
//! PostgreSQL's own form, whose content agrees with their names. A file for a sealed instance is
//! sealed for it if, and only if, the archive was authenticated.
//!
//! Must not: ask for anything, because nobody is there to answer.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use strongroom_backup::history::RunRecord;
use strongroom_backup::{
    Partial, begins_segment, check_archivable, wal_fetch, wal_partial, wal_push,
};
use strongroom_format::code;
use strongroom_keyring::paths;
use strongroom_postgres_instance::sealed_log::SealedLog;

use super::create::set_options;
use super::history::{self, Outlets};
use super::medium_name::store;
use super::metrics::MetricsOptions;
use super::sealing::SealingOptions;
use super::set_keys::with_key;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Longest file that PostgreSQL archives, in bytes.
const FILE_MAX: u64 = 1 << 30;
/// The exit code of `wal-fetch` when there is no such file.
const ABSENT: u8 = 1;
/// Added to the exit code of any other failure.
const STOP: u8 = 192;

/// Archive one file of a PostgreSQL server's log: for `archive_command`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup wal-push pg_wal/000000010000000000000001 --to /mnt/backups --key-id backups\n  archive_command = 'strongroom backup wal-push \"%p\" --to /mnt/backups --key-id backups'"))]
pub(super) struct WalPushArgs {
    /// The file; it is archived under its name
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(long, value_name = "MEDIUM")]
    to: PathBuf,
    #[command(flatten)]
    sealing: SealingOptions,
    #[command(flatten)]
    metrics: MetricsOptions,
}

/// Bring one file of a log archive back: for `restore_command`.
///
/// Ends with 1 when the archive has no such file and no later segment of its timeline, and with 192
/// added to the usual code in any other case of failure.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup wal-fetch 000000010000000000000001 pg_wal/RECOVERYXLOG --from /mnt/backups --key-id backups"))]
pub(super) struct WalFetchArgs {
    /// The file's name in the archive: %f
    #[arg(value_name = "NAME")]
    name: String,
    /// Where to write it: %p
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(long, value_name = "MEDIUM")]
    from: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
}

impl WalPushArgs {
    /// Archives the file as [`Self::push`] and writes the metrics. The run is not recorded in the
    /// catalogue, because there is one for every segment.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        // In no catalogue: this runs for every segment.
        let outlets = Outlets {
            metrics: self.metrics.file(),
            ..Outlets::default()
        };
        history::run_and_note(context, "wal-push", &outlets, |context, record| {
            self.push(context, record)
        })
    }

    /// Reads the file that the server wrote, decrypted if it belongs to a sealed instance, and
    /// checks that it matches its `name`. SR-1006 or SR-1007 if there is no such file, SR-7114 if
    /// it is longer than 1 GiB, SR-7173 if it does not match or is another cluster's; for a sealed
    /// instance SR-2001 without a key, SR-7003 during a conversion, and SR-7015 for root; SR-5001.
    fn content(&self, name: &str, context: &Context) -> Result<Vec<u8>, Failure> {
        let (file, length) = paths::open_to_read(&self.file)?;
        if length > FILE_MAX {
            let detail = format!("{}: longer than a segment can be", self.file.display());
            return Err(Failure::new(&code::BACKUP_SOURCE, detail));
        }
        // The server runs this without the shield, so files of a sealed instance are sealed.
        let sealed = SealedLog::around(&self.file, context.keyring.clone(), false)?;
        let content = if let Some(sealed) = &sealed {
            sealed.open(&self.file, name, FILE_MAX)?
        } else {
            let mut content = Vec::new();
            let read = file.take(FILE_MAX).read_to_end(&mut content);
            read.map_err(|error| Failure::io(&self.file, &error))?;
            content
        };
        let system = check_archivable(name, &content)?;
        if let (Some(sealed), Some(system)) = (&sealed, system) {
            sealed.check_system(name, system)?;
        }
        Ok(content)
    }

    /// Archives the file under its name, durably; prints nothing. Archiving the same content again
    /// succeeds. SR-2041 without a key, SR-7120 if the archive has another content of that name,
    /// SR-7101, SR-7104 or SR-7105 for the medium; the errors of [`Self::content`] and the keys;
    /// SR-5001.
    fn push(self, context: &mut Context, record: &mut RunRecord) -> Result<(), Failure> {
        let store = store(&self.to)?;
        record.set_medium(store.as_ref());
        let keyring = context.keyring_path();
        let key = self.sealing.key("backup wal-push")?;
        let name = self.file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failure::usage("a file without a name"))?;
        let content = self.content(name, context)?;
        let recipients = self.sealing.recipients(key.as_ref(), &keyring)?;
        let mut options = set_options(recipients);
        options.cipher = self.sealing.cipher(&self.to)?;
        options.compression = self.sealing.compression;
        options.threads = 1;
        // Quiet: this runs for every segment.
        wal_push(store.as_ref(), name, &content, &options)?;
        record.set_archived_bytes(content.len() as u64);
        Ok(())
    }
}

impl WalFetchArgs {
    /// Fetches the file from the archive and writes it. An error ends the command with 1 if the
    /// archive has no such file, so that PostgreSQL ends recovery, or if only later segments exist
    /// and the server has this one itself; any other error with 192 added to its exit code, which
    /// stops the server.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        // A sealed instance whose key does not reach this command gets what it got before: its
        // shield decides.
        let sealed = SealedLog::around(&self.file, context.keyring.clone(), true);
        let local = ServerFile {
            path: self.file.with_file_name(&self.name),
            name: self.name.clone(),
            sealed: sealed.map_err(|error| with_stopping_code(error.into()))?,
        };
        let keyring = context.keyring_path();
        let fetched = self.fetch(&keyring, &local);
        fetched.map_err(|failure| {
            // A set may bring a segment that was never archived: PostgreSQL reads it from where it
            // is, when the archive has none.
            let bridged = failure.code() == &code::WAL_GAP && local.has_segment();
            if failure.code() == &code::WAL_ABSENT || bridged {
                failure.with_exit_code(ABSENT)
            } else {
                with_stopping_code(failure)
            }
        })
    }

    /// Fetches the file from the archive, or as much of a segment as was received unless the server
    /// has as much, seals it for a sealed instance, and writes it with mode 0600 in place of any
    /// former file.
    /// Errors: SR-7121 if the archive has no such file, SR-7130 if it has only later ones, SR-7101
    /// without a medium, SR-7106 and SR-7109 to SR-7112 for damage, SR-7173 for another cluster;
    /// the errors of the key; SR-5001.
    fn fetch(self, keyring: &Path, local: &ServerFile) -> Result<(), Failure> {
        let store = store(&self.from)?;
        let mut authentic = false;
        let content = with_key(self.key.clone(), keyring, |key| {
            authentic = key.is_some();
            wal_fetch(store.as_ref(), &self.name, key)
        });
        let content = match content {
            Ok(content) => content,
            Err(absent) if absent.code() == &code::WAL_ABSENT => {
                let partial = with_key(self.key, keyring, |key| {
                    authentic = key.is_some();
                    wal_partial(store.as_ref(), &self.name, key)
                })?;
                let partial = partial.filter(|partial| !local.has_all(partial));
                partial.ok_or(absent)?.content
            }
            Err(other) => return Err(other),
        };
        write(&self.file, &local.seal_if_needed(content, authentic)?)
    }
}

/// The file as the server has it, or will have it once it is brought back.
struct ServerFile {
    path: PathBuf,
    name: String,
    sealed: Option<SealedLog>,
}

impl ServerFile {
    /// Returns the content to write. For a sealed instance, a segment that the archive has
    /// authenticated is sealed; everything else is returned unchanged, and the shield refuses an
    /// unsealed segment unless it is configured otherwise. SR-7173 if it belongs to another
    /// cluster.
    fn seal_if_needed(&self, content: Vec<u8>, authentic: bool) -> Result<Vec<u8>, Failure> {
        match &self.sealed {
            Some(sealed) if authentic && begins_segment(&self.name, &content) => {
                if let Some(system) = check_archivable(&self.name, &content)? {
                    sealed.check_system(&self.name, system)?;
                }
                Ok(sealed.seal(&self.name, &content)?)
            }
            _ => Ok(content),
        }
    }

    /// Reads at most `most` bytes of the server's own file, decrypted if the instance is sealed.
    /// `None` if it cannot be read.
    fn content(&self, most: u64) -> Option<Vec<u8>> {
        if let Some(sealed) = &self.sealed {
            return sealed.open(&self.path, &self.name, most).ok();
        }
        let mut content = Vec::new();
        let file = File::open(&self.path).ok()?;
        file.take(most).read_to_end(&mut content).ok()?;
        Some(content)
    }

    /// Returns whether the server's own file begins this segment, and is not an older one that was
    /// renamed.
    fn has_segment(&self) -> bool {
        let start = self.content(64);
        start.is_some_and(|start| begins_segment(&self.name, &start))
    }

    /// Returns whether the server's own file begins with everything that was received of this
    /// segment. A set brings the log that it needs, which may be more than was received.
    fn has_all(&self, partial: &Partial) -> bool {
        let received = partial.content.get(..partial.received);
        self.content(FILE_MAX).is_some_and(|content| {
            begins_segment(&self.name, &content)
                && received.is_some_and(|received| content.starts_with(received))
        })
    }
}

/// Returns whether the command line is one of `backup wal-fetch`, even if it cannot be parsed. May
/// return true for another one that has this word after `backup`; if it is refused, it then ends
/// with another exit code.
pub(crate) fn is_wal_fetch(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1);
    words.any(|word| word == "backup") && words.any(|word| word == "wal-fetch")
}

/// Gives the failure an exit code above 125, which makes PostgreSQL stop instead of ending
/// recovery.
pub(crate) fn with_stopping_code(failure: Failure) -> Failure {
    let exit = STOP + failure.code().class.exit_code().min(63);
    failure.with_exit_code(exit)
}

/// Calls `command` and returns its exit code. A panic, which would end the process with 101,
/// results in 255, so that PostgreSQL does not take it for a missing file.
pub(crate) fn run_never_absent(command: impl FnOnce() -> ExitCode) -> ExitCode {
    // Nothing of the command is used after it.
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| ExitCode::from(u8::MAX))
}

/// Writes the file with mode 0600, durably, in place of any former one. SR-5001.
fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    strongroom_keyring::durable::replace(path, content, 0o600)
        .map_err(|error| Failure::io(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_not_the_end_of_the_archive() {
        let ended = run_never_absent(|| {
            let nothing: [u8; 0] = [];
            let at = std::hint::black_box(1);
            #[expect(clippy::indexing_slicing, reason = "it is to panic")]
            ExitCode::from(nothing[at])
        });
        assert_eq!(ended, ExitCode::from(255));
        assert_eq!(run_never_absent(|| ExitCode::from(1)), ExitCode::from(1));
    }

    #[test]
    fn the_command_is_known_by_its_words() {
        let told =
            |line: &str| is_wal_fetch(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(told("strongroom backup wal-fetch"));
        assert!(told(
            "strongroom --keyring k backup wal-fetch a b --from c --colour"
        ));
        assert!(!told("strongroom backup wal-push wal"));
        assert!(!told("strongroom wal-fetch backup"));
        assert!(!told("wal-fetch key create backup"));
    }
}
