//! `strongroom volume swap DEVICE [NAME]`.
//!
//! Must not: keep the key anywhere.

use std::path::PathBuf;

use clap::Args;
use strongroom_volume::active;
use strongroom_volume::swap::activate;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Use a device as encrypted swap under a key that is never stored. Hibernation cannot come back
/// from it.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume swap /dev/vdc"))]
pub(super) struct SwapArgs {
    /// The device; one that holds anything but a swap area is refused
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// The mapping's name [default: swap]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Name the mapping by its device, as swap-vdc: for several swap areas
    #[arg(long, conflicts_with = "name")]
    name_by_device: bool,
    /// Only map it: do not run mkswap and swapon
    #[arg(long)]
    no_swapon: bool,
}

impl SwapArgs {
    /// Maps the device under a random key that is not kept, makes a swap area of the mapping and
    /// has the kernel swap to it; with `--no-swapon` only maps it. Prints the mapping's path. What
    /// the swap area held is lost.
    /// Errors: SR-8321 if the device holds anything but a swap area, SR-8320 if it is in use,
    /// SR-8327 without device-mapper, SR-8337 if the name is not valid or taken; SR-5001 if mkswap
    /// or swapon fails.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let name = match self.name {
            Some(name) => name,
            None if self.name_by_device => active::swap_name(&self.path),
            None => "swap".to_owned(),
        };
        activate(&self.path, &name, !self.no_swapon)?;
        let mapped = active::path_of(&name);
        context.output.line(&mapped.display().to_string())
    }
}
