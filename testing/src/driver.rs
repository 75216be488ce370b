//! A worker process that executes SQL on request and can be stopped in the midst of a statement.
//!
//! The conversation, one line each: `open URI`, `sql TEXT`, `every N` (stop after each N steps of
//! SQLite's machine), `removals` (stop before files are removed or cut), `abort`, `quit`; answers
//! `ok ...`, `error CODE TEXT`, and `stopped`, which waits for `go`. The Rust worker and
//! `drivers/worker.py` speak it alike.
//!
//! Must not: leave a worker behind when it is dropped.

use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The worker.
pub struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts `command` in `room`: its temporary files go to `room/tmp`, its standard error to
    /// `room/stderr`.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(mut command: Command, room: &Path) -> std::io::Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(room.join("stderr"))?;
        let mut child = command
            .env("SQLITE_TMPDIR", room.join("tmp"))
            .env("TMPDIR", room.join("tmp"))
            .current_dir(room)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let requests = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
        let answers = child.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
        Ok(Self {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks and waits for the answer; `stopped` is called whenever the worker stands still in
    /// between.
    ///
    /// # Errors
    /// The worker's own error, as `CODE TEXT`, or that of talking to it.
    pub fn ask_with(
        &mut self,
        request: &str,
        mut stopped: impl FnMut(u32),
    ) -> std::io::Result<String> {
        assert!(!request.contains('\n'), "one line per request");
        writeln!(self.requests, "{request}")?;
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the worker is gone"));
            }
            let line = line.trim_end();
            if line == "stopped" {
                stopped(self.child.id());
                writeln!(self.requests, "go")?;
            } else if let Some(answer) = line.strip_prefix("ok") {
                return Ok(answer.trim_start().to_owned());
            } else {
                return Err(Error::other(
                    line.strip_prefix("error ").unwrap_or(line).to_owned(),
                ));
            }
        }
    }

    /// [`Self::ask_with`] without looking.
    ///
    /// # Errors
    /// As there.
    pub fn ask(&mut self, request: &str) -> std::io::Result<String> {
        self.ask_with(request, |_| {})
    }

    /// Lets it end in its own time, closing what it has open.
    ///
    /// # Errors
    /// Those of waiting; a worker that failed.
    pub fn finish(mut self) -> std::io::Result<()> {
        writeln!(self.requests, "quit")?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::other(format!("worker: {status}")))
        }
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// Those of signalling and waiting.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Tells it to abort, so that the kernel writes a core.
    ///
    /// # Errors
    /// Those of talking to it.
    pub fn abort(&mut self) -> std::io::Result<std::process::ExitStatus> {
        writeln!(self.requests, "abort")?;
        self.child.wait()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Already gone in the ordinary case.
        let killed = self.child.kill();
        let waited = self.child.wait();
        drop((killed, waited));
    }
}
