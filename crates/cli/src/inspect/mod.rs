//! `strongroom inspect FILE`: what a file is, what its header says in clear, and how random its
//! bytes are.
//!
//! Invariants: no key is used. What is shown is not authenticated; `verify` is for that. A picture
//! never overwrites a file.
//!
//! Must not: say anything about contents beyond their statistics.

mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use strongroom_format::code;
use strongroom_inspect::report::{Png, Report};
use strongroom_inspect::{Scan, describe, picture, scan};
use strongroom_keyring::paths;

use crate::context::Context;
use crate::failure::{ErrorJson, Failure};
use crate::help::tail;
use crate::progress::Progress;

/// Show what a file is and what its header says, without a key.
///
/// Reads any file, sealed or not. The header is shown as it stands: nothing is authenticated
/// without the key; use `strongroom verify` for that. A sealed body has an entropy close to 8 bits
/// per byte.
#[derive(Args)]
#[command(after_help = tail!("  strongroom inspect sealed.db --png sealed.png"))]
pub(crate) struct InspectArgs {
    /// The file or block device to look at; of a sealed PostgreSQL data directory, its header is
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the bytes, one pixel per byte or block, at most 1024 x 1024
    #[arg(long, value_name = "OUT")]
    png: Option<PathBuf>,
}

/// The JSON result: docs/reference/exit-codes.md.
#[derive(Serialize)]
struct Inspected<'a> {
    #[serde(flatten)]
    report: &'a Report,
    error: Option<ErrorJson>,
}

impl InspectArgs {
    /// Reads the whole file or block device, without a key, and prints what it is, its header and
    /// its entropy, as text or JSON; with `--png` also writes a picture of its bytes to a new file.
    /// Errors: SR-1006 or SR-1007 for the file, SR-1002 if the picture exists, SR-1001 for a
    /// picture of an empty file; the problem of a damaged header, which the result contains too;
    /// SR-5001 when the system reports an error.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = paths::header_of(self.file);
        if let Some(out) = &self.png {
            paths::check_copy(&path, out)?;
        }
        let (file, size) = paths::open_any_to_read(&path)?;
        let mut bar = Progress::new("reading");
        let scan = scan(&path, file, size, self.png.is_some(), &mut |done, total| {
            bar.update(done, total);
        })?;
        drop(bar);
        let (mut report, problem) = describe(&path, &scan);
        let problem = problem.map(Failure::from);
        if let Some(out) = &self.png {
            report.png = Some(draw(out, &scan)?);
        }
        if self.json {
            context.output.json(&Inspected {
                report: &report,
                error: problem.as_ref().map(Failure::json),
            })?;
        } else {
            context.output.text(&text::render(&report))?;
        }
        match problem {
            Some(failure) if self.json => Err(failure.reported_in_json()),
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// Writes the picture of the bytes that were sampled to the new file `out`, and returns its
/// description. SR-1001 if the file that was read is empty, SR-1002 if `out` exists; SR-5001 when
/// the system reports an error.
fn draw(out: &Path, scan: &Scan) -> Result<Png, Failure> {
    let Some(sampler) = scan.sampler.as_ref().filter(|sampler| !sampler.is_empty()) else {
        let detail = "the file is empty: there is nothing to draw";
        return Err(Failure::new(&code::USAGE, detail));
    };
    let picture = picture::encode(sampler)?;
    paths::create_new(out, &picture.bytes)?;
    Ok(Png {
        path: out.display().to_string(),
        width: picture.width,
        height: picture.height,
        bytes_per_pixel: sampler.block(),
    })
}
