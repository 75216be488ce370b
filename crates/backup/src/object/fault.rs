//! Turns an object store's errors into errors of our own.
//!
//! Invariant B21: a store's answer may repeat the name of a key and what was signed, so that only
//! the status and a code word are passed on.
//!
//! Must not: show an error message of the client library.

use std::error::Error as StdError;
use std::io;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use strongroom_format::code;
use strongroom_keyring::Fault;

/// The longest code word of a store that is shown.
const WORD_MAX: usize = 48;

/// What is known after a put under a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The condition did not hold.
    Refused,
    /// It was not written, and trying again does not help.
    Failed,
    /// It may have been written.
    Unknown,
}

/// What is known about the object after this error of a put.
pub(super) fn put_outcome(error: &Error) -> Outcome {
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } => Outcome::Refused,
        Error::Generic { .. } if is_lost(error) => Outcome::Unknown,
        // A server may fail after it has written the object.
        Error::Generic { .. } if status(error).is_none_or(|status| status >= 500) => {
            Outcome::Unknown
        }
        _ => Outcome::Failed,
    }
}

/// Makes the error for a response that did not come in time.
pub(super) fn timeout_error() -> Error {
    Error::Generic {
        store: "object store",
        source: Box::new(HttpError::new(
            HttpErrorKind::Timeout,
            io::Error::from(io::ErrorKind::TimedOut),
        )),
    }
}

/// Whether the error means that no response came: no connection, or a time limit.
pub(super) fn is_lost(error: &Error) -> bool {
    chain(error).any(|cause| cause.is::<HttpError>())
}

/// Turns a store's error into one of the kind that a file system would report, with SR-7141 (no
/// answer), SR-7142 (denied) or SR-7143 (any other) inside.
pub(super) fn to_io_error(error: &Error) -> io::Error {
    if is_lost(error) {
        let text = "no answer";
        return Fault::io(io::ErrorKind::NotConnected, &code::STORE_LOST, text);
    }
    let answer = describe_response(error);
    match error {
        Error::NotFound { .. } => Fault::io(io::ErrorKind::NotFound, &code::STORE_FAILED, answer),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            Fault::io(io::ErrorKind::PermissionDenied, &code::STORE_DENIED, answer)
        }
        _ => Fault::io(io::ErrorKind::Other, &code::STORE_FAILED, answer),
    }
}

/// The status and the code word of a response, as far as it has them, as text without the store's
/// own message.
fn describe_response(error: &Error) -> String {
    let text = full(error);
    let status = status(error).map(|status| format!("status {status}"));
    let word = between(&text, "<Code>", "<").or_else(|| between(&text, "\"reason\": \"", "\""));
    let word = word.filter(|word| is_word(word)).map(str::to_owned);
    let parts: Vec<String> = status.into_iter().chain(word).collect();
    match (error, parts.is_empty()) {
        (_, false) => parts.join(", "),
        (Error::NotFound { .. }, _) => String::from("not found"),
        (Error::NotImplemented { .. } | Error::NotSupported { .. }, _) => {
            String::from("not supported")
        }
        _ => String::from("an answer that cannot be used"),
    }
}

/// The HTTP status of the response; `None` when there is none. The crate has it in a private type
/// (`RequestError::Status`), so that it is taken from the message.
fn status(error: &Error) -> Option<u16> {
    let text = full(error);
    let digits = text.split_once("status code: ")?.1.get(..3)?;
    digits.parse().ok()
}

/// The messages of an error and its causes, one per line.
fn full(error: &Error) -> String {
    let texts: Vec<String> = chain(error).map(ToString::to_string).collect();
    texts.join("\n")
}

/// The text between the first `before` and the next `after`, without both. `None` when one of them
/// is missing.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = text.split_once(before)?.1;
    Some(rest.split_once(after)?.0)
}

/// Whether this is a short word of letters and digits, which may be shown.
fn is_word(text: &str) -> bool {
    (1..=WORD_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The error and its causes.
fn chain(error: &Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    std::iter::from_fn(move || {
        let now = next?;
        next = now.source();
        Some(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic {
            store: "S3",
            source: text.into(),
        }
    }

    #[test]
    fn nothing_of_an_answer_is_repeated_but_status_and_word() {
        let answer = "Error performing PUT http://h/b/k in 1ms - Server returned non-2xx status code: 400 Bad Request: \
            <Error><Code>SignatureWrong</Code><AWSAccessKeyId>CANARY</AWSAccessKeyId></Error>";
        let error = to_io_error(&generic(answer));
        assert_eq!(error.to_string(), "status 400, SignatureWrong");
        let shown = strongroom_keyring::Error::io("s3://b", error);
        assert_eq!(shown.code(), &code::STORE_FAILED);
        for forged in ["<Code>CANARY key</Code>", "<Code></Code>", "<Code>CANARY"] {
            let error = to_io_error(&generic(forged));
            assert_eq!(error.to_string(), "an answer that cannot be used");
        }
    }

    #[test]
    fn a_lost_store_leaves_the_outcome_open() {
        assert_eq!(put_outcome(&timeout_error()), Outcome::Unknown);
        assert!(is_lost(&timeout_error()));
        let shown = strongroom_keyring::Error::io("s3://b", to_io_error(&timeout_error()));
        assert_eq!(shown.code(), &code::STORE_LOST);
        let failed = generic("Server returned non-2xx status code: 503 Slow Down: ");
        assert_eq!(put_outcome(&failed), Outcome::Unknown);
        let refused = generic("Server returned non-2xx status code: 400 Bad Request: ");
        assert_eq!(put_outcome(&refused), Outcome::Failed);
        assert!(!is_lost(&refused));
    }
}
