//! Provider `command:CMD`: the root key is what a shell command prints.
//!
//! The command line stands in the keyring in clear, and is run before the keyring could be authenticated: the
//! keyring refuses it when others may write to the file (K14).

use super::{Registered, RootProvider};
use crate::error::Error;
use crate::opener::Opener;
use crate::source::{KeySource, SourceContext};

/// The registry line of this provider.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    make,
};

const NAME: &str = "command";
/// The provider's number; the keyring checks its own file before it asks this one.
pub(crate) const NUMBER: u16 = 4;

struct Command(String);

fn make(argument: &str) -> Option<Box<dyn RootProvider>> {
    if argument.is_empty() {
        return None;
    }
    Some(Box::new(Command(argument.to_owned())))
}

impl RootProvider for Command {
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u16 {
        NUMBER
    }

    fn argument(&self) -> &str {
        &self.0
    }

    fn fetch(&self, creating: bool) -> Result<Opener, Error> {
        let context = SourceContext {
            creating,
            ..SourceContext::default()
        };
        KeySource::Command(self.0.clone()).opener(&context)
    }
}
