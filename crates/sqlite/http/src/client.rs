//! Requests for parts of one file, of one version.
//!
//! Invariants:
//! E1. The version is an ETag that is strong and a length. The first answer pins both; each later request carries the ETag
//!     as If-Match and If-Range, and its answer must be 206, show that ETag and exactly the range asked for, of that length.
//!     Anything else is an error, and none of its bytes are taken.
//! E2. A read ends by its deadline: each try has a limit within it, the waits between tries too.
//!
//! An answer's body is read up to the length that was asked for; whatever a server would send beyond it is not.
//! Must not: follow a redirection, believe a weak ETag, take compressed bytes, use a proxy from the environment.

use std::io::Read as _;
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body};

use crate::options::{Address, Options};

/// Longest header of an answer, in bytes.
const HEADER_MAX: usize = 16 * 1024;
/// Longest ETag, in bytes.
const ETAG_MAX: usize = 512;
/// Tries of one read.
const TRIES: u32 = 5;
/// Wait before the second try; twice as long before each further one.
const WAIT: Duration = Duration::from_millis(100);
/// Longest idle time after which a connection is used again.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// One version of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// With its quotes.
    pub(crate) etag: String,
    /// Length of the file in bytes.
    pub(crate) total: u64,
}

/// What a read wants: bytes from `start`, `len` of them, at least one.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// Asks one server for parts of one file.
pub(crate) struct Client {
    agent: Agent,
    address: Address,
    timeout: Duration,
}

/// Why a try brought nothing.
enum Failed {
    /// The next one may do better, after so long at least.
    Again(&'static Code, String, Option<Duration>),
    Final(&'static Code, String),
}

use Failed::{Again, Final};

impl Client {
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let address = options.address()?;
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(roots(options)?)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // Whatever the environment says.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .max_idle_age(IDLE_MAX)
            .max_response_header_size(HEADER_MAX)
            .user_agent(concat!("strongroom/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .build();
        Ok(Self {
            agent: Agent::new_with_config(config),
            address,
            timeout: options.timeout,
        })
    }

    /// The address, without its query.
    pub(crate) fn shown(&self) -> &str {
        &self.address.shown
    }

    /// The first `len` bytes, or all of a shorter file, and the version that they are of.
    pub(crate) fn first(&self, len: u64) -> Result<(Vec<u8>, Version), Error> {
        let range = Range { start: 0, len };
        self.tries(&mut |_, limit| {
            let answer = self.ask(range, None, false, limit)?;
            let version = self.version(&answer)?;
            let (start, end, total) = content_range(&answer)?;
            let expected = len.min(total);
            if start != 0 || end.checked_add(1) != Some(expected) {
                return Err(ranges("it answers with another range"));
            }
            let bytes = body(answer, expected)?;
            let Version { etag, .. } = version;
            Ok((bytes, Version { etag, total }))
        })
    }

    /// The bytes that `range` says at each try (the second and later ones may be told to want less), of `version`.
    /// `past_caches`: not what a cache on the way has kept.
    pub(crate) fn part(
        &self,
        range: &mut dyn FnMut(u32) -> Range,
        version: &Version,
        past_caches: bool,
    ) -> Result<(Range, Vec<u8>), Error> {
        self.tries(&mut |attempt, limit| {
            let range = range(attempt);
            let answer = self.ask(range, Some(version), past_caches, limit)?;
            let found = self.version(&answer)?;
            if found.etag != version.etag {
                return Err(changed(&found.etag, version));
            }
            let (start, end, total) = content_range(&answer)?;
            if total != version.total {
                return Err(Final(
                    &code::REMOTE_CHANGED,
                    format!("{total} bytes in place of {}", version.total),
                ));
            }
            if start != range.start || end.checked_add(1) != range.start.checked_add(range.len) {
                return Err(ranges("it answers with another range"));
            }
            Ok((range, body(answer, range.len)?))
        })
    }

    /// E2.
    fn tries<T>(
        &self,
        attempt: &mut dyn FnMut(u32, Duration) -> Result<T, Failed>,
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
            // The first tries leave time for another one, which asks for less.
            let limit = if number < 3 { left() / 2 } else { left() };
            let (code, text, at_least) = match attempt(number, limit.max(Duration::from_millis(1)))
            {
                Ok(done) => return Ok(done),
                Err(Final(code, text)) => return Err(Error::new(code, about(&text))),
                Err(Again(code, text, at_least)) => (code, text, at_least),
            };
            let pause = at_least.unwrap_or_default().max(wait);
            if number == TRIES || pause >= left() {
                return Err(Error::new(code, about(&text)));
            }
            sleep(pause);
            wait = wait.saturating_mul(2);
        }
    }

    /// One request, and what its answer's status and header say. The body is still to be read.
    fn ask(
        &self,
        range: Range,
        version: Option<&Version>,
        past_caches: bool,
        limit: Duration,
    ) -> Result<Response<Body>, Failed> {
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
        let answer = request
            .config()
            .timeout_global(Some(limit))
            .build()
            .call()
            .map_err(|error| told(&error))?;
        check_status(&answer, version)?;
        Ok(answer)
    }

    /// The version that an answer shows. Its length is not known yet.
    fn version(&self, answer: &Response<Body>) -> Result<Version, Failed> {
        let etag = etag_of(answer).ok_or_else(|| {
            let shown = one(answer, header::ETAG).unwrap_or_default();
            Final(&code::REMOTE_VALIDATOR, clean(&shown))
        })?;
        Ok(Version { etag, total: 0 })
    }
}

/// The authorities that are trusted: those of the file, else the system's, which are read once.
fn roots(options: &Options) -> Result<RootCerts, Error> {
    static SYSTEM: OnceLock<RootCerts> = OnceLock::new();
    let Some(path) = &options.ca else {
        return Ok(SYSTEM
            .get_or_init(|| {
                let found = rustls_native_certs::load_native_certs().certs;
                let certificates = found
                    .iter()
                    .map(|one| Certificate::from_der(one).to_owned());
                RootCerts::Specific(Arc::new(certificates.collect()))
            })
            .clone());
    };
    let shown = path.display();
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| Error::new(&code::REMOTE_URL, format!("http_ca {shown}: {error}")))?;
    if found.is_empty() {
        return Err(Error::new(
            &code::REMOTE_URL,
            format!("http_ca {shown}: there is no certificate in it"),
        ));
    }
    let certificates = found
        .iter()
        .map(|one| Certificate::from_der(one).to_owned());
    Ok(RootCerts::Specific(Arc::new(certificates.collect())))
}

/// E1, of everything but the range.
fn check_status(answer: &Response<Body>, version: Option<&Version>) -> Result<(), Failed> {
    let status = answer.status();
    match status {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::OK => {
            // Where the condition does not hold, a server sends the whole of what there is now.
            return Err(match (etag_of(answer), version) {
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
            let place = one(answer, header::LOCATION).unwrap_or_default();
            let shown = place.split(['?', '#']).next().unwrap_or_default();
            return Err(Final(
                &code::REMOTE_REDIRECT,
                format!("status {status}, to {}", clean(shown)),
            ));
        }
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let after = one(answer, header::RETRY_AFTER)
                .and_then(|text| text.parse().ok())
                .map(Duration::from_secs);
            return Err(Again(
                &code::REMOTE_STATUS,
                format!("status {status}"),
                after,
            ));
        }
        _ => return Err(Final(&code::REMOTE_STATUS, format!("status {status}"))),
    }
    let coded = answer.headers().get_all(header::CONTENT_ENCODING).iter();
    for coding in coded {
        if !coding.as_bytes().eq_ignore_ascii_case(b"identity") {
            return Err(ranges("it compresses what it sends"));
        }
    }
    Ok(())
}

/// The one value of a header, as text.
fn one(answer: &Response<Body>, name: header::HeaderName) -> Option<String> {
    let mut values = answer.headers().get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim().to_owned();
    values.next().is_none().then_some(value)
}

fn etag_of(answer: &Response<Body>) -> Option<String> {
    one(answer, header::ETAG).filter(|etag| etag_is_strong(etag))
}

/// RFC 9110, section 8.8.3: quotes, and visible characters but quotes between them; not `W/`.
pub(crate) fn etag_is_strong(etag: &str) -> bool {
    let inner = etag
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    etag.len() <= ETAG_MAX
        && inner.is_some_and(|inner| {
            inner
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'"')
        })
}

/// First byte, last byte and length of the file. RFC 9110, section 14.4.
fn content_range(answer: &Response<Body>) -> Result<(u64, u64, u64), Failed> {
    let text = one(answer, header::CONTENT_RANGE)
        .ok_or_else(|| ranges("it does not say which part it sends"))?;
    parse_range(&text).ok_or_else(|| ranges("it does not say which part it sends"))
}

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

/// Exactly `len` bytes. A shorter body is a connection that broke.
fn body(mut answer: Response<Body>, len: u64) -> Result<Vec<u8>, Failed> {
    let expected = usize::try_from(len).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(expected);
    answer
        .body_mut()
        .as_reader()
        .take(len.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| told(&ureq::Error::from(error)))?;
    match bytes.len().cmp(&expected) {
        std::cmp::Ordering::Equal => Ok(bytes),
        std::cmp::Ordering::Greater => Err(ranges("it sends more than was asked for")),
        std::cmp::Ordering::Less => Err(Again(
            &code::REMOTE_UNREACHABLE,
            format!("{} bytes of {expected} came", bytes.len()),
            None,
        )),
    }
}

fn ranges(why: &str) -> Failed {
    Final(&code::REMOTE_RANGES, why.to_owned())
}

fn changed(now: &str, version: &Version) -> Failed {
    Final(
        &code::REMOTE_CHANGED,
        format!("its ETag is {} in place of {}", clean(now), version.etag),
    )
}

/// What an error of the HTTP client means here.
fn told(error: &ureq::Error) -> Failed {
    let unreachable = |text: String| Again(&code::REMOTE_UNREACHABLE, text, None);
    match error {
        ureq::Error::Io(error) => {
            let inner = error.get_ref();
            match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(error) => told_tls(error),
                None => unreachable(error.to_string()),
            }
        }
        ureq::Error::Rustls(error) => told_tls(error),
        ureq::Error::Timeout(_) => unreachable("no answer in time".to_owned()),
        ureq::Error::HostNotFound => unreachable("the host is not known".to_owned()),
        ureq::Error::Tls(text) => Final(&code::REMOTE_TRUST, (*text).to_owned()),
        other => unreachable(clean(&other.to_string())),
    }
}

fn told_tls(error: &rustls::Error) -> Failed {
    match error {
        rustls::Error::InvalidCertificate(why) => Final(
            &code::REMOTE_TRUST,
            format!("its certificate is not accepted: {why}"),
        ),
        other => Final(&code::REMOTE_TRUST, clean(&format!("TLS: {other}"))),
    }
}

/// Text of others, cut short, on one line.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strong_tags_are_versions() {
        for etag in ["\"a\"", "\"\"", "\"66f-5e\"", "\"W/x\""] {
            assert!(etag_is_strong(etag), "{etag}");
        }
        let long = format!("\"{}\"", "x".repeat(ETAG_MAX));
        for etag in [
            "",
            "\"",
            "a",
            "W/\"a\"",
            "w/\"a\"",
            "\"a",
            "a\"",
            "\"a\"b\"",
            "\"a b\"",
            "\"\u{e9}\"",
            "\"a\r\n\"",
            long.as_str(),
        ] {
            assert!(!etag_is_strong(etag), "{etag}");
        }
    }

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
