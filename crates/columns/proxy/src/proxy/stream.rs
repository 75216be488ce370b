//! A connection, over TCP or a UNIX socket, in clear or through TLS, and where to listen or connect.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;

use super::tls::{Channel, ToServer};

/// What asks PostgreSQL for TLS: its length, then the request's code (src/include/libpq/pqcomm.h).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// As PostgreSQL's `authentication_timeout`.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Where to listen or connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`.
    Tcp(String),
    /// The path of a UNIX socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// Connects; through TLS when that is said. A server that has none is an error.
    pub(crate) fn connect(&self, tls: Option<&ToServer>) -> io::Result<Stream> {
        let socket = match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
            Self::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
        };
        let Some(to) = tls else {
            return Ok(Stream::Plain(socket));
        };
        socket.set_read_timeout(Some(TIMEOUT))?;
        (&socket).write_all(&SSL_REQUEST)?;
        // One byte and no more: what else came in clear would be taken for the server's.
        let mut answer = [0];
        (&socket).read_exact(&mut answer)?;
        if answer != *b"S" {
            let what = "it does not speak TLS";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, what));
        }
        let channel = Channel::connect(socket, to)?;
        channel.socket().set_read_timeout(None)?;
        Ok(Stream::Tls(Arc::new(channel)))
    }

    /// Listens. A socket that nobody listens on any more is replaced.
    pub(crate) fn listen(&self) -> io::Result<Listener> {
        match self {
            Self::Tcp(address) => Ok(Listener::Tcp(TcpListener::bind(address)?)),
            Self::Unix(path) => {
                let left_behind = UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
                if left_behind {
                    std::fs::remove_file(path)?;
                }
                Ok(Listener::Unix(UnixListener::bind(path)?))
            }
        }
    }
}

/// A listening socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Plain(Socket::Tcp(stream)))
            }
            Self::Unix(listener) => Ok(Stream::Plain(Socket::Unix(listener.accept()?.0))),
        }
    }

    /// Where it listens: the port that the system chose, if it was left to it.
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

/// A socket.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    pub(super) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
            Self::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read(buf),
            Socket::Unix(stream) => (&mut &*stream).read(buf),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(buf),
            Socket::Unix(stream) => (&mut &*stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Arc<Channel>),
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Plain(socket) => Self::Plain(socket.try_clone()?),
            Self::Tls(channel) => Self::Tls(Arc::clone(channel)),
        })
    }

    /// Goes over to TLS, as its server. Nothing may have been read of it that was not asked for.
    pub(super) fn accept_tls(&mut self, config: &Arc<ServerConfig>) -> io::Result<()> {
        if let Self::Plain(socket) = self {
            let channel = Channel::accept(socket.try_clone()?, config)?;
            *self = Self::Tls(Arc::new(channel));
        }
        Ok(())
    }

    pub(super) const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Closes both directions for every copy; that it is closed already is no error.
    pub(crate) fn close(&self) {
        if let Self::Tls(channel) = self {
            channel.farewell();
        }
        drop(self.socket().shutdown());
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(channel) => channel.socket(),
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket().set_read_timeout(timeout)
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => (&*socket).read(buf),
            Self::Tls(channel) => channel.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => (&*socket).write(buf),
            Self::Tls(channel) => channel.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
