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

/// Makes a provider of the argument, the name of a variable. The error says that it is empty or
/// contains `=`.
fn make(argument: &str) -> Made {
    if argument.is_empty() || argument.contains(['=']) {
        return Err("the name of a variable is wanted");
    }
    Ok(Box::new(Env(argument.to_owned())))
}

impl RootProvider for Env {
    /// Returns `env`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 2.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the name of the variable.
    fn argument(&self) -> &str {
        &self.0
    }

    /// Makes the root key of the variable's value, by the rule of `material.rs`. Errors: SR-2008
    /// when it is not set; SR-2011 when the value is malformed; SR-5001 when the system reports an
    /// error.
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        opener_from_env(&self.0)
    }
}
