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

/// Makes a provider of the argument, a path, which is made absolute. The error says that it is
/// empty, cannot be made absolute or is not UTF-8. The file need not exist.
fn make(argument: &str) -> Made {
    if argument.is_empty() {
        return Err("a path is missing");
    }
    let path = std::path::absolute(argument).map_err(|_| "the path cannot be made absolute")?;
    let path = path.to_str().ok_or("the path is not UTF-8")?;
    Ok(Box::new(KeyFile(path.to_owned())))
}

impl RootProvider for KeyFile {
    /// Returns `file`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 3.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the absolute path.
    fn argument(&self) -> &str {
        &self.0
    }

    /// Makes the root key of the file's contents, by the rule of `material.rs`. Errors: SR-2007
    /// when it cannot be read; SR-2011 when the contents are malformed; SR-5001 when the system
    /// reports an error.
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        opener_from_file(self.0.as_ref())
    }
}
