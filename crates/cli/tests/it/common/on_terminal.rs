//! A command that runs on a terminal of its own, and what is typed there.
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of this module"
)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A new terminal: the side that types and reads what is shown, and the side of the command.
pub(crate) fn new() -> (File, File) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = File::options().read(true).write(true).open(name).unwrap();
    (File::from(near), far)
}

/// `setsid`, which runs the program and arguments that are added to it in a session whose terminal
/// is its standard input.
pub(crate) fn session() -> Command {
    session_by(Command::new("setsid"))
}

/// The same by a command for `setsid` as another user has it.
pub(crate) fn session_by(mut session: Command) -> Command {
    session.args(["--ctty", "--wait"]);
    session
}

/// Runs a [`session`] on a new terminal. Whenever something new is shown, `answer` gets its last
/// line, and says what is typed. Exit code, and everything that was shown.
pub(crate) fn run(
    mut session: Command,
    patience: Duration,
    mut answer: impl FnMut(&str) -> Option<String>,
) -> (i32, String) {
    let (mut near, far) = new();
    let end = || Stdio::from(far.try_clone().unwrap());
    session.stdin(end()).stdout(end()).stderr(end());
    let mut child = session.spawn().unwrap();
    let (mut shown, mut answered) = (String::new(), 0);
    let deadline = Instant::now() + patience;
    loop {
        if Instant::now() >= deadline {
            kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
        }
        assert!(Instant::now() < deadline, "nothing more after {shown:?}");
        let mut polled = [PollFd::new(&near, PollFlags::IN)];
        let wait = Timespec::try_from(Duration::from_millis(50)).unwrap();
        // `far` is open here too, so that the terminal does not end before the command does.
        if poll(&mut polled, Some(&wait)).unwrap() > 0 {
            let mut buffer = [0; 4096];
            let length = near.read(&mut buffer).unwrap_or(0);
            shown.push_str(&String::from_utf8_lossy(&buffer[..length]));
        } else if child.try_wait().unwrap().is_some() {
            break;
        }
        let last = shown[answered..].lines().last().unwrap_or_default();
        if let Some(line) = answer(last) {
            answered = shown.len();
            near.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
    (child.wait().unwrap().code().unwrap_or(-1), shown)
}
