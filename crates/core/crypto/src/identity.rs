//! The files that hold a certificate with or without its private key: PEM, DER, PKCS #12.
//!
//! Invariant: a certificate and a private key that are read from a file, or written to one, are a
//! pair; this is tested by encrypting and decrypting.
//!
//! Must not: read or write a file, or let libcrypto ask for a passphrase on the terminal.

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

use crate::certificate::Certificate;
use crate::error::CertificateError;
use crate::pkcs12;
use crate::rsa::{PrivateKey, set_up, with_private};
use crate::secret::{SecretBytes, SecretKey};

/// A certificate from a file, with its private key if the file has it.
pub struct Identity {
    /// The certificate.
    pub certificate: Certificate,
    /// Its private key.
    pub key: Option<PrivateKey>,
    /// The name that a PKCS #12 file gives it. It comes from outside: escape it before showing it.
    pub name: Option<String>,
    /// Whether it was read from a file that needs a passphrase.
    pub was_sealed: bool,
}

impl Identity {
    /// Whether these bytes need a passphrase to be read: PKCS #12, and PEM with an encrypted
    /// private key.
    #[must_use]
    pub fn needs_passphrase(bytes: &[u8]) -> bool {
        match Form::of(bytes) {
            Form::Pem => contains(bytes, b"ENCRYPTED"),
            Form::Der => false,
            Form::Pkcs12 => true,
        }
    }

    /// Reads a certificate in PEM, alone or with its private key, or in DER, or a PKCS #12 file. Of
    /// several certificates it takes the one of the private key, or else the first.
    ///
    /// # Errors
    /// [`CertificateError::Malformed`] when there is no certificate or it cannot be read;
    /// [`CertificateError::Weak`]; [`CertificateError::Mismatch`] when no certificate is the
    /// private key's; [`CertificateError::Passphrase`] when one is needed and not given, or is
    /// wrong; [`CertificateError::Crypto`] when libcrypto fails, or without memory for keys.
    pub fn read(bytes: &[u8], passphrase: Option<&SecretBytes>) -> Result<Self, CertificateError> {
        let identity = match Form::of(bytes) {
            Form::Pem => Self::from_pem(bytes, passphrase)?,
            Form::Der => Self {
                certificate: Certificate::from_der(bytes)?,
                key: None,
                name: None,
                was_sealed: false,
            },
            Form::Pkcs12 => {
                let passphrase = passphrase.ok_or(CertificateError::Passphrase)?;
                pkcs12::read(bytes, passphrase)?
            }
        };
        if let Some(key) = &identity.key {
            check_pair(&identity.certificate, key)?;
        }
        Ok(identity)
    }

    /// Returns the certificate and its private key as a PKCS #12 file, sealed with AES-256-CBC
    /// under a key that PBKDF2 with HMAC-SHA-256 makes of the passphrase: UTF-8, without zero
    /// bytes, not empty. `name` is written to the file. Writes no file itself.
    ///
    /// # Errors
    /// [`CertificateError::Passphrase`] for one that cannot be used; [`CertificateError::Subject`]
    /// for a name with a zero byte; [`CertificateError::Mismatch`] when they are not a pair;
    /// [`CertificateError::Crypto`] when libcrypto fails, or without memory for keys.
    pub fn to_pkcs12(
        certificate: &Certificate,
        key: &PrivateKey,
        name: &str,
        passphrase: &SecretBytes,
    ) -> Result<Vec<u8>, CertificateError> {
        check_pair(certificate, key)?;
        pkcs12::write(certificate, key, name, passphrase)
    }

    /// Reads PEM: the private key, if there is one, and its certificate, or else the first
    /// certificate that can be used. Errors: [`CertificateError::Mismatch`] when no certificate is
    /// the private key's; [`CertificateError::Malformed`] when there is no certificate;
    /// [`CertificateError::Passphrase`]; that of the first certificate when none can be used.
    fn from_pem(bytes: &[u8], passphrase: Option<&SecretBytes>) -> Result<Self, CertificateError> {
        let key = match contains(bytes, b"PRIVATE KEY-----") {
            true => Some(PrivateKey::of(private_key_from_pem(bytes, passphrase)?)?),
            false => None,
        };
        set_up()?;
        let found = X509::stack_from_pem(bytes).map_err(|_| CertificateError::Malformed)?;
        let mut first = None;
        for x509 in found {
            let certificate = Certificate::of(x509);
            let wanted = key.as_ref().map(PrivateKey::id);
            match certificate {
                Ok(certificate) if wanted.is_none_or(|id| id == certificate.id()) => {
                    return Ok(Self {
                        certificate,
                        key,
                        name: None,
                        was_sealed: Self::needs_passphrase(bytes),
                    });
                }
                other => first = first.or_else(|| Some(other.err())),
            }
        }
        Err(match first {
            // There is one, but it is another key's.
            Some(None) => CertificateError::Mismatch,
            Some(Some(error)) => error,
            None => CertificateError::Malformed,
        })
    }
}

/// The form of a file.
enum Form {
    Pem,
    Der,
    Pkcs12,
}

impl Form {
    /// Recognises the form by the contents. What is neither PEM nor PKCS #12 is taken for DER.
    fn of(bytes: &[u8]) -> Self {
        if contains(bytes, b"-----BEGIN ") {
            return Self::Pem;
        }
        // PFX ::= SEQUENCE { version INTEGER {v3(3)}, ...} (RFC 7292, section 4); a certificate
        // begins with two SEQUENCEs.
        let content = match bytes {
            [0x30, len, rest @ ..] if *len < 0x80 => rest,
            [0x30, len, rest @ ..] => rest.get(usize::from(len & 0x7f)..).unwrap_or_default(),
            _ => &[],
        };
        match content {
            [0x02, 0x01, 0x03, ..] => Self::Pkcs12,
            _ => Self::Der,
        }
    }
}

/// Whether `part` occurs in `bytes`.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Checks that the private key is the certificate's: the public keys are equal, and a random key
/// that is encrypted with one half opens with the other. Errors: [`CertificateError::Mismatch`];
/// [`CertificateError::Crypto`] when libcrypto fails, or without memory for keys.
pub(crate) fn check_pair(
    certificate: &Certificate,
    key: &PrivateKey,
) -> Result<(), CertificateError> {
    const LABEL: &[u8] = b"pairwise consistency test";
    if certificate.id() != key.id() {
        return Err(CertificateError::Mismatch);
    }
    let sent = SecretKey::generate()?;
    let wrapped = certificate.wrap(&sent, LABEL)?;
    match key.unwrap(&wrapped, LABEL) {
        Ok(received) if received.ct_eq(&sent) => Ok(()),
        _ => Err(CertificateError::Mismatch),
    }
}

/// Reads the first private key of a PEM file into locked memory. Asks nobody for a passphrase.
///
/// # Errors
/// [`CertificateError::Passphrase`] when the key is encrypted and `passphrase` does not open it;
/// [`CertificateError::Malformed`] when it cannot be read; [`CertificateError::Crypto`] when
/// libcrypto fails, or without memory for keys.
pub(crate) fn private_key_from_pem(
    bytes: &[u8],
    passphrase: Option<&SecretBytes>,
) -> Result<PKey<Private>, CertificateError> {
    let mut asked = false;
    let key = with_private(|| {
        PKey::private_key_from_pem_callback(bytes, |buffer| {
            asked = true;
            let given = passphrase.map(SecretBytes::as_slice).unwrap_or_default();
            match buffer.get_mut(..given.len()) {
                Some(room) => {
                    room.copy_from_slice(given);
                    Ok(given.len())
                }
                None => Ok(0),
            }
        })
    })?;
    match key {
        Ok(key) => Ok(key),
        Err(_) if asked => Err(CertificateError::Passphrase),
        Err(_) => Err(CertificateError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::oaep_key;

    fn passphrase(text: &str) -> SecretBytes {
        SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap()
    }

    fn made(key: &PrivateKey) -> Certificate {
        Certificate::self_signed(key, "CN=backup,O=Example", 10).unwrap()
    }

    #[test]
    fn a_pair_is_one_key() {
        let key = oaep_key(4096);
        let certificate = made(&key);
        assert_eq!(check_pair(&certificate, &key), Ok(()));
        let other = oaep_key(2048);
        let error = check_pair(&certificate, &other).err();
        assert_eq!(error, Some(CertificateError::Mismatch));
    }

    #[test]
    fn pkcs12_comes_back_with_its_passphrase_only() {
        let key = oaep_key(2048);
        let certificate = made(&key);
        let right = passphrase("correct horse \u{e4}");
        let file = Identity::to_pkcs12(&certificate, &key, "backup-2026", &right).unwrap();
        assert!(Identity::needs_passphrase(&file));
        let read = Identity::read(&file, Some(&right)).unwrap();
        assert_eq!(read.certificate.der(), certificate.der());
        assert_eq!(read.name.as_deref(), Some("backup-2026"));
        let secret = SecretKey::generate().unwrap();
        let wrapped = certificate.wrap(&secret, b"x").unwrap();
        let opened = read.key.unwrap().unwrap(&wrapped, b"x").unwrap();
        assert!(opened.ct_eq(&secret));

        let wrong = passphrase("correct horse");
        for given in [None, Some(&wrong)] {
            let error = Identity::read(&file, given).err();
            assert_eq!(error, Some(CertificateError::Passphrase));
        }
        for len in [0, 1, 4, 100, file.len() - 1] {
            assert!(Identity::read(&file[..len], Some(&right)).is_err());
        }
        // The passphrase does not open a file that was changed, or it is no file any more.
        for at in (0..file.len()).step_by(97) {
            let mut changed = file.clone();
            changed[at] ^= 1;
            if let Ok(read) = Identity::read(&changed, Some(&right)) {
                assert_eq!(read.certificate.der(), certificate.der(), "byte {at}");
            }
        }
        for unusable in ["", "a\0b"] {
            let made = Identity::to_pkcs12(&certificate, &key, "x", &passphrase(unusable));
            assert_eq!(made.err(), Some(CertificateError::Passphrase));
        }
        let other = Identity::to_pkcs12(&certificate, &oaep_key(3072), "x", &right);
        assert_eq!(other.err(), Some(CertificateError::Mismatch));
    }

    #[test]
    fn pem_files_with_and_without_a_key() {
        let key = oaep_key(2048);
        let certificate = made(&key);
        let pem = certificate.to_pem().unwrap();
        let read = Identity::read(&pem, None).unwrap();
        assert!(read.key.is_none() && read.certificate.der() == certificate.der());

        let plain = key.inner().private_key_to_pem_pkcs8().unwrap();
        let other = made(&oaep_key(3072)).to_pem().unwrap();
        // The key's certificate is found among others, wherever the key stands.
        for file in [
            [&plain[..], &other, &pem].concat(),
            [&other[..], &pem, &plain].concat(),
        ] {
            assert!(!Identity::needs_passphrase(&file));
            let read = Identity::read(&file, None).unwrap();
            assert_eq!(read.certificate.id(), key.id());
            assert_eq!(read.key.unwrap().id(), key.id());
        }
        let error = Identity::read(&[&plain[..], &other].concat(), None).err();
        assert_eq!(error, Some(CertificateError::Mismatch));
        let error = Identity::read(&plain, None).err();
        assert_eq!(error, Some(CertificateError::Malformed), "a key alone");

        let cipher = openssl::symm::Cipher::aes_256_cbc();
        let sealed = key
            .inner()
            .private_key_to_pem_pkcs8_passphrase(cipher, b"secret");
        let file = [sealed.unwrap(), pem].concat();
        assert!(Identity::needs_passphrase(&file));
        assert!(
            Identity::read(&file, Some(&passphrase("secret")))
                .unwrap()
                .key
                .is_some()
        );
        for given in [None, Some(&passphrase("sacred"))] {
            let error = Identity::read(&file, given).err();
            assert_eq!(error, Some(CertificateError::Passphrase));
        }
        for nonsense in [
            &b""[..],
            b"text",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let error = Identity::read(nonsense, None).err();
            assert_eq!(error, Some(CertificateError::Malformed));
        }
    }
}
