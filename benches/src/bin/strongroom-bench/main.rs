//! `strongroom-bench`: the guard beside stock SQLite, in one run.
//!
//! Invariants:
//! 1. Rounds are interleaved: each workload runs on all three peers before its next round, and who begins rotates.
//! 2. A round counts only if all peers gave the same result (B2).
//! 3. Every round of every peer is a process of its own; the stock peer's never registers the guard (B1).
//!
//! Must not: leave anything behind, or measure in memory-backed storage without saying so (the report names the file
//! system).

mod latency;
mod setup;
mod worker;
mod workloads;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::report::{Line, Report};
use strongroom_benches::splice::{SQLITE, splice_file};
use strongroom_benches::variant::Variant;

use crate::setup::{Databases, Place};

/// Sealed SQLite beside stock SQLite: scans, TPC-H queries, point reads, updates, bulk load, open latency.
#[derive(Parser)]
#[command(name = "strongroom-bench", version)]
struct Options {
    /// Rounds of each workload; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// TPC-H scale factor
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Page cache of each connection, in KiB
    #[arg(long, default_value_t = 2000)]
    cache_kib: u32,
    /// Only workloads whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Where the databases are made, and removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Also put the table between the markers of this document
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// One round of one peer: what this command runs itself as
    #[arg(long, hide = true, num_args = 3, value_names = ["PEER", "WORKLOAD", "ROUND"])]
    worker: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.worker {
        Some(arguments) => worker::work(arguments, &options),
        None => run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("strongroom-bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Progress and failures, to standard error.
fn note(text: &str) {
    // When standard error is closed there is nobody to tell.
    let written = writeln!(std::io::stderr(), "{text}");
    drop(written);
}

fn run(options: &Options) -> Result<(), Failure> {
    let mut machine = Machine::here(&options.directory);
    let databases = Databases::make(options)?;
    let mut lines = Vec::new();
    for workload in workloads::all() {
        let mut line = workload.line();
        if !line.name.contains(&options.only) {
            continue;
        }
        note(&line.name);
        for round in 0..options.rounds {
            rotate(&mut line, &databases.place, workload.name, round, options)?;
        }
        lines.push(line);
    }
    machine.finished();
    let report = Report {
        machine,
        rounds: options.rounds,
        scale: options.scale,
        cache_kib: options.cache_kib,
        database_bytes: databases.sizes,
        lines,
    };
    let text = if options.json {
        report.json()?
    } else {
        report.markdown()
    };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.write {
        Some(path) => splice_file(path, SQLITE, &report.markdown()),
        None => Ok(()),
    }
}

/// One round on all peers, in the order of the round: who begins rotates.
fn rotate(
    line: &mut Line,
    place: &Place,
    workload: &str,
    round: u32,
    options: &Options,
) -> Result<(), Failure> {
    let first = usize::try_from(round).unwrap_or(0) % Variant::ALL.len();
    let mut agreed: Option<String> = None;
    for variant in Variant::ALL
        .into_iter()
        .cycle()
        .skip(first)
        .take(Variant::ALL.len())
    {
        let done = worker::start(place, variant, workload, round, options)?;
        line.push(variant, done.duration);
        match &agreed {
            Some(digest) if *digest != done.digest => {
                return Err(
                    format!("{}: {} returned something else", line.name, variant.name()).into(),
                );
            }
            Some(_) => {}
            None => agreed = Some(done.digest),
        }
    }
    Ok(())
}
