//! The way to a TPM: one command out, one answer back, before a deadline.
//!
//! Source: TCG, "Trusted Platform Module Library", part 1, section 18. What commands left in the
//! TPM - keys and sessions - is flushed when the work is done, whether it succeeded or not.
//!
//! Must not: know what a command means; hold a secret in clear.
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
use strongroom_format::code;
use strongroom_format::columns::tpm::Fields;
use strongroom_keyring::Error;

use crate::limit::Deadline;

/// `TPM_ST_NO_SESSIONS`, `TPM_ST_SESSIONS`.
pub(super) const PLAIN: u16 = 0x8001;
pub(super) const SESSIONS: u16 = 0x8002;
const FLUSH_CONTEXT: u32 = 0x165;
/// Answers to be asked again: `TPM_RC_YIELDED`, `TPM_RC_TESTING`, `TPM_RC_NV_RATE`, `TPM_RC_RETRY`.
const AGAIN: [u32; 4] = [0x908, 0x90a, 0x920, 0x922];
const PAUSE: Duration = Duration::from_millis(100);
/// Tag, length, code.
const HEAD: usize = 10;
/// No answer is longer.
const ANSWER_MAX: usize = 4096;

/// Why a command failed.
pub(super) enum Failed {
    /// It was not answered.
    Link(Error),
    /// The TPM's response code.
    Code(u32),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Link(error)
    }
}

impl From<strongroom_crypto::CryptoError> for Failed {
    fn from(error: strongroom_crypto::CryptoError) -> Self {
        Self::Link(error.into())
    }
}

/// An open TPM, and what has to be flushed.
pub(super) struct Link {
    file: File,
    deadline: Deadline,
    held: Vec<u32>,
}

impl Link {
    /// Opens the TPM at `place`: a character device, a simulator's socket, or `HOST:PORT` of one.
    pub(super) fn open(place: &str, deadline: Deadline) -> Result<Self, Error> {
        let failed = |error| unreachable(place, error);
        let file = if place.starts_with('/') {
            let about = std::fs::metadata(place).map_err(failed)?;
            if about.file_type().is_socket() {
                connected(place).map_err(failed)?
            } else {
                let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
                let mut options = File::options();
                options.read(true).write(true).custom_flags(flags);
                options.open(place).map_err(failed)?
            }
        } else {
            let addresses = place.to_socket_addrs().map_err(failed)?;
            let mut last = io::Error::from(ErrorKind::NotFound);
            let mut stream = None;
            for address in addresses {
                match TcpStream::connect_timeout(&address, deadline.left()?) {
                    Ok(connected) => stream = Some(connected),
                    Err(error) => last = error,
                }
                if stream.is_some() {
                    break;
                }
            }
            let stream = stream.ok_or(last).map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            File::from(OwnedFd::from(stream))
        };
        Ok(Self {
            file,
            deadline,
            held: Vec::new(),
        })
    }

    /// Has to be flushed at the end.
    pub(super) fn holds(&mut self, handle: u32) {
        self.held.push(handle);
    }

    /// Flushes what is held. Nothing is to be done about a TPM that does not answer: its resource
    /// manager does it then.
    pub(super) fn flush(&mut self) {
        while let Some(handle) = self.held.pop() {
            if matches!(
                self.command(PLAIN, FLUSH_CONTEXT, &handle.to_be_bytes()),
                Err(Failed::Link(_))
            ) {
                return;
            }
        }
    }

    /// A command; what follows the head of its answer.
    pub(super) fn command(&mut self, tag: u16, code: u32, body: &[u8]) -> Result<Vec<u8>, Failed> {
        let len = u32::try_from(HEAD + body.len()).map_err(|_| malformed())?;
        let mut command = tag.to_be_bytes().to_vec();
        command.extend_from_slice(&len.to_be_bytes());
        command.extend_from_slice(&code.to_be_bytes());
        command.extend_from_slice(body);
        loop {
            let answer = self.exchange(&command)?;
            let mut fields = Fields(&answer);
            fields.bytes(6);
            match fields.uint32().ok_or_else(malformed)? {
                0 => return Ok(fields.0.to_vec()),
                code if AGAIN.contains(&code) => {
                    std::thread::sleep(PAUSE.min(self.deadline.left()?));
                }
                code => return Err(Failed::Code(code)),
            }
        }
    }

    fn exchange(&mut self, command: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = |error| unreachable("asking it", error);
        // A device takes a command in one write and gives its answer in one read.
        self.file.write_all(command).map_err(failed)?;
        let mut answer = vec![0; ANSWER_MAX];
        let mut have = 0;
        loop {
            self.wait()?;
            let room = answer.get_mut(have..).unwrap_or_default();
            match self.file.read(room) {
                Ok(0) => return Err(failed(ErrorKind::UnexpectedEof.into())),
                Ok(read) => have += read,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(failed(error)),
            }
            if have < HEAD {
                continue;
            }
            let mut fields = Fields(&answer);
            fields.uint16();
            let len = fields.uint32().and_then(|len| usize::try_from(len).ok());
            let len = len.filter(|len| (HEAD..=ANSWER_MAX).contains(len));
            match len.ok_or_else(malformed)? {
                len if have == len => {
                    answer.truncate(len);
                    return Ok(answer);
                }
                len if have > len => return Err(malformed()),
                _ => {}
            }
        }
    }

    fn wait(&self) -> Result<(), Error> {
        loop {
            let failed = |error: io::Error| unreachable("waiting for it", error);
            let left = Timespec::try_from(self.deadline.left()?);
            let left = left.map_err(|error| failed(io::Error::other(error)))?;
            let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut polled, Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

/// A connection to a simulator's socket. One that takes nobody else now is not waited for.
fn connected(place: &str) -> io::Result<File> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(place)?)?;
    Ok(File::from(socket))
}

fn unreachable(what: &str, error: io::Error) -> Error {
    Error::caused(&code::PROVIDER_UNREACHABLE, format!("TPM, {what}"), error)
}

/// An answer that is none: forged, or cut short.
pub(super) fn malformed() -> Error {
    Error::new(&code::PROVIDER_ANSWER, "the TPM's response is malformed")
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
        let open = || Link::open(place, Deadline::begin().unwrap());
        // One waits in the queue; for a second there is no room.
        let first = open().unwrap();
        let began = std::time::Instant::now();
        let refused = open().err().unwrap();
        assert_eq!(refused.code(), &code::PROVIDER_UNREACHABLE);
        assert!(began.elapsed() < Duration::from_secs(5));
        drop(first);
    }
}
