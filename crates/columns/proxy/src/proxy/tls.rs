//! TLS towards applications and towards the server. The protocol is rustls's; PostgreSQL's way into it is `startup.rs`'s and `stream.rs`'s.
//!
//! Two threads use one connection, one for each direction. Invariants: the state of the connection is locked for computing only, never while a
//! socket is waited for, so neither direction can hold up the other; what is sealed is written in the order in which it was sealed.
//! Must not: go on in clear where TLS was asked for.

use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use super::stream::Socket;

/// Bytes that are read of a socket at a time: a TLS record and its head.
const RECORD: usize = 16_640;
/// A peer that does not read any more is not waited for when a connection ends.
const FAREWELL: Duration = Duration::from_millis(100);

/// Where the proxy speaks TLS. By default nowhere.
#[derive(Clone, Default)]
pub struct Tls {
    pub(super) accept: Option<Arc<ServerConfig>>,
    pub(super) connect: Option<ToServer>,
}

/// How the proxy speaks TLS to the server.
#[derive(Clone)]
pub(crate) struct ToServer {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Tls {
    /// Applications may ask for TLS: the proxy has this certificate (with those between it and its authority behind it) and this key, in PEM.
    ///
    /// # Errors
    /// The files cannot be read, or do not belong together.
    pub fn accept(mut self, certificate: &Path, key: &Path) -> io::Result<Self> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(invalid)?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(invalid)?;
        self.accept = Some(Arc::new(config));
        Ok(self)
    }

    /// The server has to speak TLS, and to show a certificate for `host` that an authority in the PEM file `authorities` vouches for.
    /// Without a file any certificate will do: that keeps out who listens, not who stands between.
    ///
    /// # Errors
    /// The file cannot be read or has no authority; `host` is no name or address.
    pub fn require(mut self, host: &str, authorities: Option<&Path>) -> io::Result<Self> {
        let name = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(invalid)?,
        };
        let verifier: Arc<dyn ServerCertVerifier> = match authorities {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(invalid)?;
                }
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                    .build()
                    .map_err(invalid)?
            }
            None => Arc::new(AnyCertificate(provider())),
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        self.connect = Some(ToServer {
            config: Arc::new(config),
            name,
        });
        Ok(self)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(invalid)?
        .collect();
    let found = read.map_err(invalid)?;
    if found.is_empty() {
        return Err(invalid(format!("{}: no certificate", path.display())));
    }
    Ok(found)
}

/// Takes any certificate, as `sslmode=require` does. That the server has its key is checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// An encrypted connection, for both of its threads.
pub(crate) struct Channel {
    socket: Socket,
    state: Mutex<Connection>,
    /// Sealed bytes on their way: whoever holds it may write to the socket.
    out: Mutex<Vec<u8>>,
    /// Sealed bytes that came.
    incoming: Mutex<Incoming>,
}

struct Incoming {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// The proxy's end towards an application.
    pub(super) fn accept(socket: Socket, config: &Arc<ServerConfig>) -> io::Result<Self> {
        let state = ServerConnection::new(Arc::clone(config)).map_err(invalid)?;
        Self::shake(socket, state.into())
    }

    /// The proxy's end towards the server.
    pub(super) fn connect(socket: Socket, to: &ToServer) -> io::Result<Self> {
        let state = ClientConnection::new(Arc::clone(&to.config), to.name.clone());
        Self::shake(socket, state.map_err(invalid)?.into())
    }

    fn shake(socket: Socket, mut state: Connection) -> io::Result<Self> {
        let mut both = &socket;
        while state.is_handshaking() {
            state.complete_io(&mut both)?;
        }
        let incoming = Incoming {
            bytes: vec![0; RECORD],
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

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut incoming = locked(&self.incoming);
        loop {
            let mut state = locked(&self.state);
            // What was opened goes first: then there is room for what is opened next.
            match state.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if incoming.from == incoming.to {
                drop(state);
                let len = (&self.socket).read(&mut incoming.bytes)?;
                (incoming.from, incoming.to) = (0, len);
                state = locked(&self.state);
            }
            let came = incoming.bytes.get(incoming.from..incoming.to);
            let mut came = came.unwrap_or_default();
            // Nothing is the end; the state then says whether it was announced.
            let taken = state.read_tls(&mut came)?;
            incoming.from = incoming.from.saturating_add(taken);
            let processed = state.process_new_packets();
            let answers = state.wants_write();
            drop(state);
            if answers {
                self.answer();
            }
            processed.map_err(invalid)?;
        }
    }

    /// Sends what the protocol itself has to say, unless somebody is writing: then it goes with that.
    fn answer(&self) {
        let mut out = match self.out.try_lock() {
            Ok(out) => out,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // An error here is found again by whoever reads or writes next.
        drop(self.drain(&mut out));
    }

    pub(super) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        let mut out = locked(&self.out);
        let taken = locked(&self.state).writer().write(buf)?;
        self.drain(&mut out)?;
        Ok(taken)
    }

    /// Writes out whatever is sealed.
    fn drain(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut state = locked(&self.state);
        while state.wants_write() {
            state.write_tls(out)?;
        }
        drop(state);
        let written = (&self.socket).write_all(out);
        out.clear();
        written
    }

    /// Says that nothing more comes, to whom that still matters.
    pub(super) fn farewell(&self) {
        locked(&self.state).send_close_notify();
        if self.socket.set_write_timeout(Some(FAREWELL)).is_ok() {
            self.answer();
        }
    }
}
