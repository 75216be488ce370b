//! `strongroom volume swap DEVICE [NAME]`.
//!
//! Must not: keep the key anywhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use strongroom_format::code;
use strongroom_volume::active;

use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Use a device as encrypted swap under a key that is never stored. Hibernation cannot come back from it.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume swap /dev/vdc"))]
pub(super) struct SwapArgs {
    /// The device; one that holds anything but a swap area is refused
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// The mapping's name
    #[arg(value_name = "NAME", default_value = "swap")]
    name: String,
    /// Only map it: do not run mkswap and swapon
    #[arg(long)]
    no_swapon: bool,
}

impl SwapArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        on(&self.path, &self.name, !self.no_swapon)?;
        let mapped = active::path_of(&self.name);
        context.output.line(&mapped.display().to_string())
    }
}

/// Maps the device, and swaps to it.
pub(super) fn on(path: &Path, name: &str, swapon: bool) -> Result<(), Failure> {
    active::open_swap(path, name)?;
    let mapped = active::path_of(name);
    if !swapon {
        return Ok(());
    }
    let done = ran("mkswap", &mapped).and_then(|()| ran("swapon", &mapped));
    if done.is_err() {
        // It is of no use to anybody then.
        drop(active::close(name));
    }
    done
}

fn ran(program: &str, path: &Path) -> Result<(), Failure> {
    let output = Command::new(program).arg(path).output();
    let output = output.map_err(|error| Failure::new(&code::IO, format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let detail = format!("{program} {}: {}", path.display(), said.trim());
    Err(Failure::new(&code::IO, detail))
}
