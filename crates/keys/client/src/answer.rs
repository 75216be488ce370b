//! What a server's status means, and what it says about it.
//!
//! Invariant N3: only what a trusted server decided is final. Must not: show more than a line of a
//! server's words (N6).

use std::time::Duration;

use serde::Deserialize;
use strongroom_format::code::{self, Code};

use crate::error::Kind;
use crate::exchange::{Answer, clean};

/// The numbers of codes that a server may answer with.
const SERVER_CODES: std::ops::RangeInclusive<u16> = 8420..=8459;

/// What to make of an answer.
pub(crate) enum Verdict {
    /// What was asked for.
    Fine(Answer),
    /// No server would say otherwise.
    Decided(Refusal),
    /// Another server, or this one later, may say otherwise.
    Later(Refusal, Duration),
    /// Not an answer of a key server; another server may give one.
    Broken(Refusal),
}

/// Why there is not what was asked for.
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    /// The code that the server named.
    pub(crate) code: Option<&'static Code>,
    pub(crate) detail: String,
}

#[derive(Deserialize)]
struct Told {
    error: Words,
}

#[derive(Deserialize)]
struct Words {
    code: String,
    what: String,
    #[serde(default)]
    detail: String,
}

pub(crate) fn judge(answer: Answer) -> Verdict {
    let status = answer.status;
    if (200..300).contains(&status) {
        return Verdict::Fine(answer);
    }
    let wait = answer.retry_after.unwrap_or_default();
    let Some((code, detail)) = words(&answer) else {
        return wordless(status, wait);
    };
    let refusal = |kind| Refusal { kind, code, detail };
    let is = |number| code.is_some_and(|code| code.number == number);
    match status {
        401 | 403 => Verdict::Decided(refusal(Kind::Denied)),
        404 if is(code::SERVER_NO_ADDRESS.number) => Verdict::Decided(refusal(Kind::Refused)),
        404 => Verdict::Decided(refusal(Kind::NotFound)),
        409 => Verdict::Decided(refusal(Kind::Exists)),
        410 => Verdict::Decided(refusal(Kind::Destroyed)),
        423 => Verdict::Decided(refusal(Kind::Disabled)),
        408 => Verdict::Later(refusal(Kind::Unreachable), wait),
        429 => Verdict::Later(refusal(Kind::Busy), wait),
        503 if is(code::SERVER_SEALED.number) => Verdict::Later(refusal(Kind::Sealed), wait),
        400..=499 => Verdict::Decided(refusal(Kind::Refused)),
        500..=599 => Verdict::Later(refusal(Kind::Unreachable), wait),
        _ => Verdict::Broken(refusal(Kind::Malformed)),
    }
}

/// A status without a key server's words: of something in front of it, or of something else.
fn wordless(status: u16, wait: Duration) -> Verdict {
    let refusal = |kind, detail| Refusal {
        kind,
        code: None,
        detail,
    };
    let plain = || format!("it answers with status {status}");
    match status {
        429 => Verdict::Later(refusal(Kind::Busy, plain()), wait),
        408 | 500..=599 => Verdict::Later(refusal(Kind::Unreachable, plain()), wait),
        // Nothing is fetched from where a server points to.
        300..=399 => Verdict::Broken(refusal(
            Kind::Malformed,
            String::from("it points to another place, which is not followed"),
        )),
        _ => Verdict::Broken(refusal(
            Kind::Malformed,
            format!("it answers with status {status}, and not as a key server does"),
        )),
    }
}

/// The code and the words of a server that refuses. `None`: these are not a key server's.
fn words(answer: &Answer) -> Option<(Option<&'static Code>, String)> {
    let Told { error } = serde_json::from_slice(answer.body.bytes()).ok()?;
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
        clean(&format!("{} {}{detail}", error.code, error.what)),
    ))
}
