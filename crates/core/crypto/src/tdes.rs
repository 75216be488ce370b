//! Three-key Triple DES in CBC mode with HMAC-SHA256 over the ciphertext. Legacy: use only where a
//! regulation requires it.
//!
//! Standards: NIST SP 800-67 Rev. 2 (the cipher, and its limit of 2^20 blocks under one key), SP
//! 800-38A (CBC), RFC 5652, section 6.3 (padding), FIPS 198-1 (HMAC). NIST allows it for decryption
//! only since the end of 2023 (SP 800-131A Rev. 2, table 1).
//!
//! Invariants:
//! - One key seals one message of at most 2^20 - 1 whole blocks: sealing and opening consume it.
//! - The tag is verified before anything is decrypted, so that padding is read only after it was
//!   authenticated.
//! - C8: after a failed opening the buffer holds zeros.
//!
//! Must not: be used unless the user has asked for it explicitly.

use zeroize::Zeroize;

use crate::error::CryptoError;
use crate::harden::wipe_stack;
use crate::kdf::hkdf_bytes;
use crate::libcrypto::{Context, Direction};
use crate::mac::MacKey;
use crate::secret::{SecretBytes, SecretKey};

/// Bytes of a block, and of an initialisation vector.
const BLOCK: usize = 8;
/// Bytes of the three keys together.
const KEYS: usize = 24;
/// Bytes of the key of the tag.
const MAC: usize = 32;
/// Longest message in bytes: below the limit of SP 800-67 Rev. 2, section 3.4, of 2^20 blocks.
const MESSAGE_MAX: usize = ((1 << 20) - 1) * BLOCK;

/// Keys for one message.
pub struct TripleDes {
    cipher: SecretBytes,
    mac: MacKey,
}

impl TripleDes {
    /// How many bytes longer a sealed message is than its plaintext: the end of the ciphertext,
    /// which is padded, and the tag.
    pub const TRAILER_LEN: usize = BLOCK + MAC;

    /// Derives the three keys, the initialisation vector and the key of the tag from `key` with
    /// HKDF-SHA256.
    ///
    /// **The caller's duty:** `info` names one message. Another one under the same keys would have
    /// the same initialisation vector.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
    pub fn derive(key: &SecretKey, salt: &[u8], info: &[u8]) -> Result<Self, CryptoError> {
        let material = hkdf_bytes(key, salt, info, KEYS + BLOCK + MAC)?;
        let (cipher, mac) = material.as_slice().split_at(KEYS + BLOCK);
        let mac = MacKey::from_bytes(mac)?;
        let mut kept = SecretBytes::with_capacity(cipher.len())?;
        kept.as_mut_slice().copy_from_slice(cipher);
        Ok(Self { cipher: kept, mac })
    }

    /// Encrypts `in_out` in place and returns the trailer: the rest of the ciphertext, and the tag
    /// over `aad`, `in_out` and that rest. `aad` must encode its own length, or that of `in_out`.
    ///
    /// # Errors
    /// [`CryptoError::TooLong`] for a message of 8 MiB - 8 bytes or more;
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when
    /// the library fails. The contents of `in_out` are then undefined.
    pub fn seal(
        self,
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Result<[u8; Self::TRAILER_LEN], CryptoError> {
        if in_out.len() >= MESSAGE_MAX {
            return Err(CryptoError::TooLong);
        }
        let mut context = self.context(Direction::Encrypt)?;
        let (whole, tail) = in_out.split_at_mut(in_out.len() / BLOCK * BLOCK);
        context.apply_in_place(whole)?;
        // The last block: the end of the message, and padding.
        let mut last = [padding(tail.len()); BLOCK];
        copy(&mut last, tail);
        context.apply_in_place(&mut last)?;
        let (here, beyond) = last.split_at(tail.len());
        copy(tail, here);
        let mut trailer = [0; Self::TRAILER_LEN];
        copy(&mut trailer, beyond);
        let (rest, tag) = trailer.split_at_mut(BLOCK);
        copy(tag, &self.mac.mac(&[aad, in_out, rest]));
        wipe_stack();
        Ok(trailer)
    }

    /// Verifies the tag, then decrypts `in_out` in place. False when anything differs from what was
    /// sealed; `in_out` is then all zeros.
    ///
    /// # Errors
    /// [`CryptoError::Library`] when libcrypto no longer has the cipher,
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys. Whether the message is authentic
    /// is then not known, and `in_out` is all zeros.
    pub fn open(
        self,
        aad: &[u8],
        in_out: &mut [u8],
        trailer: &[u8; Self::TRAILER_LEN],
    ) -> Result<bool, CryptoError> {
        let (rest, tag) = trailer.split_at(BLOCK);
        let tag = <&[u8; MAC]>::try_from(tag).map_err(|_| CryptoError::Length)?;
        let opened = if in_out.len() < MESSAGE_MAX && self.mac.verify(&[aad, in_out, rest], tag) {
            self.context(Direction::Decrypt)
                .map(|context| decrypt(context, in_out, rest).is_some())
        } else {
            Ok(false)
        };
        if opened != Ok(true) {
            in_out.zeroize();
        }
        opened
    }

    /// Makes a cipher context with the derived keys and vector. Errors: [`CryptoError::Library`]
    /// when libcrypto does not have the cipher; [`CryptoError::OutOfLockedMemory`] without memory
    /// for keys.
    fn context(&self, direction: Direction) -> Result<Context, CryptoError> {
        let (keys, iv) = self.cipher.as_slice().split_at(KEYS);
        Context::triple_des(keys, iv, direction)
    }
}

/// Decrypts in place after the tag was verified, and wipes the stack. `None` when the padding is
/// not what [`TripleDes::seal`] makes, which only somebody with the key can bring about, or
/// libcrypto fails.
fn decrypt(mut context: Context, in_out: &mut [u8], rest: &[u8]) -> Option<()> {
    let (whole, tail) = in_out.split_at_mut(in_out.len() / BLOCK * BLOCK);
    context.apply_in_place(whole).ok()?;
    let mut last = [0; BLOCK];
    copy(&mut last, tail);
    let (beyond, zeros) = rest.split_at_checked(BLOCK - tail.len())?;
    copy(last.get_mut(tail.len()..)?, beyond);
    context.apply_in_place(&mut last).ok()?;
    let (here, filling) = last.split_at(tail.len());
    let expected = padding(tail.len());
    let canonical =
        filling.iter().all(|byte| *byte == expected) && zeros.iter().all(|byte| *byte == 0);
    copy(tail, here);
    last.zeroize();
    wipe_stack();
    canonical.then_some(())
}

/// Returns the value of each byte of padding after a tail of this length: how many there are.
fn padding(tail: usize) -> u8 {
    u8::try_from(BLOCK - tail % BLOCK).unwrap_or(0)
}

/// Copies bytes from the beginning of `from` to that of `to`, as many as the shorter one has.
fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SecretKey {
        SecretKey::take(&mut [7; 32]).unwrap()
    }

    fn sealed(len: usize) -> (Vec<u8>, Vec<u8>, [u8; TripleDes::TRAILER_LEN]) {
        let plain: Vec<u8> = (0..=250).cycle().take(len).collect();
        let mut bytes = plain.clone();
        let keys = TripleDes::derive(&key(), b"salt", b"one").unwrap();
        let trailer = keys.seal(b"head", &mut bytes).unwrap();
        (plain, bytes, trailer)
    }

    fn keys_of(info: &[u8]) -> TripleDes {
        TripleDes::derive(&key(), b"salt", info).unwrap()
    }

    fn opened(
        aad: &[u8],
        info: &[u8],
        bytes: &mut [u8],
        trailer: &[u8; 40],
    ) -> Result<bool, CryptoError> {
        keys_of(info).open(aad, bytes, trailer)
    }

    #[test]
    fn opens_what_it_sealed_at_every_length_of_the_last_block() {
        for len in (0..40).chain([4095, 4096, 4097, 1 << 20]) {
            let (plain, mut bytes, trailer) = sealed(len);
            assert!(len < 8 || bytes != plain);
            assert_eq!(opened(b"head", b"one", &mut bytes, &trailer), Ok(true));
            assert_eq!(bytes, plain, "length {len}");
        }
    }

    #[test]
    fn every_bit_counts_and_a_failure_leaves_zeros() {
        for len in [0, 1, 7, 8, 21] {
            let (_, bytes, trailer) = sealed(len);
            let refused = |aad: &[u8], info: &[u8], mut bytes: Vec<u8>, trailer: [u8; 40]| {
                assert_eq!(opened(aad, info, &mut bytes, &trailer), Ok(false));
                assert!(bytes.iter().all(|byte| *byte == 0), "length {len}");
            };
            for bit in 0..8 * len {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                refused(b"head", b"one", changed, trailer);
            }
            for bit in 0..8 * trailer.len() {
                let mut changed = trailer;
                changed[bit / 8] ^= 1 << (bit % 8);
                refused(b"head", b"one", bytes.clone(), changed);
            }
            refused(b"heat", b"one", bytes.clone(), trailer);
            refused(b"head", b"two", bytes.clone(), trailer);
            let mut longer = bytes.clone();
            longer.push(trailer[0]);
            refused(b"head", b"one", longer, trailer);
        }
    }

    /// The cipher itself: NIST SP 800-67 Rev. 2, appendix B.1: three keys, four blocks in ECB,
    /// which CBC is with a zero vector for the first of them.
    #[test]
    fn the_standards_example() {
        let keys: Vec<u8> = [
            0x0123_4567_89ab_cdef_u64,
            0x2345_6789_abcd_ef01,
            0x4567_89ab_cdef_0123,
        ]
        .iter()
        .flat_map(|word| (0..8).rev().map(move |at| word.to_le_bytes()[at]))
        .collect();
        let mut context = Context::triple_des(&keys, &[0; 8], Direction::Encrypt).unwrap();
        let mut block = *b"The qufc";
        context.apply_in_place(&mut block).unwrap();
        let expected = [0xa8, 0x26, 0xfd, 0x8c, 0xe5, 0x3b, 0x85, 0x5f];
        assert_eq!(block, expected);
    }

    #[test]
    fn a_library_without_the_cipher_is_told_from_a_forgery() {
        let (_, mut bytes, trailer) = sealed(21);
        let absent = crate::libcrypto::without_triple_des();
        let told = opened(b"head", b"one", &mut bytes, &trailer);
        drop(absent);
        assert_eq!(told, Err(CryptoError::Library));
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_message_beyond_the_ciphers_limit_is_refused() {
        let keys = TripleDes::derive(&key(), b"", b"").unwrap();
        let mut bytes = vec![0; MESSAGE_MAX];
        assert_eq!(keys.seal(b"", &mut bytes).err(), Some(CryptoError::TooLong));
    }
}
