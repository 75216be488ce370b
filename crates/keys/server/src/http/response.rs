//! Responses: JSON, and errors with their codes.
//!
//! Must not: return the detail of an error of the server to a client; the detail goes to the log.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::log::log_failure;

/// The response to a request that failed.
pub struct ErrorResponse {
    error: Error,
    /// After what time the client may repeat the request.
    wait: Option<Duration>,
}

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> Self {
        Self { error, wait: None }
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorMembers<'a>,
}

#[derive(Serialize)]
struct ErrorMembers<'a> {
    code: String,
    what: &'a str,
    detail: &'a str,
    todo: &'a str,
}

impl ErrorResponse {
    /// Makes the response to a client that exceeds its rate limit: SR-8427, to be repeated after
    /// `wait`.
    #[must_use]
    pub fn too_many(wait: Duration) -> Self {
        Self {
            error: Error::new(&code::SERVER_TOO_MANY, ""),
            wait: Some(wait),
        }
    }

    /// Returns the HTTP status of the error's code; 500 for a code that has none of its own.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.error.code().number {
            8429 | 8432 => StatusCode::BAD_REQUEST,
            8420 => StatusCode::UNAUTHORIZED,
            8421 | 8422 | 8431 | 8443 | 8450 | 8452 => StatusCode::FORBIDDEN,
            8451 => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            8423 | 8444 | 8454 | 8455 | 8457 | 8459 => StatusCode::NOT_FOUND,
            8433 if self.error.detail() == METHOD => StatusCode::METHOD_NOT_ALLOWED,
            8433 => StatusCode::NOT_FOUND,
            8438 => StatusCode::REQUEST_TIMEOUT,
            8424 | 8439 | 8441 | 8456 | 8458 => StatusCode::CONFLICT,
            8425 => StatusCode::GONE,
            8430 => StatusCode::PAYLOAD_TOO_LARGE,
            8426 => StatusCode::LOCKED,
            8427 => StatusCode::TOO_MANY_REQUESTS,
            8428 | 8435 | 8437 | 8442 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Makes the HTTP response: status, the JSON of the error, and `Retry-After` where there is a
    /// time to wait or the status is 503. The detail of an error of the server itself (5xx, except
    /// SR-8428) is left out and logged instead.
    #[must_use]
    pub fn response(&self) -> Response {
        let (status, code) = (self.status(), self.error.code());
        let number = format!("SR-{:04}", code.number);
        let mut detail = self.error.detail();
        if status.is_server_error() && code.number != code::SERVER_SEALED.number {
            log_failure("failed", &self.error);
            detail = "";
        }
        let inner = ErrorMembers {
            code: number,
            what: code.what,
            detail,
            todo: code.todo,
        };
        let mut response = json(status, &ErrorBody { error: inner });
        let wait = match (self.wait, status) {
            (Some(wait), _) => Some(wait.as_secs().saturating_add(1)),
            (None, StatusCode::SERVICE_UNAVAILABLE) => Some(5),
            _ => None,
        };
        if let Some(seconds) = wait {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The detail of SR-8433 when the path exists and the method is wrong.
pub(super) const METHOD: &str = "method";

impl IntoResponse for ErrorResponse {
    /// Makes the HTTP response, as [`ErrorResponse::response`] does; an error of the server itself
    /// is logged.
    fn into_response(self) -> Response {
        self.response()
    }
}

/// Makes a response with this status and a value as its JSON body. The body is empty if the value
/// cannot be written as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    json_bytes(status, Body::from(body))
}

/// Makes a response with the status 200 and a value as its JSON body. Never fails.
pub(super) fn ok_json(value: &impl Serialize) -> Result<Response, ErrorResponse> {
    Ok(json(StatusCode::OK, value))
}

/// Makes a response with the status 204 and no body. Never fails.
pub(super) fn no_content() -> Result<Response, ErrorResponse> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Makes a response with this status and a body that is JSON already.
pub(super) fn json_bytes(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
