//! Provider `env:VAR`: the root key is the value of an environment variable.

use super::kind::{Made, Registered, RootProvider};
use crate::error::Error;
use crate::key_input::opener_from_env;
use crate::opener::Opener;

/// The registry line of this provider.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: false,
    make,
};

const NAME: &str = "env";
const NUMBER: u16 = 2;

struct Env(String);

fn make(argument: &str) -> Made {
    if argument.is_empty() || argument.contains(['=']) {
        return Err("the name of a variable is wanted");
    }
    Ok(Box::new(Env(argument.to_owned())))
}

impl RootProvider for Env {
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u16 {
        NUMBER
    }

    fn argument(&self) -> &str {
        &self.0
    }

    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        opener_from_env(&self.0)
    }
}
