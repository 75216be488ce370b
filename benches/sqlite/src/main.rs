//! `strongroom-bench-sqlite`: the guard beside `SQLCipher` and `SQLite3` Multiple Ciphers, in one run.
//!
//! Invariants:
//! 1. Rounds are interleaved: each workload runs on all engines before its next round, and who begins rotates.
//! 2. A round counts only if all engines returned the same (B2).
//! 3. Every round of every engine is a process of its own: one C program, compiled with each engine by the same options.
//! 4. An engine's file was searched for what it holds before anything is measured.
//! 5. The files that are read were all written in one way, by a copy.
//!
//! Must not: leave anything behind, or build an engine (build-peers does).

mod chart;
mod driver;
mod engine;
mod growth;
mod instructions;
mod report;
mod setup;
mod workloads;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::splice::{SQLITE_PEERS, splice_file};
use strongroom_benches::stats::Samples;
use strongroom_benches::variant::stock;

use crate::engine::Engine;
use crate::report::{Line, Report};
use crate::setup::Place;
use crate::workloads::Workload;

/// Sealed SQLite beside stock SQLite, `SQLCipher` and `SQLite3` Multiple Ciphers.
#[derive(Parser)]
#[command(name = "strongroom-bench-sqlite", version)]
pub(crate) struct Options {
    /// Where build-peers put the drivers
    #[arg(long, value_name = "DIRECTORY")]
    drivers: PathBuf,
    /// The guard: `libstrongroom_sqlite.so`
    #[arg(long, value_name = "FILE")]
    extension: PathBuf,
    /// Rounds of each workload; the table shows medians
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// TPC-H scale factor
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Only workloads whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Only these engines, separated by commas; stock is always among them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    engines: Vec<String>,
    /// Sizes in MiB at which growth is measured; `--sizes 10,100,1000,4000` takes an hour and 40 GiB
    #[arg(long, value_name = "MIB", value_delimiter = ',', default_values_t = [10_u32, 100])]
    sizes: Vec<u32>,
    /// Count instructions too, with valgrind, and keep its profiles here
    #[arg(long, value_name = "DIRECTORY")]
    instructions: Option<PathBuf>,
    /// Measure no times
    #[arg(long)]
    no_times: bool,
    /// Where the databases are made, and removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Also put the table between the markers of this document, and the charts beside it
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Rows of lineitem, once they are known
    #[arg(skip)]
    rows: u32,
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("strongroom-bench-sqlite: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Progress and failures, to standard error.
pub(crate) fn note(text: &str) {
    // When standard error is closed there is nobody to tell.
    let written = writeln!(std::io::stderr(), "{text}");
    drop(written);
}

/// In which order engines take their turns: who begins rotates.
pub(crate) fn order(count: usize, round: u32) -> impl Iterator<Item = usize> {
    let first = usize::try_from(round).unwrap_or(0) % count.max(1);
    (0..count).cycle().skip(first).take(count)
}

/// All engines return the same.
pub(crate) fn agree(
    agreed: &mut Option<String>,
    digest: &str,
    engine: Engine,
    work: &str,
) -> Result<(), Failure> {
    match agreed {
        Some(before) if before != digest => {
            Err(format!("{work}: {} returned something else", engine.name()).into())
        }
        Some(_) => Ok(()),
        None => {
            *agreed = Some(digest.to_owned());
            Ok(())
        }
    }
}

fn run(mut options: Options) -> Result<(), Failure> {
    let engines = chosen(&options.engines)?;
    let mut machine = Machine::here(&options.directory);
    let place = Place::make(&options.directory, &options.drivers, &options.extension)?;
    note(&format!("loading TPC-H at scale {}", options.scale));
    let sizes = setup::load(&place, &engines, options.scale)?;
    options.rows =
        stock(&place.source())?
            .query_row("SELECT max(rowid) FROM lineitem", [], |row| row.get(0))?;
    let (mut lines, mut grown) = (Vec::new(), Vec::new());
    if !options.no_times {
        let wanted = |workload: &Workload| workload.name.contains(&options.only);
        for workload in workloads::all().iter().filter(|workload| wanted(workload)) {
            lines.push(measure(workload, &place, &engines, &options)?);
        }
        if options.only.is_empty() {
            grown = growth::measure(&place, &engines, &options.sizes, options.rounds)?;
        }
    }
    let counts = match &options.instructions {
        Some(profiles) => instructions::count(&place, &engines, profiles, &options)?,
        None => Vec::new(),
    };
    let mut about: Vec<(&'static str, String)> = Vec::new();
    for engine in &engines {
        if !about.iter().any(|(driver, _)| *driver == engine.driver()) {
            let said = driver::prepare(&place.program(*engine), "about\n")?;
            about.push((engine.driver(), said.trim().to_owned()));
        }
    }
    machine.finished();
    let report = Report {
        machine,
        rounds: options.rounds,
        scale: options.scale,
        about,
        sizes: sizes
            .iter()
            .map(|(engine, size)| (engine.name(), *size))
            .collect(),
        lines,
        grown,
        counts,
    };
    publish(&report, &engines, &options)
}

fn chosen(names: &[String]) -> Result<Vec<Engine>, Failure> {
    for name in names {
        if !Engine::ALL.iter().any(|engine| engine.name() == name) {
            return Err(format!("no engine {name}").into());
        }
    }
    let wanted = |engine: &Engine| {
        names.is_empty()
            || *engine == Engine::Stock
            || names.iter().any(|name| name == engine.name())
    };
    Ok(Engine::ALL.into_iter().filter(wanted).collect())
}

/// All rounds of one workload.
fn measure(
    workload: &Workload,
    place: &Place,
    engines: &[Engine],
    options: &Options,
) -> Result<Line, Failure> {
    note(workload.name);
    let mut samples = vec![Samples::default(); engines.len()];
    for round in 0..options.rounds {
        let mut agreed = None;
        for index in order(engines.len(), round) {
            let engine = engines[index];
            if workload.is_for(engine) {
                let done = workload.once(place, engine, round, options)?;
                agree(&mut agreed, &done.digest, engine, workload.name)?;
                samples[index].push(Duration::from_secs_f64(done.amount));
            }
        }
    }
    let (operations, operation) = workload.operations();
    Ok(Line {
        group: workload.group,
        name: workload.name.to_owned(),
        operations,
        operation,
        bytes: workload.is_bytes(),
        samples: engines
            .iter()
            .map(|engine| engine.name())
            .zip(samples)
            .collect(),
    })
}

fn publish(report: &Report, engines: &[Engine], options: &Options) -> Result<(), Failure> {
    let text = if options.json {
        serde_json::to_string_pretty(report)?
    } else {
        report.markdown(engines)?
    };
    writeln!(std::io::stdout(), "{text}")?;
    let Some(document) = &options.write else {
        return Ok(());
    };
    let beside = document.parent().unwrap_or_else(|| Path::new("."));
    let mut figures = report.markdown(engines)?;
    for (name, title, svg) in [
        (
            "sqlite-peers.svg",
            "Time of each workload as a multiple of stock SQLite's",
            chart::ratios(report, engines)?,
        ),
        (
            "sqlite-growth.svg",
            "Time of a scan by size",
            chart::growth(report, engines)?,
        ),
    ] {
        strongroom_keyring::durable::replace(&beside.join(name), svg.as_bytes(), 0o644)?;
        figures.push_str(&format!("\n![{title}]({name})\n"));
    }
    splice_file(document, SQLITE_PEERS, &figures)
}

#[cfg(test)]
mod tests {
    use super::{agree, chosen, order};
    use crate::engine::Engine;

    #[test]
    fn who_begins_rotates_and_all_have_a_turn() {
        for round in 0..5 {
            let mut turns: Vec<usize> = order(3, round).collect();
            assert_eq!(turns[0], usize::try_from(round).unwrap() % 3);
            turns.sort_unstable();
            assert_eq!(turns, [0, 1, 2]);
        }
    }

    #[test]
    fn another_result_is_refused_and_so_is_an_unknown_engine() {
        let mut agreed = None;
        agree(&mut agreed, "a", Engine::Stock, "w").unwrap();
        agree(&mut agreed, "a", Engine::Gcm, "w").unwrap();
        agree(&mut agreed, "b", Engine::Ctr, "w").unwrap_err();
        assert_eq!(
            chosen(&["mc-aegis".to_owned()]).unwrap(),
            [Engine::Stock, Engine::McAegis]
        );
        chosen(&["other".to_owned()]).unwrap_err();
    }
}
