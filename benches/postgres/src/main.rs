//! `strongroom-bench-postgres`: a sealed PostgreSQL instance beside a plain one, in one run.
//!
//! Invariants:
//! 1. Rounds are interleaved: each workload runs on all three peers before its next round, and who begins rotates.
//! 2. A round counts only if all peers gave the same result (B2).
//! 3. The plain peer's server never has the shield in it, the others' always (B3); rows on the disk are looked at once.
//!
//! Must not: leave a server or a file behind, or listen on a network.

mod instructions;
mod peer;
mod pgbench;
mod report;
mod setup;
mod workloads;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::splice::{POSTGRES, POSTGRES_INSTRUCTIONS, splice_file};

use crate::peer::{Node, Peer};
use crate::report::{Line, Report};
use crate::setup::{LARGE, Workshop};
use crate::workloads::Workload;

/// Sealed PostgreSQL beside plain PostgreSQL: pgbench in and out of the page cache, COPY, CREATE TABLE AS, spills, recovery.
#[derive(Parser)]
#[command(name = "strongroom-bench-postgres", version)]
struct Options {
    /// Rounds of each workload; the table shows medians [default: 5, with --instructions 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// pgbench's scale: 15 MB for each unit; further tables grow with it
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// The page cache (shared buffers) of each server, in MB; pgbench's scale 1 must fit, the scale above should not
    #[arg(long, value_name = "MB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(24..))]
    shared_buffers: u32,
    /// pgbench's clients
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// pgbench's transactions, for each client, in a round; fewer where they write
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(4..))]
    transactions: u32,
    /// Only workloads whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Count instructions of single processes instead of time
    #[arg(long)]
    instructions: bool,
    /// Where the data directories are made, and removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Also put the table between its markers in this document
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl Options {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.instructions { 1 } else { 5 })
    }
}

/// Sizes that explain the figures, in bytes.
#[derive(Clone, Copy, Serialize)]
struct Sizes {
    /// The database that does not fit into the page cache.
    large: u64,
    /// The one that does.
    small: u64,
    /// WAL that was replayed after a kill; 0 when nothing was.
    replayed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.instructions {
        count(&options)
    } else {
        run(&options)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("strongroom-bench-postgres: {error}"));
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
    let workshop = Workshop::open(options)?;
    let mut nodes = workshop.nodes(options)?;
    for node in &nodes {
        setup::fill(node, options.scale)?;
    }
    let plain = nodes.first().ok_or("no peers")?;
    setup::export(plain, LARGE, &workshop.rows())?;
    let mut sizes = Sizes::of(plain)?;
    let mut lines = Vec::new();
    for workload in workloads::all() {
        if !workload.name.contains(&options.only) {
            continue;
        }
        note(workload.name);
        let mut line = workload.line(options);
        for round in 0..options.rounds() {
            let rows = workshop.rows();
            rotate(
                &mut line, workload, &mut nodes, &rows, round, options, &mut sizes,
            )?;
        }
        lines.push(line);
    }
    for node in &mut nodes {
        node.stop()?;
    }
    machine.finished();
    let version = workshop.place.tools.version()?;
    let report = Report::of(machine, version, sizes, lines, options);
    let table = report.markdown()?;
    let text = if options.json {
        report.json()?
    } else {
        table.clone()
    };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.write {
        Some(path) => splice_file(path, POSTGRES, &table),
        None => Ok(()),
    }
}

/// One round on all peers, in the order of the round: who begins rotates.
fn rotate(
    line: &mut Line,
    workload: Workload,
    nodes: &mut [Node<'_>],
    rows: &str,
    round: u32,
    options: &Options,
    sizes: &mut Sizes,
) -> Result<(), Failure> {
    let first = usize::try_from(round).unwrap_or(0) % Peer::ALL.len();
    let mut agreed: Option<String> = None;
    for turn in 0..nodes.len() {
        let index = (first + turn) % nodes.len();
        let node = nodes.get_mut(index).ok_or("no such peer")?;
        let name = node.peer.name();
        let done = workload
            .once(node, rows, round, options, sizes)
            .map_err(|error| format!("{}: {name}: {error}", line.name))?;
        line.push(node.peer, &done);
        if agreed.get_or_insert_with(|| done.result.clone()) != &done.result {
            return Err(format!("{}: {name} returned something else", line.name).into());
        }
    }
    Ok(())
}

fn count(options: &Options) -> Result<(), Failure> {
    let counted = instructions::count(options)?;
    let table = counted.markdown()?;
    let text = if options.json {
        serde_json::to_string_pretty(&counted)?
    } else {
        table.clone()
    };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.write {
        Some(path) => splice_file(path, POSTGRES_INSTRUCTIONS, &table),
        None => Ok(()),
    }
}
