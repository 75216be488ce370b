//! What every kind of provider implements, and its line in the registry.
//!
//! Must not: name a kind.

use crate::error::Error;
use crate::opener::Opener;

/// Delivers a keyring's root key.
pub trait RootProvider: Send + Sync {
    /// Returns the word before the colon in `env:VAR`.
    fn name(&self) -> &'static str;
    /// Returns the number of this kind in the keyring.
    fn number(&self) -> u16;
    /// Returns the text after the colon; empty where there is none. Never a secret.
    fn argument(&self) -> &str;
    /// Fetches the root key of an existing keyring. With `creating` a keyring is about to be sealed
    /// with it, and a passphrase is asked for twice.
    ///
    /// # Errors
    /// The codes of [`crate::KeySource`] for a variable, file, command or terminal; SR-2100 to
    /// SR-2106 and SR-2120 to SR-2124 for devices, key servers and clouds.
    fn fetch(&self, creating: bool) -> Result<Opener, Error>;
    /// Makes or fetches the root key that a keyring is about to be sealed with. A provider that
    /// wraps a root key makes a new one at each call, also when its argument already has a wrapped
    /// one. Writes no keyring.
    ///
    /// # Errors
    /// As [`Self::fetch`]; SR-2020 when the wrapped key is too long to be kept.
    fn create(&self) -> Result<Created, Error> {
        Ok(Created {
            opener: self.fetch(true)?,
            argument: self.argument().to_owned(),
        })
    }
}

/// A root key to seal a keyring with.
pub struct Created {
    /// The root key.
    pub opener: Opener,
    /// The argument for the keyring, with which [`RootProvider::fetch`] delivers this root key.
    pub argument: String,
}

/// A provider, or a text that says why an argument is not valid. The text does not repeat the
/// argument.
pub type Made = Result<Box<dyn RootProvider>, &'static str>;

/// One kind of provider.
#[derive(Clone, Copy)]
pub struct Registered {
    /// The word before the colon.
    pub name: &'static str,
    /// The number in the keyring.
    pub number: u16,
    /// Whether it runs or loads something that its argument names, or sends credentials to an
    /// address in it. It is then refused in a keyring that others may write to (K14).
    pub acts: bool,
    /// Makes a provider from an argument that is not too long and has no control characters.
    pub make: fn(&str) -> Made,
}
