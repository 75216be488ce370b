//! `strongroom backup wal-push` and `wal-fetch`: what `archive_command` and `restore_command` call.
//!
//! Invariants: `wal-push` succeeds only when the file is durable in the archive; `wal-fetch` ends with 1 only when there is no
//! such file: PostgreSQL ends recovery then. Every other failure, refused arguments and a panic too, ends above 125, which
//! stops the server (`RestoreArchivedFile`, src/backend/access/transam/xlogarchive.c).
//!
//! Must not: ask for anything: nobody is there to answer.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use strongroom_backup::{Partial, begins_segment, wal_fetch, wal_partial, wal_push};
use strongroom_format::code;

use super::create::set_options;
use super::history::{self, Entry, Told};
use super::metrics::MetricsOptions;
use super::sealing::SealingOptions;
use super::{store, with_key};
use crate::args::KeyOptions;
use crate::failure::Failure;
use crate::help::tail;
use crate::{Context, keyring, paths};

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
/// Ends with 1 when the archive has no such file and no later segment of its timeline, and with 192 added to the usual code in any other case of failure.
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
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        // In no catalogue: this runs for every segment.
        let told = Told {
            metrics: self.metrics.file(),
            ..Told::default()
        };
        history::told(context, "wal-push", &told, |context, entry| {
            self.push(context, entry)
        })
    }

    fn push(self, context: &mut Context, entry: &mut Entry) -> Result<(), Failure> {
        let store = store(&self.to)?;
        entry.on(store.as_ref());
        let keyring = keyring::path(context);
        let key = self.sealing.key("backup wal-push")?;
        let name = self.file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failure::usage("a file without a name"))?;
        let (file, length) = paths::open_to_read(&self.file)?;
        if length > FILE_MAX {
            let detail = format!("{}: longer than a segment can be", self.file.display());
            return Err(Failure::new(&code::BACKUP_SOURCE, detail));
        }
        let mut content = Vec::new();
        let read = file.take(FILE_MAX).read_to_end(&mut content);
        read.map_err(|error| Failure::io(&self.file, &error))?;
        let openers = self.sealing.openers(key.as_ref(), &keyring)?;
        let mut options = set_options(openers.iter().collect());
        options.cipher = self.sealing.cipher(&self.to)?;
        options.compression = self.sealing.compression;
        options.threads = 1;
        // Quiet: this runs for every segment.
        wal_push(store.as_ref(), name, &content, &options)?;
        entry.with_archived(content.len() as u64);
        Ok(())
    }
}

impl WalFetchArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keyring = keyring::path(context);
        let local = self.file.with_file_name(&self.name);
        let name = self.name.clone();
        let fetched = self.fetch(&keyring);
        fetched.map_err(|failure| {
            // A set may bring a segment that was never archived: PostgreSQL reads it from where it is, when the archive has none.
            let bridged = failure.code() == &code::WAL_GAP && is_there(&local, &name);
            if failure.code() == &code::WAL_ABSENT || bridged {
                failure.exiting(ABSENT)
            } else {
                stopping(failure)
            }
        })
    }

    fn fetch(self, keyring: &Path) -> Result<(), Failure> {
        let store = store(&self.from)?;
        let content = with_key(self.key.clone(), keyring, |key| {
            wal_fetch(store.as_ref(), &self.name, key)
        });
        match content {
            Ok(content) => write(&self.file, &content),
            Err(absent) if absent.code() == &code::WAL_ABSENT => {
                let partial = with_key(self.key, keyring, |key| {
                    wal_partial(store.as_ref(), &self.name, key)
                })?;
                let local = self.file.with_file_name(&self.name);
                let partial = partial.filter(|partial| !has_all(&local, &self.name, partial));
                let partial = partial.ok_or(absent)?;
                write(&self.file, &partial.content)
            }
            Err(other) => Err(other),
        }
    }
}

/// Whether the server has the segment itself, and at least what was received of it: a set brings the log that it needs, which may be
/// more than a receiver had got.
fn has_all(local: &Path, name: &str, partial: &Partial) -> bool {
    let mut content = Vec::new();
    let read = File::open(local).and_then(|file| file.take(FILE_MAX).read_to_end(&mut content));
    let received = partial.content.get(..partial.received);
    read.is_ok()
        && begins_segment(name, &content)
        && received.is_some_and(|received| content.starts_with(received))
}

/// Whether the command line is one of `wal-fetch`, also where it cannot be parsed. May say so of another one that has the word
/// after `backup`, which then ends with another code when it is refused.
pub(crate) fn is_wal_fetch(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1);
    words.any(|word| word == "backup") && words.any(|word| word == "wal-fetch")
}

/// The failure with the exit code that stops a server.
pub(crate) fn stopping(failure: Failure) -> Failure {
    let exit = STOP + failure.code().class.exit_code().min(63);
    failure.exiting(exit)
}

/// Runs the command; a panic, which would end with 101, ends with 255.
pub(crate) fn never_absent(command: impl FnOnce() -> ExitCode) -> ExitCode {
    // Nothing of the command is used after it.
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| ExitCode::from(u8::MAX))
}

/// Whether the server has the segment itself.
fn is_there(local: &Path, name: &str) -> bool {
    let mut start = Vec::new();
    let read = File::open(local).and_then(|file| file.take(64).read_to_end(&mut start));
    read.is_ok() && begins_segment(name, &start)
}

fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    strongroom_keyring::durable::replace(path, content, 0o600)
        .map_err(|error| Failure::io(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_not_the_end_of_the_archive() {
        let ended = never_absent(|| {
            let nothing: [u8; 0] = [];
            let at = std::hint::black_box(1);
            #[expect(clippy::indexing_slicing, reason = "it is to panic")]
            ExitCode::from(nothing[at])
        });
        assert_eq!(ended, ExitCode::from(255));
        assert_eq!(never_absent(|| ExitCode::from(1)), ExitCode::from(1));
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
