//! A node's first contact: a key pair of its own, and a certificate for it against a one-time
//! token.
//!
//! Invariants: N1 (the server is verified with the authority's file that the operator brought; what
//! the server sends as its authority is not used), N5 (token and private key), N8 (a token is sent
//! once: it works once).

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use strongroom_crypto::SecretBytes;
use zeroize::{Zeroize as _, Zeroizing};

use crate::address::{Address, key_name_is_valid};
use crate::client::{Client, change, malformed, parsed};
use crate::error::{Error, Kind, Result};
use crate::node::{REQUEST_TIMEOUT_S, TOTAL_TIMEOUT_S};
use crate::tls::{client_config, identity};
use crate::wire::Issued;

/// Longest token, in bytes.
const TOKEN_MAX: usize = 512;

/// What an enrolment needs.
pub struct Enrolment<'a> {
    /// `https://HOST:PORT`.
    pub server: &'a str,
    /// The authority's certificate in PEM, brought here by a way that is trusted.
    pub authority: &'a [u8],
    /// The node's name, as the token was made for.
    pub node: &'a str,
    /// The one-time token.
    pub token: &'a SecretBytes,
}

/// A node's new identity.
pub struct Enrolled {
    /// The server's address as it belongs into the configuration.
    pub server: String,
    /// The role that the token gave.
    pub role: String,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: SecretBytes,
}

/// Enrols a node. `keep` is given the private key before the token is sent, and has to keep it: a
/// token that is used up for a key that is lost would be of no use.
///
/// # Errors
/// [`Kind::Token`], [`Kind::Uncertain`] when the answer was lost, and others; or what `keep` fails
/// with.
pub fn enrol<E: From<Error>>(
    enrolment: &Enrolment<'_>,
    keep: impl FnOnce(&SecretBytes) -> std::result::Result<(), E>,
) -> std::result::Result<Enrolled, E> {
    let server = Address::parse(enrolment.server)?;
    let client = client(&server, enrolment.authority)?;
    let (key, request) = key_and_request(enrolment.node)?;
    let body = body(enrolment.token, &request)?;
    keep(&key)?;
    let answer = client
        .ask(&change(String::from("/v1/enroll"), &body, false))
        .map_err(|error| match error.kind() {
            Kind::Denied => error.with_kind(Kind::Token),
            _ => error,
        })?;
    let issued: Issued = parsed(&answer)?;
    if issued.node != enrolment.node {
        return Err(malformed("the certificate is for another node").into());
    }
    // A certificate that is not this key's is found here, not at the next boot.
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

fn client(server: &Address, authority: &[u8]) -> Result<Client> {
    let tls = client_config(authority, None)
        .map_err(|why| Error::new(Kind::NodeFile, format!("authority: {why}")))?;
    Ok(Client {
        addresses: vec![server.clone()],
        tls,
        request_timeout: Duration::from_secs(REQUEST_TIMEOUT_S),
        total_timeout: Duration::from_secs(TOTAL_TIMEOUT_S),
        nobody_timeout: None,
    }
    // Somebody who joins a host sits in front of it.
    .not_waiting())
}

/// A private key in PEM, and the request for its certificate.
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

/// `{"token":...,"csr":...}`, in memory that is wiped.
fn body(token: &SecretBytes, request: &str) -> Result<Zeroizing<Vec<u8>>> {
    let text = token.as_slice().trim_ascii();
    // The characters of tokens need no quoting; anything else is not one.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    if text.is_empty() || text.len() > TOKEN_MAX || !text.iter().all(plain) {
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
