//! A running server: started, found ready, ended in order or all at once.
//!
//! Must not: end a process that is not the postmaster it started or one of its children (B4).

use std::fs::File;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Cluster;
use crate::Failure;

/// A server that says neither yes nor no for this long has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is asked.
const PAUSE: Duration = Duration::from_millis(1);
/// The line of postmaster.pid that tells the state, counted from 0.
const STATE_LINE: usize = 7;

/// A running server; dropped, it is ended as a power cut would.
pub struct Server {
    postmaster: u32,
    /// Where this process started it itself.
    child: Option<Child>,
    running: bool,
}

impl Server {
    /// Starts the server of `cluster` and waits until it takes connections. How long that took,
    /// from the start of the process: recovery included.
    ///
    /// # Errors
    /// The last lines of its log.
    pub fn start(cluster: &Cluster<'_>) -> Result<(Self, Duration), Failure> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(cluster.log())?;
        let mut command = cluster.own_program("postgres");
        command.arg("-D").arg(cluster.data());
        command
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null());
        let begin = Instant::now();
        let child = command.spawn()?;
        let mut server = Self {
            postmaster: child.id(),
            child: Some(child),
            running: true,
        };
        while !is_ready(cluster.data(), server.postmaster) {
            if let Some(end) = server.ended()? {
                server.running = false;
                return Err(format!("postgres: {end}: {}", last_lines(&cluster.log())).into());
            }
            if begin.elapsed() > PATIENCE {
                return Err("the server is not ready".into());
            }
            std::thread::sleep(PAUSE);
        }
        let taken = begin.elapsed();
        server.check(cluster)?;
        Ok((server, taken))
    }

    /// The server that `pg_ctl` or the command has just started on `cluster`.
    ///
    /// # Errors
    /// There is none.
    pub fn adopt(cluster: &Cluster<'_>) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(cluster.data().join("postmaster.pid"))?;
        let number = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        let postmaster = number.ok_or("postmaster.pid holds no process number")?;
        if !is_ready(cluster.data(), postmaster) || !alive(postmaster) {
            return Err("the server is not ready".into());
        }
        let server = Self {
            postmaster,
            child: None,
            running: true,
        };
        server.check(cluster)?;
        Ok(server)
    }

    /// The shield is in the process if the data directory is sealed, and only then (B3).
    fn check(&self, cluster: &Cluster<'_>) -> Result<(), Failure> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.postmaster))?;
        if maps.contains("libstrongroom_shield") == cluster.sealed() {
            Ok(())
        } else {
            Err("the shield is in the wrong server's process".into())
        }
    }

    /// Processor time of all its processes so far, in user mode and in the kernel: also of those
    /// that have ended. Waits until there is no session, so that each is counted once.
    ///
    /// # Errors
    /// A session stays.
    pub fn processor_time(&self) -> Result<Duration, Failure> {
        let begin = Instant::now();
        while children(self.postmaster).into_iter().any(is_session) {
            if begin.elapsed() > PATIENCE {
                return Err("a session stays".into());
            }
            std::thread::sleep(PAUSE);
        }
        let ended = ticks(self.postmaster, OWN_AND_REAPED);
        let running = children(self.postmaster).into_iter();
        let ticks = running.fold(ended, |sum, child| sum + ticks(child, OWN));
        let second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs(ticks) / u32::try_from(second)?)
    }

    /// Stops it in order: sessions are ended, a checkpoint is written.
    ///
    /// # Errors
    /// It does not end, or not well.
    pub fn stop(mut self) -> Result<(), Failure> {
        signal(self.postmaster, Signal::INT)?;
        let end = self.wait()?;
        self.running = false;
        if end.is_none_or(|status| status.success()) {
            Ok(())
        } else {
            Err("the server did not end well".into())
        }
    }

    /// Notes that something else has stopped it.
    ///
    /// # Errors
    /// It still runs.
    pub fn was_stopped(mut self) -> Result<(), Failure> {
        self.wait()?;
        self.running = false;
        Ok(())
    }

    /// SIGKILL to all its processes; returns when they are gone. How many there were.
    ///
    /// # Errors
    /// One of them stays.
    pub fn kill(mut self) -> Result<usize, Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<usize, Failure> {
        // None of them may see another one end and clean up: the postmaster stands still while its
        // children are killed, and they would notice its death.
        signal(self.postmaster, Signal::STOP)?;
        let children = children(self.postmaster);
        for child in &children {
            // It may have ended by itself.
            let sent = signal(*child, Signal::KILL);
            drop(sent);
        }
        signal(self.postmaster, Signal::KILL)?;
        self.wait()?;
        self.running = false;
        let begin = Instant::now();
        while children.iter().any(|child| alive(*child)) {
            if begin.elapsed() > PATIENCE {
                return Err("a process of the server stays".into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(children.len() + 1)
    }

    /// How it ended, as far as this process is told; `None` while it runs.
    fn ended(&mut self) -> Result<Option<String>, Failure> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?.map(|status| status.to_string())),
            // As long as its number is taken, PostgreSQL takes it for running.
            None => Ok((!exists(self.postmaster)).then(|| "ended".to_owned())),
        }
    }

    /// Waits for its end; with what status, where this process is told.
    fn wait(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let begin = Instant::now();
        loop {
            if self.ended()?.is_some() {
                let child = self.child.as_mut();
                return Ok(child.map(Child::wait).transpose()?);
            }
            if begin.elapsed() > PATIENCE {
                return Err("the server does not end".into());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.running {
            // Nobody is left to be told.
            let ended = self.end();
            drop(ended);
        }
    }
}

/// Whether `postmaster` is the server of `data` and takes connections, as postmaster.pid tells:
/// what `pg_ctl` looks at.
fn is_ready(data: &Path, postmaster: u32) -> bool {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let mut lines = text.lines();
    let own = lines.next() == Some(postmaster.to_string().as_str());
    own && lines
        .nth(STATE_LINE - 1)
        .is_some_and(|state| state.trim() == "ready")
}

fn exists(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Whether a process runs. One that has ended and whose parent has not asked for its status does
/// not.
fn alive(process: u32) -> bool {
    stat(process).is_some_and(|fields| !matches!(fields.as_slice(), [state, ..] if state == "Z"))
}

fn signal(process: u32, signal: Signal) -> Result<(), Failure> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let process = process.ok_or("not a process number")?;
    Ok(kill_process(process, signal)?)
}

/// The processes that `parent` started and that still run.
fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|process: &u32| parent_of(*process) == Some(parent))
        .collect()
}

fn parent_of(process: u32) -> Option<u32> {
    stat(process)?.get(1)?.parse().ok()
}

/// Whether a child of a postmaster serves a client of user `postgres`, or is ending: then it has no
/// title any more, and its time is not the postmaster's yet.
fn is_session(process: u32) -> bool {
    let title = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    exists(process) && (title.is_empty() || title.starts_with(b"postgres: postgres "))
}

/// Fields of [`stat`]: utime and stime; with cutime and cstime.
const OWN: std::ops::Range<usize> = 11..13;
const OWN_AND_REAPED: std::ops::Range<usize> = 11..15;

/// The sum of these fields, in clock ticks; 0 for a process that is gone.
fn ticks(process: u32, fields: std::ops::Range<usize>) -> u64 {
    let all = stat(process).unwrap_or_default();
    let counts = all.get(fields).unwrap_or_default().iter();
    counts.filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// What /proc tells of a process, from its state on.
fn stat(process: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(3);
    lines.get(first..).unwrap_or_default().join("; ")
}
