//! The options of `strongroom-bench-sqlite`, and what holds for every comparison: in which order
//! engines take their turns, and that all of them return the same.
//!
//! Must not: measure.

use std::path::PathBuf;

use clap::Parser;
use strongroom_benches::Failure;
use strongroom_benches::options::{ReportOptions, WorkloadOptions};

use crate::engine::Engine;

/// Sealed SQLite beside stock SQLite, `SQLCipher` and `SQLite3` Multiple Ciphers.
#[derive(Parser)]
#[command(name = "strongroom-bench-sqlite", version)]
pub(crate) struct Options {
    /// Where build-peers put the drivers
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) drivers: PathBuf,
    /// The VFS: `libstrongroom_sqlite.so`
    #[arg(long, value_name = "FILE")]
    pub(crate) extension: PathBuf,
    /// Rounds of each workload; the table shows medians
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// TPC-H scale factor
    #[arg(long, default_value_t = 0.1)]
    pub(crate) scale: f64,
    #[command(flatten)]
    pub(crate) workloads: WorkloadOptions,
    /// Only these engines, separated by commas; stock is always among them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) engines: Vec<String>,
    /// Sizes in MiB at which growth is measured; `--sizes 10,100,1000,4000` takes an hour and 40
    /// GiB
    #[arg(long, value_name = "MIB", value_delimiter = ',', default_values_t = [10_u32, 100])]
    pub(crate) sizes: Vec<u32>,
    /// Count instructions too, with valgrind, and keep its profiles here
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) instructions: Option<PathBuf>,
    /// Measure no times
    #[arg(long)]
    pub(crate) no_times: bool,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    /// Rows of lineitem, once they are known
    #[arg(skip)]
    pub(crate) rows: u32,
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
