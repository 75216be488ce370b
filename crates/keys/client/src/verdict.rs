//! What a response means: whether the request succeeded, and if not, whether another attempt may.
//!
//! Invariant N3: only a decision of a trusted server is final. Must not: show more than a line of a
//! server's text (N6).

use std::time::Duration;

use serde::Deserialize;
use strongroom_format::code::{self, Code};

use crate::error::Kind;
use crate::exchange::{Response, one_line};

/// The numbers of error codes that a server may respond with.
const SERVER_CODES: std::ops::RangeInclusive<u16> = 8420..=8459;

/// What a response means.
pub(crate) enum Verdict {
    /// The request succeeded.
    Success(Response),
    /// The server refuses, and so would every other one.
    Final(Refusal),
    /// Another server, or this one after the time, may not refuse.
    Retry(Refusal, Duration),
    /// The response is not one of a key server; another server may give one.
    NotKeyServer(Refusal),
}

/// Why a request did not succeed.
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    /// The code that the server gave.
    pub(crate) code: Option<&'static Code>,
    pub(crate) detail: String,
}

impl Refusal {
    /// Whether the request had no effect for certain: the server did not begin with it, or others
    /// changed the same record first. Then also a request that is not repeatable may be sent again.
    /// A store that failed, or a time that was over, leaves it open.
    pub(crate) fn is_without_effect(&self) -> bool {
        matches!(self.kind, Kind::Busy | Kind::Sealed)
            || self.code.is_some_and(|code| code == &code::SERVER_BUSY)
    }
}

/// The body of a response that reports an error.
#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorMembers,
}

#[derive(Deserialize)]
struct ErrorMembers {
    code: String,
    what: String,
    #[serde(default)]
    detail: String,
}

/// Decides what a response means: success (status 2xx), a final refusal, a refusal that is worth
/// another attempt (408, 429, 5xx) after the server's `Retry-After`, or a response that is not one
/// of a key server.
pub(crate) fn judge(response: Response) -> Verdict {
    let status = response.status;
    if (200..300).contains(&status) {
        return Verdict::Success(response);
    }
    let wait = response.retry_after.unwrap_or_default();
    let Some((code, detail)) = parse_error(&response) else {
        return judge_status(status, wait);
    };
    let refusal = |kind| Refusal { kind, code, detail };
    let is = |number| code.is_some_and(|code| code.number == number);
    match status {
        401 | 403 => Verdict::Final(refusal(Kind::Denied)),
        404 if is(code::SERVER_NO_ADDRESS.number) => Verdict::Final(refusal(Kind::Refused)),
        404 => Verdict::Final(refusal(Kind::NotFound)),
        // The others of this status are about a state, a share, an archive or a time.
        409 if is(code::SERVER_EXISTS.number) => Verdict::Final(refusal(Kind::Exists)),
        410 => Verdict::Final(refusal(Kind::Destroyed)),
        423 => Verdict::Final(refusal(Kind::Disabled)),
        408 => Verdict::Retry(refusal(Kind::Unreachable), wait),
        429 => Verdict::Retry(refusal(Kind::Busy), wait),
        503 if is(code::SERVER_SEALED.number) => Verdict::Retry(refusal(Kind::Sealed), wait),
        400..=499 => Verdict::Final(refusal(Kind::Refused)),
        500..=599 => Verdict::Retry(refusal(Kind::Unreachable), wait),
        _ => Verdict::NotKeyServer(refusal(Kind::Malformed)),
    }
}

/// Decides what a status means without the error body of a key server: it comes from a proxy in
/// front of it, or from another program. 408, 429 and 5xx are [`Verdict::Retry`], with `wait` as
/// the pause before another attempt. All others are [`Verdict::NotKeyServer`]; none is final,
/// because no key server has decided.
fn judge_status(status: u16, wait: Duration) -> Verdict {
    let refusal = |kind, detail| Refusal {
        kind,
        code: None,
        detail,
    };
    let detail = || format!("it answers with status {status}");
    match status {
        429 => Verdict::Retry(refusal(Kind::Busy, detail()), wait),
        408 | 500..=599 => Verdict::Retry(refusal(Kind::Unreachable, detail()), wait),
        // A redirection is not followed.
        300..=399 => Verdict::NotKeyServer(refusal(
            Kind::Malformed,
            String::from("it points to another place, which is not followed"),
        )),
        _ => Verdict::NotKeyServer(refusal(
            Kind::Malformed,
            format!("it answers with status {status}, and not as a key server does"),
        )),
    }
}

/// Parses a key server's error body and returns its code and its text on one line. The code is
/// `None` unless it is one of a key server's (8420 to 8459). `None` for any other body.
fn parse_error(response: &Response) -> Option<(Option<&'static Code>, String)> {
    let ErrorBody { error } = serde_json::from_slice(response.body.bytes()).ok()?;
    let number: Option<u16> = error
        .code
        .strip_prefix("SR-")
        .and_then(|text| text.parse().ok());
    let code = number
        .filter(|number| SERVER_CODES.contains(number))
        .and_then(code::by_number);
    let detail = match error.detail.as_str() {
        "" => String::new(),
        detail => format!(": {detail}"),
    };
    Some((
        code,
        one_line(&format!("{} {}{detail}", error.code, error.what)),
    ))
}
