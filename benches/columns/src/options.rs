//! The command line of the benchmark.

use std::path::PathBuf;

use clap::Parser;

/// TPC-H on confidential columns beside plain PostgreSQL.
#[derive(Parser)]
#[command(name = "strongroom-bench-columns", version)]
pub(crate) struct Options {
    /// TPC-H's scale: 1 is 6 million rows of the largest table
    #[arg(long, default_value_t = 0.1)]
    pub(crate) scale: f64,
    /// Rounds of each query; the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Memory of the zone for values, in MB
    #[arg(long, value_name = "MB", default_value_t = 2048)]
    pub(crate) memory: u32,
    /// Only these queries
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    pub(crate) only: Vec<u32>,
    /// Also print the plan of each query on confidential columns, with what was counted
    #[arg(long)]
    pub(crate) plans: bool,
    /// Also put the table between its markers in this document
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
}
