//! The other two processes: the zone, and the data owner's proxy, both the real command.
//!
//! The variable `STRONGROOM_COMMAND` names it. Must not: leave a process running.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use strongroom_benches_oltp::wire::{Client, Failure};
use tempfile::TempDir;

use crate::{Said, Server, open_to_all, psql, said};

/// A zone, a server with the extension, and a proxy before it.
///
/// # Panics
///
/// When one of them does not start.
#[must_use]
pub fn whole(settings: &str) -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), settings);
    let _made = server.rows("create extension strongroom_columns");
    owner.start_proxy(server.socket());
    (owner, server)
}

/// How long a process may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with a keyring, in which a zone and a proxy live.
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
    /// Makes keyring and keys; nothing runs yet.
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

    /// A file of the directory.
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

    fn start(&self, arguments: &[&OsStr], log: &str, witness: &Path) -> Child {
        drop(std::fs::remove_file(witness));
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
        while !witness.exists() {
            assert!(begun.elapsed() < PATIENCE, "{arguments:?}: too slow");
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "{arguments:?}: {ended:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// The zone's socket.
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

    /// As [`Self::start_zone`], with `memory` MiB for values, more than which is paged, and with further options.
    ///
    /// # Panics
    ///
    /// When it does not begin to serve.
    pub fn start_zone_with(&mut self, memory: u32, options: &[&str]) {
        let memory = memory.to_string();
        let (state, socket, key) = (self.path("zone"), self.zone_socket(), self.path("zone.key"));
        let mut arguments = vec![
            OsStr::new("zone"),
            OsStr::new("--state"),
            state.as_os_str(),
            OsStr::new("--socket"),
            socket.as_os_str(),
            OsStr::new("--user"),
            OsStr::new("postgres"),
            OsStr::new("--key-file"),
            key.as_os_str(),
            OsStr::new("--memory"),
            OsStr::new(&memory),
        ];
        arguments.extend(options.iter().map(OsStr::new));
        self.zone = Some(self.start(&arguments, "zone.log", &socket));
    }

    /// The zone's process.
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

    /// Ends the zone in order, as a service manager does.
    ///
    /// # Panics
    ///
    /// When it does not end, or not in order.
    pub fn stop_zone(&mut self) {
        let Some(mut zone) = self.zone.take() else {
            return;
        };
        let id = zone.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status();
        assert!(told.is_ok_and(|status| status.success()), "kill");
        let ended = zone.wait().expect("a child");
        let log = std::fs::read_to_string(self.path("zone.log")).unwrap_or_default();
        assert!(ended.success(), "{ended}: {log}");
    }

    /// Runs SQL at the server until it gives these rows, while the zone reads the log.
    ///
    /// # Panics
    ///
    /// When it does not for too long.
    pub fn wait_for_at(&self, server: &Server, sql: &str, rows: &str) {
        let begun = Instant::now();
        loop {
            let said = server.run(sql);
            if said.rows == rows && !said.messages.contains("ERROR") {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{}{}", said.rows, said.messages);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The zone's process number.
    #[must_use]
    pub fn zone_process(&self) -> Option<u32> {
        self.zone.as_ref().map(Child::id)
    }

    /// The proxy's process number.
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
    /// What the proxy or the server says.
    pub fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.proxy_directory())
    }

    /// Starts the proxy before the server whose socket is in `server`.
    ///
    /// # Panics
    ///
    /// When it does not begin to listen.
    pub fn start_proxy(&mut self, server: &Path) {
        self.start_proxy_with(server, &["--connections", "300"]);
    }

    /// As [`Self::start_proxy`], with further options, in the place of a proxy that runs already.
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
        // One that a killed proxy has left would be taken for that of the new one.
        let _left = std::fs::remove_file(&listen);
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

    /// `strongroom columns`, to be run with further arguments.
    #[must_use]
    pub fn columns(&self) -> Command {
        let mut command = self.command();
        command.arg("columns").stdin(Stdio::null());
        command
    }

    /// The proxy's socket.
    #[must_use]
    pub fn proxy_listener(&self) -> PathBuf {
        self.path("proxy").join(".s.PGSQL.5432")
    }

    /// Runs SQL through the proxy.
    ///
    /// # Panics
    ///
    /// When psql cannot be run.
    #[must_use]
    pub fn run(&self, sql: &str) -> Said {
        psql(&self.path("proxy"), sql)
    }

    /// As [`Self::wait_for`]; when it fails, the end of the server's log is shown.
    ///
    /// # Panics
    ///
    /// When it is another one for too long.
    pub fn wait_for_log(&self, sql: &str, expected: &str, server: &Server) {
        let waited = std::panic::AssertUnwindSafe(|| self.wait_for(sql, expected));
        if let Err(panic) = std::panic::catch_unwind(waited) {
            said(&server.last_of_log());
            std::panic::resume_unwind(panic);
        }
    }

    /// Asks until the answer is this one: a zone that was started again has to read the log first.
    ///
    /// # Panics
    ///
    /// When it is another one for too long.
    pub fn wait_for(&self, sql: &str, expected: &str) {
        let begun = Instant::now();
        loop {
            let said = self.run(sql);
            if said.rows == expected && !said.messages.contains("ERROR") {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{sql}\n{}\n{}\ninstead of\n{expected}",
                said.rows,
                said.messages
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Runs SQL through the proxy that must succeed; its rows.
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
