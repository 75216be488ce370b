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
use strongroom_keyring::Error;
use zeroize::Zeroize as _;

use crate::error::io;

/// Terminals that are tried, in this order.
const TERMINALS: [&str; 2] = ["/dev/tty", "/dev/console"];
/// Where systemd, as the first process, says that it is there.
const SYSTEMD: &str = "/run/systemd/system";
const SYSTEMD_ASK: &str = "systemd-ask-password";
/// Longest line with its end, in bytes.
const TYPED_MAX: usize = 1024;

/// Asks for a passphrase through systemd, or at `/dev/tty` or `/dev/console` without echo, and
/// waits at most `wait`.
///
/// # Errors
/// SR-2001 when no line was typed in time, or an empty one; SR-2011 for a longer one than 1023
/// bytes; SR-1004 where there is no terminal;
/// SR-5001 when the system reports an error.
pub fn ask(prompt: &str, wait: Duration) -> Result<SecretBytes, Error> {
    if wait.is_zero() {
        return Err(too_late());
    }
    if Path::new(SYSTEMD).is_dir() {
        // Where the program is not there, or cannot ask, the console is asked at.
        if let Some(typed) = ask_through_systemd(prompt, wait)? {
            return Ok(typed);
        }
    }
    let open = |path: &&str| OpenOptions::new().read(true).write(true).open(path).ok();
    let terminal = TERMINALS.iter().find_map(open);
    let terminal = terminal
        .ok_or_else(|| Error::new(&code::NO_TERMINAL, "neither /dev/tty nor /dev/console"))?;
    at_terminal(&terminal, prompt, wait)
}

/// Asks with systemd-ask-password. `None` when that is not there, or ends without a passphrase
/// before `wait` is over.
///
/// # Errors
/// SR-2001 when nobody typed within `wait`, or an empty line was typed; SR-5001 when the system
/// reports an error.
fn ask_through_systemd(prompt: &str, wait: Duration) -> Result<Option<SecretBytes>, Error> {
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
    let failed = |error| io(Path::new(SYSTEMD_ASK), error);
    let mut typed = Typed::new()?;
    let began = Instant::now();
    let mut finished = Ok(false);
    if let Some(mut out) = child.stdout.take() {
        // The program has this limit too; the seconds more are for its end.
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
        // Usually it has ended already.
        drop(child.kill());
    }
    let status = child.wait().map_err(failed)?;
    finished.map_err(failed)?;
    if gave_up || !status.success() {
        return if began.elapsed() >= wait {
            Err(too_late())
        } else {
            Ok(None)
        };
    }
    typed.finish().map(Some)
}

/// Writes the prompt to the terminal, and returns the line that is typed, without its end. Switches
/// the echo off meanwhile, and restores it after an error too.
///
/// # Errors
/// SR-2001 when the whole line was not typed within `wait`, or is empty; SR-5001 when the system
/// reports an error.
fn at_terminal(terminal: &File, prompt: &str, wait: Duration) -> Result<SecretBytes, Error> {
    let failed = |error: std::io::Error| io(Path::new("the console"), error);
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
        .and_then(|()| read_line(terminal, wait));
    let restored = tcsetattr(terminal, OptionalActions::Now, &before);
    let typed = typed?;
    restored.map_err(|error| failed(error.into()))?;
    typed.finish()
}

/// Reads up to the end of a line, or as much as a passphrase may have.
///
/// # Errors
/// SR-2001 when `wait` is over before; SR-5001 when the system reports an error.
fn read_line(terminal: &File, wait: Duration) -> Result<Typed, Error> {
    let began = Instant::now();
    let mut typed = Typed::new()?;
    let mut from = terminal;
    loop {
        let Some(left) = time_left(began, wait) else {
            return Err(too_late());
        };
        if !wait_until_readable(terminal, left)? {
            return Err(too_late());
        }
        let ended = typed
            .read(&mut from)
            .map_err(|error| io(Path::new("the console"), error))?;
        if ended || typed.has_line() {
            return Ok(typed);
        }
    }
}

/// Waits until there is something to read, and returns false when `wait` is over. True after a
/// signal too: the caller reads the clock again. SR-5001 when waiting fails.
fn wait_until_readable(from: &impl std::os::fd::AsFd, wait: Duration) -> Result<bool, Error> {
    let mut asked = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
    let wait = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    match poll(&mut asked, Some(&wait)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(io(Path::new("the console"), error.into())),
    }
}

/// Returns what is left of `wait` since `began`. `None` when it is over.
fn time_left(began: Instant, wait: Duration) -> Option<Duration> {
    wait.checked_sub(began.elapsed())
        .filter(|left| !left.is_zero())
}

/// Returns the error SR-2001: nobody typed in time.
fn too_late() -> Error {
    Error::new(&code::NO_KEY, "nobody typed in time")
}

/// A passphrase while it is being typed, in locked memory.
struct Typed {
    bytes: SecretBytes,
    filled: usize,
}

impl Typed {
    /// Returns an empty passphrase, with room for the longest one. SR-5001 when there is no locked
    /// memory.
    fn new() -> Result<Self, Error> {
        let bytes = SecretBytes::with_capacity(TYPED_MAX)?;
        Ok(Self { bytes, filled: 0 })
    }

    /// Returns whether nothing was read yet.
    fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Returns whether the end of a line was read.
    fn has_line(&self) -> bool {
        self.bytes
            .as_slice()
            .get(..self.filled)
            .is_some_and(|typed| typed.contains(&b'\n'))
    }

    /// Reads once and appends. Returns true at the end of the input, or when there is no room;
    /// false after a signal.
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

    /// Returns the first line without its end, and wipes the rest. SR-2001 when it is empty,
    /// SR-2011 when it has more than 1023 bytes.
    fn finish(mut self) -> Result<SecretBytes, Error> {
        let typed = self.bytes.as_slice().get(..self.filled).unwrap_or_default();
        let end = typed
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(self.filled);
        if end == 0 {
            return Err(Error::new(&code::NO_KEY, "nothing was typed"));
        }
        // Without its end it may go on: the part that was read is another passphrase.
        if end == TYPED_MAX {
            return Err(Error::new(
                &code::KEY_MALFORMED,
                "a passphrase of more than 1023 bytes",
            ));
        }
        if let Some(rest) = self.bytes.as_mut_slice().get_mut(end..) {
            rest.zeroize();
        }
        self.bytes.truncate(end);
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &[u8]) -> Typed {
        let mut typed = Typed::new().unwrap();
        let mut from = text;
        while !typed.read(&mut from).unwrap() {}
        typed
    }

    #[test]
    fn the_first_line_is_the_passphrase_and_nothing_is_none() {
        let finished = |text: &[u8]| typed(text).finish();
        assert_eq!(finished(b"a b\nrest").unwrap().as_slice(), b"a b");
        assert_eq!(
            finished(b"without an end").unwrap().as_slice(),
            b"without an end"
        );
        for nothing in [b"".as_slice(), b"\n", b"\nmore"] {
            let error = finished(nothing).err().unwrap();
            assert_eq!(error.code(), &code::NO_KEY);
        }
        assert!(typed(b"").is_empty());
        assert!(typed(b"a\n").has_line() && !typed(b"a").has_line());
    }

    #[test]
    fn what_is_too_long_is_refused_and_not_cut() {
        let longest = [&vec![b'x'; TYPED_MAX - 1][..], b"\n"].concat();
        let passphrase = typed(&longest).finish().unwrap();
        assert_eq!(passphrase.as_slice().len(), TYPED_MAX - 1);
        let error = typed(&vec![b'x'; 2 * TYPED_MAX]).finish().err().unwrap();
        assert_eq!(error.code(), &code::KEY_MALFORMED);
    }

    #[test]
    fn nobody_is_asked_when_no_time_is_left() {
        let error = ask("Passphrase", Duration::ZERO).err().unwrap();
        assert_eq!(error.code(), &code::NO_KEY);
        let began = Instant::now();
        assert!(time_left(began, Duration::from_secs(60)).is_some());
        assert!(time_left(began, Duration::ZERO).is_none());
    }
}
