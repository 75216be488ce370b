//! The freshness anchor: a counter outside the store that only rises, so that an older store is
//! found.
//!
//! Must not: be trusted when it is a file beside the store: an attacker who restores an older store
//! can restore that file too. The file is for development.

use std::path::PathBuf;

use strongroom_format::code;
use strongroom_keyring::{Error, durable};
use strongroom_keys_tpm::Counter;

use super::files::{io_error, path_error};

/// A TPM's counter rises by one at a time, as the counter of checkpoints does: a larger difference
/// than this does not come from checkpoints.
const STEPS_MAX: u64 = 16;

/// A counter that only rises.
pub trait Anchor: Send + Sync {
    /// The counter's value; 0 if it was never advanced.
    ///
    /// # Errors
    /// SR-8023 if it cannot be read.
    fn read(&self) -> Result<u64, Error>;
    /// Raises the counter to `to`, durably. `to` may be its present value.
    ///
    /// # Errors
    /// SR-8010 if its value is higher already; SR-8015 or SR-8023 if it cannot be written.
    fn advance(&self, to: u64) -> Result<(), Error>;
}

/// A counter in a file: detects an older store that was restored by mistake, not an attack.
pub struct FileAnchor(PathBuf);

impl FileAnchor {
    /// The anchor in the file at `path`, which is made when it is first advanced. Reads nothing.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self(path)
    }
}

impl Anchor for FileAnchor {
    /// The number in the file; 0 if there is no file. SR-8023 if it cannot be read or holds no
    /// number.
    fn read(&self) -> Result<u64, Error> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(path_error(&self.0, error)),
        };
        let odd = || {
            Error::new(
                &code::STORE_IO,
                format!("{}: not a counter", self.0.display()),
            )
        };
        text.trim_end().parse().map_err(|_| odd())
    }

    /// Replaces the file by one with this number, durably. SR-8010 if the number in it is higher;
    /// SR-8015 or SR-8023 if it cannot be read or written.
    fn advance(&self, to: u64) -> Result<(), Error> {
        if self.read()? > to {
            return Err(Error::new(&code::STORE_OLD, "the anchor is ahead"));
        }
        durable::replace(&self.0, format!("{to}\n").as_bytes(), 0o600)
            .map_err(|error| path_error(&self.0, error))
    }
}

/// A counter in a TPM: the store's disk does not give access to it.
///
/// It begins where the TPM lets it begin, which is above every counter that the TPM has had, so a
/// store that begins with it has that number as its first. Each checkpoint costs the TPM's memory a
/// write: chips bear some hundred thousand.
pub struct TpmAnchor(Counter);

impl TpmAnchor {
    /// The anchor that this TPM counter is. One counter serves one store.
    #[must_use]
    pub const fn new(counter: Counter) -> Self {
        Self(counter)
    }
}

impl Anchor for TpmAnchor {
    /// Reads the counter from the TPM. SR-8023 if the TPM does not answer.
    fn read(&self) -> Result<u64, Error> {
        self.0
            .read()
            .map_err(|error| io_error("reading the TPM's counter", error.into()))
    }

    /// Raises the TPM's counter, one by one, up to `to`. SR-8010 if it is higher, before or
    /// afterwards; SR-8023 if more than 16 steps were needed, or the TPM fails.
    fn advance(&self, to: u64) -> Result<(), Error> {
        let current = self.read()?;
        let steps = to
            .checked_sub(current)
            .ok_or_else(|| Error::new(&code::STORE_OLD, "the anchor is ahead"))?;
        if steps > STEPS_MAX {
            let what = format!("the TPM's counter is {current}, and was to become {to}");
            return Err(Error::new(&code::STORE_IO, what));
        }
        for _ in 0..steps {
            self.0
                .increment()
                .map_err(|error| io_error("raising the TPM's counter", error.into()))?;
        }
        // Somebody else may have raised it in between; then this store's manifest is not the newest
        // any more.
        if self.read()? == to {
            Ok(())
        } else {
            Err(Error::new(&code::STORE_OLD, "the anchor is ahead"))
        }
    }
}
