//! `strongroom volume swap DEVICE [NAME]`.
//!
//! Must not: keep the key anywhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use strongroom_format::code;
use strongroom_volume::active;
use strongroom_volume::mapped::{self, Taken};
use strongroom_volume::probe::Places;

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

/// Maps the device, and swaps to it. What was stopped after mapping goes on.
pub(super) fn activate(path: &Path, name: &str, swapon: bool) -> Result<(), Failure> {
    let places = Places::default();
    match mapped::swap(&places, name, path) {
        Taken::No => active::open_swap(path, name)?,
        Taken::Wanted => {}
        Taken::Other => return Err(name_taken(name)),
    }
    let mapped = active::path_of(name);
    if !swapon || mapped::swaps_to(&places, name) {
        return Ok(());
    }
    let done = run_program("mkswap", &mapped).and_then(|()| run_program("swapon", &mapped));
    if done.is_err() {
        // It is of no use to anybody then.
        drop(active::close(name));
    }
    done
}

/// A mapping of this name is not the one that is wanted.
pub(super) fn name_taken(name: &str) -> Failure {
    let detail = format!("{name} is a mapping of something else");
    Failure::new(&code::VOLUME_NAME, detail)
}

fn run_program(program: &str, path: &Path) -> Result<(), Failure> {
    let output = Command::new(program).arg(path).output();
    let output = output.map_err(|error| Failure::new(&code::IO, format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let detail = format!("{program} {}: {}", path.display(), said.trim());
    Err(Failure::new(&code::IO, detail))
}
