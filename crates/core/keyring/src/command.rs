//! Key material from a command: `/bin/sh -c COMMAND`, bounded in time and output.
//!
//! Standard input is `/dev/null`, standard error is the user's, standard output is read into locked
//! memory. The command runs in a process group of its own, which is killed whole when the time is
//! up; it must therefore not read from the terminal.
//!
//! Must not: show the output of the command, or its command line, in an error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_format::run::{DEFAULT_VARIABLE, OUTSIDE_VARIABLE};

use crate::error::Error;
use crate::material_buffer::{MaterialBuffer, too_long};

/// How long a command may take unless [`TIMEOUT_VARIABLE`] says otherwise.
const TIMEOUT_S: u64 = 30;
/// Longest timeout that may be asked for.
const TIMEOUT_MAX_S: u64 = 3600;
/// The variable that sets the timeout, in whole seconds.
const TIMEOUT_VARIABLE: &str = "STRONGROOM_KEY_COMMAND_TIMEOUT";
/// The interval at which a command that has closed its output is polled for its exit.
const EXIT_POLL: Duration = Duration::from_millis(5);

/// Runs a shell command and returns what it prints on standard output, in locked memory. Waits for
/// at most 30 seconds, or what `STRONGROOM_KEY_COMMAND_TIMEOUT` says. Errors: SR-2009 when it
/// cannot be run, or ends with another status than 0 or by a signal; SR-2010 when it takes too
/// long; SR-2011 when it prints more than 64 KiB; SR-2043 when the variable is not valid; SR-5001
/// when the system reports an error.
pub(crate) fn output(line: &str) -> Result<SecretBytes, Error> {
    run(line, timeout()?)
}

/// Returns the time limit of key commands: `STRONGROOM_KEY_COMMAND_TIMEOUT`, or 30 seconds when it
/// is not set. Errors: SR-2043 unless the variable is 1 to 3600 whole seconds.
fn timeout() -> Result<Duration, Error> {
    let Some(text) = std::env::var_os(TIMEOUT_VARIABLE) else {
        return Ok(Duration::from_secs(TIMEOUT_S));
    };
    let seconds = text.to_str().and_then(|text| text.parse::<u64>().ok());
    match seconds {
        Some(seconds @ 1..=TIMEOUT_MAX_S) => Ok(Duration::from_secs(seconds)),
        _ => {
            let detail = format!("{TIMEOUT_VARIABLE} must be 1 to {TIMEOUT_MAX_S} seconds");
            Err(Error::new(&code::ENVIRONMENT_SECONDS, detail))
        }
    }
}

/// Runs the command and returns what it prints. When it takes longer than `timeout`, or its output
/// cannot be read or is too long, kills it with everything that it started. Errors: SR-2009 when it
/// cannot be run, or ends with another status than 0 or by a signal; SR-2010 when it takes longer
/// than `timeout`; SR-2011 when it prints more than 64 KiB; SR-5001 when the system reports an
/// error.
fn run(line: &str, timeout: Duration) -> Result<SecretBytes, Error> {
    let failed = |error| Error::caused(&code::KEY_COMMAND, "running it", error);
    let mut command = Command::new("/bin/sh");
    without_strongroom(&mut command);
    let mut child = command
        .arg("-c")
        .arg(line)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let outcome = collect(&mut child, timeout);
    if outcome.is_err() {
        kill_group(&mut child);
    }
    let (material, status) = outcome?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(material),
        (Some(number), _) => Err(Error::new(
            &code::KEY_COMMAND,
            format!("exit status {number}"),
        )),
        (None, signal) => {
            let detail = format!("ended by signal {}", signal.unwrap_or_default());
            Err(Error::new(&code::KEY_COMMAND, detail))
        }
    }
}

/// Removes Strongroom's libraries from the `LD_PRELOAD` that the command inherits, and the variable
/// of the default key, and marks the command as outside. A key command may itself use an SQLite
/// database, and the VFS in it would ask for the key that the command is to deliver.
fn without_strongroom(command: &mut Command) {
    command
        .env_remove(DEFAULT_VARIABLE)
        .env(OUTSIDE_VARIABLE, "1");
    let Some(former) = std::env::var_os("LD_PRELOAD") else {
        return;
    };
    let is_ours = |path: &&[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next();
        name.is_some_and(|name| name.starts_with(b"libstrongroom_"))
    };
    let kept: Vec<&[u8]> = former
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|path| !path.is_empty() && !is_ours(path))
        .collect();
    match kept.is_empty() {
        true => command.env_remove("LD_PRELOAD"),
        false => command.env("LD_PRELOAD", OsStr::from_bytes(&kept.join(&b':'))),
    };
}

/// Reads to the end of the output, then polls for the exit every 5 ms, and returns output and
/// status. Errors: SR-2010 when both together take longer than `timeout`; SR-2011 when the output
/// is longer than 64 KiB; SR-2009 when the system fails. The command may still be running then.
fn collect(child: &mut Child, timeout: Duration) -> Result<(SecretBytes, ExitStatus), Error> {
    let failed = |error| Error::caused(&code::KEY_COMMAND, "reading its output", error);
    let start = Instant::now();
    let left = || {
        timeout
            .checked_sub(start.elapsed())
            .filter(|left| !left.is_zero())
    };
    let late = || {
        Error::new(
            &code::KEY_COMMAND_TIMEOUT,
            format!("{} s", timeout.as_secs()),
        )
    };
    let bug = || Error::new(&code::BUG, "no pipe to the key command");
    let mut stdout: ChildStdout = child.stdout.take().ok_or_else(bug)?;
    let mut buffer = MaterialBuffer::new()?;
    loop {
        if !wait_readable(&stdout, left().ok_or_else(late)?).map_err(failed)? {
            continue;
        }
        if !buffer.read_from(&mut stdout).map_err(failed)? {
            break;
        }
        if buffer.is_too_long() {
            return Err(too_long());
        }
    }
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok((buffer.finish()?, status));
        }
        std::thread::sleep(EXIT_POLL.min(left().ok_or_else(late)?));
    }
}

/// Waits until there is output to read, or its end, and returns true. Returns false when `left` is
/// over or a signal interrupted the wait. Errors: the system's.
fn wait_readable(stdout: &ChildStdout, left: Duration) -> std::io::Result<bool> {
    let wait = Timespec::try_from(left).map_err(std::io::Error::other)?;
    let mut polled = [PollFd::new(stdout, PollFlags::IN)];
    match poll(&mut polled, Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Kills the command and everything it started in its process group, and waits for the command, so
/// that no zombie remains. Ignores errors.
fn kill_group(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The group is gone already if the command ended by itself; there is nothing else to do about a
    // failure.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn refused(line: &str, timeout: Duration) -> (u16, String) {
        let error = run(line, timeout).err().expect("must be refused");
        (error.code().number, error.detail().to_owned())
    }

    #[test]
    fn output_is_taken_as_it_is() {
        let material = run("printf 'a b\\n'", LONG).unwrap();
        assert_eq!(material.as_slice(), b"a b\n");
        assert!(run("true", LONG).unwrap().is_empty());
        // The whole of 64 KiB, in several reads.
        let most = run("head -c 65536 /dev/zero", LONG).unwrap();
        assert_eq!(most.len(), 65536);
        assert_eq!(refused("head -c 65537 /dev/zero", LONG).0, 2011);
        assert_eq!(
            refused("cat /dev/zero", LONG).0,
            2011,
            "endless output is cut off"
        );
    }

    #[test]
    fn standard_input_is_empty() {
        assert!(run("cat", LONG).unwrap().is_empty());
    }

    #[test]
    fn failures_carry_the_status_and_nothing_else() {
        let (code, detail) = refused("printf hunter2; exit 7", LONG);
        assert_eq!((code, detail.as_str()), (2009, "exit status 7"));
        assert_eq!(
            refused("/nonexistent/hunter2 2>/dev/null", LONG).1,
            "exit status 127"
        );
        assert_eq!(refused("kill -TERM $$", LONG).1, "ended by signal 15");
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_everything_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        let line = format!("sleep 600 & echo $! $$ > '{}'; wait", pids.display());
        let start = Instant::now();
        assert_eq!(refused(&line, Duration::from_millis(700)).0, 2010);
        assert!(start.elapsed() < Duration::from_secs(10));
        let text = std::fs::read_to_string(&pids).unwrap();
        let pids: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(pids.len(), 2, "the command had started by then");
        for pid in pids {
            assert!(ends_soon(pid), "process {pid} is still there");
        }
    }

    #[test]
    fn closing_the_output_does_not_escape_the_deadline() {
        let start = Instant::now();
        assert_eq!(
            refused("exec >&-; exec sleep 600", Duration::from_millis(300)).0,
            2010
        );
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    /// Whether the process is gone, or a zombie that its new parent has yet to collect.
    fn ends_soon(pid: &str) -> bool {
        (0..200).any(|_| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            let ended = stat.map_or(true, |stat| stat.contains(") Z "));
            if !ended {
                std::thread::sleep(Duration::from_millis(10));
            }
            ended
        })
    }
}
