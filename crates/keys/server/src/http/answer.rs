//! What a request is answered: JSON, or an error with a code of its own.
//!
//! Must not: tell a client the detail of an error that is not its own making: that goes to the log.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::log::log_failure;

/// Why a request was refused.
pub struct Refusal {
    error: Error,
    wait: Option<Duration>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, wait: None }
    }
}

#[derive(Serialize)]
struct Outer<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    code: String,
    what: &'a str,
    detail: &'a str,
    todo: &'a str,
}

impl Refusal {
    /// Asked too often.
    #[must_use]
    pub fn too_many(wait: Duration) -> Self {
        Self {
            error: Error::new(&code::SERVER_TOO_MANY, ""),
            wait: Some(wait),
        }
    }

    /// The HTTP status of its code.
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

    /// The answer.
    #[must_use]
    pub fn response(&self) -> Response {
        let (status, code) = (self.status(), self.error.code());
        let number = format!("SR-{:04}", code.number);
        let mut detail = self.error.detail();
        if status.is_server_error() && code.number != code::SERVER_SEALED.number {
            log_failure("failed", &self.error);
            detail = "";
        }
        let inner = Inner {
            code: number,
            what: code.what,
            detail,
            todo: code.todo,
        };
        let mut response = json(status, &Outer { error: inner });
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

/// The detail of SR-8433 when only the method is wrong.
pub(super) const METHOD: &str = "method";

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.response()
    }
}

/// A JSON answer.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    json_bytes(status, Body::from(body))
}

pub(super) fn json_bytes(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
