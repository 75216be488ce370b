//! How a set is restored: the options.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_format::code;

use crate::sealing::Sealing;
use crate::{Error, Result};

/// How a set is restored.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The directory to make.
    pub to: PathBuf,
    /// The directory of tablespaces, each of which gets a directory named by its number; `None`:
    /// the target's name with `.tablespaces`.
    pub tablespaces: Option<PathBuf>,
    /// Threads that open and decompress.
    pub threads: usize,
    /// Added to `postgresql.auto.conf`, with a `recovery.signal` and without a `standby.signal`:
    /// recovery from an archive.
    pub recovery: Option<String>,
    /// Which owners and modes of the set are kept.
    pub kept: Kept,
    /// How the files of a cluster are sealed as they are written; `None`: in clear.
    pub sealing: Option<Arc<dyn Sealing>>,
    /// How an existing directory is treated. `None`: it must be empty.
    pub delta: Option<Delta>,
    /// Once this is set, the restore fails.
    pub stop: Option<&'static AtomicBool>,
}

impl RestoreOptions {
    /// Fails with SR-5001 once `stop` is set, because the restore must end then; does nothing
    /// before.
    pub(crate) fn check_stop(&self) -> Result<()> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Error::new(&code::IO, "ended by a signal"));
        }
        Ok(())
    }
}

/// How a restore treats an existing directory.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Whether to replace also a directory that is not known to be the source of the set.
    pub force: bool,
    /// Paths that the restore needs and that must not be in the directory: the medium, the keyring.
    pub apart: Vec<PathBuf>,
}

/// Which owners and modes of a set a restore by root keeps. The default keeps none of those that
/// could harm the user who restores, because anyone who has the public certificate can make a set.
/// Other users than root keep neither owners nor special bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The owners of the restored files.
    pub owners: Owners,
    /// Set-user-ID, set-group-ID and sticky bits.
    pub special_bits: bool,
}

/// The owners that restored files get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// The user who restores.
    #[default]
    Mine,
    /// Those that the set names, as numbers.
    OfSet,
    /// One user's, and one group's.
    Given {
        /// The user's number.
        user: u32,
        /// The group's number.
        group: u32,
    },
}
