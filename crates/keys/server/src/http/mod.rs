//! The API over HTTP: paths, methods, bodies. Specified in docs/spec/keyserver.md; `openapi.json`
//! describes it for programs.
//!
//! Invariants:
//! - Q1: Only the service decides what a client may do.
//! - Q2: Every response is JSON, including errors, and must not be stored by a cache. The responses
//!   of the fleet page are HTML.
//! - Q3: The size and the time of a request are bounded.
//! - Q4: No request that a browser sends for a page of any site changes anything (`browser.rs`).
//!
//! Must not: log the contents of a request; leave key material in memory without wiping it.

mod audit_routes;
mod browser;
mod escrow_routes;
mod handler;
mod request;
mod response;
mod routes;

use std::convert::Infallible;
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

pub(crate) use browser::is_from_another_site;
pub use handler::ConnectionInfo;
pub(crate) use handler::{Connection, PathParameter, SharedServer};
pub use response::ErrorResponse;

use crate::server::Server;

/// What a listener serves. Each has a listener of its own, so that pages never have the origin of
/// the API, where requests change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// The API, for programs.
    Api,
    /// The fleet page, for browsers. Its requests only read.
    Page,
}

/// Builds the router of an interface. Before a request reaches its handler, its head and the rate
/// limits are checked; every response gets headers against caching and other sites, and is counted.
pub fn router(server: Arc<Server>, interface: Interface) -> Router {
    let state = (Arc::clone(&server), interface);
    let checks = axum::middleware::from_fn_with_state(state, with_checks);
    let routes = match interface {
        Interface::Api => routes::routes(),
        Interface::Page => crate::page::serve::routes(),
    };
    routes.layer(checks).with_state(server)
}

/// Middleware of every request: checks it, handles it within the configured time (else SR-8438),
/// sets the response headers against caching and other sites, and counts it in the metrics. After
/// an ambiguous request the connection is closed.
async fn with_checks(
    State((server, interface)): State<(Arc<Server>, Interface)>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let ambiguous = is_ambiguous(request.headers());
    let mut response = match check_request(&server, interface, &request) {
        Ok(()) => {
            let config = server.config();
            let seconds = config
                .limits
                .request_seconds
                .saturating_add(config.limits.body_seconds);
            let response = tokio::time::timeout(Duration::from_secs(seconds), next.run(request));
            response.await.unwrap_or_else(|_| {
                ErrorResponse::from(Error::new(&code::SERVER_TIMEOUT, "")).response()
            })
        }
        Err(error) => error.response(),
    };
    let headers = response.headers_mut();
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // A page of another site cannot read a response, not even as an image that fails to load.
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    if ambiguous {
        // The next bytes on this connection may belong to this request.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    server
        .metrics
        .count_request(response.status().as_u16(), began.elapsed());
    response
}

/// Whether another program could read another length from this request (request smuggling): more
/// than one length, or a transfer encoding. The HTTP library drops a length beside a transfer
/// encoding, so that every transfer encoding is refused.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter().count();
    lengths > 1 || headers.contains_key(header::TRANSFER_ENCODING)
}

/// Checks the head of a request, and counts it in the rate limit of its certificate's public key,
/// or of its address without a certificate.
///
/// # Errors
/// SR-8429 if the length is ambiguous; SR-8450 on the API for a request that a page makes; SR-8433
/// on the page for a method that changes something; SR-8427, with the time to wait, above the rate
/// limit, which the metrics count; SR-9001 without a connection.
fn check_request(
    server: &Server,
    interface: Interface,
    request: &Request,
) -> Result<(), ErrorResponse> {
    let headers = request.headers();
    if is_ambiguous(headers) {
        let detail = "exactly one Content-Length and no Transfer-Encoding is accepted";
        return Err(Error::new(&code::SERVER_REQUEST, detail).into());
    }
    let Some(connection) = request.extensions().get::<ConnectionInfo>() else {
        return Err(Error::new(&code::BUG, "a request without a connection").into());
    };
    match interface {
        Interface::Api => browser::refuse_from_page(request)?,
        Interface::Page => browser::refuse_changing(request)?,
    }
    let taken = match &connection.peer.certificate {
        Some(certificate) => server.limiter.take_for_client(&certificate.spki),
        None => server.limiter.take_for_address(connection.address),
    };
    taken.map_err(|wait| {
        server.metrics.limited.fetch_add(1, Relaxed);
        ErrorResponse::too_many(wait)
    })
}

/// Serves one request of a connection with the router, which finds `connection` among the request's
/// extensions.
///
/// # Errors
/// None: every failure becomes a response.
pub async fn call<B>(
    router: Router,
    connection: ConnectionInfo,
    request: axum::http::Request<B>,
) -> Result<Response, Infallible>
where
    B: http_body_util::BodyExt + axum::body::HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    use tower::Service as _;
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(connection);
    let mut router = router;
    router.call(request).await
}
