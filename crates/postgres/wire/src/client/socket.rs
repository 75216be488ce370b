//! A connected socket, TCP or local (of the UNIX family), and how a client connects one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use super::config::{Config, Keepalive};
use super::error::{Error, Result};

/// Least timeout that a socket gets: zero would mean none.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// The request for TLS: its length, then its code (src/include/libpq/pqcomm.h).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xD2, 0x16, 0x2F];

/// Connects to a socket of the UNIX family. A signal that interrupts the attempt, while the
/// listener's queue is full, makes it begin anew: it has not connected then.
///
/// # Errors
/// The system's, but for an interruption.
pub fn connect_local(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A socket of the UNIX family.
    Local(UnixStream),
}

impl Socket {
    /// Connects to the host of the settings. The addresses that its name has are tried in order,
    /// until `deadline`; looking the name up and connecting a local socket have no time limit.
    /// Fails with [`Error::Connect`], which has the reason for the last address.
    pub(crate) fn connect(config: &Config, deadline: Option<Instant>) -> Result<Self> {
        if config.is_local() {
            let path = Path::new(&config.host).join(format!(".s.PGSQL.{}", config.port));
            let stream = connect_local(&path).map_err(|source| Error::Connect {
                address: path.display().to_string(),
                source,
            })?;
            return Ok(Self::Local(stream));
        }
        let failed = |source| Error::Connect {
            address: format!("{} port {}", config.host, config.port),
            source,
        };
        let addresses: Vec<SocketAddr> = match config.address {
            Some(address) => vec![SocketAddr::new(address, config.port)],
            None => (config.host.as_str(), config.port)
                .to_socket_addrs()
                .map_err(failed)?
                .collect(),
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            let connected = match deadline {
                None => TcpStream::connect(address),
                Some(deadline) => TcpStream::connect_timeout(&address, time_left(deadline)),
            };
            match connected.and_then(|stream| prepare(stream, &config.keepalive)) {
                Ok(stream) => return Ok(Self::Tcp(stream)),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Asks the server for TLS and returns its answer: `S` for yes, `N` for no, otherwise the first
    /// byte of an error message, which is not authenticated.
    ///
    /// Invariant Q6: only that byte is read. Bytes that an attacker may have added after it go into
    /// the handshake, and fail there (CVE-2021-23222).
    ///
    /// # Errors
    /// Those of the socket.
    pub fn request_tls(&self) -> io::Result<u8> {
        let mut socket = self;
        socket.write_all(&SSL_REQUEST)?;
        let mut answer = [0];
        socket.read_exact(&mut answer)?;
        Ok(answer[0])
    }

    /// Returns another handle of the same socket.
    ///
    /// # Errors
    /// The system's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Local(stream) => Self::Local(stream.try_clone()?),
        })
    }

    /// Has the system look now and then whether the peer is still there, as it does for the
    /// connections of PostgreSQL's server and of its clients. Does nothing for a local socket.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_alive(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_keepalive(true),
            Self::Local(_) => Ok(()),
        }
    }

    /// Shuts the connection down in both directions, for all handles.
    ///
    /// # Errors
    /// The system's.
    pub fn shut_down(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Local(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Limits how long a read waits, for all handles; at least a millisecond. `None`: without
    /// limit.
    ///
    /// # Errors
    /// The system's.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| timeout.max(TIMEOUT_MIN));
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Local(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Limits how long a write waits, for all handles; at least a millisecond. `None`: without
    /// limit.
    ///
    /// # Errors
    /// The system's.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| timeout.max(TIMEOUT_MIN));
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
            Self::Local(stream) => stream.set_write_timeout(timeout),
        }
    }
}

/// Calls the system again as long as it says that a signal has interrupted it: a socket with a time
/// limit is interrupted also where no handler runs, as when a machine that was suspended goes on
/// (signal(7)).
#[inline]
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Read for &Socket {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Socket::Tcp(stream) => (&mut &*stream).read(into),
            Socket::Local(stream) => (&mut &*stream).read(into),
        })
    }
}

impl Write for &Socket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
            Socket::Local(stream) => (&mut &*stream).write(bytes),
        })
    }

    /// Does nothing: every write goes to the system at once.
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    /// Does nothing: every write goes to the system at once.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sets options of a TCP connection: no delay of small messages, and keepalive and user timeout as
/// the settings say. Fails if the system refuses one.
fn prepare(stream: TcpStream, keepalive: &Keepalive) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    if keepalive.on {
        let mut parameters = TcpKeepalive::new();
        if let Some(idle) = keepalive.idle {
            parameters = parameters.with_time(idle);
        }
        if let Some(interval) = keepalive.interval {
            parameters = parameters.with_interval(interval);
        }
        if let Some(count) = keepalive.count {
            parameters = parameters.with_retries(count);
        }
        socket.set_keepalive(true)?;
        socket.set_tcp_keepalive(&parameters)?;
    }
    if keepalive.user_timeout.is_some() {
        socket.set_tcp_user_timeout(keepalive.user_timeout)?;
    }
    Ok(stream)
}

/// Returns the time until the deadline, and at least a millisecond, also once it has passed.
pub(crate) fn time_left(deadline: Instant) -> Duration {
    let now = Instant::now();
    deadline.saturating_duration_since(now).max(TIMEOUT_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_a_signal_interrupts_is_made_again() {
        let mut answers = [
            Err(io::ErrorKind::Interrupted.into()),
            Err(io::ErrorKind::Interrupted.into()),
            Ok(3),
            Err(io::ErrorKind::WouldBlock.into()),
        ]
        .into_iter();
        let mut call = || answers.next().unwrap();
        assert_eq!(uninterrupted(&mut call).unwrap(), 3);
        let kind = uninterrupted(&mut call).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::WouldBlock, "the time is over");
    }
}
