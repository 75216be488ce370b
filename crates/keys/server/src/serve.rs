//! Connections: accepted within limits, their handshakes and requests within time, ended in order.
//!
//! Invariants: R1, no peer holds a connection open without sending or taking; R2, a stop lets requests that run end, for a bounded time;
//! R3, new certificates and limits take effect without a connection being dropped; which connection makes way for another is
//! `connections.rs`'s affair.
//!
//! Must not: look into a request.

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
use crate::connections::Place;
use crate::http::{self, Face, Other};
use crate::log::{Level, log, log_failure};
use crate::server::Server;
use crate::service::Peer;

/// Time for requests that run when the server is stopped.
const STOPPING: Duration = Duration::from_secs(20);
/// Longest head of a request, and most headers in it.
const HEAD_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 64;
/// How long an answer waits for a peer that does not take it.
const STALLED: Duration = Duration::from_secs(30);

/// Serves one face of the server until `stop` changes; `tls` may be replaced meanwhile.
pub async fn serve(
    server: Arc<Server>,
    face: Face,
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    mut stop: watch::Receiver<bool>,
) {
    let router = http::router(Arc::clone(&server), face);
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
                // Out of descriptors: later there may be some again.
                log_failure("accept", &Error::io("a connection", error));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = Place::taken(&server, address.ip()) else {
            server.metrics.refused.fetch_add(1, Relaxed);
            continue;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
        let one = Connection {
            server: Arc::clone(&server),
            router: router.clone(),
            address,
            place: Arc::new(place),
        };
        running.spawn(one.serve_while_it_has_its_place(stream, acceptor, stop.clone()));
    }
    drop(listener);
    let ended = timeout(STOPPING, async {
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
    place: Arc<Place>,
}

impl Connection {
    /// Serves it until it ends or its place is needed for another one.
    async fn serve_while_it_has_its_place(
        self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        stop: watch::Receiver<bool>,
    ) {
        let place = Arc::clone(&self.place);
        tokio::select! {
            () = self.serve(stream, acceptor, stop) => {}
            () = place.lost() => {}
        }
    }

    async fn serve(
        self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        mut stop: watch::Receiver<bool>,
    ) {
        let head = Duration::from_secs(self.server.config().limits.head_seconds);
        // Small answers are not to wait for the acknowledgement of the ones before.
        drop(stream.set_nodelay(true));
        let Ok(Ok(stream)) = timeout(head, acceptor.accept(stream)).await else {
            self.server.metrics.handshakes_failed.fetch_add(1, Relaxed);
            return;
        };
        let shown = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first);
        let Ok(shown) = shown.map(authority::shown).transpose() else {
            return;
        };
        if let Some(shown) = &shown {
            self.place.shown(&shown.spki);
        }
        let address = self.address.ip();
        let peer = Peer {
            shown,
            address: address.to_string(),
            enrolled: self.place.enrolled(),
        };
        let other = Other { peer, address };
        let router = self.router;
        let service = hyper::service::service_fn(move |request| {
            http::call(router.clone(), other.clone(), request)
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_MAX);
        let mut connection =
            pin!(builder.serve_connection(TokioIo::new(Impatient::new(stream)), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            _ = stop.changed() => None,
        };
        if ended.is_none() {
            connection.as_mut().graceful_shutdown();
            // How it ends is the peer's affair.
            drop(connection.await);
        }
    }
}

/// A stream that gives up when its peer does not take what is written.
struct Impatient<S> {
    stream: S,
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            patience: None,
        }
    }

    /// What came of a write: an error when it has waited for too long.
    fn judged<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.patience = None;
            return polled;
        }
        let until = || Box::pin(tokio::time::sleep_until(Instant::now() + STALLED));
        match self
            .patience
            .get_or_insert_with(until)
            .as_mut()
            .poll(context)
        {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judged(context, polled)
    }
}
