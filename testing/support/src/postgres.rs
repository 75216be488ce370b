//! A real server in a directory of its own, made and started as PostgreSQL's user when the test
//! is root, ended by process number; its backups, taken over the replication protocol.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_postgres_replication::{
    BackupEnd, BackupEvent, BackupOptions, Config, Connection, Error,
};

use crate::{account, programs};

pub use crate::account::give;
pub use crate::port::free_port;
pub use crate::process::{checked, until};
pub use crate::programs::installed;

/// A directory that is removed with it.
#[derive(Debug)]
pub struct Room(tempfile::TempDir);

impl Room {
    pub fn new() -> Self {
        let room = tempfile::Builder::new()
            .prefix("sr-repl-")
            .tempdir()
            .unwrap();
        give(room.path(), 0o755);
        Self(room)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new directory of PostgreSQL's user.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir(&path).unwrap();
        give(&path, 0o700);
        path
    }
}

/// A program that runs as PostgreSQL's user, outside of the caller's directory and language.
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut command = account::command(program.as_ref());
    command.current_dir("/").env("LC_ALL", "C");
    command
}

pub fn append(path: &Path, text: &str) {
    let mut content = fs::read_to_string(path).unwrap_or_default();
    content.push_str(text);
    put(path, content.as_bytes());
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's file, which nothing depends on after a crash"
)]
pub fn put(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    give(path, 0o600);
}

/// One server.
#[derive(Debug)]
pub struct Server<'a> {
    pub room: &'a Room,
    pub bin: PathBuf,
    pub data: PathBuf,
    pub port: u16,
}

impl<'a> Server<'a> {
    /// `initdb` with checksums, trust on the local socket, further settings; not started.
    pub fn make(room: &'a Room, bin: &Path, settings: &str) -> Self {
        let server = Self {
            room,
            bin: bin.to_path_buf(),
            data: room.at("data"),
            port: free_port(),
        };
        let mut initdb = server.program("initdb");
        initdb.arg("-D").arg(&server.data);
        let options = [
            "-k",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ];
        checked(initdb.args(options).arg("--no-sync"));
        server.configure("fsync = off\nshared_buffers = 16MB\nmax_wal_size = 1GB\n");
        server.configure(settings);
        server
    }

    pub fn started(room: &'a Room, bin: &Path, settings: &str) -> Self {
        let server = Self::make(room, bin, settings);
        server.start();
        server
    }

    pub fn configure(&self, settings: &str) {
        append(&self.data.join("postgresql.conf"), settings);
    }

    /// A program of this version; a client that it lacks is the newest one.
    pub fn program(&self, name: &str) -> Command {
        command(programs::program(&self.bin, name))
    }

    pub fn start(&self) {
        self.start_in(&self.data, self.port);
    }

    /// Starts a server on a data directory.
    pub fn start_in(&self, data: &Path, port: u16) {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={}",
            self.room.at("").display()
        );
        let log = self.room.at(&format!("log-{port}"));
        let mut start = self.program("pg_ctl");
        start
            .args(["start", "-w", "-s", "-t", "60", "-D"])
            .arg(data);
        start.arg("-l").arg(&log).arg("-o").arg(options);
        let status = start.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let told = fs::read_to_string(&log).unwrap_or_default();
        assert!(status.unwrap().success(), "{told}");
    }

    /// Ends it: `fast` or `immediate`.
    pub fn stop(&self, mode: &str) {
        stop_in(&self.bin, &self.data, mode);
    }

    /// Kills a process of the server.
    pub fn kill(&self, process: &str) {
        checked(Command::new("kill").args(["-9", process]));
    }

    /// The number of the server's first process.
    pub fn process(&self) -> String {
        let lines = fs::read_to_string(self.data.join("postmaster.pid")).unwrap();
        String::from(lines.lines().next().unwrap())
    }

    pub fn sql(&self, statements: &str) -> String {
        self.sql_at(self.port, statements)
    }

    pub fn sql_at(&self, port: u16, statements: &str) -> String {
        let mut psql = self.program("psql");
        psql.args([
            "-XqAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-h",
        ]);
        psql.arg(self.room.at(""))
            .args(["-p", &port.to_string(), "-c", statements]);
        String::from(checked(&mut psql).trim_end())
    }

    /// Settings of a connection through the local socket.
    pub fn config(&self) -> Config {
        let host = self.room.at("").display().to_string();
        config(&format!("host={host} port={} user=postgres", self.port)).unwrap()
    }

    pub fn connect(&self) -> Connection {
        Connection::open(&self.config()).unwrap()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if self.data.join("postmaster.pid").exists() {
            let mut stop = self.program("pg_ctl");
            stop.args(["stop", "-m", "immediate", "-s", "-D"])
                .arg(&self.data);
            drop(stop.output());
        }
    }
}

pub fn stop_in(bin: &Path, data: &Path, mode: &str) {
    let mut stop = command(bin.join("pg_ctl"));
    checked(stop.args(["stop", "-w", "-s", "-m", mode, "-D"]).arg(data));
}

/// Settings that do not depend on who runs the test.
pub fn config(text: &str) -> Result<Config, Error> {
    Config::parse(text, &|_| None::<OsString>)
}

/// `pg_verifybackup`, where it runs: the one of some packages does not.
#[expect(
    clippy::print_stderr,
    reason = "what a test leaves out is for whoever runs it"
)]
pub fn verify(server: &Server<'_>, data: &Path) {
    let told = server.program("pg_verifybackup").arg("--version").output();
    if told.unwrap().status.success() {
        checked(server.program("pg_verifybackup").arg(data));
    } else {
        eprintln!("left out: this pg_verifybackup does not run");
    }
}

/// Makes an unpacked backup ready for a start: its map of tablespaces has the original's places,
/// and the links to the restored ones are there already.
pub fn settle(data: &Path) {
    drop(fs::remove_file(data.join("tablespace_map")));
}

/// What a backup left behind.
#[derive(Debug)]
pub struct Taken {
    /// File and tablespace of each archive.
    pub archives: Vec<(String, Option<PathBuf>)>,
    pub progress: Vec<u64>,
    pub end: BackupEnd,
}

/// Takes a backup into `into`, one file for each archive.
pub fn take(
    connection: &mut Connection,
    options: &BackupOptions,
    into: &Path,
) -> Result<Taken, Error> {
    use std::io::Write as _;
    let mut backup = connection.base_backup(options)?;
    let (mut archives, mut progress) = (Vec::new(), Vec::new());
    let mut file = None;
    loop {
        match backup.next()? {
            BackupEvent::Archive { name, tablespace } => {
                archives.push((String::from(name), tablespace.map(Path::to_path_buf)));
                file = Some(fs::File::create_new(into.join(name)).unwrap());
            }
            BackupEvent::Manifest => {
                file = Some(fs::File::create_new(into.join("backup_manifest")).unwrap());
            }
            BackupEvent::Data(bytes) | BackupEvent::ManifestData(bytes) => {
                file.as_mut().unwrap().write_all(bytes).unwrap();
            }
            BackupEvent::Progress(bytes) => progress.push(bytes),
            BackupEvent::End(end) => {
                return Ok(Taken {
                    archives,
                    progress,
                    end,
                });
            }
        }
    }
}

/// Unpacks what [`take`] left into a data directory with its tablespaces beside it.
pub fn unpack(room: &Room, from: &Path, taken: &Taken, data: &Path) {
    let unpack = |archive: &str, into: &Path| {
        fs::create_dir_all(into).unwrap();
        give(into, 0o700);
        let mut tar = Command::new("tar");
        checked(tar.arg("xf").arg(from.join(archive)).arg("-C").arg(into));
    };
    // The data directory holds pg_tblspc, so it is unpacked first, whatever came first.
    for (archive, space) in &taken.archives {
        if space.is_none() {
            unpack(archive, data);
        }
    }
    for (archive, space) in &taken.archives {
        if space.is_some() {
            let oid = archive.strip_suffix(".tar").unwrap();
            let beside = room.at(&format!("{}-{oid}", data.file_name().unwrap().display()));
            unpack(archive, &beside);
            let link = data.join("pg_tblspc").join(oid);
            drop(fs::remove_file(&link));
            std::os::unix::fs::symlink(&beside, &link).unwrap();
        }
    }
    fs::copy(from.join("backup_manifest"), data.join("backup_manifest")).unwrap();
    account::give_all(&room.at(""));
}
