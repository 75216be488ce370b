//! Protection against requests that a web page makes a browser send (cross-site request forgery).
//!
//! A browser uses an imported client certificate for the requests of every page. It reveals the
//! page with `Origin` and `Sec-Fetch-Site`, which a page cannot change. A page of another origin
//! cannot send `application/json`, or a method other than GET, HEAD and POST, before the server has
//! agreed (Fetch, "CORS-preflight fetch"), and this server never agrees.
//!
//! Invariants:
//! - B1: A request that changes something is refused if it comes from a page, with any certificate.
//! - B2: A request that changes something has a content type that no form and no simple request can
//!   have.
//! - B3: No request to the listener of the fleet page changes anything.
//!
//! Must not: draw a conclusion from a missing header. Programs send neither header, and B2 holds
//! for them too.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::MethodRouter;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::response::{ErrorResponse, METHOD};

/// The header in which a browser says from which site a request comes.
const SITE: &str = "sec-fetch-site";

/// Refuses a request that a page makes a browser send, by its headers `Origin` and
/// `Sec-Fetch-Site`. This origin has no pages, so that every page is of another one. A GET or HEAD
/// of an address that a person typed, or of a bookmark, is accepted.
///
/// # Errors
/// SR-8450 for a request of a page.
pub(super) fn refuse_from_page(request: &Request) -> Result<(), ErrorResponse> {
    let headers = request.headers();
    let is_typed = |value: &axum::http::HeaderValue| {
        is_reading(request.method()) && value.as_bytes() == b"none"
    };
    let is_from_page = headers.contains_key(header::ORIGIN)
        || headers.get_all(SITE).iter().any(|site| !is_typed(site));
    match is_from_page {
        true => Err(Error::new(&code::SERVER_FOREIGN, "").into()),
        false => Ok(()),
    }
}

/// Refuses every method but GET and HEAD. Sends nothing.
///
/// # Errors
/// SR-8433 with the detail `METHOD`, which the response turns into the status 405.
pub(super) fn refuse_changing(request: &Request) -> Result<(), ErrorResponse> {
    match is_reading(request.method()) {
        true => Ok(()),
        false => Err(Error::new(&code::SERVER_NO_ADDRESS, METHOD).into()),
    }
}

/// Whether a browser says that a request comes from a page of another site: a `Sec-Fetch-Site` that
/// is neither `none` nor `same-origin`. False without the header.
pub(crate) fn is_from_another_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SITE).iter();
    sites.any(|site| ![b"none".as_slice(), b"same-origin"].contains(&site.as_bytes()))
}

/// Whether a method only reads: GET or HEAD.
fn is_reading(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// Wraps methods that change something: their requests must have the type `application/json`, even
/// if the body is empty. Others get SR-8451 and are not handled.
pub(super) fn changing<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
) -> MethodRouter<S> {
    methods.route_layer(axum::middleware::from_fn(json_only))
}

/// Wraps methods that change something with a binary body: their requests must have the type
/// `application/octet-stream`, which no form and no simple request can have either. Others get
/// SR-8451 and are not handled.
pub(super) fn changing_bytes<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
) -> MethodRouter<S> {
    methods.route_layer(axum::middleware::from_fn(bytes_only))
}

/// Middleware: handles a request of the type `application/json`, and responds SR-8451 to any other.
async fn json_only(request: Request, next: Next) -> Response {
    require_type("application/json", request, next).await
}

/// Middleware: handles a request of the type `application/octet-stream`, and responds SR-8451 to
/// any other.
async fn bytes_only(request: Request, next: Next) -> Response {
    require_type("application/octet-stream", request, next).await
}

/// Handles a request if its content type is `wanted` ([`has_type`]). Otherwise responds SR-8451
/// with `wanted` as the detail.
async fn require_type(wanted: &'static str, request: Request, next: Next) -> Response {
    if has_type(request.headers(), wanted) {
        return next.run(request).await;
    }
    ErrorResponse::from(Error::new(&code::SERVER_MEDIA_TYPE, wanted)).response()
}

/// Whether a request has exactly one content type and it is `wanted`, in any case of letters.
/// Parameters such as `charset` do not matter.
fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else {
        return false;
    };
    let first = first.to_str().unwrap_or_default();
    let essence = first.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(wanted) && !first.contains(',')
}
