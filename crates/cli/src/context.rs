//! What every subcommand is given: the keyring that was named, and standard output.
//!
//! Must not: read a keyring.

use std::path::PathBuf;

use strongroom_keyring::Keyring;

use crate::output::Output;

/// What every subcommand is given.
pub(crate) struct Context {
    /// `--keyring`, or `STRONGROOM_KEYRING`; `None` for the default path.
    pub(crate) keyring: Option<PathBuf>,
    /// Standard output.
    pub(crate) output: Output,
}

impl Context {
    /// Returns the path of the keyring that was named, or the default path. The file need not
    /// exist.
    pub(crate) fn keyring_path(&self) -> PathBuf {
        self.keyring.clone().unwrap_or_else(Keyring::default_path)
    }
}
