//! X.509 certificates (RFC 5280) as the makers of processors issue them for the keys that sign
//! attestations.
//!
//! Invariant: a certificate counts as issued by another only when the names, the issuer's right to
//! issue and the signature are right. Must not: decide which root is trusted.

use strongroom_crypto::{sha256, verify_p256_der, verify_rsa_pss};
use x509_parser::asn1_rs::{FromDer as _, Oid};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;
use x509_parser::time::ASN1Time;

/// How an issuer's signature is made.
#[derive(Clone, Copy)]
pub(super) enum IssuedWith {
    /// RSASSA-PSS with SHA-384: AMD's.
    RsaPss,
    /// ECDSA on P-256 with SHA-256: Intel's.
    P256,
}

/// A certificate that was parsed. Nothing of it has been verified.
pub(super) struct Certificate<'a>(X509Certificate<'a>);

impl<'a> Certificate<'a> {
    /// Parses exactly one certificate in DER. `None` for anything else, and unless it names its
    /// signature's algorithm the same in both places (RFC 5280, section 4.1.1.2).
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        let same = parsed.signature_algorithm == parsed.tbs_certificate.signature;
        (rest.is_empty() && same).then_some(Self(parsed))
    }

    /// Returns the public key as the certificate has it: a point (SEC 1), or an `RSAPublicKey`.
    pub(super) fn public_key(&self) -> &[u8] {
        &self.0.public_key().subject_public_key.data
    }

    /// Returns the SHA-256 of the `SubjectPublicKeyInfo`, by which roots are known.
    pub(super) fn key_digest(&self) -> [u8; 32] {
        sha256(&[self.0.public_key().raw])
    }

    /// Whether `issuer` has issued this certificate, with a signature of this form.
    pub(super) fn is_issued_by(&self, issuer: &Certificate<'_>, with: IssuedWith) -> bool {
        let named = self.0.issuer().as_raw() == issuer.0.subject().as_raw();
        if !named || !issuer.0.is_ca() {
            return false;
        }
        let (key, signature) = (issuer.public_key(), &self.0.signature_value.data);
        let signed = self.0.tbs_certificate.as_ref();
        let verified = match with {
            IssuedWith::RsaPss => verify_rsa_pss(key, signed, signature),
            IssuedWith::P256 => verify_p256_der(key, signed, signature),
        };
        verified.is_ok()
    }

    /// Returns the value of the extension of this number. `None` if there is none, or two.
    pub(super) fn extension(&self, number: &Oid<'_>) -> Option<&'a [u8]> {
        let found = self.0.get_extension_unique(number).ok()??;
        Some(found.value)
    }

    /// Returns the value of the extension of this number, an `INTEGER` of one byte. `None` for
    /// anything else.
    pub(super) fn small_extension(&self, number: &Oid<'_>) -> Option<u8> {
        let (rest, value) = u8::from_der(self.extension(number)?).ok()?;
        rest.is_empty().then_some(value)
    }

    /// Whether the certificate is valid at this time, in seconds since 1970.
    pub(super) fn is_valid_at(&self, unix_s: u64) -> bool {
        let time = i64::try_from(unix_s).ok();
        let time = time.and_then(|time| ASN1Time::from_timestamp(time).ok());
        time.is_some_and(|time| self.0.validity().is_valid_at(time))
    }
}

/// Reads certificates in PEM or one in DER, and returns each in DER. `None` when there is none, or
/// something in it is none.
#[must_use]
pub fn read_certificates(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    if Certificate::parse(file).is_some() {
        return Some(vec![file.to_vec()]);
    }
    let certificates = read_pem(file)?;
    (!certificates.is_empty()).then_some(certificates)
}

/// Returns the SHA-256 of a certificate's `SubjectPublicKeyInfo`. `None` for what is no
/// certificate.
#[must_use]
pub fn key_digest(der: &[u8]) -> Option<[u8; 32]> {
    Some(Certificate::parse(der)?.key_digest())
}

/// Reads certificates in PEM. `None` when something between the lines of PEM is no certificate.
pub(super) fn read_pem(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let read = |pem: Result<Pem, _>| {
        let pem = pem.ok().filter(|pem: &Pem| pem.label == "CERTIFICATE")?;
        Certificate::parse(&pem.contents)?;
        Some(pem.contents)
    };
    Pem::iter_from_buffer(text).map(read).collect()
}
