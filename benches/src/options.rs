//! Options that the benchmarks have in common.
//!
//! Must not: measure.

use std::path::PathBuf;

use clap::Args;

/// Where a benchmark works, and where its report goes.
#[derive(Args)]
pub struct ReportOptions {
    /// Where everything is made, and removed again
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub directory: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Also put the table between its markers in this document, and charts beside it
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Which workloads are run.
#[derive(Args)]
pub struct WorkloadOptions {
    /// Only workloads whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

impl WorkloadOptions {
    /// Whether the workload of this name is run.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    /// Whether every workload is run.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.only.is_empty()
    }
}
