//! The way to etcd's members: HTTP with JSON, over TLS, in bounded time.
//!
//! Invariants: an address without TLS is taken for this host only; the trust anchors are those of the configuration, the
//! system's are never read; whether a request may have reached a member is known afterwards.
//!
//! Must not: know what is asked.

use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use strongroom_format::code;
use strongroom_keyring::Error;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::config::Config;

/// Longest answer, in bytes: a page of the largest records.
const ANSWER_MAX: u64 = 256 * 1024 * 1024;
/// Longest words of etcd that are shown.
const WORDS_MAX: usize = 200;
/// Codes of gRPC after which another try can be of use: unknown, deadline exceeded, aborted, internal, unavailable.
const AGAIN: [i64; 5] = [2, 4, 10, 13, 14];
/// Resource exhausted: too much is asked for at once, or there is no space.
const EXHAUSTED: i64 = 8;

/// Why a member gave no answer.
pub(super) enum Fault {
    /// Another member, or this one later, may give one. `sent`: the request may have reached this one all the same.
    Again { detail: String, sent: bool },
    /// No member would.
    Refused(String),
}

/// A member of etcd.
pub(super) struct Member {
    url: String,
    agent: Agent,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Words {
    code: i64,
    message: String,
    error: String,
}

/// The members of `URL,URL...`.
///
/// # Errors
/// SR-8434 for an address; SR-8440 for the files of TLS.
pub(super) fn members(config: &Config, urls: &str) -> Result<Vec<Member>, Error> {
    let tls = tls(config)?;
    urls.split(',')
        .map(|url| {
            let agent = Agent::config_builder()
                .http_status_as_error(false)
                .proxy(None)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .max_idle_connections_per_host(16)
                .tls_config(tls.clone());
            Ok(Member {
                url: address(
                    url,
                    config
                        .etcd
                        .as_ref()
                        .is_some_and(|etcd| etcd.authority.is_some()),
                )?,
                agent: agent.build().new_agent(),
            })
        })
        .collect()
}

fn address(text: &str, with_tls: bool) -> Result<String, Error> {
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

/// Whether `HOST:PORT` is this host, by its address or its name for itself.
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

fn tls(config: &Config) -> Result<TlsConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::clone(&provider));
    let etcd = config.etcd.as_ref();
    let authority = match etcd.and_then(|etcd| etcd.authority.as_deref()) {
        None => Vec::new(),
        Some(path) => authority(&config.path(path))?,
    };
    let builder = builder.root_certs(RootCerts::new_with_certs(&authority));
    let identity = etcd.map(|etcd| (etcd.certificate.as_deref(), etcd.key.as_deref()));
    Ok(match identity {
        None | Some((None, None)) => builder.build(),
        Some((Some(certificate), Some(key))) => {
            let (certificate, key) = (config.path(certificate), config.path(key));
            let identity = identity_of(&certificate, &key, &provider)?;
            builder.client_cert(Some(identity)).build()
        }
        _ => {
            let detail = "[etcd]: a certificate and its key, or none of them";
            return Err(Error::new(&code::SERVER_CONFIG, detail));
        }
    })
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::new(&code::SERVER_TLS, format!("{}: {why}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(path, &error.to_string()))?;
    match found.is_empty() {
        true => Err(unusable(path, "there is no certificate in it")),
        false => Ok(found),
    }
}

fn authority(path: &Path) -> Result<Vec<Certificate<'static>>, Error> {
    let found = certificates(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &found {
        roots
            .add(certificate.clone())
            .map_err(|error| unusable(path, &error.to_string()))?;
    }
    let owned = |one: &CertificateDer<'_>| Certificate::from_der(one).to_owned();
    Ok(found.iter().map(owned).collect())
}

/// Checked here: the HTTP client takes a pair that does not belong together for a defect of its caller.
fn identity_of(
    certificate: &Path,
    key: &Path,
    provider: &rustls::crypto::CryptoProvider,
) -> Result<ClientCert, Error> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|_| unusable(key, "it is not a private key in PEM"))?;
    CertifiedKey::from_der(chain.clone(), private, provider)
        .map_err(|error| unusable(certificate, &error.to_string()))?;
    let pem = zeroize::Zeroizing::new(
        std::fs::read(key).map_err(|error| Error::io(key.display().to_string(), error))?,
    );
    let private = PrivateKey::from_pem(&pem).map_err(|_| unusable(key, "it is not PEM"))?;
    let owned = |one: &CertificateDer<'_>| Certificate::from_der(one).to_owned();
    let chain: Vec<_> = chain.iter().map(owned).collect();
    Ok(ClientCert::new_with_certs(&chain, private))
}

impl Member {
    /// The answer to a request.
    pub(super) fn post(&self, path: &str, body: &[u8], time: Duration) -> Result<Vec<u8>, Fault> {
        let asked = self
            .agent
            .post(format!("{}{path}", self.url))
            .config()
            .timeout_global(Some(time))
            .build()
            .content_type("application/json")
            .send(body);
        let mut answer = asked.map_err(|error| self.broken(&error))?;
        let status = answer.status().as_u16();
        let mut bytes = Vec::new();
        let mut reader = answer.body_mut().as_reader().take(ANSWER_MAX);
        reader
            .read_to_end(&mut bytes)
            .map_err(|error| self.broken(&ureq::Error::from(error)))?;
        match status {
            200 => Ok(bytes),
            _ => Err(self.refused(status, &bytes)),
        }
    }

    fn broken(&self, error: &ureq::Error) -> Fault {
        use ureq::Timeout;
        let never_sent = match error {
            ureq::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
            ureq::Error::Timeout(when) => matches!(when, Timeout::Resolve | Timeout::Connect),
            _ => false,
        };
        Fault::Again {
            detail: format!("etcd, {}: {error}", self.url),
            sent: !never_sent,
        }
    }

    fn refused(&self, status: u16, bytes: &[u8]) -> Fault {
        let words: Words = serde_json::from_slice(bytes).unwrap_or_default();
        let said = match words.message.is_empty() {
            true => words.error,
            false => words.message,
        };
        let said: String = said
            .chars()
            .filter(|c| !c.is_control())
            .take(WORDS_MAX)
            .collect();
        let detail = format!("etcd, {}: status {status}: {said}", self.url);
        let no_space = said.contains("space exceeded");
        match words.code {
            EXHAUSTED if no_space => Fault::Refused(detail),
            EXHAUSTED => Fault::Again { detail, sent: true },
            code if AGAIN.contains(&code) => Fault::Again { detail, sent: true },
            0 => Fault::Again { detail, sent: true },
            _ => Fault::Refused(detail),
        }
    }
}
