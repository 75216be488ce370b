//! What every part of the tour uses: the places of files, the command, the list of checks.
//!
//! Must not: make or remove a file.

use std::path::PathBuf;

use strongroom_tour::checks::Checks;
use strongroom_tour::place::Place;

use crate::command::Strongroom;

/// The keys of the tour's keyring: the database's first key, the one that it gets later, and one
/// that never fits.
pub(crate) const KEY: &str = "ledger";

pub(crate) const NEXT_KEY: &str = "ledger-2027";

pub(crate) const OTHER_KEY: &str = "payroll";

/// The tour's directory and its tools.
pub(crate) struct Tour {
    pub(crate) place: Place,
    pub(crate) strongroom: Strongroom,
    pub(crate) checks: Checks,
}

impl Tour {
    /// The path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }
}
