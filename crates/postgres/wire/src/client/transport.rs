//! The socket to the server, with TLS where it was negotiated.
//!
//! Invariants: Q5, a read that times out loses nothing: the next one continues; a write that times
//! out ends the connection. Q6, see [`Socket::request_tls`].

use std::io::{self, BufReader, Read as _, Write as _};
use std::time::{Duration, Instant};

use rustls::ClientConnection;

use super::config::{Config, SslMode};
use super::error::{Error, Result};
use super::socket::{Socket, time_left};
use super::tls;

/// The TLS library asks for at most a record at a time; this makes fewer system calls of it, in
/// bytes.
const TLS_READ: usize = 64 * 1024;

/// Longest time that the announcement of a connection's end may take.
pub const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// The connection's bytes, in clear or through TLS.
#[derive(Debug)]
pub(crate) struct Transport {
    layer: Layer,
    /// The socket's read timeout, once it was set, so that it is not set again for each read.
    read_timeout: Option<Option<Duration>>,
}

#[derive(Debug)]
enum Layer {
    Plain(Socket),
    Tls(Box<Secured>),
}

#[derive(Debug)]
struct Secured {
    client: ClientConnection,
    socket: BufReader<Socket>,
}

impl Transport {
    /// Asks the server for TLS and makes the handshake, as `sslmode` says. No TLS is used on a
    /// local socket, with `disable`, and with `prefer` if the server has none. Sets the socket's
    /// timeouts to the time until the deadline; without one, it waits without limit. Fails with
    /// [`Error::Tls`] if the server has no TLS, its certificate is not accepted or TLS fails
    /// otherwise, with [`Error::Config`] if a file or the host of the settings cannot be used, with
    /// [`Error::TimedOut`] at the deadline, and with those of the connection and the protocol.
    pub(crate) fn agree(
        socket: Socket,
        config: &Config,
        deadline: Option<Instant>,
    ) -> Result<Self> {
        let wait = deadline.map(time_left);
        let during = "TLS was being agreed on";
        let failed = |error| Error::transfer(error, during);
        socket.set_read_timeout(wait).map_err(failed)?;
        socket.set_write_timeout(wait).map_err(failed)?;
        let plain = |socket| Self {
            layer: Layer::Plain(socket),
            read_timeout: Some(wait),
        };
        if matches!(socket, Socket::Local(_)) || config.tls.mode == SslMode::Disable {
            return Ok(plain(socket));
        }
        match socket.request_tls().map_err(failed)? {
            b'S' => {}
            b'N' if config.tls.mode == SslMode::Prefer => return Ok(plain(socket)),
            b'N' => return Err(Error::Tls(String::from("the server does not offer it"))),
            _ => return Err(Error::protocol("neither yes nor no to TLS")),
        }
        let mut secured = Secured {
            client: tls::client(config)?,
            socket: BufReader::with_capacity(TLS_READ, socket),
        };
        while secured.client.is_handshaking() {
            if let Some(deadline) = deadline {
                let socket = secured.socket.get_ref();
                socket
                    .set_read_timeout(Some(time_left(deadline)))
                    .map_err(failed)?;
                if Instant::now() >= deadline {
                    return Err(Error::TimedOut(during));
                }
            }
            secured.turn().map_err(failed)?;
        }
        Ok(Self {
            layer: Layer::Tls(Box::new(secured)),
            read_timeout: None,
        })
    }

    /// Returns the TLS connection; `None` if none is used.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        match &self.layer {
            Layer::Plain(_) => None,
            Layer::Tls(secured) => Some(&secured.client),
        }
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> &Socket {
        match &self.layer {
            Layer::Plain(socket) => socket,
            Layer::Tls(secured) => secured.socket.get_ref(),
        }
    }

    /// Returns whether nobody can listen in, so that a password may be sent as it is: over TLS or a
    /// local socket. That does not say which server it is.
    pub(crate) fn is_private(&self) -> bool {
        self.tls().is_some() || matches!(self.socket(), Socket::Local(_))
    }

    /// Waits for bytes, reads those that are there, and returns how many; 0 at the end of the
    /// stream. Fails with `TimedOut` or `WouldBlock` when nothing came within `wait`, and with the
    /// errors of the socket; `InvalidData` is an error of TLS.
    pub(crate) fn read(&mut self, into: &mut [u8], wait: Option<Duration>) -> io::Result<usize> {
        if self.read_timeout != Some(wait) {
            self.socket().set_read_timeout(wait)?;
            self.read_timeout = Some(wait);
        }
        match &mut self.layer {
            Layer::Plain(socket) => socket.read(into),
            Layer::Tls(secured) => secured.read(into),
        }
    }

    /// Writes all bytes, each part within `wait`. Fails with the errors of the socket, after which
    /// it is not known how much was sent.
    pub(crate) fn write(&mut self, bytes: &[u8], wait: Option<Duration>) -> io::Result<()> {
        self.socket().set_write_timeout(wait)?;
        match &mut self.layer {
            Layer::Plain(socket) => socket.write_all(bytes),
            Layer::Tls(secured) => {
                secured.client.writer().write_all(bytes)?;
                secured.send()
            }
        }
    }

    /// Announces the end of a TLS connection to the peer and waits at most [`CLOSE_TIMEOUT`] for
    /// that. Errors are ignored. The socket stays open. Does nothing without TLS.
    pub(crate) fn close(&mut self) {
        // A peer that does not read does not hold the end up.
        let limited = self.socket().set_write_timeout(Some(CLOSE_TIMEOUT));
        if let Layer::Tls(secured) = &mut self.layer
            && limited.is_ok()
        {
            secured.client.send_close_notify();
            // A peer that is gone needs no announcement.
            drop(secured.send());
        }
    }
}

impl Secured {
    /// Sends what the TLS library has ready for the peer.
    fn send(&mut self) -> io::Result<()> {
        while self.client.wants_write() {
            self.client.write_tls(self.socket.get_mut())?;
        }
        Ok(())
    }

    /// Sends what the TLS library has ready, then reads once from the socket and processes it.
    /// Fails with `InvalidData` for an error of TLS, after sending the alert, and with
    /// `UnexpectedEof` if the peer ends the connection during the handshake.
    fn turn(&mut self) -> io::Result<()> {
        self.send()?;
        let got = self.client.read_tls(&mut self.socket)?;
        if let Err(error) = self.client.process_new_packets() {
            // The alert tells the server why. That it may not arrive changes nothing.
            drop(self.send());
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if got == 0 && self.client.is_handshaking() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Waits for decrypted bytes, and returns how many it has put into `into`; 0 at the end of the
    /// stream.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // WouldBlock of the TLS library means that it has no bytes; of the socket, that the
            // time is over.
            match self.client.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            self.turn()?;
        }
    }
}
