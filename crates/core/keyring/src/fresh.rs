//! The random ids, salts, keys and nonces, and the time, that a new header needs: from the system,
//! or fixed in the test of the known-answer vectors.
//!
//! Must not: be reachable from outside this crate; a caller could choose nonces then.

use std::time::{SystemTime, UNIX_EPOCH};

use strongroom_crypto::SecretKey;

use crate::error::Error;

/// A source of everything in a header that its caller does not give.
pub(crate) trait Fresh {
    /// Returns a random object id. Errors here and below: SR-5001 without randomness.
    fn id(&mut self) -> Result<[u8; 16], Error>;
    /// Returns a random slot salt.
    fn salt(&mut self) -> Result<[u8; 32], Error>;
    /// Returns a random data key.
    fn key(&mut self) -> Result<SecretKey, Error>;
    /// Returns a random GCM nonce. It is never returned twice.
    fn nonce(&mut self) -> Result<[u8; 12], Error>;
    /// Returns the seconds since the Unix epoch.
    fn now_unix_s(&mut self) -> u64;
}

/// The operating system's randomness and clock.
pub(crate) struct System;

impl Fresh for System {
    /// Returns 16 random bytes from the operating system. Errors: SR-5001 when it has none.
    fn id(&mut self) -> Result<[u8; 16], Error> {
        Ok(strongroom_crypto::random16()?)
    }

    /// Returns 32 random bytes from the operating system. Errors: SR-5001 when it has none.
    fn salt(&mut self) -> Result<[u8; 32], Error> {
        Ok(strongroom_crypto::random32()?)
    }

    /// Makes a random key in locked memory. Errors: SR-5001 without randomness or memory for keys.
    fn key(&mut self) -> Result<SecretKey, Error> {
        Ok(SecretKey::generate()?)
    }

    /// Returns 12 random bytes. Errors: SR-5001 when the operating system has none.
    fn nonce(&mut self) -> Result<[u8; 12], Error> {
        Ok(strongroom_crypto::nonce12()?)
    }

    /// Returns the seconds since the Unix epoch; 0 when the clock is before 1970.
    fn now_unix_s(&mut self) -> u64 {
        // A clock before 1970 is a wrong clock; the time is informative only.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }
}
