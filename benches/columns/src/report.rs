//! The figures as a table for docs/benchmarks.md.
//!
//! Must not: leave out a query, or hide a spread.

use std::fmt::Write as _;

use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;

use crate::measured::{Figures, QueryRuns};
use crate::options::Options;

/// The table.
///
/// # Errors
/// Never; `fmt` wants it.
pub(crate) fn markdown(
    figures: &Figures,
    machine: &Machine,
    options: &Options,
) -> Result<String, Failure> {
    let mut out = String::new();
    writeln!(out, "- {}", machine.shown())?;
    writeln!(
        out,
        "- TPC-H scale {}; {} rounds; load average of one minute: {:.2} before, {:.2} after",
        options.scale, options.rounds, machine.load_before, machine.load_after
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "| query | plain | confidential | ratio | spread | processor: plain | server | zone |"
    )?;
    writeln!(out, "|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    for line in &figures.lines {
        writeln!(
            out,
            "| {} | {} | {} | {:.2} | {:.0} / {:.0} % | {} | {} | {} |",
            line.number,
            time(line.plain.wall.median()),
            time(line.ours.wall.median()),
            ratio(line),
            line.plain.wall.spread() * 100.0,
            line.ours.wall.spread() * 100.0,
            time(line.plain.server.median()),
            time(line.ours.server.median()),
            time(line.ours.zone.median()),
        )?;
    }
    let ratios: Vec<f64> = figures.lines.iter().map(ratio).collect();
    writeln!(out)?;
    writeln!(
        out,
        "Geometric mean of the ratios: **{:.2}**.",
        geometric_mean(&ratios)
    )?;
    writeln!(out)?;
    writeln!(out, "| | plain | confidential | ratio |")?;
    writeln!(out, "|---|---:|---:|---:|")?;
    let sizes = figures.sizes;
    let whole = sizes.ours + sizes.zone;
    writeln!(
        out,
        "| storage | {} | {} (of it the zone's {}) | {:.2} |",
        megabytes(sizes.plain),
        megabytes(whole),
        megabytes(sizes.zone),
        float(whole) / float(sizes.plain)
    )?;
    for (name, [plain, ours]) in [
        ("loading", figures.load),
        ("first answer after a kill of all", figures.recovery),
    ] {
        let (plain, ours) = (plain.as_secs_f64(), ours.as_secs_f64());
        writeln!(
            out,
            "| {name} | {} | {} | {:.2} |",
            time(plain),
            time(ours),
            ours / plain
        )?;
    }
    Ok(out)
}

fn ratio(line: &QueryRuns) -> f64 {
    line.ours.wall.median() / line.plain.wall.median()
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let count = u32::try_from(ratios.len()).map_or(f64::NAN, f64::from);
    (sum / count).exp()
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.2} s")
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MiB", float(bytes) / f64::from(1 << 20))
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
const fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::geometric_mean;

    #[test]
    fn the_mean_of_a_ratio_and_its_inverse_is_one() {
        assert!((geometric_mean(&[4.0, 0.25]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
    }
}
