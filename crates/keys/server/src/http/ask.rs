//! From a request to a call of the service: its body within bounds, its work on a thread that may wait.
//!
//! Must not: read a body that is longer than its address allows.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::Refusal;
use crate::server::Server;
use crate::service::Service;

/// Longest JSON body.
pub(super) const JSON_MAX: usize = 64 * 1024;

/// Does `work` with the service, where it may wait.
///
/// # Errors
/// SR-8428 while the server is sealed; what the work reports.
pub async fn blocking<T: Send + 'static>(
    server: &Arc<Server>,
    work: impl FnOnce(&Service) -> Result<T, Error> + Send + 'static,
) -> Result<T, Refusal> {
    let service = server.service()?;
    waiting(move || work(&service)).await
}

/// Does `work` where it may wait.
pub(super) async fn waiting<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| Error::new(&code::BUG, "a request's work broke off"))??)
}

/// The body, at most `max` bytes, in the time that the configuration gives it.
///
/// # Errors
/// SR-8430, SR-8438, SR-8429.
pub(super) async fn body_of(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
    max: usize,
) -> Result<Bytes, Refusal> {
    let too_large = || Error::new(&code::SERVER_TOO_LARGE, format!("at most {max} bytes"));
    let told = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    if told
        .and_then(|told| told.parse::<u64>().ok())
        .is_some_and(|told| told > max as u64)
    {
        return Err(too_large().into());
    }
    let time = Duration::from_secs(server.config().limits.body_seconds);
    let read = tokio::time::timeout(time, to_bytes(body, max)).await;
    let read = read.map_err(|_| Error::new(&code::SERVER_TIMEOUT, "the body"))?;
    // The length is the only thing that `to_bytes` refuses; else the connection broke, and nobody reads this.
    Ok(read.map_err(|_| too_large())?)
}

/// The body as JSON of exactly this form.
pub(super) async fn json_of<T: DeserializeOwned>(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Refusal> {
    let bytes = body_of(server, headers, body, JSON_MAX).await?;
    // Only where in the body it went wrong: the words of the parser can repeat what a client sent.
    let malformed = |error: serde_json::Error| {
        let detail = format!("the body, line {} column {}", error.line(), error.column());
        Error::new(&code::SERVER_REQUEST, detail)
    };
    Ok(serde_json::from_slice(&bytes).map_err(malformed)?)
}

/// Members of a query, each at most once.
pub(super) fn query(text: Option<&str>) -> Result<Page, Refusal> {
    let mut page = Page {
        after: String::new(),
        limit: LIMIT,
    };
    let refused = || Error::new(&code::SERVER_REQUEST, "the query: after, limit");
    for pair in text
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair.split_once('=').ok_or_else(refused)?;
        match name {
            // Names and numbers need no escapes.
            "after"
                if value
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b)) =>
            {
                value.clone_into(&mut page.after);
            }
            "limit" => {
                let limit: Option<usize> = value.parse().ok();
                page.limit = limit
                    .filter(|n| (1..=LIMIT_MAX).contains(n))
                    .ok_or_else(refused)?;
            }
            _ => return Err(refused().into()),
        }
    }
    Ok(page)
}

/// Which part of a list is asked for.
pub(super) struct Page {
    /// The name before the first.
    pub(super) after: String,
    /// How many at most.
    pub(super) limit: usize,
}

/// Items of a list unless the query says otherwise.
const LIMIT: usize = 1000;
/// Most items of a list.
const LIMIT_MAX: usize = 5000;
