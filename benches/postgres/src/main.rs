//! `strongroom-bench-postgres`: a sealed PostgreSQL instance beside a plain one, in one run.
//!
//! Invariants:
//! 1. Rounds are interleaved: each workload runs on all three peers before its next round, and who
//!    begins rotates.
//! 2. A round counts only if all peers gave the same result (B2).
//! 3. The plain peer's server never has the shield in it, the others' always (B3); rows on the disk
//!    are looked at once.
//!
//! Must not: leave a server or a file behind, or listen on a network.

mod instructions;
mod options;
mod peer;
mod pgbench;
mod report;
mod setup;
mod workloads;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use strongroom_benches::machine::Machine;
use strongroom_benches::splice::{POSTGRES, POSTGRES_INSTRUCTIONS, splice_file};
use strongroom_benches::{Failure, note};

use crate::options::{Options, Sizes};
use crate::peer::{Node, Peer};
use crate::report::{Line, Report};
use crate::setup::{LARGE, Workshop};
use crate::workloads::Workload;

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

fn run(options: &Options) -> Result<(), Failure> {
    let mut machine = Machine::here(&options.report.directory);
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
        if !options.workloads.has(workload.name) {
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
    let text = if options.report.json {
        report.json()?
    } else {
        table.clone()
    };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.report.write {
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
    let text = if options.report.json {
        serde_json::to_string_pretty(&counted)?
    } else {
        table.clone()
    };
    writeln!(std::io::stdout(), "{text}")?;
    match &options.report.write {
        Some(path) => splice_file(path, POSTGRES_INSTRUCTIONS, &table),
        None => Ok(()),
    }
}
