//! Root key providers: what delivers the key that opens a keyring.
//!
//! A provider is one file and one line in a registry: [`REGISTRY`] for those that every program
//! has, and what [`register`] was given for those that need a client. Its number and argument stand
//! in the keyring, readable without the root key, so an argument is never a secret. Numbers are
//! part of the format (docs/spec/keyring.md, "Providers") and never reused. What a device has
//! wrapped for the keyring stands in the argument too: [`Wrapped`].
//!
//! Must not: cache a root key, or know the keyring's layout.

mod command;
mod elsewhere;
mod env;
mod file;
mod kind;
mod passphrase;
mod wrapped;

use std::sync::OnceLock;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_format::keyring::PROVIDER_ARGUMENT_MAX;

use crate::error::Error;

pub use elsewhere::COMMAND_VARIABLE;
pub use kind::{Created, Made, Registered, RootProvider};
pub use wrapped::{Wrapped, locator};

/// The kinds that every program has.
const REGISTRY: &[Registered] = &[
    passphrase::REGISTERED,
    env::REGISTERED,
    file::REGISTERED,
    command::REGISTERED,
];

/// The numbers and names of the kinds that only some programs have.
const ELSEWHERE: &[(u16, &str)] = &[
    (5, "keyserver"),
    (6, "pkcs11"),
    (7, "tpm"),
    (8, "credential"),
    (9, "certificate"),
    (10, "tang"),
    (11, "kmip"),
    (12, "vault"),
    (13, "aws-kms"),
];

static MORE: OnceLock<&'static [Registered]> = OnceLock::new();

/// Makes further kinds known to this process. Call it once, when a program starts: a second call
/// has no effect.
pub fn register(kinds: &'static [Registered]) {
    MORE.get_or_init(|| kinds);
}

/// Iterates over all kinds that this program has: the built-in ones and those registered.
fn kinds() -> impl Iterator<Item = &'static Registered> {
    let more = MORE.get().copied().unwrap_or_default();
    REGISTRY.iter().chain(more)
}

/// The number of "no provider": the file is an export, to be imported with the key it was sealed
/// for.
pub(crate) const EXPORT: u16 = 0;

/// A root key provider of any kind.
pub struct Provider {
    made: Box<dyn RootProvider>,
    acts: bool,
}

impl Provider {
    /// Makes the provider written as `passphrase`, `env:VAR`, `file:PATH`, `command:CMD`, or as a
    /// registered kind has it. A relative path is made absolute, because the keyring is used from
    /// other directories later. Asks nothing yet.
    ///
    /// # Errors
    /// SR-2020 for an unknown kind or an argument that is not valid; SR-2100 for a kind that this
    /// program does not have.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (name, argument) = text.split_once(':').unwrap_or((text, ""));
        let kind = kinds().find(|kind| kind.name == name).ok_or_else(|| {
            match ELSEWHERE.iter().find(|(_, known)| *known == name) {
                Some((_, known)) => Error::new(&code::PROVIDER_ELSEWHERE, *known),
                // A mistyped provider may be a secret in the wrong place (K2): not repeated.
                None => Error::new(&code::PROVIDER, "unknown kind"),
            }
        })?;
        Self::made(kind, argument)
    }

    /// Makes the provider that a keyring names. One that this program does not have is asked
    /// through the `strongroom` command when [`COMMAND_VARIABLE`] names it.
    ///
    /// # Errors
    /// SR-2020 when the number is unknown, which includes an export's, or the argument is not
    /// valid; SR-2100 when this program does not have that kind; SR-2019 when [`COMMAND_VARIABLE`]
    /// is not an absolute path.
    pub fn from_stored(number: u16, argument: &str) -> Result<Self, Error> {
        let absent = !kinds().any(|kind| kind.number == number);
        let known = ELSEWHERE.iter().find(|(known, _)| *known == number);
        if let Some((_, name)) = known.filter(|_| absent)
            && let Some(made) = elsewhere::through_command(number, name, argument)?
        {
            return Ok(Self { made, acts: true });
        }
        Self::of_this_program(number, argument)
    }

    /// Makes the provider of this number, if this program itself has its kind. Errors: SR-2020 for
    /// an unknown number, for an export's and for an argument that is not valid; SR-2100 for a kind
    /// that only other programs have.
    fn of_this_program(number: u16, argument: &str) -> Result<Self, Error> {
        if number == EXPORT {
            let detail = "the file is an export: `strongroom keyring import` reads it";
            return Err(Error::new(&code::PROVIDER, detail));
        }
        let unknown = || match ELSEWHERE.iter().find(|(known, _)| *known == number) {
            Some((_, name)) => Error::new(&code::PROVIDER_ELSEWHERE, *name),
            None => Error::new(&code::PROVIDER, format!("provider number {number}")),
        };
        let kind = kinds().find(|kind| kind.number == number);
        Self::made(kind.ok_or_else(unknown)?, argument)
    }

    /// Returns the name of a provider number for output: `export` for 0, `unknown` for a number
    /// that no kind has.
    #[must_use]
    pub fn name_of(number: u16) -> &'static str {
        let elsewhere = || ELSEWHERE.iter().find(|(known, _)| *known == number);
        match kinds().find(|kind| kind.number == number) {
            Some(kind) => kind.name,
            None if number == EXPORT => "export",
            None => elsewhere().map_or("unknown", |(_, name)| name),
        }
    }

    /// Whether a provider of this number runs or loads something, or sends credentials, as
    /// [`Self::acts`] says. True also for a known kind that this program does not have, because a
    /// command is run for it; false for an unknown number.
    pub(crate) fn number_acts(number: u16) -> bool {
        let kind = kinds().find(|kind| kind.number == number);
        // One that this program does not have may be asked through a command.
        let elsewhere = || ELSEWHERE.iter().any(|(known, _)| *known == number);
        kind.map_or_else(elsewhere, |kind| kind.acts)
    }

    /// Whether the provider runs or loads something that its argument names, or sends credentials
    /// to an address in it.
    #[must_use]
    pub fn acts(&self) -> bool {
        self.acts
    }

    /// Makes a provider of this kind. Errors: SR-2020 for an argument that is longer than 4096
    /// bytes, has control characters, or is not valid for the kind.
    fn made(kind: &Registered, argument: &str) -> Result<Self, Error> {
        let refused = |why: &str| {
            Error::new(
                &code::PROVIDER,
                format!("argument of `{}`: {why}", kind.name),
            )
        };
        if argument.len() > PROVIDER_ARGUMENT_MAX {
            return Err(refused("longer than 4096 bytes"));
        }
        if argument.contains(char::is_control) {
            return Err(refused("it has control characters"));
        }
        let made = (kind.make)(argument).map_err(refused)?;
        let acts = kind.acts;
        Ok(Self { made, acts })
    }
}

/// Fetches the root key of this provider and argument, and returns it as material that the rule of
/// docs/internals/keyring.md reads as the same key. The `strongroom` command prints it for programs
/// that do not have the provider.
///
/// # Errors
/// SR-2020 for an unknown provider or an argument that is not valid; SR-2100 for a kind that this
/// program does not have; what the provider reports.
pub fn deliver(number: u16, argument: &str) -> Result<SecretBytes, Error> {
    Provider::of_this_program(number, argument)?
        .fetch(false)?
        .as_material()
}

impl std::ops::Deref for Provider {
    type Target = dyn RootProvider;

    fn deref(&self) -> &Self::Target {
        &*self.made
    }
}

impl std::str::FromStr for Provider {
    type Err = Error;

    /// Makes the provider of a text, as [`Provider::parse`]. Errors: SR-2020 for an unknown kind or
    /// an invalid argument; SR-2100 for a kind that this program does not have.
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
            assert!(ELSEWHERE.iter().all(|&(number, _)| number > kind.number));
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
            "safe:x",
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
    fn a_kind_of_another_program_is_told_by_its_name() {
        for &(number, name) in ELSEWHERE {
            let stored = Provider::from_stored(number, "x").err().unwrap();
            let parsed = Provider::parse(&format!("{name}:x")).err().unwrap();
            for error in [stored, parsed] {
                assert_eq!((error.code().number, error.detail()), (2100, name));
            }
            assert_eq!(Provider::name_of(number), name);
        }
        assert_eq!(Provider::name_of(999), "unknown");
    }

    #[test]
    fn a_relative_file_becomes_absolute() {
        let provider = Provider::parse("file:root.key").unwrap();
        assert!(provider.argument().starts_with('/') && provider.argument().ends_with("/root.key"));
    }
}
