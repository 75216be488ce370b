//! Transactional throughput of confidential columns compared with plain PostgreSQL: TPC-C, and
//! loops of sysbench's kind, with one to eight connections.
//!
//! Both servers run at the same time and are measured in turn, so that a change of the machine's
//! speed affects both; they flush at each commit. Connections to the plain server are direct, those
//! to the other one go through the proxy. Medians of the rounds are printed as a table for
//! docs/benchmarks.md. The program needs what the tests need (`STRONGROOM_COMMAND`, an installed
//! extension), and reads `STRONGROOM_BENCH_SECONDS` (of a round), `STRONGROOM_BENCH_ROUNDS`,
//! `STRONGROOM_BENCH_WAREHOUSES` and `STRONGROOM_BENCH_PART` (the divisor of the specification's
//! numbers of customers and items). Must not: leave out a round.
#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_benches_oltp::tpcc::transactions::{Kind, Outcome, User};
use strongroom_benches_oltp::tpcc::{Scale, consistency, load};
use strongroom_benches_oltp::wire::{Client, Failure};
use strongroom_benches_oltp::{Schema, run, simple};
use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

const SETTINGS: &str = "fsync = on\nsynchronous_commit = on\nshared_buffers = 512MB\nmax_wal_size = 4GB\nmax_connections = 40\ncheckpoint_timeout = 30min";
const CONNECTIONS: [u32; 4] = [1, 2, 4, 8];
const ROWS: u32 = 50_000;
const SEED: u64 = 20_240_501;
const NOW: &str = "2024-05-02 08:30:00";
/// Memory of the zone's store, in MiB.
const MEMORY: u32 = 2048;

/// The number in an environment variable, or `default`.
fn number(variable: &str, default: u32) -> u32 {
    let given = std::env::var(variable).ok();
    given
        .and_then(|given| given.parse().ok())
        .unwrap_or(default)
}

/// Runs the same work on plain and on confidential columns in turn; the rates of all rounds of
/// each.
fn run_in_turn(
    sockets: [&Path; 2],
    rounds: u32,
    connections: u32,
    time: Duration,
    work: impl Fn(&mut Client, u32, &mut fastrand::Rng) -> Result<bool, Failure> + Sync,
) -> Result<[Vec<f64>; 2], Failure> {
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        // The server that is measured first alternates from round to round.
        for turn in 0..2 {
            let which = usize::try_from((round + turn) % 2).unwrap_or_default();
            let (Some(socket), Some(rates)) = (sockets.get(which), rates.get_mut(which)) else {
                continue;
            };
            let (count, taken) = run::run(socket, connections, time, &work)?;
            rates.push(count.rate(taken));
        }
    }
    Ok(rates)
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Difference between the highest and the lowest rate, in percent of the median.
fn spread(rates: &[f64]) -> f64 {
    let (low, high) = rates
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), rate| {
            (low.min(*rate), high.max(*rate))
        });
    (high - low) / median(rates) * 100.0
}

/// Prints a row of the table.
fn print_row(name: &str, connections: u32, [plain, ours]: &[Vec<f64>; 2]) {
    let (one, two) = (median(plain), median(ours));
    println!(
        "| {name} | {connections} | {one:.1} ({:.0} %) | {two:.1} ({:.0} %) | {:.0} % |",
        spread(plain),
        spread(ours),
        two / one * 100.0
    );
}

fn tpcc(sockets: [&Path; 2], scale: Scale, rounds: u32, time: Duration) -> Result<(), Failure> {
    for (socket, schema) in sockets.iter().zip([Schema::Plain, Schema::Confidential]) {
        load::load(&mut Client::connect(socket)?, schema, scale, SEED)?;
    }
    for connections in CONNECTIONS {
        let rates = run_in_turn(
            sockets,
            rounds,
            connections,
            time,
            |client, number, random| {
                let kind = Kind::draw(random);
                let warehouse = number % scale.warehouses + 1;
                let mut user = User {
                    client,
                    random,
                    scale,
                    warehouse,
                    now: NOW,
                };
                let outcome = user.transact(kind)?;
                Ok(matches!(outcome, Outcome::Ordered(..)))
            },
        )?;
        print_row("TPC-C, New-Orders a second", connections, &rates);
    }
    for socket in sockets {
        let broken = consistency::broken(&mut Client::connect(socket)?)?;
        if !broken.is_empty() {
            println!("\nNot consistent: {}", broken.join("; "));
        }
    }
    Ok(())
}

fn loops(sockets: [&Path; 2], rounds: u32, time: Duration) -> Result<(), Failure> {
    for (socket, schema) in sockets.iter().zip([Schema::Plain, Schema::Confidential]) {
        simple::load(&mut Client::connect(socket)?, schema, ROWS, SEED)?;
    }
    for (kind, name) in simple::Kind::ALL {
        for connections in CONNECTIONS {
            let rates = run_in_turn(sockets, rounds, connections, time, |client, _, random| {
                simple::transact(client, random, kind, ROWS).map(|()| true)
            })?;
            print_row(
                &format!("{name}, transactions a second"),
                connections,
                &rates,
            );
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let part = number("STRONGROOM_BENCH_PART", 10).max(1);
    let scale = Scale {
        warehouses: number("STRONGROOM_BENCH_WAREHOUSES", 4),
        customers: Scale::SPECIFIED.customers / part,
        items: Scale::SPECIFIED.items / part,
        ..Scale::SPECIFIED
    };
    let rounds = number("STRONGROOM_BENCH_ROUNDS", 3);
    let time = Duration::from_secs(u64::from(number("STRONGROOM_BENCH_SECONDS", 10)));
    let mut owner = Owner::new();
    owner.start_zone_with(MEMORY, &[]);
    let server = Server::start(&owner.zone_socket(), SETTINGS);
    let _made = server.rows("create extension strongroom_columns");
    owner.start_proxy_deriving(server.socket());
    let plain = Server::start(Path::new("/nowhere"), SETTINGS);
    let ours: PathBuf = owner.proxy_directory();
    let sockets = [plain.socket(), ours.as_path()];
    println!(
        "{} warehouses, one in {part} of the specification's customers and items; {rounds} rounds of {} s; in brackets the spread\n",
        scale.warehouses,
        time.as_secs()
    );
    println!("| load | connections | plain | confidential | share |\n|---|---|---|---|---|");
    tpcc(sockets, scale, rounds, time)?;
    loops(sockets, rounds, time)
}
