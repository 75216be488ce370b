//! Requests for parts of one file, of one version.
//!
//! Invariants:
//! E1. A version is a strong ETag and a length. The first response sets both. Each later request
//!     carries the ETag as If-Match and If-Range, and its response must have status 206, that ETag,
//!     that length and exactly the range that was requested. Any other response is an error, and
//!     none of its bytes are used.
//! E2. A read ends by its deadline, which limits each attempt and the waits between attempts.
//!
//! A response's body is read up to the requested length; bytes that a server sends beyond it are
//! not. Must not: follow a redirection, accept a weak ETag or compressed bytes, use a proxy from
//! the environment.

use std::io::Read as _;
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;
use strongroom_tls::rustls::{self, RootCertStore};
use strongroom_tls::{
    ServerCheck, TlsClient, certificates, http, system_certificates, usable_authorities,
};
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use crate::etag::etag_is_strong;
use crate::options::{Address, Options};

/// Most attempts at one read.
const TRIES: u32 = 5;
/// Wait before the second attempt; it doubles before each further one.
const WAIT: Duration = Duration::from_millis(100);
/// A connection that was idle for longer is not used again.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// One version of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// With its quotes.
    pub(crate) etag: String,
    /// Length of the file in bytes.
    pub(crate) total: u64,
}

/// A range of bytes; `len` is at least one.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// Requests parts of one file from one server.
pub(crate) struct Client {
    agent: Agent,
    address: Address,
    timeout: Duration,
}

/// Why an attempt failed.
enum Failure {
    /// Another attempt may succeed; the duration is the shortest wait before it.
    Transient(&'static Code, String, Option<Duration>),
    /// No other attempt can succeed.
    Final(&'static Code, String),
}

use Failure::{Final, Transient};

impl Client {
    /// Prepares a client for the URL: no proxy, no redirects, one connection. Connects to nothing.
    /// SR-2240 if the address or the file of authorities is not valid, SR-2253 for http:// to
    /// another host.
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let address = options.address()?;
        let tls = TlsClient::new(ServerCheck::Authorities(trusted_roots(options)?));
        let tls = tls.build().map_err(|error| {
            let detail = format!("TLS: {error}");
            Error::new(&code::BUG, detail)
        })?;
        let rules = http::client_rules()
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .max_idle_age(IDLE_MAX)
            .accept_encoding("identity")
            .build();
        Ok(Self {
            agent: http::client(rules, Some(Arc::new(tls))),
            address,
            timeout: options.timeout,
        })
    }

    /// Returns the address for messages, without its query.
    pub(crate) fn shown(&self) -> &str {
        &self.address.shown
    }

    /// Requests the first `len` bytes, or all of a shorter file, and returns them with the version
    /// that they are of. SR-3001 for an empty file; SR-2245 without a strong ETag; otherwise as
    /// [`Self::part`].
    pub(crate) fn first(&self, len: u64) -> Result<(Vec<u8>, Version), Error> {
        let range = Range { start: 0, len };
        self.retry(&mut |_, limit| {
            let response = self.send(range, None, false, limit)?;
            let version = self.version(&response)?;
            let (start, end, total) = content_range(&response)?;
            let expected = len.min(total);
            if start != 0 || end.checked_add(1) != Some(expected) {
                return Err(ranges("it answers with another range"));
            }
            let bytes = read_body(response, expected)?;
            let Version { etag, .. } = version;
            Ok((bytes, Version { etag, total }))
        })
    }

    /// Requests a range of `version`, and returns the range and its bytes. `range` gives the range
    /// for each attempt, numbered from 1, so that later attempts can ask for less. `past_caches`:
    /// caches on the way must not answer. SR-2241 if the server cannot be reached in time, SR-2242
    /// for its certificate, SR-2243 for its status, SR-2244 for another range, SR-2246 if the file
    /// has changed, SR-2247 for a redirect.
    pub(crate) fn part(
        &self,
        range: &mut dyn FnMut(u32) -> Range,
        version: &Version,
        past_caches: bool,
    ) -> Result<(Range, Vec<u8>), Error> {
        self.retry(&mut |attempt, limit| {
            let range = range(attempt);
            let response = self.send(range, Some(version), past_caches, limit)?;
            let found = self.version(&response)?;
            if found.etag != version.etag {
                return Err(changed(&found.etag, version));
            }
            let (start, end, total) = content_range(&response)?;
            if total != version.total {
                return Err(Final(
                    &code::REMOTE_CHANGED,
                    format!("{total} bytes in place of {}", version.total),
                ));
            }
            if start != range.start || end.checked_add(1) != range.start.checked_add(range.len) {
                return Err(ranges("it answers with another range"));
            }
            Ok((range, read_body(response, range.len)?))
        })
    }

    /// Makes up to five attempts until one succeeds or fails finally, or the time limit of the read
    /// would pass (E2), and sleeps in between, twice as long each time or as long as the server
    /// asks. Returns the last failure. `attempt` gets its number, from 1, and its time limit.
    fn retry<T>(
        &self,
        attempt: &mut dyn FnMut(u32, Duration) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + self.timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let about = |text: &str| match text {
            "" => self.shown().to_owned(),
            text => format!("{}: {text}", self.shown()),
        };
        let mut wait = WAIT;
        let mut number = 0;
        loop {
            number += 1;
            // The first attempts leave time for another one, which asks for less.
            let limit = if number < 3 { left() / 2 } else { left() };
            let (code, text, at_least) = match attempt(number, limit.max(Duration::from_millis(1)))
            {
                Ok(done) => return Ok(done),
                Err(Final(code, text)) => return Err(Error::new(code, about(&text))),
                Err(Transient(code, text, at_least)) => (code, text, at_least),
            };
            let pause = at_least.unwrap_or_default().max(wait);
            if number == TRIES || pause >= left() {
                return Err(Error::new(code, about(&text)));
            }
            sleep(pause);
            wait = wait.saturating_mul(2);
        }
    }

    /// Sends one request for `range` and checks the response's status and coding. With `version`,
    /// the request is conditional on its ETag. The caller reads the body. Fails, finally or for
    /// another attempt, with SR-2241 to SR-2247.
    fn send(
        &self,
        range: Range,
        version: Option<&Version>,
        past_caches: bool,
        limit: Duration,
    ) -> Result<Response<Body>, Failure> {
        let last = range.start.saturating_add(range.len).saturating_sub(1);
        let mut request = self
            .agent
            .get(self.address.uri.clone())
            .header(header::RANGE, format!("bytes={}-{last}", range.start));
        if let Some(version) = version {
            request = request
                .header(header::IF_MATCH, &version.etag)
                .header(header::IF_RANGE, &version.etag);
        }
        if past_caches {
            request = request.header(header::CACHE_CONTROL, "no-cache");
        }
        let response = request
            .config()
            .timeout_global(Some(limit))
            .build()
            .call()
            .map_err(|error| translate_error(&error))?;
        check_status(&response, version)?;
        Ok(response)
    }

    /// Returns the version that a response shows, with length 0, because the length is not known
    /// yet. SR-2245 if it has no strong ETag.
    fn version(&self, response: &Response<Body>) -> Result<Version, Failure> {
        let etag = etag_of(response).ok_or_else(|| {
            let shown = single_header(response, header::ETAG).unwrap_or_default();
            Final(&code::REMOTE_VALIDATOR, one_line(&shown))
        })?;
        Ok(Version { etag, total: 0 })
    }
}

/// Returns the trusted certificate authorities: those of the file in `options`, else the system's,
/// which are read once for the process. SR-2240 if the file cannot be read or parsed.
fn trusted_roots(options: &Options) -> Result<RootCertStore, Error> {
    static SYSTEM: OnceLock<RootCertStore> = OnceLock::new();
    let Some(path) = &options.ca else {
        let system = || usable_authorities(system_certificates());
        return Ok(SYSTEM.get_or_init(system).clone());
    };
    let wrong = |why: &dyn std::fmt::Display| {
        let detail = format!("http_ca {}: {why}", path.display());
        Error::new(&code::REMOTE_URL, detail)
    };
    let pem = std::fs::read(path).map_err(|error| wrong(&error))?;
    let found = certificates(&pem).map_err(|error| wrong(&error))?;
    Ok(usable_authorities(found))
}

/// Checks that the response has the status of a range, or of a whole file, and is not compressed;
/// the caller checks ETag, length and range. Statuses of an overloaded or failed server are
/// transient failures; all others are final.
fn check_status(response: &Response<Body>, version: Option<&Version>) -> Result<(), Failure> {
    let status = response.status();
    match status {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::OK => {
            // If the condition of If-Range does not hold, a server sends the whole current file.
            return Err(match (etag_of(response), version) {
                (Some(etag), Some(version)) if etag != version.etag => changed(&etag, version),
                _ => ranges("it sends the whole file"),
            });
        }
        StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE
            if version.is_some() =>
        {
            return Err(Final(&code::REMOTE_CHANGED, format!("status {status}")));
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            return Err(Final(&code::NOT_SEALED, "it is empty".to_owned()));
        }
        status if status.is_redirection() => {
            let place = single_header(response, header::LOCATION).unwrap_or_default();
            let shown = place.split(['?', '#']).next().unwrap_or_default();
            return Err(Final(
                &code::REMOTE_REDIRECT,
                format!("status {status}, to {}", one_line(shown)),
            ));
        }
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let after = single_header(response, header::RETRY_AFTER)
                .and_then(|text| text.parse().ok())
                .map(Duration::from_secs);
            return Err(Transient(
                &code::REMOTE_STATUS,
                format!("status {status}"),
                after,
            ));
        }
        _ => return Err(Final(&code::REMOTE_STATUS, format!("status {status}"))),
    }
    let coded = response.headers().get_all(header::CONTENT_ENCODING).iter();
    for coding in coded {
        if !coding.as_bytes().eq_ignore_ascii_case(b"identity") {
            return Err(ranges("it compresses what it sends"));
        }
    }
    Ok(())
}

/// Returns the value of a header as text. `None` when there is none, there are several, or it is
/// not ASCII.
fn single_header(response: &Response<Body>, name: header::HeaderName) -> Option<String> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim().to_owned();
    values.next().is_none().then_some(value)
}

/// Returns the strong ETag of a response. `None` when there is none, or a weak one, which does not
/// promise equal bytes.
fn etag_of(response: &Response<Body>) -> Option<String> {
    single_header(response, header::ETAG).filter(|etag| etag_is_strong(etag))
}

/// Returns first byte, last byte and length of the file, from the header Content-Range (RFC 9110,
/// section 14.4). SR-2244, as a final failure, if it is missing or malformed.
fn content_range(response: &Response<Body>) -> Result<(u64, u64, u64), Failure> {
    let text = single_header(response, header::CONTENT_RANGE)
        .ok_or_else(|| ranges("it does not say which part it sends"))?;
    parse_range(&text).ok_or_else(|| ranges("it does not say which part it sends"))
}

/// Parses the first and last byte and the length in `bytes 0-99/1000`. `None` when the text is
/// malformed, the length is not known, or they contradict one another.
fn parse_range(text: &str) -> Option<(u64, u64, u64)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total) = (number(first)?, number(last)?, number(total)?);
    (first <= last && last < total).then_some((first, last, total))
}

/// Reads a body of exactly `len` bytes. A shorter body is a transient failure (SR-2241), because
/// the connection broke, and a longer one a final one (SR-2244).
fn read_body(mut response: Response<Body>, len: u64) -> Result<Vec<u8>, Failure> {
    let expected = usize::try_from(len).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(expected);
    response
        .body_mut()
        .as_reader()
        .take(len.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| translate_error(&ureq::Error::from(error)))?;
    match bytes.len().cmp(&expected) {
        std::cmp::Ordering::Equal => Ok(bytes),
        std::cmp::Ordering::Greater => Err(ranges("it sends more than was asked for")),
        std::cmp::Ordering::Less => Err(Transient(
            &code::REMOTE_UNREACHABLE,
            format!("{} bytes of {expected} came", bytes.len()),
            None,
        )),
    }
}

/// Makes the final failure SR-2244 of a server that does not answer with the requested range.
fn ranges(why: &str) -> Failure {
    Final(&code::REMOTE_RANGES, why.to_owned())
}

/// Makes the final failure SR-2246 for a resource that has another ETag than before.
fn changed(now: &str, version: &Version) -> Failure {
    Final(
        &code::REMOTE_CHANGED,
        format!("its ETag is {} in place of {}", one_line(now), version.etag),
    )
}

/// Makes the failure for an error of the HTTP client: errors of TLS are final (SR-2242), and all
/// others transient (SR-2241).
fn translate_error(error: &ureq::Error) -> Failure {
    let unreachable = |text: String| Transient(&code::REMOTE_UNREACHABLE, text, None);
    match error {
        ureq::Error::Io(error) => {
            let inner = error.get_ref();
            match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(error) => translate_tls_error(error),
                None => unreachable(error.to_string()),
            }
        }
        ureq::Error::Rustls(error) => translate_tls_error(error),
        ureq::Error::Timeout(_) => unreachable("no answer in time".to_owned()),
        ureq::Error::HostNotFound => unreachable("the host is not known".to_owned()),
        ureq::Error::Tls(text) => Final(&code::REMOTE_TRUST, (*text).to_owned()),
        other => unreachable(one_line(&other.to_string())),
    }
}

/// Makes the failure SR-2242 for an error of TLS. It is final: another attempt would end the same
/// way.
fn translate_tls_error(error: &rustls::Error) -> Failure {
    match error {
        rustls::Error::InvalidCertificate(why) => Final(
            &code::REMOTE_TRUST,
            format!("its certificate is not accepted: {why}"),
        ),
        other => Final(&code::REMOTE_TRUST, one_line(&format!("TLS: {other}"))),
    }
}

/// Returns a text of others on one line, without control characters, of at most 200 characters.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_or_nothing() {
        assert_eq!(parse_range("bytes 0-9/10"), Some((0, 9, 10)));
        assert_eq!(parse_range("bytes 5-5/6"), Some((5, 5, 6)));
        for text in [
            "",
            "bytes",
            "bytes 0-9",
            "bytes 0-9/*",
            "bytes */10",
            "bytes 9-0/10",
            "bytes 0-10/10",
            "bytes 0-9/0",
            "octets 0-9/10",
            "bytes +0-9/10",
            "bytes 0-9/10 ",
            "bytes 0-9/99999999999999999999",
            "bytes -1-9/10",
            "bytes 0--9/10",
            "bytes=0-9/10",
        ] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }
}
