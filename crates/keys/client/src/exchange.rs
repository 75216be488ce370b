//! One request to one server, and its response, within a time.
//!
//! Invariants: N1, N2, N5. A connection serves one request: names are looked up anew, and no
//! response to an earlier request can be taken for the response to this one.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use strongroom_crypto::SecretBytes;
use strongroom_tls::http::{SentFlag, client_rules, watched_client};
use strongroom_tls::rustls::{self, ClientConfig};
use ureq::{SendBody, http};
use zeroize::Zeroizing;

use crate::address::Address;
use crate::error::Kind;

/// The longest response that reports an error, in bytes.
const REFUSAL_MAX: usize = 16 * 1024;

/// The longest response with a key in it, in bytes.
pub(crate) const SECRET_MAX: usize = 4 * 1024;

/// What a server is asked.
pub(crate) struct Request<'a> {
    pub(crate) method: http::Method,
    /// Begins with a slash; made of checked parts only (N4).
    pub(crate) path: String,
    /// `None`: no body.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) content_type: &'static str,
    /// The longest response that is accepted, in bytes.
    pub(crate) response_max: usize,
    /// The response holds key material.
    pub(crate) is_secret: bool,
    /// Sending it twice has the same effect as sending it once.
    pub(crate) is_repeatable: bool,
}

impl Request<'_> {
    /// Builds a GET request without a body, which may be repeated and whose response is not secret.
    pub(crate) fn get(path: String, response_max: usize) -> Self {
        Request {
            method: http::Method::GET,
            path,
            body: None,
            content_type: "application/json",
            response_max,
            is_secret: false,
            is_repeatable: true,
        }
    }
}

/// What a server has answered.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Body,
}

/// The body of a response.
pub(crate) enum Body {
    Plain(Zeroizing<Vec<u8>>),
    Secret(SecretBytes),
}

impl Body {
    /// Returns the bytes of the body, whether it is secret or not.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Secret(bytes) => bytes.as_slice(),
        }
    }
}

/// Why there was no response.
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
    /// A part of the request may have reached the server.
    pub(crate) was_sent: bool,
    /// No program listens at the address, or the host is not known.
    pub(crate) is_absent: bool,
}

/// Sends a request to one server over a new TLS connection and reads the response, for at most
/// `time`. A response with an error status is a response too.
///
/// # Errors
/// A [`Failure`] if there was no complete response: whether a part of the request may have been
/// sent, and whether nothing listens at the address. Its kind is [`Kind::Unreachable`],
/// [`Kind::NotTrusted`], [`Kind::NotAccepted`], [`Kind::Malformed`] (not HTTP, or longer than
/// `request.response_max`), or [`Kind::Host`].
pub(crate) fn exchange(
    tls: &Arc<ClientConfig>,
    server: &Address,
    request: &Request<'_>,
    time: Duration,
) -> Result<Response, Failure> {
    let sent = SentFlag::default();
    let rules = client_rules()
        .https_only(true)
        .timeout_global(Some(time))
        .build();
    let agent = watched_client(rules, Some(Arc::clone(tls)), &sent);
    let failure = |kind, detail, is_absent| Failure {
        kind,
        detail,
        was_sent: sent.is_set(),
        is_absent,
    };
    let built = http::Request::builder()
        .method(request.method.clone())
        .uri(format!("{}{}", server.text(), request.path));
    let response = match request.body {
        // The server requires this header of every request that changes something, because no page
        // in a browser can send it.
        None if request.method != http::Method::GET => built
            .header("content-type", request.content_type)
            .body(())
            .map_err(ureq::Error::from)
            .and_then(|ready| agent.run(ready)),
        None => built
            .body(())
            .map_err(ureq::Error::from)
            .and_then(|ready| agent.run(ready)),
        Some(bytes) => built
            .header("content-type", request.content_type)
            .header("content-length", bytes.len())
            .body(SendBody::from_owned_reader(std::io::Cursor::new(
                Zeroizing::new(bytes.to_vec()),
            )))
            .map_err(ureq::Error::from)
            .and_then(|ready| agent.run(ready)),
    };
    let response = response.map_err(|error| {
        let (kind, detail) = translate_error(&error);
        failure(kind, detail, is_absence(&error))
    })?;
    read_response(response, request).map_err(|(kind, detail)| failure(kind, detail, false))
}

/// How the standard library begins the text of an error of getaddrinfo(3), which has no kind of its
/// own.
const LOOKUP_FAILED: &str = "failed to lookup address information";

/// Whether an error says that no program listens at the address, or that there is no such host.
fn is_absence(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound => true,
        ureq::Error::Io(error) => {
            error.kind() == std::io::ErrorKind::ConnectionRefused
                || error.to_string().starts_with(LOOKUP_FAILED)
        }
        _ => false,
    }
}

type Reason = (Kind, String);

/// Reads the status, the `Retry-After` in seconds, and the body of a response: into locked memory
/// where a success is secret, else into memory that is wiped. [`Kind::Malformed`] if the body is
/// longer than `request.response_max`, or than 16 KiB with an error status; [`Kind::Host`] without
/// locked memory; else as [`translate_error`].
fn read_response(
    mut response: http::Response<ureq::Body>,
    request: &Request<'_>,
) -> Result<Response, Reason> {
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let is_success = (200..300).contains(&status);
    let max = match is_success {
        true => request.response_max,
        false => REFUSAL_MAX,
    };
    let mut reader = response.body_mut().as_reader();
    let body = match is_success && request.is_secret {
        true => Body::Secret(read_secret(&mut reader)?),
        false => Body::Plain(read_plain(&mut reader, max)?),
    };
    Ok(Response {
        status,
        retry_after,
        body,
    })
}

/// Reads a body of at most 4 KiB into locked memory. [`Kind::Malformed`] if it is longer,
/// [`Kind::Host`] without locked memory, else as [`translate_error`].
fn read_secret(reader: &mut dyn Read) -> Result<SecretBytes, Reason> {
    let mut room = SecretBytes::with_capacity(SECRET_MAX + 1)
        .map_err(|error| (Kind::Host, error.to_string()))?;
    let mut filled = 0;
    while let Some(free) = room.as_mut_slice().get_mut(filled..)
        && !free.is_empty()
    {
        match reader.read(free) {
            Ok(0) => {
                room.truncate(filled);
                return Ok(room);
            }
            Ok(count) => filled += count,
            Err(error) => return Err(read_failure(error)),
        }
    }
    Err(too_long(SECRET_MAX))
}

/// Reads a body of at most `max` bytes; [`Kind::Malformed`] if it is longer. Memory grows with what
/// arrives, not with what the server announces.
fn read_plain(reader: &mut dyn Read, max: usize) -> Result<Zeroizing<Vec<u8>>, Reason> {
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Zeroizing::new(Vec::new());
    reader
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(read_failure)?;
    match bytes.len() > max {
        true => Err(too_long(max)),
        false => Ok(bytes),
    }
}

/// Makes the reason for a body longer than `max` bytes ([`Kind::Malformed`]).
fn too_long(max: usize) -> Reason {
    (
        Kind::Malformed,
        format!("the answer is longer than {max} bytes"),
    )
}

/// Translates an error while a body was read into a kind and a text ([`translate_error`]).
fn read_failure(error: std::io::Error) -> Reason {
    translate_error(&ureq::Error::from(error))
}

/// Returns the kind of failure that an error of the HTTP client means, and a text for it:
/// [`Kind::Unreachable`] without a connection or in time, a TLS kind ([`translate_tls_error`]),
/// else [`Kind::Malformed`].
fn translate_error(error: &ureq::Error) -> Reason {
    match error {
        ureq::Error::Io(error) => {
            match error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            {
                Some(error) => translate_tls_error(error),
                None => (Kind::Unreachable, error.to_string()),
            }
        }
        ureq::Error::Rustls(error) => translate_tls_error(error),
        ureq::Error::Timeout(_) => (Kind::Unreachable, String::from("no answer in time")),
        ureq::Error::HostNotFound => (Kind::Unreachable, String::from("the host is not known")),
        ureq::Error::ConnectionFailed => (Kind::Unreachable, String::from("no connection")),
        ureq::Error::Tls(text) => (Kind::NotTrusted, String::from(*text)),
        ureq::Error::LargeResponseHeader(..) => (
            Kind::Malformed,
            String::from("the answer's header is too long"),
        ),
        ureq::Error::Protocol(_) | ureq::Error::BodyStalled => {
            (Kind::Malformed, String::from("the answer is not HTTP"))
        }
        other => (Kind::Malformed, one_line(&other.to_string())),
    }
}

/// Returns the kind and the text of a TLS error: [`Kind::NotAccepted`] if the server refused this
/// node's certificate with an alert, else [`Kind::NotTrusted`].
fn translate_tls_error(error: &rustls::Error) -> Reason {
    use rustls::{AlertDescription as Alert, Error as Tls};
    match error {
        Tls::InvalidCertificate(why) => (
            Kind::NotTrusted,
            format!("its certificate is not accepted: {why}"),
        ),
        Tls::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied),
        ) => (
            Kind::NotAccepted,
            format!("it does not accept this node's certificate ({alert:?})"),
        ),
        // Not the server: a port without TLS, an old version, an attacker in between.
        other => (Kind::NotTrusted, one_line(&format!("TLS: {other}"))),
    }
}

/// Returns a server's text without control characters, cut after 600 characters.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(600).collect()
}
