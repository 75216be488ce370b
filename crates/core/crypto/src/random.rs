//! Random bytes from the kernel, one `getrandom` system call at a time.
//!
//! Invariant C6: every key, salt, identifier and nonce in Strongroom comes from here, directly or
//! through the nonce buffer, which is filled from here.
//!
//! Must not: buffer, have a generator of its own, or fall back to a weaker source.
#![expect(unsafe_code, reason = "the getrandom system call")]

use std::io;

use crate::error::CryptoError;

/// Fills `out` from the kernel's generator, waiting for it to be seeded early in boot.
///
/// # Errors
/// [`CryptoError::Random`] if the call is not available; `out` must then not be used.
pub fn fill_random(out: &mut [u8]) -> Result<(), CryptoError> {
    let mut rest = out;
    while !rest.is_empty() {
        // SAFETY: the pointer and length describe a writable slice.
        let written = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(written) {
            // Large requests may be cut short by a signal: getrandom(2).
            Ok(written) if written > 0 => {
                rest = rest.get_mut(written..).ok_or(CryptoError::Random)?;
            }
            Ok(_) => return Err(CryptoError::Random),
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(CryptoError::Random),
        }
    }
    Ok(())
}

/// Returns 16 random bytes from the kernel, for object identifiers and salts.
///
/// # Errors
/// [`CryptoError::Random`] if the kernel gives no random bytes.
pub fn random16() -> Result<[u8; 16], CryptoError> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Returns 32 random bytes from the kernel, for public values. A key is made with
/// [`crate::SecretKey::generate`], which never puts it on the stack.
///
/// # Errors
/// [`CryptoError::Random`] if the kernel gives no random bytes.
pub fn random32() -> Result<[u8; 32], CryptoError> {
    let mut bytes = [0; 32];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_long_buffer_is_filled() {
        // Longer than 256 bytes, where getrandom stops being atomic, and not a round number.
        let mut bytes = vec![0_u8; 1_000_003];
        fill_random(&mut bytes).unwrap();
        for chunk in bytes.chunks_exact(32) {
            assert_ne!(
                chunk, [0; 32],
                "32 zero bytes in a row have probability 2^-256"
            );
        }
        fill_random(&mut []).unwrap();
    }

    #[test]
    fn values_do_not_repeat() {
        assert_ne!(random16().unwrap(), random16().unwrap());
        assert_ne!(random32().unwrap(), random32().unwrap());
    }
}
