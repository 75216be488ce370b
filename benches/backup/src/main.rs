//! `strongroom-bench-backup`: sealed backups beside plain ones, pgBackRest, restic, and a pipe of
//! zstd and age, in one run.
//!
//! Invariants: those of `run` (rounds are interleaved, everything that was restored is compared)
//! and of `matrix`.
//!
//! Must not: leave a server or a file behind, or listen on a network.

mod chart;
mod compare;
mod matrix;
mod measured;
mod options;
mod peers;
mod report;
mod run;
mod source;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use strongroom_benches::splice::{BACKUP, BACKUP_MATRIX, Markers, splice_file};
use strongroom_benches::{Failure, note};
use strongroom_keyring::durable;

use crate::options::Options;

/// Megabytes of the source: of a comparison, of the matrix; and of both when it shall be quick.
const SIZES: [u64; 2] = [2000, 256];
const QUICK: [u64; 2] = [100, 16];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [word, rest @ ..] = arguments.as_slice()
        && word == measured::WORD
    {
        return measured::as_parent(rest);
    }
    let mut options = Options::parse();
    let sizes = if options.quick { QUICK } else { SIZES };
    if options.quick {
        options.rounds = 1;
    }
    if options.size_mb == 0 {
        let [comparison, matrix] = sizes;
        options.size_mb = if options.matrix { matrix } else { comparison };
    }
    let done = if options.matrix {
        matrix(&options)
    } else {
        comparison(&options)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("strongroom-bench-backup: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn comparison(options: &Options) -> Result<(), Failure> {
    let report = match &options.from {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => run::run(options)?,
    };
    let json = serde_json::to_string_pretty(&report)?;
    show(options, BACKUP, &report.markdown()?, &json)
}

fn matrix(options: &Options) -> Result<(), Failure> {
    let found = match &options.from {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => matrix::run(options)?,
    };
    let mut table = found.markdown()?;
    if let Some(path) = &options.chart {
        replace(path, &chart::svg(&found)?)?;
        let name = path.file_name().unwrap_or_default().display();
        write!(table, "\n![Times of the forty backups]({name})\n")?;
    }
    let json = serde_json::to_string_pretty(&found)?;
    show(options, BACKUP_MATRIX, &table, &json)
}

fn show(options: &Options, markers: Markers, table: &str, json: &str) -> Result<(), Failure> {
    let text = if options.report.json { json } else { table };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.report.write {
        Some(path) => splice_file(path, markers, table),
        None => Ok(()),
    }
}

fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(durable::replace(path, text.as_bytes(), 0o644)?)
}
