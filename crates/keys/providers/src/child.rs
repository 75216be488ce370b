//! A child process for code that may hang, crash or read memory: the libraries of other makers.
//!
//! The program starts itself once more. Request and response go over a socket that is the child's
//! standard input. The request is fields with their lengths; the response is the number of an error
//! code and a detail, or 0 and the result. When the time is over the child is killed. A child that
//! ends without a response is an error.
//!
//! Invariants: request and response are in locked memory in both processes; a caller waits at most
//! until its deadline, plus a second for the child to end.
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

use crate::deadline::Deadline;

/// The longest request and the longest response, in bytes.
const MESSAGE_MAX: usize = 16 * 1024;
/// How long the caller waits for a killed child to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// How this program starts itself so that it calls [`crate::serve_child`].
pub struct Launcher {
    /// The program: itself.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables that are added to its environment.
    pub environment: Vec<(OsString, OsString)>,
}

static LAUNCHER: OnceLock<Launcher> = OnceLock::new();

/// Sets how children are started. Call it once, when the program starts: later calls change
/// nothing.
pub fn set_launcher(launcher: Launcher) {
    LAUNCHER.get_or_init(|| launcher);
}

/// What the child does: fields of a request in, a result out.
pub(crate) type Operation = fn(&[&[u8]]) -> Result<SecretBytes, Error>;

/// Starts this program as a child, sends it a request and returns its result. The child is killed
/// if it does not end after its response or by the deadline.
///
/// # Errors
/// The child's; SR-2101 when it cannot be started, ends without a response, or takes too long;
/// SR-2105 when its response is longer than 16 KiB; SR-2020 when the request is; SR-2100 when no
/// launcher is set; SR-5001 when the system reports an error.
pub(crate) fn call(fields: &[&[u8]], deadline: Deadline) -> Result<SecretBytes, Error> {
    let failed = |error| Error::caused(&code::PROVIDER_UNREACHABLE, "starting its process", error);
    let launcher = LAUNCHER.get().ok_or_else(|| {
        let detail = "this program cannot start a process for it";
        Error::new(&code::PROVIDER_ELSEWHERE, detail)
    })?;
    let request = encode_fields(fields)?;
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
    let response = exchange(&ours, &request, deadline);
    // After the response the child has nothing to do: a module that hangs when it is unloaded is
    // killed too.
    let status = end(&mut child);
    let response = response?;
    match response.as_slice().split_first_chunk::<2>() {
        Some((number, rest)) => parse_response(u16::from_le_bytes(*number), rest),
        None => Err(Error::new(
            &code::PROVIDER_UNREACHABLE,
            format!("its process ended without an answer{}", describe(status)),
        )),
    }
}

/// Says how a process ended, for an error: its signal or exit status. Empty where that is not
/// known.
fn describe(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.signal(), status.code())) {
        Some((Some(signal), _)) => format!(": signal {signal}"),
        Some((None, Some(number))) => format!(": exit status {number}"),
        _ => String::new(),
    }
}

/// Reads a child's response: returns the result for number 0. Errors: that of the number, with the
/// rest as its detail; SR-9001 for a number that no code has.
fn parse_response(number: u16, rest: &[u8]) -> Result<SecretBytes, Error> {
    if number == 0 {
        return copy_locked(rest);
    }
    let code = code::by_number(number).unwrap_or(&code::BUG);
    Err(Error::new(code, String::from_utf8_lossy(rest)))
}

/// Copies bytes into locked memory. Errors: SR-5001 when there is no memory for keys.
fn copy_locked(bytes: &[u8]) -> Result<SecretBytes, Error> {
    let mut copy = SecretBytes::with_capacity(bytes.len())?;
    copy.as_mut_slice().copy_from_slice(bytes);
    Ok(copy)
}

/// Sends the request and reads the response to its end. The response is empty when the child ended
/// without one. Errors: SR-2101 when the deadline passes or the socket fails; SR-2105 when the
/// response is longer than 16 KiB; SR-5001 when the system reports an error.
fn exchange(
    mut socket: &UnixStream,
    request: &SecretBytes,
    deadline: Deadline,
) -> Result<SecretBytes, Error> {
    let failed = |error| Error::caused(&code::PROVIDER_UNREACHABLE, "asking its process", error);
    socket
        .set_write_timeout(Some(deadline.remaining()?))
        .map_err(failed)?;
    let sent = socket
        .write_all(request.as_slice())
        .and_then(|()| socket.shutdown(std::net::Shutdown::Write));
    match sent {
        // The child ended before it read everything. Reading shows whether it has responded.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::NotConnected
            ) => {}
        other => other.map_err(failed)?,
    }
    let mut response = SecretBytes::with_capacity(MESSAGE_MAX)?;
    let mut have = 0_usize;
    loop {
        socket
            .set_read_timeout(Some(deadline.remaining()?))
            .map_err(failed)?;
        let room = response.as_mut_slice().get_mut(have..).unwrap_or_default();
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
    copy_locked(response.as_slice().get(..have).unwrap_or_default())
}

/// Kills the child if it does not end within 10 ms, and collects its exit status so that no zombie
/// remains. `None` when the child does not end within a second, or the status cannot be read.
fn end(child: &mut Child) -> Option<ExitStatus> {
    let until = std::time::Instant::now() + END_TIMEOUT;
    let mut killed = false;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Err(_) => return None,
            Ok(None) if std::time::Instant::now() > until => return None,
            // The child may be about to end by itself. Its own exit status says more than that of a
            // killed process.
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

/// Writes the fields, each after its length, into locked memory. Errors: SR-2020 for more than 16
/// KiB; SR-5001 when the system reports an error.
fn encode_fields(fields: &[&[u8]]) -> Result<SecretBytes, Error> {
    let long = || Error::new(&code::PROVIDER, "the request is too long");
    let len: usize = fields.iter().map(|field| field.len() + 4).sum();
    if len > MESSAGE_MAX {
        return Err(long());
    }
    let mut request = SecretBytes::with_capacity(len)?;
    let mut rest = request.as_mut_slice();
    for field in fields {
        let len = u32::try_from(field.len()).map_err(|_| long())?;
        for part in [&len.to_le_bytes()[..], field] {
            let (to, behind) = rest.split_at_mut_checked(part.len()).ok_or_else(long)?;
            to.copy_from_slice(part);
            rest = behind;
        }
    }
    Ok(request)
}

/// Splits into fields what [`encode_fields`] has written. `None` for anything else.
fn decode_fields(mut request: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while let Some((len, rest)) = request.split_first_chunk::<4>() {
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (field, behind) = rest.split_at_checked(len)?;
        fields.push(field);
        request = behind;
    }
    request.is_empty().then_some(fields)
}

/// Does the work of the child: reads the one request on standard input, does the operation and
/// sends its result, or the number and detail of its error. That the operation fails is no error
/// here.
///
/// # Errors
/// When there is no valid request, or the caller does not read the response.
pub(crate) fn serve(operation: Operation) -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut socket = UnixStream::from(socket);
    let mut request = SecretBytes::with_capacity(MESSAGE_MAX).map_err(io::Error::other)?;
    let mut have = 0_usize;
    loop {
        let room = request.as_mut_slice().get_mut(have..).unwrap_or_default();
        match socket.read(room)? {
            0 => break,
            read => have += read,
        }
    }
    let request = request.as_slice().get(..have).unwrap_or_default();
    let fields = decode_fields(request).ok_or(ErrorKind::InvalidData)?;
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
        let request = encode_fields(&[b"a", b"", &[7; 300]]).unwrap();
        let fields = decode_fields(request.as_slice()).unwrap();
        assert_eq!(fields, [&b"a"[..], b"", &[7; 300]]);
        assert!(encode_fields(&[&[0; MESSAGE_MAX]]).is_err());
        for cut in 1..request.len() {
            let cut = decode_fields(&request.as_slice()[..cut]);
            assert!(cut.is_none_or(|fields| fields.len() < 3));
        }
    }
}
