//! The server's own certificate authority, the only one that the server and its nodes trust.
//!
//! Invariants:
//! - U1: Only the public key is taken from a request for a certificate. The server decides about
//!   the name, the use and the validity.
//! - U2: No certificate that is issued for a request is one of an authority.
//!
//! The store decides for every request whether a certificate is still valid, not its dates alone.
//!
//! Must not: keep the private key longer than one signature takes.

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

/// How long the authority's own certificate is valid, in days.
const AUTHORITY_DAYS: u32 = 20 * 365;
/// How long before now a certificate becomes valid, in seconds, because clocks differ.
const BACKDATED_S: u64 = 3600;
const DAY_S: u64 = 86_400;

/// A certificate and its private key, in PEM.
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8 in PEM; empty when the client made it.
    pub key: Zeroizing<String>,
    /// SHA-256 of its public key, in hexadecimal digits.
    pub spki: String,
    /// SHA-256 of the certificate itself, in hexadecimal digits.
    pub fingerprint: String,
    /// When it expires, in seconds since the Unix epoch.
    pub expires: u64,
}

/// Converts an error of the certificate library (SR-8440).
fn tls_error(error: rcgen::Error) -> Error {
    Error::new(&code::SERVER_TLS, error.to_string())
}

/// Creates an authority: a new key and a certificate signed with it, valid for twenty years.
/// `label` becomes a part of its name. Nothing is stored.
///
/// # Errors
/// SR-8440 when the certificate cannot be made; SR-5001 without random numbers.
pub fn create_authority(label: &str) -> Result<Authority, Error> {
    let mut key = KeyPair::generate().map_err(tls_error)?;
    let mut params = params(&format!("Strongroom key server {label}"), AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(tls_error)?.pem();
    let digits = hex(key.serialized_der());
    key.zeroize();
    Ok(Authority {
        certificate,
        key: digits,
    })
}

/// Issues a certificate with a new key for the server itself, valid for these names and IP
/// addresses and for `days` days. Nothing is stored.
///
/// # Errors
/// SR-8440 for a name that cannot be in a certificate; SR-8435 when the authority's record is
/// malformed; SR-5001 without random numbers.
pub fn issue_server_certificate(
    authority: &Authority,
    names: &[String],
    days: u32,
) -> Result<IssuedCertificate, Error> {
    let first = names.first().map_or("", String::as_str);
    let mut params = params(first, days)?;
    params.subject_alt_names = names
        .iter()
        .map(|name| match name.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => Ok(SanType::DnsName(
                name.as_str().try_into().map_err(tls_error)?,
            )),
        })
        .collect::<Result<_, Error>>()?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    with_new_key(authority, params)
}

/// Issues a certificate with a new key for a client, valid for `days` days. Only administrators
/// created with the root key get their key from the server. Nothing is stored.
///
/// # Errors
/// SR-8440 if the certificate cannot be signed; SR-8435 when the authority's record is malformed;
/// SR-5001 without random numbers.
pub fn issue_client_certificate(
    authority: &Authority,
    name: &str,
    days: u32,
) -> Result<IssuedCertificate, Error> {
    with_new_key(authority, client_params(name, days)?)
}

/// Issues a certificate for a client that made its own key, valid for `days` days. Only the public
/// key is taken from `request`, PKCS #10 in PEM. Nothing is stored.
///
/// # Errors
/// SR-8429 when the request is malformed or its signature is invalid; SR-8435 when the authority's
/// record is malformed; SR-8440 if the certificate cannot be signed; SR-5001 without random
/// numbers.
pub fn sign_request(
    authority: &Authority,
    request: &str,
    name: &str,
    days: u32,
) -> Result<IssuedCertificate, Error> {
    let malformed = |_| Error::new(&code::SERVER_REQUEST, "the request for a certificate");
    let request = CertificateSigningRequestParams::from_pem(request).map_err(malformed)?;
    let params = client_params(name, days)?;
    let expires = to_unix_s(params.not_after);
    let certificate = with_issuer(authority, |issuer| {
        params.signed_by(&request.public_key, issuer)
    })?;
    let spki = spki_of(certificate.der())?;
    Ok(IssuedCertificate {
        fingerprint: hex(&sha256(&[certificate.der()])),
        certificate: certificate.pem(),
        key: Zeroizing::default(),
        spki,
        expires,
    })
}

/// What a client's certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// SHA-256 of its public key, in hexadecimal digits.
    pub spki: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// The name of the client for which it was issued.
    pub name: String,
}

/// Parses a certificate that TLS has verified, so that this authority wrote what it says. Whether
/// it is still valid is not checked.
///
/// # Errors
/// SR-8440 when it is not a certificate, or has no name.
pub fn parse_client_certificate(
    certificate: &CertificateDer<'_>,
) -> Result<ClientCertificate, Error> {
    let malformed = || Error::new(&code::SERVER_TLS, "a certificate that cannot be read");
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| malformed())?;
    let name = parsed.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok());
    Ok(ClientCertificate {
        spki: spki_of(certificate)?,
        fingerprint: hex(&sha256(&[certificate])),
        serial: hex(parsed.raw_serial()),
        name: name.ok_or_else(malformed)?.to_owned(),
    })
}

/// Returns the SHA-256 of a certificate's public key (its `SubjectPublicKeyInfo`), in hexadecimal
/// digits.
///
/// # Errors
/// SR-8440 when it is not a certificate.
pub fn spki_of(certificate: &CertificateDer<'_>) -> Result<String, Error> {
    let malformed = |_| Error::new(&code::SERVER_TLS, "a certificate that cannot be read");
    let parsed = ParsedCertificate::try_from(certificate).map_err(malformed)?;
    Ok(hex(&sha256(&[parsed.subject_public_key_info().as_ref()])))
}

/// Returns the content of a client's certificate: as [`params`], for use as a TLS client. SR-5001
/// without random numbers.
fn client_params(name: &str, days: u32) -> Result<CertificateParams, Error> {
    let mut params = params(name, days)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// Returns the content of a certificate with this common name and a random serial number, valid
/// from an hour ago for `days` days from now. SR-5001 without random numbers.
fn params(name: &str, days: u32) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(&random16()?));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.not_before = to_date_time(now().saturating_sub(BACKDATED_S));
    params.not_after = to_date_time(now().saturating_add(DAY_S.saturating_mul(days.into())));
    Ok(params)
}

/// Converts seconds since the Unix epoch into a date. A date out of range becomes the epoch itself.
fn to_date_time(unix_s: u64) -> OffsetDateTime {
    let seconds = i64::try_from(unix_s).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Converts a date into seconds since the Unix epoch; 0 for an earlier one.
fn to_unix_s(at: OffsetDateTime) -> u64 {
    u64::try_from(at.unix_timestamp()).unwrap_or(0)
}

/// Makes a key pair, signs a certificate for it with the authority's key, and returns both. SR-8440
/// if the certificate cannot be signed; SR-8435 when the authority's record is malformed.
fn with_new_key(
    authority: &Authority,
    params: CertificateParams,
) -> Result<IssuedCertificate, Error> {
    let mut key = KeyPair::generate().map_err(tls_error)?;
    let certificate = with_issuer(authority, |issuer| params.signed_by(&key, issuer))?;
    let pem = Zeroizing::new(key.serialize_pem());
    key.zeroize();
    Ok(IssuedCertificate {
        spki: spki_of(certificate.der())?,
        fingerprint: hex(&sha256(&[certificate.der()])),
        certificate: certificate.pem(),
        key: pem,
        expires: to_unix_s(params.not_after),
    })
}

/// Signs a message with the authority's key, which is wiped afterwards: ECDSA on P-256 with
/// SHA-256, in hexadecimal digits. The message has to begin with a label, so that it cannot be
/// mistaken for a certificate.
///
/// # Errors
/// SR-8435 when the authority's record is malformed; SR-8440 when its key cannot be used.
pub fn sign_message(authority: &Authority, message: &[u8]) -> Result<String, Error> {
    let key = key_of(authority)?;
    let signed = key.sign(message).map_err(tls_error);
    wipe(key);
    Ok(hex(&signed?))
}

/// Whether `signature`, in hexadecimal digits as [`sign_message`] makes it, is a signature of the
/// authority over a message; false also for a text that is not such digits, or a key other than
/// ECDSA on P-256. `authority`: its certificate in PEM; its dates and issuer are not checked.
///
/// # Errors
/// SR-8440 when the certificate cannot be read.
pub fn is_signature_valid(
    authority: &[u8],
    message: &[u8],
    signature: &str,
) -> Result<bool, Error> {
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

/// Reads the authority's private key from its record. SR-8435 if the record is malformed, SR-8440
/// if it is not a key.
fn key_of(authority: &Authority) -> Result<KeyPair, Error> {
    let broken = || Error::new(&code::SERVER_STORE, "the authority");
    let der = Zeroizing::new(from_hex(&authority.key).ok_or_else(broken)?);
    KeyPair::try_from(der.as_slice()).map_err(tls_error)
}

/// Overwrites a private key in memory.
fn wipe(mut key: KeyPair) {
    key.zeroize();
}

/// Calls `sign` with the authority as the issuer, and then wipes its private key. SR-8440 when the
/// certificate cannot be signed; SR-8435 when the authority's record is malformed.
fn with_issuer(
    authority: &Authority,
    sign: impl FnOnce(&Issuer<'_, &KeyPair>) -> Result<rcgen::Certificate, rcgen::Error>,
) -> Result<rcgen::Certificate, Error> {
    let key = key_of(authority)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, &key).map_err(tls_error)?;
    let signed = sign(&issuer).map_err(tls_error);
    drop(issuer);
    wipe(key);
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_request_only_the_public_key_is_taken() {
        let authority = create_authority("test").unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["admin".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "admin");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let issued = sign_request(&authority, &request, "node-1", 30).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let text = String::from_utf8_lossy(&der).into_owned();
        assert!(text.contains("node-1") && !text.contains("admin"));
        // id-kp-clientAuth and not id-kp-serverAuth; basicConstraints never says that it is an
        // authority.
        let has = |oid: &[u8]| der.windows(oid.len()).any(|window| window == oid);
        assert!(has(&[0x2b, 6, 1, 5, 5, 7, 3, 2]) && !has(&[0x2b, 6, 1, 5, 5, 7, 3, 1]));
        assert!(!has(&[0x55, 0x1d, 0x13, 1, 1, 0xff, 4]));
        assert_eq!(issued.spki, spki_of(&der).unwrap());

        let mut forged = request.into_bytes();
        forged[120] ^= 1;
        let forged = String::from_utf8_lossy(&forged).into_owned();
        assert_eq!(
            sign_request(&authority, &forged, "x", 1)
                .err()
                .unwrap()
                .code()
                .number,
            8429
        );
        assert_eq!(
            sign_request(&authority, "", "x", 1)
                .err()
                .unwrap()
                .code()
                .number,
            8429
        );
    }
}
