//! How a set is restored: the options.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_format::code;

use crate::sealing::Sealing;
use crate::{Error, Result};

/// What is wanted.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The directory to make.
    pub to: PathBuf,
    /// Where tablespaces go, each in a directory of its number; `None`: the target's name and
    /// `.tablespaces`.
    pub tablespaces: Option<PathBuf>,
    /// Threads that open and decompress.
    pub threads: usize,
    /// Added to `postgresql.auto.conf`, with a `recovery.signal` and without a `standby.signal`:
    /// recovery from an archive.
    pub recovery: Option<String>,
    /// What is taken over of the set's owners and modes.
    pub kept: Kept,
    /// How the files of a cluster are sealed as they are written; `None`: in clear.
    pub sealing: Option<Arc<dyn Sealing>>,
    /// How a directory is treated that is there; `None`: it must be empty.
    pub delta: Option<Delta>,
    /// Once this is set the restore ends as if it had failed.
    pub stop: Option<&'static AtomicBool>,
}

impl RestoreOptions {
    /// SR-5001 once the restore is to end.
    pub(crate) fn go_on(&self) -> Result<()> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Error::new(&code::IO, "ended by a signal"));
        }
        Ok(())
    }
}

/// How a restore treats a directory that is there.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Takes the place also of a directory that is not known to be what the set was made of.
    pub force: bool,
    /// What must not lie in the directory, since the restore needs it: the medium, the keyring.
    pub apart: Vec<PathBuf>,
}

/// What of a set's owners and modes a restore by root takes over. By default nothing that could be
/// used against who restores: everybody who has a certificate can make a set for it. Whoever is not
/// root takes over neither in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Whose everything becomes.
    pub owners: Owners,
    /// Set-user-ID, set-group-ID and sticky bits.
    pub special_bits: bool,
}

/// Whose restored files become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// Those of who restores.
    #[default]
    Mine,
    /// As numbers, those that the set names.
    OfSet,
    /// One user's, and one group's.
    Given {
        /// The user's number.
        user: u32,
        /// The group's number.
        group: u32,
    },
}
