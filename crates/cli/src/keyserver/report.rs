//! `strongroom keyserver report`: reports this node's objects to the key server, for the fleet
//! page.
//!
//! Invariants:
//! 1. No key is used but the one that opens the catalogue of backups, and that one only where
//!    nobody has to type it.
//! 2. An object that cannot be read does not prevent the report of the others; the command fails
//!    all the same.
//! 3. An unknown time is left out: the server keeps the one that was reported before.
//!
//! Must not: open an object, report its contents.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use strongroom_backup::history::past_runs;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_format::text::printable;
use strongroom_inspect::fleet::{FoundObject, HostFacts, describe_object};
use strongroom_inspect::time::rfc3339;
use strongroom_keys_client::{Node, Report};

use crate::context::Context;
use crate::failure::{ErrorJson, Failure, note, warn};
use crate::help::tail;
use crate::output::columns;

/// Tell the key server of this node's databases, instances, volumes and backup media, for its fleet
/// page.
///
/// What each path is, is read from its header, without a key: cipher, key, when it was made. When
/// it was backed up last is read from the catalogue of `backup`, where the keyring opens without
/// asking. Run by a timer: packaging/systemd.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver report /var/lib/app/app.db /var/lib/postgresql/15/main /dev/vdb /mnt/backups"))]
pub(super) struct ReportArgs {
    /// Sealed databases, data directories of sealed PostgreSQL instances, volumes, backup media
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[arg(
        long,
        value_name = "FILE",
        help = "This node's configuration [default: STRONGROOM_NODE, else /etc/strongroom/node.toml]"
    )]
    node: Option<PathBuf>,
    /// The catalogue of backups [default: beside the keyring, `.history` added to its name]
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// All of them were just found authentic: for use after `strongroom verify`
    #[arg(long)]
    verified: bool,
    /// Show what would be reported, and ask no server
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// One object in the result.
#[derive(Serialize)]
struct ReportedObject {
    path: String,
    object_id: Option<String>,
    #[serde(flatten)]
    report: Option<Report>,
    error: Option<ErrorJson>,
}

#[derive(Serialize)]
struct Reported {
    sent: bool,
    objects: Vec<ReportedObject>,
    /// The error of the first object that has one.
    error: Option<ErrorJson>,
}

impl ReportArgs {
    /// Reads what each path is and reports it to the key server; with `--dry-run` only reads.
    /// Prints a table or JSON. An object that fails does not stop the others; further failures are
    /// printed, and the first one is returned at the end. SR-8400 or SR-8401 for the configuration.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let known = self.known_facts(context);
        let client = match self.dry_run {
            true => None,
            false => {
                let node = Node::load(&Node::path(self.node.as_deref()));
                Some(node.map_err(|error| failed(&error))?.client())
            }
        };
        let mut told = Vec::new();
        let mut first = None;
        for path in &self.paths {
            let found = describe_object(path, &known, self.verified).map_err(Failure::from);
            let sent = found.and_then(|found| match &client {
                None => Ok(found),
                Some(client) => client
                    .report(&found.object_id, &found.report)
                    .map_err(|error| failed(&error))
                    .map(|()| found),
            });
            let (one, failure) = outcome_of(path, sent);
            told.push(one);
            match (failure, &first) {
                (None, _) => {}
                // Told when the command ends.
                (Some(failure), None) => first = Some(failure),
                (Some(failure), Some(_)) => failure.print(),
            }
        }
        if self.json {
            let sent = client.is_some();
            context.output.json(&Reported {
                sent,
                objects: told,
                error: first.as_ref().map(Failure::json),
            })?;
        } else {
            context.output.text(&outcomes_text(&told))?;
        }
        match first {
            None => Ok(()),
            Some(failure) if self.json => Err(failure.reported_in_json()),
            Some(failure) => Err(failure),
        }
    }

    /// Returns what the catalogue of backups and the keyring say about objects. A catalogue that
    /// cannot be opened is a warning (SR-7151), a missing one a note; the times of backups are then
    /// unknown.
    fn known_facts(&self, context: &Context) -> HostFacts {
        let keyring = context.keyring_path();
        let past = past_runs(self.catalogue.as_deref(), &keyring);
        let past = past.unwrap_or_else(|error| {
            warn(&code::HISTORY_NOT_KEPT, &Failure::from(error).summary());
            None
        });
        if past.is_none() {
            note("there is no catalogue of backups to be read: times of backups are not reported");
        }
        HostFacts::new(&keyring, past)
    }
}

/// Turns the client's error into a failure with the same code and detail.
fn failed(error: &strongroom_keys_client::Error) -> Failure {
    Failure::new(error.code(), error.detail())
}

/// Turns the outcome for one path into its entry of the result, and the failure if there is one,
/// with the path in its detail.
fn outcome_of(
    path: &Path,
    sent: Result<FoundObject, Failure>,
) -> (ReportedObject, Option<Failure>) {
    let path = path.display().to_string();
    match sent {
        Ok(found) => {
            let told = ReportedObject {
                path,
                object_id: Some(hex(&found.object_id)),
                report: Some(found.report),
                error: None,
            };
            (told, None)
        }
        Err(failure) => {
            let failure = match failure.detail().contains(&path) {
                true => failure,
                false => failure.with_prefix(&format!("{path}: ")),
            };
            let told = ReportedObject {
                path,
                object_id: None,
                report: None,
                error: Some(failure.json()),
            };
            (told, Some(failure))
        }
    }
}

/// Returns a table of the objects that were reported. Objects that failed are left out.
fn outcomes_text(told: &[ReportedObject]) -> String {
    let heads = [
        "KIND",
        "NAME",
        "CIPHER",
        "KEY",
        "ROTATED",
        "BACKED UP",
        "VERIFIED",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let time = |at: Option<u64>| at.map_or_else(|| "-".to_owned(), rfc3339);
    for report in told.iter().filter_map(|told| told.report.as_ref()) {
        let key = match report.key_id.as_str() {
            "" => "-".to_owned(),
            id => format!("{} v{}", printable(id), report.key_version),
        };
        rows.push(vec![
            report.kind.clone(),
            printable(&report.name),
            printable(&report.cipher),
            key,
            time(report.rotated),
            time(report.backed_up),
            time(report.verified),
        ]);
    }
    columns(&rows)
}
