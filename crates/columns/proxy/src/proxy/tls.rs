//! TLS towards applications and towards the server. rustls implements the protocol; `startup.rs`
//! and `stream.rs` do PostgreSQL's negotiation.
//!
//! Two threads use one connection, one for each direction. Invariants: the state of the connection
//! is locked for computing only, never while a socket is waited for, so neither direction can block
//! the other; records are written in the order in which they were sealed. Must not: go on in clear
//! where TLS was asked for.

use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use strongroom_postgres_wire::client::Socket;
use strongroom_postgres_wire::client::tls::{Check, Verifier};
use strongroom_tls::{ServerCheck, TlsClient, authorities, certificates, crypto_provider};

/// Bytes that are read from a socket at a time: a TLS record with its header.
const RECORD_LEN: usize = 16_640;
/// The longest wait for a peer that does not read when a connection ends.
const CLOSE_NOTIFY_TIMEOUT: Duration = Duration::from_millis(100);

/// Where the proxy uses TLS; by default nowhere.
#[derive(Clone, Default)]
pub struct Tls {
    pub(super) accept: Option<Arc<ServerConfig>>,
    pub(super) connect: Option<ToServer>,
}

/// TLS towards the server.
#[derive(Clone)]
pub(crate) struct ToServer {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Makes an `InvalidData` error of another error or a text.
fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Tls {
    /// Lets applications use TLS: with this certificate, followed by its intermediate certificates,
    /// and this key, in PEM. Applications may still connect in clear.
    ///
    /// # Errors
    /// The files cannot be read, or do not belong together.
    pub fn accept(mut self, certificate: &Path, key: &Path) -> io::Result<Self> {
        let chain = read_certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(invalid)?;
        let config = ServerConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(invalid)?;
        self.accept = Some(Arc::new(config));
        Ok(self)
    }

    /// Requires the server to speak TLS, and to show a certificate for `host` that an authority in
    /// the PEM file `trusted` has signed. Without a file any certificate is accepted: that protects
    /// against eavesdroppers, not against an attacker in the middle.
    ///
    /// # Errors
    /// The file cannot be read or has no authority; `host` is no name or address.
    pub fn require(mut self, host: &str, trusted: Option<&Path>) -> io::Result<Self> {
        let name = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(invalid)?,
        };
        let found = trusted
            .map(read_certificates)
            .transpose()?
            .unwrap_or_default();
        let roots = authorities(found).map_err(invalid)?;
        let verifier = Verifier {
            check: match trusted {
                Some(_) => Check::ChainAndName,
                None => Check::Nothing,
            },
            roots,
            pinned: Vec::new(),
            provider: crypto_provider(),
        };
        let config = TlsClient::new(ServerCheck::Custom(Arc::new(verifier)));
        let config = config.build().map_err(invalid)?;
        self.connect = Some(ToServer {
            config: Arc::new(config),
            name,
        });
        Ok(self)
    }
}

/// Reads all certificates of a PEM file. Fails if it cannot be read or has none.
fn read_certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    certificates(&std::fs::read(path)?)
        .map_err(|error| invalid(format!("{}: {error}", path.display())))
}

/// An encrypted connection, for both of its threads.
pub(crate) struct Channel {
    socket: Socket,
    state: Mutex<Connection>,
    /// Sealed bytes to be written: the holder of this lock may write to the socket.
    out: Mutex<Vec<u8>>,
    /// Sealed bytes that were received.
    incoming: Mutex<Incoming>,
}

struct Incoming {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

/// Locks the mutex, also after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// Makes the TLS handshake as the server, with an application. Fails if the handshake does.
    pub(super) fn accept(socket: Socket, config: &Arc<ServerConfig>) -> io::Result<Self> {
        let state = ServerConnection::new(Arc::clone(config)).map_err(invalid)?;
        Self::handshake(socket, state.into())
    }

    /// Makes the TLS handshake as the client, with the server. Fails if its certificate is not
    /// accepted.
    pub(super) fn connect(socket: Socket, to: &ToServer) -> io::Result<Self> {
        let state = ClientConnection::new(Arc::clone(&to.config), to.name.clone());
        Self::handshake(socket, state.map_err(invalid)?.into())
    }

    /// Completes the handshake, for which it reads and writes the socket, and returns the
    /// connection. Fails with `InvalidData` for an error of TLS, and with the socket's errors.
    fn handshake(socket: Socket, mut state: Connection) -> io::Result<Self> {
        let mut both = &socket;
        while state.is_handshaking() {
            state.complete_io(&mut both)?;
        }
        let incoming = Incoming {
            bytes: vec![0; RECORD_LEN],
            from: 0,
            to: 0,
        };
        Ok(Self {
            socket,
            state: Mutex::new(state),
            out: Mutex::new(Vec::new()),
            incoming: Mutex::new(incoming),
        })
    }

    /// Returns the socket below.
    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Waits for decrypted bytes and returns how many it has put into `buf`; 0 at the end of the
    /// stream. Fails with `InvalidData` for an error of TLS, and with the socket's errors;
    /// `UnexpectedEof` if the end was not announced.
    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        loop {
            let mut state = lock(&self.state);
            // Opened bytes are delivered first, which makes space for the next ones.
            match state.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if incoming.from == incoming.to {
                drop(state);
                let len = (&self.socket).read(&mut incoming.bytes)?;
                (incoming.from, incoming.to) = (0, len);
                state = lock(&self.state);
            }
            let came = incoming.bytes.get(incoming.from..incoming.to);
            let mut came = came.unwrap_or_default();
            // No bytes are the end of the stream; the state says whether it was announced.
            let taken = state.read_tls(&mut came)?;
            incoming.from = incoming.from.saturating_add(taken);
            let processed = state.process_new_packets();
            let answers = state.wants_write();
            drop(state);
            if answers {
                self.send_protocol_data();
            }
            processed.map_err(invalid)?;
        }
    }

    /// Sends protocol messages of TLS itself, unless another thread is writing: then that one sends
    /// them. Errors are ignored: the next read or write meets them again.
    fn send_protocol_data(&self) {
        let mut out = match self.out.try_lock() {
            Ok(out) => out,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // The next read or write finds an error again.
        drop(self.write_sealed(&mut out));
    }

    /// Encrypts bytes and writes them all to the socket; returns how many were taken. Fails with
    /// the socket's errors.
    pub(super) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        let mut out = lock(&self.out);
        let taken = lock(&self.state).writer().write(buf)?;
        self.write_sealed(&mut out)?;
        Ok(taken)
    }

    /// Writes all encrypted bytes to the socket and empties `out`, also after an error.
    fn write_sealed(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut state = lock(&self.state);
        while state.wants_write() {
            state.write_tls(out)?;
        }
        drop(state);
        let written = (&self.socket).write_all(out);
        out.clear();
        written
    }

    /// Announces the end of the stream to the peer, and waits at most [`CLOSE_NOTIFY_TIMEOUT`] for
    /// that. Errors are ignored.
    pub(super) fn send_close_notify(&self) {
        lock(&self.state).send_close_notify();
        if self
            .socket
            .set_write_timeout(Some(CLOSE_NOTIFY_TIMEOUT))
            .is_ok()
        {
            self.send_protocol_data();
        }
    }
}
