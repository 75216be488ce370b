//! A node's first contact: a key pair of its own, and a certificate for it against a one-time
//! token.
//!
//! Invariants: N1 (the server is verified with the authority's file that the operator brought,
//! never with what the server sends as its authority), N5 (token and private key), N8 (a token is
//! sent once, because it works once).

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use strongroom_crypto::SecretBytes;
use zeroize::{Zeroize as _, Zeroizing};

use crate::address::{Address, key_name_is_valid};
use crate::client::{Client, malformed, parse_json, post};
use crate::error::{Error, Kind, Result};
use crate::node::{REQUEST_TIMEOUT_S, TOTAL_TIMEOUT_S};
use crate::tls::{client_config, identity};
use crate::wire::Issued;

/// The longest token, in bytes.
const TOKEN_MAX: usize = 512;

/// What an enrolment needs.
pub struct Enrolment<'a> {
    /// `https://HOST:PORT`.
    pub server: &'a str,
    /// The authority's certificate in PEM, from a trusted source.
    pub authority: &'a [u8],
    /// The node's name, for which the token was made.
    pub node: &'a str,
    /// The one-time token.
    pub token: &'a SecretBytes,
}

/// A node's new identity.
pub struct Enrolled {
    /// The server's address, as it is written into the configuration.
    pub server: String,
    /// The role that the token gave.
    pub role: String,
    /// The certificate with its chain, in PEM.
    pub certificate: String,
    /// The private key in PEM.
    pub key: SecretBytes,
}

/// Enrols a node: makes a key pair, has `store_key` store the private key, sends the token to the
/// server, and returns the certificate that it issued. `store_key` is called before the token is
/// sent, because a token works once, and without the key the certificate would be useless. The
/// request is sent only once.
///
/// # Errors
/// [`Kind::Address`]; [`Kind::NodeFile`] if the authority cannot be used; [`Kind::Refused`] for an
/// invalid name of the node; [`Kind::Token`] if the token is malformed or the server does not
/// accept it; [`Kind::Uncertain`] when no response says whether the token was used;
/// [`Kind::Malformed`] for a response that is malformed, or a certificate of another node or
/// another key, after which the token was used; those of a request that no server decided; those of
/// `store_key`.
pub fn enrol<E: From<Error>>(
    enrolment: &Enrolment<'_>,
    store_key: impl FnOnce(&SecretBytes) -> std::result::Result<(), E>,
) -> std::result::Result<Enrolled, E> {
    let server = Address::parse(enrolment.server)?;
    let client = client(&server, enrolment.authority)?;
    let (key, request) = key_and_request(enrolment.node)?;
    let body = body(enrolment.token, &request)?;
    store_key(&key)?;
    let response = client
        .ask(&post(String::from("/v1/enroll"), &body, false))
        .map_err(|error| match error.kind() {
            Kind::Denied => error.with_kind(Kind::Token),
            _ => error,
        })?;
    let issued: Issued = parse_json(&response)?;
    if issued.node != enrolment.node {
        return Err(malformed("the certificate is for another node").into());
    }
    // Finds a certificate that does not belong to the key now, not at the next boot.
    identity(issued.certificate.as_bytes(), key.as_slice())
        .and_then(|identity| client_config(enrolment.authority, Some(identity)))
        .map_err(|why| malformed(&why))?;
    Ok(Enrolled {
        server: server.text().to_owned(),
        role: issued.role,
        certificate: issued.certificate,
        key,
    })
}

/// Makes a client without a certificate for one server, with the default times, which gives up
/// after a second while the server is absent. [`Kind::NodeFile`] if the authority's PEM cannot be
/// used.
fn client(server: &Address, authority: &[u8]) -> Result<Client> {
    let tls = client_config(authority, None)
        .map_err(|why| Error::new(Kind::NodeFile, format!("authority: {why}")))?;
    Ok(Client {
        addresses: vec![server.clone()],
        tls,
        request_timeout: Duration::from_secs(REQUEST_TIMEOUT_S),
        total_timeout: Duration::from_secs(TOTAL_TIMEOUT_S),
        absence_timeout: None,
    }
    // A person enrols a host, and waits for the result.
    .not_waiting())
}

/// Makes a new key pair. Returns the private key in PEM, in locked memory, and the request for its
/// certificate (PKCS #10 in PEM) with `node` as the common name.
///
/// # Errors
/// [`Kind::Refused`] for a name that no node may have; [`Kind::Host`] without random numbers or
/// locked memory.
pub(crate) fn key_and_request(node: &str) -> Result<(SecretBytes, String)> {
    if !key_name_is_valid(node) {
        let text = "a node's name has 1 to 128 characters of a-z, A-Z, 0-9, '.', '_', '-'";
        return Err(Error::new(Kind::Refused, text));
    }
    let failed = |error: rcgen::Error| Error::new(Kind::Host, error.to_string());
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, node);
    let request = params.serialize_request(&pair).map_err(failed)?;
    let request = request.pem().map_err(failed)?;
    let mut pem = pair.serialize_pem().into_bytes();
    let key = SecretBytes::take(&mut pem);
    let mut der = pair.serialize_der();
    der.zeroize();
    Ok((key?, request))
}

/// Writes the body of the request, `{"token":...,"csr":...}`, into memory that is wiped. White
/// space around the token is left out. [`Kind::Token`] if it is empty, longer than 512 bytes, or
/// has other characters than letters, digits, `.`, `_` and `-`.
fn body(token: &SecretBytes, request: &str) -> Result<Zeroizing<Vec<u8>>> {
    let text = token.as_slice().trim_ascii();
    // The characters of a token need no quoting.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    if text.is_empty() || text.len() > TOKEN_MAX || !text.iter().all(is_plain) {
        return Err(Error::new(Kind::Token, "that is not a token"));
    }
    let request = serde_json::to_string(request)
        .map_err(|error| Error::new(Kind::Host, error.to_string()))?;
    let mut body = Zeroizing::new(Vec::with_capacity(text.len() + request.len() + 32));
    body.extend_from_slice(b"{\"token\":\"");
    body.extend_from_slice(text);
    body.extend_from_slice(b"\",\"csr\":");
    body.extend_from_slice(request.as_bytes());
    body.push(b'}');
    Ok(body)
}
