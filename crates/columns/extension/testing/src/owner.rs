//! Starts the zone and the data owner's proxy for a test, with the command that
//! `STRONGROOM_COMMAND` names.
//!
//! Must not: leave a process running.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use strongroom_benches_oltp::wire::{Client, Failure};
use strongroom_testing_support::port::is_listening;
use tempfile::TempDir;

use crate::{PsqlOutput, Server, expecting, open_to_all, print_line, psql};

/// Starts a zone, a server with the extension, and a proxy to it. `settings` are further lines of
/// `postgresql.conf`.
///
/// # Panics
///
/// When one of them does not start.
#[must_use]
pub fn start_all(settings: &str) -> (Owner, Server) {
    let (mut owner, server) = start_without_proxy(settings);
    owner.start_proxy(server.socket());
    (owner, server)
}

/// As [`start_all`], with a proxy whose connections may store computed values in ordered columns.
///
/// # Panics
///
/// When one of them does not start.
#[must_use]
pub fn start_all_deriving(settings: &str) -> (Owner, Server) {
    let (mut owner, server) = start_without_proxy(settings);
    owner.start_proxy_deriving(server.socket());
    (owner, server)
}

/// Starts a zone and a server with the extension.
fn start_without_proxy(settings: &str) -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), settings);
    let _made = server.rows("create extension strongroom_columns");
    (owner, server)
}

/// How long a process may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The data owner's directory with a keyring, and the zone and the proxy that run in it.
pub struct Owner {
    directory: TempDir,
    zone: Option<Child>,
    proxy: Option<Child>,
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl Owner {
    /// Makes the keyring and keys; nothing runs yet.
    ///
    /// # Panics
    ///
    /// When the command cannot be run.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("owner-").tempdir();
        let directory = directory.expect("a temporary directory");
        open_to_all(directory.path());
        let owner = Self {
            directory,
            zone: None,
            proxy: None,
        };
        for file in ["root.key", "zone.key"] {
            let random = std::fs::read("/proc/sys/kernel/random/uuid").expect("random numbers");
            let made = std::fs::File::create_new(owner.path(file));
            let mut made = made.expect("a file of our own");
            made.write_all(&random).expect("a file of our own");
        }
        let provider = format!("file:{}", owner.path("root.key").display());
        for arguments in [
            vec!["keyring", "init", "--provider", &provider],
            vec!["key", "create", "columns"],
        ] {
            let status = owner
                .command()
                .args(&arguments)
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .status();
            assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
        }
        owner
    }

    /// A second owner whose directory has copies of these files of the first one's: its keyring,
    /// the state of its zone.
    ///
    /// # Panics
    ///
    /// When they cannot be copied.
    #[must_use]
    pub fn with_files_of(first: &Self, names: &[&str]) -> Self {
        let second = Self::new();
        second.take_files_of(first, names);
        second
    }

    /// Replaces these files by copies from another owner's directory. No process of this owner has
    /// them open.
    ///
    /// # Panics
    ///
    /// When they cannot be copied.
    pub fn take_files_of(&self, other: &Self, names: &[&str]) {
        for name in names {
            let (from, to) = (other.path(name), self.path(name));
            for (program, arguments) in [
                ("rm", vec![OsStr::new("-rf"), to.as_os_str()]),
                (
                    "cp",
                    vec![OsStr::new("-a"), from.as_os_str(), to.as_os_str()],
                ),
            ] {
                let status = Command::new(program).args(arguments).status();
                assert!(
                    status.is_ok_and(|status| status.success()),
                    "{program}: {name}"
                );
            }
        }
    }

    /// Path of a file in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        let program = std::env::var_os("STRONGROOM_COMMAND");
        let program = program.expect("STRONGROOM_COMMAND names the command");
        let mut command = Command::new(program);
        command.env("STRONGROOM_KEYRING", self.path("keyring"));
        command
    }

    /// Starts a process, and waits until it listens at the socket.
    fn start(&self, arguments: &[&OsStr], log: &str, socket: &Path) -> Child {
        drop(std::fs::remove_file(socket));
        let log = std::fs::File::create(self.path(log)).expect("a log");
        let mut command = self.command();
        command
            .arg("columns")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut child = command.spawn().expect("the command can be run");
        let begun = Instant::now();
        while !is_listening(socket) {
            assert!(begun.elapsed() < START_LIMIT, "{arguments:?}: too slow");
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "{arguments:?}: {ended:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// Path of the zone's socket.
    #[must_use]
    pub fn zone_socket(&self) -> PathBuf {
        self.path("zone.sock")
    }

    /// Starts the zone.
    ///
    /// # Panics
    ///
    /// When it does not begin to serve.
    pub fn start_zone(&mut self) {
        self.start_zone_with(64, &[]);
    }

    /// As [`Self::start_zone`], with `memory` MiB for values (more values are paged to disk) and
    /// with further options.
    ///
    /// # Panics
    ///
    /// When it does not begin to serve.
    pub fn start_zone_with(&mut self, memory: u32, options: &[&str]) {
        let arguments = self.zone_arguments(memory, options);
        let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        self.zone = Some(self.start(&arguments, "zone.log", &self.zone_socket()));
    }

    fn zone_arguments(&self, memory: u32, options: &[&str]) -> Vec<OsString> {
        let named = [
            ("--state", self.path("zone").into_os_string()),
            ("--socket", self.zone_socket().into_os_string()),
            ("--user", "postgres".into()),
            ("--key-file", self.path("zone.key").into_os_string()),
            ("--memory", memory.to_string().into()),
        ];
        let named = named
            .into_iter()
            .flat_map(|(name, value)| [OsString::from(name), value]);
        let all = std::iter::once(OsString::from("zone")).chain(named);
        all.chain(options.iter().map(OsString::from)).collect()
    }

    /// Starts a zone that must refuse to serve; its messages.
    ///
    /// # Panics
    ///
    /// When it serves, or does not end.
    #[must_use]
    pub fn start_refused_zone(&self, memory: u32) -> String {
        let mut command = self.command();
        let child = command
            .arg("columns")
            .args(self.zone_arguments(memory, &[]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("the command can be run");
        let begun = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if begun.elapsed() > START_LIMIT {
                end(&mut Some(child));
                unreachable!("the zone does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().expect("a child");
        assert!(!output.status.success(), "the zone has served");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The zone's process number.
    ///
    /// # Panics
    ///
    /// When it does not run.
    #[must_use]
    pub fn zone_pid(&self) -> u32 {
        self.zone.as_ref().expect("a zone that runs").id()
    }

    /// Ends the zone with SIGKILL.
    pub fn kill_zone(&mut self) {
        end(&mut self.zone);
    }

    /// Stops the zone with SIGTERM, as a service manager does.
    ///
    /// # Panics
    ///
    /// When it does not end, or reports a failure.
    pub fn stop_zone(&mut self) {
        let Some(ended) = self.terminate_zone() else {
            return;
        };
        assert!(ended.success(), "{ended}: {}", self.zone_log());
    }

    /// As [`Self::stop_zone`], for a zone that must report that its shutdown failed; its messages.
    ///
    /// # Panics
    ///
    /// When it ends without a failure.
    #[must_use]
    pub fn stop_zone_with_failure(&mut self) -> String {
        let ended = self.terminate_zone().expect("a zone that runs");
        assert!(!ended.success(), "{}", self.zone_log());
        self.zone_log()
    }

    /// Sends SIGTERM to the zone, and waits for its end; its exit status.
    fn terminate_zone(&mut self) -> Option<ExitStatus> {
        let mut zone = self.zone.take()?;
        let id = zone.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill");
        Some(zone.wait().expect("a child"))
    }

    fn zone_log(&self) -> String {
        std::fs::read_to_string(self.path("zone.log")).unwrap_or_default()
    }

    /// The zone's process number; `None` when it does not run.
    #[must_use]
    pub fn zone_process(&self) -> Option<u32> {
        self.zone.as_ref().map(Child::id)
    }

    /// The proxy's process number; `None` when it does not run.
    #[must_use]
    pub fn proxy_process(&self) -> Option<u32> {
        self.proxy.as_ref().map(Child::id)
    }

    /// Ends the proxy with SIGKILL.
    pub fn kill_proxy(&mut self) {
        end(&mut self.proxy);
    }

    /// Directory of the proxy's socket.
    #[must_use]
    pub fn proxy_directory(&self) -> PathBuf {
        self.path("proxy")
    }

    /// The proxy's socket.
    #[must_use]
    pub fn proxy_socket(&self) -> PathBuf {
        self.proxy_directory().join(".s.PGSQL.5432")
    }

    /// A connection through the proxy.
    ///
    /// # Errors
    ///
    /// What the proxy or the server reports.
    pub fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.proxy_directory())
    }

    /// Starts the proxy to the server whose socket is in `server`.
    ///
    /// # Panics
    ///
    /// When it does not begin to listen.
    pub fn start_proxy(&mut self, server: &Path) {
        self.start_proxy_with(server, &["--connections", "300"]);
    }

    /// As [`Self::start_proxy`], for connections that may store computed values in ordered columns.
    ///
    /// # Panics
    ///
    /// When it does not begin to listen.
    pub fn start_proxy_deriving(&mut self, server: &Path) {
        self.start_proxy_with(server, &["--connections", "300", "--store-derived"]);
    }

    /// As [`Self::start_proxy`], with further options. A proxy that runs is ended first.
    ///
    /// # Panics
    ///
    /// When it does not begin to listen.
    pub fn start_proxy_with(&mut self, server: &Path, options: &[&str]) {
        end(&mut self.proxy);
        let directory = self.path("proxy");
        std::fs::create_dir_all(&directory).expect("a directory of our own");
        let (listen, server) = (
            directory.join(".s.PGSQL.5432"),
            server.join(".s.PGSQL.5432"),
        );
        // The socket of a killed proxy would be taken for that of the new one.
        let _removed = std::fs::remove_file(&listen);
        let mut arguments = vec![
            OsStr::new("proxy"),
            OsStr::new("--listen"),
            listen.as_os_str(),
            OsStr::new("--server"),
            server.as_os_str(),
            OsStr::new("--key-id"),
            OsStr::new("columns"),
            OsStr::new("--accept-process-attestation"),
        ];
        arguments.extend(options.iter().map(OsStr::new));
        self.proxy = Some(self.start(&arguments, "proxy.log", &listen));
    }

    /// The command `strongroom columns`, to be run with further arguments.
    #[must_use]
    pub fn columns(&self) -> Command {
        let mut command = self.command();
        command.arg("columns").stdin(Stdio::null());
        command
    }

    /// Runs SQL through the proxy.
    ///
    /// # Panics
    ///
    /// When psql cannot be run.
    #[must_use]
    pub fn run(&self, sql: &str) -> PsqlOutput {
        psql(&self.path("proxy"), sql)
    }

    /// As [`Self::wait_for`]; prints the end of the server's log when it fails.
    ///
    /// # Panics
    ///
    /// When it returns others for too long.
    pub fn wait_for_log(&self, sql: &str, expected: &str, server: &Server) {
        let waited = std::panic::AssertUnwindSafe(|| self.wait_for(sql, expected));
        if let Err(panic) = std::panic::catch_unwind(waited) {
            print_line(&server.log_tail());
            std::panic::resume_unwind(panic);
        }
    }

    /// Runs SQL through the proxy until it returns these rows: a zone that was started again has to
    /// replay the log first.
    ///
    /// # Panics
    ///
    /// When it returns others for too long.
    pub fn wait_for(&self, sql: &str, expected: &str) {
        expecting::run_until(expected, sql, |sql| self.run(sql));
    }

    /// Runs SQL through the proxy that must fail, with this in its messages.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn fails(&self, sql: &str, message: &str) {
        expecting::assert_failed(&self.run(sql), sql, message);
    }

    /// Runs SQL through the proxy that must succeed; the rows.
    ///
    /// # Panics
    ///
    /// When anything fails.
    #[must_use]
    pub fn rows(&self, sql: &str) -> String {
        let said = self.run(sql);
        assert!(
            !said.messages.contains("ERROR") && !said.messages.contains("FATAL"),
            "{sql}\n{}",
            said.messages
        );
        said.rows
    }
}

/// Ends a process with SIGKILL.
fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        drop(child.kill());
        drop(child.wait());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        end(&mut self.proxy);
        end(&mut self.zone);
    }
}
