//! `strongroom-tour`: what the products do, shown with the real command: on the TPC-H tables in
//! SQLite, on a PostgreSQL server, on confidential columns, on backups, and on the disk of a
//! virtual machine.
//!
//! Invariants:
//! 1. Every numbered line is a check that can fail; the exit code is 0 only if none did.
//! 2. Wherever the command can do a thing, the command does it; the library serves for timing and
//!    for looking on.
//! 3. Everything is made in ./demo-out, which is removed first. The keys in it are made for the
//!    tour. Two exceptions: the sockets, whose paths must be short, and the data directories where
//!    PostgreSQL's user cannot enter ./demo-out; both are in the directory for temporary files, and
//!    gone at the end.
//!
//! Must not: touch anything else, or use a key or keyring of the user's.

mod backups;
mod checks;
mod columns;
mod command;
mod data;
mod evidence;
mod keys;
mod postgres;
mod spill;
mod tamper;
mod tour;
mod volumes;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use strongroom_benches::Failure;
use strongroom_benches::variant;

use crate::checks::Checks;
use crate::command::Strongroom;
use crate::tour::{OUT, SCALE, Tour};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // When standard error is closed there is nobody to tell.
            let written = writeln!(std::io::stderr(), "strongroom-tour: {error}");
            drop(written);
            ExitCode::FAILURE
        }
    }
}

/// Which part is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Sqlite,
    Postgres,
    Columns,
    Backups,
    Volumes,
}

impl Part {
    /// From the command line: nothing, or the name of one.
    fn named() -> Result<Self, Failure> {
        match std::env::args().nth(1).as_deref() {
            None => Ok(Self::All),
            Some("sqlite") => Ok(Self::Sqlite),
            Some("postgres") => Ok(Self::Postgres),
            Some("columns") => Ok(Self::Columns),
            Some("backups") => Ok(Self::Backups),
            Some("volumes") => Ok(Self::Volumes),
            Some(_) => {
                Err("usage: strongroom-tour [sqlite|postgres|columns|backups|volumes]".into())
            }
        }
    }
}

fn run() -> Result<bool, Failure> {
    let part = Part::named()?;
    let begin = Instant::now();
    let out = Path::new(OUT);
    let strongroom = Strongroom::find(out.join("keyring"))?;
    match std::fs::remove_dir_all(out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => std::fs::create_dir(out)?,
    }
    let plain = variant::stock(&out.join("plain.db"))?;
    if variant::vfs_is_registered() {
        return Err("the VFS was registered before the plain database was opened".into());
    }
    let mut tour = Tour {
        out: out.to_path_buf(),
        strongroom,
        checks: Checks::default(),
        plain,
    };
    if matches!(part, Part::All | Part::Sqlite) {
        sqlite(&mut tour)?;
    }
    if matches!(part, Part::All | Part::Postgres) {
        postgres::run(&mut tour)?;
    }
    if matches!(part, Part::All | Part::Columns) {
        columns::run(&mut tour)?;
    }
    if matches!(part, Part::All | Part::Backups) {
        backups::run(&mut tour)?;
    }
    if matches!(part, Part::All | Part::Volumes) {
        volumes::run(&mut tour)?;
    }
    tour.checks.summary(begin.elapsed().as_secs())
}

fn sqlite(tour: &mut Tour) -> Result<(), Failure> {
    writeln!(
        std::io::stdout(),
        "Strongroom: the TPC-H tables at scale {SCALE}, plain and sealed, in ./{OUT}"
    )?;
    keys::make(tour)?;
    data::load(tour)?;
    data::queries(tour)?;
    spill::run(tour)?;
    evidence::pictures(tour)?;
    tamper::run(tour)?;
    keys::wrong(tour)?;
    keys::rekey(tour)?;
    keys::rotate_root(tour)?;
    evidence::back(tour)?;
    evidence::leaks(tour)
}
