//! `strongroom volume detach MOUNTPOINT`.
//!
//! Must not: detach what is in use.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use strongroom_luks2::detach;

use crate::failure::Failure;
use crate::help::tail;

/// Detach a volume that `volume attach` has attached; when this returns, everything is on its
/// device.
///
/// Works also when the process that served it is gone.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume detach /mnt/db"))]
pub(super) struct DetachArgs {
    /// Where it is attached
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
}

impl DetachArgs {
    /// Unmounts the volume and waits for at most a minute until its process has ended. SR-8310 if
    /// no volume is attached there, SR-8308 if it is in use or its process does not end, SR-8311 if
    /// unmounting fails.
    pub(super) fn run(self) -> Result<(), Failure> {
        detach(&self.mountpoint, Duration::from_secs(60))?;
        Ok(())
    }
}
