//! Provider `passphrase`: the root key is typed at the terminal.

use super::kind::{Made, Registered, RootProvider};
use crate::error::Error;
use crate::material::interpret;
use crate::opener::Opener;
use crate::terminal;

/// The registry line of this provider.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: false,
    make,
};

const NAME: &str = "passphrase";
const NUMBER: u16 = 1;

struct Passphrase;

/// Makes the provider. The error says that it takes no argument.
fn make(argument: &str) -> Made {
    match argument {
        "" => Ok(Box::new(Passphrase)),
        _ => Err("there is none: the passphrase is asked for"),
    }
}

impl RootProvider for Passphrase {
    /// Returns `passphrase`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 1.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns an empty text.
    fn argument(&self) -> &str {
        ""
    }

    /// Asks at the terminal; twice with `creating`. Errors: SR-1004 without a terminal; SR-2001
    /// (cancelled); SR-2011 (the entries differ, or it is empty or malformed); SR-5001 when the
    /// system reports an error.
    fn fetch(&self, creating: bool) -> Result<Opener, Error> {
        interpret(&terminal::ask("Passphrase of the keyring", creating)?)
    }
}
