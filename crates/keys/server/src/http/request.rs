//! Reading a request within limits, and calling the service on a thread that may block.
//!
//! Must not: read a body that is longer than its path allows.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::response::ErrorResponse;
use crate::server::Server;
use crate::service::Service;

/// The longest JSON body, in bytes.
pub(super) const JSON_MAX: usize = 64 * 1024;

/// Runs `work` with the service, on a thread that may block, and waits for it.
///
/// # Errors
/// SR-8428 while the server is sealed; what the work reports; SR-9001 if it panics.
pub(super) async fn with_service<T: Send + 'static>(
    server: &Arc<Server>,
    work: impl FnOnce(&Service) -> Result<T, Error> + Send + 'static,
) -> Result<T, ErrorResponse> {
    let service = server.service()?;
    run_blocking(move || work(&service)).await
}

/// Runs `work` on a thread that may block, and waits for it.
///
/// # Errors
/// What the work reports; SR-9001 if it panics.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, ErrorResponse> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| Error::new(&code::BUG, "a request's work broke off"))??)
}

/// Reads a body of at most `max` bytes, within the configured time for bodies.
///
/// # Errors
/// SR-8430 if it is longer, by its header or as read, or if the connection breaks; SR-8438 after
/// the time.
pub(super) async fn read_body(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
    max: usize,
) -> Result<Bytes, ErrorResponse> {
    let too_large = || Error::new(&code::SERVER_TOO_LARGE, format!("at most {max} bytes"));
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    if length
        .and_then(|length| length.parse::<u64>().ok())
        .is_some_and(|length| length > max as u64)
    {
        return Err(too_large().into());
    }
    let time = Duration::from_secs(server.config().limits.body_seconds);
    let read = tokio::time::timeout(time, to_bytes(body, max)).await;
    let read = read.map_err(|_| Error::new(&code::SERVER_TIMEOUT, "the body"))?;
    // `to_bytes` fails for a body that is too long, or a broken connection, which gets no response.
    Ok(read.map_err(|_| too_large())?)
}

/// Reads a body of at most 64 KiB and parses it as JSON.
///
/// # Errors
/// SR-8430 if it is longer; SR-8438 after the configured time; SR-8429, with the position only, if
/// it does not fit `T`.
pub(super) async fn read_json<T: DeserializeOwned>(
    server: &Server,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, ErrorResponse> {
    let bytes = read_body(server, headers, body, JSON_MAX).await?;
    // The message of the parser could repeat secrets of the body, so that only the position is
    // shown.
    let malformed = |error: serde_json::Error| {
        let detail = format!("the body, line {} column {}", error.line(), error.column());
        Error::new(&code::SERVER_REQUEST, detail)
    };
    Ok(serde_json::from_slice(&bytes).map_err(malformed)?)
}

/// Parses the query of a list: `after`, by default empty, and `limit` from 1 to 5000, by default
/// 1000.
///
/// # Errors
/// SR-8429 for another parameter, or a value that is not valid.
pub(super) fn parse_list_query(text: Option<&str>) -> Result<ListQuery, ErrorResponse> {
    let mut query = ListQuery {
        after: String::new(),
        limit: LIMIT_DEFAULT,
    };
    let refused = || Error::new(&code::SERVER_REQUEST, "the query: after, limit");
    for pair in text
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair.split_once('=').ok_or_else(refused)?;
        match name {
            // Names and numbers need no percent-encoding.
            "after"
                if value
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b)) =>
            {
                value.clone_into(&mut query.after);
            }
            "limit" => {
                let limit: Option<usize> = value.parse().ok();
                query.limit = limit
                    .filter(|n| (1..=LIMIT_MAX).contains(n))
                    .ok_or_else(refused)?;
            }
            _ => return Err(refused().into()),
        }
    }
    Ok(query)
}

/// Which part of a list a request wants.
pub(super) struct ListQuery {
    /// The name after which the items begin.
    pub(super) after: String,
    /// The most items.
    pub(super) limit: usize,
}

/// The most items of a list without `limit` in the query.
const LIMIT_DEFAULT: usize = 1000;
/// The most items of a list.
const LIMIT_MAX: usize = 5000;
