//! Provider `passphrase`: the root key is typed at the terminal.

use super::{Made, Registered, RootProvider};
use crate::error::Error;
use crate::opener::Opener;
use crate::source::{KeySource, SourceContext};

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
        let prompt = String::from("Passphrase of the keyring");
        let context = SourceContext {
            creating,
            prompt,
            ..SourceContext::default()
        };
        KeySource::Ask.opener(&context)
    }
}
