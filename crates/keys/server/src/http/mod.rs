//! The API: addresses, methods, bodies. Specified in docs/spec/keyserver.md; described for programs in `openapi.json`.
//!
//! Invariants: Q1, nothing is decided here: who may do what is the service's; Q2, every answer that is not one of the page's is JSON,
//! errors included, and is not to be stored; Q3, a request has a bounded size and a bounded time;
//! Q4, nothing that a browser sends for a page of any site changes anything (`browser.rs`).
//!
//! Must not: log what a request holds; leave key material in memory that is not wiped here.

mod answer;
mod ask;
mod browser;
mod log;
mod routes;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use strongroom_format::code;
use strongroom_keyring::Error;

pub use answer::{Refusal, json};
pub use ask::blocking;
pub(crate) use browser::is_from_another_site;

use crate::server::Server;
use crate::service::Peer;

/// What a connection knows of its other end.
#[derive(Clone, Debug)]
pub struct Other {
    /// For the service.
    pub peer: Peer,
    /// Its address.
    pub address: IpAddr,
}

/// What is spoken to on a listener: each has one of its own, so that no page is ever of the origin
/// where something can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// The API, for programs.
    Programs,
    /// The fleet page, for browsers: it can only be read.
    Page,
}

/// The router of a face with everything round it.
pub fn router(server: Arc<Server>, face: Face) -> Router {
    let state = (Arc::clone(&server), face);
    let counted = axum::middleware::from_fn_with_state(state, guarded);
    let routes = match face {
        Face::Programs => routes::routes(),
        Face::Page => crate::page::serve::routes(),
    };
    routes.layer(counted).with_state(server)
}

/// Limits, time, counting and headers round every request.
async fn guarded(
    State((server, face)): State<(Arc<Server>, Face)>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let ambiguous = is_ambiguous(request.headers());
    let mut response = match admitted(&server, face, &request) {
        Ok(()) => {
            let config = server.config();
            let seconds = config
                .limits
                .request_seconds
                .saturating_add(config.limits.body_seconds);
            let answered = tokio::time::timeout(Duration::from_secs(seconds), next.run(request));
            answered
                .await
                .unwrap_or_else(|_| Refusal::from(Error::new(&code::SERVER_TIMEOUT, "")).response())
        }
        Err(refusal) => refusal.response(),
    };
    let headers = response.headers_mut();
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // No page of another site gets hold of an answer, not even as an image that does not load.
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    if ambiguous {
        // What follows on this connection may be the rest of it.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    server
        .metrics
        .answered(response.status().as_u16(), began.elapsed());
    response
}

/// Whether others could see another length in this request. A length beside a transfer encoding is not seen here any more: the
/// HTTP library drops it. So no encoding is taken at all.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter().count();
    lengths > 1 || headers.contains_key(header::TRANSFER_ENCODING)
}

/// Whether the request is well formed as far as its head tells, and within the limits.
fn admitted(server: &Server, face: Face, request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    if is_ambiguous(headers) {
        let detail = "one Content-Length and no Transfer-Encoding is taken";
        return Err(Error::new(&code::SERVER_REQUEST, detail).into());
    }
    let Some(other) = request.extensions().get::<Other>() else {
        return Err(Error::new(&code::BUG, "a request without a connection").into());
    };
    match face {
        Face::Programs => browser::must_not_be_steered(request)?,
        Face::Page => browser::must_only_read(request)?,
    }
    let waited = match &other.peer.shown {
        Some(shown) => server.limiter.client(&shown.spki),
        None => server.limiter.address(other.address),
    };
    waited.map_err(|wait| {
        server.metrics.limited.fetch_add(1, Relaxed);
        Refusal::too_many(wait)
    })
}

/// One request of a connection.
///
/// # Errors
/// None: every failure is an answer.
pub async fn call<B>(
    router: Router,
    other: Other,
    request: axum::http::Request<B>,
) -> Result<Response, Infallible>
where
    B: http_body_util::BodyExt + axum::body::HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    use tower::Service as _;
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(other);
    let mut router = router;
    router.call(request).await
}
