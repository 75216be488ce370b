//! `strongroom-tour`: what the guards do, shown with the real command: on the TPC-H tables in SQLite, on a PostgreSQL
//! server, on confidential columns, on backups, and on the disk of a virtual machine.
//!
//! Invariants:
//! 1. Every numbered line is a check that can fail; the exit code is 0 only if none did.
//! 2. Wherever the command can do a thing, the command does it; the library serves for timing and for looking on.
//! 3. Everything is made in ./demo-out, which is removed first. The keys in it are made for the tour. Two exceptions: the
//!    sockets, whose paths must be short, and the data directories where PostgreSQL's user cannot enter
//!    ./demo-out; both are in the directory for temporary files, and gone at the end.
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
mod volumes;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::variant;
use strongroom_sqlite::{Cipher, KeySource};

use crate::checks::Checks;
use crate::command::Strongroom;

/// Where everything is made.
const OUT: &str = "demo-out";
/// TPC-H scale factor.
const SCALE: f64 = 0.1;
/// The keys of the tour's keyring: the database's first key, the one it gets later, and one that never fits.
const KEY: &str = "ledger";
const NEXT_KEY: &str = "ledger-2027";
const OTHER_KEY: &str = "payroll";
/// Texts that stand in the tables: a column of few values, and words of the comments.
const KNOWN: [&str; 8] = [
    "DELIVER IN PERSON",
    "TAKE BACK RETURN",
    "COLLECT COD",
    "furiously",
    "carefully",
    "regular accounts",
    "pending deposits",
    "express requests",
];

/// The tour's place and its tools.
struct Tour {
    out: PathBuf,
    strongroom: Strongroom,
    checks: Checks,
    /// The plain database for everything that is timed: opened before the guard is registered in this process, which
    /// watches the statements of connections that are opened afterwards (B1).
    plain: Connection,
}

impl Tour {
    fn path(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    fn plain_path(&self) -> PathBuf {
        self.path("plain.db")
    }

    fn sealed(&self) -> PathBuf {
        self.path("sealed.db")
    }

    /// Another connection to the plain database on stock SQLite's own VFS, for what is not timed.
    fn open_plain(&self) -> Result<Connection, Failure> {
        variant::stock(&self.plain_path())
    }

    /// A sealed database through the guard.
    fn open_sealed(&self, path: &Path, key: &str) -> Result<Connection, Failure> {
        let source = KeySource::KeyId { id: key.to_owned() };
        variant::sealed(path, source, Some(&self.path("keyring")), Cipher::Aes256Gcm)
    }
}

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
    if variant::guard_is_registered() {
        return Err("the guard was registered before the plain database was opened".into());
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
