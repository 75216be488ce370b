//! Instructions in user mode, by callgrind: what does not depend on what else the machine does.
//!
//! The kernel's part is not counted, and callgrind's processor has AES and AVX2 but no wider
//! vectors. One instruction is not like another: hardware AES does in one what software does in
//! hundreds.
//! Must not: count opening, settings or the comparison of results.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use strongroom_benches::{Failure, note};

use crate::Options;
use crate::driver;
use crate::engine::Engine;
use crate::setup::Place;
use crate::workloads::COUNTED;

/// Instructions of one workload, for each engine.
#[derive(Serialize)]
pub(crate) struct Counts {
    name: String,
    operations: u32,
    counts: Vec<(&'static str, u64)>,
}

/// Counts them; `profiles` keeps callgrind's files, for `callgrind_annotate`.
pub(crate) fn count(
    place: &Place,
    engines: &[Engine],
    profiles: &Path,
    options: &Options,
) -> Result<Vec<Counts>, Failure> {
    std::fs::create_dir_all(profiles)?;
    let mut all = Vec::new();
    for (number, workload) in (0_u32..).zip(COUNTED) {
        if !options.workloads.has(workload.name) {
            continue;
        }
        note(&format!("instructions: {}", workload.name));
        let mut counts = Vec::new();
        for engine in engines {
            let script = workload.script(place, *engine, number, options.rows)?;
            let file = format!("callgrind.{}.{number}", engine.name());
            let count = driver::counted(&place.program(*engine), &script, &profiles.join(file))?;
            counts.push((engine.name(), count));
        }
        let (operations, operation) = workload.operations();
        let unit = if operation.is_empty() {
            String::new()
        } else {
            format!(", per {operation}")
        };
        all.push(Counts {
            name: format!("{}{unit}", workload.name),
            operations,
            counts,
        });
    }
    Ok(all)
}

/// As a table.
pub(crate) fn markdown(all: &[Counts], engines: &[Engine]) -> Result<String, Failure> {
    let mut out =
        String::from("**Instructions in user mode**, thousands, and by stock's\n\n| workload |");
    for engine in engines {
        write!(out, " {} |", engine.title())?;
    }
    out.push_str("\n|---|");
    out.push_str(&"---:|".repeat(engines.len()));
    out.push('\n');
    for line in all {
        write!(out, "| {} |", line.name)?;
        let stock = line.counts.first().map_or(0, |(_, count)| *count);
        for (_, count) in &line.counts {
            let each = thousands(*count, line.operations);
            write!(
                out,
                " {each} ({:.2}) |",
                float(*count) / float(stock.max(1))
            )?;
        }
        out.push('\n');
    }
    Ok(out)
}

fn thousands(count: u64, operations: u32) -> String {
    format!("{:.1}", float(count) / f64::from(operations) / 1e3)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of instructions is shown to a few digits"
)]
fn float(count: u64) -> f64 {
    count as f64
}
