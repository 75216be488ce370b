//! `strongroom-bench-sqlite`: the VFS beside `SQLCipher` and `SQLite3` Multiple Ciphers, in one
//! run.
//!
//! Invariants:
//! 1. Rounds are interleaved: each workload runs on all engines before its next round, and who
//!    begins rotates.
//! 2. A round counts only if all engines returned the same (B2).
//! 3. Every round of every engine is a process of its own: one C program, compiled with each engine
//!    by the same options.
//! 4. An engine's file was searched for what it holds before anything is measured.
//! 5. The files that are read were all written in one way, by a copy.
//!
//! Must not: leave anything behind, or build an engine (build-peers does).

mod chart;
mod driver;
mod engine;
mod growth;
mod instructions;
mod options;
mod report;
mod setup;
mod workloads;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use strongroom_benches::machine::Machine;
use strongroom_benches::splice::{SQLITE_PEERS, splice_file};
use strongroom_benches::stats::Samples;
use strongroom_benches::variant::stock;
use strongroom_benches::{Failure, note};

use crate::engine::Engine;
use crate::options::{Options, agree, order};
use crate::report::{Line, Report};
use crate::setup::Place;
use crate::workloads::Workload;

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("strongroom-bench-sqlite: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(mut options: Options) -> Result<(), Failure> {
    let engines = chosen(&options.engines)?;
    let mut machine = Machine::here(&options.report.directory);
    let place = Place::make(
        &options.report.directory,
        &options.drivers,
        &options.extension,
    )?;
    note(&format!("loading TPC-H at scale {}", options.scale));
    let sizes = setup::load(&place, &engines, options.scale)?;
    options.rows =
        stock(&place.source())?
            .query_row("SELECT max(rowid) FROM lineitem", [], |row| row.get(0))?;
    let (mut lines, mut grown) = (Vec::new(), Vec::new());
    if !options.no_times {
        let wanted = |workload: &Workload| options.workloads.has(workload.name);
        for workload in workloads::all().iter().filter(|workload| wanted(workload)) {
            lines.push(measure(workload, &place, &engines, &options)?);
        }
        if options.workloads.has_all() {
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
    let text = if options.report.json {
        serde_json::to_string_pretty(report)?
    } else {
        report.markdown(engines)?
    };
    writeln!(std::io::stdout(), "{text}")?;
    let Some(document) = &options.report.write else {
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
