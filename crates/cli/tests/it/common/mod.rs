//! What the tests of the command share: a directory of their own and a way to run the real binary
//! in it.
//!
//! Every run gets an environment without the caller's keyring, home and state directory.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of this module"
)]

pub(crate) mod server;

pub(crate) mod on_terminal;

pub(crate) mod keyserver;

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

pub(crate) use strongroom_testing_support::key::ROOT;
pub(crate) use strongroom_testing_support::process::Run;

/// A directory that is removed when the test ends.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// A new empty directory.
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// One with a keyring that has the key `app`, and `tree`: two files, 3 000 000 bytes and what
    /// the first one is to hold.
    pub(crate) fn with_tree(first: &str) -> Self {
        let place = Self::new();
        place.with_key();
        std::fs::create_dir_all(place.path("tree/sub")).unwrap();
        place.write("tree/one", first);
        place.write("tree/sub/two", vec![7; 3_000_000]);
        place
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let mut options = std::fs::File::options();
        // Many are keys.
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&path).unwrap();
        file.write_all(bytes.as_ref()).unwrap();
        path
    }

    /// Reads a file.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Names of the files in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The command, to be run in the directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongroom"));
        command
            .current_dir(self.directory.path())
            .env_remove("STRONGROOM_ALLOW_CORE_DUMPS")
            .env("STRONGROOM_KEYRING", "keyring")
            .env("HOME", self.directory.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("ROOT", ROOT)
            .stdin(Stdio::null());
        command
    }

    /// The command as [`Place::command`] has it, run by another program: `program`, whose own
    /// arguments are there already, gets the command's name, `arguments`, environment and
    /// directory.
    pub(crate) fn under(&self, mut program: Command, arguments: &[&str]) -> Command {
        let plain = self.command();
        program
            .arg(plain.get_program())
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => program.env(name, value),
                None => program.env_remove(name),
            };
        }
        program
    }

    /// Runs the command by a clock that is off, as faketime(1) is told: `+30d`.
    pub(crate) fn run_at(&self, clock: &str, arguments: &[&str]) -> Run {
        let mut faketime = Command::new("faketime");
        faketime.args(["-f", clock]);
        Run::from(self.under(faketime, arguments).output().unwrap())
    }

    /// Runs the command until its call number `at` of this group of system calls, which ends it;
    /// false when it ended before. `threads`: `-f` where calls of all threads count.
    pub(crate) fn killed_at(
        &self,
        threads: &[&str],
        group: &str,
        at: u32,
        arguments: &[&str],
    ) -> bool {
        let mut strace = Command::new("strace");
        strace
            .args(threads)
            .args(["-qq", "-o", "/dev/null", "-e"])
            .arg(format!("trace={group}"))
            .arg(format!("--inject={group}:signal=KILL:when={at}"));
        let output = self.under(strace, arguments).output().unwrap();
        let killed = output.status.signal() == Some(9);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(killed || output.status.success(), "{group} {at}: {err}");
        killed
    }

    /// Runs the command.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        Run::from(self.command().args(arguments).output().unwrap())
    }

    /// Runs the command with `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.args(arguments).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // A script that stops early does not read the rest: a broken pipe is fine.
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Run::from(output)
    }

    /// Makes a keyring with one key `app`.
    pub(crate) fn with_key(&self) {
        self.run(&["keyring", "init", "--provider", "env:ROOT"])
            .succeeded();
        self.run(&["key", "create", "app"]).succeeded();
    }

    /// Makes a plain database of one table `t(id, name)` with `rows` rows.
    pub(crate) fn plain_database(&self, name: &str, rows: u32) -> PathBuf {
        let path = self.path(name);
        let connection = rusqlite::Connection::open(&path).unwrap();
        let sql = format!(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO t SELECT i, 'secret name ' || i FROM n;"
        );
        connection.execute_batch(&sql).unwrap();
        path
    }
}

/// The members of a JSON object, sorted.
pub(crate) fn members(value: &serde_json::Value) -> Vec<&str> {
    let mut names: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

/// Deterministic bytes that look random (xorshift64*).
pub(crate) fn noise(length: usize, mut seed: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < length {
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        out.extend(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Width, height and RGB bytes of a PNG file.
pub(crate) fn decoded(path: &Path) -> (u32, u32, Vec<u8>) {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.color_type, png::ColorType::Rgb);
    pixels.truncate(info.buffer_size());
    (info.width, info.height, pixels)
}

/// `backup create` of the tree, as a set of this name.
pub(crate) fn create<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = ["backup", "create", "tree", "--to", "medium", "--name", name];
    [&usual[..], more].concat()
}

/// Whether this host's kernel has device-mapper; libdevmapper makes its node where it has not, so
/// the node says nothing.
pub(crate) fn has_device_mapper() -> bool {
    std::fs::read_to_string("/proc/misc").is_ok_and(|list| list.contains("device-mapper"))
}

/// A segment of the log of 1 MiB, as its name says, with `text` in its first page and nothing
/// behind that page.
pub(crate) fn segment(name: &str, text: &str) -> Vec<u8> {
    const SIZE: u32 = 1 << 20;
    let number = |at: std::ops::Range<usize>| u32::from_str_radix(&name[at], 16).unwrap();
    let address = (u64::from(number(8..16)) << 32) + u64::from(number(16..24)) * u64::from(SIZE);
    let mut content = vec![0; 1 << 20];
    // Magic, long header; timeline; address; cluster; sizes of segment and page.
    content[..4].copy_from_slice(&[0x10, 0xd1, 2, 0]);
    content[4..8].copy_from_slice(&number(0..8).to_le_bytes());
    content[8..16].copy_from_slice(&address.to_le_bytes());
    content[24..32].copy_from_slice(&77_u64.to_le_bytes());
    content[32..36].copy_from_slice(&SIZE.to_le_bytes());
    content[36..40].copy_from_slice(&8192_u32.to_le_bytes());
    content[40..40 + text.len()].copy_from_slice(text.as_bytes());
    content
}
