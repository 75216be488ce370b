//! `--metrics FILE`, of the verbs that a scheduler runs.
//!
//! Must not: write the file; that is strongroom-backup's.

use std::path::PathBuf;

use clap::Args;

/// For a monitoring system.
#[derive(Args, Clone, Default)]
pub(super) struct MetricsOptions {
    /// Write how the run went as metrics for Prometheus: a file NAME.prom where `node_exporter`
    /// looks for text files
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

impl MetricsOptions {
    /// Returns the file that `--metrics` names; `None` without it.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.metrics.clone()
    }
}
