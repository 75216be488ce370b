//! `strongroom pg status -D DIR`: whether the server runs, whether and how the instance is sealed,
//! which keys open it, and which files are not sealed.
//!
//! Must not: need a key, or change anything.

use clap::Args;
use serde::Serialize;
use strongroom_format::code;
use strongroom_format::postgres::{CONFIG_FILE, CONVERT_FILE};
use strongroom_format::text::printable;
use strongroom_postgres_instance::facts::Facts;
use strongroom_postgres_instance::outside::{self, OutsideWrite};
use strongroom_postgres_instance::status;
use strongroom_postgres_instance::unsealed::{self, UnsealedClass};

use super::directory::DirectoryOption;
use super::given::given_key;
use crate::context::Context;
use crate::failure::{ErrorJson, Failure, warn};
use crate::help::tail;
use crate::key_options::KeyOptions;
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
    plaintext: Option<Vec<UnsealedClass>>,
    unknown: Option<Vec<String>>,
    outside: Option<Vec<OutsideWrite>>,
    error: Option<ErrorJson>,
}

impl StatusArgs {
    /// Prints whether the instance is sealed and its server runs, and what its header says, as text
    /// or JSON; with `--plaintext` also what is not sealed. Warns with SR-7030 if data checksums
    /// are off. An instance that is not sealed or not running is no error.
    /// Errors: SR-7011 if the directory holds no instance; SR-3003 for a damaged header, which the
    /// result contains too; with `--plaintext` SR-7002 for what is no regular file; the errors of a
    /// key that was given.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.existing()?;
        let facts = directory.is_sealed().then(|| Facts::read(&directory));
        let (header, problem) = match facts.transpose() {
            Ok(facts) => (facts, None),
            Err(error) => (None, Some(Failure::from(error))),
        };
        let found = self.plaintext.then(|| unsealed::find(&directory.path));
        let found = found.transpose()?;
        let (in_clear, unknown) = found.map(|found| (found.in_clear, found.unknown)).unzip();
        let data_checksums = status::data_checksums(given_key(self.key, context), &directory)?;
        let status = Status {
            path: directory.path.display().to_string(),
            postgresql: directory.major(),
            pid: directory.server(),
            sealed: directory.is_sealed(),
            header,
            key_source: status::key_source(&directory),
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

/// The end of what `--plaintext` prints.
const NOT_LOOKED_AT: &str = "\nNot looked at: what lies outside the data directory and its tablespaces (configuration, archives,\n\
     sockets, the log where the server's standard error goes), what SQL and clients write elsewhere (COPY ... TO,\n\
     lo_export, pg_basebackup), names and sizes of files, and memory.\n";

/// Returns the status as text for people, with U+FFFD in place of control characters. Prints
/// nothing.
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
        out.push_str(&unsealed_text(classes, unknown));
    }
    if let Some(found) = &status.outside {
        out.push_str(&outside_text(found));
        out.push_str(NOT_LOOKED_AT);
    }
    out
}

/// Returns the section about what the server's configuration makes it write outside the instance.
fn outside_text(found: &[OutsideWrite]) -> String {
    let mut out = String::from("\nwritten elsewhere by the server itself, and not sealed:\n");
    if found.is_empty() {
        out.push_str("\n  nothing by its configuration files\n");
    }
    for outside in found {
        let (setting, value) = (printable(&outside.setting), printable(&outside.value));
        out.push_str(&format!(
            "\n  {setting} = '{value}'\n    {}\n",
            outside.reason
        ));
        out.push_str(&format!("    in {}\n", printable(&outside.file)));
    }
    out
}

/// Returns the section about what is not sealed: for each class of files its pattern, the reason,
/// number, size and names. `unknown` are files that this version does not know, listed first.
fn unsealed_text(classes: &[UnsealedClass], unknown: &[String]) -> String {
    let mut out = String::new();
    if !unknown.is_empty() {
        out.push_str(
            "of a kind that this version does not know, and sealed by the shield when they are written:\n\n",
        );
        for name in unknown {
            out.push_str(&format!("      {}\n", printable(name)));
        }
        out.push('\n');
    }
    out.push_str("not sealed in this instance:\n");
    for class in classes {
        let (count, size) = (class.files.len(), class.size_bytes);
        out.push_str(&format!("\n  {}\n    {}\n", class.pattern, class.reason));
        out.push_str(&format!("    here: {count} files, {size} bytes\n"));
        let rows: Vec<Vec<String>> = class
            .files
            .iter()
            .map(|name| vec![String::from("     "), printable(name)])
            .collect();
        out.push_str(&columns(&rows));
    }
    out
}
