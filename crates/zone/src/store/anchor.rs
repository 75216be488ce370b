//! The freshness anchor: a counter outside the store that only rises, so that an older store is found.
//!
//! Must not: be trusted when it is a file beside the store, which whoever puts back an older store can put back too: that is for
//! development, and says so.

use std::path::PathBuf;

use strongroom_format::code;
use strongroom_keyring::{Error, durable};

use super::files::trouble;

/// A counter that only rises.
pub trait Anchor: Send {
    /// Its value; 0 when it was never advanced.
    ///
    /// # Errors
    /// SR-8023 when it cannot be read.
    fn read(&self) -> Result<u64, Error>;
    /// Makes it `to`, durably; `to` is not below its value.
    ///
    /// # Errors
    /// SR-8010 when its value is higher already; SR-8023.
    fn advance(&self, to: u64) -> Result<(), Error>;
}

/// A counter in a file: finds a store that was put back by mistake, not one that was put back on purpose.
pub struct FileAnchor(PathBuf);

impl FileAnchor {
    /// The anchor in the file at `path`, which is made when it is first advanced.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self(path)
    }
}

impl Anchor for FileAnchor {
    fn read(&self) -> Result<u64, Error> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(trouble(&self.0, error)),
        };
        let odd = || {
            Error::new(
                &code::STORE_IO,
                format!("{}: not a counter", self.0.display()),
            )
        };
        text.trim_end().parse().map_err(|_| odd())
    }

    fn advance(&self, to: u64) -> Result<(), Error> {
        if self.read()? > to {
            return Err(Error::new(&code::STORE_OLD, "the anchor is ahead"));
        }
        durable::replace(&self.0, format!("{to}\n").as_bytes(), 0o600)
            .map_err(|error| trouble(&self.0, error))
    }
}
