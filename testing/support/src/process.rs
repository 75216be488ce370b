//! Programs that run to their end, and processes by their number.
//!
//! What a program prints goes through files: a server that it starts keeps pipes open, and a reader
//! would wait for the server's end.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How one run ended.
#[derive(Debug)]
pub struct Run {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<Output> for Run {
    /// Of a run that no signal has ended.
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("no signal ends it"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Run {
    /// Asserts success; returns standard output.
    #[track_caller]
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "out: {}\nerr: {}", self.out, self.err);
        self.out
    }

    /// Asserts failure with this exit code, and this error code somewhere on standard error;
    /// returns standard error.
    #[track_caller]
    pub fn failed(self, code: i32, sr: &str) -> String {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        let known = self.err.contains(&format!("error[{sr}]: "));
        assert!(known, "{sr} not in: {}", self.err);
        self.err
    }

    /// Asserts failure with this exit code, and that the last two lines of standard error are this
    /// error and what is to be done; returns standard error.
    #[track_caller]
    pub fn ended_with(self, code: i32, sr: &str) -> String {
        let shown = format!("out: {}\nerr: {}", self.out, self.err);
        assert_eq!(self.code, code, "{shown}");
        let lines: Vec<&str> = self.err.lines().collect();
        let [.., what, todo] = lines.as_slice() else {
            panic!("{shown}");
        };
        let known = what.starts_with(&format!("error[{sr}]: "));
        assert!(known, "{sr} not in: {shown}");
        assert!(todo.starts_with("  to do: "), "{shown}");
        self.err
    }

    /// Asserts that standard output is exactly one JSON value; returns it.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|e| panic!("{e}: out: {}\nerr: {}", self.out, self.err))
    }
}

/// Runs a program to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Run {
    let ended = Ended::of(command);
    Run {
        code: ended.status.code().unwrap_or(-1),
        out: String::from_utf8(ended.out).unwrap(),
        err: String::from_utf8(ended.err).unwrap(),
    }
}

/// Runs a program that has to succeed; what it printed.
#[track_caller]
pub fn checked(command: &mut Command) -> String {
    let ended = Ended::of(command);
    let (status, words) = (ended.status, ended.words());
    assert!(status.success(), "{command:?}: {status}\n{words}");
    String::from_utf8_lossy(&ended.out).into_owned()
}

/// Runs a program that has to fail; what it printed, errors included.
#[track_caller]
pub fn refused(command: &mut Command) -> String {
    let ended = Ended::of(command);
    let words = ended.words();
    assert!(!ended.status.success(), "{command:?} succeeded\n{words}");
    words
}

/// What is left of a program that has ended.
struct Ended {
    status: ExitStatus,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Ended {
    #[track_caller]
    fn of(command: &mut Command) -> Self {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        command
            .stdout(out.try_clone().unwrap())
            .stderr(err.try_clone().unwrap());
        let ended = command.output();
        let status = ended
            .unwrap_or_else(|error| panic!("{command:?}: {error}"))
            .status;
        // Who runs the command once more gets what it prints.
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (out, err) = (content(out), content(err));
        Self { status, out, err }
    }

    fn words(&self) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes);
        format!("{}{}", text(&self.out), text(&self.err))
    }
}

fn content(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Waits until it is so; not longer than [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, so: impl FnMut() -> bool) {
    assert!(patiently(PATIENCE, so), "{what}");
}

/// Whether it comes to be so within the time.
pub fn patiently(limit: Duration, mut so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    so()
}

/// Waits until a process is gone. One that has ended and waits to be collected is gone too, but
/// only with its last thread: a thread that the kernel still holds, in fsync for instance, keeps
/// the process's files open and locked.
pub fn wait_until_gone(process: u32) {
    let threads = || {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        threads.map_or(0, Iterator::count)
    };
    let gone = || !is_alive(process) && threads() <= 1;
    patiently(Duration::from_secs(30), gone);
}

/// Sends a signal, given as kill(1) takes it, to processes by number.
pub fn signal(which: &str, processes: &[u32]) {
    if processes.is_empty() {
        return;
    }
    let mut kill = Command::new("kill");
    kill.arg(which).args(processes.iter().map(u32::to_string));
    // One that has ended meanwhile is no error.
    drop(kill.stderr(Stdio::null()).status());
}

/// Parent and state of a process; `None` when there is none of this number.
pub fn status(process: u32) -> Option<(u32, char)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may contain anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// Whether a process runs; one that only waits to be collected does not.
pub fn is_alive(process: u32) -> bool {
    status(process).is_some_and(|(_, state)| state != 'Z' && state != 'X')
}

/// The processes that this one has started.
pub fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process| status(*process).is_some_and(|(of, _)| of == parent))
        .collect()
}
