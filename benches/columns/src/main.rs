//! `strongroom-bench-columns`: the 22 queries of TPC-H on confidential columns, through the proxy,
//! beside plain PostgreSQL.
//!
//! Invariants: both servers have the same rows, indexes and settings; rounds are interleaved, and
//! the server that begins alternates; a round counts only if both gave the same rows. Environment:
//! `STRONGROOM_COMMAND` names the command, `PGRX_PG_CONFIG_PATH` the `pg_config` of the PostgreSQL
//! 15 that has the extension. Must not: leave a process or a file behind.

mod measured;
mod options;
mod peers;
mod report;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::splice::{COLUMNS, COLUMNS_LARGE, splice_file};
use strongroom_columns_testing::tpch;

use crate::measured::{Figures, QueryRuns, Runs};
use crate::options::Options;
use crate::peers::Peers;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("strongroom-bench-columns: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes progress and failures to standard error.
fn note(text: &str) {
    // A closed standard error is ignored.
    let written = writeln!(std::io::stderr(), "{text}");
    drop(written);
}

fn run(options: &Options) -> Result<(), Failure> {
    let directory = std::env::temp_dir();
    let mut machine = Machine::here(&directory);
    note("loading");
    let (mut peers, load) = Peers::start(options.scale, options.memory)?;
    let mut lines = Vec::new();
    for number in 1..=tpch::QUERIES {
        if !options.only.is_empty() && !options.only.contains(&number) {
            continue;
        }
        note(&format!("query {number}"));
        lines.push(run_query(&peers, number, options)?);
    }
    note("recovery");
    let recovery = peers.recover()?;
    let sizes = peers.sizes()?;
    machine.finished();
    let measured = Figures {
        lines,
        sizes,
        load,
        recovery,
    };
    let table = report::markdown(&measured, &machine, options)?;
    writeln!(std::io::stdout(), "{table}")?;
    let markers = if options.scale < 1.0 {
        COLUMNS
    } else {
        COLUMNS_LARGE
    };
    match &options.write {
        Some(path) => splice_file(path, markers, &table),
        None => Ok(()),
    }
}

fn run_query(peers: &Peers, number: u32, options: &Options) -> Result<QueryRuns, Failure> {
    let text = tpch::query(number, options.scale);
    if options.plans {
        note(&peers.plan(&text)?);
    }
    let mut line = QueryRuns {
        number,
        plain: Runs::default(),
        ours: Runs::default(),
    };
    for round in 0..options.rounds {
        let (plain, ours) = if round % 2 == 0 {
            let plain = peers.plain(&text)?;
            (plain, peers.ours(&text)?)
        } else {
            let ours = peers.ours(&text)?;
            (peers.plain(&text)?, ours)
        };
        if plain.1 != ours.1 {
            return Err(format!("query {number}: not the same rows").into());
        }
        line.plain.push(plain.0);
        line.ours.push(ours.0);
    }
    Ok(line)
}
