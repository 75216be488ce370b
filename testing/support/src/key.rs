//! Raw keys of tests, as key files and variables have them: 64 hexadecimal digits.

use crate::random::Random;

/// The root key of the tests' keyrings.
pub const ROOT: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Another one.
pub const OTHER: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A new one.
pub fn raw_key(random: &mut Random) -> String {
    (0..4).map(|_| format!("{:016x}", random.next())).collect()
}
