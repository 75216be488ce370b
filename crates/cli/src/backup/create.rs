//! `strongroom backup create SOURCE --to MEDIUM`: adds a set to a medium.
//!
//! Must not: write an unencrypted set unless the user asks for one with `--no-encryption`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use strongroom_backup::history::{RunRecord, absolute_name};
use strongroom_backup::{
    CreateOptions, Created, DirectorySource, LocalSource, Mode, PostgresSource, Source,
    SqliteSource, Store, is_connection, is_url, list, open_base, refuse_within, with_key,
};
use strongroom_crypto::SigningKey;
use strongroom_format::{code, hex};
use strongroom_keyring::{KeySource, Keyring, Recipient, SourceContext};
use strongroom_postgres_replication::{Config, SslMode};

use super::history::{self, HistoryOptions, Outlets};
use super::medium_name::store;
use super::metrics::MetricsOptions;
use super::progress::{ProgressOptions, ProgressReporter};
use super::sealing::SealingOptions;
use super::signature::SignKeyOption;
use super::threads::{thread_count, threads};
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::SourceKeyOptions;
use crate::{keys, sealed_sqlite};

/// Back up a directory, a SQLite database, or a PostgreSQL server.
///
/// The set is sealed with the key, so that it can be restored with that key only. It is added to
/// the medium; sets that are there stay.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup create /srv/files --to /mnt/backups --key-id backups"))]
pub(super) struct CreateArgs {
    /// A directory, a SQLite database, or a connection string of a PostgreSQL server:
    /// postgresql://... or host=...
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// The medium: a directory, which is made if it is absent, or the URL of a place in an object
    /// store (s3:, gs:, az:)
    #[arg(long, value_name = "MEDIUM")]
    to: PathBuf,
    /// A further medium that gets the same set; may be given three times
    #[arg(long, value_name = "MEDIUM")]
    mirror: Vec<PathBuf>,
    #[command(flatten)]
    sealing: SealingOptions,
    #[command(flatten)]
    sign_key: SignKeyOption,
    #[command(flatten)]
    source_key: SourceKeyOptions,
    /// A name for the set
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = name)]
    name: String,
    /// Add the set to those that are there: the default
    #[arg(long, group = "mode")]
    append: bool,
    /// Remove the sets that are there once the new one is whole
    #[arg(long, group = "mode")]
    init: bool,
    /// As --init, and begin the medium anew: its protection and its stripes may change
    #[arg(long, group = "mode")]
    format: bool,
    /// Remove sets with --init or --format even if they have not expired
    #[arg(long)]
    skip: bool,
    /// The set is not to be removed by --init or --format for so many days
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    retain_days: Option<u32>,
    /// Files that the set is spread over, 1 to 64 [default: those of the medium, 1 on a new one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    stripes: Option<u16>,
    /// Of a PostgreSQL server, 17 or later: only what changed since the newest set of the same
    /// cluster
    #[arg(long, conflicts_with_all = ["init", "format"])]
    incremental: bool,
    /// With --incremental: the position of the set to build on
    #[arg(long, value_name = "N", requires = "incremental", value_parser = clap::value_parser!(u32).range(1..))]
    base: Option<u32>,
    /// Of a PostgreSQL server: let its checkpoint take its usual time instead of hurrying
    #[arg(long)]
    spread_checkpoint: bool,
    /// Threads that compress and seal, 1 to 64 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    progress: ProgressOptions,
    #[command(flatten)]
    metrics: MetricsOptions,
    #[command(flatten)]
    history: HistoryOptions,
}

#[derive(Serialize)]
struct Report {
    position: u32,
    #[serde(flatten)]
    description: strongroom_backup::Description,
    left_out: Vec<String>,
    /// The id of the key that has signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mirrors: Vec<MirrorReport>,
}

#[derive(Serialize)]
struct MirrorReport {
    path: String,
    medium_id: String,
    position: u32,
}

/// Mirrors of one set.
const MIRRORS_MAX: usize = 3;

impl CreateArgs {
    /// Makes a set as [`Self::make`] and records the run in the catalogue and the metrics; that
    /// this failed is a warning.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let outlets = Outlets {
            history: Some(self.history.clone()),
            key_id: self.sealing.key.key_id.clone(),
            metrics: self.metrics.file(),
        };
        history::run_and_note(context, "create", &outlets, |context, record| {
            self.make(context, record)
        })
    }

    /// Backs the source up to the medium and its mirrors, with progress, and prints the set. What
    /// the run has done is put into `record`. Warns with SR-7118 of what was left out, and with
    /// SR-7119, SR-7124 or SR-2022 of a set that is not sealed or whose key may be lost. Errors:
    /// SR-1001 for options, SR-2041 without a key, SR-7114 or SR-1006 for the source, SR-7103 to
    /// SR-7105, SR-7117, SR-7123 and SR-7131 for the medium, SR-7145 if not all mirrors have the
    /// set; the errors of the keys; SR-5001 when the system reports an error.
    fn make(self, context: &mut Context, record: &mut RunRecord) -> Result<(), Failure> {
        if self.mirror.len() > MIRRORS_MAX {
            return Err(Failure::usage("--mirror is given at most three times"));
        }
        let medium = store(&self.to)?;
        // First of all: a failure from here on is noted for this medium.
        record.set_medium(medium.as_ref());
        let sign_key = self.sign_key.key()?;
        let algorithm = self.sealing.cipher(&self.to)?;
        let mirrors = self.mirror.iter().map(|place| store(place));
        let mirrors = mirrors.collect::<Result<Vec<_>, Failure>>()?;
        let mirrors = mirrors.iter().map(AsRef::as_ref);
        let stores: Vec<_> = std::iter::once(medium.as_ref()).chain(mirrors).collect();
        let mut source = self.source(context, sign_key.as_ref())?;
        record.set_source(source.shown());
        let key = self.sealing.key("backup create")?;
        let keyring_path = context.keyring_path();
        let recipients = self.sealing.recipients(key.as_ref(), &keyring_path)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        let mut options = set_options(recipients);
        options.cipher = algorithm;
        options.compression = self.sealing.compression;
        options.mode = self.mode();
        options.stripes = self.stripes;
        options.threads = threads(self.threads);
        options.name.clone_from(&self.name);
        options.expires_unix_s = self.retain_days.map(|days| now + u64::from(days) * 86_400);
        options.skip_expiry = self.skip;
        options.sign_key = sign_key.as_ref();
        let mut progress = ProgressReporter::new("create", self.progress);
        if let Some(total) = progress.total() {
            source.note_total(total);
        }
        let created =
            strongroom_backup::create_on(&stores, source.as_mut(), &options, &mut |bytes| {
                progress.update(bytes);
            })?;
        if let Some((first, mirrored)) = created.split_first() {
            record.set_backup_set(medium.as_ref(), first.position);
            record.set_detail(mirrors_text(stores.iter().skip(1).copied().zip(mirrored)));
        }
        record.mark_done();
        progress.finish();
        self.report(context, created, sign_key.as_ref())?;
        match key {
            None if options.recipients.is_empty() => {
                warn(&code::PLAIN_SET, &self.to.display().to_string());
            }
            // A certificate's warning has been given.
            _ if self.sealing.has_certificates() => {}
            None => {}
            Some(key) => warn_of_loss(&key, &keyring_path),
        }
        Ok(())
    }

    /// Returns the source that was named: a PostgreSQL server, a directory, or a SQLite database. A
    /// key for a sealed database is asked for here. With `--incremental` also opens the base.
    /// Errors: SR-1006 if it does not exist, SR-7114 if it is of no such kind, SR-1001 for
    /// `--incremental` without a server, SR-1003 for a medium within the directory, SR-2290 for a
    /// sealed database without a key; SR-7160 without a base for `--incremental`, and the errors of
    /// opening that.
    fn source(
        &self,
        context: &Context,
        sign_key: Option<&SigningKey>,
    ) -> Result<Box<dyn Source>, Failure> {
        let text = self.source.to_str();
        if let Some(text) = text.filter(|text| is_connection(text)) {
            let mut source = server(text, &self.name, self.spread_checkpoint)?;
            if self.incremental {
                self.build_on_base(context, &mut source, sign_key)?;
            }
            return Ok(Box::new(source));
        }
        if self.incremental {
            let text = "--incremental is for PostgreSQL servers";
            return Err(Failure::usage(text));
        }
        let path = Path::new(&self.source);
        let LocalSource::Database { sealed } = LocalSource::at(path)? else {
            for medium in std::iter::once(&self.to).chain(&self.mirror) {
                if !is_url(medium) {
                    refuse_within(path, medium)?;
                }
            }
            return Ok(Box::new(DirectorySource::new(path)));
        };
        let about = SourceContext {
            prompt: format!("Passphrase of {}", path.display()),
            ..SourceContext::default()
        };
        // Asked for once, used more than once.
        let key = keys::source(self.source_key.clone().into());
        let key = key.map(|key| key.settled(&about)).transpose()?;
        if sealed && key.is_none() {
            let shown = path.display().to_string();
            return Err(Failure::new(&code::SOURCE_KEY, shown));
        }
        let options = sealed_sqlite::options(key, context);
        Ok(Box::new(SqliteSource::new(path, options)))
    }

    /// Finds the set that the incremental one builds on, opens it with the key, because its
    /// manifest is sealed too, and notes which one it is. With `sign_key` the base must be signed
    /// by the same key; otherwise a later check of the signer would refuse the chain.
    /// Errors: SR-7160 if there is no such set, or a mirror lacks it; SR-7115 if the server
    /// refuses; the errors of opening the set and its signature.
    fn build_on_base(
        &self,
        context: &Context,
        source: &mut PostgresSource,
        sign_key: Option<&SigningKey>,
    ) -> Result<(), Failure> {
        let medium = store(&self.to)?;
        let keyring = context.keyring_path();
        let system = source.identify()?.to_owned();
        let signers = sign_key.map_or(&[][..], |key| std::slice::from_ref(key.public()));
        let base = with_key(
            keys::source(self.sealing.key.clone()).as_ref(),
            &keyring,
            |key| open_base(medium.as_ref(), self.base, &system, key, signers),
        )?;
        for mirror in &self.mirror {
            let sets = list(store(mirror)?.as_ref())?.sets;
            let mut sets = sets.iter().map(|set| set.description.set_id.as_str());
            if !sets.any(|set_id| set_id == base.set_id()) {
                let detail = format!("the mirror {} does not have it", mirror.display());
                return Err(Failure::new(&code::INCREMENTAL_BASE, detail));
            }
        }
        note(&format!("building on set {}", base.position()));
        source.build_on(base);
        Ok(())
    }

    /// Returns whether older sets stay, or are removed, also with the medium's protection.
    fn mode(&self) -> Mode {
        match (self.init, self.format) {
            (true, _) => Mode::Init,
            (_, true) => Mode::Format,
            _ => Mode::Append,
        }
    }

    /// Prints the first set, its signer and its mirrors, as text or JSON. Warns of older sets that
    /// could not be removed, and with SR-7118 of what was left out. SR-5001 if standard output
    /// cannot be written.
    fn report(
        &self,
        context: &mut Context,
        made: Vec<Created>,
        sign_key: Option<&SigningKey>,
    ) -> Result<(), Failure> {
        let signed_by = sign_key.map(|key| hex::hex(&key.public().id()));
        for error in made.iter().filter_map(|made| made.not_cleared.as_ref()) {
            let detail = format!("older sets are still there: {}", error.detail());
            warn(error.code(), &detail);
        }
        let mut made = made.into_iter();
        let created = made.next();
        let created = created.ok_or_else(|| Failure::new(&code::BUG, "no medium"))?;
        for what in &created.left_out {
            warn(&code::NOT_COPIED, what);
        }
        let mirrors = self
            .mirror
            .iter()
            .zip(made)
            .map(|(path, made)| MirrorReport {
                path: path.display().to_string(),
                medium_id: made.description.medium_id,
                position: made.position,
            });
        let mirrors: Vec<MirrorReport> = mirrors.collect();
        if self.json {
            let Created {
                position,
                description,
                left_out,
                not_cleared: _,
            } = created;
            context.output.json(&Report {
                position,
                description,
                left_out,
                signed_by,
                mirrors,
            })?;
        } else {
            let description = &created.description;
            context.output.line(&format!(
                "set {}: {} files, {} bytes, {} bytes stored, {}",
                created.position,
                description.files,
                description.backup_size_bytes,
                description.compressed_size_bytes,
                description.key_algorithm
            ))?;
            if let Some(id) = signed_by {
                context.output.line(&format!("signed by {id}"))?;
            }
            for mirror in mirrors {
                let MirrorReport { path, position, .. } = mirror;
                context
                    .output
                    .line(&format!("mirror {path}: set {position}"))?;
            }
        }
        context.output.flush()
    }
}

/// Returns the places of the mirrors and the set's position on each, as text for the catalogue.
fn mirrors_text<'a>(made: impl Iterator<Item = (&'a dyn Store, &'a Created)>) -> String {
    let shown = made.map(|(store, created)| {
        let place = absolute_name(&store.shown());
        format!("mirror {place} (set {})", created.position)
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Returns the options of a set for these recipients (none: not sealed) with all other values as
/// usual. Machine and user are those of this process.
pub(super) fn set_options(recipients: Vec<Recipient>) -> CreateOptions<'static> {
    CreateOptions::new(recipients, machine_name(), user_name())
}

/// Returns the server that a connection string names as a source, without connecting to it. `label`
/// is the name of the backup in the server (empty: "strongroom"); `spread`: the checkpoint is not
/// hurried. Errors as [`connection`].
fn server(text: &str, label: &str, spread: bool) -> Result<PostgresSource, Failure> {
    let config = connection(text)?;
    let shown = format!(
        "host={} port={} user={}",
        config.host(),
        config.port(),
        config.user()
    );
    let label = if label.is_empty() {
        "strongroom"
    } else {
        label
    };
    Ok(PostgresSource::new(config, shown, label.to_owned(), spread))
}

/// Parses a connection string, with defaults from libpq's environment variables. Does not connect.
/// Notes that a server over the network is not authenticated unless `sslmode` is verify-full.
/// SR-7114 if it is not valid, SR-1001 if it holds a password.
pub(super) fn connection(text: &str) -> Result<Config, Failure> {
    let refused = |error: strongroom_postgres_replication::Error| {
        Failure::new(&code::BACKUP_SOURCE, format!("connection string: {error}"))
    };
    let config = Config::parse(text, &|name| std::env::var_os(name)).map_err(refused)?;
    if config.password_in_text() {
        let text = "a password on the command line can be read by every user of the machine: use a password file (PGPASSFILE)";
        return Err(Failure::usage(text));
    }
    if !config.is_local() && config.ssl_mode() != SslMode::VerifyFull {
        note(
            "the backup comes over the network, and the server is not proved to be the one that is meant: use sslmode=verify-full",
        );
    }
    Ok(config)
}

/// Warns that the set is lost with its key: with SR-7124 for a key from outside the keyring, with
/// SR-2022 for one of a keyring whose keys are not all in an export. A keyring that cannot be
/// opened counts as not exported.
fn warn_of_loss(key: &KeySource, keyring_path: &Path) {
    if !matches!(key, KeySource::KeyId { .. }) {
        warn(&code::BACKUP_KEY_LOST, &key.describe());
        return;
    }
    if Keyring::open(keyring_path).map_or(true, |keyring| keyring.unexported()) {
        let detail = format!(
            "{}; strongroom keyring export --out FILE --ask",
            keyring_path.display()
        );
        warn(&code::NOT_EXPORTED, &detail);
    }
}

/// Checks the name of a set: at most 128 characters, no control characters. The error is the text
/// that clap shows.
fn name(text: &str) -> Result<String, String> {
    if text.chars().count() <= 128 && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err("use at most 128 characters, none of them a control character".to_owned())
    }
}

/// Returns the host name.
fn machine_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the user's name from `USER` or `LOGNAME`, otherwise the user id as text.
fn user_name() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|name| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.is_empty() && !value.chars().any(char::is_control))
    });
    named.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string())
}
