//! The connection to a TPM: one command out, one response back, before a deadline.
//!
//! Source: TCG, "Trusted Platform Module Library", part 1, section 18. Invariants: one command at a
//! time; after a response that did not come whole no further command is sent, because the next
//! response could belong to the last command; what commands left in the TPM, keys and sessions, is
//! flushed by [`Connection::flush`], whether the work succeeded or not.
//!
//! After [`Connection::open`] it only polls, reads, writes and sleeps, so that the zone's sandbox
//! lets it work. Must not: know what a command means; hold a secret in clear.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use strongroom_format::columns::tpm::Fields;

use crate::failure::Failure;
use crate::structures::NO_SESSIONS;
use crate::time_limit::Deadline;

const FLUSH_CONTEXT: u32 = 0x165;
/// Response codes after which the command is sent again: `TPM_RC_YIELDED`, `TPM_RC_TESTING`,
/// `TPM_RC_NV_RATE`, `TPM_RC_RETRY`.
const RETRY_CODES: [u32; 4] = [0x908, 0x90a, 0x920, 0x922];
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Every command and response begins with tag, length and code.
const HEAD_LEN: usize = 10;
/// The longest response.
const RESPONSE_MAX: usize = 4096;

/// An open TPM, and the handles that have to be flushed.
pub(crate) struct Connection {
    file: File,
    deadline: Deadline,
    to_flush: Vec<u32>,
    /// A command was sent whose response did not come whole.
    is_out_of_step: bool,
}

impl Connection {
    /// Opens the TPM at an address: the path of a character device or of a simulator's socket, or
    /// `HOST:PORT` of a simulator. Sends nothing. Resolving a host's name is not bounded by the
    /// deadline. Errors: [`Failure::System`] when it cannot be opened; [`Failure::TimedOut`] while
    /// it connects.
    pub(crate) fn open(address: &str, deadline: Deadline) -> Result<Self, Failure> {
        let failed = |error| Failure::system(address, error);
        let file = if address.contains('/') {
            let about = std::fs::metadata(address).map_err(failed)?;
            if about.file_type().is_socket() {
                connect_unix(address).map_err(failed)?
            } else {
                let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
                let mut options = File::options();
                options.read(true).write(true).custom_flags(flags);
                options.open(address).map_err(failed)?
            }
        } else {
            connect_tcp(address, deadline)?
        };
        Ok(Self {
            file,
            deadline,
            to_flush: Vec::new(),
            is_out_of_step: false,
        })
    }

    /// Gives later commands this deadline instead of the former one.
    pub(crate) fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Notes a handle that [`Connection::flush`] has to flush.
    pub(crate) fn flush_later(&mut self, handle: u32) {
        self.to_flush.push(handle);
    }

    /// Has the TPM forget the noted keys and sessions, the last one first. When it does not
    /// respond, the rest is left to its resource manager, and no error is returned.
    pub(crate) fn flush(&mut self) {
        while let Some(handle) = self.to_flush.pop() {
            match self.command(NO_SESSIONS, FLUSH_CONTEXT, &handle.to_be_bytes()) {
                Ok(_) | Err(Failure::Refused(_)) => {}
                Err(_) => return,
            }
        }
    }

    /// Sends a command, and again every 100 ms while the TPM asks for that. Returns what follows
    /// the head of the response. Errors: [`Failure::Refused`] with any other response code than 0;
    /// [`Failure::TimedOut`] when the deadline passes; [`Failure::Malformed`] for a response of a
    /// wrong length; [`Failure::OutOfStep`] when an earlier command was left without an answer;
    /// [`Failure::System`].
    pub(crate) fn command(&mut self, tag: u16, code: u32, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let len = u32::try_from(HEAD_LEN.saturating_add(body.len()));
        let len = len.map_err(|_| Failure::Malformed)?;
        let mut command = tag.to_be_bytes().to_vec();
        command.extend_from_slice(&len.to_be_bytes());
        command.extend_from_slice(&code.to_be_bytes());
        command.extend_from_slice(body);
        loop {
            let response = self.exchange(&command)?;
            let mut fields = Fields(&response);
            fields.bytes(6);
            match fields.uint32().ok_or(Failure::Malformed)? {
                0 => return Ok(fields.0.to_vec()),
                number if RETRY_CODES.contains(&number) => {
                    std::thread::sleep(RETRY_PAUSE.min(self.deadline.remaining()?));
                }
                number => return Err(Failure::Refused(number)),
            }
        }
    }

    /// Sends a command and returns its whole response with its head, whatever the response code in
    /// it says. After a failure the connection takes no further command: each is then
    /// [`Failure::OutOfStep`]. Errors: also [`Failure::TimedOut`] when the deadline passes,
    /// [`Failure::Malformed`] when the response has a wrong length, [`Failure::System`] when the
    /// system reports an error or the other side has closed.
    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Failure> {
        if self.is_out_of_step {
            return Err(Failure::OutOfStep);
        }
        self.is_out_of_step = true;
        let failed = |error| Failure::system("asking it", error);
        // A device takes a command in one write and gives its response in one read.
        self.file.write_all(command).map_err(failed)?;
        let mut response = vec![0; RESPONSE_MAX];
        let mut have = 0;
        loop {
            self.wait_for_input()?;
            let free = response.get_mut(have..).unwrap_or_default();
            match self.file.read(free) {
                Ok(0) => return Err(failed(ErrorKind::UnexpectedEof.into())),
                Ok(read) => have += read,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(failed(error)),
            }
            if have < HEAD_LEN {
                continue;
            }
            let mut fields = Fields(&response);
            fields.uint16();
            let len = fields.uint32().and_then(|len| usize::try_from(len).ok());
            let len = len.filter(|len| (HEAD_LEN..=RESPONSE_MAX).contains(len));
            match len.ok_or(Failure::Malformed)? {
                len if have == len => {
                    response.truncate(len);
                    self.is_out_of_step = false;
                    return Ok(response);
                }
                len if have > len => return Err(Failure::Malformed),
                _ => {}
            }
        }
    }

    /// Waits until there is something to read, or the other side has closed. Errors:
    /// [`Failure::TimedOut`] when the deadline passes; [`Failure::System`].
    fn wait_for_input(&self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::system("waiting for it", error);
        loop {
            let remaining = Timespec::try_from(self.deadline.remaining()?);
            let remaining = remaining.map_err(|error| failed(io::Error::other(error)))?;
            let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut polled, Some(&remaining)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

/// Connects to `HOST:PORT`: to the first of the host's addresses that accepts. Errors:
/// [`Failure::System`] when none does or the name is not known; [`Failure::TimedOut`].
fn connect_tcp(address: &str, deadline: Deadline) -> Result<File, Failure> {
    let failed = |error| Failure::system(address, error);
    let mut last = io::Error::from(ErrorKind::NotFound);
    for candidate in address.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&candidate, deadline.remaining()?) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                return Ok(File::from(OwnedFd::from(stream)));
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Connects to a simulator's socket, which does not block. Does not wait for one whose queue is
/// full: that is an error.
fn connect_unix(path: &str) -> io::Result<File> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(File::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_takes_nobody_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("tpm");
        let place = place.to_str().unwrap();
        let flags = SocketFlags::CLOEXEC;
        let server = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(place).unwrap()).unwrap();
        rustix::net::listen(&server, 0).unwrap();
        let open = || Connection::open(place, Deadline::after(Duration::from_secs(30)));
        // One waits in the queue; for a second there is no room.
        let first = open().unwrap();
        let began = std::time::Instant::now();
        let refused = strongroom_keyring::Error::from(open().err().unwrap());
        assert_eq!(
            refused.code(),
            &strongroom_format::code::PROVIDER_UNREACHABLE
        );
        assert!(began.elapsed() < Duration::from_secs(5));
        drop(first);
    }

    #[test]
    fn after_half_a_response_nothing_more_is_sent() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut connection = Connection {
            file: File::from(OwnedFd::from(ours)),
            deadline: Deadline::after(Duration::from_millis(50)),
            to_flush: Vec::new(),
            is_out_of_step: false,
        };
        (&theirs).write_all(&[0x80, 1, 0, 0, 0, 10]).unwrap();
        let late = connection.command(NO_SESSIONS, FLUSH_CONTEXT, &[0; 4]);
        assert!(matches!(late, Err(Failure::TimedOut(_))));
        connection.set_deadline(Deadline::after(Duration::from_secs(30)));
        (&theirs).write_all(&[0, 0, 0, 0]).unwrap();
        let next = connection.command(NO_SESSIONS, FLUSH_CONTEXT, &[0; 4]);
        assert!(matches!(next, Err(Failure::OutOfStep)));
    }
}
