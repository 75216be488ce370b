//! The options of `strongroom-bench-backup`.
//!
//! Must not: measure.

use std::path::PathBuf;

use clap::Parser;
use strongroom_benches::options::ReportOptions;

/// Backups and restores of one server and one directory: time, processor time, memory, size.
#[derive(Parser)]
#[command(name = "strongroom-bench-backup", version)]
pub(crate) struct Options {
    /// Rounds; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Megabytes of the source, about [default: 2000, with --matrix 256]
    #[arg(long = "size", value_name = "MB", default_value_t = 0)]
    pub(crate) size_mb: u64,
    /// Small and once: to see that everything runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only peers whose name contains this: a tool, "zstd 3", "none", "plain"
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
    /// Four algorithms and none, compressed and not, from disk and memory, to disk and memory:
    /// forty backups of a directory
    #[arg(long)]
    pub(crate) matrix: bool,
    /// With --matrix: a directory of a file system in memory
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    pub(crate) memory: PathBuf,
    /// With --matrix: draw the chart here (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) chart: Option<PathBuf>,
    /// Do not measure, take these results (the JSON of an earlier run)
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
}
