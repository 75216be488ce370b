//! Root key providers: what delivers the key that opens a keyring.
//!
//! A provider is one file in this directory and one line in [`REGISTRY`]. Its number and argument stand in the
//! keyring, readable without the root key, so an argument is never a secret. Numbers are part of the format
//! (docs/spec/keyring.md, "Providers") and never reused.
//!
//! Must not: cache a root key, or know the keyring's layout.

mod command;
mod env;
mod file;
mod passphrase;

use strongroom_format::code;
use strongroom_format::keyring::PROVIDER_ARGUMENT_MAX;

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
    /// Fetches the root key. `creating`: a keyring is being sealed with it, so a passphrase is asked for twice.
    ///
    /// # Errors
    /// The codes of [`crate::KeySource`].
    fn fetch(&self, creating: bool) -> Result<Opener, Error>;
}

/// One kind of provider.
struct Registered {
    name: &'static str,
    number: u16,
    /// Makes one from a checked argument: not too long, no control characters. `None`: not valid for this kind.
    make: fn(&str) -> Option<Box<dyn RootProvider>>,
}

/// Every kind of provider there is.
const REGISTRY: &[Registered] = &[
    passphrase::REGISTERED,
    env::REGISTERED,
    file::REGISTERED,
    command::REGISTERED,
];

pub(crate) use command::NUMBER as COMMAND;

/// The number of "no provider": the file is an export, to be imported with the key it was sealed for.
pub(crate) const EXPORT: u16 = 0;

/// A root key provider of any kind.
pub struct Provider(Box<dyn RootProvider>);

impl Provider {
    /// The provider written as `passphrase`, `env:VAR`, `file:PATH` or `command:CMD`. A relative path is made
    /// absolute, because the keyring is used from other directories later.
    ///
    /// # Errors
    /// SR-2020.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (name, argument) = text.split_once(':').unwrap_or((text, ""));
        let kind = REGISTRY.iter().find(|kind| kind.name == name);
        // A mistyped provider may be a secret in the wrong place (K2): not repeated.
        let kind = kind.ok_or_else(|| Error::new(&code::PROVIDER, "unknown kind"))?;
        Self::made(kind, argument)
    }

    /// The provider that a keyring names.
    ///
    /// # Errors
    /// SR-2020 when the number is unknown, which includes an export's.
    pub fn from_stored(number: u16, argument: &str) -> Result<Self, Error> {
        if number == EXPORT {
            let detail = "the file is an export: `strongroom keyring import` reads it";
            return Err(Error::new(&code::PROVIDER, detail));
        }
        let kind = REGISTRY.iter().find(|kind| kind.number == number);
        let unknown = || Error::new(&code::PROVIDER, format!("provider number {number}"));
        Self::made(kind.ok_or_else(unknown)?, argument)
    }

    /// The word for a provider number in output.
    #[must_use]
    pub fn name_of(number: u16) -> &'static str {
        match REGISTRY.iter().find(|kind| kind.number == number) {
            Some(kind) => kind.name,
            None if number == EXPORT => "export",
            None => "unknown",
        }
    }

    fn made(kind: &Registered, argument: &str) -> Result<Self, Error> {
        let refused = || Error::new(&code::PROVIDER, format!("argument of `{}`", kind.name));
        if argument.len() > PROVIDER_ARGUMENT_MAX || argument.contains(char::is_control) {
            return Err(refused());
        }
        (kind.make)(argument).map(Self).ok_or_else(refused)
    }
}

impl std::ops::Deref for Provider {
    type Target = dyn RootProvider;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl std::str::FromStr for Provider {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_survive_storage() {
        for (at, kind) in REGISTRY.iter().enumerate() {
            assert_ne!(kind.number, EXPORT);
            for other in &REGISTRY[at + 1..] {
                assert!(kind.number != other.number && kind.name != other.name);
            }
        }
        for text in [
            "passphrase",
            "env:ROOT",
            "file:/etc/root key",
            "command:vault read x:y",
        ] {
            let parsed = Provider::parse(text).unwrap();
            let stored = Provider::from_stored(parsed.number(), parsed.argument()).unwrap();
            assert_eq!(
                (stored.name(), stored.argument()),
                (parsed.name(), parsed.argument())
            );
            assert!(text.starts_with(stored.name()) && text.ends_with(stored.argument()));
            assert_eq!(Provider::name_of(stored.number()), stored.name());
        }
    }

    #[test]
    fn arguments_are_checked() {
        let long = format!("command:{}", "a".repeat(PROVIDER_ARGUMENT_MAX + 1));
        for text in [
            "",
            "vault:x",
            "passphrase:hunter2",
            "env:",
            "env:A=B",
            "file:",
            "command:",
            "Env:A",
            "command:a\nb",
            "env:A\0",
            "file:\x1b[2J",
            &long,
        ] {
            let error = Provider::parse(text).err().map(|error| error.code().number);
            assert_eq!(error, Some(2020), "{text:?}");
        }
        let error = Provider::parse("hunter2").err().unwrap();
        assert!(!error.to_string().contains("hunter2"));
        assert_eq!(
            Provider::from_stored(0, "").err().unwrap().code().number,
            2020
        );
        assert_eq!(
            Provider::from_stored(999, "").err().unwrap().code().number,
            2020
        );
    }

    #[test]
    fn a_relative_file_becomes_absolute() {
        let provider = Provider::parse("file:root.key").unwrap();
        assert!(provider.argument().starts_with('/') && provider.argument().ends_with("/root.key"));
    }
}
