//! A relay between a client and a server that goes wrong on purpose, within TLS where there is any.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use strongroom_tls::rustls::pki_types::pem::PemObject as _;
use strongroom_tls::rustls::pki_types::{PrivateKeyDer, ServerName};
use strongroom_tls::rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned,
};
use strongroom_tls::{Identity, ServerCheck, TlsClient};

/// What goes wrong.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// No answer comes.
    Hang,
    /// The connection ends after so many bytes of answers.
    Cut(usize),
    /// A bit of this byte of the answers is flipped.
    Flip(usize),
    /// The answer comes a byte at a time.
    Slow,
    /// Something else is answered.
    Instead(Vec<u8>),
    /// Something else is answered, and zeros behind it as long as anyone listens.
    Endless(Vec<u8>),
}

/// How a side of the relay speaks.
#[derive(Clone)]
pub(crate) enum Side<T> {
    Plain,
    Tls(Arc<T>),
}

/// Listens until the test program ends.
pub(crate) struct Relay {
    pub(crate) port: u16,
    fault: Arc<Mutex<Fault>>,
}

/// Both sides are looked at in turns, so long each.
const TURN: Duration = Duration::from_millis(2);

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Relay {
    pub(crate) fn started(
        server: u16,
        client_side: Side<ServerConfig>,
        server_side: Side<ClientConfig>,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let fault = Arc::new(Mutex::new(Fault::None));
        let current = Arc::clone(&fault);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let fault = current.lock().unwrap().clone();
                let sides = (client_side.clone(), server_side.clone());
                thread::spawn(move || drop(relayed(client, server, sides, fault)));
            }
        });
        Self { port, fault }
    }

    /// From the next connection on.
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }
}

fn relayed(
    client: TcpStream,
    server: u16,
    sides: (Side<ServerConfig>, Side<ClientConfig>),
    mut fault: Fault,
) -> io::Result<()> {
    let upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, server))?;
    let sockets = [client.try_clone()?, upstream.try_clone()?];
    for socket in &sockets {
        socket.set_nodelay(true)?;
    }
    let mut client: Box<dyn Stream> = match sides.0 {
        Side::Plain => Box::new(client),
        Side::Tls(config) => {
            let tls = ServerConnection::new(config).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(tls, client);
            // Whole before turns are taken: a turn's end would be an error in the middle of it.
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            Box::new(stream)
        }
    };
    let mut upstream: Box<dyn Stream> = match sides.1 {
        Side::Plain => Box::new(upstream),
        Side::Tls(config) => {
            let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
            let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(tls, upstream);
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            Box::new(stream)
        }
    };
    for socket in &sockets {
        socket.set_read_timeout(Some(TURN))?;
    }
    let (mut sent, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        if let Some(asked) = turn(&mut *client, &mut buffer)? {
            if asked == 0 {
                return Ok(());
            }
            upstream.write_all(&buffer[..asked])?;
            upstream.flush()?;
        }
        if let Some(answered) = turn(&mut *upstream, &mut buffer)? {
            if answered == 0 {
                return Ok(());
            }
            let more = answer(&mut *client, &mut buffer[..answered], &mut sent, &mut fault)?;
            if !more {
                return Ok(());
            }
        }
    }
}

/// What came within a turn; `None`: nothing.
fn turn(from: &mut dyn Stream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match from.read(buffer) {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// Hands an answer on, or what the fault makes of it. Whether it goes on.
fn answer(
    client: &mut dyn Stream,
    bytes: &mut [u8],
    sent: &mut usize,
    fault: &mut Fault,
) -> io::Result<bool> {
    let begin = *sent;
    *sent += bytes.len();
    match fault {
        Fault::None => client.write_all(bytes)?,
        Fault::Hang => {}
        Fault::Cut(after) => {
            let kept = after.saturating_sub(begin).min(bytes.len());
            client.write_all(&bytes[..kept])?;
            client.flush()?;
            return Ok(*sent < *after);
        }
        Fault::Flip(at) => {
            if let Some(byte) = at.checked_sub(begin).and_then(|at| bytes.get_mut(at)) {
                *byte ^= 1;
            }
            client.write_all(bytes)?;
        }
        Fault::Slow => {
            for byte in bytes.chunks(1) {
                client.write_all(byte)?;
                client.flush()?;
                thread::sleep(Duration::from_millis(50));
            }
        }
        Fault::Instead(other) => {
            client.write_all(other)?;
            client.flush()?;
            // Read by the client before the connection ends under it.
            other.clear();
        }
        Fault::Endless(head) => {
            client.write_all(head)?;
            loop {
                client.write_all(&[0; 4096])?;
            }
        }
    }
    client.flush()?;
    Ok(true)
}

/// The side of a server with this certificate.
pub(crate) fn server_side(directory: &Path, name: &str) -> Side<ServerConfig> {
    let (certificate, key) = pair(directory, name);
    let config = ServerConfig::builder_with_provider(strongroom_tls::crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            strongroom_tls::certificates(&certificate).unwrap(),
            PrivateKeyDer::from_pem_slice(&key).unwrap(),
        )
        .unwrap();
    Side::Tls(Arc::new(config))
}

/// The side of a client with this certificate, of a server under `ca.pem`.
pub(crate) fn client_side(directory: &Path, name: &str) -> Side<ClientConfig> {
    let authority = std::fs::read(directory.join("ca.pem")).unwrap();
    let authority = strongroom_tls::certificates(&authority).unwrap();
    let check = ServerCheck::Authorities(strongroom_tls::authorities(authority).unwrap());
    let (certificate, key) = pair(directory, name);
    let identity = Identity::from_pem(&certificate, &key).unwrap();
    let client = TlsClient::new(check).identity(Some(identity));
    Side::Tls(Arc::new(client.build().unwrap()))
}

/// A certificate and its private key, in PEM.
fn pair(directory: &Path, name: &str) -> (Vec<u8>, Vec<u8>) {
    let read = |end: &str| std::fs::read(directory.join(format!("{name}.{end}"))).unwrap();
    (read("pem"), read("key"))
}
