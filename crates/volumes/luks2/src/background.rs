//! A command that starts itself a second time, and ends when that second process has mounted a
//! volume and serves it in the background.
//!
//! Only the second process ever has the key, so the key never crosses from one process to another.
//!
//! Must not: read or write a volume.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

/// The line that the second process writes when it serves.
const READY: &str = "ready";

/// How the start in the background ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The second process serves.
    Serving,
    /// It has ended without serving, with this exit code if it has one other than zero. It has
    /// printed why.
    Ended(Option<u8>),
}

/// Starts this program a second time with the same arguments and `flag` after its options, and
/// waits until that process calls [`detach_from_terminal`] or ends.
///
/// # Errors
/// The system's, when the process cannot be started or waited for.
pub fn start_again(flag: &OsStr) -> io::Result<Started> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.args(with_flag(std::env::args_os().skip(1).collect(), flag));
    wait_until_ready(&mut command)
}

/// Returns the arguments with `flag` inserted before `--`, or at the end: every word after `--` is
/// a file.
fn with_flag(mut arguments: Vec<OsString>, flag: &OsStr) -> Vec<OsString> {
    let end = arguments.iter().position(|word| word == "--");
    arguments.insert(end.unwrap_or(arguments.len()), flag.to_owned());
    arguments
}

/// Starts the command and reads the first line of its output. Returns `Serving`, with the process
/// still running, when that line is `ready`; otherwise waits for its end, and returns its exit
/// code. A code of zero and an end by a signal give `Ended(None)`.
///
/// # Errors
/// The system's, when the process cannot be started or waited for.
fn wait_until_ready(command: &mut Command) -> io::Result<Started> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    if let Some(Some(Ok(line))) = lines.map(|mut lines| lines.next())
        && line == READY
    {
        return Ok(Started::Serving);
    }
    let code = child
        .wait()?
        .code()
        .and_then(|code| u8::try_from(code).ok());
    Ok(Started::Ended(code.filter(|code| *code != 0)))
}

/// Prints the line `ready` for the command that waits in [`start_again`], then lets go of the
/// terminal: starts a new session, makes `/` the working directory, and puts `/dev/null` in the
/// place of standard input, output and error.
///
/// # Errors
/// The system's.
pub fn detach_from_terminal() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    // Fails only for the leader of a process group, which has no terminal to lose.
    let _leader = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let nothing = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_stands_before_the_files() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let flagged = |text: &str| with_flag(words(text), OsStr::new("--serving"));
        assert_eq!(
            flagged("volume attach a b"),
            words("volume attach a b --serving")
        );
        assert_eq!(
            flagged("volume attach -- a b"),
            words("volume attach --serving -- a b")
        );
    }

    #[test]
    fn a_process_serves_when_it_says_so_and_has_failed_when_it_ends() {
        let started = |script: &str| {
            let mut command = Command::new("sh");
            wait_until_ready(command.args(["-c", script])).unwrap()
        };
        assert_eq!(started("echo ready"), Started::Serving);
        assert_eq!(started("exit 3"), Started::Ended(Some(3)));
        assert_eq!(
            started("echo something else; exit 3"),
            Started::Ended(Some(3))
        );
        assert_eq!(started("exit 0"), Started::Ended(None));
        assert_eq!(started("kill -9 $$"), Started::Ended(None));
    }
}
