//! The options of `strongroom-bench`.
//!
//! Must not: measure.

use clap::Parser;
use strongroom_benches::options::{ReportOptions, WorkloadOptions};

/// Sealed SQLite beside stock SQLite: scans, TPC-H queries, point reads, updates, bulk load, open
/// latency.
#[derive(Parser)]
#[command(name = "strongroom-bench", version)]
pub(crate) struct Options {
    /// Rounds of each workload; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// TPC-H scale factor
    #[arg(long, default_value_t = 0.1)]
    pub(crate) scale: f64,
    /// Page cache of each connection, in KiB
    #[arg(long, default_value_t = 2000)]
    pub(crate) cache_kib: u32,
    #[command(flatten)]
    pub(crate) workloads: WorkloadOptions,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    /// One round of one peer: what this command runs itself as
    #[arg(long, hide = true, num_args = 3, value_names = ["PEER", "WORKLOAD", "ROUND"])]
    pub(crate) worker: Option<Vec<String>>,
}
