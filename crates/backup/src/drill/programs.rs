//! How the programs of a restore test are run: their output goes to files without names, and a
//! signal ends them.
//!
//! Must not: put what a program prints where another user can read it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, ExitStatus, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use strongroom_format::code;
use strongroom_format::text::printable;

use crate::{Error, Result};

/// Longest output of a program or server that an error shows, in characters.
const WORDS_MAX: usize = 2000;
/// How often a running program is polled.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Runs a program to its end, or kills it when `stop` is set. Its output goes to memory, so that it
/// needs no reader and no name leads to it.
///
/// # Errors
/// SR-7164 when it cannot be run; SR-5001, also when it was stopped. Its exit status is not
/// checked.
pub(super) fn run(name: &str, mut command: Command, stop: &AtomicBool) -> Result<Output> {
    let (out, err) = (unnamed_file()?, unnamed_file()?);
    command.stdout(duplicate(&out)?).stderr(duplicate(&err)?);
    let status = wait_for(name, &mut command, stop)?;
    Ok(Output {
        status,
        stdout: read_all(&out)?,
        stderr: read_all(&err)?,
    })
}

/// Makes a file in memory without a name. SR-5001 when that fails.
pub(super) fn unnamed_file() -> Result<File> {
    let made = memfd_create("strongroom", MemfdFlags::CLOEXEC);
    let made = made.map_err(|error| Error::new(&code::IO, error.to_string()))?;
    Ok(made.into())
}

/// Makes a second descriptor of the same open file. SR-5001 when that fails.
pub(super) fn duplicate(file: &File) -> Result<File> {
    let copy = file.try_clone();
    copy.map_err(|error| Error::new(&code::IO, error.to_string()))
}

/// Reads all of a file from its beginning; neither its own nor its writer's offset matters. SR-5001
/// when that fails.
pub(super) fn read_all(file: &File) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::new(&code::IO, error.to_string());
    let length = usize::try_from(file.metadata().map_err(failed)?.len()).unwrap_or(usize::MAX);
    let mut said = vec![0; length];
    file.read_exact_at(&mut said, 0).map_err(failed)?;
    Ok(said)
}

/// Starts a program and waits for its end, or kills it when `stop` is set (SR-5001). Returns its
/// status, which is not checked. SR-7164 when it cannot be run.
fn wait_for(name: &str, command: &mut Command, stop: &AtomicBool) -> Result<ExitStatus> {
    let lost = |error| Error::new(&code::TEST_PROGRAM, format!("{name}: {error}"));
    check_stop(stop)?;
    let mut child = command.spawn().map_err(lost)?;
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(status);
        }
        if let Err(stopped) = check_stop(stop) {
            drop(child.kill());
            drop(child.wait());
            return Err(stopped);
        }
        std::thread::sleep(LOOK);
    }
}

/// Checks that the program ended with 0. SR-7163 otherwise, with the end of its output `said`.
pub(super) fn check_status(name: &str, status: ExitStatus, said: &[u8]) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let detail = format!("{name}: {status}: {}", end_of_output(said));
    Err(Error::new(&code::RESTORE_TEST, detail))
}

/// Fails with SR-5001 once `stop` is set, because the test must end then; does nothing before.
pub(super) fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(Error::new(&code::IO, "ended by a signal"));
    }
    Ok(())
}

/// The last 2000 characters of a program's output, in one line, without control characters.
pub(super) fn end_of_output(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    let all: Vec<char> = lines.join("; ").chars().collect();
    let from = all.len().saturating_sub(WORDS_MAX);
    printable(&all.iter().skip(from).collect::<String>())
}
