//! Provider `file:PATH`: the root key is the contents of a file.

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

const NAME: &str = "file";
const NUMBER: u16 = 3;

struct KeyFile(String);

fn make(argument: &str) -> Option<Box<dyn RootProvider>> {
    if argument.is_empty() {
        return None;
    }
    let path = std::path::absolute(argument).ok()?;
    Some(Box::new(KeyFile(path.to_str()?.to_owned())))
}

impl RootProvider for KeyFile {
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
        KeySource::File((&self.0).into()).opener(&context)
    }
}
