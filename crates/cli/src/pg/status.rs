//! `strongroom pg status -D DIR`: whether the server runs, whether and how the instance is sealed,
//! which keys open it, and which files are not sealed.
//!
//! Must not: need a key, or change anything.

use clap::Args;
use serde::Serialize;
use strongroom_format::code;
use strongroom_format::postgres::{CONFIG_FILE, CONVERT_FILE};
use strongroom_format::text::printable;
use strongroom_postgres_shield::source;

use super::chosen::ChosenKey;
use super::contents::has_data_checksums;
use super::directory::{Directory, DirectoryOption};
use super::facts::Facts;
use super::outside::{self, OutsideWrite};
use super::plaintext;
use crate::context::Context;
use crate::failure::{ErrorJson, Failure, warn};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;
use crate::output::columns;

/// Show whether an instance is running and sealed, and by which key.
///
/// No key is needed, so nothing is authenticated: controldata does that. Whether data checksums are
/// on is known of a sealed instance only with its key: a key option, or one that strongroom.conf
/// names as a file or a variable. Ends with 0 whether or not the server runs.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg status -D /srv/pg/data --plaintext"))]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pub(super) directory: DirectoryOption,
    #[command(flatten)]
    key: KeyOptions,
    /// List what is not sealed in this instance, file by file, and why; and what its configuration
    /// writes elsewhere
    #[arg(long)]
    plaintext: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The JSON result: docs/reference/exit-codes.md.
#[derive(Serialize)]
struct Status {
    path: String,
    postgresql: Option<u32>,
    pid: Option<u32>,
    sealed: bool,
    header: Option<Facts>,
    key_source: Option<String>,
    conversion_under_way: bool,
    data_checksums: Option<bool>,
    plaintext: Option<Vec<plaintext::UnsealedClass>>,
    unknown: Option<Vec<String>>,
    outside: Option<Vec<OutsideWrite>>,
    error: Option<ErrorJson>,
}

impl StatusArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.existing()?;
        let facts = directory.is_sealed().then(|| Facts::read(&directory));
        let (header, problem) = match facts.transpose() {
            Ok(facts) => (facts, None),
            Err(failure) => (None, Some(failure)),
        };
        let found = self.plaintext.then(|| plaintext::find(&directory.path));
        let found = found.transpose()?;
        let (in_clear, unknown) = found.map(|found| (found.in_clear, found.unknown)).unzip();
        let data_checksums = data_checksums(self.key, context, &directory)?;
        let status = Status {
            path: directory.path.display().to_string(),
            postgresql: directory.major(),
            pid: directory.server(),
            sealed: directory.is_sealed(),
            header,
            key_source: key_source(&directory),
            conversion_under_way: directory.is_converting(),
            data_checksums,
            plaintext: in_clear,
            unknown,
            outside: self.plaintext.then(|| outside::find(&directory.path)),
            error: problem.as_ref().map(Failure::json),
        };
        if self.json {
            context.output.json(&status)?;
        } else {
            context.output.text(&status_text(&status))?;
        }
        if status.data_checksums == Some(false) {
            warn(&code::PG_NO_CHECKSUMS, &directory.shown());
        }
        match problem {
            Some(failure) if self.json => Err(failure.reported_in_json()),
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// Whether pages of relations have checksums; `None` when that is not known. A key that was given
/// has to open the instance.
fn data_checksums(
    key: KeyOptions,
    context: &Context,
    directory: &Directory,
) -> Result<Option<bool>, Failure> {
    if directory.major().is_none() || directory.is_converting() {
        return Ok(None);
    }
    if !directory.is_sealed() {
        return Ok(has_data_checksums(directory, None).ok());
    }
    // What strongroom.conf names was chosen by the directory's owner, and is followed for the owner
    // only.
    let given = keys::source(key.clone()).is_some();
    let chosen = match ChosenKey::find(key, context, directory) {
        Err(failure) if given => return Err(failure),
        found => found.ok().flatten(),
    };
    let Some(chosen) = chosen else {
        return Ok(None);
    };
    if chosen.is_own() && !(chosen.is_at_hand() && directory.is_own()) {
        return Ok(None);
    }
    let found = chosen
        .instance(directory)
        .and_then(|instance| has_data_checksums(directory, Some(&instance)));
    match found {
        Err(failure) if !chosen.is_own() => Err(failure),
        found => Ok(found.ok()),
    }
}

/// What the configuration names.
fn key_source(directory: &Directory) -> Option<String> {
    match source::from_configuration(&directory.path) {
        Ok(found) => found.map(|found| found.key.describe()),
        Err(error) => Some(format!("not valid: {error}")),
    }
}

/// The end of what `--plaintext` prints.
const NOT_LOOKED_AT: &str = "\nNot looked at: what lies outside the data directory and its tablespaces (configuration, archives,\n\
     sockets, the log where the server's standard error goes), what SQL and clients write elsewhere (COPY ... TO,\n\
     lo_export, pg_basebackup), names and sizes of files, and memory.\n";

fn status_text(status: &Status) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, value: &str| rows.push([String::from(name), printable(value)]);
    row("data directory", &status.path);
    let version = status.postgresql.map(|major| major.to_string());
    row("PostgreSQL", version.as_deref().unwrap_or("not made yet"));
    let server = status.pid.map(|pid| format!("running, process {pid}"));
    row("server", server.as_deref().unwrap_or("not running"));
    row("sealed", if status.sealed { "yes" } else { "no" });
    if let Some(facts) = &status.header {
        row("cipher", facts.cipher);
        row("opened by", &facts.openers_text());
        row("fingerprint", &facts.fingerprint);
        let zeros = if facts.sealed_zeros {
            "found when they are read"
        } else {
            "read as zeros (sealed by an older version)"
        };
        row("zeros in transaction status", zeros);
        let exchanged = if facts.bound_names {
            "found when they are read"
        } else {
            "not found (sealed by an older version)"
        };
        row("exchanged small files", exchanged);
        if facts.rotation_under_way {
            row("rotation", "begun and not finished");
        }
    }
    if status.sealed {
        let none = format!("{CONFIG_FILE} names none");
        row("key source", status.key_source.as_ref().unwrap_or(&none));
    }
    if status.postgresql.is_some() && !status.conversion_under_way {
        let checksums = match status.data_checksums {
            Some(true) => "on",
            Some(false) => "off",
            None => "not known without the key",
        };
        row("data checksums", checksums);
    }
    if status.conversion_under_way {
        let begun = format!("begun and not finished ({CONVERT_FILE})");
        row("conversion", &begun);
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    let mut out = columns(&rows);
    if let Some(classes) = &status.plaintext {
        out.push('\n');
        let unknown = status.unknown.as_deref().unwrap_or_default();
        out.push_str(&plaintext::text(classes, unknown));
    }
    if let Some(found) = &status.outside {
        out.push_str(&outside::text(found));
        out.push_str(NOT_LOOKED_AT);
    }
    out
}
