//! Accepting connections within limits, serving their requests with timeouts, and ending them in
//! order. `connections.rs` decides which connection is closed when there are too many.
//!
//! Invariants:
//! - R1: A peer that neither sends nor receives cannot keep a connection open.
//! - R2: When the server stops, running requests may end, for a bounded time.
//! - R3: New certificates and limits take effect without closing a connection.
//!
//! Must not: interpret a request.

use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use strongroom_keyring::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::authority;
use crate::connections::ConnectionSlot;
use crate::http::{self, ConnectionInfo, Interface};
use crate::log::{Level, log, log_failure};
use crate::server::Server;
use crate::service::Peer;

/// The time for running requests when the server is stopped.
const SHUTDOWN_MAX: Duration = Duration::from_secs(20);
/// The longest head of a request, in bytes, and the most headers in it.
const HEAD_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 64;
/// How long a write waits for a peer that does not receive.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Accepts and serves the connections of one interface until `stop` changes, and then waits up to
/// 20 seconds for running requests; what is left is broken off, which is logged. New connections
/// use the present value of `tls`. Without a slot a connection is closed at once.
pub async fn serve(
    server: Arc<Server>,
    interface: Interface,
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    mut stop: watch::Receiver<bool>,
) {
    let router = http::router(Arc::clone(&server), interface);
    let mut running = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
            Some(_) = running.join_next() => continue,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // There may be no file descriptors left, which can change.
                log_failure("accept", &Error::io("a connection", error));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let config = server.config();
        let slot = ConnectionSlot::take(&server.connections, &config.limits, address.ip());
        let Some(slot) = slot else {
            server.metrics.refused.fetch_add(1, Relaxed);
            continue;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
        let one = Connection {
            server: Arc::clone(&server),
            router: router.clone(),
            address,
            slot: Arc::new(slot),
        };
        running.spawn(one.serve_until_displaced(stream, acceptor, stop.clone()));
    }
    drop(listener);
    let ended = timeout(SHUTDOWN_MAX, async {
        while running.join_next().await.is_some() {}
    });
    if ended.await.is_err() {
        log(
            Level::Warning,
            "stopped",
            &[("error", "requests were broken off")],
        );
    }
}

struct Connection {
    server: Arc<Server>,
    router: axum::Router,
    address: SocketAddr,
    slot: Arc<ConnectionSlot>,
}

impl Connection {
    /// Serves the connection until it ends, or until it is closed for a new one.
    async fn serve_until_displaced(
        self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        stop: watch::Receiver<bool>,
    ) {
        let slot = Arc::clone(&self.slot);
        tokio::select! {
            () = self.serve(stream, acceptor, stop) => {}
            () = slot.closed() => {}
        }
    }

    /// Does the TLS handshake and serves requests until the peer closes the connection, a timeout
    /// passes, or `stop` changes; then the running request may end. A handshake that fails ends the
    /// connection, and is counted.
    async fn serve(
        self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        mut stop: watch::Receiver<bool>,
    ) {
        let head = Duration::from_secs(self.server.config().limits.head_seconds);
        // Without this, a small response waits for the acknowledgement of the previous one.
        drop(stream.set_nodelay(true));
        let Ok(Ok(stream)) = timeout(head, acceptor.accept(stream)).await else {
            self.server.metrics.handshakes_failed.fetch_add(1, Relaxed);
            return;
        };
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first);
        let Ok(certificate) = certificate
            .map(authority::parse_client_certificate)
            .transpose()
        else {
            return;
        };
        if let Some(certificate) = &certificate {
            self.slot.set_spki(&certificate.spki);
        }
        let address = self.address.ip();
        let peer = Peer {
            certificate,
            address: address.to_string(),
            enrolled: self.slot.enrolled(),
        };
        let connection_info = ConnectionInfo { peer, address };
        let router = self.router;
        let service = hyper::service::service_fn(move |request| {
            http::call(router.clone(), connection_info.clone(), request)
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_MAX);
        let mut connection =
            pin!(builder.serve_connection(TokioIo::new(TimeoutStream::new(stream)), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            _ = stop.changed() => None,
        };
        if ended.is_none() {
            connection.as_mut().graceful_shutdown();
            // An error of the peer does not matter now.
            drop(connection.await);
        }
    }
}

/// A stream whose writes fail when the peer does not receive for [`WRITE_TIMEOUT`].
struct TimeoutStream<S> {
    stream: S,
    /// When the write that is waiting times out.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl<S> TimeoutStream<S> {
    /// Wraps a stream. No write is waiting.
    fn new(stream: S) -> Self {
        Self {
            stream,
            timeout: None,
        }
    }

    /// Turns a write that has been pending for longer than [`WRITE_TIMEOUT`] into the error
    /// `TimedOut`. A write that is ready ends the time.
    fn with_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.timeout = None;
            return polled;
        }
        let until = || Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_TIMEOUT));
        match self
            .timeout
            .get_or_insert_with(until)
            .as_mut()
            .poll(context)
        {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    /// Reads from the stream, without a timeout.
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    /// Writes to the stream; `TimedOut` after [`WRITE_TIMEOUT`] without progress.
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.with_timeout(context, polled)
    }

    /// Flushes the stream; `TimedOut` after [`WRITE_TIMEOUT`] without progress.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.with_timeout(context, polled)
    }

    /// Shuts the stream down; `TimedOut` after [`WRITE_TIMEOUT`] without progress.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.with_timeout(context, polled)
    }
}
