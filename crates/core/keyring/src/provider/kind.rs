//! What every kind of provider implements, and its line in the registry.
//!
//! Must not: name a kind.

use crate::error::Error;
use crate::opener::Opener;

/// Delivers a keyring's root key.
pub trait RootProvider: Send + Sync {
    /// The word before the colon in `env:VAR`.
    fn name(&self) -> &'static str;
    /// The number in the keyring.
    fn number(&self) -> u16;
    /// The text after the colon; empty where there is none. Never a secret.
    fn argument(&self) -> &str;
    /// Fetches the root key of a keyring that there is. `creating`: a keyring is being sealed with
    /// it, so a passphrase is asked for twice.
    ///
    /// # Errors
    /// The codes of [`crate::KeySource`]; SR-2100 to SR-2106.
    fn fetch(&self, creating: bool) -> Result<Opener, Error>;
    /// Makes or fetches the root key of a keyring that is about to be sealed with it: a new one at
    /// each call, where the provider keeps no key but wraps one. Also when the argument holds the
    /// wrapped root key of before.
    ///
    /// # Errors
    /// As [`Self::fetch`].
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
    /// The argument that the keyring has to keep: with it, [`RootProvider::fetch`] delivers this
    /// root key.
    pub argument: String,
}

/// What a kind makes of an argument: a provider, or in words why it is not valid. The words do not
/// repeat the argument.
pub type Made = Result<Box<dyn RootProvider>, &'static str>;

/// One kind of provider.
#[derive(Clone, Copy)]
pub struct Registered {
    /// The word before the colon.
    pub name: &'static str,
    /// The number in the keyring.
    pub number: u16,
    /// Whether it runs or loads what its argument names, or sends credentials to where it points. A
    /// keyring that others may write to is then not acted on (K14).
    pub acts: bool,
    /// Makes one from a checked argument: not too long, no control characters.
    pub make: fn(&str) -> Made,
}
