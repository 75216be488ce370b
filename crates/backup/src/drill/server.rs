//! The server of a restore test, in its private directory.
//!
//! Invariants: those of the module `drill` that concern the server.
//!
//! Must not: use the settings of the restored cluster, which are for the original server.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use strongroom_format::code;

use super::options::DrillOptions;
use super::private_directory::{PORT, PrivateDirectory};
use super::programs::{
    LOOK, check_status, check_stop, duplicate, end_of_output, read_all, run, unnamed_file,
};
use super::requests::{COMMAND, Requests};
use super::server_user::{ServerUser, set_mode};
use crate::io_error::io_error;
use crate::recovery::quoted;
use crate::{ArchivedLog, Error, Result};

/// How long a server may take to end after SIGQUIT.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Since this version (`server_version_num`) a server that recovers writes every 10 seconds to its
/// log how far it has come (`log_startup_progress_interval`).
const TELLS_PROGRESS: u32 = 150_000;
/// How long a recovery may go on without a sign of life: a line in the server's log, or a request
/// for a file of the archive. Older servers give no such sign where nothing is archived.
const SILENCE_MAX: Duration = Duration::from_secs(30 * 60);
/// The most bytes of `postmaster.pid` that are read.
const PID_FILE_MAX: u64 = 4096;
/// Since this version (`server_version_num`) event triggers can be switched off, and fire at a
/// login.
const EVENT_TRIGGERS: u32 = 170_000;

/// A server in the private directory.
pub(super) struct Server {
    directory: PrivateDirectory,
    /// PostgreSQL's programs.
    programs: PathBuf,
    /// Variables that programs get, beside `LC_ALL`.
    environment: Vec<(String, OsString)>,
    stop: &'static AtomicBool,
    pub(super) data: PathBuf,
    settings: PathBuf,
    /// The directory of its socket.
    socket: PathBuf,
    /// As `server_version_num`.
    version: u32,
    user: ServerUser,
    /// The server, until it has ended.
    child: Option<Child>,
    /// Its standard output and standard error.
    log: File,
    /// How it gets the archived log, if it recovers from it.
    requests: Option<Requests>,
}

impl Server {
    /// Prepares a server for the restored files, and does not start it: removes the settings and
    /// signal files that the set brought, and writes its own, which the server's user may read.
    /// With an archive, the server will recover from it. SR-5001 when the system reports an error;
    /// SR-1001 for a path that a setting cannot hold.
    pub(super) fn new(
        directory: PrivateDirectory,
        options: &DrillOptions,
        archive: Option<&ArchivedLog<'_>>,
    ) -> Result<Self> {
        let data = directory.data();
        let version = data.join("PG_VERSION");
        let about = fs::metadata(&version).map_err(|error| io_error(&version, error))?;
        let root = rustix::process::geteuid().is_root();
        let user = ServerUser::new(root.then(|| (about.uid(), about.gid())));
        for name in ["postgresql.auto.conf", "standby.signal", "recovery.signal"] {
            let path = data.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error(&path, error));
                }
                _ => {}
            }
        }
        let mut server = Self {
            settings: directory.root().join("settings"),
            socket: directory.root().join("run"),
            version: options.server_version,
            programs: options.programs.clone(),
            environment: options.environment.clone(),
            stop: options.stop,
            data,
            user,
            child: None,
            log: unnamed_file()?,
            requests: None,
            directory,
        };
        server.configure(archive)?;
        Ok(server)
    }

    /// Writes the server's settings, its `recovery.signal` if there is an archive, and the
    /// directory of its socket, and gives its user access to the directory. SR-1001 for a path that
    /// a setting cannot hold.
    fn configure(&mut self, archive: Option<&ArchivedLog<'_>>) -> Result<()> {
        let text = |path: &Path| {
            let text = path
                .to_str()
                .filter(|text| !text.chars().any(char::is_control));
            text.map(quoted).ok_or_else(|| {
                Error::new(&code::USAGE, "a path that a PostgreSQL setting cannot hold")
            })
        };
        let mut settings = format!(
            "data_directory = {}\nunix_socket_directories = {}\nlisten_addresses = ''\nport = {PORT}\n\
             archive_mode = off\nfsync = off\nautovacuum = off\nshared_buffers = 64MB\nrestart_after_crash = off\n\
             max_prepared_transactions = 1000\nmax_locks_per_transaction = 256\nlogging_collector = off\n\
             max_logical_replication_workers = 0\nmax_sync_workers_per_subscription = 0\n",
            text(&self.data)?,
            text(&self.socket)?,
        );
        if self.version >= EVENT_TRIGGERS {
            settings.push_str("event_triggers = off\n");
        }
        if let Some(archive) = archive {
            settings.push_str(&recovery_settings(archive));
        }
        let files = [
            ("postgresql.conf", settings.as_str()),
            ("pg_hba.conf", "local all all trust\n"),
            ("pg_ident.conf", ""),
        ];
        // No other user can reach any of this until the mode of the root is set, at the end.
        create_private(&self.settings)?;
        for (name, content) in files {
            let path = self.settings.join(name);
            strongroom_keyring::durable::create_new(&path, content.as_bytes(), 0o640)
                .map_err(|error| io_error(&path, error))?;
            self.user.give_to_group(&path)?;
        }
        if archive.is_some() {
            let signal = self.data.join("recovery.signal");
            strongroom_keyring::durable::create_new(&signal, b"", 0o600)
                .map_err(|error| io_error(&signal, error))?;
            self.user.give_to_server(&signal)?;
            self.requests = Some(Requests::new(
                self.user,
                self.directory.root(),
                &self.settings,
            )?);
        }
        self.user.give_to_group(&self.settings)?;
        set_mode(&self.settings, 0o750)?;
        create_private(&self.socket)?;
        self.user.give_to_server(&self.socket)?;
        // The restored directory may have a mode that its group can read.
        set_mode(&self.data, 0o700)?;
        if self.user.is_other() {
            self.user.give_to_group(self.directory.root())?;
            set_mode(self.directory.root(), 0o710)?;
        }
        Ok(())
    }

    /// A command for a program of the server's version, which runs as the server's user without our
    /// environment. `None` when it is not installed.
    pub(super) fn program(&self, name: &str) -> Option<Command> {
        let path = self.programs.join(name);
        if !path.is_file() {
            return None;
        }
        let mut command = Command::new(path);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.env_clear().envs(environment).env("LC_ALL", "C");
        command
            .current_dir(self.directory.root())
            .stdin(Stdio::null());
        self.user.run_as(&mut command);
        Some(command)
    }

    /// Gives a client program the arguments to connect to this server as `user`, and options that
    /// keep what the set defines for its sessions from running.
    pub(super) fn connect_as(&self, command: &mut Command, user: &str) {
        command.arg("-h").arg(&self.socket);
        command.args(["-p", PORT, "-w", "-U", user]);
        // These options take precedence over settings of a database or a role in the set; settings
        // in a file would not.
        let mut options = String::from("-c session_preload_libraries= -c local_preload_libraries=");
        if self.version >= EVENT_TRIGGERS {
            options.push_str(" -c event_triggers=off");
        }
        command.env("PGOPTIONS", options);
    }

    /// Runs a program of the test to its end, and returns its output and its exit status, which is
    /// not checked; `name` is for messages. SR-7164 when it cannot be run; SR-5001, after it was
    /// killed, when the test is to stop.
    pub(super) fn run(&self, name: &str, command: Command) -> Result<Output> {
        run(name, command, self.stop)
    }

    /// Starts the server, and waits until it has recovered and accepts connections; with an
    /// archive, it gives the server the log meanwhile. Before PostgreSQL 15, and without an
    /// archive, a recovery gives no sign of life, and the wait has no limit.
    ///
    /// # Errors
    /// SR-7163 when the server ends, or gives no sign of life for 30 minutes; SR-7164 when it
    /// cannot be run; SR-5001 when the test is to stop; those of the archive.
    pub(super) fn start(&mut self, archive: Option<&ArchivedLog<'_>>) -> Result<()> {
        check_stop(self.stop)?;
        let lost =
            |error: std::io::Error| Error::new(&code::TEST_PROGRAM, format!("postgres: {error}"));
        let program = self.program("postgres");
        let mut program =
            program.ok_or_else(|| Error::new(&code::TEST_PROGRAM, "postgres: not found"))?;
        program.arg("-D").arg(&self.settings);
        // Signals of a terminal are meant for this process only.
        program.process_group(0);
        program.stdout(duplicate(&self.log)?);
        program.stderr(duplicate(&self.log)?);
        let pid = self.child.insert(program.spawn().map_err(lost)?).id();
        let mut silence = Silence::new();
        loop {
            if self.has_ended().map_err(lost)? {
                let said = end_of_output(&read_all(&self.log).unwrap_or_default());
                let detail = format!("the server does not start: {said}");
                return Err(Error::new(&code::RESTORE_TEST, detail));
            }
            check_stop(self.stop)?;
            if is_ready(&self.data, pid) {
                return Ok(());
            }
            if let (Some(requests), Some(archive)) = (&mut self.requests, archive) {
                requests.serve(self.user, archive)?;
            }
            let speaks = archive.is_some() || self.version >= TELLS_PROGRESS;
            if speaks && silence.lasts(self.signs_of_life(), Instant::now()) > SILENCE_MAX {
                return Err(self.stall_error());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Two numbers that grow while a recovery goes on: the length of the server's log, and how many
    /// requests were answered.
    fn signs_of_life(&self) -> (u64, u64) {
        let log = self.log.metadata().map_or(0, |about| about.len());
        (log, self.requests.as_ref().map_or(0, Requests::answered))
    }

    /// Makes SR-7163 for a server that has given no sign of life, with the end of its log.
    fn stall_error(&self) -> Error {
        let said = end_of_output(&read_all(&self.log).unwrap_or_default());
        let minutes = SILENCE_MAX.as_secs() / 60;
        let detail = format!(
            "for {minutes} minutes the server has neither ended its recovery, nor logged anything, nor asked for a file: {said}"
        );
        Error::new(&code::RESTORE_TEST, detail)
    }

    /// Whether the server is no longer running. Its exit status is dropped. An error when the
    /// system does not tell.
    fn has_ended(&mut self) -> std::io::Result<bool> {
        let ended = match &mut self.child {
            Some(child) => child.try_wait()?.is_some(),
            None => true,
        };
        if ended {
            self.child = None;
        }
        Ok(ended)
    }

    /// Reads the server's log so far; bytes that are not UTF-8 are replaced. SR-5001 when that
    /// fails.
    pub(super) fn log_text(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&read_all(&self.log)?).into_owned())
    }

    /// Shuts the server down (SIGINT), and waits for its end; does nothing if it does not run.
    /// SR-7163 when it does not end with 0; SR-7164 when it cannot be waited for; SR-5001 when the
    /// test is to stop.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.signal(Signal::INT);
        let lost =
            |error: std::io::Error| Error::new(&code::TEST_PROGRAM, format!("postgres: {error}"));
        while let Some(child) = &mut self.child {
            if let Some(status) = child.try_wait().map_err(lost)? {
                self.child = None;
                return check_status("postgres", status, &read_all(&self.log).unwrap_or_default());
            }
            check_stop(self.stop)?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Sends a signal to the server, if it runs.
    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().map(|child| child.id().cast_signed());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // The process was not waited for yet, so its number is not reused.
            let _sent: std::result::Result<(), Errno> = kill_process(pid, signal);
        }
    }
}

/// How long a recovering server has given no sign of life.
struct Silence {
    since: Instant,
    signs: (u64, u64),
}

impl Silence {
    /// Begins to wait now, with no sign seen yet.
    fn new() -> Self {
        Self {
            since: Instant::now(),
            signs: (0, 0),
        }
    }

    /// Notes `signs`, and returns how long they have been the same at `now`. Called at each poll.
    fn lasts(&mut self, signs: (u64, u64), now: Instant) -> Duration {
        if signs != self.signs {
            *self = Self { since: now, signs };
        }
        now.saturating_duration_since(self.since)
    }
}

/// The text of the settings with which a server recovers to the end of an archive. Its messages are
/// in English, because they are parsed. Without hot standby it does not need limits as high as the
/// original server's.
fn recovery_settings(archive: &ArchivedLog<'_>) -> String {
    format!(
        "restore_command = {}\nrecovery_target_timeline = '{}'\nrecovery_target_action = 'promote'\n\
         hot_standby = off\nlc_messages = 'C'\n",
        quoted(COMMAND),
        archive.target_timeline(),
    )
}

/// Makes a directory with mode 0700. SR-5001, also when something is there.
fn create_private(path: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| io_error(path, error))
}

/// Whether `postmaster.pid` says that this process, the server, accepts connections
/// (`LOCK_FILE_LINE_PM_STATUS`, `src/include/utils/pidfile.h`). The directory belongs to another
/// user, so that neither a link nor a pipe is opened.
fn is_ready(data: &Path, pid: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::open(data.join("postmaster.pid"), flags, Mode::empty()) else {
        return false;
    };
    let file = File::from(opened);
    let mut text = String::new();
    let is_file = file.metadata().is_ok_and(|about| about.is_file());
    if !is_file || file.take(PID_FILE_MAX).read_to_string(&mut text).is_err() {
        return false;
    }
    let mut lines = text.lines();
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6).map(str::trim) == Some("ready")
}

impl Drop for Server {
    /// Ends the server with SIGQUIT, and kills it if it still runs after 10 seconds.
    fn drop(&mut self) {
        self.signal(Signal::QUIT);
        let begun = Instant::now();
        while let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(None) if begun.elapsed() < AT_ONCE => std::thread::sleep(LOOK),
                Ok(None) => {
                    drop(child.kill());
                    drop(child.wait());
                    self.child = None;
                }
                _ => self.child = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Silence;

    #[test]
    fn every_sign_of_life_begins_the_time_anew() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut silence = Silence::new();
        silence.lasts((1, 0), begun);
        assert_eq!(silence.lasts((1, 0), after(60)), Duration::from_secs(60));
        assert_eq!(silence.lasts((1, 1), after(61)), Duration::ZERO);
        assert_eq!(silence.lasts((2, 1), after(70)), Duration::ZERO);
        assert_eq!(silence.lasts((2, 1), after(71)), Duration::from_secs(1));
    }
}
