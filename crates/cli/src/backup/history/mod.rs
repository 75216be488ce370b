//! `strongroom backup history`: what backups were made, verified and restored, when and how it ended; and how the other verbs note
//! it, in a catalogue beside the keyring.
//!
//! Invariant: what becomes of the catalogue changes no outcome. What cannot be noted is a warning.
//!
//! Must not: ask for anything, unless the catalogue was named.

mod catalogue;
mod entry;
mod past;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use strongroom_backup::list;
use strongroom_format::code;
use strongroom_keyring::Keyring;

pub(super) use self::entry::{Entry, place};
pub(crate) use self::past::{Past, past};

use self::catalogue::Catalogue;
use super::medium_name::store;
use super::metrics;
use crate::context::Context;
use crate::failure::{Failure, note, printable, warn};
use crate::help::tail;
use crate::output::columns;
use crate::time::rfc3339;

/// Where a run is noted.
#[derive(Args, Clone, Default)]
pub(super) struct HistoryOptions {
    /// The catalogue to note this run in [default: beside the keyring, `.history` added to its name]
    #[arg(long, value_name = "FILE", help_heading = "Catalogue")]
    catalogue: Option<PathBuf>,
    /// Do not note this run in a catalogue
    #[arg(long, conflicts_with = "catalogue", help_heading = "Catalogue")]
    no_history: bool,
}

/// What is told of a run beside its result.
#[derive(Default)]
pub(super) struct Told {
    /// The catalogue; `None` for runs that are never noted.
    pub(super) history: Option<HistoryOptions>,
    /// The key of the keyring that was named.
    pub(super) key_id: Option<String>,
    /// The file for a monitoring system.
    pub(super) metrics: Option<PathBuf>,
}

/// Runs a verb and tells of it: in the catalogue, and to a monitoring system.
pub(super) fn told(
    context: &mut Context,
    operation: &str,
    told: &Told,
    run: impl FnOnce(&mut Context, &mut Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut entry = Entry::begun(operation);
    let result = run(context, &mut entry);
    entry.end(result.as_ref().err());
    if let Some(path) = &told.metrics
        && let Err(failure) = metrics::tell(path, &entry)
    {
        warn(&code::METRICS_NOT_WRITTEN, &failure.shown());
    }
    let options = told.history.as_ref();
    if let Some(options) = options.filter(|options| !options.no_history)
        && let Err(failure) = noted(
            options,
            &context.keyring_path(),
            told.key_id.as_deref(),
            &entry,
        )
    {
        warn(&code::HISTORY_NOT_KEPT, &failure.shown());
    }
    result
}

/// Notes a run where there is a catalogue, or there can be one: the first set that is made with a key of the keyring makes it.
fn noted(
    options: &HistoryOptions,
    keyring: &Path,
    key_id: Option<&str>,
    entry: &Entry,
) -> Result<(), Failure> {
    let path = path(options.catalogue.as_deref(), keyring);
    if options.catalogue.is_none() && !can_be_opened_unasked(keyring) {
        return Ok(());
    }
    if !path.exists() {
        let Some(id) = key_id.filter(|_| entry.operation() == "create" && entry.is_done()) else {
            let named = options.catalogue.is_some();
            let absent = || Failure::new(&code::HISTORY_ABSENT, path.display().to_string());
            return if named { Err(absent()) } else { Ok(()) };
        };
        Catalogue::make(&path, keyring, id)?;
    }
    Catalogue::open(&path, keyring)?.add(entry)
}

/// Whether there is a keyring whose root key nobody has to type.
fn can_be_opened_unasked(keyring: &Path) -> bool {
    let status = Keyring::status(keyring);
    status.is_ok_and(|status| status.provider != "passphrase")
}

fn path(named: Option<&Path>, keyring: &Path) -> PathBuf {
    if let Some(named) = named {
        return named.to_path_buf();
    }
    let mut beside = keyring.as_os_str().to_os_string();
    beside.push(".history");
    beside.into()
}

/// List the runs of `backup` that the catalogue has: sets that were made, verified and restored, and runs that failed.
///
/// The catalogue is a SQLite database, sealed for a key of the keyring, in which `create`, `verify`, `restore`, `rewrap` and `expire`
/// note what they did.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup history --last 20"))]
pub(super) struct HistoryArgs {
    /// The catalogue [default: beside the keyring, `.history` added to its name]
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// Add the sets of a medium that the catalogue does not have, from their heads: nothing of them is authenticated
    #[arg(long, value_name = "MEDIUM")]
    scan: Option<PathBuf>,
    /// If there is no catalogue, make one that is sealed for this key of the keyring
    #[arg(long, value_name = "NAME")]
    key_id: Option<String>,
    /// Runs on this medium only
    #[arg(long, value_name = "MEDIUM")]
    medium: Option<String>,
    /// The newest runs only, so many of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Report {
    path: String,
    scanned: Option<u64>,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    #[serde(flatten)]
    entry: Entry,
    begun: String,
    ended: String,
}

impl HistoryArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keyring = context.keyring_path();
        let path = path(self.catalogue.as_deref(), &keyring);
        if !path.exists() {
            let absent = || Failure::new(&code::HISTORY_ABSENT, path.display().to_string());
            let id = self.key_id.as_deref().ok_or_else(absent)?;
            Catalogue::make(&path, &keyring, id)?;
        }
        let mut catalogue = Catalogue::open(&path, &keyring)?;
        let mut scanned = None;
        if let Some(medium) = &self.scan {
            scanned = Some(scan(&mut catalogue, medium)?);
        }
        let medium = self.medium.as_deref().map(place);
        let runs = catalogue.runs(medium.as_deref(), self.last)?;
        if self.json {
            let run = |entry: Entry| Run {
                begun: rfc3339(entry.begun_unix_s),
                ended: rfc3339(entry.ended_unix_s),
                entry,
            };
            return context.output.json(&Report {
                path: path.display().to_string(),
                scanned,
                runs: runs.into_iter().map(run).collect(),
            });
        }
        context.output.text(&text(&runs))?;
        context.output.flush()?;
        if let Some(count) = scanned {
            note(&format!("{count} sets added from their heads"));
        }
        Ok(())
    }
}

fn scan(catalogue: &mut Catalogue, medium: &Path) -> Result<u64, Failure> {
    let store = store(medium)?;
    let listing = list(store.as_ref())?;
    let found = listing.sets.iter();
    let entries: Vec<Entry> = found
        .map(|set| Entry::scanned(store.as_ref(), set))
        .collect();
    let added = catalogue.add_new(&entries)?;
    match listing.unreadable.into_iter().next() {
        // What can be read is noted.
        Some(bad) => Err(bad.error.into()),
        None => Ok(added),
    }
}

fn text(runs: &[Entry]) -> String {
    let heads = [
        "ENDED", "RUN", "OUTCOME", "SET", "KIND", "BYTES", "STORED", "KEY", "SOURCE", "MEDIUM",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for run in runs {
        let set = run.set.as_ref();
        let of_set = |value: &dyn Fn(&entry::SetFacts) -> String| {
            set.map_or_else(|| String::from("-"), value)
        };
        rows.push(vec![
            rfc3339(run.ended_unix_s),
            printable(&run.operation),
            printable(&run.outcome),
            of_set(&|set| set.position.to_string()),
            of_set(&|set| printable(&set.kind)),
            of_set(&|set| set.backup_size_bytes.to_string()),
            of_set(&|set| set.compressed_size_bytes.to_string()),
            of_set(&|set| printable(&set.key_algorithm)),
            if run.source.is_empty() {
                String::from("-")
            } else {
                printable(&run.source)
            },
            printable(&run.medium),
        ]);
    }
    columns(&rows)
}
