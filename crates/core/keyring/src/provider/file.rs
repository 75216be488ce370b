//! Provider `file:PATH`: the root key is the contents of a file.

use super::kind::{Made, Registered, RootProvider};
use crate::error::Error;
use crate::key_input::opener_from_file;
use crate::opener::Opener;

/// The registry line of this provider.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: false,
    make,
};

const NAME: &str = "file";
const NUMBER: u16 = 3;

struct KeyFile(String);

fn make(argument: &str) -> Made {
    if argument.is_empty() {
        return Err("a path is missing");
    }
    let path = std::path::absolute(argument).map_err(|_| "the path cannot be made absolute")?;
    let path = path.to_str().ok_or("the path is not UTF-8")?;
    Ok(Box::new(KeyFile(path.to_owned())))
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

    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        opener_from_file(self.0.as_ref())
    }
}
