//! The charts, as SVG: for each workload a row of bars, an engine each, as a multiple of stock's
//! time; and how a scan grows with the database.
//!
//! The bars' scale begins at 0 and is linear; a bar that would leave it is drawn to its end, and
//! every bar says its value.
//! Must not: cut a value without saying it.

use std::fmt::Write as _;

use strongroom_benches::Failure;

use crate::engine::Engine;
use crate::growth::Grown;
use crate::report::{Line, Report};

const LEFT: u32 = 440;
const PLOT: u32 = 520;
const BAR: u32 = 9;
/// The scale's end, in multiples of stock.
const MOST: f64 = 6.0;

/// Apart also in print without colour; the VFS's are dark.
const fn colour(engine: Engine) -> &'static str {
    match engine {
        Engine::Stock => "#bbbbbb",
        Engine::Gcm => "#1f3a5f",
        Engine::Fresh => "#5a5ea6",
        Engine::Ctr => "#31688e",
        Engine::SqlCipher => "#d95f02",
        Engine::McChaCha => "#7fc97f",
        Engine::McAegis => "#a6761d",
        Engine::SqlCipherPlain | Engine::McPlain => "#dddddd",
    }
}

/// Engines of the chart: those that seal.
fn shown(engines: &[Engine]) -> Vec<Engine> {
    engines
        .iter()
        .copied()
        .filter(|engine| engine.seals())
        .collect()
}

/// Ratios of all workloads.
pub(crate) fn ratios(report: &Report, engines: &[Engine]) -> Result<String, Failure> {
    let engines = shown(engines);
    let lines: Vec<&Line> = report
        .lines
        .iter()
        .filter(|line| line.group != "Opening" && line.group != "Memory")
        .collect();
    let bars = u32::try_from(engines.len())?;
    let row = bars * BAR + 8;
    let height = 70 + u32::try_from(lines.len())? * row + 30;
    let width = LEFT + PLOT + 60;
    let mut out = open(width, height, "Time as a multiple of stock SQLite's")?;
    legend(&mut out, &engines, 130)?;
    for mark in 0..=6_u32 {
        let x = f64::from(LEFT) + f64::from(PLOT) * f64::from(mark) / MOST;
        let colour = if mark == 1 { "#333" } else { "#ddd" };
        writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"60\" y2=\"{}\" stroke=\"{colour}\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{mark}</text>",
            height - 30,
            height - 16
        )?;
    }
    for (index, line) in (0_u32..).zip(&lines) {
        let top = 66 + index * row;
        writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 8,
            top + row / 2,
            escaped(&line.name)
        )?;
        for (number, engine) in (0_u32..).zip(&engines) {
            let Some(ratio) = line.ratio(*engine) else {
                continue;
            };
            let long = f64::from(PLOT) * ratio.min(MOST) / MOST;
            let y = top + number * BAR;
            writeln!(
                out,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{long:.1}\" height=\"{}\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{}\" font-size=\"8\">{ratio:.2}</text>",
                BAR - 1,
                colour(*engine),
                f64::from(LEFT) + long + 3.0,
                y + BAR - 1
            )?;
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

/// Microseconds of a scan for each MiB, by size.
pub(crate) fn growth(report: &Report, engines: &[Engine]) -> Result<String, Failure> {
    let mut out = open(
        700,
        400,
        "Warm scan: µs a MiB, by size of the database in MiB (logarithmic)",
    )?;
    let each = |grown: &Grown| grown.scan * 1e6 / f64::from(grown.mebibytes);
    let most = report.grown.iter().map(each).fold(1.0, f64::max);
    let sizes: Vec<f64> = report
        .grown
        .iter()
        .map(|grown| f64::from(grown.mebibytes).log10())
        .collect();
    let low = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let wide = (sizes.iter().copied().fold(0.0, f64::max) - low).max(0.1);
    let place = |grown: &Grown| {
        let x = 70.0 + 560.0 * (f64::from(grown.mebibytes).log10() - low) / wide;
        (x, 360.0 - 280.0 * each(grown) / most)
    };
    let engines: Vec<Engine> = std::iter::once(Engine::Stock)
        .chain(shown(engines))
        .filter(|engine| {
            report
                .grown
                .iter()
                .any(|grown| grown.engine == engine.name())
        })
        .collect();
    legend(&mut out, &engines, 105)?;
    for engine in &engines {
        let points: Vec<&Grown> = report
            .grown
            .iter()
            .filter(|grown| grown.engine == engine.name())
            .collect();
        let path: Vec<String> = points
            .iter()
            .map(|grown| {
                let (x, y) = place(grown);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke-width=\"2\" stroke=\"{}\"/>",
            path.join(" "),
            colour(*engine)
        )?;
        for grown in points {
            let (x, y) = place(grown);
            writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"8\">{:.0}</text><text x=\"{x:.1}\" y=\"378\" text-anchor=\"middle\">{}</text>",
                colour(*engine),
                x + 5.0,
                y - 3.0,
                each(grown),
                grown.mebibytes
            )?;
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn open(width: u32, height: u32, title: &str) -> Result<String, Failure> {
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <title>{0}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"20\" y=\"20\" font-size=\"14\">{0}</text>",
        escaped(title)
    )?;
    Ok(out)
}

fn legend(out: &mut String, engines: &[Engine], step: u32) -> Result<(), Failure> {
    for (index, engine) in (0_u32..).zip(engines) {
        let x = 20 + index * step;
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"32\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"41\" font-size=\"10\">{}</text>",
            colour(*engine),
            x + 14,
            engine.title()
        )?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{growth, ratios};
    use crate::engine::Engine;
    use crate::growth::Grown;
    use crate::report::{Report, tests::line};
    use strongroom_benches::machine::Machine;

    #[test]
    fn every_engine_that_seals_has_a_bar_and_says_its_value() {
        let grown = |engine: Engine, mebibytes, scan| Grown {
            mebibytes,
            engine: engine.name(),
            scan,
            read: 0.0,
        };
        let report = Report {
            machine: Machine::here(std::path::Path::new(".")),
            rounds: 1,
            scale: 1.0,
            about: Vec::new(),
            sizes: Vec::new(),
            lines: vec![line()],
            grown: vec![grown(Engine::Stock, 10, 0.01), grown(Engine::Gcm, 10, 0.02)],
            counts: Vec::new(),
        };
        let engines = [Engine::Stock, Engine::Gcm, Engine::SqlCipher];
        let drawn = ratios(&report, &engines).unwrap();
        assert!(drawn.contains(">1.18<") && drawn.contains(">3.27<") && !drawn.contains(">1.00<"));
        assert!(drawn.ends_with("</svg>\n"));
        let drawn = growth(&report, &engines).unwrap();
        assert!(drawn.contains(">1000<") && drawn.contains(">2000<"));
    }
}
