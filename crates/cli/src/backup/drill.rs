//! `strongroom backup verify --restore-test`: a set restored to a private place, a server started there, PostgreSQL's own checks.
//!
//! Invariants:
//! - The server listens on a socket in the private place and nowhere else, archives nothing, follows no publisher, and runs as the
//!   owner of its files: whoever runs this, or the user `postgres` when that is root.
//! - The place itself stays ours: of another user are only the cluster, its tablespaces and the directory of the socket, and nothing
//!   in them is opened by root once that user can reach it, but the server's own word that it is ready.
//! - Server and place are gone when this ends, after a signal too, unless it is killed.
//! - What was not checked is said; what was checked and failed is an error.
//!
//! Must not: take a setting of the restored cluster: they are for another place.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use strongroom_backup::{Chain, Kept, Owners, RestoreOptions};
use strongroom_crypto::random16;
use strongroom_format::{code, hex};

use super::progress::{ProgressOptions, Watch};
use super::restore::restored;
use super::until::quoted;
use crate::failure::{Failure, printable};
use crate::pg::programs::BindirOption;
use crate::{owner, signals};

/// Longest path of a socket (`sun_path`, unix(7)), in bytes.
const SOCKET_MAX: usize = 107;
/// The user that packages of PostgreSQL make for its servers.
const SERVER_USER: &str = "postgres";
/// A part of the name of the socket only.
const PORT: &str = "5432";
/// Most of a program's or server's words that stand in an error, in characters.
const WORDS_MAX: usize = 2000;

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long a server may take that is told to end at once.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Longest `postmaster.pid` that is looked at, in bytes.
const PID_FILE_MAX: u64 = 4096;
/// Since this version (`server_version_num`) event triggers can be switched off, and fire at a login.
const EVENT_TRIGGERS: u32 = 170_000;

/// Set by a signal.
static STOP: AtomicBool = AtomicBool::new(false);

/// How a set is tested.
#[derive(Args)]
pub(super) struct DrillOptions {
    /// Of a PostgreSQL cluster: restore it to a private place, start a server there and let PostgreSQL's programs check it
    #[arg(long)]
    restore_test: bool,
    /// With --restore-test: where the private place is made [default: the directory for temporary files]
    #[arg(long, value_name = "DIR", requires = "restore_test")]
    scratch: Option<PathBuf>,
    /// With --restore-test: a query that the restored server has to answer
    #[arg(long, value_name = "SQL", requires = "restore_test")]
    query: Option<String>,
    /// With --restore-test: the database of the query
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    database: String,
    /// With --restore-test: a superuser of the restored cluster
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    superuser: String,
    #[command(flatten)]
    programs: BindirOption,
}

/// What a test found good.
#[derive(Serialize)]
pub(super) struct Drilled {
    pub(super) checked: Vec<String>,
    pub(super) not_checked: Vec<String>,
    /// What the query answered.
    pub(super) answer: Option<String>,
}

impl DrillOptions {
    /// Tests the chain, if that is wanted.
    pub(super) fn run(
        &self,
        chain: &Chain<'_>,
        threads: usize,
        progress: ProgressOptions,
    ) -> Result<Option<Drilled>, Failure> {
        if !self.restore_test {
            return Ok(None);
        }
        let facts = chain.newest()?.description().postgres.clone();
        let facts = facts
            .ok_or_else(|| Failure::usage("--restore-test is for sets of PostgreSQL clusters"))?;
        signals::set(&STOP)?;
        let bin = self.programs.find(Some(facts.server_version / 10_000))?;
        let place = Place::new(self.scratch.as_deref(), &bin)?;
        let options = RestoreOptions {
            to: place.data(),
            tablespaces: None,
            threads,
            recovery: None,
            kept: Kept {
                owners: of_the_server()?,
                special_bits: false,
            },
            sealing: None,
            stop: Some(&STOP),
        };
        let mut progress = Watch::new("restore-test", progress).of(chain.size_bytes());
        restored(chain, &options, &self.programs, &mut |bytes| {
            progress.update(bytes);
        })?;
        progress.finish();
        not_stopped()?;
        let mut server = place.settled(facts.server_version)?;
        self.checked(&mut server).map(Some)
    }

    fn checked(&self, server: &mut Server) -> Result<Drilled, Failure> {
        let mut out = Drilled {
            checked: vec![String::from("restored, with the digest of every file")],
            not_checked: Vec::new(),
            answer: None,
        };
        server.start()?;
        out.checked.push(String::from(
            "recovered by PostgreSQL to the end of the backup",
        ));
        self.structures(server, &mut out)?;
        if let Some(query) = &self.query {
            let answer = self.sql(server, &self.database, query)?;
            let answer = answer.ok_or_else(|| {
                Failure::new(&code::TEST_PROGRAM, "psql: not found; --query needs it")
            })?;
            out.checked.push(String::from("the query was answered"));
            out.answer = Some(answer.trim_end().to_owned());
        } else {
            out.not_checked
                .push(String::from("what the tables hold: no query was given"));
        }
        server.stop()?;
        // After a clean shutdown: the program refuses a cluster that still has to recover.
        checksums(server, &mut out)?;
        for what in [
            "the cluster's own settings, and what needs libraries to be preloaded",
            "subscriptions: none was followed",
        ] {
            out.not_checked.push(String::from(what));
        }
        Ok(out)
    }

    /// Tables and indexes, by `pg_amcheck`.
    fn structures(&self, server: &Server, out: &mut Drilled) -> Result<(), Failure> {
        let lacking = |what: &str| format!("the structure of tables and indexes: {what}");
        let Some(mut amcheck) = server.program("pg_amcheck") else {
            out.not_checked.push(lacking("pg_amcheck is not installed"));
            return Ok(());
        };
        let available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'";
        match self
            .sql(server, "postgres", available)?
            .as_deref()
            .map(str::trim)
        {
            Some("1") => {}
            Some(_) => {
                out.not_checked
                    .push(lacking("the extension amcheck is not installed"));
                return Ok(());
            }
            None => {
                out.not_checked.push(lacking("psql is not installed"));
                return Ok(());
            }
        }
        server.reached_by(&mut amcheck, &self.superuser);
        amcheck.args(["--all", "--heapallindexed", "--install-missing"]);
        let output = run("pg_amcheck", amcheck)?;
        // What it finds is on its standard output: names and places, no values.
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        succeeded("pg_amcheck", output.status, &said)?;
        out.checked
            .push(String::from("tables and B-tree indexes, by pg_amcheck"));
        out.not_checked.push(String::from(
            "other indexes, indexes that are invalid, and databases that allow no connections",
        ));
        Ok(())
    }

    /// What psql prints; `None` when there is no psql.
    fn sql(
        &self,
        server: &Server,
        database: &str,
        statement: &str,
    ) -> Result<Option<String>, Failure> {
        let Some(mut psql) = server.program("psql") else {
            return Ok(None);
        };
        server.reached_by(&mut psql, &self.superuser);
        // Terse: what a row holds has no place in an error.
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-v", "VERBOSITY=terse"]);
        psql.arg("-d").arg(database).arg("-c").arg(statement);
        let output = run("psql", psql)?;
        // Nor have the rows that came before it.
        succeeded("psql", output.status, &output.stderr)?;
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

fn checksums(server: &Server, out: &mut Drilled) -> Result<(), Failure> {
    let Some(mut program) = server.program("pg_checksums") else {
        let text = "page checksums: pg_checksums is not installed";
        out.not_checked.push(String::from(text));
        return Ok(());
    };
    program.arg("--check").arg("-D").arg(&server.data);
    let output = run("pg_checksums", program)?;
    // The program's own words for a cluster without (src/bin/pg_checksums/pg_checksums.c); LC_ALL is C.
    if String::from_utf8_lossy(&output.stderr).contains("data checksums are not enabled") {
        let text = "page checksums: the cluster has none";
        out.not_checked.push(String::from(text));
        return Ok(());
    }
    succeeded("pg_checksums", output.status, &output.stderr)?;
    out.checked
        .push(String::from("the checksum of every page, by pg_checksums"));
    Ok(())
}

/// Runs a program to its end, or to a signal for us. What it says goes to memory: nobody has to read along, and no name leads to it.
fn run(name: &str, mut command: Command) -> Result<Output, Failure> {
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
fn unnamed() -> Result<File, Failure> {
    let made = memfd_create("strongroom", MemfdFlags::CLOEXEC);
    let made = made.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
    Ok(made.into())
}

fn copy_of(file: &File) -> Result<File, Failure> {
    let copy = file.try_clone();
    copy.map_err(|error| Failure::new(&code::IO, error.to_string()))
}

/// All of a file from its beginning, wherever its writer stands.
fn said_in(file: &File) -> Result<Vec<u8>, Failure> {
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

fn succeeded(name: &str, status: ExitStatus, said: &[u8]) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let detail = format!("{name}: {status}: {}", words(said));
    Err(Failure::new(&code::RESTORE_TEST, detail))
}

/// As whom a server is started: never as root, and not as a user whom the set names: whoever made
/// it could choose.
fn of_the_server() -> Result<Owners, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Owners::Mine);
    }
    let found = owner::user_and_group(SERVER_USER).filter(|(user, _)| *user != 0);
    let (user, group) = found.ok_or_else(|| {
        let text = format!(
            "no server runs as root, and there is no user {SERVER_USER}: run the test as another user"
        );
        Failure::new(&code::TEST_PROGRAM, text)
    })?;
    Ok(Owners::Given { user, group })
}

fn not_stopped() -> Result<(), Failure> {
    if STOP.load(Ordering::Relaxed) {
        return Err(Failure::new(&code::IO, "ended by a signal"));
    }
    Ok(())
}

/// The last words, in one line.
fn words(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    let all: Vec<char> = lines.join("; ").chars().collect();
    let from = all.len().saturating_sub(WORDS_MAX);
    printable(&all.iter().skip(from).collect::<String>())
}

/// The private place; gone with everything in it, and the server on it, when it is dropped.
struct Place {
    root: PathBuf,
    bin: PathBuf,
}

impl Place {
    fn new(within: Option<&Path>, bin: &Path) -> Result<Self, Failure> {
        let within = within.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let absolute =
            std::path::absolute(&within).map_err(|error| Failure::io(&within, &error))?;
        let random = random16().map_err(strongroom_keyring::Error::from)?;
        let random: String = hex::hex(&random).chars().take(12).collect();
        let root = absolute.join(format!("strongroom-{random}"));
        let socket = root.join("run").join(format!(".s.PGSQL.{PORT}.lock"));
        if socket.as_os_str().len() > SOCKET_MAX {
            let detail = format!(
                "{}: too long a path for a socket; use --scratch",
                root.display()
            );
            return Err(Failure::usage(&detail));
        }
        let made = DirBuilder::new().mode(0o700).create(&root);
        made.map_err(|error| Failure::io(&root, &error))?;
        Ok(Self {
            root,
            bin: bin.to_path_buf(),
        })
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Lets the owner of the restored files in, with settings for a server that is theirs to read.
    fn settled(self, version_number: u32) -> Result<Server, Failure> {
        let data = self.data();
        let version = data.join("PG_VERSION");
        let about = fs::metadata(&version).map_err(|error| Failure::io(&version, &error))?;
        let root = rustix::process::geteuid().is_root();
        let owner = root.then(|| (about.uid(), about.gid()));
        for name in ["postgresql.auto.conf", "standby.signal", "recovery.signal"] {
            let path = data.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Failure::io(&path, &error));
                }
                _ => {}
            }
        }
        let server = Server {
            settings: self.root.join("settings"),
            socket: self.root.join("run"),
            version: version_number,
            data,
            owner,
            child: None,
            log: unnamed()?,
            place: self,
        };
        server.configure()?;
        Ok(server)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left cannot be told to anybody any more; nobody else can read it.
        drop(fs::remove_dir_all(&self.root));
    }
}

/// A server in the private place.
struct Server {
    place: Place,
    data: PathBuf,
    settings: PathBuf,
    /// The directory of its socket.
    socket: PathBuf,
    /// As `server_version_num`.
    version: u32,
    /// User and group that programs run as, if not as ours.
    owner: Option<(u32, u32)>,
    /// The server, until it has ended.
    child: Option<Child>,
    /// What it says.
    log: File,
}

impl Server {
    fn configure(&self) -> Result<(), Failure> {
        let text = |path: &Path| {
            let text = path
                .to_str()
                .filter(|text| !text.chars().any(char::is_control));
            text.map(quoted)
                .ok_or_else(|| Failure::usage("a path that cannot stand in a setting"))
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
        let files = [
            ("postgresql.conf", settings.as_str()),
            ("pg_hba.conf", "local all all trust\n"),
            ("pg_ident.conf", ""),
        ];
        // Until the last line nobody else can reach any of this.
        self.make(&self.settings)?;
        for (name, content) in files {
            let path = self.settings.join(name);
            strongroom_keyring::durable::create_new(&path, content.as_bytes(), 0o640)
                .map_err(|error| Failure::io(&path, &error))?;
            self.give(&path, None)?;
        }
        self.give(&self.settings, None)?;
        self.allow(&self.settings, 0o750)?;
        self.make(&self.socket)?;
        let user = self.owner.map(|(user, _)| user);
        self.give(&self.socket, user)?;
        // A set of a directory that its group could read keeps that.
        self.allow(&self.data, 0o700)?;
        if self.owner.is_some() {
            self.give(&self.place.root, None)?;
            self.allow(&self.place.root, 0o710)?;
        }
        Ok(())
    }

    fn make(&self, path: &Path) -> Result<(), Failure> {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|error| Failure::io(path, &error))
    }

    fn allow(&self, path: &Path, mode: u32) -> Result<(), Failure> {
        fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(|error| Failure::io(path, &error))
    }

    /// Gives something to the server's group, and to a user, if the server is not ours.
    fn give(&self, path: &Path, user: Option<u32>) -> Result<(), Failure> {
        let Some((_, group)) = self.owner else {
            return Ok(());
        };
        std::os::unix::fs::lchown(path, user, Some(group))
            .map_err(|error| Failure::io(path, &error))
    }

    /// A program of the server's version, with nothing of our environment that could lead it elsewhere.
    fn program(&self, name: &str) -> Option<Command> {
        let path = self.place.bin.join(name);
        if !path.is_file() {
            return None;
        }
        let mut command = Command::new(path);
        let kept: Vec<(&str, OsString)> = ["PATH", "LD_LIBRARY_PATH"]
            .into_iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)))
            .collect();
        command.env_clear().envs(kept).env("LC_ALL", "C");
        command.current_dir(&self.place.root).stdin(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        Some(command)
    }

    fn reached_by(&self, command: &mut Command, user: &str) {
        command.arg("-h").arg(&self.socket);
        command.args(["-p", PORT, "-w", "-U", user]);
        // A client's word counts more than what a database or a role of the set has, a file's does not.
        let mut options = String::from("-c session_preload_libraries= -c local_preload_libraries=");
        if self.version >= EVENT_TRIGGERS {
            options.push_str(" -c event_triggers=off");
        }
        command.env("PGOPTIONS", options);
    }

    /// Starts the server, and waits until it has recovered, which takes as long as it takes.
    fn start(&mut self) -> Result<(), Failure> {
        not_stopped()?;
        let lost =
            |error: std::io::Error| Failure::new(&code::TEST_PROGRAM, format!("postgres: {error}"));
        let program = self.program("postgres");
        let mut program =
            program.ok_or_else(|| Failure::new(&code::TEST_PROGRAM, "postgres: not found"))?;
        program.arg("-D").arg(&self.settings);
        // What a terminal sends is for us.
        program.process_group(0);
        program.stdout(copy_of(&self.log)?);
        program.stderr(copy_of(&self.log)?);
        let child = self.child.insert(program.spawn().map_err(lost)?);
        let pid = child.id();
        loop {
            if child.try_wait().map_err(lost)?.is_some() {
                self.child = None;
                let said = words(&said_in(&self.log).unwrap_or_default());
                let detail = format!("the server does not start: {said}");
                return Err(Failure::new(&code::RESTORE_TEST, detail));
            }
            not_stopped()?;
            if is_ready(&self.data, pid) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn stop(&mut self) -> Result<(), Failure> {
        self.signal(Signal::INT);
        let lost =
            |error: std::io::Error| Failure::new(&code::TEST_PROGRAM, format!("postgres: {error}"));
        while let Some(child) = &mut self.child {
            if let Some(status) = child.try_wait().map_err(lost)? {
                self.child = None;
                return succeeded("postgres", status, &said_in(&self.log).unwrap_or_default());
            }
            not_stopped()?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().map(|child| child.id().cast_signed());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // Not waited for yet, so it is nobody else's.
            let _sent: Result<(), Errno> = kill_process(pid, signal);
        }
    }
}

/// Whether the server has written that it takes connections (PostgreSQL: `LOCK_FILE_LINE_PM_STATUS`,
/// `src/include/utils/pidfile.h`). The directory is another user's: neither a link nor a pipe is opened for him.
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
