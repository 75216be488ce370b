//! A process of its own for what may hang, crash or look around: the libraries of other makers.
//!
//! The program starts itself once more. Question and answer go over a socket that is the other
//! process's standard input: the question is fields with their lengths, the answer the number of an
//! error code (0: none) and a detail, or the result. When the time is up the process is killed;
//! when it ends without an answer, that is the answer.
//!
//! Invariants: the question and the answer are in locked memory on both sides; a caller waits at
//! most until its deadline, plus a second for the process to be gone.
//! Must not: put anything secret into arguments or environment.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::limit::Deadline;

/// Longest question and longest answer.
const MESSAGE_MAX: usize = 16 * 1024;
/// How long a killed process may take to be gone before it is left to the system.
const GONE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// How this program is started so that it calls [`serve`].
pub struct Launcher {
    /// The program: itself.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What is added to its environment.
    pub environment: Vec<(OsString, OsString)>,
}

static LAUNCHER: OnceLock<Launcher> = OnceLock::new();

/// Says how. Once, when a program starts.
pub fn launched_by(launcher: Launcher) {
    LAUNCHER.get_or_init(|| launcher);
}

/// What the other process does: fields of a question in, a result out.
pub(crate) type Operation = fn(&[&[u8]]) -> Result<SecretBytes, Error>;

/// Asks a process of its own.
///
/// # Errors
/// What it answers; SR-2101 when it cannot be started, ends without an answer, or takes too long.
pub(crate) fn ask(fields: &[&[u8]], deadline: Deadline) -> Result<SecretBytes, Error> {
    let failed = |error| Error::caused(&code::PROVIDER_UNREACHABLE, "starting its process", error);
    let launcher = LAUNCHER.get().ok_or_else(|| {
        let detail = "this program cannot start a process for it";
        Error::new(&code::PROVIDER_ELSEWHERE, detail)
    })?;
    let question = framed(fields)?;
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut child = Command::new(&launcher.program)
        .args(&launcher.arguments)
        .envs(
            launcher
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    let answer = exchanged(&ours, &question, deadline);
    // After an answer there is nothing more to wait for: a module that hangs when it is unloaded is
    // ended too.
    let status = ended(&mut child);
    let answer = answer?;
    match answer.as_slice().split_first_chunk::<2>() {
        Some((number, rest)) => told(u16::from_le_bytes(*number), rest),
        None => Err(Error::new(
            &code::PROVIDER_UNREACHABLE,
            format!("its process ended without an answer{}", why(status)),
        )),
    }
}

fn why(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.signal(), status.code())) {
        Some((Some(signal), _)) => format!(": signal {signal}"),
        Some((None, Some(number))) => format!(": exit status {number}"),
        _ => String::new(),
    }
}

fn told(number: u16, rest: &[u8]) -> Result<SecretBytes, Error> {
    if number == 0 {
        return copied(rest);
    }
    let code = code::by_number(number).unwrap_or(&code::BUG);
    Err(Error::new(code, String::from_utf8_lossy(rest)))
}

fn copied(bytes: &[u8]) -> Result<SecretBytes, Error> {
    let mut copy = SecretBytes::with_capacity(bytes.len())?;
    copy.as_mut_slice().copy_from_slice(bytes);
    Ok(copy)
}

/// Sends the question and reads the answer to its end. An answer of no bytes: the process ended.
fn exchanged(
    mut socket: &UnixStream,
    question: &SecretBytes,
    deadline: Deadline,
) -> Result<SecretBytes, Error> {
    let failed = |error| Error::caused(&code::PROVIDER_UNREACHABLE, "asking its process", error);
    socket
        .set_write_timeout(Some(deadline.left()?))
        .map_err(failed)?;
    let sent = socket
        .write_all(question.as_slice())
        .and_then(|()| socket.shutdown(std::net::Shutdown::Write));
    match sent {
        // It ended before it read everything: what it answered, or that it did not, is found by
        // reading.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::NotConnected
            ) => {}
        other => other.map_err(failed)?,
    }
    let mut answer = SecretBytes::with_capacity(MESSAGE_MAX)?;
    let mut have = 0_usize;
    loop {
        socket
            .set_read_timeout(Some(deadline.left()?))
            .map_err(failed)?;
        let room = answer.as_mut_slice().get_mut(have..).unwrap_or_default();
        if room.is_empty() {
            return Err(Error::new(
                &code::PROVIDER_ANSWER,
                "the answer of its process is too long",
            ));
        }
        match socket.read(room) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                ErrorKind::ConnectionReset => break,
                _ => return Err(failed(error)),
            },
        }
    }
    copied(answer.as_slice().get(..have).unwrap_or_default())
}

/// Ends the process if it has not ended, and takes its exit status so that no zombie remains.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let until = std::time::Instant::now() + GONE;
    let mut killed = false;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Err(_) => return None,
            Ok(None) if std::time::Instant::now() > until => return None,
            // It may be on its way out by itself, which says more about it than the signal would.
            Ok(None) if !killed => {
                std::thread::sleep(POLL);
                if matches!(child.try_wait(), Ok(None)) {
                    drop(child.kill());
                    killed = true;
                }
            }
            Ok(None) => std::thread::sleep(POLL),
        }
    }
}

fn framed(fields: &[&[u8]]) -> Result<SecretBytes, Error> {
    let long = || Error::new(&code::PROVIDER, "the request is too long");
    let len: usize = fields.iter().map(|field| field.len() + 4).sum();
    if len > MESSAGE_MAX {
        return Err(long());
    }
    let mut question = SecretBytes::with_capacity(len)?;
    let mut rest = question.as_mut_slice();
    for field in fields {
        let len = u32::try_from(field.len()).map_err(|_| long())?;
        for part in [&len.to_le_bytes()[..], field] {
            let (to, behind) = rest.split_at_mut_checked(part.len()).ok_or_else(long)?;
            to.copy_from_slice(part);
            rest = behind;
        }
    }
    Ok(question)
}

fn unframed(mut question: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while let Some((len, rest)) = question.split_first_chunk::<4>() {
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (field, behind) = rest.split_at_checked(len)?;
        fields.push(field);
        question = behind;
    }
    question.is_empty().then_some(fields)
}

/// The other process's side: answers the one question on standard input. False when there was none,
/// or nobody to answer.
#[must_use]
pub fn serve() -> bool {
    served(crate::OPERATION).is_ok()
}

fn served(operation: Operation) -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut socket = UnixStream::from(socket);
    let mut question = SecretBytes::with_capacity(MESSAGE_MAX).map_err(io::Error::other)?;
    let mut have = 0_usize;
    loop {
        let room = question.as_mut_slice().get_mut(have..).unwrap_or_default();
        match socket.read(room)? {
            0 => break,
            read => have += read,
        }
    }
    let question = question.as_slice().get(..have).unwrap_or_default();
    let fields = unframed(question).ok_or(ErrorKind::InvalidData)?;
    match operation(&fields) {
        Ok(result) => {
            socket.write_all(&0_u16.to_le_bytes())?;
            socket.write_all(result.as_slice())
        }
        Err(error) => {
            socket.write_all(&error.code().number.to_le_bytes())?;
            socket.write_all(error.detail().as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let question = framed(&[b"a", b"", &[7; 300]]).unwrap();
        let fields = unframed(question.as_slice()).unwrap();
        assert_eq!(fields, [&b"a"[..], b"", &[7; 300]]);
        assert!(framed(&[&[0; MESSAGE_MAX]]).is_err());
        for cut in 1..question.len() {
            let cut = unframed(&question.as_slice()[..cut]);
            assert!(cut.is_none_or(|fields| fields.len() < 3));
        }
    }
}
