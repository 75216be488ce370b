//! A small HTTP client: one request, one response, both bounded.
//!
//! Invariants R1 to R3: an exchange has one deadline; the body of a response has at most
//! [`BODY_MAX`] bytes and is read into locked memory; no redirection is followed, and no proxy is
//! taken from the environment. HTTP without TLS goes to this host only.
//!
//! Must not: put a header, a body or a server's text into an error.

use std::io::Read;
use std::sync::Arc;

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_tls::http;
use strongroom_tls::rustls;
use ureq::http::{HeaderName, HeaderValue, Uri};

use super::tls::{TlsFiles, translate_tls_error};
use crate::deadline::Deadline;

/// The longest body of a response, in bytes.
pub(crate) const BODY_MAX: usize = 32 * 1024;

/// A client of servers over TLS.
pub(crate) struct HttpClient {
    agent: ureq::Agent,
}

/// What a server has answered.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: SecretBytes,
}

/// What a server is asked.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    /// Names in lower case, and values; visible ASCII.
    pub(crate) headers: &'a [(&'a str, &'a [u8])],
    pub(crate) body: &'a [u8],
}

impl HttpClient {
    /// Makes a client that trusts the certificates of these files, which it reads, and identifies
    /// itself by them. Connects to nothing yet.
    ///
    /// # Errors
    /// SR-2123 when a file cannot be used.
    pub(crate) fn new(files: &TlsFiles) -> Result<Self, Error> {
        let rules = http::client_rules().accept("application/json").build();
        let tls = Arc::new(files.client_config()?);
        Ok(Self {
            agent: http::client(rules, Some(tls)),
        })
    }

    /// Sends a request once, and reads the response into locked memory whatever its status is,
    /// unless it redirects.
    ///
    /// # Errors
    /// SR-2101 when the server cannot be reached, or the deadline passes; SR-2102 when the client's
    /// certificate is refused; SR-2105 when the response redirects, is longer than 32 KiB, or is
    /// not HTTP; SR-2120 when the server's certificate is not trusted; SR-2124 without a common TLS
    /// version; SR-9001 for a request that is not HTTP.
    pub(crate) fn send(
        &self,
        request: &Request<'_>,
        deadline: Deadline,
    ) -> Result<Response, Error> {
        let bad = || Error::new(&code::BUG, "a question that is not HTTP");
        let mut built = ureq::http::Request::builder()
            .method(request.method)
            .uri(request.url)
            .body(request.body)
            .map_err(|_| bad())?;
        for (name, value) in request.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_bytes(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            built.headers_mut().append(name, value);
        }
        let built = self
            .agent
            .configure_request(built)
            .timeout_global(Some(deadline.remaining()?))
            .build();
        let response = self.agent.run(built);
        let mut response = response.map_err(|error| translate_error(&error, deadline))?;
        let status = response.status().as_u16();
        let body = read_body(&mut response.body_mut().as_reader(), deadline)?;
        if (300..400).contains(&status) {
            let detail = "it redirects, which is not followed";
            return Err(Error::new(&code::PROVIDER_ANSWER, detail));
        }
        Ok(Response { status, body })
    }
}

/// Reads a body of at most 32 KiB into locked memory. Errors: SR-2105 when it is longer; SR-2101
/// when the connection is lost or the deadline passes; SR-5001 when the system reports an error.
fn read_body(from: &mut dyn Read, deadline: Deadline) -> Result<SecretBytes, Error> {
    let mut held = SecretBytes::with_capacity(BODY_MAX + 1)?;
    let mut length = 0;
    loop {
        let Some(space) = held
            .as_mut_slice()
            .get_mut(length..)
            .filter(|rest| !rest.is_empty())
        else {
            return Err(Error::new(
                &code::PROVIDER_ANSWER,
                "it is longer than 32 KiB",
            ));
        };
        match from.read(space) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) => return Err(translate_error(&ureq::Error::from(error), deadline)),
        }
    }
    held.truncate(length);
    Ok(held)
}

/// Makes the error that a failed exchange means: SR-2101 for the connection and the deadline,
/// SR-2105 for what is not HTTP or too long, that of [`translate_tls_error`] for a failure of TLS.
/// The server's text is not in it.
fn translate_error(given: &ureq::Error, deadline: Deadline) -> Error {
    use std::io::ErrorKind;
    match given {
        ureq::Error::Timeout(_) => deadline.expired(),
        ureq::Error::HostNotFound => {
            Error::new(&code::PROVIDER_UNREACHABLE, "the host is not known")
        }
        ureq::Error::Rustls(given) => translate_tls_error(given),
        ureq::Error::Io(given) => {
            let inner = given.get_ref();
            if let Some(given) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                return translate_tls_error(given);
            }
            if let Some(given) = inner.and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
                return translate_error(given, deadline);
            }
            let what = match given.kind() {
                ErrorKind::ConnectionRefused => "the connection was refused",
                ErrorKind::TimedOut | ErrorKind::WouldBlock => return deadline.expired(),
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe => "the connection was lost",
                ErrorKind::InvalidData => {
                    return Error::new(&code::PROVIDER_ANSWER, "it is not HTTP");
                }
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    "there is no route to the host"
                }
                _ => "the connection failed",
            };
            Error::new(&code::PROVIDER_UNREACHABLE, what)
        }
        ureq::Error::ConnectionFailed => Error::new(&code::PROVIDER_UNREACHABLE, "no connection"),
        ureq::Error::Tls(_) => Error::new(&code::PROVIDER_TRUST, "its name cannot be checked"),
        ureq::Error::LargeResponseHeader(..) | ureq::Error::BodyExceedsLimit(_) => {
            Error::new(&code::PROVIDER_ANSWER, "it is too long")
        }
        _ => Error::new(&code::PROVIDER_ANSWER, "it is not HTTP"),
    }
}

/// Checks a server's address, and returns it as URLs begin with it: `https://host[:port][/path]`,
/// without a slash at its end. `http://` is accepted only for this host.
///
/// # Errors
/// A text that says why it is not valid.
pub(crate) fn base_url(text: &str) -> Result<String, &'static str> {
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

/// Whether a text can be a segment of a path in a URL without encoding: letters, digits, `-`, `_`
/// and `.`, but not dots alone.
pub(crate) fn is_path_segment(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(plain) && !text.bytes().all(|byte| byte == b'.')
}

/// Decodes a key of 32 bytes from base64, in locked memory.
///
/// # Errors
/// SR-2105 when it is not base64, or of another length; SR-5001 when the system reports an error.
pub(crate) fn decode_key(text: &str) -> Result<SecretKey, Error> {
    use base64::Engine as _;
    let wrong = || Error::new(&code::PROVIDER_ANSWER, "the response holds no root key");
    // The decoder wants room for three bytes of every four characters.
    let mut held = SecretBytes::with_capacity(text.len().min(BODY_MAX))?;
    let decoder = base64::engine::general_purpose::STANDARD;
    let length = decoder.decode_slice(text, held.as_mut_slice());
    held.truncate(length.map_err(|_| wrong())?);
    let mut key: [u8; 32] = held.as_slice().try_into().map_err(|_| wrong())?;
    Ok(SecretKey::take(&mut key)?)
}

/// Encodes bytes in base64, in locked memory.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub(crate) fn encode_base64(bytes: &[u8]) -> Result<SecretBytes, Error> {
    use base64::Engine as _;
    let mut held = SecretBytes::with_capacity(bytes.len().div_ceil(3) * 4)?;
    let encoder = base64::engine::general_purpose::STANDARD;
    let length = encoder.encode_slice(bytes, held.as_mut_slice());
    held.truncate(length.map_err(|_| Error::new(&code::BUG, "base64"))?);
    Ok(held)
}

/// Concatenates pieces in locked memory, for a body with a secret in it.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub(crate) fn concat_locked(pieces: &[&[u8]]) -> Result<SecretBytes, Error> {
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
            assert_eq!(base_url(text).unwrap(), expected);
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
            assert!(base_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pieces_of_a_path_lead_nowhere_else() {
        assert!(is_path_segment("transit") && is_path_segment("a.b-c_1"));
        for text in ["", ".", "..", "a/b", "a%2f", "a b", "a?b", "\u{e9}"] {
            assert!(!is_path_segment(text), "{text}");
        }
    }

    #[test]
    fn keys_have_32_bytes() {
        let key = [7; 32];
        let text = encode_base64(&key).unwrap();
        let text = std::str::from_utf8(text.as_slice()).unwrap();
        assert_eq!(decode_key(text).unwrap().expose(), &key);
        for wrong in ["", "AAAA", "!", &text[1..], &format!("{text}AAAA")] {
            assert_eq!(decode_key(wrong).err().unwrap().code().number, 2105);
        }
        assert_eq!(
            concat_locked(&[b"a", b"", b"bc"]).unwrap().as_slice(),
            b"abc"
        );
    }
}
