//! AES-256 in counter mode: confidentiality without authentication.
//!
//! Standard: NIST SP 800-38A, section 6.5, with the whole 128-bit block as a big-endian counter
//! that wraps (appendix B.1).
//!
//! Invariants: the key schedule lives in locked memory and is borrowed by each operation; what the
//! operation itself spreads over the stack is wiped before it returns.
//!
//! Must not: be offered without a warning. A changed ciphertext bit changes the same plaintext
//! bit, and nobody notices.

use aes::Aes256Enc;
use ctr::cipher::{InnerIvInit, KeyInit, StreamCipher};
use ctr::{Ctr128BE, CtrCore};

use crate::error::CryptoError;
use crate::harden::wipe_stack;
use crate::secret::{Locked, SecretKey};

/// An AES-256 key schedule for counter mode.
pub struct CtrKey(Locked<Aes256Enc>);

impl CtrKey {
    /// Expands `key`.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`].
    pub fn new(key: &SecretKey) -> Result<Self, CryptoError> {
        let expanded = expand(key);
        wipe_stack();
        expanded.map(Self)
    }

    /// Encrypts or decrypts `in_out` in place: both are the same operation.
    ///
    /// `iv` is the first counter block.
    ///
    /// **The caller's duty:** no counter block may serve twice under one key. A message uses
    /// `iv`, `iv + 1`, ... one for every 16 bytes, so ranges of different messages must not
    /// overlap; where they do, the difference of the plaintexts is revealed. The caller also
    /// answers for authenticity, which this mode does not give.
    pub fn apply(&self, iv: &[u8; 16], in_out: &mut [u8]) {
        combine(&self.0, iv, in_out);
        wipe_stack();
    }
}

/// Not inlined: on processors with vector AES the library spreads the round keys, the first two of
/// which are the key itself, over its stack frame.
#[inline(never)]
fn combine(schedule: &Aes256Enc, iv: &[u8; 16], in_out: &mut [u8]) {
    let core = CtrCore::inner_iv_init(schedule, iv.into());
    // Panics only at the end of the keystream, 2^132 bytes away.
    Ctr128BE::from_core(core).apply_keystream(in_out);
}

/// Not inlined, so that [`wipe_stack`] reaches the copies of the key its frames leave behind.
#[inline(never)]
fn expand(key: &SecretKey) -> Result<Locked<Aes256Enc>, CryptoError> {
    Locked::new(Aes256Enc::new(key.expose().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applying_twice_gives_the_plaintext_back() {
        let key = CtrKey::new(&SecretKey::generate().unwrap()).unwrap();
        for len in [0, 1, 15, 16, 17, 127, 128, 129, 511, 512, 513, 4096, 65_537] {
            let plain: Vec<u8> = (0..=250).cycle().take(len).collect();
            let mut bytes = plain.clone();
            key.apply(&[7; 16], &mut bytes);
            assert!(len < 16 || bytes != plain);
            key.apply(&[7; 16], &mut bytes);
            assert_eq!(bytes, plain, "length {len}");
        }
    }

    /// The counter carries over all 16 bytes and wraps to zero: the keystream of a long message is
    /// that of its blocks, each with its own counter. The batch kernels must agree with this.
    #[test]
    fn the_counter_carries_and_wraps_over_128_bits() {
        let key = CtrKey::new(&SecretKey::generate().unwrap()).unwrap();
        for start in [
            u128::MAX,
            u128::MAX - 70,
            (1 << 32) - 2,
            (1 << 64) - 3,
            (1 << 96) - 1,
        ] {
            let mut whole = vec![0_u8; 16 * 150];
            key.apply(&block(start), &mut whole);
            let mut counter = start;
            for stretch in whole.chunks_exact(16) {
                let mut single = [0; 16];
                key.apply(&block(counter), &mut single);
                assert_eq!(stretch, single, "counter {counter:x}");
                counter = counter.wrapping_add(1);
            }
        }
    }

    #[expect(
        clippy::big_endian_bytes,
        reason = "NIST SP 800-38A counts in big-endian"
    )]
    fn block(counter: u128) -> [u8; 16] {
        counter.to_be_bytes()
    }
}
