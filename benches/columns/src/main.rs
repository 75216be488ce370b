//! `strongroom-bench-columns`: the 22 queries of TPC-H on confidential columns, through the proxy, beside plain PostgreSQL.
//!
//! Invariants: both servers have the same rows, indexes and settings; rounds are interleaved, and who begins alternates; a round counts only
//! if both gave the same rows. Environment: `STRONGROOM_COMMAND` names the command, `PGRX_PG_CONFIG_PATH` the `pg_config` of the
//! PostgreSQL 15 that has the extension. Must not: leave a process or a file behind.

mod peers;
mod report;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::splice::{COLUMNS, COLUMNS_LARGE, splice_file};
use strongroom_benches::stats::Samples;
use strongroom_columns_testing::tpch;

use crate::peers::{Peers, Sizes};

/// TPC-H on confidential columns beside plain PostgreSQL.
#[derive(Parser)]
#[command(name = "strongroom-bench-columns", version)]
struct Options {
    /// TPC-H's scale: 1 is 6 million rows of the largest table
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Rounds of each query; the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Memory of the zone for values, in MB
    #[arg(long, value_name = "MB", default_value_t = 2048)]
    memory: u32,
    /// Only these queries
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    only: Vec<u32>,
    /// Also put the table between its markers in this document
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What one run of a query took.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// From the query's sending to its last row, as psql measures it.
    wall: Duration,
    /// Processor time of the server, and of the zone.
    server: Duration,
    zone: Duration,
}

/// All runs of a query on one peer.
#[derive(Default)]
struct Runs {
    wall: Samples,
    server: Samples,
    zone: Samples,
}

impl Runs {
    fn push(&mut self, taken: Taken) {
        self.wall.push(taken.wall);
        self.server.push(taken.server);
        self.zone.push(taken.zone);
    }
}

/// A query's runs on both peers.
struct Line {
    number: u32,
    plain: Runs,
    ours: Runs,
}

/// Everything that was measured.
struct Measured {
    lines: Vec<Line>,
    sizes: Sizes,
    /// Loading: plain, ours.
    load: [Duration; 2],
    /// From the start after a kill to the first answer: plain, ours.
    recovery: [Duration; 2],
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("strongroom-bench-columns: {error}"));
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
        lines.push(query(&peers, number, options)?);
    }
    note("recovery");
    let recovery = peers.recover()?;
    let sizes = peers.sizes()?;
    machine.finished();
    let measured = Measured {
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

fn query(peers: &Peers, number: u32, options: &Options) -> Result<Line, Failure> {
    let text = tpch::query(number, options.scale);
    let mut line = Line {
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
