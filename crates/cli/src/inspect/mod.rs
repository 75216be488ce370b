//! `strongroom inspect FILE`: what a file is, what its header says in clear, and how random its
//! bytes are.
//!
//! Invariants:
//! 1. No key is used and nothing is changed. What is shown is not authenticated; `verify` is for
//!    that.
//! 2. One pass over the file, in constant memory.
//! 3. A picture never overwrites a file.
//!
//! Must not: say anything about contents beyond their statistics.

mod describe;
mod duckdb;
mod luks;
mod picture;
mod report;
mod scan;
mod text;

use std::path::PathBuf;

use clap::Args;
use strongroom_format::code;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use strongroom_keyring::paths;

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

impl InspectArgs {
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = paths::header_of(self.file);
        if let Some(out) = &self.png {
            paths::check_copy(&path, out)?;
        }
        let (file, size) = paths::open_any_to_read(&path)?;
        let scan = scan::scan(&path, file, size, self.png.is_some())?;
        let (mut report, problem) = describe::describe(&path, &scan);
        if let Some(out) = &self.png {
            report.png = Some(draw(out, &scan)?);
        }
        if self.json {
            context.output.json(&report)?;
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

fn draw(out: &std::path::Path, scan: &scan::Scan) -> Result<report::Png, Failure> {
    let Some(sampler) = scan.sampler.as_ref().filter(|sampler| !sampler.is_empty()) else {
        let detail = "the file is empty: there is nothing to draw";
        return Err(Failure::new(&code::USAGE, detail));
    };
    let picture = picture::encode(sampler)
        .map_err(|e| Failure::new(&code::BUG, format!("PNG encoder: {e}")))?;
    paths::create_new(out, &picture.bytes)?;
    Ok(report::Png {
        path: out.display().to_string(),
        width: picture.width,
        height: picture.height,
        bytes_per_pixel: sampler.block(),
    })
}
