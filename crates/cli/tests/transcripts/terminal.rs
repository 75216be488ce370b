//! Runs a script with a terminal of its own, and types a passphrase whenever one is asked for.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// What is typed at every question.
const PASSPHRASE: &[u8] = b"correct horse battery staple\n";
/// Longest run of one page.
const PATIENCE: Duration = Duration::from_secs(180);

/// How a run ended.
pub(crate) struct Ended {
    /// Whether the script's exit code was 0.
    pub(crate) well: bool,
    /// Everything that the terminal showed.
    pub(crate) screen: String,
}

/// Runs `command` as the leader of a session whose terminal is new.
pub(crate) fn run(command: &Command) -> Ended {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = File::options().read(true).write(true).open(name).unwrap();
    let end = || Stdio::from(far.try_clone().unwrap());
    let mut session = Command::new("setsid");
    session
        .args(["--ctty", "--wait"])
        .arg(command.get_program());
    session.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => session.env(name, value),
            None => session.env_remove(name),
        };
    }
    session.stdin(end()).stdout(end()).stderr(end());
    let mut child = session.spawn().unwrap();
    drop(far);
    let screen = watched(&mut File::from(near), &mut child);
    Ended {
        well: child.wait().unwrap().success(),
        screen,
    }
}

/// What appears until the far side is closed. A line that ends in a colon and a space is a question.
fn watched(terminal: &mut File, child: &mut Child) -> String {
    let (mut seen, mut answered) = (Vec::new(), 0);
    let (mut buffer, end) = ([0; 4096], Instant::now() + PATIENCE);
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    while Instant::now() < end {
        let mut fds = [PollFd::new(&*terminal, PollFlags::IN)];
        if poll(&mut fds, Some(&moment)).unwrap() == 0 {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            continue;
        }
        // The terminal ends with an error when its far side is closed.
        let Ok(length @ 1..) = terminal.read(&mut buffer) else {
            break;
        };
        seen.extend_from_slice(&buffer[..length]);
        if seen[answered..].ends_with(b": ") {
            answered = seen.len();
            terminal.write_all(PASSPHRASE).unwrap();
        }
    }
    if child.try_wait().unwrap().is_none() && Instant::now() >= end {
        let group = Pid::from_child(child);
        kill_process_group(group, Signal::KILL).unwrap();
    }
    String::from_utf8_lossy(&seen).into_owned()
}
