//! Connections, over TCP or a UNIX socket, in clear or through TLS, and their addresses.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use strongroom_postgres_wire::client::{Socket, connect_local};

use super::tls::{Channel, ToServer};

/// As PostgreSQL's `authentication_timeout`.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// An address to listen on or connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`.
    Tcp(String),
    /// The path of a UNIX socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    /// Writes `host:port`, or the path of the UNIX socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// Connects, without TLS. Fails with the system's error.
    pub(crate) fn socket(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                kept_alive(Socket::Tcp(stream))?
            }
            Self::Unix(path) => Socket::Local(connect_local(path)?),
        })
    }

    /// Connects, through TLS if `tls` is given: then a server that declines TLS is an error
    /// (`ConnectionRefused`), and so is a certificate that is not accepted. Fails with the system's
    /// error.
    pub(crate) fn connect(&self, tls: Option<&ToServer>) -> io::Result<Stream> {
        let socket = self.socket()?;
        let Some(to) = tls else {
            return Ok(Stream::Plain(socket));
        };
        socket.set_read_timeout(Some(TIMEOUT))?;
        if socket.request_tls()? != b'S' {
            let what = "it does not speak TLS";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, what));
        }
        let channel = Channel::connect(socket, to)?;
        channel.socket().set_read_timeout(None)?;
        Ok(Stream::Tls(Arc::new(channel)))
    }

    /// Listens on the address. The file of a UNIX socket on which nobody listens is deleted first.
    /// Fails with the system's error.
    pub(crate) fn listen(&self) -> io::Result<Listener> {
        match self {
            Self::Tcp(address) => Ok(Listener::Tcp(TcpListener::bind(address)?)),
            Self::Unix(path) => {
                let left_behind = connect_local(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
                if left_behind {
                    std::fs::remove_file(path)?;
                }
                Ok(Listener::Unix(UnixListener::bind(path)?))
            }
        }
    }
}

/// Has the system look whether the peer of a socket is there: a peer whose machine is gone ends no
/// connection. Fails with the system's error.
fn kept_alive(socket: Socket) -> io::Result<Socket> {
    socket.keep_alive()?;
    Ok(socket)
}

/// A listening socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Waits for a connection and returns it, still without TLS. Fails with the system's error.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Plain(kept_alive(Socket::Tcp(stream))?))
            }
            Self::Unix(listener) => Ok(Stream::Plain(Socket::Local(listener.accept()?.0))),
        }
    }

    /// Returns the address that it listens on, with the port that the system chose. Fails with the
    /// system's error.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().map(PathBuf::from).unwrap_or_default();
                Ok(Address::Unix(path))
            }
        }
    }
}

/// A connection.
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Arc<Channel>),
}

impl Stream {
    /// Returns another handle of the same connection. Fails with the system's error.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Plain(socket) => Self::Plain(socket.try_clone()?),
            Self::Tls(channel) => Self::Tls(Arc::clone(channel)),
        })
    }

    /// Switches to TLS, as its server, and makes the handshake. The caller must not have read
    /// further bytes in clear. Does nothing if TLS is used already. Fails if the handshake does.
    pub(super) fn accept_tls(&mut self, config: &Arc<ServerConfig>) -> io::Result<()> {
        if let Self::Plain(socket) = self {
            let channel = Channel::accept(socket.try_clone()?, config)?;
            *self = Self::Tls(Arc::new(channel));
        }
        Ok(())
    }

    /// Returns whether TLS is used.
    pub(super) const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Closes both directions for all handles, after announcing the end of TLS. Errors are ignored.
    pub(crate) fn close(&self) {
        if let Self::Tls(channel) = self {
            channel.send_close_notify();
        }
        drop(self.socket().shut_down());
    }

    /// Returns the socket below.
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(channel) => channel.socket(),
        }
    }

    /// Limits how long a read waits; `None`: without limit. Fails with the system's error.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket().set_read_timeout(timeout)
    }
}

impl Read for Stream {
    /// Reads from the socket, through TLS if the connection has it.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => (&*socket).read(buf),
            Self::Tls(channel) => channel.read(buf),
        }
    }
}

impl Write for Stream {
    /// Writes to the socket, through TLS if the connection has it.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => (&*socket).write(buf),
            Self::Tls(channel) => channel.write(buf),
        }
    }

    /// Does nothing: every write goes to the socket at once.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the system looks now and then whether the peer of this local port is there.
    fn is_looked_after(port: u16) -> bool {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let of_port = format!(":{port:04X}");
        let mut rows = table.lines().map(|line| line.split_whitespace());
        let timer = rows.find_map(|mut row| {
            row.nth(1).filter(|local| local.ends_with(&of_port))?;
            // Established.
            row.nth(1).filter(|state| *state == "01")?;
            row.nth(1)
        });
        // A timer of this kind runs (Documentation/networking/proc_net_tcp.rst of Linux).
        timer.unwrap().starts_with("02:")
    }

    /// A client whose machine is gone would keep its transaction open for ever.
    #[test]
    fn a_peer_that_is_gone_is_found() {
        let listener = Address::Tcp("127.0.0.1:0".to_owned()).listen().unwrap();
        let address = listener.address().unwrap();
        let Stream::Plain(Socket::Tcp(server)) = address.connect(None).unwrap() else {
            panic!("another socket");
        };
        let _client = listener.accept().unwrap();
        let Address::Tcp(text) = address else {
            panic!("another address");
        };
        let port = text.rsplit(':').next().unwrap().parse().unwrap();
        assert!(is_looked_after(port), "of a client");
        let port = server.local_addr().unwrap().port();
        assert!(is_looked_after(port), "of the server");
    }
}
