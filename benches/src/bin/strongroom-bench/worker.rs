//! One round of one peer, in a process of its own.
//!
//! A process that has registered the VFS watches the statements of every connection, stock ones as
//! well; timed there, stock SQLite would look slower than it is. So no process serves two peers,
//! and the stock one proves, before and after the clock, that the VFS is not in it (B1).
//! Must not: time its own start.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use strongroom_benches::Failure;
use strongroom_benches::tpch;
use strongroom_benches::variant::{Variant, vfs_is_registered};

use crate::options::Options;
use crate::setup::Place;
use crate::workloads;

/// The name under which a worker loads its database.
pub(crate) const SETUP: &str = "setup";

/// What a round took, and what it returned.
pub(crate) struct Done {
    pub(crate) duration: Duration,
    pub(crate) digest: String,
}

/// Runs a round in a new process.
pub(crate) fn start(
    place: &Place,
    variant: Variant,
    workload: &str,
    round: u32,
    options: &Options,
) -> Result<Done, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--worker", variant.name(), workload, &round.to_string()])
        .args([
            "--scale",
            &options.scale.to_string(),
            "--cache-kib",
            &options.cache_kib.to_string(),
        ])
        .arg("--directory")
        .arg(place.directory())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{} {workload}: {said}", variant.name()).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let (seconds, digest) = text
        .trim()
        .split_once(' ')
        .ok_or("a worker said something else")?;
    Ok(Done {
        duration: Duration::from_secs_f64(seconds.parse()?),
        digest: digest.to_owned(),
    })
}

/// In the new process: works, and prints seconds and digest.
pub(crate) fn work(arguments: &[String], options: &Options) -> Result<(), Failure> {
    let [peer, workload, round] = arguments else {
        return Err("three arguments".into());
    };
    let variant = Variant::from_name(peer).ok_or("no such peer")?;
    let place = Place::at(options.report.directory.clone(), options.cache_kib);
    refuse_vfs(variant)?;
    let done = if workload == SETUP {
        tpch::load(&[&place.open(variant)?], options.scale)?;
        Done {
            duration: Duration::ZERO,
            digest: SETUP.to_owned(),
        }
    } else {
        let (duration, result) =
            workloads::named(workload)?.once(&place, variant, round.parse()?, options)?;
        Done {
            duration,
            digest: result.digest(),
        }
    };
    refuse_vfs(variant)?;
    writeln!(
        std::io::stdout(),
        "{} {}",
        done.duration.as_secs_f64(),
        done.digest
    )?;
    Ok(())
}

fn refuse_vfs(variant: Variant) -> Result<(), Failure> {
    if variant == Variant::Stock && vfs_is_registered() {
        return Err("the VFS is registered in the stock peer's process".into());
    }
    Ok(())
}
