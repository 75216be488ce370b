//! How the programs of a restore test are run: what they say goes to files without names, and a
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

use crate::failure::{Failure, printable};

/// Most of a program's or server's words that stand in an error, in characters.
const WORDS_MAX: usize = 2000;
/// How often a program that runs is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Set by a signal.
pub(super) static STOP: AtomicBool = AtomicBool::new(false);

/// Runs a program to its end, or to a signal for us. What it says goes to memory: nobody has to
/// read along, and no name leads to it.
pub(super) fn run(name: &str, mut command: Command) -> Result<Output, Failure> {
    let (out, err) = (unnamed()?, unnamed()?);
    command.stdout(copy_of(&out)?).stderr(copy_of(&err)?);
    let status = ended(name, &mut command)?;
    Ok(Output {
        status,
        stdout: said_in(&out)?,
        stderr: said_in(&err)?,
    })
}

/// A file without a name.
pub(super) fn unnamed() -> Result<File, Failure> {
    let made = memfd_create("strongroom", MemfdFlags::CLOEXEC);
    let made = made.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
    Ok(made.into())
}

pub(super) fn copy_of(file: &File) -> Result<File, Failure> {
    let copy = file.try_clone();
    copy.map_err(|error| Failure::new(&code::IO, error.to_string()))
}

/// All of a file from its beginning, wherever its writer stands.
pub(super) fn said_in(file: &File) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::new(&code::IO, error.to_string());
    let length = usize::try_from(file.metadata().map_err(failed)?.len()).unwrap_or(usize::MAX);
    let mut said = vec![0; length];
    file.read_exact_at(&mut said, 0).map_err(failed)?;
    Ok(said)
}

fn ended(name: &str, command: &mut Command) -> Result<ExitStatus, Failure> {
    let lost = |error| Failure::new(&code::TEST_PROGRAM, format!("{name}: {error}"));
    not_stopped()?;
    let mut child = command.spawn().map_err(lost)?;
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(status);
        }
        if let Err(stopped) = not_stopped() {
            drop(child.kill());
            drop(child.wait());
            return Err(stopped);
        }
        std::thread::sleep(LOOK);
    }
}

pub(super) fn succeeded(name: &str, status: ExitStatus, said: &[u8]) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let detail = format!("{name}: {status}: {}", words(said));
    Err(Failure::new(&code::RESTORE_TEST, detail))
}

pub(super) fn not_stopped() -> Result<(), Failure> {
    if STOP.load(Ordering::Relaxed) {
        return Err(Failure::new(&code::IO, "ended by a signal"));
    }
    Ok(())
}

/// The last words, in one line.
pub(super) fn words(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    let all: Vec<char> = lines.join("; ").chars().collect();
    let from = all.len().saturating_sub(WORDS_MAX);
    printable(&all.iter().skip(from).collect::<String>())
}
