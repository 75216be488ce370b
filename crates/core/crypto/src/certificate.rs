//! X.509 certificates (RFC 5280) as what keys are encrypted for: reading them, and making
//! self-signed ones.
//!
//! A certificate stands for its public key, which the owner has chosen. Its id is the hash of that
//! key, so that a certificate that is issued anew for the same key is the same recipient.
//! Signatures of issuers are not verified, and dates are informative only.
//!
//! Invariant: every certificate here has an RSA key of 2048 to 4096 bits, may encipher keys, and is
//! exactly its DER encoding.
//!
//! Must not: read a file.

use openssl::asn1::{Asn1Integer, Asn1Time, Asn1TimeRef};
use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, PKeyRef, Public};
use openssl::x509::extension::{BasicConstraints, KeyUsage, SubjectKeyIdentifier};
use openssl::x509::{X509, X509Name, X509NameRef};

use crate::error::{CertificateError, CryptoError};
use crate::pkcs12;
use crate::random::random16;
use crate::rsa::{PrivateKey, checked_id, encrypt_for, set_up, with_private};
use crate::secret::SecretKey;

/// The sizes in which key pairs are made, in bits of the modulus.
pub const CERTIFICATE_BITS: [u32; 2] = [3072, 4096];
/// Longest certificate that is read, in bytes of DER.
const DER_MAX: usize = 16_384;
/// A hundred years.
const DAYS_MAX: u32 = 36_500;
/// `X509_get_key_usage`: key encipherment (openssl/x509v3.h, `KU_KEY_ENCIPHERMENT`).
const KEY_ENCIPHERMENT: u32 = 0x0020;

/// A certificate with a public key for which keys can be encrypted.
pub struct Certificate {
    x509: X509,
    public: PKey<Public>,
    der: Vec<u8>,
    id: [u8; 32],
}

impl Certificate {
    /// Reads a certificate in DER, and checks its key and use.
    ///
    /// # Errors
    /// [`CertificateError::Malformed`] when it is not exactly a certificate of at most 16 KiB in
    /// DER; [`CertificateError::Weak`] for another key than RSA of 2048 to 4096 bits, or another
    /// use than key encipherment; [`CertificateError::Crypto`] when libcrypto fails, or without
    /// memory for keys.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        set_up()?;
        let read = X509::from_der(der).map_err(|_| CertificateError::Malformed)?;
        let certificate = Self::of(read)?;
        // libcrypto ignores bytes after the certificate, and some encodings that are not DER.
        match certificate.der == der {
            true => Ok(certificate),
            false => Err(CertificateError::Malformed),
        }
    }

    /// Makes a certificate of `key`, signed by itself: for key encipherment, valid from now for
    /// `days` days, 1 to 36500. `subject` is written as `CN=backup,O=Example`.
    ///
    /// # Errors
    /// [`CertificateError::Subject`] for a subject or a number of days that is not valid;
    /// [`CertificateError::Crypto`] when libcrypto fails, or without memory for keys.
    pub fn self_signed(
        key: &PrivateKey,
        subject: &str,
        days: u32,
    ) -> Result<Self, CertificateError> {
        set_up()?;
        if !(1..=DAYS_MAX).contains(&days) {
            return Err(CertificateError::Subject);
        }
        let name = parse_subject(subject)?;
        let mut serial = random16()?;
        // Positive and not zero (RFC 5280, section 4.1.2.2).
        serial[0] = serial[0] & 0x7f | 0x40;
        let made = with_private(|| self_signed_x509(key.inner(), &name, &serial, days))?;
        Self::of(made.map_err(|_| CryptoError::Library)?)
    }

    /// Returns the certificate in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the certificate in PEM (RFC 7468).
    ///
    /// # Errors
    /// [`CertificateError::Crypto`] if libcrypto fails, or there is no memory for keys.
    pub fn to_pem(&self) -> Result<Vec<u8>, CertificateError> {
        Ok(self.x509.to_pem().map_err(|_| CryptoError::Library)?)
    }

    /// Returns the SHA-256 of the `SubjectPublicKeyInfo`: the same for every certificate of this
    /// key.
    #[must_use]
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// Computes the SHA-1 of the whole certificate, which other tools call its thumbprint. For
    /// display only.
    ///
    /// # Errors
    /// [`CertificateError::Crypto`] if libcrypto fails, or there is no memory for keys.
    pub fn thumbprint(&self) -> Result<[u8; 20], CertificateError> {
        let digest = self.x509.digest(MessageDigest::sha1());
        let digest = digest.map_err(|_| CryptoError::Library)?;
        Ok((&*digest).try_into().map_err(|_| CryptoError::Library)?)
    }

    /// Returns the length of the modulus, in bits.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.public.bits()
    }

    /// Returns the subject, written as in RFC 4514 but in the certificate's order. It comes from
    /// outside: escape it before showing it.
    #[must_use]
    pub fn subject(&self) -> String {
        shown_name(self.x509.subject_name())
    }

    /// Returns the issuer, written as the subject is. Its signature is not verified.
    #[must_use]
    pub fn issuer(&self) -> String {
        shown_name(self.x509.issuer_name())
    }

    /// Returns the first and the last second of its validity, in seconds since the Unix epoch.
    /// `None` when a date cannot be read.
    #[must_use]
    pub fn validity_unix_s(&self) -> Option<(i64, i64)> {
        Some((
            unix_s(self.x509.not_before())?,
            unix_s(self.x509.not_after())?,
        ))
    }

    /// Encrypts a key for the owner of the private key: RSAES-OAEP with SHA-256, MGF1 with SHA-256,
    /// and this label. The ciphertext is as long as the modulus.
    ///
    /// # Errors
    /// [`CryptoError::Library`], [`CryptoError::OutOfLockedMemory`] without memory for keys.
    pub fn wrap(&self, key: &SecretKey, label: &[u8]) -> Result<Vec<u8>, CryptoError> {
        encrypt_for(&self.public, key, label)
    }

    /// Returns libcrypto's certificate.
    pub(crate) fn inner(&self) -> &X509 {
        &self.x509
    }

    /// Checks a certificate and computes its id. Errors: [`CertificateError::Malformed`] when it is
    /// longer than 16 KiB, or its key cannot be read; [`CertificateError::Weak`] for another kind
    /// of key or use.
    pub(crate) fn of(x509: X509) -> Result<Self, CertificateError> {
        let malformed = |_: ErrorStack| CertificateError::Malformed;
        let der = x509.to_der().map_err(malformed)?;
        if der.len() > DER_MAX {
            return Err(CertificateError::Malformed);
        }
        let public = x509.public_key().map_err(malformed)?;
        let id = checked_id(&public)?;
        // Without the extension every use is allowed (RFC 5280, section 4.2.1.3): libcrypto returns
        // all ones then.
        if pkcs12::key_usage(&x509) & KEY_ENCIPHERMENT == 0 {
            return Err(CertificateError::Weak);
        }
        Ok(Self {
            x509,
            public,
            der,
            id,
        })
    }
}

/// Makes a self-signed certificate of version 3 for key encipherment, valid from now on. Errors:
/// libcrypto's.
fn self_signed_x509(
    key: &PKeyRef<openssl::pkey::Private>,
    name: &X509Name,
    serial: &[u8; 16],
    days: u32,
) -> Result<X509, ErrorStack> {
    let mut builder = X509::builder()?;
    // Version 3 (RFC 5280, section 4.1.2.1).
    builder.set_version(2)?;
    let number = BigNum::from_slice(serial)?;
    let number = Asn1Integer::from_bn(&number)?;
    builder.set_serial_number(&number)?;
    builder.set_subject_name(name)?;
    builder.set_issuer_name(name)?;
    let begins = Asn1Time::days_from_now(0)?;
    builder.set_not_before(&begins)?;
    let ends = Asn1Time::days_from_now(days)?;
    builder.set_not_after(&ends)?;
    builder.set_pubkey(key)?;
    builder.append_extension(BasicConstraints::new().critical().build()?)?;
    builder.append_extension(KeyUsage::new().critical().key_encipherment().build()?)?;
    let key_id = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None))?;
    builder.append_extension(key_id)?;
    builder.sign(key, MessageDigest::sha256())?;
    Ok(builder.build())
}

/// Parses a name such as `CN=backup,O=Example`; a backslash escapes the next character. Errors:
/// [`CertificateError::Subject`] for a part without `=`, an unknown field, or a value that is empty
/// or has control characters; [`CertificateError::Crypto`] when libcrypto fails, or without memory
/// for keys.
fn parse_subject(text: &str) -> Result<X509Name, CertificateError> {
    let mut builder = X509Name::builder().map_err(|_| CryptoError::Library)?;
    for part in split_unescaped(text) {
        let (field, value) = part.split_once('=').ok_or(CertificateError::Subject)?;
        let value = unescaped(value.trim());
        if value.is_empty() || value.contains(char::is_control) {
            return Err(CertificateError::Subject);
        }
        builder
            .append_entry_by_text(field.trim(), &value)
            .map_err(|_| CertificateError::Subject)?;
    }
    Ok(builder.build())
}

/// Splits at commas that no backslash escapes; one that is escaped itself escapes nothing. The
/// parts keep their backslashes and blanks; an empty text is one empty part.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Removes backslashes that escape the next character. One at the end remains.
fn unescaped(value: &str) -> String {
    let mut out = String::new();
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        // A backslash at the end is kept.
        out.push(match c {
            '\\' => characters.next().unwrap_or(c),
            c => c,
        });
    }
    out
}

/// Writes a name as RFC 4514 does, but in the certificate's order.
fn shown_name(name: &X509NameRef) -> String {
    let entry = |entry: &openssl::x509::X509NameEntryRef| {
        let field = entry.object().nid().short_name().unwrap_or("?").to_owned();
        let value = entry.data().to_string().unwrap_or_default();
        let mut escaped = String::new();
        for c in value.chars() {
            if matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        format!("{field}={escaped}")
    };
    let parts: Vec<String> = name.entries().map(entry).collect();
    parts.join(",")
}

/// Returns a time in seconds since the Unix epoch; negative before 1970. `None` when the time
/// cannot be read.
fn unix_s(time: &Asn1TimeRef) -> Option<i64> {
    let epoch = Asn1Time::from_unix(0).ok()?;
    let since = epoch.diff(time).ok()?;
    i64::from(since.days)
        .checked_mul(86_400)?
        .checked_add(i64::from(since.secs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::oaep_key;

    fn made(key: &PrivateKey) -> Certificate {
        Certificate::self_signed(key, "CN=backup,O=Example", 10).unwrap()
    }

    /// A certificate of another kind than is made here.
    fn with_usage(key: &PKeyRef<openssl::pkey::Private>, usage: Option<&mut KeyUsage>) -> Vec<u8> {
        let mut builder = X509::builder().unwrap();
        let ends = Asn1Time::days_from_now(1).unwrap();
        builder.set_not_before(&ends).unwrap();
        builder.set_not_after(&ends).unwrap();
        builder.set_version(2).unwrap();
        builder.set_pubkey(key).unwrap();
        if let Some(usage) = usage {
            builder.append_extension(usage.build().unwrap()).unwrap();
        }
        builder.sign(key, MessageDigest::sha256()).unwrap();
        builder.build().to_der().unwrap()
    }

    #[test]
    fn a_certificate_says_what_it_was_made_with() {
        let key = oaep_key(3072);
        let certificate = made(&key);
        assert_eq!(certificate.id(), key.id());
        assert_eq!(certificate.bits(), 3072);
        assert_eq!(certificate.subject(), "CN=backup,O=Example");
        assert_eq!(certificate.issuer(), "CN=backup,O=Example");
        let (begins, ends) = certificate.validity_unix_s().unwrap();
        assert_eq!(ends - begins, 10 * 86_400);
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(begins.abs_diff(i64::try_from(now).unwrap()) < 60);
        assert!(certificate.inner().verify(key.inner()).unwrap());

        let again = Certificate::from_der(certificate.der()).unwrap();
        assert_eq!(again.id(), certificate.id());
        assert_eq!(again.thumbprint(), certificate.thumbprint());
        let renewed = made(&key);
        assert_eq!(
            renewed.id(),
            certificate.id(),
            "another one for the same key"
        );
        assert_ne!(renewed.der(), certificate.der(), "another serial number");
    }

    #[test]
    fn subjects() {
        let key = oaep_key(2048);
        for (given, shown) in [
            ("CN=a", "CN=a"),
            (" CN = b , C=DE ", "CN=b,C=DE"),
            ("CN=x\\,y\\=z,OU=R\u{e4}der", "CN=x\\,y=z,OU=R\u{e4}der"),
        ] {
            let certificate = Certificate::self_signed(&key, given, 1).unwrap();
            assert_eq!(certificate.subject(), shown);
        }
        let long = format!("CN={}", "x".repeat(65));
        for refused in [
            "",
            "CN",
            "CN=",
            "CN=a,",
            "XYZ=a",
            "CN=a\nb",
            "C=Germany",
            &long,
        ] {
            let error = Certificate::self_signed(&key, refused, 1).err();
            assert_eq!(error, Some(CertificateError::Subject), "{refused:?}");
        }
        for days in [0, 36_501] {
            let error = Certificate::self_signed(&key, "CN=a", days).err();
            assert_eq!(error, Some(CertificateError::Subject), "{days} days");
        }
    }

    #[test]
    fn what_is_encrypted_for_a_certificate_opens_with_its_key() {
        let key = oaep_key(4096);
        let certificate = made(&key);
        let secret = SecretKey::generate().unwrap();
        let wrapped = certificate.wrap(&secret, b"here").unwrap();
        assert_eq!(wrapped.len(), 512);
        assert!(key.unwrap(&wrapped, b"here").unwrap().ct_eq(&secret));
        assert!(key.unwrap(&wrapped, b"there").is_err());
    }

    #[test]
    fn certificates_that_may_not_encipher_keys_are_refused() {
        let key = oaep_key(2048);
        let of = |usage: Option<&mut KeyUsage>| {
            let der = with_usage(key.inner(), usage);
            Certificate::from_der(&der).err()
        };
        assert_eq!(of(None), None, "without the extension all is allowed");
        let both = of(Some(KeyUsage::new().digital_signature().key_encipherment()));
        assert_eq!(both, None);
        let signing = of(Some(KeyUsage::new().digital_signature()));
        assert_eq!(signing, Some(CertificateError::Weak));

        let short = PKey::from_rsa(openssl::rsa::Rsa::generate(1024).unwrap()).unwrap();
        let error = Certificate::from_der(&with_usage(&short, None)).err();
        assert_eq!(error, Some(CertificateError::Weak), "1024 bits");
        let curve = PKey::ec_gen("P-256").unwrap();
        let error = Certificate::from_der(&with_usage(&curve, None)).err();
        assert_eq!(error, Some(CertificateError::Weak), "not RSA");
    }

    #[test]
    fn changed_and_cut_certificates_are_refused_or_other_ones() {
        let certificate = made(&oaep_key(2048));
        let der = certificate.der();
        for len in 0..der.len() {
            assert!(Certificate::from_der(&der[..len]).is_err(), "{len} bytes");
        }
        let longer = [der, &[0]].concat();
        assert!(Certificate::from_der(&longer).is_err(), "a byte more");
        for at in 0..der.len() {
            let mut changed = der.to_vec();
            changed[at] ^= 0x41;
            // Nobody looks at the signature; but what is read is exactly these bytes.
            if let Ok(read) = Certificate::from_der(&changed) {
                assert_eq!(read.der(), changed, "byte {at}");
                drop((read.subject(), read.issuer(), read.validity_unix_s()));
            }
        }
    }
}
