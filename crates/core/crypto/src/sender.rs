//! One-pass key agreement with a recipient's static P-256 key: NIST SP 800-56A, section
//! 6.2.2, with the key derivation `KDFe` that TPMs use (TCG, "Trusted Platform Module Library",
//! part 1, section 11.4.10.3, with SHA-256).
//!
//! Invariant: the shared point never leaves the call, only the key derived from it does, and it is
//! in locked memory.
//!
//! Must not: decide whose key it is. The caller has to know.
#![expect(clippy::big_endian_bytes, reason = "KDFe counts in big-endian")]

use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::digest;
use ring::rand::SystemRandom;

use crate::error::CryptoError;
use crate::harden::wipe_stack;
use crate::secret::SecretKey;

/// A point as it is written uncompressed: 4, x, y.
const POINT: usize = 65;

/// Makes a key for the owner of the P-256 key `peer` (uncompressed, 65 bytes). Returns it with the
/// point from which the owner derives the same key.
///
/// # Errors
/// [`CryptoError::Key`] when `peer` is not a point on the curve; [`CryptoError::Random`],
/// [`CryptoError::OutOfLockedMemory`] without memory for keys.
pub fn kdfe_p256(
    peer: &[u8; POINT],
    label: &[u8],
) -> Result<(SecretKey, [u8; POINT]), CryptoError> {
    let made = agree(peer, label);
    wipe_stack();
    made
}

/// Makes the key and the point of [`kdfe_p256`], without the wipe. Not inlined, so that
/// [`wipe_stack`] reaches its frames. Errors: [`CryptoError::Key`], [`CryptoError::Random`],
/// [`CryptoError::OutOfLockedMemory`] without memory for keys.
#[inline(never)]
fn agree(peer: &[u8; POINT], label: &[u8]) -> Result<(SecretKey, [u8; POINT]), CryptoError> {
    let private = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new())
        .map_err(|_| CryptoError::Random)?;
    let point = private
        .compute_public_key()
        .map_err(|_| CryptoError::Random)?;
    let point: [u8; POINT] = point.as_ref().try_into().map_err(|_| CryptoError::Random)?;
    let theirs = UnparsedPublicKey::new(&ECDH_P256, peer);
    let key = agree_ephemeral(private, &theirs, |shared| {
        SecretKey::filled_by(|out| {
            let mut hash = digest::Context::new(&digest::SHA256);
            hash.update(&1_u32.to_be_bytes());
            hash.update(shared);
            hash.update(label);
            hash.update(&[0]);
            for point in [&point, peer] {
                hash.update(&point[1..33]);
            }
            out.copy_from_slice(hash.finish().as_ref());
            Ok(())
        })
    });
    Ok((key.unwrap_or(Err(CryptoError::Key))?, point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_beside_the_curve_is_refused() {
        for peer in [[0; 65], [4; 65]] {
            assert_eq!(kdfe_p256(&peer, b"SECRET").err(), Some(CryptoError::Key));
        }
    }

    #[test]
    fn each_key_is_another() {
        let private = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
        let peer: [u8; 65] = private
            .compute_public_key()
            .unwrap()
            .as_ref()
            .try_into()
            .unwrap();
        let (one, point) = kdfe_p256(&peer, b"SECRET").unwrap();
        let (other, second) = kdfe_p256(&peer, b"SECRET").unwrap();
        assert!(!one.ct_eq(&other) && point != second);
    }
}
