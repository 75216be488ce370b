//! What a program used: its time, the processor time and memory of it and of all that it started.
//!
//! The kernel adds a process's use to its parent's account when the parent waits for it. So each
//! program that is measured has a parent of its own, this one in another process
//! (`strongroom-bench-backup measured FILE PROGRAM ...`), whose account holds nothing else. Memory
//! is that of the largest single process: of a pipe's, the largest part.
//!
//! Must not: measure anything but that program.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};
use serde::{Deserialize, Serialize};
use strongroom_benches::Failure;
use strongroom_benches::postgres::failed;

/// The word that makes this program the parent of another one.
pub(crate) const WORD: &str = "measured";

/// What a program used.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    /// From its start to its end, in seconds.
    pub(crate) wall_s: f64,
    /// User and system time of all its processes, in seconds.
    pub(crate) cpu_s: f64,
    /// Resident memory of the largest of them at its peak, in bytes.
    pub(crate) peak_bytes: u64,
}

impl Used {
    /// As durations: of the clock, of processors.
    pub(crate) fn times(&self) -> [Duration; 2] {
        [self.wall_s, self.cpu_s].map(Duration::from_secs_f64)
    }
}

/// Runs `parent`, a command of this program with [`WORD`] that leaves what was used at `account`.
pub(crate) fn run(parent: &mut Command, account: &Path) -> Result<Used, Failure> {
    let shown = format!("{parent:?}");
    let output = parent.output()?;
    if !output.status.success() {
        return Err(failed(&shown, &output));
    }
    let used = serde_json::from_slice(&std::fs::read(account)?)?;
    std::fs::remove_file(account)?;
    Ok(used)
}

/// In the process of its own: runs the program and leaves its account. The program's failure is
/// this one's.
pub(crate) fn as_parent(arguments: &[OsString]) -> ExitCode {
    match account(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let told = writeln!(std::io::stderr(), "{WORD}: {error}");
            drop(told);
            ExitCode::FAILURE
        }
    }
}

fn account(arguments: &[OsString]) -> Result<bool, Failure> {
    let [file, program, rest @ ..] = arguments else {
        return Err("a file and a program are missing".into());
    };
    let begin = Instant::now();
    let status = Command::new(program).args(rest).status()?;
    let wall_s = begin.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let used = Used {
        wall_s,
        cpu_s: seconds(usage.user_time()) + seconds(usage.system_time()),
        // In KiB (getrusage(2)).
        peak_bytes: u64::try_from(usage.max_rss())?.saturating_mul(1024),
    };
    let mut out = std::fs::File::create_new(file)?;
    out.write_all(&serde_json::to_vec(&used)?)?;
    Ok(status.success())
}

fn seconds(time: TimeVal) -> f64 {
    time.num_microseconds() as f64 / 1e6
}
