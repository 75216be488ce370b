//! `strongroom backup verify --restore-test`: a set restored to a private place, a server started there, PostgreSQL's own checks.
//!
//! Invariants:
//! - The server listens on a socket in the private place and nowhere else, archives nothing, and runs as the owner of its files.
//! - Server and place are gone when this ends, unless it is killed.
//! - What was not checked is said; what was checked and failed is an error.
//!
//! Must not: take a setting of the restored cluster: they are for another place.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use strongroom_backup::{Chain, RestoreOptions};
use strongroom_crypto::random16;
use strongroom_format::{code, hex};

use super::progress::{ProgressOptions, Watch};
use super::restore::restored;
use super::until::quoted;
use crate::failure::{Failure, printable};
use crate::pg::programs::BindirOption;

/// Longest path of a socket (`sun_path`, unix(7)), in bytes.
const SOCKET_MAX: usize = 107;
/// A part of the name of the socket only.
const PORT: &str = "5432";
/// Most of a program's or server's words that stand in an error, in characters.
const WORDS_MAX: usize = 2000;

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);

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
        ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
            .map_err(|error| Failure::new(&code::IO, format!("signal handler: {error}")))?;
        let bin = self.programs.find(Some(facts.server_version / 10_000))?;
        let place = Place::new(self.scratch.as_deref(), &bin)?;
        let options = RestoreOptions {
            to: place.data(),
            tablespaces: None,
            threads,
            recovery: None,
        };
        let mut progress = Watch::new("restore-test", progress).of(chain.size_bytes());
        restored(chain, &options, &self.programs, &mut |bytes| {
            progress.update(bytes);
        })?;
        progress.finish();
        let server = place.settled()?;
        self.checked(&server).map(Some)
    }

    fn checked(&self, server: &Server) -> Result<Drilled, Failure> {
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
        let settings = "the cluster's own settings, and what needs libraries to be preloaded";
        out.not_checked.push(String::from(settings));
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
        passed("pg_amcheck", server, amcheck)?;
        out.checked
            .push(String::from("every table and index, by pg_amcheck"));
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
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.arg("-d").arg(database).arg("-c").arg(statement);
        let output = passed("psql", server, psql)?;
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
    let output = run("pg_checksums", server, program)?;
    // The program's own words for a cluster without (src/bin/pg_checksums/pg_checksums.c); LC_ALL is C.
    if String::from_utf8_lossy(&output.stderr).contains("data checksums are not enabled") {
        let text = "page checksums: the cluster has none";
        out.not_checked.push(String::from(text));
        return Ok(());
    }
    succeeded("pg_checksums", &output)?;
    out.checked
        .push(String::from("the checksum of every page, by pg_checksums"));
    Ok(())
}

/// Runs a program that has to succeed.
fn passed(name: &str, server: &Server, command: Command) -> Result<Output, Failure> {
    let output = run(name, server, command)?;
    succeeded(name, &output)?;
    Ok(output)
}

/// Runs a program to its end, or to a signal for us. What it says goes to files: nobody has to read along.
fn run(name: &str, server: &Server, mut command: Command) -> Result<Output, Failure> {
    let (out, err) = (server.place.root.join("out"), server.place.root.join("err"));
    command.stdout(emptied(&out)?).stderr(emptied(&err)?);
    let status = ended(name, &mut command)?;
    let said = |path: &Path| fs::read(path).map_err(|error| Failure::io(path, &error));
    Ok(Output {
        status,
        stdout: said(&out)?,
        stderr: said(&err)?,
    })
}

fn emptied(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600);
    opened.open(path).map_err(|error| Failure::io(path, &error))
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

fn succeeded(name: &str, output: &Output) -> Result<(), Failure> {
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let detail = format!("{name}: {}: {}", output.status, words(&said));
    Err(Failure::new(&code::RESTORE_TEST, detail))
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
        let socket = root.join(format!(".s.PGSQL.{PORT}.lock"));
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

    /// Gives the place to the owner of the restored files, with settings for a server in it.
    fn settled(self) -> Result<Server, Failure> {
        let data = self.data();
        let version = data.join("PG_VERSION");
        let about = fs::metadata(&version).map_err(|error| Failure::io(&version, &error))?;
        let root = rustix::process::geteuid().is_root();
        let owner = root.then(|| (about.uid(), about.gid()));
        if owner.is_some_and(|(user, _)| user == 0) {
            let text = "the set's files belong to root, as whom no server runs: run the test as another user";
            return Err(Failure::new(&code::TEST_PROGRAM, text));
        }
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
            data,
            owner,
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
    /// User and group that programs run as, if not as ours.
    owner: Option<(u32, u32)>,
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
        let settings = format!(
            "data_directory = {}\nunix_socket_directories = {}\nlisten_addresses = ''\nport = {PORT}\n\
             archive_mode = off\nfsync = off\nautovacuum = off\nshared_buffers = 64MB\nrestart_after_crash = off\n\
             max_prepared_transactions = 1000\nmax_locks_per_transaction = 256\nlogging_collector = off\n",
            text(&self.data)?,
            text(&self.place.root)?,
        );
        let made = DirBuilder::new().mode(0o700).create(&self.settings);
        made.map_err(|error| Failure::io(&self.settings, &error))?;
        let files = [
            ("postgresql.conf", settings.as_str()),
            ("pg_hba.conf", "local all all trust\n"),
            ("pg_ident.conf", ""),
        ];
        for (name, content) in files {
            let path = self.settings.join(name);
            strongroom_keyring::durable::create_new(&path, content.as_bytes(), 0o600)
                .map_err(|error| Failure::io(&path, &error))?;
            self.give(&path)?;
        }
        self.give(&self.settings)?;
        self.give(&self.place.root)?;
        // A set of a directory that its group could read keeps that; nobody can reach it here.
        let mode = fs::metadata(&self.data).map_err(|error| Failure::io(&self.data, &error))?;
        let private = Permissions::from_mode(mode.mode() & 0o750);
        fs::set_permissions(&self.data, private).map_err(|error| Failure::io(&self.data, &error))
    }

    fn give(&self, path: &Path) -> Result<(), Failure> {
        let Some((user, group)) = self.owner else {
            return Ok(());
        };
        std::os::unix::fs::lchown(path, Some(user), Some(group))
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
        command.arg("-h").arg(&self.place.root);
        command.args(["-p", PORT, "-w", "-U", user]);
    }

    fn control(&self) -> Result<Command, Failure> {
        let program = self.program("pg_ctl");
        let mut program =
            program.ok_or_else(|| Failure::new(&code::TEST_PROGRAM, "pg_ctl: not found"))?;
        // Recovery takes as long as it takes.
        program.args(["-w", "-s", "-t", "864000", "-D"]);
        program.arg(&self.settings);
        Ok(program)
    }

    fn start(&self) -> Result<(), Failure> {
        not_stopped()?;
        let log = self.place.root.join("log");
        let mut program = self.control()?;
        program.arg("-l").arg(&log).arg("start");
        let ended = program.status();
        let ended =
            ended.map_err(|error| Failure::new(&code::TEST_PROGRAM, format!("pg_ctl: {error}")))?;
        if ended.success() {
            return not_stopped();
        }
        let said = words(&fs::read(&log).unwrap_or_default());
        let detail = format!("the server does not start: {said}");
        Err(Failure::new(&code::RESTORE_TEST, detail))
    }

    fn stop(&self) -> Result<(), Failure> {
        let mut program = self.control()?;
        program.args(["-m", "fast", "stop"]);
        let output = run("pg_ctl", self, program)?;
        succeeded("pg_ctl stop", &output)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.data.join("postmaster.pid").exists()
            && let Ok(mut program) = self.control()
        {
            program.stdout(Stdio::null()).stderr(Stdio::null());
            drop(program.args(["-m", "immediate", "stop"]).status());
        }
    }
}
