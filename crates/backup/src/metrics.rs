//! Metrics of the last runs, as text that Prometheus reads (exposition format 0.0.4), for the
//! textfile collector of `node_exporter`.
//!
//! Invariants: the file is replaced as a whole; samples of other operations and media stay;
//! counters continue from the values in the file.
//!
//! Must not: contain anything but sizes, times, outcomes and the medium's place: everybody may read
//! the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use strongroom_format::code;
use strongroom_keyring::{Locked, durable};

use crate::history::RunRecord;
use crate::io_error::io_error;
use crate::{Error, Result};

/// How long a run waits for others that write metrics, and how often it tries.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// The longest file that is read back, in bytes.
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

/// For each set of labels, the value of each metric.
type Samples = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds a run to the metrics in the file `path`, which is replaced durably, or made if it is
/// absent. Lines that are not metrics of backups are dropped. Waits up to 5 seconds for other runs
/// that write metrics.
///
/// # Errors
/// SR-5001, also when the path is not that of a regular file of at most 1 MiB, or the lock is not
/// free in time.
pub fn write_metrics(path: &Path, record: &RunRecord) -> Result<()> {
    let failed = |error: io::Error| io_error(path, error);
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Two runs that end at the same time take turns; readers see the old file or the new one.
    let _lock = lock_directory(directory, PATIENCE).map_err(failed)?;
    let mut samples = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Samples::new(),
        Err(error) => return Err(failed(error)),
        Ok(about) if !about.is_file() || about.len() > FILE_MAX => {
            let detail = format!("{}: not a metrics file", path.display());
            return Err(Error::new(&code::IO, detail));
        }
        Ok(_) => parse(&std::fs::read_to_string(path).map_err(failed)?),
    };
    update(samples.entry(labels(record)).or_default(), record);
    durable::replace(path, render(&samples).as_bytes(), 0o644).map_err(failed)
}

/// Locks the directory, so that runs that end at the same time write one after the other. Any user
/// who can open the directory can hold its lock for ever, so that a run waits for `patience` at
/// most, and fails then.
fn lock_directory(directory: &Path, patience: Duration) -> io::Result<Locked> {
    let held = File::open(directory)?;
    let begun = Instant::now();
    loop {
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Locked::from(held)),
            Err(Errno::WOULDBLOCK | Errno::INTR) if begun.elapsed() < patience => {
                std::thread::sleep(LOOK);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("somebody holds its directory's lock"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The labels of a run's samples, as text: its operation and its medium.
fn labels(record: &RunRecord) -> String {
    format!(
        "operation=\"{}\",medium=\"{}\"",
        escape(record.operation()),
        escape(record.medium())
    )
}

/// A value of a label, with the characters escaped that Prometheus requires.
fn escape(text: &str) -> String {
    text.replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

/// Adds a run to the samples of its labels: counts it, and replaces the values of the last run.
/// Sizes and the time of success change only when the run succeeded.
fn update(samples: &mut BTreeMap<String, u64>, record: &RunRecord) {
    let (ended, took) = record.times();
    let done = record.is_done();
    for (name, more) in [("runs_total", 1), ("failures_total", u64::from(!done))] {
        let count = samples.entry(name.to_owned()).or_default();
        *count = count.saturating_add(more);
    }
    let mut set = |name: &str, value: u64| {
        samples.insert(name.to_owned(), value);
    };
    set("last_run_success", u64::from(done));
    set("last_run_exit_code", u64::from(record.exit_code()));
    set("last_run_timestamp_seconds", ended);
    set("last_run_duration_seconds", took);
    if done {
        set("last_success_timestamp_seconds", ended);
        let sizes = [
            ("size_bytes", record.size_bytes()),
            ("stored_bytes", record.stored_bytes()),
        ];
        for (name, size) in sizes {
            if let Some(size) = size {
                set(name, size);
            }
        }
    }
}

/// Parses the samples of a file that an earlier run wrote. Lines of any other origin, and values
/// that are no numbers, are dropped.
fn parse(text: &str) -> Samples {
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

/// The file's text: each metric with its help and type, if it has samples.
fn render(samples: &Samples) -> String {
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
        let refused = lock_directory(place.path(), Duration::from_millis(100));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::Other);
        drop(Locked::from(other));
        assert!(lock_directory(place.path(), Duration::ZERO).is_ok());
    }

    #[test]
    fn what_was_written_is_read_back() {
        let mut samples = Samples::new();
        let odd = format!(
            "operation=\"create\",medium=\"{}\"",
            escape("/a}\" 1\\\n{b")
        );
        for (at, labels) in [(1, odd.as_str()), (7, "operation=\"verify\",medium=\"m\"")] {
            for (name, ..) in METRICS {
                let of = samples.entry(labels.to_owned()).or_default();
                of.insert(name.to_owned(), at);
            }
        }
        let written = render(&samples);
        assert_eq!(parse(&written), samples);
        assert_eq!(render(&parse(&written)), written);
        let noise = "# HELP x\nstrongroom_backup_other{a=\"b\"} 1\nstrongroom_backup_runs_total 3\nx{} 1\n\n";
        assert_eq!(parse(noise), Samples::new());
    }
}
