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

fn make(argument: &str) -> Made {
    match argument {
        "" => Ok(Box::new(Passphrase)),
        _ => Err("there is none: the passphrase is asked for"),
    }
}

impl RootProvider for Passphrase {
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u16 {
        NUMBER
    }

    fn argument(&self) -> &str {
        ""
    }

    fn fetch(&self, creating: bool) -> Result<Opener, Error> {
        interpret(&terminal::ask("Passphrase of the keyring", creating)?)
    }
}
