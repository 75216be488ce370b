//! Server, zone and proxy, each with what it needs, in directories of the tour's.
//!
//! Must not: change the PostgreSQL that is installed.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use strongroom_benches::Failure;
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::postgres::{Account, Cluster, PSQL, Place, Server, Tools, feed};
use strongroom_testing_support::port::is_listening;
use tempfile::TempDir;

use crate::command::Ran;
use crate::tour::Tour;

/// Where Debian has PostgreSQL 15, below a root.
const PROGRAMS: &str = "lib/postgresql/15";
const SHARED: &str = "share/postgresql/15";
/// The name of PostgreSQL's socket.
const SOCKET: &str = ".s.PGSQL.5432";
/// How long a process may take to begin, and recovery to end.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Directories, keys and programs.
pub(super) struct Workplace {
    directory: TempDir,
    /// Of the zone and the proxy: sockets' paths have to be short.
    sockets: TempDir,
    place: Place,
    strongroom: PathBuf,
    keyring: PathBuf,
}

impl Workplace {
    /// Copies PostgreSQL 15 and puts the extension in it; makes keys.
    pub(super) fn prepare(tour: &Tour) -> Result<Self, Failure> {
        let tools = Tools::find()?;
        let account = Account::here()?;
        let out = tour.place.directory().canonicalize()?;
        let mut named = tempfile::Builder::new();
        named.prefix("columns-");
        let directory = if account.reaches(&out) {
            named.tempdir_in(&out)?
        } else {
            named.tempdir()?
        };
        let root = directory.path().join("postgresql");
        copy_postgresql(&root)?;
        let copied = Tools {
            bin: root.join(PROGRAMS).join("bin"),
            ..tools
        };
        let place = Place::make(&copied, account, directory.path())?;
        let sockets = tempfile::Builder::new().prefix("sr-columns-").tempdir()?;
        open_to_all(sockets.path())?;
        let workplace = Self {
            strongroom: place.tools.strongroom.clone(),
            keyring: directory.path().join("keyring"),
            directory,
            sockets,
            place,
        };
        let root_key = workplace.directory.path().join("root-key");
        new_key_file(&root_key)?;
        // The directory belongs to the user that the server runs as. Root creates the keyring there
        // as that user, so that user must be able to read the root key.
        workplace.place.account.own(&root_key)?;
        new_key_file(&workplace.directory.path().join("zone-key"))?;
        let provider = format!("file:{}", root_key.display());
        workplace.succeed(&["keyring", "init", "--provider", &provider])?;
        workplace.succeed(&["key", "create", "columns"])?;
        Ok(workplace)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.strongroom);
        command
            .args(arguments)
            .env("STRONGROOM_KEYRING", &self.keyring);
        command.stdin(Stdio::null());
        command
    }

    fn succeed(&self, arguments: &[&str]) -> Result<Ran, Failure> {
        Ran::from(self.command(arguments).output()?).succeeded()
    }
}

/// The programs under `root`, with the extension from the tree that `STRONGROOM_COLUMNS` names, as
/// `DESTDIR` of crates/columns/extension/install was.
fn copy_postgresql(root: &Path) -> Result<(), Failure> {
    let built = std::env::var_os("STRONGROOM_COLUMNS").map(PathBuf::from);
    let built =
        built.ok_or("STRONGROOM_COLUMNS does not name where the extension was installed to")?;
    for part in [PROGRAMS, SHARED] {
        let from = Path::new("/usr").join(part);
        if !from.is_dir() {
            return Err(format!("{}: there is no PostgreSQL 15", from.display()).into());
        }
        copy(&from, &root.join(part))?;
        copy(&built.join("usr").join(part), &root.join(part))?;
    }
    open_to_all(root)
}

/// Copies what is in a directory into another, which is made.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(to)?;
    let output = Command::new("cp")
        .arg("-rL")
        .arg(from.join("."))
        .arg(to)
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }
}

fn open_to_all(directory: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(
        directory,
        std::fs::Permissions::from_mode(0o755),
    )?)
}

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Process {
    /// Starts the command and waits for its socket.
    fn start(
        workplace: &Workplace,
        arguments: &[&str],
        socket: &Path,
        log: &str,
    ) -> Result<Self, Failure> {
        match std::fs::remove_file(socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut command = workplace.command(arguments);
        command
            .stdout(Stdio::null())
            .stderr(File::create(workplace.path(log))?);
        let mut process = Self(command.spawn()?);
        let begin = Instant::now();
        while !is_listening(socket) {
            if let Some(end) = process.0.try_wait()? {
                let said = std::fs::read_to_string(workplace.path(log))?;
                let line = said.lines().last().unwrap_or_default();
                return Err(format!("{end}: {line}").into());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("{}: it does not begin", arguments.join(" ")).into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(process)
    }
}

/// Everything that runs.
pub(super) struct Stack<'workplace> {
    workplace: &'workplace Workplace,
    cluster: Cluster<'workplace>,
    /// The directory of the server's socket.
    host: PathBuf,
    server: Option<Server>,
    zone: Option<Process>,
    proxy: Option<Process>,
}

impl<'workplace> Stack<'workplace> {
    pub(super) fn start(workplace: &'workplace Workplace) -> Result<Self, Failure> {
        let zone = workplace.sockets.path().join("zone");
        let zone = zone.to_str().ok_or("the path is not UTF-8")?;
        let settings = [
            ("shared_preload_libraries", "strongroom_columns"),
            ("strongroom.zone", zone),
            ("shared_buffers", "16MB"),
            ("log_statement", "all"),
            ("autovacuum", "off"),
        ];
        let data = workplace.path("data");
        let cluster = Cluster::initdb(&workplace.place, &data, None, &[], &settings)?;
        let mut stack = Self {
            workplace,
            cluster,
            host: PathBuf::new(),
            server: None,
            zone: None,
            proxy: None,
        };
        stack.zone = Some(stack.start_zone()?);
        stack.server = Some(Server::start(&stack.cluster)?.0);
        stack.host = stack.operator("SHOW unix_socket_directories")?.into();
        drop(stack.operator("CREATE EXTENSION strongroom_columns")?);
        stack.proxy = Some(stack.start_proxy()?);
        Ok(stack)
    }

    fn start_zone(&self) -> Result<Process, Failure> {
        let (state, key) = (self.workplace.path("zone"), self.workplace.path("zone-key"));
        let socket = self.workplace.sockets.path().join("zone");
        let user = server_user(self.cluster.data())?;
        let text = |path: &Path| path.display().to_string();
        let (state, key, named) = (text(&state), text(&key), text(&socket));
        let arguments = [
            "columns",
            "zone",
            "--state",
            &state,
            "--socket",
            &named,
            "--user",
            &user,
            "--key-file",
            &key,
            "--memory",
            "64",
        ];
        Process::start(self.workplace, &arguments, &socket, "zone.log")
    }

    fn start_proxy(&self) -> Result<Process, Failure> {
        let socket = self.workplace.sockets.path().join(SOCKET);
        let (listen, server) = (
            socket.display().to_string(),
            self.host.join(SOCKET).display().to_string(),
        );
        let arguments = [
            "columns",
            "proxy",
            "--listen",
            &listen,
            "--server",
            &server,
            "--key-id",
            "columns",
            "--accept-process-attestation",
        ];
        Process::start(self.workplace, &arguments, &socket, "proxy.log")
    }

    /// What the server answers to its operator: a superuser without a session.
    pub(super) fn operator(&self, script: &str) -> Result<String, Failure> {
        self.cluster.psql("postgres", script)
    }

    /// psql, connected to the proxy, as whoever runs the tour.
    fn psql(&self) -> Command {
        let mut command = Command::new(self.workplace.place.tools.bin.join("psql"));
        command
            .args(PSQL)
            .args(["-U", "postgres", "-d", "postgres", "-h"])
            .arg(self.workplace.sockets.path());
        command
    }

    /// What the owner gets.
    pub(super) fn owner(&self, script: &str) -> Result<String, Failure> {
        let ran = Ran::from(feed(&mut self.psql(), script)?);
        if ran.code == Some(0) {
            Ok(ran.stdout.trim_end().to_owned())
        } else {
            Err(ran
                .stderr
                .lines()
                .next()
                .unwrap_or("psql failed")
                .to_owned()
                .into())
        }
    }

    /// Runs a query through the proxy and looks on while its session is open.
    pub(super) fn with_session<T>(
        &self,
        query: &str,
        look: impl FnOnce(u32) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut psql = self.psql();
        psql.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Process(psql.spawn()?);
        let mut input = child.0.stdin.take().ok_or("no standard input")?;
        writeln!(input, "{query};\n\\echo done")?;
        let output = child.0.stdout.take().ok_or("no standard output")?;
        let done = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .any(|line| line == "done");
        if !done {
            return Err("the query failed".into());
        }
        let pid = std::fs::read_to_string(self.cluster.data().join("postmaster.pid"))?;
        let pid = pid.lines().next().and_then(|line| line.parse().ok());
        let seen = look(pid.ok_or("postmaster.pid holds no process number")?);
        drop(input);
        seen
    }

    /// Data directory and log.
    pub(super) fn server_files(&self) -> Vec<PathBuf> {
        vec![self.cluster.data().to_path_buf(), self.cluster.log()]
    }

    /// State directory and log.
    pub(super) fn zone_files(&self) -> Vec<PathBuf> {
        vec![self.workplace.path("zone"), self.workplace.path("zone.log")]
    }

    /// SIGKILL to the server's processes and the zone; how many there were.
    pub(super) fn kill(&mut self) -> Result<usize, Failure> {
        let server = self.server.take().ok_or("no server")?;
        drop(self.zone.take());
        Ok(server.kill()? + 1)
    }

    /// Starts both again. The proxy has run on.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.zone = Some(self.start_zone()?);
        self.server = Some(Server::start(&self.cluster)?.0);
        Ok(())
    }

    /// What the owner gets when the zone has read the log.
    pub(super) fn until_ready(&self, query: &str) -> Result<String, Failure> {
        let begin = Instant::now();
        loop {
            match self.owner(query) {
                Ok(rows) => return Ok(rows),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// `columns status`, as text.
    pub(super) fn status(&self) -> Result<String, Failure> {
        let server = self.host.join(SOCKET).display().to_string();
        let ran = self
            .workplace
            .succeed(&["columns", "status", "--server", &server])?;
        Ok(ran.stdout)
    }
}

/// The number of the user that the server runs as: who owns its data.
fn server_user(data: &Path) -> Result<String, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(data)?.uid().to_string())
}
