//! A password or other secret text, overwritten when it is dropped.
//!
//! Invariant Q1. Must not: be shown, or compared.

use zeroize::Zeroizing;

/// Secret bytes. Their `Debug` shows none of them, and only [`Self::again`] copies them.
#[derive(Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over without a copy. They are overwritten when the secret is dropped.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the secret bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Makes a second copy, which is overwritten when it is dropped too.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.0.to_vec())
    }
}

impl std::fmt::Debug for Secret {
    /// Writes `(secret)` in place of the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
