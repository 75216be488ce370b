//! One instance: made, started, stopped, killed, asked; sealed or plain by the same steps.
//!
//! Invariants: it is ended by process number, and its processes have ended when a function that
//! ends it returns, so that what is on disk stays as it is.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use strongroom_testing_support::process::{
    self, checked, children, is_alive, patiently, refused, signal,
};

use crate::programs::Programs;
use crate::room::Room;
use crate::session::Session;

static NEXT_PORT: AtomicU16 = AtomicU16::new(5432);

/// Whether an instance is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// PostgreSQL as it is.
    Plain,
    /// Under the shield, with the key of this file.
    Sealed {
        /// Holds the raw key.
        key: PathBuf,
        /// `aes-128-xts` or `aes-256-xts`.
        cipher: &'static str,
    },
}

/// One instance.
#[derive(Debug)]
pub struct Instance<'a> {
    room: &'a Room,
    programs: Programs,
    protection: Protection,
    name: String,
    data: PathBuf,
    port: u16,
}

impl<'a> Instance<'a> {
    /// The instance `name`, which is not made yet.
    #[must_use]
    pub fn named(room: &'a Room, programs: &Programs, name: &str, protection: Protection) -> Self {
        Self {
            room,
            programs: programs.clone(),
            protection,
            name: String::from(name),
            data: room.at(name),
            port: NEXT_PORT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// `initdb`, with data checksums, and the settings that all tests want.
    #[must_use]
    pub fn create(room: &'a Room, programs: &Programs, name: &str, protection: Protection) -> Self {
        let instance = Self::named(room, programs, name, protection);
        instance.initialise(&[]);
        instance
    }

    /// `initdb` with further options.
    ///
    /// # Panics
    /// When it fails.
    pub fn initialise(&self, more: &[&str]) {
        let mut initdb = match &self.protection {
            Protection::Plain => self.program("initdb"),
            Protection::Sealed { .. } => self.strongroom("initdb"),
        };
        initdb.arg("-D").arg(&self.data);
        if let Protection::Sealed { key, cipher } = &self.protection {
            initdb
                .args(["--cipher", cipher, "--key-file"])
                .arg(key)
                .arg("--");
        }
        initdb.args([
            "-k",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        checked(initdb.args(more));
        self.configure(
            "fsync = off\nmax_prepared_transactions = 20\nlog_min_messages = warning\nlog_checkpoints = off\n\
             max_wal_size = 1GB\nlog_line_prefix = '%m [%p] '\n",
        );
    }

    /// Makes the empty data directory, for programs that fill it: with a header if the instance is
    /// sealed.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn prepare(&self) {
        drop(self.room.directory(&self.name));
        if let Protection::Sealed { key, cipher } = &self.protection {
            let mut header = self.strongroom("initdb");
            header.arg("--header-only").arg("-D").arg(&self.data).args([
                "--cipher",
                cipher,
                "--key-file",
            ]);
            checked(header.arg(key));
        }
    }

    /// `strongroom pg`, with this version of PostgreSQL.
    #[must_use]
    pub fn strongroom(&self, subcommand: &str) -> Command {
        let mut command = self.room.strongroom();
        command
            .env("PG_BINDIR", self.programs.directory())
            .arg(subcommand);
        command
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its port, which is part of the name of its socket.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Which PostgreSQL it is of.
    #[must_use]
    pub const fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The server's messages.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.room
            .at(&format!("{}.log", self.name.replace('/', "-")))
    }

    /// What the server has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// A connection string for other instances' replication.
    #[must_use]
    pub fn address(&self) -> String {
        format!(
            "host={} port={} user=postgres",
            self.room.path().display(),
            self.port
        )
    }

    /// Appends to `postgresql.conf`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn configure(&self, text: &str) {
        let path = self.data.join("postgresql.conf");
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(path)
            .expect("postgresql.conf");
        file.write_all(text.as_bytes()).expect("postgresql.conf");
    }

    /// A server program or frontend, under the shield if the instance is sealed.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        self.shielded(self.room.command(&self.programs.path(name)))
    }

    /// Puts the shield before a program.
    #[must_use]
    pub fn shielded(&self, mut command: Command) -> Command {
        if self.protection != Protection::Plain {
            command.env("LD_PRELOAD", self.room.library());
        }
        command
    }

    /// A client: never under the shield.
    #[must_use]
    pub fn client(&self, name: &str) -> Command {
        let mut command = self.room.command(&self.programs.path(name));
        // A test that waits for ever says nothing.
        command.env("PGOPTIONS", "-c statement_timeout=60s");
        command
            .arg("-h")
            .arg(self.room.path())
            .arg("-p")
            .arg(self.port.to_string());
        command
    }

    fn psql(&self, database: &str) -> Command {
        let mut command = self.client("psql");
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
        ]);
        command
    }

    /// An open session.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::open(self.psql("postgres"))
    }

    /// Runs statements in one session of the database `postgres`.
    ///
    /// # Panics
    /// When one fails.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect")]
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in("postgres", statements)
    }

    /// Runs statements in one session.
    ///
    /// # Panics
    /// When one fails.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect")]
    pub fn sql_in(&self, database: &str, statements: &str) -> String {
        let answer = self.try_sql_in(database, statements);
        answer.unwrap_or_else(|error| failed(&format!("{}: {statements}\n{error}", self.name)))
    }

    /// Runs statements in one session; the errors when one fails.
    ///
    /// # Errors
    /// What psql said.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        self.try_sql_in("postgres", statements)
    }

    fn try_sql_in(&self, database: &str, statements: &str) -> Result<String, String> {
        let mut command = self.psql(database);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut input = child.stdin.take().expect("a pipe");
        // psql that ended early has said why.
        drop(input.write_all(statements.as_bytes()));
        drop(input);
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout)
                .trim_end()
                .to_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Starts the server and waits until it accepts connections.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&self) {
        checked(&mut self.starting());
    }

    /// Starts the server with more variables in its environment.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_with(&self, variables: &[(&str, &str)]) {
        checked(self.starting().envs(variables.iter().copied()));
    }

    /// Starts the server if it can be started.
    ///
    /// # Errors
    /// What the server said.
    pub fn try_start(&self) -> Result<(), String> {
        let output = self
            .starting()
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(self.said())
        }
    }

    /// Starts a server that has to refuse; what it and the command said.
    ///
    /// # Panics
    /// When it starts.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect")]
    pub fn start_refused(&self) -> String {
        self.start_refused_with(&[])
    }

    /// The same, with more variables in the environment.
    ///
    /// # Panics
    /// When it starts.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect")]
    pub fn start_refused_with(&self, variables: &[(&str, &str)]) -> String {
        let before = self.said().len();
        let told = refused(self.starting().envs(variables.iter().copied()));
        format!("{told}{}", self.said().get(before..).unwrap_or_default())
    }

    fn starting(&self) -> Command {
        let options = format!(
            "-p {} -k {} -c listen_addresses=",
            self.port,
            self.room.path().display()
        );
        let mut command = match &self.protection {
            Protection::Plain => self.program("pg_ctl"),
            Protection::Sealed { .. } => self.strongroom("start"),
        };
        command.arg("-D").arg(&self.data).arg("-l").arg(self.log());
        match &self.protection {
            Protection::Plain => command.arg("start"),
            Protection::Sealed { .. } => command.arg("--"),
        };
        command.args(["-s", "-w", "-t", "90", "-o", &options]);
        command
    }

    /// A clean shutdown.
    pub fn stop(&self) {
        let mut command = self.program("pg_ctl");
        checked(
            command
                .arg("-D")
                .arg(&self.data)
                .args(["-s", "-w", "-t", "90", "-m", "fast", "stop"]),
        );
    }

    /// Promotes a standby and waits for it.
    pub fn promote(&self) {
        let mut command = self.program("pg_ctl");
        checked(
            command
                .arg("-D")
                .arg(&self.data)
                .args(["-s", "-w", "-t", "90", "promote"]),
        );
    }

    /// The postmaster's process number.
    #[must_use]
    pub fn postmaster(&self) -> Option<u32> {
        let text = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// The server's processes, the postmaster first.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let Some(postmaster) = self.postmaster().filter(|pid| is_alive(*pid)) else {
            return Vec::new();
        };
        let mut all = vec![postmaster];
        all.extend(children(postmaster));
        all
    }

    /// Kills postmaster and children at once with SIGKILL, and waits until all are gone.
    ///
    /// # Panics
    /// When one of them does not end.
    pub fn kill(&self) {
        let Some(postmaster) = self.postmaster() else {
            return;
        };
        // Stopped first, the postmaster cannot start another child between the list and the kill.
        signal("-STOP", &[postmaster]);
        let all = self.processes();
        signal("-KILL", &all);
        // Until they are reaped, too: PostgreSQL takes the dead postmaster for a live one before.
        let gone = patiently(Duration::from_secs(20), || {
            !all.iter().any(|pid| process::status(*pid).is_some())
        });
        assert!(gone, "killed processes remain");
    }

    /// Stops all processes where they are, so that the files stand still.
    pub fn freeze(&self) {
        let all = self.processes();
        signal("-STOP", &all);
    }

    /// Ends [`Self::freeze`].
    pub fn thaw(&self) {
        let mut all = self.processes();
        all.reverse();
        signal("-CONT", &all);
    }

    /// Waits until the server accepts connections again.
    ///
    /// # Panics
    /// After a minute.
    pub fn wait_ready(&self) {
        let ready = patiently(Duration::from_secs(60), || self.try_sql("select 1").is_ok());
        assert!(
            ready,
            "{} does not come back:\n{}",
            self.name,
            tail(&self.said())
        );
    }

    /// `pg_checksums --check` of the stopped instance.
    pub fn check_checksums(&self) {
        let mut command = self.program("pg_checksums");
        let said = checked(command.arg("--check").arg("-D").arg(&self.data));
        assert!(said.contains("Bad checksums:  0"), "{said}");
    }

    /// Every table and B-tree index of the database, by amcheck.
    pub fn check_structure(&self, database: &str) {
        let statements = "create extension if not exists amcheck;\n\
            select count(bt_index_check(c.oid, true)) from pg_index i join pg_class c on c.oid = i.indexrelid \
            join pg_am a on a.oid = c.relam where a.amname = 'btree' and c.relpersistence = 'p' and i.indisvalid;\n\
            select c.oid::regclass, v.* from pg_class c, lateral verify_heapam(c.oid) v \
            where c.relkind in ('r', 'm', 't') and c.relpersistence = 'p';";
        let said = self.sql_in(database, statements);
        let mut lines = said.lines();
        let checked: u32 = lines
            .next()
            .and_then(|count| count.parse().ok())
            .expect("a count");
        assert!(checked > 50, "{said}");
        let findings: Vec<&str> = lines.collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = format!("--- {}:\n{}\n", self.name, tail(&self.said()));
            drop(std::io::stderr().write_all(shown.as_bytes()));
        }
        let all = self.processes();
        if !all.is_empty() {
            signal("-KILL", &all);
            patiently(Duration::from_secs(20), || {
                !all.iter().any(|pid| is_alive(*pid))
            });
        }
    }
}

#[expect(clippy::panic, reason = "a test stops at the first surprise")]
fn failed(text: &str) -> ! {
    panic!("{text}")
}

/// The end of a log.
#[must_use]
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
