//! One request to one server, and its answer, within a time.
//!
//! Invariants: N1, N2, N5. A connection serves one request: names are looked up anew, and no answer
//! of an earlier request can be taken for this one's.

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

/// Longest answer that says why not, in bytes.
const REFUSAL_MAX: usize = 16 * 1024;

/// Longest answer with a key in it, in bytes.
pub(crate) const SECRET_MAX: usize = 4 * 1024;

/// What is asked for.
pub(crate) struct Request<'a> {
    pub(crate) method: http::Method,
    /// Begins with a slash; made of checked parts only (N4).
    pub(crate) path: String,
    /// `None`: no body.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) content_type: &'static str,
    /// Longest answer that is taken, in bytes.
    pub(crate) answer_max: usize,
    /// The answer holds key material.
    pub(crate) is_secret: bool,
    /// Asking twice is asking once.
    pub(crate) repeatable: bool,
}

impl Request<'_> {
    pub(crate) fn get(path: String, answer_max: usize) -> Self {
        Request {
            method: http::Method::GET,
            path,
            body: None,
            content_type: "application/json",
            answer_max,
            is_secret: false,
            repeatable: true,
        }
    }
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Body,
}

/// The bytes of an answer.
pub(crate) enum Body {
    Plain(Zeroizing<Vec<u8>>),
    Secret(SecretBytes),
}

impl Body {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Secret(bytes) => bytes.as_slice(),
        }
    }
}

/// Why there was no answer.
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
    /// Part of the request may have reached the server.
    pub(crate) sent: bool,
    /// Nobody is at the address: the connection was refused, or the host is not known.
    pub(crate) nobody: bool,
}

/// Asks one server, for at most `time`.
pub(crate) fn exchange(
    tls: &Arc<ClientConfig>,
    server: &Address,
    request: &Request<'_>,
    time: Duration,
) -> Result<Answer, Fault> {
    let sent = SentFlag::default();
    let rules = client_rules()
        .https_only(true)
        .timeout_global(Some(time))
        .build();
    let agent = watched_client(rules, Some(Arc::clone(tls)), &sent);
    let fault = |kind, detail, nobody| Fault {
        kind,
        detail,
        sent: sent.is_set(),
        nobody,
    };
    let built = http::Request::builder()
        .method(request.method.clone())
        .uri(format!("{}{}", server.text(), request.path));
    let answer = match request.body {
        // The server demands it of whatever changes something: no page that a browser shows can
        // send it.
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
    let answer = answer.map_err(|error| {
        let (kind, detail) = told(&error);
        fault(kind, detail, is_nobody(&error))
    })?;
    read(answer, request).map_err(|(kind, detail)| fault(kind, detail, false))
}

/// How the standard library begins the text of an error of getaddrinfo(3). It has no kind of its
/// own by which it could be known.
const LOOKUP_FAILED: &str = "failed to lookup address information";

/// Whether the error says that no program listens at the address, or that there is no such host.
fn is_nobody(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound => true,
        ureq::Error::Io(error) => {
            error.kind() == std::io::ErrorKind::ConnectionRefused
                || error.to_string().starts_with(LOOKUP_FAILED)
        }
        _ => false,
    }
}

type Why = (Kind, String);

fn read(mut answer: http::Response<ureq::Body>, request: &Request<'_>) -> Result<Answer, Why> {
    let status = answer.status().as_u16();
    let retry_after = answer
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let is_fine = (200..300).contains(&status);
    let max = match is_fine {
        true => request.answer_max,
        false => REFUSAL_MAX,
    };
    let mut reader = answer.body_mut().as_reader();
    let body = match is_fine && request.is_secret {
        true => Body::Secret(read_secret(&mut reader)?),
        false => Body::Plain(read_plain(&mut reader, max)?),
    };
    Ok(Answer {
        status,
        retry_after,
        body,
    })
}

fn read_secret(reader: &mut dyn Read) -> Result<SecretBytes, Why> {
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
            Err(error) => return Err(while_reading(error)),
        }
    }
    Err(too_long(SECRET_MAX))
}

/// Grows as the answer does: a server that says it sends much costs what it sends.
fn read_plain(reader: &mut dyn Read, max: usize) -> Result<Zeroizing<Vec<u8>>, Why> {
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Zeroizing::new(Vec::new());
    reader
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(while_reading)?;
    match bytes.len() > max {
        true => Err(too_long(max)),
        false => Ok(bytes),
    }
}

fn too_long(max: usize) -> Why {
    (
        Kind::Malformed,
        format!("the answer is longer than {max} bytes"),
    )
}

fn while_reading(error: std::io::Error) -> Why {
    told(&ureq::Error::from(error))
}

/// What an error of the HTTP client means here.
fn told(error: &ureq::Error) -> Why {
    match error {
        ureq::Error::Io(error) => {
            match error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            {
                Some(error) => told_tls(error),
                None => (Kind::Unreachable, error.to_string()),
            }
        }
        ureq::Error::Rustls(error) => told_tls(error),
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
        other => (Kind::Malformed, clean(&other.to_string())),
    }
}

fn told_tls(error: &rustls::Error) -> Why {
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
        // Whoever speaks it is not the server: a plain HTTP port, an old version, someone in
        // between.
        other => (Kind::NotTrusted, clean(&format!("TLS: {other}"))),
    }
}

/// Text of others, cut short, on one line.
pub(crate) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(600).collect()
}
