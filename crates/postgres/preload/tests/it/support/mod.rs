//! Sealed directories and real servers under the preload library, for tests.
//!
//! PostgreSQL refuses to run as root, so under root everything of it runs as the user `postgres`.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses some of this"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use strongroom_crypto::SecretKey;
use strongroom_format::header::Cipher;
use strongroom_keyring::{NewObject, Object, Opener};
use strongroom_testing_support::account::{give, give_unchanged};
use strongroom_testing_support::process::{children, is_alive, patiently, signal, until};
use strongroom_testing_support::product::{self, SHIELD};
use strongroom_testing_support::programs;

pub(crate) use strongroom_testing_support::account::command as program;
pub(crate) use strongroom_testing_support::programs::bindir;

/// 32 bytes, and the same as a key file holds them.
const KEY: [u8; 32] = [0x5a; 32];

/// The library under test, where the user `postgres` can read it.
pub(crate) fn library() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        remove_left_copies();
        let directory = std::env::temp_dir().join(format!("sr-shield-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let copy = directory.join(SHIELD);
        fs::copy(product::shield(), &copy).unwrap();
        copy
    })
}

/// Removes the copies of test processes that have ended: nothing of a test process runs after its
/// last test.
fn remove_left_copies() {
    for entry in fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix("sr-shield-")
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another test process may be doing the same.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// Where tests put what the user `postgres` reads and writes; removed at the end.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("sr-").tempdir().unwrap();
        let place = Self { directory };
        put(&place.key(), "5a".repeat(32).as_bytes());
        give(place.path(), 0o755);
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.path().join("key")
    }

    /// A directory with the header and the configuration of a new instance, and nothing else.
    pub(crate) fn sealed(&self, name: &str, cipher: Cipher) -> PathBuf {
        let directory = self.plain(name);
        let opener = Opener::raw(SecretKey::take(&mut KEY.clone()).unwrap());
        let object =
            Object::create(&NewObject::instance(cipher), &opener.recipient().unwrap()).unwrap();
        put(
            &directory.join("strongroom.header"),
            &object.initial_bytes(),
        );
        let text = format!("key_file = {}\n", self.key().display());
        put(&directory.join("strongroom.conf"), text.as_bytes());
        for file in ["strongroom.header", "strongroom.conf"] {
            give_unchanged(&directory.join(file));
        }
        directory
    }

    /// An empty directory.
    pub(crate) fn plain(&self, name: &str) -> PathBuf {
        let directory = self.path().join(name);
        fs::create_dir(&directory).unwrap();
        give(&directory, 0o700);
        directory
    }
}

fn put(path: &Path, bytes: &[u8]) {
    fs::File::create(path)
        .and_then(|mut file| file.write_all(bytes))
        .unwrap();
}

/// What a program printed, which must have succeeded.
pub(crate) fn check(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// One of PostgreSQL's programs.
pub(crate) fn binary(name: &str) -> PathBuf {
    programs::program(&bindir(), name)
}

/// Whether this program is there in the server's own version.
pub(crate) fn has(name: &str) -> bool {
    bindir().join(name).exists()
}

/// A server on a sealed data directory, or on a plain one.
pub(crate) struct Server {
    pub(crate) data: PathBuf,
    /// For the socket and the log.
    beside: PathBuf,
    options: String,
    shielded: bool,
}

impl Server {
    /// initdb in a directory that [`Place`] has made.
    pub(crate) fn create(place: &Place, data: PathBuf, options: &str) -> Self {
        Self::of(place, data, options).initialised(&[])
    }

    /// The same, with more variables in initdb's environment.
    pub(crate) fn create_with(place: &Place, data: PathBuf, variables: &[(&str, &str)]) -> Self {
        Self::of(place, data, "").initialised(variables)
    }

    fn initialised(self, variables: &[(&str, &str)]) -> Self {
        let server = self;
        let mut command = server.tool_with("initdb", variables);
        command.arg("-D").arg(&server.data);
        command.args([
            "-k",
            "-U",
            "postgres",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]);
        check(command.output().unwrap());
        server
    }

    /// Over a data directory that is there.
    pub(crate) fn of(place: &Place, data: PathBuf, options: &str) -> Self {
        Self {
            shielded: data.join("strongroom.header").exists(),
            data,
            beside: place.path().to_owned(),
            options: options.to_owned(),
        }
    }

    /// One of PostgreSQL's programs, under the shield when the instance is sealed.
    pub(crate) fn tool(&self, name: &str) -> Command {
        self.tool_with(name, &[])
    }

    fn tool_with(&self, name: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = program("env");
        command.args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        if self.shielded {
            command.arg(format!("LD_PRELOAD={}", library().display()));
        }
        command.arg(binary(name)).current_dir(&self.beside);
        command
    }

    fn log(&self) -> PathBuf {
        self.data.with_extension("log")
    }

    fn port(&self) -> String {
        // Sockets of several servers lie side by side.
        let name = self.data.file_name().unwrap().to_string_lossy();
        let sum: u32 = name.bytes().map(u32::from).sum();
        (5500 + sum % 400).to_string()
    }

    pub(crate) fn start(&self) {
        self.start_with(&[]);
    }

    /// Starts with more variables in the environment; the postmaster's process id.
    pub(crate) fn start_with(&self, variables: &[(&str, &str)]) -> u32 {
        let mut command = self.start_command(&self.log(), variables);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let done = command.status().unwrap();
        assert!(
            done.success(),
            "{}",
            fs::read_to_string(self.log()).unwrap_or_default()
        );
        self.postmaster().unwrap()
    }

    /// What starts the server.
    pub(crate) fn start_command(&self, log: &Path, variables: &[(&str, &str)]) -> Command {
        let options = format!(
            "-p {} -c listen_addresses= -c fsync=off -c unix_socket_directories={} {}",
            self.port(),
            self.beside.display(),
            self.options
        );
        let mut command = self.tool_with("pg_ctl", variables);
        command.arg("-D").arg(&self.data).arg("-l").arg(log);
        command.args(["-w", "-t", "60", "start", "-o", &options]);
        command
    }

    pub(crate) fn stop(&self) {
        let mut command = program(binary("pg_ctl"));
        command
            .arg("-D")
            .arg(&self.data)
            .args(["-w", "-m", "fast", "stop"]);
        check(command.current_dir(&self.beside).output().unwrap());
    }

    /// The process that `postmaster.pid` names.
    pub(crate) fn postmaster(&self) -> Option<u32> {
        let text = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        text.lines().next()?.parse().ok()
    }

    /// SIGKILL to the postmaster; returns when its backends have noticed.
    pub(crate) fn kill(&self) {
        let postmaster = self.postmaster().unwrap();
        let mut all = children(postmaster);
        all.push(postmaster);
        signal("-KILL", &[postmaster]);
        until("processes of a killed server have ended", || {
            !all.iter().any(|process| is_alive(*process))
        });
        // What nobody else may have reaped yet would look like a running server.
        fs::remove_file(self.data.join("postmaster.pid")).unwrap();
        let lock = format!(".s.PGSQL.{}.lock", self.port());
        fs::remove_file(self.beside.join(lock)).unwrap();
    }

    pub(crate) fn psql(&self) -> Command {
        let mut command = program(binary("psql"));
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
        ]);
        command
            .arg("-h")
            .arg(&self.beside)
            .args(["-p", &self.port(), "-d", "postgres"]);
        command.current_dir(&self.beside);
        command
    }

    /// Runs statements in one session; returns what they print.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let mut command = self.psql();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(statements.as_bytes()).unwrap();
        drop(input);
        let printed = check(child.wait_with_output().unwrap());
        printed.trim_end().to_owned()
    }

    /// Options by which a client program finds the server.
    pub(crate) fn connection(&self) -> Vec<String> {
        let host = self.beside.display().to_string();
        ["-h", &host, "-p", &self.port(), "-U", "postgres"]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = self.postmaster() {
            // By its number: SIGQUIT, an immediate shutdown.
            signal("-QUIT", &[pid]);
            patiently(Duration::from_secs(20), || self.postmaster().is_none());
        }
    }
}

/// Every regular file below `directory`.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return found;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// The files below `directory` in which `text` stands as it is.
pub(crate) fn holding(directory: &Path, text: &str) -> Vec<PathBuf> {
    // grep, because it is quick in a test that was not optimised. 0: found, 1: not found.
    let mut grep = Command::new("grep");
    let output = grep.args(["-rlaF", text]).arg(directory).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code <= 2), "grep");
    let listed = String::from_utf8(output.stdout).unwrap();
    listed.lines().map(PathBuf::from).collect()
}

/// The first file below `directory` whose name begins like this.
pub(crate) fn named(directory: &Path, start: &str) -> Option<PathBuf> {
    let begins = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(start)
    };
    files(directory).into_iter().find(begins)
}
