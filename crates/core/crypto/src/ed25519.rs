//! Ed25519 signatures (RFC 8032): signing by libcrypto, verification by `ring`, keys from PEM files
//! as `openssl genpkey` and `openssl req -x509` make them.
//!
//! Invariants: a private key stays in the locked arena (C1 to C3, C11); every signature that is
//! refused looks the same.
//!
//! Must not: read a file, know what is signed, or decide whose key is trusted.

use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use openssl::sign::Signer;
use openssl::x509::X509;
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::error::{CertificateError, CryptoError, OpenError, SigningKeyError};
use crate::identity::private_key_from_pem;
use crate::mac::sha256;
use crate::rsa::{set_up, with_private};
use crate::secret::SecretBytes;

/// Longest PEM file that a public key is read from, in bytes.
const PEM_MAX: usize = 64 * 1024;
/// The beginning of each block of a PEM file (RFC 7468, section 2).
const PEM_BEGIN: &[u8] = b"-----BEGIN ";

/// An Ed25519 private key, in locked memory.
pub struct SigningKey {
    key: PKey<Private>,
    public: VerifyingKey,
}

impl SigningKey {
    /// Reads a private key in PEM (PKCS #8, RFC 8410) that no passphrase protects.
    ///
    /// # Errors
    /// [`SigningKeyError::Encrypted`] for one that a passphrase protects;
    /// [`SigningKeyError::OtherKind`] for one of another kind than Ed25519;
    /// [`SigningKeyError::Malformed`]; [`SigningKeyError::Crypto`].
    pub fn from_pem(pem: &SecretBytes) -> Result<Self, SigningKeyError> {
        let key = private_key_from_pem(pem.as_slice(), None).map_err(|error| match error {
            CertificateError::Passphrase => SigningKeyError::Encrypted,
            CertificateError::Crypto(error) => error.into(),
            _ => SigningKeyError::Malformed,
        })?;
        let public = with_private(|| VerifyingKey::of(&key))??;
        Ok(Self { key, public })
    }

    /// Returns the key that verifies what this one signs.
    #[must_use]
    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }

    /// Signs a message.
    ///
    /// # Errors
    /// [`CryptoError::Library`] if libcrypto fails.
    pub fn sign(&self, message: &[u8]) -> Result<[u8; 64], CryptoError> {
        let mut signature = [0; 64];
        let written = with_private(|| {
            Signer::new_without_digest(&self.key)?.sign_oneshot(&mut signature, message)
        })?;
        match written {
            Ok(64) => Ok(signature),
            _ => Err(CryptoError::Library),
        }
    }
}

/// An Ed25519 public key.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    raw: [u8; 32],
    id: [u8; 32],
}

impl VerifyingKey {
    /// Reads a public key, or a certificate and takes its public key, in PEM. The issuer and the
    /// dates of a certificate are not checked. A second key or certificate in the same file is an
    /// error, because the user would not notice that it is not trusted.
    ///
    /// # Errors
    /// [`SigningKeyError::Several`] for more than one; [`SigningKeyError::OtherKind`] for another
    /// kind than Ed25519; [`SigningKeyError::Malformed`], also above 64 KiB;
    /// [`SigningKeyError::Crypto`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, SigningKeyError> {
        set_up()?;
        if pem.len() > PEM_MAX {
            return Err(SigningKeyError::Malformed);
        }
        let blocks = pem.windows(PEM_BEGIN.len());
        if blocks.filter(|part| *part == PEM_BEGIN).count() > 1 {
            return Err(SigningKeyError::Several);
        }
        let key = PKey::public_key_from_pem(pem)
            .or_else(|_| X509::from_pem(pem).and_then(|certificate| certificate.public_key()));
        crate::libcrypto::forget_errors();
        Self::of(&*key.map_err(|_| SigningKeyError::Malformed)?)
    }

    /// Takes the public half of a key, and computes its id. Errors: [`SigningKeyError::OtherKind`]
    /// unless it is one of Ed25519; [`SigningKeyError::Crypto`].
    fn of<T: HasPublic>(key: &PKeyRef<T>) -> Result<Self, SigningKeyError> {
        if key.id() != Id::ED25519 {
            return Err(SigningKeyError::OtherKind);
        }
        let library = |_| SigningKeyError::Crypto(CryptoError::Library);
        let raw = key.raw_public_key().map_err(library)?;
        let encoded = key.public_key_to_der().map_err(library)?;
        Ok(Self {
            raw: (&*raw).try_into().map_err(|_| SigningKeyError::Malformed)?,
            id: sha256(&[&encoded]),
        })
    }

    /// Returns the SHA-256 of the `SubjectPublicKeyInfo` in DER: the same for a key and for every
    /// certificate of it.
    #[must_use]
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// Verifies a signature.
    ///
    /// # Errors
    /// [`OpenError`] unless this key signed that message.
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> Result<(), OpenError> {
        UnparsedPublicKey::new(&ED25519, &self.raw)
            .verify(message, signature)
            .map_err(|_| OpenError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8410, section 10.3: a private key, and its public half from section 10.1.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
        -----END PUBLIC KEY-----\n";

    fn private(pem: &str) -> Result<SigningKey, SigningKeyError> {
        let pem = SecretBytes::take(&mut pem.as_bytes().to_vec())?;
        SigningKey::from_pem(&pem)
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn keys_of_rfc_8410_belong_together() {
        let key = private(PRIVATE).unwrap();
        let public = VerifyingKey::from_pem(PUBLIC.as_bytes()).unwrap();
        assert_eq!(key.public().id(), public.id());
        let signature = key.sign(b"message").unwrap();
        assert_eq!(public.verify(b"message", &signature), Ok(()));
        assert_eq!(public.verify(b"massage", &signature), Err(OpenError));
        for bit in 0..512 {
            let mut bad = signature;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(public.verify(b"message", &bad), Err(OpenError), "{bit}");
        }
    }

    /// RFC 8032, section 7.1, tests 2 and 3; the private keys in the form of RFC 8410.
    #[test]
    fn signatures_are_those_of_rfc_8032() {
        // Its own calls of the library come before any of this crate's.
        set_up().unwrap();
        for (secret, message, signature) in [
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "72",
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                 085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
            (
                "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
                "af82",
                "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
                 18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
            ),
        ] {
            let mut der = hex("302e020100300506032b657004220420");
            der.extend(hex(secret));
            let parsed = PKey::private_key_from_der(&der).unwrap();
            let pem = parsed.private_key_to_pem_pkcs8().unwrap();
            let key = private(std::str::from_utf8(&pem).unwrap()).unwrap();
            let message = hex(message);
            let made = key.sign(&message).unwrap();
            assert_eq!(made.as_slice(), hex(signature));
            assert_eq!(key.public().verify(&message, &made), Ok(()));
        }
    }

    #[test]
    fn only_ed25519_keys_without_a_passphrase_are_taken() {
        for other in ["", "x", PUBLIC, &PRIVATE[..60]] {
            assert_eq!(private(other).err(), Some(SigningKeyError::Malformed));
        }
        for other in ["", "x", PRIVATE, &PUBLIC[..60]] {
            let read = VerifyingKey::from_pem(other.as_bytes());
            assert_eq!(read.err(), Some(SigningKeyError::Malformed));
        }
        let read = VerifyingKey::from_pem(PUBLIC.repeat(2).as_bytes());
        assert_eq!(read.err(), Some(SigningKeyError::Several));
        let rsa = crate::vectors::oaep_key(2048);
        let pem = rsa.inner().private_key_to_pem_pkcs8().unwrap();
        let read = private(std::str::from_utf8(&pem).unwrap());
        assert_eq!(read.err(), Some(SigningKeyError::OtherKind));
        let pem = rsa.inner().public_key_to_pem().unwrap();
        let read = VerifyingKey::from_pem(&pem);
        assert_eq!(read.err(), Some(SigningKeyError::OtherKind));
        let sealed = private(PRIVATE).unwrap().key;
        let cipher = openssl::symm::Cipher::aes_256_cbc();
        let pem = sealed.private_key_to_pem_pkcs8_passphrase(cipher, b"secret");
        let read = private(std::str::from_utf8(&pem.unwrap()).unwrap());
        assert_eq!(read.err(), Some(SigningKeyError::Encrypted));
    }
}
