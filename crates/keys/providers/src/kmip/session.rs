//! A connection to a KMIP server: TLS, one request after another, each answered.
//!
//! Invariants R1 and R3: every read and write ends at the deadline; an answer's length is looked at
//! before it is read.
//!
//! Must not: be used again after a failure.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::message::{Minor, Operation, Reason, Response, request, response};
use super::ttlv::{Encoder, Item, decode, length};
use crate::network::deadline::Deadline;
use crate::network::error;
use crate::network::tls::{Trust, failure};

/// Most bytes of an answer.
const ANSWER_MAX: usize = 32 * 1024;

/// Where a server is.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A connection.
pub(super) struct Session {
    stream: StreamOwned<ClientConnection, Timed>,
    deadline: Deadline,
    pub(super) version: Minor,
}

/// A socket whose waits end at the deadline.
struct Timed {
    socket: TcpStream,
    deadline: Deadline,
}

impl Session {
    /// Connects; the handshake comes with the first request. Blocks on name resolution: call it
    /// within [`Deadline::bound`].
    pub(super) fn open(
        address: &Address,
        trust: &Trust,
        version: Minor,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let config = trust.config()?;
        let unknown = || error(&code::PROVIDER_UNREACHABLE, "the host is not known");
        let name = ServerName::try_from(address.host.clone()).map_err(|_| unknown())?;
        let found = (address.host.as_str(), address.port).to_socket_addrs();
        let mut last = unknown();
        for place in found.map_err(|_| unknown())? {
            match TcpStream::connect_timeout(&place, deadline.left()?) {
                Ok(socket) => {
                    let tls = ClientConnection::new(Arc::new(config), name);
                    let tls = tls.map_err(|error| failure(&error))?;
                    let stream = StreamOwned::new(tls, Timed { socket, deadline });
                    return Ok(Self {
                        stream,
                        deadline,
                        version,
                    });
                }
                Err(error) => last = failed(&error, deadline),
            }
        }
        Err(last)
    }

    /// Asks, and gives the answer to `take`.
    pub(super) fn ask<T>(
        &mut self,
        operation: Operation,
        fill: impl FnOnce(&mut Encoder),
        take: impl FnOnce(&Item<'_>) -> Result<T, Error>,
    ) -> Result<Result<T, Reason>, Error> {
        let bytes = request(self.version, operation, fill)?;
        let answer = self.exchange(bytes.as_slice());
        let answer = answer.map_err(|given| failed(&given, self.deadline))?;
        let wrong = || error(&code::PROVIDER_ANSWER, "it is not a message of KMIP");
        let answer = answer.ok_or_else(wrong)?;
        let message = decode(answer.as_slice()).map_err(|_| wrong())?;
        match response(&message, operation)? {
            Response::Done(payload) => take(payload).map(Ok),
            Response::Failed(reason) => Ok(Err(reason)),
        }
    }

    /// `None`: it is too long, or no message.
    fn exchange(&mut self, bytes: &[u8]) -> io::Result<Option<SecretBytes>> {
        self.stream.write_all(bytes)?;
        self.stream.flush()?;
        let mut head = [0; 8];
        self.stream.read_exact(&mut head)?;
        let length = length(&head);
        // A response, and a structure.
        if !head.starts_with(&[0x42, 0x00, 0x7b, 0x01]) || length > ANSWER_MAX {
            return Ok(None);
        }
        let mut answer = SecretBytes::with_capacity(length).map_err(io::Error::other)?;
        let (begin, rest) = answer.as_mut_slice().split_at_mut(head.len());
        begin.copy_from_slice(&head);
        self.stream.read_exact(rest)?;
        Ok(Some(answer))
    }
}

impl Timed {
    fn left(&self) -> io::Result<std::time::Duration> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        self.deadline.left().map_err(late)
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// What a failed exchange means.
fn failed(given: &io::Error, deadline: Deadline) -> Error {
    use io::ErrorKind as Kind;
    let inner = given.get_ref();
    if let Some(given) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return failure(given);
    }
    let what = match given.kind() {
        Kind::TimedOut | Kind::WouldBlock => return deadline.passed(),
        Kind::ConnectionRefused => "the connection was refused",
        Kind::HostUnreachable | Kind::NetworkUnreachable => "there is no route to the host",
        Kind::UnexpectedEof
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe => "the connection was lost",
        _ => "the connection failed",
    };
    error(&code::PROVIDER_UNREACHABLE, what)
}
