//! What a browser sends because some page told it to, though the certificate that it shows is a
//! person's.
//!
//! A browser shows an imported certificate to the server for whatever page asks it to connect. It
//! says so, with `Origin` and `Sec-Fetch-Site`, which a page cannot change; and a page of another
//! origin cannot send `application/json`, nor another method than GET, HEAD and POST, before the
//! server has agreed (Fetch, "CORS-preflight fetch"), which it never does.
//!
//! Invariants: B1, a request that changes something and comes from any page is refused, whatever
//! certificate was shown; B2, it says that its body is of a type that no form and no simple request
//! can have; B3, where pages are shown nothing can be changed.
//!
//! Must not: trust what a browser leaves out. Programs send neither header, so B2 holds for them
//! too.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::MethodRouter;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::Refusal;
use super::answer::METHOD;

/// Where a browser says from what page a request comes.
const SITE: &str = "sec-fetch-site";

/// Refuses what a page had a browser send. There are no pages of this origin: whatever says where
/// it comes from comes from elsewhere. An address that a person typed, or a bookmark, may be read.
///
/// # Errors
/// SR-8450.
pub(super) fn must_not_be_steered(request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let is_typed = |value: &axum::http::HeaderValue| {
        is_reading(request.method()) && value.as_bytes() == b"none"
    };
    let is_steered = headers.contains_key(header::ORIGIN)
        || headers.get_all(SITE).iter().any(|site| !is_typed(site));
    match is_steered {
        true => Err(Error::new(&code::SERVER_FOREIGN, "").into()),
        false => Ok(()),
    }
}

/// Refuses every method but those that read.
///
/// # Errors
/// SR-8433.
pub(super) fn must_only_read(request: &Request) -> Result<(), Refusal> {
    match is_reading(request.method()) {
        true => Ok(()),
        false => Err(Error::new(&code::SERVER_NO_ADDRESS, METHOD).into()),
    }
}

/// Whether a page of another site asks for it.
pub(crate) fn is_from_another_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SITE).iter();
    sites.any(|site| ![b"none".as_slice(), b"same-origin"].contains(&site.as_bytes()))
}

fn is_reading(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// Methods that change something: their requests are of this type, also where nothing is in the
/// body.
pub(super) fn changing<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
) -> MethodRouter<S> {
    methods.route_layer(axum::middleware::from_fn(json_only))
}

/// The same, of a body that is bytes. No form and no simple request has this type either.
pub(super) fn changing_bytes<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
) -> MethodRouter<S> {
    methods.route_layer(axum::middleware::from_fn(bytes_only))
}

async fn json_only(request: Request, next: Next) -> Response {
    typed("application/json", request, next).await
}

async fn bytes_only(request: Request, next: Next) -> Response {
    typed("application/octet-stream", request, next).await
}

async fn typed(wanted: &'static str, request: Request, next: Next) -> Response {
    if is_of(request.headers(), wanted) {
        return next.run(request).await;
    }
    Refusal::from(Error::new(&code::SERVER_MEDIA_TYPE, wanted)).response()
}

/// Whether the one type that is told is this one; what follows it, as `charset`, does not matter.
fn is_of(headers: &HeaderMap, wanted: &str) -> bool {
    let mut told = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(first), None) = (told.next(), told.next()) else {
        return false;
    };
    let first = first.to_str().unwrap_or_default();
    let essence = first.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(wanted) && !first.contains(',')
}
