//! Provider `command:CMD`: the root key is what a shell command prints.
//!
//! The command line stands in the keyring in clear, and is run before the keyring could be
//! authenticated: the keyring refuses it when others may write to the file (K14).

use super::kind::{Made, Registered, RootProvider};
use crate::command;
use crate::error::Error;
use crate::material::interpret;
use crate::opener::Opener;

/// The registry line of this provider.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "command";
const NUMBER: u16 = 4;

struct Command(String);

/// Makes a provider of the argument, the command line. The error says that it is empty.
fn make(argument: &str) -> Made {
    if argument.is_empty() {
        return Err("a command is missing");
    }
    Ok(Box::new(Command(argument.to_owned())))
}

impl RootProvider for Command {
    /// Returns `command`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 4.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the command line.
    fn argument(&self) -> &str {
        &self.0
    }

    /// Runs the command, and makes the root key of what it prints, by the rule of `material.rs`.
    /// Errors: SR-2009 when it cannot be run or fails; SR-2010 when it takes too long; SR-2011 when
    /// it prints no key; SR-2043 for an invalid time limit in the environment; SR-5001 when the
    /// system reports an error.
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        interpret(&command::output(&self.0)?)
    }
}
