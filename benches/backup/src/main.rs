//! `strongroom-bench-backup`: sealed backups beside plain ones, pgBackRest, restic, and a pipe of zstd and age, in one run.
//!
//! Invariants: those of `run` (rounds are interleaved, everything that was restored is compared) and of `matrix`.
//!
//! Must not: leave a server or a file behind, or listen on a network.

mod chart;
mod compare;
mod matrix;
mod measured;
mod peers;
mod report;
mod run;
mod source;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use strongroom_benches::Failure;
use strongroom_benches::splice::{BACKUP, BACKUP_MATRIX, Markers, splice_file};
use strongroom_keyring::durable;

/// Backups and restores of one server and one directory: time, processor time, memory, size.
#[derive(Parser)]
#[command(name = "strongroom-bench-backup", version)]
struct Options {
    /// Rounds; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Megabytes of the source, about [default: 2000, with --matrix 256]
    #[arg(long = "size", value_name = "MB", default_value_t = 0)]
    size_mb: u64,
    /// Small and once: to see that everything runs
    #[arg(long)]
    quick: bool,
    /// Only peers whose name contains this: a tool, "zstd 3", "none", "plain"
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Four algorithms and none, compressed and not, from disk and memory, to disk and memory: forty backups of a directory
    #[arg(long)]
    matrix: bool,
    /// With --matrix: a directory of a file system in memory
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    memory: PathBuf,
    /// With --matrix: draw the chart here (SVG)
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Do not measure, take these results (the JSON of an earlier run)
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Where everything is made, and removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Also put the table between its markers in this document
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

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
    let text = if options.json { json } else { table };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.write {
        Some(path) => splice_file(path, markers, table),
        None => Ok(()),
    }
}

fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(durable::replace(path, text.as_bytes(), 0o644)?)
}

/// Progress and failures, to standard error.
fn note(text: &str) {
    // When standard error is closed there is nobody to tell.
    let written = writeln!(std::io::stderr(), "{text}");
    drop(written);
}
