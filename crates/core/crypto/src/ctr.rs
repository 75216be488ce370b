//! AES-256 in counter mode: confidentiality without authentication.
//!
//! Standard: NIST SP 800-38A, section 6.5, with the whole 128-bit block as a big-endian counter
//! that wraps (appendix B.1).
//!
//! Invariants: the key schedule lives in locked memory and is borrowed by each operation; what the
//! operation itself spreads over the stack is wiped before it returns.
//!
//! Must not: be offered without a warning. A changed bit of the ciphertext changes the same bit of
//! the plaintext, and is not noticed.

use aes::Aes256Enc;
use ctr::cipher::{InnerIvInit, KeyInit, StreamCipher};
use ctr::{Ctr128BE, CtrCore};

use crate::error::CryptoError;
use crate::harden::wipe_stack;
use crate::secret::{Locked, SecretKey};

/// An AES-256 key schedule for counter mode.
pub struct CtrKey(Locked<Aes256Enc>);

impl CtrKey {
    /// Expands `key`, and wipes the stack.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
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

    /// Encrypts or decrypts, in place, bytes that begin `offset` bytes after the position of the
    /// counter block `first`. They may begin and end anywhere.
    ///
    /// **The caller's duty:** as for `apply`, for the message as a whole.
    #[expect(
        clippy::big_endian_bytes,
        reason = "NIST SP 800-38A counts in big-endian"
    )]
    pub fn apply_at(&self, first: &[u8; 16], offset: u64, in_out: &mut [u8]) {
        let counter = |number: u64| {
            u128::from_be_bytes(*first)
                .wrapping_add(u128::from(number))
                .to_be_bytes()
        };
        // The part of the first 16 bytes of keystream that lies before `in_out` is applied to
        // zeros.
        let before = usize::from(offset.to_le_bytes()[0] & 15);
        let shared = if before == 0 { 0 } else { 16 - before };
        let (head, body) = in_out.split_at_mut(shared.min(in_out.len()));
        if !head.is_empty() {
            let mut block = [0; 16];
            let part = before..before + head.len();
            block[part.clone()].copy_from_slice(head);
            combine(&self.0, &counter(offset / 16), &mut block);
            head.copy_from_slice(&block[part]);
        }
        if !body.is_empty() {
            combine(&self.0, &counter(offset.div_ceil(16)), body);
        }
        wipe_stack();
    }
}

/// Encrypts or decrypts in place, from the counter block `iv` on.
///
/// Not inlined: on processors with vector AES the library spreads the round keys, the first two of
/// which are the key itself, over its stack frame.
#[inline(never)]
fn combine(schedule: &Aes256Enc, iv: &[u8; 16], in_out: &mut [u8]) {
    let core = CtrCore::inner_iv_init(schedule, iv.into());
    // Panics only at the end of the keystream, 2^132 bytes away.
    Ctr128BE::from_core(core).apply_keystream(in_out);
}

/// Expands a key into locked memory. Not inlined, so that [`wipe_stack`] reaches the copies of the
/// key in its frames. Errors: [`CryptoError::OutOfLockedMemory`] without memory for keys.
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

    /// Any part of a message comes out as it does in the whole.
    #[test]
    fn a_part_is_that_of_the_whole() {
        let key = CtrKey::new(&SecretKey::generate().unwrap()).unwrap();
        for first in [block(0), block(u128::MAX - 1), [9; 16]] {
            let mut whole = vec![0; 100];
            key.apply(&first, &mut whole);
            for from in 0..=100 {
                for to in from..=100 {
                    let mut part = vec![0; to - from];
                    key.apply_at(&first, from as u64, &mut part);
                    assert_eq!(part, whole[from..to], "{from} to {to}");
                }
            }
        }
    }

    /// Far into a message, where the number of the block does not fit 32 bits.
    #[test]
    fn a_part_far_into_a_message_has_its_own_counter() {
        let key = CtrKey::new(&SecretKey::generate().unwrap()).unwrap();
        let mut part = [0; 40];
        key.apply_at(&block(5), u64::MAX - 39, &mut part);
        let mut expected = [0; 48];
        key.apply(&block(5 + u128::from((u64::MAX - 39) / 16)), &mut expected);
        assert_eq!(part, expected[8..]);
    }

    #[expect(
        clippy::big_endian_bytes,
        reason = "NIST SP 800-38A counts in big-endian"
    )]
    fn block(counter: u128) -> [u8; 16] {
        counter.to_be_bytes()
    }
}
