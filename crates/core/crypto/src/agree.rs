//! Key agreement: X25519 (RFC 7748) followed by HKDF-SHA-256 (RFC 5869), with a private key that is
//! used once.
//!
//! Invariants: the shared secret never leaves the call, only keys derived from it do, and they are
//! in locked memory; a peer's key of small order is refused (RFC 7748, section 6.1).
//!
//! Must not: authenticate anybody. The caller has to know whose public key it is.

use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SystemRandom;

use crate::error::CryptoError;
use crate::harden::wipe_stack;
use crate::kdf::hkdf_into;
use crate::secret::SecretKey;

/// A private key for one agreement.
pub struct KeyAgreement(EphemeralPrivateKey);

impl KeyAgreement {
    /// Makes a random key pair: the private key, and the public key of 32 bytes.
    ///
    /// # Errors
    /// [`CryptoError::Random`] if the kernel gives no random bytes.
    pub fn generate() -> Result<(Self, [u8; 32]), CryptoError> {
        let pair = generate();
        wipe_stack();
        pair
    }

    /// Derives two keys from the secret that is shared with `peer`: one with `first` as HKDF's
    /// info, one with `second`. Both sides must put everything that they exchanged before into
    /// `salt`. Consumes the private key.
    ///
    /// # Errors
    /// [`CryptoError::Key`] for a public key of small order; [`CryptoError::OutOfLockedMemory`]
    /// without memory for keys.
    pub fn agree(
        self,
        peer: &[u8; 32],
        salt: &[u8],
        first: &[u8],
        second: &[u8],
    ) -> Result<(SecretKey, SecretKey), CryptoError> {
        let peer = UnparsedPublicKey::new(&X25519, peer);
        let keys = agree_ephemeral(self.0, &peer, |shared| {
            let derive =
                |info: &[u8]| SecretKey::filled_by(|out| hkdf_into(shared, salt, info, out));
            Ok((derive(first)?, derive(second)?))
        });
        wipe_stack();
        keys.unwrap_or(Err(CryptoError::Key))
    }
}

/// Makes a fresh private key for one agreement, and its public key. Not inlined, so that
/// [`wipe_stack`] reaches its frames. Errors: [`CryptoError::Random`] when the kernel gives no
/// random bytes.
#[inline(never)]
fn generate() -> Result<(KeyAgreement, [u8; 32]), CryptoError> {
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new())
        .map_err(|_| CryptoError::Random)?;
    let public = private
        .compute_public_key()
        .map_err(|_| CryptoError::Random)?;
    let public = public
        .as_ref()
        .try_into()
        .map_err(|_| CryptoError::Random)?;
    Ok((KeyAgreement(private), public))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_derive_the_same_keys_and_nobody_else_does() {
        let (alice, alice_public) = KeyAgreement::generate().unwrap();
        let (bob, bob_public) = KeyAgreement::generate().unwrap();
        let (eve, _) = KeyAgreement::generate().unwrap();
        let (there, back) = alice
            .agree(&bob_public, b"salt", b"there", b"back")
            .unwrap();
        let (other_there, other_back) = bob
            .agree(&alice_public, b"salt", b"there", b"back")
            .unwrap();
        assert!(there.ct_eq(&other_there) && back.ct_eq(&other_back));
        assert!(!there.ct_eq(&back), "two names, two keys");
        let (eves, _) = eve.agree(&bob_public, b"salt", b"there", b"back").unwrap();
        assert!(!there.ct_eq(&eves));
    }

    #[test]
    fn the_salt_takes_part() {
        let (alice, alice_public) = KeyAgreement::generate().unwrap();
        let (bob, bob_public) = KeyAgreement::generate().unwrap();
        let (one, _) = alice
            .agree(&bob_public, b"salt", b"there", b"back")
            .unwrap();
        let (other, _) = bob
            .agree(&alice_public, b"tlas", b"there", b"back")
            .unwrap();
        assert!(!one.ct_eq(&other));
    }

    #[test]
    fn points_of_small_order_are_refused() {
        // RFC 7748, section 6.1: the all-zero output must be refused; these inputs give it.
        for peer in [[0; 32], {
            let mut one = [0; 32];
            one[0] = 1;
            one
        }] {
            let (private, _) = KeyAgreement::generate().unwrap();
            assert!(matches!(
                private.agree(&peer, b"", b"a", b"b"),
                Err(CryptoError::Key)
            ));
        }
    }
}
