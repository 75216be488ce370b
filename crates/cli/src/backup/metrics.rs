//! `--metrics FILE`: how the last runs went, as text that Prometheus reads (exposition format 0.0.4), for the textfile collector of
//! `node_exporter`.
//!
//! Invariants: the file is replaced whole; what it says of other operations and media stays; counters grow from what it says.
//!
//! Must not: tell anything but sizes, times, outcomes, and where the medium is: everybody may read it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use strongroom_format::code;
use strongroom_keyring::{Locked, durable};

use super::history::Entry;
use crate::failure::Failure;

/// For a monitoring system.
#[derive(Args, Clone, Default)]
pub(super) struct MetricsOptions {
    /// Write how the run went as metrics for Prometheus: a file NAME.prom where `node_exporter` looks for text files
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

impl MetricsOptions {
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.metrics.clone()
    }
}

/// How long other runs that write metrics are waited for, and how often is looked.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// Longest file that is read back, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Name without its prefix, type, meaning.
const METRICS: [(&str, &str, &str); 9] = [
    ("runs_total", "counter", "Runs that ended, whichever way."),
    ("failures_total", "counter", "Runs that failed."),
    (
        "last_run_success",
        "gauge",
        "Whether the last run did what it was to do: 1 or 0.",
    ),
    (
        "last_run_exit_code",
        "gauge",
        "The exit code of the last run's error, 0 without one.",
    ),
    (
        "last_run_timestamp_seconds",
        "gauge",
        "When the last run ended, in seconds since the Unix epoch.",
    ),
    (
        "last_run_duration_seconds",
        "gauge",
        "How long the last run took.",
    ),
    (
        "last_success_timestamp_seconds",
        "gauge",
        "When the last run ended that did what it was to do, in seconds since the Unix epoch.",
    ),
    (
        "size_bytes",
        "gauge",
        "Bytes of the files that the last such run made, verified or archived.",
    ),
    ("stored_bytes", "gauge", "Bytes of them on the medium."),
];
const PREFIX: &str = "strongroom_backup_";

/// Labels, and the values by metric.
type Samples = BTreeMap<String, BTreeMap<String, u64>>;

/// Writes how a run went.
pub(super) fn tell(path: &Path, entry: &Entry) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(path, &error);
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Two runs that end at the same time take turns; readers see the old file or the new one.
    let _turn = turn(directory, PATIENCE).map_err(failed)?;
    let mut samples = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Samples::new(),
        Err(error) => return Err(failed(error)),
        Ok(about) if !about.is_file() || about.len() > FILE_MAX => {
            let detail = format!("{}: not a file of metrics", path.display());
            return Err(Failure::new(&code::IO, detail));
        }
        Ok(_) => parsed(&std::fs::read_to_string(path).map_err(failed)?),
    };
    update(samples.entry(labels(entry)).or_default(), entry);
    durable::replace(path, text(&samples).as_bytes(), 0o644).map_err(failed)
}

/// Keeps other runs from writing while it lives. Whoever can open the directory can hold its lock for ever, so nobody waits for ever.
fn turn(directory: &Path, patience: Duration) -> std::io::Result<Locked> {
    let held = File::open(directory)?;
    let begun = Instant::now();
    loop {
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Locked::from(held)),
            Err(Errno::WOULDBLOCK | Errno::INTR) if begun.elapsed() < patience => {
                std::thread::sleep(LOOK);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(std::io::Error::other("somebody holds its directory's lock"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn labels(entry: &Entry) -> String {
    format!(
        "operation=\"{}\",medium=\"{}\"",
        escaped(entry.operation()),
        escaped(entry.medium())
    )
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

fn update(samples: &mut BTreeMap<String, u64>, entry: &Entry) {
    let (ended, took) = entry.times();
    let done = entry.is_done();
    for (name, more) in [("runs_total", 1), ("failures_total", u64::from(!done))] {
        let count = samples.entry(name.to_owned()).or_default();
        *count = count.saturating_add(more);
    }
    let mut set = |name: &str, value: u64| {
        samples.insert(name.to_owned(), value);
    };
    set("last_run_success", u64::from(done));
    set("last_run_exit_code", u64::from(entry.exit_code()));
    set("last_run_timestamp_seconds", ended);
    set("last_run_duration_seconds", took);
    if done {
        set("last_success_timestamp_seconds", ended);
        let sizes = [
            ("size_bytes", entry.size_bytes()),
            ("stored_bytes", entry.stored_bytes()),
        ];
        for (name, size) in sizes {
            if let Some(size) = size {
                set(name, size);
            }
        }
    }
}

/// What this program wrote before. Any other line is dropped: the file is this program's.
fn parsed(text: &str) -> Samples {
    let mut samples = Samples::new();
    for line in text.lines() {
        let Some((name, rest)) = line
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('{'))
        else {
            continue;
        };
        // Labels may have a brace in them; a value has none.
        let Some((labels, value)) = rest.rsplit_once("} ") else {
            continue;
        };
        let known = METRICS.iter().any(|(known, ..)| *known == name);
        if let (true, Ok(value)) = (known, value.parse()) {
            let of = samples.entry(labels.to_owned()).or_default();
            of.insert(name.to_owned(), value);
        }
    }
    samples
}

fn text(samples: &Samples) -> String {
    let mut out = String::new();
    for (name, sort, help) in METRICS {
        let found: Vec<String> = samples
            .iter()
            .filter_map(|(labels, values)| {
                let value = values.get(name)?;
                Some(format!("{PREFIX}{name}{{{labels}}} {value}\n"))
            })
            .collect();
        if !found.is_empty() {
            out.push_str(&format!("# HELP {PREFIX}{name} {help}\n"));
            out.push_str(&format!("# TYPE {PREFIX}{name} {sort}\n"));
            out.push_str(&found.concat());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_somebody_holds_is_not_waited_for_without_end() {
        let place = tempfile::tempdir().unwrap();
        let other = File::open(place.path()).unwrap();
        flock(&other, FlockOperation::LockShared).unwrap();
        let refused = turn(place.path(), Duration::from_millis(100));
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::Other);
        drop(Locked::from(other));
        assert!(turn(place.path(), Duration::ZERO).is_ok());
    }

    #[test]
    fn what_was_written_is_read_back() {
        let mut samples = Samples::new();
        let odd = format!(
            "operation=\"create\",medium=\"{}\"",
            escaped("/a}\" 1\\\n{b")
        );
        for (at, labels) in [(1, odd.as_str()), (7, "operation=\"verify\",medium=\"m\"")] {
            for (name, ..) in METRICS {
                let of = samples.entry(labels.to_owned()).or_default();
                of.insert(name.to_owned(), at);
            }
        }
        let written = text(&samples);
        assert_eq!(parsed(&written), samples);
        assert_eq!(text(&parsed(&written)), written);
        let noise = "# HELP x\nstrongroom_backup_other{a=\"b\"} 1\nstrongroom_backup_runs_total 3\nx{} 1\n\n";
        assert_eq!(parsed(noise), Samples::new());
    }
}
