//! Containers for secrets: fixed keys, variable-length secrets, and values such as expanded key
//! schedules, all in locked memory.
//!
//! Invariants: the bytes live only in an arena cell (C1 to C4); dropping wipes them; no type here
//! has `Debug`, `Clone`, `Copy`, `Default`, `Display` or a serialiser (C5), so a secret cannot be
//! printed or duplicated by a derive on the struct that holds it.
//!
//! Must not: return a secret by value.
#![expect(unsafe_code, reason = "gives typed views of arena cells")]

use std::marker::PhantomData;
use std::ops::Deref;

use zeroize::Zeroize;

use crate::arena::{ARENA_LEN, Cell, UNIT_LEN, all_locked, relock};
use crate::error::CryptoError;
use crate::mac::equal_in_constant_time;
use crate::random::fill_random;

/// A 32-byte key in locked memory, wiped on drop.
pub struct SecretKey(Locked<[u8; 32]>);

impl SecretKey {
    /// Makes a fresh random key.
    ///
    /// # Errors
    /// [`CryptoError::Random`] if the kernel's generator fails, [`CryptoError::OutOfLockedMemory`]
    /// if no memory can be mapped.
    pub fn generate() -> Result<Self, CryptoError> {
        Self::filled_by(|bytes| fill_random(bytes))
    }

    /// Copies `bytes` into locked memory and wipes the source, also when it fails.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
    pub fn take(bytes: &mut [u8; 32]) -> Result<Self, CryptoError> {
        let taken = Self::filled_by(|cell| {
            cell.copy_from_slice(bytes);
            Ok(())
        });
        bytes.zeroize();
        taken
    }

    /// Makes a second copy, also in locked memory. Explicit, so that it is seen in review.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
    pub fn try_clone(&self) -> Result<Self, CryptoError> {
        Self::filled_by(|cell| {
            cell.copy_from_slice(self.expose());
            Ok(())
        })
    }

    /// Whether both keys are equal. Compares in constant time.
    #[must_use]
    pub fn ct_eq(&self, other: &Self) -> bool {
        equal_in_constant_time(self.expose(), other.expose())
    }

    /// Returns the raw bytes, for wrapping one key under another and for handing a key to a
    /// provider.
    ///
    /// Only the keyring's wrapping and unwrapping code may call this. The bytes must not be copied
    /// to the heap or the stack; pass the reference on.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Makes a key that `fill` writes in place, so that it never exists outside the cell. Errors:
    /// those of `fill`; [`CryptoError::OutOfLockedMemory`] without memory for keys.
    pub(crate) fn filled_by(
        fill: impl FnOnce(&mut [u8; 32]) -> Result<(), CryptoError>,
    ) -> Result<Self, CryptoError> {
        let mut key = Locked::new([0; 32])?;
        fill(key.value_mut())?;
        Ok(Self(key))
    }
}

/// A secret of variable length, at most 64 KiB, in locked memory, wiped on drop: a passphrase, the
/// contents of a key file.
pub struct SecretBytes {
    cell: Cell,
    /// Bytes in use, at most what the cell was made for.
    len: usize,
}

impl SecretBytes {
    /// Makes a secret of `n` zero bytes, to be filled through [`SecretBytes::as_mut_slice`] and cut
    /// with [`SecretBytes::truncate`].
    ///
    /// # Errors
    /// [`CryptoError::TooLong`] above 64 KiB, [`CryptoError::OutOfLockedMemory`] without memory for
    /// keys.
    pub fn with_capacity(n: usize) -> Result<Self, CryptoError> {
        Ok(Self {
            cell: Cell::new(n)?,
            len: n,
        })
    }

    /// Copies `bytes` into locked memory and wipes the source, also when it fails.
    ///
    /// # Errors
    /// [`CryptoError::TooLong`] above 64 KiB, [`CryptoError::OutOfLockedMemory`] without memory for
    /// keys.
    pub fn take(bytes: &mut [u8]) -> Result<Self, CryptoError> {
        let taken = Self::with_capacity(bytes.len()).map(|mut secret| {
            secret.as_mut_slice().copy_from_slice(bytes);
            secret
        });
        bytes.zeroize();
        taken
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the cell owns at least `len` initialised bytes and lives as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.cell.base().as_ptr(), self.len) }
    }

    /// Returns the bytes in use, for writing. Before any [`SecretBytes::truncate`], the whole
    /// capacity.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes the view exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.cell.base().as_ptr(), self.len) }
    }

    /// Keeps the first `n` bytes and wipes the rest. Does nothing if `n` is not smaller.
    pub fn truncate(&mut self, n: usize) {
        if let Some(cut) = self.as_mut_slice().get_mut(n..) {
            cut.zeroize();
            self.len = n;
        }
    }

    /// Returns the number of bytes in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A value in locked memory, for key schedules and other state from which a key can be computed.
///
/// Dropping it runs the value's own destructor and then wipes the cell. Moving the value in leaves
/// copies in dead stack frames: build it in a function that is not inlined and call
/// [`crate::wipe_stack`] after that function returned.
pub struct Locked<T> {
    cell: Cell,
    value: PhantomData<T>,
}

// SAFETY: `Locked<T>` owns its `T` as `Box<T>` does.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Fails to compile for a type the arena cannot hold.
    const FITS: () = assert!(size_of::<T>() <= ARENA_LEN && align_of::<T>() <= UNIT_LEN);

    /// Moves `value` into locked memory.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys; the value is then dropped.
    pub fn new(value: T) -> Result<Self, CryptoError> {
        const { Self::FITS };
        let cell = Cell::new(size_of::<T>())?;
        // SAFETY: the cell is exclusive, large enough and aligned (FITS).
        unsafe { cell.base().cast::<T>().write(value) };
        Ok(Self {
            cell,
            value: PhantomData,
        })
    }

    /// Returns the value, for writing.
    pub(crate) fn value_mut(&mut self) -> &mut T {
        // SAFETY: `new` initialised the value; `&mut self` makes the view exclusive.
        unsafe { self.cell.base().cast::<T>().as_mut() }
    }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` initialised the value, and it lives until `drop`.
        unsafe { self.cell.base().cast::<T>().as_ref() }
    }
}

impl<T> Drop for Locked<T> {
    /// Runs the value's own destructor. Then the cell is wiped.
    fn drop(&mut self) {
        // SAFETY: the value is initialised and dropped only here; the cell is wiped afterwards.
        unsafe { self.cell.base().cast::<T>().drop_in_place() };
    }
}

/// Whether all memory that holds keys is locked into RAM. Maps the first of it if there is none
/// yet.
///
/// False if the kernel refused `mlock` (`RLIMIT_MEMLOCK`): keys are then still kept out of core
/// dumps and wiped, but can reach swap, and the caller may warn. Locks are not inherited by a
/// forked child; there, this call (or the first new key) locks the memory again.
#[must_use]
pub fn memory_is_locked() -> bool {
    all_locked()
}

/// Locks the memory of all keys again, in a forked child, which inherits the keys but not the
/// locks.
///
/// Call it first thing in the child of a single-threaded parent. Allocates nothing; does nothing in
/// a process that was not forked since the last call, or while another thread uses the memory.
/// Where the kernel refuses (`RLIMIT_MEMLOCK`), [`memory_is_locked`] returns false.
pub fn relock_after_fork() {
    relock();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_wipes_its_source_and_keeps_the_bytes() {
        let mut source = [7_u8; 32];
        let key = SecretKey::take(&mut source).unwrap();
        assert_eq!(source, [0; 32]);
        assert_eq!(key.expose(), &[7; 32]);

        let mut source = *b"correct horse";
        let secret = SecretBytes::take(&mut source).unwrap();
        assert_eq!(source, [0; 13]);
        assert_eq!(secret.as_slice(), b"correct horse");
    }

    #[test]
    fn take_wipes_its_source_even_when_it_fails() {
        let mut source = vec![9_u8; ARENA_LEN + 1];
        assert_eq!(
            SecretBytes::take(&mut source).err(),
            Some(CryptoError::TooLong)
        );
        assert!(source.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn every_single_bit_difference_is_seen() {
        let key = SecretKey::generate().unwrap();
        assert!(key.ct_eq(&key.try_clone().unwrap()));
        for bit in 0..256 {
            let mut other = *key.expose();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(
                !key.ct_eq(&SecretKey::take(&mut other).unwrap()),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn generated_keys_differ() {
        let (a, b) = (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        );
        assert!(!a.ct_eq(&b));
        assert_ne!(a.expose(), &[0; 32]);
    }

    #[test]
    fn truncate_wipes_what_it_cuts_and_never_grows() {
        let mut secret = SecretBytes::with_capacity(100).unwrap();
        assert_eq!(secret.as_slice(), [0; 100]);
        secret.as_mut_slice().fill(5);
        secret.truncate(200);
        assert_eq!(secret.len(), 100);
        secret.truncate(10);
        assert_eq!(secret.as_slice(), [5; 10]);
        // SAFETY: the cell still owns the 100 bytes it was made for.
        let whole = unsafe { std::slice::from_raw_parts(secret.cell.base().as_ptr(), 100) };
        assert!(whole[10..].iter().all(|byte| *byte == 0));
        secret.truncate(0);
        assert!(secret.is_empty());
    }

    #[test]
    fn secret_bytes_hold_nothing_and_64_kib() {
        assert!(SecretBytes::take(&mut []).unwrap().is_empty());
        assert_eq!(
            SecretBytes::with_capacity(ARENA_LEN).unwrap().len(),
            ARENA_LEN
        );
        assert_eq!(
            SecretBytes::with_capacity(ARENA_LEN + 1).err(),
            Some(CryptoError::TooLong)
        );
    }

    #[test]
    fn a_locked_value_runs_its_destructor_once() {
        let counter = std::sync::Arc::new(());
        let locked = Locked::new(counter.clone()).unwrap();
        assert_eq!(std::sync::Arc::strong_count(&*locked), 2);
        drop(locked);
        assert_eq!(std::sync::Arc::strong_count(&counter), 1);
    }
}
