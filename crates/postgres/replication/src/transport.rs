//! The socket to the server, TCP or local, with TLS where it was negotiated.
//!
//! Invariants:
//! - Q5: a read that times out loses nothing: the next one continues. A write that times out ends
//!   the connection.
//! - Q6: the byte with which the server agrees to TLS is read alone; bytes that an attacker may
//!   have added after it go into the handshake, and fail there (CVE-2021-23222).

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use socket2::{SockRef, TcpKeepalive};

use crate::config::{Config, Keepalive, SslMode};
use crate::error::{Error, Result};
use crate::tls;

/// The TLS library asks for at most a record at a time; this makes fewer system calls of it, in
/// bytes.
const TLS_READ: usize = 64 * 1024;

/// Least time that a socket is told to wait: zero would mean for ever.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Local(UnixStream),
}

/// How long a farewell may take.
pub(crate) const FAREWELL: Duration = Duration::from_millis(100);

/// `SSLRequest`: length, and the number that stands in the place of a version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xD2, 0x16, 0x2F];

impl Socket {
    /// Connects, until `deadline` at the longest.
    pub(crate) fn connect(config: &Config, deadline: Option<Instant>) -> Result<Self> {
        if config.is_local() {
            let path = Path::new(&config.host).join(format!(".s.PGSQL.{}", config.port));
            let stream = UnixStream::connect(&path).map_err(|source| Error::Connect {
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
                Some(deadline) => TcpStream::connect_timeout(&address, left(deadline)),
            };
            match connected.and_then(|stream| prepare(stream, &config.keepalive)) {
                Ok(stream) => return Ok(Self::Tcp(stream)),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Local(stream) => Self::Local(stream.try_clone()?),
        })
    }

    pub(crate) fn shut_down(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Local(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    fn wait_at_most(&self, wait: Option<Duration>) -> io::Result<()> {
        let wait = wait.map(|wait| wait.max(LEAST_WAIT));
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(wait),
            Self::Local(stream) => stream.set_read_timeout(wait),
        }
    }

    fn write_at_most(&self, wait: Option<Duration>) -> io::Result<()> {
        let wait = wait.map(|wait| wait.max(LEAST_WAIT));
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(wait),
            Self::Local(stream) => stream.set_write_timeout(wait),
        }
    }
}

impl io::Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let got = match self {
                Self::Tcp(stream) => stream.read(into),
                Self::Local(stream) => stream.read(into),
            };
            match got {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl io::Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Local(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

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

/// Time until the deadline.
pub(crate) fn left(deadline: Instant) -> Duration {
    let now = Instant::now();
    deadline.saturating_duration_since(now).max(LEAST_WAIT)
}

/// The way to the server.
#[derive(Debug)]
pub(crate) struct Transport {
    under: Under,
    /// What the socket was last told, once it was, so that it is not told again for each read.
    waits: Option<Option<Duration>>,
}

#[derive(Debug)]
enum Under {
    Plain(Socket),
    Tls(Box<Secured>),
}

#[derive(Debug)]
struct Secured {
    client: ClientConnection,
    socket: BufReader<Socket>,
}

impl Transport {
    /// Agrees on TLS, or on none, as the settings say.
    pub(crate) fn agree(
        mut socket: Socket,
        config: &Config,
        deadline: Option<Instant>,
    ) -> Result<Self> {
        let wait = deadline.map(left);
        let during = "TLS was being agreed on";
        let failed = |error| Error::transfer(error, during);
        socket.wait_at_most(wait).map_err(failed)?;
        socket.write_at_most(wait).map_err(failed)?;
        let plain = |socket| Self {
            under: Under::Plain(socket),
            waits: Some(wait),
        };
        if matches!(socket, Socket::Local(_)) || config.tls.mode == SslMode::Disable {
            return Ok(plain(socket));
        }
        socket.write_all(&SSL_REQUEST).map_err(failed)?;
        let mut answer = [0];
        socket.read_exact(&mut answer).map_err(failed)?;
        match answer {
            [b'S'] => {}
            [b'N'] if config.tls.mode == SslMode::Prefer => return Ok(plain(socket)),
            [b'N'] => return Err(Error::Tls(String::from("the server does not offer it"))),
            // Whatever error it is: nobody has authenticated it.
            _ => return Err(Error::protocol("neither yes nor no to TLS")),
        }
        let mut secured = Secured {
            client: tls::client(config)?,
            socket: BufReader::with_capacity(TLS_READ, socket),
        };
        while secured.client.is_handshaking() {
            if let Some(deadline) = deadline {
                let socket = secured.socket.get_ref();
                socket.wait_at_most(Some(left(deadline))).map_err(failed)?;
                if Instant::now() >= deadline {
                    return Err(Error::TimedOut(during));
                }
            }
            secured.turn().map_err(failed)?;
        }
        Ok(Self {
            under: Under::Tls(Box::new(secured)),
            waits: None,
        })
    }

    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        match &self.under {
            Under::Plain(_) => None,
            Under::Tls(secured) => Some(&secured.client),
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        match &self.under {
            Under::Plain(socket) => socket,
            Under::Tls(secured) => secured.socket.get_ref(),
        }
    }

    /// Whether a password may be sent as it is: nobody can listen in. It says nothing of who the
    /// server is.
    pub(crate) fn is_private(&self) -> bool {
        self.tls().is_some() || matches!(self.socket(), Socket::Local(_))
    }

    /// What there is, at least a byte; 0 at the end. `TimedOut` or `WouldBlock` when nothing came
    /// within `wait`.
    pub(crate) fn read(&mut self, into: &mut [u8], wait: Option<Duration>) -> io::Result<usize> {
        if self.waits != Some(wait) {
            self.socket().wait_at_most(wait)?;
            self.waits = Some(wait);
        }
        match &mut self.under {
            Under::Plain(socket) => socket.read(into),
            Under::Tls(secured) => secured.read(into),
        }
    }

    /// All of it, each part within `wait`.
    pub(crate) fn write(&mut self, bytes: &[u8], wait: Option<Duration>) -> io::Result<()> {
        self.socket().write_at_most(wait)?;
        match &mut self.under {
            Under::Plain(socket) => socket.write_all(bytes),
            Under::Tls(secured) => {
                secured.client.writer().write_all(bytes)?;
                secured.send()
            }
        }
    }

    /// Says farewell to the peer, if it listens.
    pub(crate) fn close(&mut self) {
        // A peer that does not listen does not hold the end up.
        let told = self.socket().write_at_most(Some(FAREWELL));
        if let Under::Tls(secured) = &mut self.under
            && told.is_ok()
        {
            secured.client.send_close_notify();
            // A peer that is gone needs no farewell.
            drop(secured.send());
        }
    }
}

impl Secured {
    /// Sends what the TLS library has ready.
    fn send(&mut self) -> io::Result<()> {
        while self.client.wants_write() {
            self.client.write_tls(self.socket.get_mut())?;
        }
        Ok(())
    }

    /// Sends what is ready, then reads once.
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
