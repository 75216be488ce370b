//! A PostgreSQL server of the tests' own: made in a private directory, asked through psql, stopped
//! when the last test is done.
//!
//! Must not: listen on a network, or touch another instance.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use strongroom_testing_support::account::{self, give_unchanged};
use strongroom_testing_support::process::{checked, run};

/// Where Debian puts the programs of the version whose behaviour is tested; `PG_BINDIR` names
/// another place.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
static NEXT_SCRIPT: AtomicU32 = AtomicU32::new(0);

/// A running server.
pub(crate) struct Server {
    directory: tempfile::TempDir,
    programs: PathBuf,
    /// The minor release: 20 of 15.20.
    release: u32,
}

impl Server {
    /// The server that all tests of this process share.
    pub(crate) fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap();
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start());
        *shared = Arc::downgrade(&server);
        server
    }

    fn start() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("sr-values-")
            .tempdir()
            .unwrap();
        let mut server = Self {
            directory,
            programs: std::env::var_os("PG_BINDIR")
                .map_or_else(|| PathBuf::from(PROGRAMS), PathBuf::from),
            release: 0,
        };
        give_unchanged(server.path());
        let version = checked(server.program("postgres").arg("--version"));
        assert!(
            version.contains(" 15."),
            "these tests are about PostgreSQL 15, not {version}"
        );
        server.release = version
            .split_once(" 15.")
            .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next())
            .and_then(|digits| digits.parse().ok())
            .unwrap();
        let options = [
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ];
        checked(
            server
                .program("initdb")
                .arg("-D")
                .arg(server.path().join("data"))
                .args(options),
        );
        let socket = server.path().display();
        let settings = format!(
            "-c listen_addresses= -c unix_socket_directories={socket} -c fsync=off -c jit=off"
        );
        let mut start = server.program("pg_ctl");
        start
            .args(["-w", "-t", "60", "-D"])
            .arg(server.path().join("data"));
        checked(
            start
                .arg("-l")
                .arg(server.path().join("log"))
                .args(["-o", &settings, "start"]),
        );
        server
    }

    pub(crate) fn release(&self) -> u32 {
        self.release
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    fn program(&self, name: &str) -> Command {
        let mut command = account::command(self.programs.join(name));
        command
            .current_dir(self.path())
            .env("PGHOST", self.path())
            .env("PGUSER", "postgres");
        command
            .env("LC_ALL", "C")
            .env("PGOPTIONS", "-c datestyle=ISO -c timezone=UTC");
        command
    }

    /// Runs a script; its output, without headers and alignment.
    pub(crate) fn run(&self, script: &str) -> String {
        let number = NEXT_SCRIPT.fetch_add(1, Ordering::Relaxed);
        let path = self.path().join(format!("script-{number}.sql"));
        fs::write(&path, script).unwrap();
        give_unchanged(&path);
        let mut psql = self.program("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "postgres",
            "-f",
        ]);
        run(psql.arg(&path)).succeeded()
    }

    /// A file that the server can read.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap();
        give_unchanged(&path);
        path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = self.program("pg_ctl");
        checked(
            stop.arg("-D")
                .arg(self.path().join("data"))
                .args(["-m", "immediate", "stop"]),
        );
    }
}

/// A field of COPY's text format.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

/// The field's text.
pub(crate) fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut characters = field.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match characters.next().unwrap() {
            't' => text.push('\t'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'v' => text.push('\u{b}'),
            other => text.push(other),
        }
    }
    text
}
