//! A small HTTP client: one question, one answer, both bounded.
//!
//! Invariants R1 to R3: a whole exchange has one deadline; an answer is at most [`ANSWER_MAX`]
//! bytes, read into locked memory; no redirection is followed, and no proxy is taken from the
//! environment. HTTP without TLS goes to this host only.
//!
//! Must not: put a header, a body or what a server says into an error.

use std::io::Read;

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::Error;
use ureq::http::{HeaderName, HeaderValue, Request, Uri};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::deadline::Deadline;
use super::error;
use super::tls::{Trust, failure};

/// Most bytes of an answer's body.
pub(crate) const ANSWER_MAX: usize = 32 * 1024;
/// Most bytes of an answer's head.
const HEAD_MAX: usize = 16 * 1024;

/// A client.
pub(crate) struct Http {
    agent: ureq::Agent,
}

/// What a server has answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: SecretBytes,
}

/// What is asked.
pub(crate) struct Question<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    /// Names in lower case, and values; visible ASCII.
    pub(crate) headers: &'a [(&'a str, &'a [u8])],
    pub(crate) body: &'a [u8],
}

impl Http {
    /// A client that trusts so, and identifies itself so.
    ///
    /// # Errors
    /// SR-2123.
    pub(crate) fn new(trust: &Trust) -> Result<Self, Error> {
        let roots: Vec<_> = trust.roots()?;
        let roots: Vec<_> = roots
            .iter()
            .map(|root| Certificate::from_der(root))
            .collect();
        let roots: Vec<_> = roots.iter().map(Certificate::to_owned).collect();
        let pair = match (trust.pair()?, trust.private_key()?) {
            (Some((chain, _)), Some(pem)) => {
                let chain = chain
                    .iter()
                    .map(|one| Certificate::from_der(one).to_owned());
                let chain: Vec<_> = chain.collect();
                let unusable = |_| error(&code::PROVIDER_CREDENTIALS, "the private key");
                let key = PrivateKey::from_pem(pem.as_slice()).map_err(unusable)?;
                Some(ClientCert::new_with_certs(&chain, key))
            }
            _ => None,
        };
        let provider = rustls::crypto::ring::default_provider();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(pair)
            .unversioned_rustls_crypto_provider(std::sync::Arc::new(provider))
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_response_header_size(HEAD_MAX)
            .max_idle_connections(0)
            .user_agent(concat!("strongroom/", env!("CARGO_PKG_VERSION")))
            .accept("application/json")
            .build();
        Ok(Self {
            agent: config.new_agent(),
        })
    }

    /// Asks once.
    ///
    /// # Errors
    /// SR-2101, SR-2102 (a certificate that is refused), SR-2105, SR-2120.
    pub(crate) fn ask(&self, question: &Question<'_>, deadline: Deadline) -> Result<Answer, Error> {
        let bad = || error(&code::BUG, "a question that is not HTTP");
        let mut request = Request::builder()
            .method(question.method)
            .uri(question.url)
            .body(question.body)
            .map_err(|_| bad())?;
        for (name, value) in question.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_bytes(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            request.headers_mut().append(name, value);
        }
        let request = self
            .agent
            .configure_request(request)
            .timeout_global(Some(deadline.left()?))
            .build();
        let answer = self.agent.run(request);
        let mut answer = answer.map_err(|error| failed(&error, deadline))?;
        let status = answer.status().as_u16();
        let body = read_all(&mut answer.body_mut().as_reader(), deadline)?;
        if (300..400).contains(&status) {
            let detail = "it redirects, which is not followed";
            return Err(error(&code::PROVIDER_ANSWER, detail));
        }
        Ok(Answer { status, body })
    }
}

/// Reads a body into locked memory.
fn read_all(from: &mut dyn Read, deadline: Deadline) -> Result<SecretBytes, Error> {
    let mut held = SecretBytes::with_capacity(ANSWER_MAX + 1)?;
    let mut length = 0;
    loop {
        let Some(space) = held
            .as_mut_slice()
            .get_mut(length..)
            .filter(|rest| !rest.is_empty())
        else {
            return Err(error(&code::PROVIDER_ANSWER, "it is longer than 32 KiB"));
        };
        match from.read(space) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) => return Err(failed(&ureq::Error::from(error), deadline)),
        }
    }
    held.truncate(length);
    Ok(held)
}

/// What a failed exchange means.
fn failed(given: &ureq::Error, deadline: Deadline) -> Error {
    use std::io::ErrorKind;
    match given {
        ureq::Error::Timeout(_) => deadline.passed(),
        ureq::Error::HostNotFound => error(&code::PROVIDER_UNREACHABLE, "the host is not known"),
        ureq::Error::Rustls(given) => failure(given),
        ureq::Error::Io(given) => {
            let inner = given.get_ref();
            if let Some(given) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                return failure(given);
            }
            if let Some(given) = inner.and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
                return failed(given, deadline);
            }
            let what = match given.kind() {
                ErrorKind::ConnectionRefused => "the connection was refused",
                ErrorKind::TimedOut | ErrorKind::WouldBlock => return deadline.passed(),
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe => "the connection was lost",
                ErrorKind::InvalidData => return error(&code::PROVIDER_ANSWER, "it is not HTTP"),
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    "there is no route to the host"
                }
                _ => "the connection failed",
            };
            error(&code::PROVIDER_UNREACHABLE, what)
        }
        ureq::Error::ConnectionFailed => error(&code::PROVIDER_UNREACHABLE, "no connection"),
        ureq::Error::Tls(_) => error(&code::PROVIDER_TRUST, "its name cannot be checked"),
        ureq::Error::LargeResponseHeader(..) | ureq::Error::BodyExceedsLimit(_) => {
            error(&code::PROVIDER_ANSWER, "it is too long")
        }
        _ => error(&code::PROVIDER_ANSWER, "it is not HTTP"),
    }
}

/// A server's address as the beginning of URLs: `https://host[:port][/path]`, without a slash at
/// its end. HTTP without TLS only to this host.
///
/// # Errors
/// Why it is not valid.
pub(crate) fn base(text: &str) -> Result<String, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "the address is no URL")?;
    let authority = uri.authority().map(|authority| authority.as_str());
    let authority = authority.filter(|authority| !authority.contains('@'));
    let (Some(scheme), Some(authority), Some(host)) = (uri.scheme_str(), authority, uri.host())
    else {
        return Err("the address is https://HOST[:PORT], without a user");
    };
    if uri.query().is_some() || host.is_empty() {
        return Err("the address is https://HOST[:PORT][/PATH]");
    }
    let here = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
    if scheme != "https" && !(scheme == "http" && here) {
        return Err("the address is https://..., and http:// only for this host");
    }
    let path = uri.path().trim_end_matches('/');
    Ok(format!("{scheme}://{authority}{path}"))
}

/// Whether a piece of a path can stand in a URL as it is and cannot lead elsewhere.
pub(crate) fn is_path_piece(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(plain) && !text.bytes().all(|byte| byte == b'.')
}

/// 32 bytes in base64, as a key.
///
/// # Errors
/// SR-2105.
pub(crate) fn key_of(text: &str) -> Result<SecretKey, Error> {
    use base64::Engine as _;
    let wrong = || error(&code::PROVIDER_ANSWER, "the response holds no root key");
    // The decoder wants room for three bytes of every four characters.
    let mut held = SecretBytes::with_capacity(text.len().min(ANSWER_MAX))?;
    let decoder = base64::engine::general_purpose::STANDARD;
    let length = decoder.decode_slice(text, held.as_mut_slice());
    held.truncate(length.map_err(|_| wrong())?);
    let mut key: [u8; 32] = held.as_slice().try_into().map_err(|_| wrong())?;
    Ok(SecretKey::take(&mut key)?)
}

/// Bytes in base64, in locked memory.
///
/// # Errors
/// SR-5001.
pub(crate) fn base64_of(bytes: &[u8]) -> Result<SecretBytes, Error> {
    use base64::Engine as _;
    let mut held = SecretBytes::with_capacity(bytes.len().div_ceil(3) * 4)?;
    let encoder = base64::engine::general_purpose::STANDARD;
    let length = encoder.encode_slice(bytes, held.as_mut_slice());
    held.truncate(length.map_err(|_| error(&code::BUG, "base64"))?);
    Ok(held)
}

/// The pieces one after another, in locked memory: a body with a secret in it.
///
/// # Errors
/// SR-5001.
pub(crate) fn joined(pieces: &[&[u8]]) -> Result<SecretBytes, Error> {
    let mut held = SecretBytes::with_capacity(pieces.iter().map(|piece| piece.len()).sum())?;
    let mut rest = held.as_mut_slice();
    for piece in pieces {
        let (place, behind) = rest.split_at_mut(piece.len());
        place.copy_from_slice(piece);
        rest = behind;
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for (text, expected) in [
            ("https://kms.example", "https://kms.example"),
            ("https://kms.example:8200/a/", "https://kms.example:8200/a"),
            ("http://127.0.0.1:25000", "http://127.0.0.1:25000"),
            ("http://[::1]:1", "http://[::1]:1"),
        ] {
            assert_eq!(base(text).unwrap(), expected);
        }
        for text in [
            "http://kms.example",
            "http://127.0.0.1.example",
            "https://user:CANARY@kms.example",
            "ftp://127.0.0.1",
            "kms.example",
            "https://",
            "https://kms.example?a=CANARY",
            "",
        ] {
            assert!(base(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pieces_of_a_path_lead_nowhere_else() {
        assert!(is_path_piece("transit") && is_path_piece("a.b-c_1"));
        for text in ["", ".", "..", "a/b", "a%2f", "a b", "a?b", "\u{e9}"] {
            assert!(!is_path_piece(text), "{text}");
        }
    }

    #[test]
    fn keys_have_32_bytes() {
        let key = [7; 32];
        let text = base64_of(&key).unwrap();
        let text = std::str::from_utf8(text.as_slice()).unwrap();
        assert_eq!(key_of(text).unwrap().expose(), &key);
        for wrong in ["", "AAAA", "!", &text[1..], &format!("{text}AAAA")] {
            assert_eq!(key_of(wrong).err().unwrap().code().number, 2105);
        }
        assert_eq!(joined(&[b"a", b"", b"bc"]).unwrap().as_slice(), b"abc");
    }
}
