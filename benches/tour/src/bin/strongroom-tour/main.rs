//! `strongroom-tour`: what the products do, shown with the real command: on the TPC-H tables in
//! SQLite, on a PostgreSQL server, on confidential columns, on backups, and on the disk of a
//! virtual machine.
//!
//! Invariants:
//! 1. Every numbered line is a check that can fail; the exit code is 0 only if none did.
//! 2. Wherever the command can do a thing, the command does it; the library serves for timing, for
//!    looking on, and for the first part, which is shown before there is a command.
//! 3. Everything is made in ./demo-out, which is removed first. The keys in it are made for the
//!    tour. Two exceptions: the sockets, whose paths must be short, and the data directories where
//!    PostgreSQL's user cannot enter ./demo-out; both are in the directory for temporary files, and
//!    gone at the end.
//!
//! Must not: touch anything else, or use a key or keyring of the user's.

mod backups;
mod columns;
mod command;
mod evidence;
mod keys;
mod postgres;
mod tamper;
mod tour;
mod volumes;

use std::process::ExitCode;
use std::time::Instant;

use strongroom_benches::{Failure, note};
use strongroom_tour::checks::Checks;
use strongroom_tour::engine;
use strongroom_tour::place::Place;

use crate::command::Strongroom;
use crate::tour::Tour;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            note(&format!("strongroom-tour: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Which part is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// All but what `strongroom-tour-sqlite` has shown, on the files that it has left.
    Rest,
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
            Some("rest") => Ok(Self::Rest),
            Some("sqlite") => Ok(Self::Sqlite),
            Some("postgres") => Ok(Self::Postgres),
            Some("columns") => Ok(Self::Columns),
            Some("backups") => Ok(Self::Backups),
            Some("volumes") => Ok(Self::Volumes),
            Some(_) => {
                Err("usage: strongroom-tour [rest|sqlite|postgres|columns|backups|volumes]".into())
            }
        }
    }

    /// Whether this choice has `part` in it.
    fn has(self, part: Self) -> bool {
        self == part || matches!(self, Self::All | Self::Rest)
    }
}

fn run() -> Result<bool, Failure> {
    let part = Part::named()?;
    let begin = Instant::now();
    let place = if part == Part::Rest {
        Place::as_left()?
    } else {
        Place::emptied()?
    };
    let mut tour = Tour {
        strongroom: Strongroom::find(place.path("keyring"))?,
        place,
        checks: Checks::default(),
    };
    if matches!(part, Part::All | Part::Sqlite) {
        engine::run(&tour.place, &mut tour.checks)?;
    }
    if part.has(Part::Sqlite) {
        sqlite(&mut tour)?;
    }
    if part.has(Part::Postgres) {
        postgres::run(&mut tour)?;
    }
    if part.has(Part::Columns) {
        columns::run(&mut tour)?;
    }
    if part.has(Part::Backups) {
        backups::run(&mut tour)?;
    }
    if part.has(Part::Volumes) {
        volumes::run(&mut tour)?;
    }
    tour.checks.summary(begin.elapsed().as_secs())
}

/// What the command does with the databases that the first part has left.
fn sqlite(tour: &mut Tour) -> Result<(), Failure> {
    keys::make(tour)?;
    keys::adopt(tour)?;
    evidence::pictures(tour)?;
    tamper::run(tour)?;
    keys::wrong(tour)?;
    keys::rekey(tour)?;
    keys::rotate_root(tour)?;
    evidence::back(tour)?;
    evidence::leaks(tour)
}
