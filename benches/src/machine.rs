//! The machine that figures were taken on.
//!
//! Must not: name the host or its user.

use std::fs::read_to_string;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a reader needs to judge a figure.
#[derive(Serialize, Deserialize)]
pub struct Machine {
    /// Processor model, as the kernel names it.
    pub cpu: String,
    /// Logical processors that this process may use.
    pub cores: usize,
    /// Kernel name and release.
    pub kernel: String,
    /// File system type of the directory that was measured in.
    pub filesystem: String,
    /// Version of the bundled SQLite.
    pub sqlite: String,
    /// Version of Strongroom.
    pub strongroom: String,
    /// Runnable processes, mean of the last minute, before the first measurement.
    pub load_before: f64,
    /// The same after the last measurement.
    pub load_after: f64,
}

impl Machine {
    /// This machine, with `directory` as the place of the databases.
    #[must_use]
    pub fn here(directory: &Path) -> Self {
        Self {
            cpu: cpu().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel(),
            filesystem: filesystem(directory).unwrap_or_else(|| "unknown".to_owned()),
            sqlite: rusqlite::version().to_owned(),
            strongroom: env!("CARGO_PKG_VERSION").to_owned(),
            load_before: load(),
            load_after: 0.0,
        }
    }

    /// Processor, kernel and file system, as the reports begin with them.
    #[must_use]
    pub fn shown(&self) -> String {
        format!(
            "Processor: {}, {} logical; {}; {}",
            self.cpu, self.cores, self.kernel, self.filesystem
        )
    }

    /// Notes the load after the work.
    pub fn finished(&mut self) {
        self.load_after = load();
    }
}

fn cpu() -> Option<String> {
    let text = read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kernel() -> String {
    let read = |name: &str| read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", read("ostype").trim(), read("osrelease").trim())
}

/// Load average of the last minute; 0 where the kernel does not tell.
#[must_use]
pub fn load() -> f64 {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// The type of the mount with the longest path that leads to `directory`.
fn filesystem(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = read_to_string("/proc/mounts").ok()?;
    let leading = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (point, kind) = (fields.nth(1)?, fields.next()?);
        directory.starts_with(point).then_some((point.len(), kind))
    });
    // Of two mounts on one point the later one is in force.
    leading
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind.to_owned())
}
