//! Real servers for the tests of `strongroom pg`: the command and the library where PostgreSQL's
//! user can read them, a place for data directories, and a look at every byte of one before and
//! after.
//!
//! PostgreSQL refuses to run as root; under root, everything runs as the user `postgres`. Servers
//! listen on a socket in the place only, and end by their own process number when the place is
//! dropped.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of this module"
)]

pub(crate) mod root;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use strongroom_testing_support::account;
use strongroom_testing_support::process::{PATIENCE, patiently, signal};
use strongroom_testing_support::product::{self, SHIELD};
use tempfile::TempDir;

pub(crate) use strongroom_testing_support::account::{give_unchanged, is_root};
pub(crate) use strongroom_testing_support::key::{OTHER, ROOT as KEY};
pub(crate) use strongroom_testing_support::process::{Run, run, wait_until_gone};
pub(crate) use strongroom_testing_support::programs::bindir;

static NEXT_PORT: AtomicU16 = AtomicU16::new(5432);

/// The command under test.
const COMMAND: &str = env!("CARGO_BIN_EXE_strongroom");

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A directory that PostgreSQL's user owns, with the key in the file `key`. It is removed when the
/// test ends, after the servers in it have been ended.
pub(crate) struct Place {
    directory: TempDir,
    product: Arc<TempDir>,
    port: u16,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("sr-").tempdir().unwrap();
        open_to_all(directory.path());
        let place = Self {
            directory,
            product: product::side_by_side(Path::new(COMMAND)),
            port: NEXT_PORT.fetch_add(1, Ordering::Relaxed),
        };
        give_unchanged(place.directory.path());
        place.write("key", KEY);
        place.write("other", OTHER);
        place
    }

    /// A place with a sealed instance `data`, under the key in `key`.
    pub(crate) fn with_instance() -> Self {
        let place = Self::new();
        place
            .strongroom(&[
                "pg",
                "initdb",
                "-D",
                "data",
                "--key-file",
                "key",
                "--",
                "-k",
                "--no-sync",
            ])
            .succeeded();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file that PostgreSQL's user owns.
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.overwrite(name, text.as_bytes());
    }

    /// As [`Self::write`], any bytes.
    pub(crate) fn overwrite(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(bytes).unwrap();
        give_unchanged(&path);
    }

    /// Where the command and the library are.
    pub(crate) fn product(&self) -> &Path {
        self.product.path()
    }

    /// A program as PostgreSQL's user, in this place, with the environment of a service.
    pub(crate) fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = account::command(program.as_ref());
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/sbin")
            .env("HOME", self.directory.path())
            .env("LC_ALL", "C.UTF-8");
        if let Some(given) = std::env::var_os("PG_BINDIR") {
            command.env("PG_BINDIR", given);
        }
        command
    }

    /// `strongroom`, to be run as PostgreSQL's user.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(self.product.path().join("strongroom"));
        command.args(arguments);
        command
    }

    /// Where the command lies, for the commands that a server runs.
    pub(crate) fn binary(&self) -> PathBuf {
        self.product.path().join("strongroom")
    }

    /// Host and port of the server, as a connection string has them.
    pub(crate) fn connection(&self) -> String {
        format!(
            "host={} port={}",
            self.directory.path().display(),
            self.port
        )
    }

    /// `strongroom` as whoever runs the test.
    pub(crate) fn as_is(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.product.path().join("strongroom"));
        command.args(arguments).current_dir(self.directory.path());
        command.env_remove("STRONGROOM_SHIELD_LIB");
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn strongroom(&self, arguments: &[&str]) -> Run {
        run(&mut self.command(arguments))
    }

    /// One of PostgreSQL's programs, with nothing but the library in its environment.
    pub(crate) fn preloaded(&self, program: &str, arguments: &[&str]) -> Run {
        let mut command = self.program(bindir().join(program));
        let library = self.product.path().join(SHIELD);
        run(command.args(arguments).env("LD_PRELOAD", library))
    }

    /// One of PostgreSQL's programs as it is.
    pub(crate) fn plain(&self, program: &str, arguments: &[&str]) -> Run {
        run(self.program(bindir().join(program)).args(arguments))
    }

    /// The server's options, as `pg_ctl -o` takes them.
    pub(crate) fn options(&self) -> String {
        let (socket, port) = (self.directory.path().display(), self.port);
        format!(
            "-c listen_addresses= -c unix_socket_directories={socket} -c port={port} -c fsync=off"
        )
    }

    /// Starts the server of `data` by the command.
    pub(crate) fn start(&self, more: &[&str]) -> Run {
        let options = self.options();
        let first = ["pg", "start", "-D", "data", "-l", "log"];
        let last = ["--", "-o", &options];
        self.strongroom(&[&first, more, &last].concat())
    }

    /// Starts the server of `data` with nothing but the library.
    pub(crate) fn start_unattended(&self) -> Run {
        self.preloaded(
            "pg_ctl",
            &[
                "start",
                "-w",
                "-D",
                "data",
                "-l",
                "log",
                "-o",
                &self.options(),
            ],
        )
    }

    pub(crate) fn stop(&self) {
        self.strongroom(&["pg", "stop", "-D", "data"]).succeeded();
    }

    /// What a statement answers.
    #[track_caller]
    pub(crate) fn sql(&self, statement: &str) -> String {
        let socket = self.directory.path().display().to_string();
        let port = self.port.to_string();
        let arguments = [
            "-X", "-h", &socket, "-p", &port, "-Atqc", statement, "postgres",
        ];
        self.plain("psql", &arguments).succeeded().trim().to_owned()
    }

    /// The server's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until it is so; what the server has logged tells why it did not come to be.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, so: impl FnMut() -> bool) {
        assert!(patiently(PATIENCE, so), "{what}: {}", self.log());
    }

    /// Process number of the server of a data directory.
    pub(crate) fn pid(&self, data: &str) -> Option<u32> {
        let text = fs::read_to_string(self.path(data).join("postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// Every file below a directory with its owner, mode and contents: equal when nothing was
    /// changed.
    pub(crate) fn everything(&self, name: &str) -> BTreeMap<PathBuf, (u32, u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.path(name)];
        while let Some(path) = left.pop() {
            let about = fs::symlink_metadata(&path).unwrap();
            let mut bytes = Vec::new();
            if about.is_symlink() {
                bytes = fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes();
            } else if about.is_dir() {
                left.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            } else {
                fs::File::open(&path)
                    .unwrap()
                    .read_to_end(&mut bytes)
                    .unwrap();
            }
            found.insert(path, (about.mode(), about.uid(), bytes));
        }
        found
    }

    /// Whether any file below a directory holds these bytes.
    pub(crate) fn holds(&self, name: &str, wanted: &[u8]) -> bool {
        let found = self.everything(name);
        found
            .values()
            .any(|(_, _, bytes)| bytes.windows(wanted.len()).any(|part| part == wanted))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed may have left a server: it is ended by its number, at once.
        for entry in fs::read_dir(self.directory.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            if let Some(pid) = self.pid(&name.to_string_lossy()) {
                signal("-QUIT", &[pid]);
                wait_until_gone(pid);
            }
        }
    }
}
