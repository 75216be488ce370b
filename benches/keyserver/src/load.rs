//! Many clients at once, each on a connection of its own, asking for a key again and again.
//!
//! Must not: count an answer that is not the key.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strongroom_benches::Failure;
use strongroom_keys_client::{Client, Version};
use strongroom_tls::rustls::pki_types::ServerName;
use strongroom_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use strongroom_tls::{Identity, ServerCheck, TlsClient};

/// What a load came to.
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) half: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
}

/// `clients` threads for `time`, each doing what `make` made it.
fn together<W>(
    clients: usize,
    time: Duration,
    make: impl Fn() -> Result<W, Failure> + Sync,
) -> Result<Measured, Failure>
where
    W: FnMut() -> Result<(), Failure>,
{
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let all: Result<Vec<Vec<Duration>>, Failure> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let mut work = make()?;
                    let mut times = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        work()?;
                        times.push(began.elapsed());
                    }
                    Ok(times)
                })
            })
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| Failure::from("a client failed"))?
            })
            .collect()
    });
    let elapsed = began.elapsed();
    let mut times: Vec<Duration> = all?.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |hundredths: usize| {
        times.get((times.len() * hundredths / 100).min(times.len().saturating_sub(1)))
    };
    let count = f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX));
    Ok(Measured {
        per_second: count / elapsed.as_secs_f64(),
        half: at(50).copied().unwrap_or_default(),
        p99: at(99).copied().unwrap_or_default(),
        longest: times.last().copied().unwrap_or_default(),
    })
}

/// A new connection for each key, as a node does it.
pub(crate) fn connecting(
    client: &Client,
    name: &str,
    clients: usize,
    time: Duration,
) -> Result<Measured, Failure> {
    together(clients, time, || {
        let client = client.clone();
        Ok(move || {
            client.material(name, Version::Latest)?;
            Ok(())
        })
    })
}

/// One connection for all keys of a client.
pub(crate) fn connected(
    directory: &Path,
    port: u16,
    name: &str,
    clients: usize,
    time: Duration,
) -> Result<Measured, Failure> {
    let config = config(directory)?;
    let request =
        format!("GET /v1/keys/{name}/versions/latest/material HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    together(clients, time, || {
        let name = ServerName::try_from("127.0.0.1")?;
        let connection = ClientConnection::new(Arc::clone(&config), name)?;
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        let mut stream = StreamOwned::new(connection, socket);
        let request = request.as_bytes();
        Ok(move || {
            stream.write_all(request)?;
            stream.flush()?;
            answer(&mut stream)
        })
    })
}

/// Reads an answer, which has to be a key.
fn answer(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> Result<(), Failure> {
    let mut bytes = Vec::with_capacity(1024);
    let mut piece = [0; 1024];
    loop {
        let count = stream.read(&mut piece)?;
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        // The body is one small object, and the only closing brace.
        match (count, bytes.last()) {
            (0, _) => return Err("the server ended the connection".into()),
            (_, Some(b'}')) => break,
            _ => {}
        }
    }
    let is_key =
        bytes.starts_with(b"HTTP/1.1 200") && bytes.windows(9).any(|at| at == b"material\"");
    match is_key {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&bytes).into()),
    }
}

fn config(directory: &Path) -> Result<Arc<ClientConfig>, Failure> {
    let read = |name| std::fs::read(directory.join(name));
    let authority = strongroom_tls::certificates(&read("authority.pem")?)?;
    let check = ServerCheck::Authorities(strongroom_tls::authorities(authority)?);
    let identity = Identity::from_pem(&read("node.pem")?, &read("node.key")?)?;
    let client = TlsClient::new(check).identity(Some(identity));
    Ok(Arc::new(client.build()?))
}
