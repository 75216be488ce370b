//! Requests to etcd's members: JSON over HTTP and TLS, in bounded time.
//!
//! Invariants: an address without TLS is accepted only for this host; the trust anchors are those
//! of the configuration and never the system's; after a failure, the caller knows whether the
//! request may have reached the member.
//!
//! Must not: interpret a request.

use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_tls::rustls::pki_types::CertificateDer;
use strongroom_tls::rustls::{ClientConfig, RootCertStore};
use strongroom_tls::{Identity, ServerCheck, TlsClient, authorities, certificates, http};
use ureq::Agent;

use crate::config::{Config, unusable};

/// The longest response, in bytes: a page of the largest records.
const RESPONSE_MAX: u64 = 256 * 1024 * 1024;
/// The longest part of a message of etcd that an error shows, in characters.
const MESSAGE_MAX: usize = 200;
/// The most connections to a member that stay open while nothing is sent.
const IDLE_MAX: usize = 10;
/// Codes of gRPC after which another try may succeed: unknown, deadline exceeded, aborted,
/// internal, unavailable.
const RETRYABLE: [i64; 5] = [2, 4, 10, 13, 14];
/// The code of gRPC for exhausted resources: too large a request, or no space.
const EXHAUSTED: i64 = 8;

/// Why a request failed.
pub(super) enum RequestError {
    /// Another member, or the same one later, may accept the request. `sent`: the request may have
    /// reached this member.
    Retryable { detail: String, sent: bool },
    /// Every member would refuse the request.
    Refused(String),
}

/// A member of the etcd cluster.
pub(super) struct Member {
    url: String,
    agent: Agent,
}

/// The body of a response that reports an error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    code: i64,
    message: String,
    error: String,
}

/// Prepares the members at these addresses, `URL,URL...`, and reads the TLS files. Connects to
/// none.
///
/// # Errors
/// SR-8434 for a malformed address, one without TLS on another host, or `https` without a
/// configured authority; SR-8440 for the TLS files.
pub(super) fn members(config: &Config, urls: &str) -> Result<Vec<Member>, Error> {
    let tls = Arc::new(tls_config(config)?);
    urls.split(',')
        .map(|url| {
            let rules = http::client_rules()
                .max_idle_connections(IDLE_MAX)
                .max_idle_connections_per_host(IDLE_MAX);
            Ok(Member {
                url: check_address(
                    url,
                    config
                        .etcd
                        .as_ref()
                        .is_some_and(|etcd| etcd.authority.is_some()),
                )?,
                agent: http::client(rules.build(), Some(Arc::clone(&tls))),
            })
        })
        .collect()
}

/// Checks the address of a member, `https://HOST:PORT`, or `http://` on this host, and returns it
/// without a slash at its end. SR-8434 for any other, and for `https` without TLS settings.
fn check_address(text: &str, with_tls: bool) -> Result<String, Error> {
    let refused = |why: &str| Error::new(&code::SERVER_CONFIG, format!("store, etcd: {why}"));
    let url = text.strip_suffix('/').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let (scheme, rest) = url
        .split_once("://")
        .ok_or_else(|| refused("an address is https://HOST:PORT"))?;
    if rest.is_empty() || !rest.bytes().all(plain) {
        return Err(refused("an address is https://HOST:PORT"));
    }
    match scheme {
        "https" if with_tls => Ok(url.to_owned()),
        "https" => Err(refused("[etcd] names no authority")),
        "http" if is_this_host(rest) => Ok(url.to_owned()),
        _ => Err(refused("another host is reached by https:// only")),
    }
}

/// Whether the host of `HOST:PORT` is a loopback address or `localhost`.
fn is_this_host(text: &str) -> bool {
    let host = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']').map_or(inner, |(host, _)| host),
        None => text.split_once(':').map_or(text, |(host, _)| host),
    };
    host == "localhost"
        || host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Builds the settings of TLS with the files that the configuration names. Without an authority no
/// member is trusted. SR-8434 for a certificate without a key, or a key without a certificate;
/// SR-8440 for a file.
fn tls_config(config: &Config) -> Result<ClientConfig, Error> {
    let etcd = config.etcd.as_ref();
    let roots = match etcd.and_then(|etcd| etcd.authority.as_deref()) {
        None => RootCertStore::empty(),
        Some(path) => read_authorities(&config.path(path))?,
    };
    let files = etcd.map(|etcd| (etcd.certificate.as_deref(), etcd.key.as_deref()));
    let (certificate, identity) = match files {
        None | Some((None, None)) => (None, None),
        Some((Some(certificate), Some(key))) => {
            let (certificate, key) = (config.path(certificate), config.path(key));
            let identity = read_identity(&certificate, &key)?;
            (Some(certificate), Some(identity))
        }
        _ => {
            let detail = "[etcd]: a certificate and its key, or none of them";
            return Err(Error::new(&code::SERVER_CONFIG, detail));
        }
    };
    TlsClient::new(ServerCheck::Authorities(roots))
        .identity(identity)
        .build()
        .map_err(|error| unusable(&certificate.unwrap_or_default(), &error))
}

/// Reads the certificates of a PEM file, at least one. SR-8440 if it cannot be read or has none.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = std::fs::read(path).map_err(|error| unusable(path, &error))?;
    certificates(&pem).map_err(|error| unusable(path, &error))
}

/// Reads a PEM file as trust anchors. SR-8440 if it cannot be read, has no certificate, or has one
/// that cannot be an authority.
fn read_authorities(path: &Path) -> Result<RootCertStore, Error> {
    authorities(read_certificates(path)?).map_err(|error| unusable(path, &error))
}

/// Reads a client certificate and its private key from PEM files. SR-8440 if one cannot be read.
/// Whether they belong together is checked later.
fn read_identity(certificate: &Path, key: &Path) -> Result<Identity, Error> {
    let chain = read_certificates(certificate)?;
    let pem = std::fs::read(key).map(zeroize::Zeroizing::new);
    let pem = pem.map_err(|error| unusable(key, &error))?;
    Identity::new(chain, &pem).map_err(|_| unusable(key, &"it is not a private key in PEM"))
}

impl Member {
    /// Sends a JSON request to this member, for at most `time`, and returns the body of a response
    /// with the status 200, of at most 256 MiB.
    ///
    /// # Errors
    /// [`RequestError::Retryable`] without a connection, in time or with a status or code that may
    /// pass; [`RequestError::Refused`] for an error that every member would report.
    pub(super) fn post(
        &self,
        path: &str,
        body: &[u8],
        time: Duration,
    ) -> Result<Vec<u8>, RequestError> {
        let sent = self
            .agent
            .post(format!("{}{path}", self.url))
            .config()
            .timeout_global(Some(time))
            .build()
            .content_type("application/json")
            .send(body);
        let mut response = sent.map_err(|error| self.transport_error(&error))?;
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        let mut reader = response.body_mut().as_reader().take(RESPONSE_MAX);
        reader
            .read_to_end(&mut bytes)
            .map_err(|error| self.transport_error(&ureq::Error::from(error)))?;
        match status {
            200 => Ok(bytes),
            _ => Err(self.response_error(status, &bytes)),
        }
    }

    /// Classifies an error of the HTTP client: always retryable, and marked as sent unless it is
    /// certain that the request did not reach the member.
    fn transport_error(&self, error: &ureq::Error) -> RequestError {
        use ureq::Timeout;
        let never_sent = match error {
            ureq::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
            ureq::Error::Timeout(when) => matches!(when, Timeout::Resolve | Timeout::Connect),
            _ => false,
        };
        RequestError::Retryable {
            detail: format!("etcd, {}: {error}", self.url),
            sent: !never_sent,
        }
    }

    /// Classifies a response with an error status by etcd's code: refused, also when etcd has no
    /// space; retryable where another try may succeed, or without a code. The detail has at most
    /// 200 characters of etcd's message.
    fn response_error(&self, status: u16, bytes: &[u8]) -> RequestError {
        let body: ErrorBody = serde_json::from_slice(bytes).unwrap_or_default();
        let message = match body.message.is_empty() {
            true => body.error,
            false => body.message,
        };
        let message: String = message
            .chars()
            .filter(|c| !c.is_control())
            .take(MESSAGE_MAX)
            .collect();
        let detail = format!("etcd, {}: status {status}: {message}", self.url);
        let no_space = message.contains("space exceeded");
        match body.code {
            EXHAUSTED if no_space => RequestError::Refused(detail),
            EXHAUSTED => RequestError::Retryable { detail, sent: true },
            code if RETRYABLE.contains(&code) => RequestError::Retryable { detail, sent: true },
            0 => RequestError::Retryable { detail, sent: true },
            _ => RequestError::Refused(detail),
        }
    }
}
