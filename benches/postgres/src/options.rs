//! The options of `strongroom-bench-postgres`, and the sizes that its report names.
//!
//! Must not: measure.

use clap::Parser;
use serde::Serialize;
use strongroom_benches::options::{ReportOptions, WorkloadOptions};

/// Sealed PostgreSQL beside plain PostgreSQL: pgbench in and out of the page cache, COPY, CREATE
/// TABLE AS, spills, recovery.
#[derive(Parser)]
#[command(name = "strongroom-bench-postgres", version)]
pub(crate) struct Options {
    /// Rounds of each workload; the table shows medians [default: 5, with --instructions 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// pgbench's scale: 15 MB for each unit; further tables grow with it
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) scale: u32,
    /// The page cache (shared buffers) of each server, in MB; pgbench's scale 1 must fit, the scale
    /// above should not
    #[arg(long, value_name = "MB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(24..))]
    pub(crate) shared_buffers: u32,
    /// pgbench's clients
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,
    /// pgbench's transactions, for each client, in a round; fewer where they write
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(4..))]
    pub(crate) transactions: u32,
    #[command(flatten)]
    pub(crate) workloads: WorkloadOptions,
    /// Count instructions of single processes instead of time
    #[arg(long)]
    pub(crate) instructions: bool,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
}

impl Options {
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.instructions { 1 } else { 5 })
    }
}

/// Sizes that explain the figures, in bytes.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Sizes {
    /// The database that does not fit into the page cache.
    pub(crate) large: u64,
    /// The one that does.
    pub(crate) small: u64,
    /// WAL that was replayed after a kill; 0 when nothing was.
    pub(crate) replayed: u64,
}
