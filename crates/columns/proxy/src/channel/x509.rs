//! X.509 certificates (RFC 5280) as the makers of processors issue them for the keys that sign
//! attestations.
//!
//! Invariant: a certificate counts as issued by another only when the names, the issuer's right to
//! issue and the signature are right. Must not: decide which root is trusted.

use strongroom_crypto::{sha256, verify_p256_der, verify_rsa_pss};
use x509_parser::asn1_rs::{FromDer as _, Oid};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;

use super::error::ChannelError;

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
        let signature = &self.0.signature_value.data;
        issuer.has_signed(self.0.tbs_certificate.as_ref(), signature, with)
    }

    /// Whether the certificate's key has made a signature of this form.
    fn has_signed(&self, signed: &[u8], signature: &[u8], with: IssuedWith) -> bool {
        let verified = match with {
            IssuedWith::RsaPss => verify_rsa_pss(self.public_key(), signed, signature),
            IssuedWith::P256 => verify_p256_der(self.public_key(), signed, signature),
        };
        verified.is_ok()
    }

    /// Checks that none of the lists that `issuer` has made names this certificate, which `issuer`
    /// has issued. Lists of other issuers are passed over, and dates are not looked at. Fails with
    /// `Revoked` if one does, or `Chain` if one is no list, or has the issuer's name and not its
    /// signature.
    pub(super) fn check_lists(
        &self,
        issuer: &Certificate<'_>,
        with: IssuedWith,
        lists: &[Vec<u8>],
    ) -> Result<(), ChannelError> {
        for list in lists {
            let list = parse_list(list).ok_or(ChannelError::Chain)?;
            if list.issuer().as_raw() != issuer.0.subject().as_raw() {
                continue;
            }
            let signed = list.tbs_cert_list.as_ref();
            if !issuer.has_signed(signed, &list.signature_value.data, with) {
                return Err(ChannelError::Chain);
            }
            let mut revoked = list.iter_revoked_certificates();
            if revoked.any(|one| one.raw_serial() == self.0.raw_serial()) {
                return Err(ChannelError::Revoked);
            }
        }
        Ok(())
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

    /// Whether the certificate's subject has this common name, and no other.
    pub(super) fn is_named(&self, name: &str) -> bool {
        let mut names = self.0.subject().iter_common_name();
        let first = names.next().and_then(|found| found.as_str().ok());
        first == Some(name) && names.next().is_none()
    }

    /// Returns when the certificate's validity begins and ends, in seconds since 1970; both are
    /// within it.
    pub(super) fn validity(&self) -> (i64, i64) {
        let validity = self.0.validity();
        let (begins, ends) = (validity.not_before, validity.not_after);
        (begins.timestamp(), ends.timestamp())
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

/// Returns whether the file is a list of revoked certificates in DER.
#[must_use]
pub fn is_revocation_list(file: &[u8]) -> bool {
    parse_list(file).is_some()
}

/// Parses exactly one list of revoked certificates in DER. `None` for anything else.
fn parse_list(der: &[u8]) -> Option<CertificateRevocationList<'_>> {
    let (rest, list) = CertificateRevocationList::from_der(der).ok()?;
    rest.is_empty().then_some(list)
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
