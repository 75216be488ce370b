//! AES in XTS mode, 128 and 256 bits: confidentiality of storage blocks without authentication or
//! growth.
//!
//! Standard: IEEE 1619-2018 and NIST SP 800-38E, without ciphertext stealing: lengths are multiples
//! of 16.
//!
//! Invariants: key schedules live in locked memory only (C11); encrypting and decrypting neither
//! allocate nor wait while one thread uses the key (C13); a context is used by one thread at a
//! time, and a forked child has its own copy.
//!
//! Must not: be offered without a warning. A changed 16-byte unit of ciphertext becomes 16 bytes of
//! noise, and is not noticed; two versions of a unit at the same place under the same key can be
//! seen to be equal.

use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use crate::error::CryptoError;
use crate::harden::wipe_stack;
use crate::libcrypto::{Context, Direction};
use crate::secret::SecretBytes;

/// Bytes per unit: a unit's ciphertext depends on key, tweak, its index in the data unit and its 16
/// bytes alone.
const UNIT: usize = 16;
/// How many threads can use one key at the same time. Further ones copy the contexts for each call.
const LANES: usize = 16;

/// An XTS key: two AES keys, expanded.
pub struct XtsKey {
    /// Only copied, never used, so that it can be copied at any time.
    template: Pair,
    /// Contexts for threads that work at the same time, made when they are first needed. The first
    /// is made with the key.
    lanes: [OnceLock<Mutex<Pair>>; LANES],
}

/// The contexts of both directions.
struct Pair {
    encrypt: Context,
    decrypt: Context,
}

impl XtsKey {
    /// Expands `key`: 32 bytes for AES-128-XTS, 64 for AES-256-XTS. The first half encrypts the
    /// data, the second the tweak.
    ///
    /// # Errors
    /// [`CryptoError::Key`] for another length, or when both halves are equal (SP 800-38E requires
    /// that they differ); [`CryptoError::OutOfLockedMemory`] without memory for keys;
    /// [`CryptoError::Library`] when the library fails.
    pub fn new(key: &SecretBytes) -> Result<Self, CryptoError> {
        let expanded = Self::expanded(key);
        wipe_stack();
        expanded
    }

    /// Encrypts the data unit `from`, or its first units, into `to`.
    ///
    /// `from` and `to` have the same length, a multiple of 16 from 16 up. After an error the
    /// contents of `to` are undefined.
    ///
    /// **The caller's duty:** use a tweak for one place only. Of two versions of a place under one
    /// key an observer sees which 16-byte units differ, and nothing else. This mode does not
    /// authenticate.
    ///
    /// # Errors
    /// [`CryptoError::Length`] for other lengths; [`CryptoError::TooLong`] above 16 MiB (SP
    /// 800-38E); [`CryptoError::OutOfLockedMemory`] while other threads use the key;
    /// [`CryptoError::Library`] when the library fails.
    pub fn encrypt(&self, tweak: &[u8; 16], from: &[u8], to: &mut [u8]) -> Result<(), CryptoError> {
        check_lengths(from, to)?;
        self.with_lane(|pair| pair.encrypt.apply_xts(tweak, from, to))
    }

    /// Decrypts what [`XtsKey::encrypt`] made, with the same tweak, from `from` into `to`. Every
    /// ciphertext decrypts to something. After an error the contents of `to` are undefined.
    ///
    /// # Errors
    /// [`CryptoError::Length`] unless both lengths are equal and a multiple of 16 from 16 up;
    /// [`CryptoError::TooLong`] above 16 MiB; [`CryptoError::OutOfLockedMemory`] while other
    /// threads use the key; [`CryptoError::Library`] when the library fails.
    pub fn decrypt(&self, tweak: &[u8; 16], from: &[u8], to: &mut [u8]) -> Result<(), CryptoError> {
        check_lengths(from, to)?;
        self.with_lane(|pair| pair.decrypt.apply_xts(tweak, from, to))
    }

    /// Expands a key, with the errors of [`Self::new`], without the wipe. Not inlined, so that
    /// `wipe_stack` reaches what its frames leave behind.
    #[inline(never)]
    fn expanded(key: &SecretBytes) -> Result<Self, CryptoError> {
        let key = key.as_slice();
        let (data, tweak) = key.split_at(key.len() / 2);
        if data == tweak {
            return Err(CryptoError::Key);
        }
        let template = Pair {
            encrypt: Context::xts(key, Direction::Encrypt)?,
            decrypt: Context::xts(key, Direction::Decrypt)?,
        };
        let lanes = [const { OnceLock::new() }; LANES];
        if let Some(first) = lanes.first() {
            let _empty = first.set(Mutex::new(template.try_clone()?));
        }
        Ok(Self { template, lanes })
    }

    /// Runs `work` with contexts that no other thread is using, and copies them where there are
    /// none. Never waits for a lane: in a forked child it may be held by a thread that does not
    /// exist there. Errors: those of `work`; [`CryptoError::OutOfLockedMemory`] without memory for
    /// keys.
    fn with_lane(
        &self,
        work: impl FnOnce(&mut Pair) -> Result<(), CryptoError>,
    ) -> Result<(), CryptoError> {
        for lane in &self.lanes {
            let pair = match lane.get() {
                Some(pair) => pair,
                None => {
                    // Another thread may have filled the lane meanwhile; then this copy is dropped.
                    let _lost = lane.set(Mutex::new(self.template.try_clone()?));
                    wipe_stack();
                    let Some(pair) = lane.get() else { continue };
                    pair
                }
            };
            if let Some(mut pair) = try_lock_lane(pair) {
                return work(&mut pair);
            }
        }
        let mut own = self.template.try_clone()?;
        wipe_stack();
        work(&mut own)
    }
}

impl Pair {
    /// Copies both contexts. Errors: [`CryptoError::OutOfLockedMemory`] without memory for keys.
    fn try_clone(&self) -> Result<Self, CryptoError> {
        Ok(Self {
            encrypt: self.encrypt.try_clone()?,
            decrypt: self.decrypt.try_clone()?,
        })
    }
}

/// Locks a lane without waiting. `None` when another thread is using it.
fn try_lock_lane(pair: &Mutex<Pair>) -> Option<MutexGuard<'_, Pair>> {
    match pair.try_lock() {
        Ok(pair) => Some(pair),
        // Every use begins with a new tweak, so that an interrupted one has no effect on the next.
        Err(TryLockError::Poisoned(pair)) => Some(pair.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Checks that both lengths are equal, a multiple of 16, not zero, and not above 16 MiB. Errors:
/// [`CryptoError::Length`]; [`CryptoError::TooLong`] above 16 MiB.
fn check_lengths(from: &[u8], to: &[u8]) -> Result<(), CryptoError> {
    /// 2^20 units (SP 800-38E, section 4).
    const LEN_MAX: usize = 16 << 20;
    if from.is_empty() || !from.len().is_multiple_of(UNIT) || from.len() != to.len() {
        return Err(CryptoError::Length);
    }
    if from.len() > LEN_MAX {
        return Err(CryptoError::TooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(len: usize) -> XtsKey {
        let mut bytes = vec![0; len];
        crate::fill_random(&mut bytes).unwrap();
        XtsKey::new(&SecretBytes::take(&mut bytes).unwrap()).unwrap()
    }

    #[test]
    fn what_is_encrypted_decrypts() {
        for key_len in [32, 64] {
            let key = key(key_len);
            for len in [16, 32, 48, 112, 128, 144, 512, 4096, 8176, 8192, 65_536] {
                let plain: Vec<u8> = (0..=250).cycle().take(len).collect();
                let (mut sealed, mut opened) = (vec![0; len], vec![0; len]);
                key.encrypt(&[7; 16], &plain, &mut sealed).unwrap();
                assert_ne!(sealed, plain);
                key.decrypt(&[7; 16], &sealed, &mut opened).unwrap();
                assert_eq!(opened, plain, "length {len}");
                key.decrypt(&[8; 16], &sealed, &mut opened).unwrap();
                assert_ne!(opened, plain, "length {len}, other tweak");
            }
        }
    }

    /// What the shield's partial writes rest on: a unit depends on its index and its own bytes, not
    /// on its neighbours, so the units of a prefix are those of the whole.
    #[test]
    fn the_units_of_a_prefix_are_those_of_the_whole() {
        let key = key(64);
        let plain = vec![5; 8192];
        let mut whole = vec![0; 8192];
        key.encrypt(&[1; 16], &plain, &mut whole).unwrap();
        for len in (16..8192).step_by(16) {
            let mut prefix = vec![0; len];
            key.encrypt(&[1; 16], &plain[..len], &mut prefix).unwrap();
            assert_eq!(prefix, whole[..len], "length {len}");
        }
        let mut changed = plain;
        changed[4096] ^= 1;
        let mut again = vec![0; 8192];
        key.encrypt(&[1; 16], &changed, &mut again).unwrap();
        let differing: Vec<usize> = (0..512)
            .filter(|unit| again[unit * 16..][..16] != whole[unit * 16..][..16])
            .collect();
        assert_eq!(differing, [256]);
    }

    #[test]
    fn lengths_that_are_not_whole_units_are_refused() {
        let key = key(32);
        for (from, to) in [(0, 0), (1, 1), (15, 15), (17, 17), (16, 32), (32, 16)] {
            let refused = key.encrypt(&[0; 16], &vec![0; from], &mut vec![0; to]);
            assert_eq!(refused, Err(CryptoError::Length), "{from} to {to}");
            let refused = key.decrypt(&[0; 16], &vec![0; from], &mut vec![0; to]);
            assert_eq!(refused, Err(CryptoError::Length), "{from} to {to}");
        }
        let long = vec![0; (16 << 20) + 16];
        let refused = key.encrypt(&[0; 16], &long, &mut vec![0; long.len()]);
        assert_eq!(refused, Err(CryptoError::TooLong));
    }

    #[test]
    fn bad_keys_are_refused() {
        for len in [0, 16, 31, 33, 48, 63, 65, 128] {
            let mut bytes: Vec<u8> = (0..=255).take(len).collect();
            let bytes = SecretBytes::take(&mut bytes).unwrap();
            assert_eq!(XtsKey::new(&bytes).err(), Some(CryptoError::Key), "{len}");
        }
        for len in [32, 64] {
            let equal = SecretBytes::take(&mut vec![9; len]).unwrap();
            assert_eq!(XtsKey::new(&equal).err(), Some(CryptoError::Key));
        }
    }

    #[test]
    fn more_threads_than_lanes_agree() {
        let key = key(64);
        let plain = vec![3; 8192];
        let sealed_with = |number: u8| {
            let mut sealed = vec![0; 8192];
            key.encrypt(&[number; 16], &plain, &mut sealed).unwrap();
            sealed
        };
        let expected: Vec<Vec<u8>> = (0..40).map(sealed_with).collect();
        std::thread::scope(|scope| {
            for number in 0..40 {
                let expected = &expected[usize::from(number)];
                scope.spawn(move || {
                    for _ in 0..200 {
                        assert_eq!(&sealed_with(number), expected);
                    }
                });
            }
        });
    }

    /// All lanes are taken, as in a child whose parent forked in the middle of sixteen calls.
    #[test]
    fn a_call_waits_for_no_lane() {
        let key = key(32);
        let mut before = vec![0; 64];
        key.encrypt(&[1; 16], &[0; 64], &mut before).unwrap();
        for lane in &key.lanes {
            let _filled = lane.set(Mutex::new(key.template.try_clone().unwrap()));
        }
        let held: Vec<_> = key
            .lanes
            .iter()
            .map(|lane| lane.get().unwrap().lock().unwrap())
            .collect();
        let mut after = vec![0; 64];
        key.encrypt(&[1; 16], &[0; 64], &mut after).unwrap();
        drop(held);
        assert_eq!(after, before);
    }
}
