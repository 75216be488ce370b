//! The freshness anchor: a counter outside the store that only rises, so that an older store is found.
//!
//! Must not: be trusted when it is a file beside the store, which whoever puts back an older store can put back too: that is for
//! development, and says so.

use std::path::PathBuf;

use strongroom_format::code;
use strongroom_keyring::{Error, durable};

use super::files::{about, trouble};
use crate::tpm::Counter;

/// A TPM's counter rises by one at a time, and a checkpoint by one: more than this is not a checkpoint's.
const STEPS_MAX: u64 = 16;

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

/// A counter in a TPM: nobody who has the store's disk can put it back.
///
/// It begins where the TPM lets it begin, which is above every counter that the TPM has had, so a store that begins with it has that number
/// as its first. Each checkpoint costs the TPM's memory a write: chips bear some hundred thousand.
pub struct TpmAnchor(Counter);

impl TpmAnchor {
    /// The anchor that this counter is. One counter serves one store.
    #[must_use]
    pub const fn new(counter: Counter) -> Self {
        Self(counter)
    }
}

impl Anchor for TpmAnchor {
    fn read(&self) -> Result<u64, Error> {
        self.0
            .read()
            .map_err(|error| about("reading the TPM's counter", error))
    }

    fn advance(&self, to: u64) -> Result<(), Error> {
        let stands = self.read()?;
        let steps = to
            .checked_sub(stands)
            .ok_or_else(|| Error::new(&code::STORE_OLD, "the anchor is ahead"))?;
        if steps > STEPS_MAX {
            let what = format!("the TPM's counter is {stands}, and was to become {to}");
            return Err(Error::new(&code::STORE_IO, what));
        }
        for _ in 0..steps {
            self.0
                .increment()
                .map_err(|error| about("raising the TPM's counter", error))?;
        }
        // Somebody else may have raised it in between; then this store's manifest is not the newest any more.
        if self.read()? == to {
            Ok(())
        } else {
            Err(Error::new(&code::STORE_OLD, "the anchor is ahead"))
        }
    }
}
