//! The server's own authority: the only one whose certificates it believes, and that its nodes believe.
//!
//! Invariants: U1, of a request for a certificate only the public key is taken: name, use and time are the server's; U2, no request
//! becomes an authority. Whether a certificate counts is decided by the store at every request, not by its dates alone.
//!
//! Must not: keep the private key longer than one signature needs it.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
    SigningKey as _,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, alg_id};
use rustls::server::ParsedCertificate;
use strongroom_crypto::{random16, sha256};
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;
use time::OffsetDateTime;
use zeroize::{Zeroize as _, Zeroizing};

use crate::now;
use crate::records::Authority;

/// How long the authority's own certificate is valid.
const AUTHORITY_DAYS: u32 = 20 * 365;
/// Certificates begin earlier than now by this much: clocks differ.
const EARLIER_S: u64 = 3600;
const DAY_S: u64 = 86_400;

/// A certificate and its private key, in PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: Zeroizing<String>,
    /// SHA-256 of its public key.
    pub spki: String,
    /// SHA-256 of the certificate itself.
    pub fingerprint: String,
    /// When it ends, in seconds since the Unix epoch.
    pub expires: u64,
}

fn refused(error: rcgen::Error) -> Error {
    Error::new(&code::SERVER_TLS, error.to_string())
}

/// Makes an authority. `label` tells it from others.
///
/// # Errors
/// SR-5001.
pub fn create(label: &str) -> Result<Authority, Error> {
    let mut key = KeyPair::generate().map_err(refused)?;
    let mut params = params(&format!("Strongroom key server {label}"), AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(refused)?.pem();
    let digits = hex(key.serialized_der());
    key.zeroize();
    Ok(Authority {
        certificate,
        key: digits,
    })
}

/// A certificate for the server itself, valid for these names and addresses.
///
/// # Errors
/// SR-8440 for a name that cannot be in a certificate.
pub fn server(authority: &Authority, names: &[String], days: u32) -> Result<Issued, Error> {
    let first = names.first().map_or("", String::as_str);
    let mut params = params(first, days)?;
    params.subject_alt_names = names
        .iter()
        .map(|name| match name.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => Ok(SanType::DnsName(name.as_str().try_into().map_err(refused)?)),
        })
        .collect::<Result<_, Error>>()?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    with_new_key(authority, params)
}

/// A certificate with a new key for a client; only the first administrator gets one so.
///
/// # Errors
/// SR-5001.
pub fn client(authority: &Authority, name: &str, days: u32) -> Result<Issued, Error> {
    with_new_key(authority, client_params(name, days)?)
}

/// A certificate for a client that made its own key. `request`: PKCS #10 in PEM.
///
/// # Errors
/// SR-8429 when the request is not one, or its signature does not hold.
pub fn signed(
    authority: &Authority,
    request: &str,
    name: &str,
    days: u32,
) -> Result<Issued, Error> {
    let malformed = |_| Error::new(&code::SERVER_REQUEST, "the request for a certificate");
    let request = CertificateSigningRequestParams::from_pem(request).map_err(malformed)?;
    let params = client_params(name, days)?;
    let expires = unix(params.not_after);
    let certificate = by(authority, |issuer| {
        params.signed_by(&request.public_key, issuer)
    })?;
    let spki = spki_of(certificate.der())?;
    Ok(Issued {
        fingerprint: hex(&sha256(&[certificate.der()])),
        certificate: certificate.pem(),
        key: Zeroizing::default(),
        spki,
        expires,
    })
}

/// What a certificate says that a client showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// SHA-256 of its public key, in hexadecimal digits.
    pub spki: String,
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// The name that it was made for.
    pub name: String,
}

/// Reads a certificate that TLS has verified: what it says was written by this authority.
///
/// # Errors
/// SR-8440 when it is not a certificate, or has no name.
pub fn shown(certificate: &CertificateDer<'_>) -> Result<Shown, Error> {
    let malformed = || Error::new(&code::SERVER_TLS, "a certificate that cannot be read");
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| malformed())?;
    let name = parsed.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok());
    Ok(Shown {
        spki: spki_of(certificate)?,
        fingerprint: hex(&sha256(&[certificate])),
        serial: hex(parsed.raw_serial()),
        name: name.ok_or_else(malformed)?.to_owned(),
    })
}

/// SHA-256 of a certificate's public key, in hexadecimal digits.
///
/// # Errors
/// SR-8440 when it is not a certificate.
pub fn spki_of(certificate: &CertificateDer<'_>) -> Result<String, Error> {
    let malformed = |_| Error::new(&code::SERVER_TLS, "a certificate that cannot be read");
    let parsed = ParsedCertificate::try_from(certificate).map_err(malformed)?;
    Ok(hex(&sha256(&[parsed.subject_public_key_info().as_ref()])))
}

fn client_params(name: &str, days: u32) -> Result<CertificateParams, Error> {
    let mut params = params(name, days)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn params(name: &str, days: u32) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(&random16()?));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.not_before = instant(now().saturating_sub(EARLIER_S));
    params.not_after = instant(now().saturating_add(DAY_S.saturating_mul(days.into())));
    Ok(params)
}

fn instant(unix_s: u64) -> OffsetDateTime {
    let seconds = i64::try_from(unix_s).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn unix(instant: OffsetDateTime) -> u64 {
    u64::try_from(instant.unix_timestamp()).unwrap_or(0)
}

fn with_new_key(authority: &Authority, params: CertificateParams) -> Result<Issued, Error> {
    let mut key = KeyPair::generate().map_err(refused)?;
    let certificate = by(authority, |issuer| params.signed_by(&key, issuer))?;
    let pem = Zeroizing::new(key.serialize_pem());
    key.zeroize();
    Ok(Issued {
        spki: spki_of(certificate.der())?,
        fingerprint: hex(&sha256(&[certificate.der()])),
        certificate: certificate.pem(),
        key: pem,
        expires: unix(params.not_after),
    })
}

/// The authority's signature over a message, in hexadecimal digits: ECDSA on P-256 with SHA-256.
///
/// The message begins with a label, so that it can never be read as a certificate.
///
/// # Errors
/// SR-8435 when the authority's record is malformed; SR-8440.
pub fn sign(authority: &Authority, message: &[u8]) -> Result<String, Error> {
    let key = key_of(authority)?;
    let signed = key.sign(message).map_err(refused);
    wiped(key);
    Ok(hex(&signed?))
}

/// Whether `signature` is the authority's over a message. `authority`: its certificate in PEM.
///
/// # Errors
/// SR-8440 when the certificate cannot be read.
pub fn is_signed(authority: &[u8], message: &[u8], signature: &str) -> Result<bool, Error> {
    let malformed = || Error::new(&code::SERVER_TLS, "the authority's certificate");
    let der = CertificateDer::from_pem_slice(authority).map_err(|_| malformed())?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|_| malformed())?;
    let point = parsed.public_key().subject_public_key.as_ref();
    let provider = rustls::crypto::ring::default_provider();
    let known = provider.signature_verification_algorithms.all;
    let p256 = known.iter().find(|algorithm| {
        algorithm.public_key_alg_id() == alg_id::ECDSA_P256
            && algorithm.signature_alg_id() == alg_id::ECDSA_SHA256
    });
    let signature = from_hex(signature).unwrap_or_default();
    Ok(p256.is_some_and(|p256| p256.verify_signature(point, message, &signature).is_ok()))
}

fn key_of(authority: &Authority) -> Result<KeyPair, Error> {
    let broken = || Error::new(&code::SERVER_STORE, "the authority");
    let der = Zeroizing::new(from_hex(&authority.key).ok_or_else(broken)?);
    KeyPair::try_from(der.as_slice()).map_err(refused)
}

fn wiped(mut key: KeyPair) {
    key.zeroize();
}

fn by(
    authority: &Authority,
    sign: impl FnOnce(&Issuer<'_, &KeyPair>) -> Result<rcgen::Certificate, rcgen::Error>,
) -> Result<rcgen::Certificate, Error> {
    let key = key_of(authority)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, &key).map_err(refused)?;
    let signed = sign(&issuer).map_err(refused);
    drop(issuer);
    wiped(key);
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_request_only_the_public_key_is_taken() {
        let authority = create("test").unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["admin".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "admin");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let issued = signed(&authority, &request, "node-1", 30).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let text = String::from_utf8_lossy(&der).into_owned();
        assert!(text.contains("node-1") && !text.contains("admin"));
        // id-kp-clientAuth, and not id-kp-serverAuth; basicConstraints only ever says that it is no authority.
        let has = |oid: &[u8]| der.windows(oid.len()).any(|window| window == oid);
        assert!(has(&[0x2b, 6, 1, 5, 5, 7, 3, 2]) && !has(&[0x2b, 6, 1, 5, 5, 7, 3, 1]));
        assert!(!has(&[0x55, 0x1d, 0x13, 1, 1, 0xff, 4]));
        assert_eq!(issued.spki, spki_of(&der).unwrap());

        let mut forged = request.into_bytes();
        forged[120] ^= 1;
        let forged = String::from_utf8_lossy(&forged).into_owned();
        assert_eq!(
            signed(&authority, &forged, "x", 1)
                .err()
                .unwrap()
                .code()
                .number,
            8429
        );
        assert_eq!(
            signed(&authority, "", "x", 1).err().unwrap().code().number,
            8429
        );
    }
}
