//! A real PostgreSQL instance for tests: made, run and stopped by the installed binaries, on a Unix
//! socket only.
//!
//! PostgreSQL refuses to run as root, so under root everything of it runs as the user `postgres`.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::allow_attributes,
    reason = "each test binary uses some of this"
)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_testing_support::process::{Run, checked};
use strongroom_testing_support::{account, programs};

/// An instance in a directory of its own, removed with it.
pub(crate) struct Instance {
    directory: tempfile::TempDir,
    bin: PathBuf,
}

impl Instance {
    /// `initdb`, with data checksums.
    pub(crate) fn create(name: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix(&format!("sr-{name}-"))
            .tempdir()
            .unwrap();
        account::give(directory.path(), 0o755);
        let instance = Self {
            directory,
            bin: programs::bindir(),
        };
        let data = instance.data();
        let mut command = instance.program("initdb");
        command.arg("-D").arg(&data);
        command.args([
            "-k",
            "-U",
            "postgres",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]);
        checked(&mut command);
        instance
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The directory that holds the data directory and the tablespaces.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// PostgreSQL's major version.
    pub(crate) fn major(&self) -> u32 {
        fs::read_to_string(self.data().join("PG_VERSION"))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    /// Appends to `postgresql.conf`.
    pub(crate) fn configure(&self, text: &str) {
        let path = self.data().join("postgresql.conf");
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Makes a directory for a tablespace and returns its path.
    pub(crate) fn tablespace(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        fs::create_dir(&path).unwrap();
        account::give_unchanged(&path);
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn start(&self) {
        assert_eq!(self.try_start(), Ok(()), "the server does not start");
    }

    /// Starts the server; what it says when it does not start.
    pub(crate) fn try_start(&self) -> Result<(), String> {
        let log = self.directory.path().join("start.log");
        let mut command = self.program("pg_ctl");
        command
            .arg("-D")
            .arg(self.data())
            .arg("-l")
            .arg(&log)
            .args(["-w", "-t", "60", "start"]);
        let options = "-c listen_addresses= -c fsync=off -c unix_socket_directories=.";
        command.args(["-o", options]);
        match command.stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(fs::read_to_string(log).unwrap_or_default()),
        }
    }

    /// A clean shutdown.
    pub(crate) fn stop(&self) {
        checked(&mut self.stopping("fast"));
    }

    /// The postmaster's end by SIGQUIT, and recovery.
    pub(crate) fn kill_and_restart(&self) {
        checked(&mut self.stopping("immediate"));
        self.start();
    }

    /// Whether there is a postmaster.
    pub(crate) fn is_running(&self) -> bool {
        self.data().join("postmaster.pid").exists()
    }

    /// Runs statements, one after the other, in one session; returns what they print.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let mut command = self.program("psql");
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-h",
        ]);
        command.arg(self.data()).args(["-d", "postgres"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(statements.as_bytes()).unwrap();
        drop(input);
        Run::from(child.wait_with_output().unwrap()).succeeded()
    }

    /// One of the instance's programs, as the user that owns it.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = account::command(programs::program(&self.bin, name));
        command.current_dir(self.directory.path());
        command
    }

    /// `pg_ctl stop` in this mode, waiting for the end.
    fn stopping(&self, mode: &str) -> Command {
        let mut command = self.program("pg_ctl");
        command
            .arg("-D")
            .arg(self.data())
            .args(["-m", mode, "-w", "stop"]);
        command
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.is_running() {
            drop(self.stopping("immediate").output());
        }
    }
}

/// Every file below `directory`, relative to it; the links of tablespaces are followed. What
/// disappears while it is listed is left out.
pub(crate) fn files_of(directory: impl AsRef<Path>) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(relative) = open.pop() {
        let Ok(entries) = fs::read_dir(directory.as_ref().join(&relative)) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().into_string().unwrap();
            let path = match relative.as_str() {
                "" => name,
                parent => format!("{parent}/{name}"),
            };
            match fs::metadata(entry.path()) {
                Ok(about) if about.is_dir() => open.push(path),
                Ok(about) if about.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Whether `text` is like `pattern`: `#` is a run of decimal digits, `%` one of upper-case
/// hexadecimal digits, `*` anything without a slash.
pub(crate) fn like(pattern: &str, text: &str) -> bool {
    let Some(head) = pattern.chars().next() else {
        return text.is_empty();
    };
    let rest = &pattern[head.len_utf8()..];
    let fits: fn(char) -> bool = match head {
        '#' => |c| c.is_ascii_digit(),
        '%' => |c| c.is_ascii_digit() || ('A'..='F').contains(&c),
        '*' => |c| c != '/',
        _ => return text.strip_prefix(head).is_some_and(|text| like(rest, text)),
    };
    let least = usize::from(head != '*');
    let most = text.chars().take_while(|&c| fits(c)).count();
    (least..=most).any(|length| text.is_char_boundary(length) && like(rest, &text[length..]))
}
