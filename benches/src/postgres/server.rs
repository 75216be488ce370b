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
    child: Child,
    running: bool,
}

impl Server {
    /// Starts the server of `cluster` and waits until it takes connections. How long that took, from the start of the
    /// process: recovery included.
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
            child,
            running: true,
        };
        while !server.is_ready(cluster.data()) {
            if let Some(status) = server.child.try_wait()? {
                server.running = false;
                return Err(format!("postgres: {status}: {}", last_lines(&cluster.log())).into());
            }
            if begin.elapsed() > PATIENCE {
                return Err("the server is not ready".into());
            }
            std::thread::sleep(PAUSE);
        }
        let taken = begin.elapsed();
        if server.has_shield()? != cluster.sealed() {
            return Err("the shield is in the wrong server's process (B3)".into());
        }
        Ok((server, taken))
    }

    /// Its process's number and its state, as postmaster.pid tells: what `pg_ctl` looks at.
    fn is_ready(&self, data: &Path) -> bool {
        let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines();
        let own = lines.next() == Some(self.child.id().to_string().as_str());
        own && lines
            .nth(STATE_LINE - 1)
            .is_some_and(|state| state.trim() == "ready")
    }

    fn has_shield(&self) -> Result<bool, Failure> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id()))?;
        Ok(maps.contains("libstrongroom_shield"))
    }

    /// Stops it in order: sessions are ended, a checkpoint is written.
    ///
    /// # Errors
    /// It does not end, or not well.
    pub fn stop(mut self) -> Result<(), Failure> {
        signal(self.child.id(), Signal::INT)?;
        let status = self.wait()?;
        self.running = false;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the server ended: {status}").into())
        }
    }

    fn wait(&mut self) -> Result<ExitStatus, Failure> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if begin.elapsed() > PATIENCE {
                return Err("the server does not end".into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// SIGKILL to all its processes; returns when they are gone.
    ///
    /// # Errors
    /// One of them stays.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        let children = children(self.child.id());
        self.child.kill()?;
        for child in &children {
            // It may have ended by itself: it watches the postmaster.
            let sent = signal(*child, Signal::KILL);
            drop(sent);
        }
        self.wait()?;
        self.running = false;
        let begin = Instant::now();
        while children
            .iter()
            .any(|child| Path::new(&format!("/proc/{child}")).exists())
        {
            if begin.elapsed() > PATIENCE {
                return Err("a process of the server stays".into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
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
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(3);
    lines.get(first..).unwrap_or_default().join("; ")
}
