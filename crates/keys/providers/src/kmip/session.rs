//! A connection to a KMIP server: TLS, one request after another, each with its response.
//!
//! Invariants R1 and R3: every read and write ends at the deadline; a response's length is checked
//! before the response is read.
//!
//! Must not: be used again after a failure.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_tls::rustls::pki_types::ServerName;
use strongroom_tls::rustls::{self, ClientConnection, StreamOwned};

use super::message::{Minor, Operation, Reason, Response, parse_response, request};
use super::ttlv::{Encoder, Item, decode, length};
use crate::deadline::Deadline;
use crate::network::tls::{TlsFiles, translate_tls_error};

/// The longest response, in bytes.
const RESPONSE_MAX: usize = 32 * 1024;

/// Where a server is.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A connection to a server.
pub(super) struct Session {
    stream: StreamOwned<ClientConnection, Timed>,
    deadline: Deadline,
    /// The protocol version of the requests.
    pub(super) version: Minor,
}

/// A socket whose waits end at the deadline.
struct Timed {
    socket: TcpStream,
    deadline: Deadline,
}

impl Session {
    /// Connects to the first of the host's addresses that accepts; the TLS handshake comes with the
    /// first request. Blocks on name resolution: call it within [`Deadline::run_in_thread`].
    ///
    /// # Errors
    /// SR-2101 when the host is not known, none accepts, or the deadline passes; SR-2123 for the
    /// files of TLS.
    pub(super) fn connect(
        address: &Address,
        files: &TlsFiles,
        version: Minor,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let config = files.client_config()?;
        let unknown = || Error::new(&code::PROVIDER_UNREACHABLE, "the host is not known");
        let name = ServerName::try_from(address.host.clone()).map_err(|_| unknown())?;
        let found = (address.host.as_str(), address.port).to_socket_addrs();
        let mut last = unknown();
        for place in found.map_err(|_| unknown())? {
            match TcpStream::connect_timeout(&place, deadline.remaining()?) {
                Ok(socket) => {
                    let tls = ClientConnection::new(Arc::new(config), name);
                    let tls = tls.map_err(|error| translate_tls_error(&error))?;
                    let stream = StreamOwned::new(tls, Timed { socket, deadline });
                    return Ok(Self {
                        stream,
                        deadline,
                        version,
                    });
                }
                Err(error) => last = translate_error(&error, deadline),
            }
        }
        Err(last)
    }

    /// Sends a request whose payload `fill` writes, and reads the payload of the response with
    /// `read`. The inner error is the reason for which the server refused.
    ///
    /// # Errors
    /// SR-2101 when the connection is lost or the deadline passes; SR-2102 when the client's
    /// certificate is refused; SR-2105 when the response is malformed; SR-2120 when the server's
    /// certificate is not trusted; SR-2124 without a common TLS version; SR-2020 when the request
    /// is too long; those of `read`.
    pub(super) fn request<T>(
        &mut self,
        operation: Operation,
        fill: impl FnOnce(&mut Encoder),
        read: impl FnOnce(&Item<'_>) -> Result<T, Error>,
    ) -> Result<Result<T, Reason>, Error> {
        let bytes = request(self.version, operation, fill)?;
        let response = self.exchange(bytes.as_slice());
        let response = response.map_err(|given| translate_error(&given, self.deadline))?;
        let wrong = || Error::new(&code::PROVIDER_ANSWER, "it is not a message of KMIP");
        let response = response.ok_or_else(wrong)?;
        let message = decode(response.as_slice()).map_err(|_| wrong())?;
        match parse_response(&message, operation)? {
            Response::Done(payload) => read(payload).map(Ok),
            Response::Failed(reason) => Ok(Err(reason)),
        }
    }

    /// Sends a message and reads the next one into locked memory. `None` if that is longer than 32
    /// KiB or not a response. The error is that of the connection, also when the deadline passes.
    fn exchange(&mut self, bytes: &[u8]) -> io::Result<Option<SecretBytes>> {
        self.stream.write_all(bytes)?;
        self.stream.flush()?;
        let mut head = [0; 8];
        self.stream.read_exact(&mut head)?;
        let length = length(&head);
        // A response, and a structure.
        if !head.starts_with(&[0x42, 0x00, 0x7b, 0x01]) || length > RESPONSE_MAX {
            return Ok(None);
        }
        let mut response = SecretBytes::with_capacity(length).map_err(io::Error::other)?;
        let (begin, rest) = response.as_mut_slice().split_at_mut(head.len());
        begin.copy_from_slice(&head);
        self.stream.read_exact(rest)?;
        Ok(Some(response))
    }
}

impl Timed {
    /// Returns the time that remains until the deadline. Errors: `TimedOut` when it has passed.
    fn remaining(&self) -> io::Result<std::time::Duration> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        self.deadline.remaining().map_err(late)
    }
}

impl Read for Timed {
    /// Reads from the socket. Waits until the deadline at most; the error is then `WouldBlock` or
    /// `TimedOut`.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.remaining()?))?;
        self.socket.read(into)
    }
}

impl Write for Timed {
    /// Writes to the socket. Waits until the deadline at most; the error is then `WouldBlock` or
    /// `TimedOut`.
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.remaining()?))?;
        self.socket.write(from)
    }

    /// Does nothing: a socket has no buffer here.
    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Makes the error that a failed exchange means: SR-2101 for the connection and the deadline, that
/// of [`translate_tls_error`] for a failure of TLS.
fn translate_error(given: &io::Error, deadline: Deadline) -> Error {
    use io::ErrorKind as Kind;
    let inner = given.get_ref();
    if let Some(given) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return translate_tls_error(given);
    }
    let what = match given.kind() {
        Kind::TimedOut | Kind::WouldBlock => return deadline.expired(),
        Kind::ConnectionRefused => "the connection was refused",
        Kind::HostUnreachable | Kind::NetworkUnreachable => "there is no route to the host",
        Kind::UnexpectedEof
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe => "the connection was lost",
        _ => "the connection failed",
    };
    Error::new(&code::PROVIDER_UNREACHABLE, what)
}
