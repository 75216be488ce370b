//! Starts a PostgreSQL server with the extension for a test, and runs SQL in it.
//!
//! The extension has to be installed before (`crates/columns/extension/install`); a server is
//! started only if the installed SQL script is this tree's. Each server has a directory of its own
//! and listens on a socket in it; `pg_ctl` stops it when it goes out of scope. Must not: touch a
//! server that it did not start.

pub mod disk;
mod expecting;
pub mod owner;
pub mod processes;
pub mod setup;
pub mod tpch;
pub mod wal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use strongroom_testing_support::account;
use strongroom_testing_support::process::checked;
use tempfile::TempDir;

/// A PostgreSQL server in a temporary directory.
pub struct Server {
    directory: TempDir,
}

/// The output of psql.
pub struct PsqlOutput {
    /// The rows: one on each line, fields separated by `|`.
    pub rows: String,
    /// Errors and notices, with SQLSTATE and hint.
    pub messages: String,
}

/// Path of PostgreSQL's program of this name, in the directory of the `pg_config` that the
/// extension was built with.
#[must_use]
pub fn installed(name: &str) -> PathBuf {
    let config = std::env::var_os("PGRX_PG_CONFIG_PATH").map(PathBuf::from);
    let programs = config.as_deref().and_then(Path::parent);
    programs
        .unwrap_or_else(|| Path::new("/usr/lib/postgresql/15/bin"))
        .join(name)
}

/// A command that runs PostgreSQL's program of this name, as the user that servers run as.
fn program(name: &str) -> Command {
    account::command(installed(name))
}

/// The directory of the copy of PostgreSQL that the extension is installed into, below which
/// `lib/postgresql/15` and `share/postgresql/15` are. Checks that the SQL script is this tree's.
///
/// # Panics
///
/// When the extension is not installed.
#[must_use]
pub fn installation() -> PathBuf {
    check_installed();
    let programs = installed("pg_config");
    programs
        .ancestors()
        .nth(5)
        .unwrap_or_else(|| Path::new("/"))
        .to_path_buf()
}

/// Checks that the installed SQL script is this tree's.
fn check_installed() {
    let share = checked(program("pg_config").arg("--sharedir"));
    let script = "strongroom_columns--0.1.sql";
    let installed = Path::new(share.trim()).join("extension").join(script);
    let own = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sql")
        .join(script);
    let same = std::fs::read(installed).ok() == std::fs::read(own).ok();
    assert!(
        same,
        "the extension of this tree is not installed: run crates/columns/extension/install"
    );
}

impl Server {
    /// Starts a server. `zone` is the path of the zone's socket; `settings` are further lines of
    /// `postgresql.conf`.
    ///
    /// # Panics
    ///
    /// When the extension is not installed or the server does not start.
    #[must_use]
    pub fn start(zone: &Path, settings: &str) -> Self {
        check_installed();
        let directory = tempfile::Builder::new().prefix("columns-").tempdir();
        let directory = directory.expect("a temporary directory");
        open_to_all(directory.path());
        let server = Self { directory };
        checked(program("initdb").arg("--pgdata").arg(server.data()).args([
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--username=postgres",
        ]));
        let socket = server.directory.path().display();
        let zone = zone.display();
        let lines = format!(
            "listen_addresses = ''\nunix_socket_directories = '{socket}'\nshared_preload_libraries = 'strongroom_columns'\n\
             strongroom.zone = '{zone}'\nfsync = off\nmax_prepared_transactions = 5\n{settings}\n"
        );
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(server.data().join("postgresql.conf"))
            .expect("the server's settings");
        file.write_all(lines.as_bytes())
            .expect("the settings are written");
        server.control(&["start", "--wait"]);
        server
    }

    /// The directory of the server's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// The server's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Stops the server without a checkpoint, as a crash would, and starts it again.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn crash_and_start(&self) {
        self.control(&["stop", "--mode=immediate", "--wait"]);
        self.start_again();
    }

    /// Starts the server, which does not run.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn start_again(&self) {
        self.control(&["start", "--wait"]);
    }

    /// Stops the server and starts it again, and waits until its zone has made the store durable
    /// for what the log had before: the worker has the zone do so when it begins.
    ///
    /// # Panics
    ///
    /// When the server does not stop or start, or there is no such checkpoint for a minute.
    pub fn restart_with_checkpoint(&self) {
        let end = self.rows("select pg_current_wal_flush_lsn() - '0/0'");
        self.stop();
        self.start_again();
        let durable =
            format!("select (strongroom_columns.status()->'store'->>'position')::numeric >= {end}");
        self.wait_for(&durable, "t");
    }

    /// Requests a fast shutdown, which ends connections; whether the server has stopped within
    /// `limit`.
    #[must_use]
    pub fn stop_fast(&self, limit: Duration) -> bool {
        let mut command = program("pg_ctl");
        command
            .arg("--pgdata")
            .arg(self.data())
            .args(["stop", "--mode=fast", "--wait"])
            .arg(format!("--timeout={}", limit.as_secs()));
        run_quietly(&mut command).is_ok_and(|status| status.success())
    }

    /// Stops the server with a fast shutdown.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn stop(&self) {
        self.control(&["stop", "--mode=fast", "--wait"]);
    }

    /// Path of the server's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Text of the server's log.
    #[must_use]
    pub fn log_text(&self) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The end of the server's log, without the messages of a server that waits for its zone.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log_text();
        let left_out = ["SR-8013", "SR-8003", "HINT:", "STATEMENT:", "CONTEXT:"];
        let lines = log
            .lines()
            .filter(|line| !left_out.iter().any(|known| line.contains(known)));
        let lines: Vec<&str> = lines.collect();
        lines
            .get(lines.len().saturating_sub(60)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Another server, made from a base backup of this one; it does not run yet.
    ///
    /// # Panics
    ///
    /// When the backup fails.
    #[must_use]
    pub fn base_backup(&self) -> Self {
        let directory = tempfile::Builder::new().prefix("columns-").tempdir();
        let directory = directory.expect("a temporary directory");
        open_to_all(directory.path());
        let copy = Self { directory };
        let mut command = program("pg_basebackup");
        command
            .arg("--pgdata")
            .arg(copy.data())
            .arg("--host")
            .arg(self.socket());
        checked(command.args(["--username=postgres", "--checkpoint=fast", "--no-sync"]));
        copy.configure(&format!(
            "unix_socket_directories = '{}'\n",
            copy.socket().display()
        ));
        copy
    }

    /// Makes this server, which does not run, a copy of another server with which it shares a
    /// history, with `pg_rewind`. What it did since the histories diverged is lost, and its
    /// settings are the other server's.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn rewind_to(&self, other: &Self) {
        let mut command = program("pg_rewind");
        command.arg("--target-pgdata").arg(self.data()).arg(format!(
            "--source-server=host={} user=postgres dbname=postgres",
            other.socket().display()
        ));
        checked(&mut command);
        self.configure(&format!(
            "unix_socket_directories = '{}'\n",
            self.socket().display()
        ));
    }

    /// Copies segments of this server's log that `copy` lacks to it: the zone's store may be older
    /// than the backup.
    ///
    /// # Panics
    ///
    /// When it cannot be copied.
    pub fn copy_log_to(&self, copy: &Self) {
        let to = copy.data().join("pg_wal");
        let mut command = Command::new("cp");
        command.args(["--archive", "--no-clobber", "--recursive"]);
        let segments = std::fs::read_dir(self.data().join("pg_wal")).expect("the log's directory");
        // The name of a segment has 24 digits.
        let segments = segments
            .flatten()
            .filter(|entry| entry.file_name().len() == 24);
        checked(command.args(segments.map(|entry| entry.path())).arg(to));
    }

    /// Adds lines to the server's settings; they apply from its next start.
    ///
    /// # Panics
    ///
    /// When they cannot be written.
    pub fn configure(&self, lines: &str) {
        let path = self.data().join("postgresql.conf");
        let file = std::fs::OpenOptions::new().append(true).open(path);
        let mut file = file.expect("the server's settings");
        file.write_all(lines.as_bytes())
            .expect("the settings are written");
    }

    /// Makes an empty file in the data directory, such as `standby.signal`.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub fn make_signal_file(&self, name: &str) {
        drop(std::fs::File::create(self.data().join(name)).expect("a file in the data directory"));
    }

    /// Starts this server, which is a copy of `leader` and does not run, as its standby beside the
    /// zone with this socket. `settings` are further lines of `postgresql.conf`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn follow(&self, leader: &Self, zone: &Path, settings: &str) {
        self.configure(&format!(
            "strongroom.zone = '{}'\nprimary_conninfo = 'host={} user=postgres'\n{settings}\n",
            zone.display(),
            leader.socket().display()
        ));
        self.make_signal_file("standby.signal");
        self.start_again();
    }

    /// The output of `pg_dump` for a table.
    ///
    /// # Panics
    ///
    /// When it fails.
    #[must_use]
    pub fn dump(&self, table: &str) -> String {
        let mut command = program("pg_dump");
        command.arg("--host").arg(self.socket());
        checked(command.args(["--username=postgres", "--table", table, "postgres"]))
    }

    /// Number of the zone's redo records, which are logical messages, in the write-ahead log from
    /// the position `begin` to `end`, as PostgreSQL writes positions (`0/16B3748`).
    ///
    /// # Panics
    ///
    /// When the log cannot be read.
    #[must_use]
    pub fn redo_records(&self, begin: &str, end: &str) -> u32 {
        u32::try_from(self.redo_positions(begin, end).len()).unwrap_or(u32::MAX)
    }

    /// Positions of the zone's redo records in the write-ahead log between two positions.
    ///
    /// # Panics
    ///
    /// When the log cannot be read.
    #[must_use]
    pub fn redo_positions(&self, begin: &str, end: &str) -> Vec<u64> {
        let mut command = program("pg_waldump");
        command.arg("--path").arg(self.data().join("pg_wal")).args([
            "--rmgr=LogicalMessage",
            "--start",
            begin,
            "--end",
            end,
        ]);
        let lines = checked(&mut command);
        let own = lines.lines().filter(|line| line.contains("strongroom"));
        let positions = own.map(|line| {
            let at = line
                .split("lsn: ")
                .nth(1)
                .and_then(|rest| rest.split(',').next());
            at.and_then(position).expect("a position of the log")
        });
        positions.collect()
    }

    /// Runs `pg_ctl` on the server.
    fn control(&self, what: &[&str]) {
        let mut command = program("pg_ctl");
        command
            .arg("--pgdata")
            .arg(self.data())
            .arg("--log")
            .arg(self.log())
            .args(what);
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "{what:?}: {}",
            self.log_tail()
        );
    }

    /// Runs SQL with psql: every statement, even after one that fails.
    ///
    /// # Panics
    ///
    /// When psql cannot be run.
    #[must_use]
    pub fn run(&self, sql: &str) -> PsqlOutput {
        psql(self.directory.path(), sql)
    }

    /// Runs SQL that must succeed; the rows.
    ///
    /// # Panics
    ///
    /// When anything fails.
    #[must_use]
    pub fn rows(&self, sql: &str) -> String {
        let said = self.run(sql);
        assert!(!said.messages.contains("ERROR"), "{sql}\n{}", said.messages);
        said.rows
    }

    /// Runs SQL until it returns these rows: a zone that was started again has to replay the log
    /// first.
    ///
    /// # Panics
    ///
    /// When it returns others for a minute.
    #[track_caller]
    pub fn wait_for(&self, sql: &str, rows: &str) {
        expecting::run_until(rows, sql, |sql| self.run(sql));
    }

    /// Runs SQL that must fail, with this in its messages.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn fails(&self, sql: &str, message: &str) {
        expecting::assert_failed(&self.run(sql), sql, message);
    }

    /// Waits until the server's log has this text.
    ///
    /// # Panics
    ///
    /// When it has not for half a minute.
    #[track_caller]
    pub fn wait_in_log(&self, text: &str) {
        let begun = Instant::now();
        while !self.log_text().contains(text) {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{text}\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A command that runs psql at the socket in `host`, with SQL from standard input.
#[must_use]
pub fn psql_command(host: &Path) -> Command {
    let mut command = Command::new(installed("psql"));
    command.args([
        "--no-psqlrc",
        "--quiet",
        "--no-align",
        "--tuples-only",
        "--username=postgres",
    ]);
    command
        .args(["--set=VERBOSITY=verbose", "--dbname=postgres", "--host"])
        .arg(host);
    command
}

/// Runs SQL with psql at the socket in `host`.
///
/// # Panics
///
/// When psql cannot be run.
#[must_use]
pub fn psql(host: &Path, sql: &str) -> PsqlOutput {
    let mut command = psql_command(host);
    let started = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut psql = started.expect("psql can be run");
    let mut input = psql.stdin.take().expect("a pipe was asked for");
    input.write_all(sql.as_bytes()).expect("psql reads");
    drop(input);
    let output = psql.wait_with_output().expect("psql ends");
    PsqlOutput {
        rows: String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned(),
        messages: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A position of the write-ahead log, from PostgreSQL's notation (`0/16B3740`).
#[must_use]
pub fn position(text: &str) -> Option<u64> {
    let (high, low) = text.trim().split_once('/')?;
    let half = |text| u64::from_str_radix(text, 16).ok();
    Some(half(high)? << 32 | half(low)?)
}

/// Lets all users enter and write to a directory of this process: the server runs as another user.
///
/// # Panics
///
/// When this process does not own it.
pub fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // The server's user makes its data directory in it. The sticky bit keeps users from removing
    // each other's files, as the command requires for keyrings.
    let open = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(directory, open).expect("the directory is ours");
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = program("pg_ctl");
        stop.arg("--pgdata")
            .arg(self.data())
            .args(["stop", "--mode=immediate", "--wait"]);
        let stopped = stop
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        // It does not matter if the server did not run; the directory's owner may be another user.
        drop(stopped);
        drop(run_quietly(
            Command::new("rm")
                .arg("-rf")
                .arg(self.data())
                .arg(self.log()),
        ));
    }
}

/// Runs a command without input and output; its exit status.
fn run_quietly(command: &mut Command) -> std::io::Result<std::process::ExitStatus> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
}

/// The seed of a test's random choices: `STRONGROOM_SEED`, or a new one. It is printed.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("STRONGROOM_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    print_line(&format!("STRONGROOM_SEED={seed}"));
    seed
}

/// Duration of a test: the seconds in the environment variable, or `default`.
#[must_use]
pub fn seconds(variable: &str, default: u64) -> Duration {
    let given = std::env::var(variable).ok();
    Duration::from_secs(
        given
            .and_then(|given| given.parse().ok())
            .unwrap_or(default),
    )
}

/// Prints a line, which the test runner shows when the test fails.
#[expect(
    clippy::print_stdout,
    reason = "tests report to the person who runs them"
)]
pub fn print_line(text: &str) {
    println!("{text}");
}

/// The value of a result. An error ends the test with `what` and the error.
///
/// # Panics
///
/// When the result is an error.
#[expect(clippy::panic, reason = "the end of a test")]
pub fn must<T, E: std::fmt::Display>(done: Result<T, E>, what: &str) -> T {
    done.unwrap_or_else(|failure| panic!("{what}: {failure}"))
}
