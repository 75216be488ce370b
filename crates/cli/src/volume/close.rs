//! `strongroom volume close NAME`.
//!
//! Must not: close what is in use.

use clap::Args;
use strongroom_volume::active;

use crate::failure::Failure;
use crate::help::tail;

/// Close a volume, or encrypted swap: the kernel forgets its key.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume close data"))]
pub(super) struct CloseArgs {
    /// The mapping's name
    #[arg(value_name = "NAME")]
    name: String,
}

impl CloseArgs {
    /// Closes the mapping of this name, which may be given as a path in /dev/mapper. SR-8320 if it
    /// is in use, SR-1006 if there is none.
    pub(super) fn run(self) -> Result<(), Failure> {
        let name = self.name.strip_prefix("/dev/mapper/").unwrap_or(&self.name);
        Ok(active::close(name)?)
    }
}
