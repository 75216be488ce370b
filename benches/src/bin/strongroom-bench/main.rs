//! `strongroom-bench`: the VFS beside stock SQLite, in one run.
//!
//! Invariants:
//! 1. Rounds are interleaved: each workload runs on all three peers before its next round, and who
//!    begins rotates.
//! 2. A round counts only if all peers gave the same result (B2).
//! 3. Every round of every peer is a process of its own; the stock peer's never registers the VFS
//!    (B1).
//!
//! Must not: leave anything behind, or measure in memory-backed storage without saying so (the
//! report names the file system).

mod databases;
mod latency;
mod options;
mod setup;
mod worker;
mod workloads;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use strongroom_benches::machine::Machine;
use strongroom_benches::report::{Line, Report};
use strongroom_benches::splice::{SQLITE, splice_file};
use strongroom_benches::variant::Variant;
use strongroom_benches::{Failure, note};

use crate::databases::Databases;
use crate::options::Options;
use crate::setup::Place;

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

fn run(options: &Options) -> Result<(), Failure> {
    let mut machine = Machine::here(&options.report.directory);
    let databases = Databases::make(options)?;
    let mut lines = Vec::new();
    for workload in workloads::all() {
        let mut line = workload.line();
        if !options.workloads.has(&line.name) {
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
    let text = if options.report.json {
        report.json()?
    } else {
        report.markdown()
    };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.report.write {
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
