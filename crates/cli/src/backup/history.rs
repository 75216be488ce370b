//! `strongroom backup history`: the catalogue of runs as a table; and how the other verbs note
//! their runs in it.
//!
//! Invariant: a run that cannot be noted is a warning, and changes nothing of its outcome.
//!
//! Must not: know how the catalogue is stored; that is strongroom-backup's.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_backup::history::{
    Catalogue, RunRecord, SetFacts, absolute_name, catalogue_path, note_run,
};
use strongroom_backup::metrics::write_metrics;
use strongroom_format::code;
use strongroom_format::text::printable;
use strongroom_inspect::time::rfc3339;

use super::medium_name::store;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::output::columns;

/// Where a run is noted.
#[derive(Args, Clone, Default)]
pub(super) struct HistoryOptions {
    /// The catalogue to note this run in [default: beside the keyring, `.history` added to its
    /// name]
    #[arg(long, value_name = "FILE", help_heading = "Catalogue")]
    catalogue: Option<PathBuf>,
    /// Do not note this run in a catalogue
    #[arg(long, conflicts_with = "catalogue", help_heading = "Catalogue")]
    no_history: bool,
}

/// Where a run is noted beside its result.
#[derive(Default)]
pub(super) struct Outlets {
    /// The catalogue; `None` for runs that are never noted.
    pub(super) history: Option<HistoryOptions>,
    /// The key of the keyring that was named.
    pub(super) key_id: Option<String>,
    /// The file for a monitoring system.
    pub(super) metrics: Option<PathBuf>,
}

/// Calls `run` and returns its result. Then writes the metrics file and adds the run to the
/// catalogue, as `outlets` says, whether `run` has failed or not. That this failed is a warning:
/// SR-7153 for the metrics, SR-7151 for the catalogue.
pub(super) fn run_and_note(
    context: &mut Context,
    operation: &str,
    outlets: &Outlets,
    run: impl FnOnce(&mut Context, &mut RunRecord) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut record = RunRecord::begin(operation);
    let result = run(context, &mut record);
    let failure = result.as_ref().err();
    record.end(failure.map(|failure| (failure.code(), failure.detail())));
    if let Some(path) = &outlets.metrics
        && let Err(error) = write_metrics(path, &record)
    {
        warn(&code::METRICS_NOT_WRITTEN, &Failure::from(error).summary());
    }
    let options = outlets.history.as_ref();
    if let Some(options) = options.filter(|options| !options.no_history)
        && let Err(error) = note_run(
            options.catalogue.as_deref(),
            &context.keyring_path(),
            outlets.key_id.as_deref(),
            &record,
        )
    {
        warn(&code::HISTORY_NOT_KEPT, &Failure::from(error).summary());
    }
    result
}

/// List the runs of `backup` that the catalogue has: sets that were made, verified and restored,
/// and runs that failed.
///
/// The catalogue is a SQLite database, sealed for a key of the keyring, in which `create`,
/// `verify`, `restore`, `rewrap` and `expire` note what they did.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup history --last 20"))]
pub(super) struct HistoryArgs {
    /// The catalogue [default: beside the keyring, `.history` added to its name]
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// Add the sets of a medium that the catalogue does not have, from their heads: nothing of them
    /// is authenticated
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
    entry: RunRecord,
    begun: String,
    ended: String,
}

impl HistoryArgs {
    /// Prints the runs in the catalogue as a table or JSON. With `--scan`, first adds the sets of a
    /// medium that it lacks. SR-7152 if there is no catalogue, unless `--key-id` is given, which
    /// makes one; the errors of the catalogue, its key and the medium.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keyring = context.keyring_path();
        let path = catalogue_path(self.catalogue.as_deref(), &keyring);
        if !path.exists() {
            let absent = || Failure::new(&code::HISTORY_ABSENT, path.display().to_string());
            let id = self.key_id.as_deref().ok_or_else(absent)?;
            Catalogue::create(&path, &keyring, id)?;
        }
        let mut catalogue = Catalogue::open(&path, &keyring)?;
        let mut scanned = None;
        if let Some(medium) = &self.scan {
            scanned = Some(catalogue.scan(store(medium)?.as_ref())?);
        }
        let medium = self.medium.as_deref().map(absolute_name);
        let runs = catalogue.runs(medium.as_deref(), self.last)?;
        if self.json {
            let run = |entry: RunRecord| Run {
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
        context.output.text(&runs_table(&runs))?;
        context.output.flush()?;
        if let Some(count) = scanned {
            note(&format!("{count} sets added from their heads"));
        }
        Ok(())
    }
}

/// Returns the runs as a table.
fn runs_table(runs: &[RunRecord]) -> String {
    let heads = [
        "ENDED", "RUN", "OUTCOME", "SET", "KIND", "BYTES", "STORED", "KEY", "SOURCE", "MEDIUM",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for run in runs {
        let set = run.set.as_ref();
        let of_set =
            |value: &dyn Fn(&SetFacts) -> String| set.map_or_else(|| String::from("-"), value);
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
