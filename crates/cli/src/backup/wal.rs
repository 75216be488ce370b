//! `strongroom backup wal-push` and `wal-fetch`: the programs for `archive_command` and
//! `restore_command`.
//!
//! Invariants: `wal-push` succeeds only when the file is durable in the archive. `wal-fetch` ends
//! with 1 only when the archive has no such file, whereupon PostgreSQL ends recovery. Every other
//! failure, also refused arguments and a panic, ends with a code above 125, which stops the server
//! (`RestoreArchivedFile`, src/backend/access/transam/xlogarchive.c).
//!
//! Must not: ask for anything, because nobody is there to answer.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use strongroom_backup::history::RunRecord;
use strongroom_backup::{Error, LogSealing, ServerFile, read_to_archive, wal_push};
use strongroom_format::code;
use strongroom_postgres_instance::sealed_log::SealedLog;

use super::create::set_options;
use super::history::{self, Outlets};
use super::medium_name::store;
use super::metrics::MetricsOptions;
use super::sealing::SealingOptions;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;

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

    /// Archives the file under its name, durably; prints nothing. Archiving the same content again
    /// succeeds. SR-2041 without a key, SR-7120 if the archive has another content of that name,
    /// SR-7101, SR-7104 or SR-7105 for the medium; the errors of [`read_to_archive`],
    /// [`SealedLog::around`] and the keys; SR-5001 when the system reports an error.
    fn push(self, context: &mut Context, record: &mut RunRecord) -> Result<(), Failure> {
        let store = store(&self.to)?;
        record.set_medium(store.as_ref());
        let keyring = context.keyring_path();
        let key = self.sealing.key("backup wal-push")?;
        let name = self.file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failure::usage("a file without a name"))?;
        // The server runs this without the shield, so files of a sealed instance are sealed.
        let sealing = || OfInstance::around(&self.file, context, false);
        let content = read_to_archive(&self.file, name, sealing)?;
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
        let sealing = OfInstance::around(&self.file, context, true);
        let local = ServerFile {
            path: self.file.with_file_name(&self.name),
            name: self.name,
            sealing: sealing.map_err(|error| with_stopping_code(error.into()))?,
        };
        let (key, keyring) = (keys::source(self.key), context.keyring_path());
        let fetched = store(&self.from).and_then(|store| {
            Ok(local.fetch(store.as_ref(), key.as_ref(), &keyring, &self.file)?)
        });
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
}

/// The sealing of a sealed instance, for the library of backups.
struct OfInstance(SealedLog);

impl OfInstance {
    /// Opens the sealed instance that a file of the log belongs to; `None` if there is none, or if
    /// nothing names a key and `optional` allows that. Errors as [`SealedLog::around`], such as
    /// SR-2001 without a key.
    fn around(file: &Path, context: &Context, optional: bool) -> Result<Option<Self>, Error> {
        let found = SealedLog::around(file, context.keyring.clone(), optional)?;
        Ok(found.map(Self))
    }
}

impl LogSealing for OfInstance {
    /// Returns at most `most` bytes of a file of the log, decrypted, or as they are if a file of
    /// this name is not sealed (a timeline's history). SR-1006 if there is no file, SR-5001 when
    /// the system reports an error.
    fn open(&self, path: &Path, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        self.0.open(path, name, most)
    }

    /// Returns `content` sealed as the file `name` of the instance's log, or unchanged if a file of
    /// this name is not sealed (a timeline's history). Writes no file. SR-5001 if the system has no
    /// memory for the sealing, or reports another error.
    fn seal(&self, name: &str, content: &[u8]) -> Result<Vec<u8>, Error> {
        self.0.seal(name, content)
    }

    /// Checks that a segment is of the instance's cluster: SR-7173 if it is not, otherwise as
    /// [`SealedLog::check_system`].
    fn check_system(&self, name: &str, system: u64) -> Result<(), Error> {
        self.0.check_system(name, system)
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
