//! Asks for a passphrase while the system starts: through systemd where it runs, else at the
//! console, for a limited time.
//!
//! Must not: wait longer than the limit; echo; keep the passphrase outside locked memory.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use zeroize::Zeroize as _;

use crate::failure::Failure;

/// Terminals that are tried, in this order.
const TERMINALS: [&str; 2] = ["/dev/tty", "/dev/console"];
/// Where systemd, as the first process, says that it is there.
const SYSTEMD: &str = "/run/systemd/system";
const SYSTEMD_ASK: &str = "systemd-ask-password";
/// Longest passphrase.
const TYPED_MAX: usize = 1024;

/// Asks, and waits at most `wait`.
pub(super) fn ask(prompt: &str, wait: Duration) -> Result<SecretBytes, Failure> {
    if wait.is_zero() {
        return Err(timeout_failure());
    }
    if Path::new(SYSTEMD).is_dir() {
        // Not there, or not able to: the console is left.
        if let Some(typed) = ask_through_systemd(prompt, wait)? {
            return Ok(typed);
        }
    }
    let open = |path: &&str| OpenOptions::new().read(true).write(true).open(path).ok();
    let terminal = TERMINALS.iter().find_map(open);
    let terminal = terminal
        .ok_or_else(|| Failure::new(&code::NO_TERMINAL, "neither /dev/tty nor /dev/console"))?;
    at_terminal(&terminal, prompt, wait)
}

fn ask_through_systemd(prompt: &str, wait: Duration) -> Result<Option<SecretBytes>, Failure> {
    let asked = Command::new(SYSTEMD_ASK)
        .arg(format!("--timeout={}", wait.as_secs().max(1)))
        .arg("--id=strongroom")
        .arg(format!("{prompt}:"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = asked else {
        return Ok(None);
    };
    let failed = |error| Failure::io(Path::new(SYSTEMD_ASK), &error);
    let mut typed = Typed::new()?;
    let began = Instant::now();
    let mut finished = Ok(false);
    if let Some(mut out) = child.stdout.take() {
        // Its own limit, and a little, should it not keep it.
        let limit = wait + Duration::from_secs(5);
        while let Ok(false) = finished {
            finished = match time_left(began, limit) {
                Some(left) if wait_until_readable(&out, left)? => typed.read(&mut out),
                _ => Ok(true),
            };
        }
    }
    let gave_up = typed.is_empty();
    if gave_up {
        // Already gone, usually.
        drop(child.kill());
    }
    let status = child.wait().map_err(failed)?;
    finished.map_err(failed)?;
    if gave_up || !status.success() {
        return if began.elapsed() >= wait {
            Err(timeout_failure())
        } else {
            Ok(None)
        };
    }
    typed.finish().map(Some)
}

fn at_terminal(terminal: &File, prompt: &str, wait: Duration) -> Result<SecretBytes, Failure> {
    let failed = |error: std::io::Error| Failure::io(Path::new("the console"), &error);
    let before = tcgetattr(terminal).map_err(|error| failed(error.into()))?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent
        .local_modes
        .insert(LocalModes::ECHONL | LocalModes::ICANON);
    tcsetattr(terminal, OptionalActions::Flush, &silent).map_err(|error| failed(error.into()))?;
    let mut to = terminal;
    let typed = write!(to, "{prompt} ({} s): ", wait.as_secs())
        .map_err(failed)
        .and_then(|()| line(terminal, wait));
    let restored = tcsetattr(terminal, OptionalActions::Now, &before);
    let typed = typed?;
    restored.map_err(|error| failed(error.into()))?;
    typed.finish()
}

fn line(terminal: &File, wait: Duration) -> Result<Typed, Failure> {
    let began = Instant::now();
    let mut typed = Typed::new()?;
    let mut from = terminal;
    loop {
        let Some(left) = time_left(began, wait) else {
            return Err(timeout_failure());
        };
        if !wait_until_readable(terminal, left)? {
            return Err(timeout_failure());
        }
        let ended = typed
            .read(&mut from)
            .map_err(|error| Failure::io(Path::new("the console"), &error))?;
        if ended || typed.has_line() {
            return Ok(typed);
        }
    }
}

fn wait_until_readable(from: &impl std::os::fd::AsFd, wait: Duration) -> Result<bool, Failure> {
    let mut asked = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
    let wait = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    match poll(&mut asked, Some(&wait)) {
        Ok(count) => Ok(count > 0),
        // A signal: asked again, with the time that is left.
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(Failure::io(Path::new("the console"), &error.into())),
    }
}

fn time_left(began: Instant, wait: Duration) -> Option<Duration> {
    wait.checked_sub(began.elapsed())
        .filter(|left| !left.is_zero())
}

fn timeout_failure() -> Failure {
    Failure::new(&code::NO_KEY, "nobody typed in time")
}

/// What is being typed.
struct Typed {
    bytes: SecretBytes,
    filled: usize,
}

impl Typed {
    fn new() -> Result<Self, Failure> {
        let bytes = SecretBytes::with_capacity(TYPED_MAX);
        let bytes = bytes.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
        Ok(Self { bytes, filled: 0 })
    }

    fn is_empty(&self) -> bool {
        self.filled == 0
    }

    fn has_line(&self) -> bool {
        self.bytes
            .as_slice()
            .get(..self.filled)
            .is_some_and(|typed| typed.contains(&b'\n'))
    }

    /// Reads once; true at the end, or when there is no room.
    fn read(&mut self, from: &mut impl std::io::Read) -> std::io::Result<bool> {
        let free = self
            .bytes
            .as_mut_slice()
            .get_mut(self.filled..)
            .unwrap_or_default();
        if free.is_empty() {
            return Ok(true);
        }
        match from.read(free) {
            Ok(0) => Ok(true),
            Ok(count) => {
                self.filled += count;
                Ok(false)
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The first line, without its end.
    fn finish(mut self) -> Result<SecretBytes, Failure> {
        let typed = self.bytes.as_slice().get(..self.filled).unwrap_or_default();
        let end = typed
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(self.filled);
        if end == 0 {
            return Err(Failure::new(&code::NO_KEY, "nothing was typed"));
        }
        if let Some(rest) = self.bytes.as_mut_slice().get_mut(end..) {
            rest.zeroize();
        }
        self.bytes.truncate(end);
        Ok(self.bytes)
    }
}
