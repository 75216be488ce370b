//! Measures the key server of the released command: keys delivered a second and their latency with
//! many clients at once, and the time until it delivers after a start with many keys, with its
//! records in a sealed SQLite database and in etcd.
//!
//! Load and server share the host. Every delivery is written to the audit log, durably, before it
//! is answered: what is measured is mostly that.
//!
//! Must not: be run against a server that anyone needs.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "prints its figures"
)]

mod fill;
mod load;
mod place;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;

use crate::load::Measured;
use crate::place::{Kind, Place};

/// The key that is asked for.
const NAME: &str = "bench";

/// Measures the key server.
#[derive(Parser)]
struct Arguments {
    /// Where its files go: on the disk that is to be measured
    #[arg(long)]
    directory: PathBuf,
    /// Clients at once
    #[arg(long, default_value_t = 200)]
    clients: usize,
    /// Seconds of each load
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Numbers of keys to start with
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 1_000_000])]
    keys: Vec<usize>,
    /// Show that everything runs: few clients, few keys
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.clients, arguments.seconds) = (10, 2);
        arguments.keys = vec![1000];
    }
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let strongroom =
        std::env::var_os("STRONGROOM_BIN").ok_or("STRONGROOM_BIN names the command")?;
    let strongroom = PathBuf::from(strongroom);
    std::fs::create_dir_all(&arguments.directory)?;
    let mut machine = Machine::here(&arguments.directory);
    let time = Duration::from_secs(arguments.seconds);
    let clients = arguments.clients;
    println!("| store | load | keys a second | half within | 99 % within | longest |");
    println!("|---|---|---|---|---|---|");
    for kind in [Kind::Sqlite, Kind::Etcd] {
        let place = Place::new(kind, &arguments.directory, &strongroom)?;
        let (running, _) = place.start(None)?;
        let client = place.node(NAME)?;
        let open = load::connected(&place.path("."), place.port, NAME, clients, time)?;
        line(kind, &format!("{clients} clients, connections kept"), &open);
        let fresh = load::connecting(&client, NAME, clients, time)?;
        line(
            kind,
            &format!("{clients} clients, a connection for each key"),
            &fresh,
        );
        drop(running);
    }
    println!("\n| store | keys | start until the first key is delivered | memory then |");
    println!("|---|---|---|---|");
    for kind in [Kind::Sqlite, Kind::Etcd] {
        let place = Place::new(kind, &arguments.directory, &strongroom)?;
        let (running, _) = place.start(None)?;
        place.node(NAME)?;
        drop(running);
        let mut filled = 0;
        for &keys in &arguments.keys {
            fill::fill(&place, filled, keys)?;
            filled = keys;
            let (running, took) = place.start(Some(NAME))?;
            let memory = running.resident() / (1024 * 1024);
            println!(
                "| {} | {keys} | {:.2} s | {memory} MiB |",
                kind.name(),
                took.as_secs_f64()
            );
        }
    }
    machine.finished();
    println!("\n{}", machine.shown());
    Ok(())
}

fn line(kind: Kind, load: &str, measured: &Measured) {
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    println!(
        "| {} | {load} | {:.0} | {} | {} | {} |",
        kind.name(),
        measured.per_second,
        ms(measured.half),
        ms(measured.p99),
        ms(measured.longest)
    );
}
