//! The chart of the forty backups, as SVG: four panels (from where, to where), in each the
//! algorithms, not compressed and compressed.
//!
//! The scale is logarithmic, for Triple DES takes many times as long as the others, and every bar
//! says its value.
//!
//! Must not: cut a bar, or give a panel a scale of its own.

use std::fmt::Write as _;

use strongroom_benches::Failure;

use crate::matrix::{ALGORITHMS, Matrix, PLACES};

const PANEL: (u32, u32) = (440, 260);
const MARGIN: u32 = 56;
/// Height of bars in a panel.
const PLOT: u32 = 170;
/// One for what is not compressed, one for what is: apart also in print without colour.
const COLOURS: [&str; 2] = ["#31688e", "#a6d9a0"];

/// The chart.
pub(crate) fn svg(matrix: &Matrix) -> Result<String, Failure> {
    let (width, height) = (2 * PANEL.0 + MARGIN, 2 * PANEL.1 + 2 * MARGIN);
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">"
    )?;
    writeln!(
        out,
        "<title>Backup times by algorithm, compression and place</title>"
    )?;
    writeln!(
        out,
        "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
    )?;
    writeln!(
        out,
        "<text x=\"20\" y=\"22\" font-size=\"14\">Seconds for a backup of {} MiB, median of {}; the scale is logarithmic</text>",
        matrix.source_bytes >> 20,
        matrix.rounds
    )?;
    legend(&mut out)?;
    let most = matrix
        .cells
        .iter()
        .map(crate::matrix::Cell::wall)
        .fold(0.0, f64::max);
    let least = matrix
        .cells
        .iter()
        .map(crate::matrix::Cell::wall)
        .fold(f64::INFINITY, f64::min);
    let scale = Scale::of(least, most);
    for (row, from) in (0_u32..).zip(PLACES) {
        for (column, to) in (0_u32..).zip(PLACES) {
            let at = (column * PANEL.0 + MARGIN, row * PANEL.1 + MARGIN + 20);
            panel(&mut out, matrix, scale, at, (from, to))?;
        }
    }
    writeln!(
        out,
        "<text x=\"20\" y=\"{}\" fill=\"#555\">{}</text>",
        height - 12,
        escaped(&matrix.machine)
    )?;
    writeln!(out, "</svg>")?;
    Ok(out)
}

/// Powers of ten from below the least to above the most.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(least: f64, most: f64) -> Self {
        let least = if least.is_finite() && least > 0.0 {
            least
        } else {
            0.1
        };
        let low = (least.log10() - 0.05).floor();
        let high = most.max(least * 1.01).log10().ceil().max(low + 1.0);
        Self { low, high }
    }

    /// Share of the height, 0 to 1.
    fn share(self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        ((value.log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The powers of ten on it.
    fn lines(self) -> Vec<f64> {
        let mut lines = Vec::new();
        let mut exponent = self.low;
        while exponent <= self.high + 0.5 && lines.len() < 20 {
            lines.push(10_f64.powf(exponent));
            exponent += 1.0;
        }
        lines
    }
}

fn legend(out: &mut String) -> Result<(), Failure> {
    for ((index, colour), text) in (0_u32..).zip(COLOURS).zip(["not compressed", "zstd 3"]) {
        let x = 20 + index * 130;
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"44\">{text}</text>",
            x + 18
        )?;
    }
    Ok(())
}

fn panel(
    out: &mut String,
    matrix: &Matrix,
    scale: Scale,
    (left, top): (u32, u32),
    (from, to): (&str, &str),
) -> Result<(), Failure> {
    let base = f64::from(top + PLOT + 20);
    writeln!(
        out,
        "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{from} to {to}</text>",
        top + 8
    )?;
    for line in scale.lines() {
        let y = base - scale.share(line) * f64::from(PLOT);
        writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{line}</text>",
            left + PANEL.0 - 70,
            left - 4,
            y + 4.0
        )?;
    }
    for (index, algorithm) in (0_u32..).zip(ALGORITHMS) {
        let x = left + 12 + index * 72;
        for ((side, colour), compressed) in (0_u32..).zip(COLOURS).zip([false, true]) {
            let cell = matrix.cell(algorithm, compressed, from, to);
            let value = cell.ok_or("a cell is missing")?.wall();
            let bar = scale.share(value) * f64::from(PLOT);
            let x = x + side * 30;
            writeln!(
                out,
                "<rect x=\"{x}\" y=\"{:.1}\" width=\"26\" height=\"{bar:.1}\" fill=\"{colour}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{value:.2}</text>",
                base - bar,
                x + 13,
                base - bar - 3.0
            )?;
        }
        writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x + 28,
            base + 14.0,
            algorithm.trim_end_matches("-3key")
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
    use super::{Scale, svg};
    use crate::matrix::tests::matrix;

    #[test]
    fn every_backup_has_a_bar_within_its_panel() {
        let drawn = svg(&matrix()).unwrap();
        let bars = drawn.matches("width=\"26\"").count();
        assert_eq!(bars, 40);
        assert!(drawn.contains("&amp; its &lt;disk&gt;"));
        // 31 s: the second panel row's first compressed bar.
        assert!(drawn.contains(">31.00<"));
        let mut fewer = matrix();
        fewer.cells.pop();
        svg(&fewer).unwrap_err();
    }

    #[test]
    fn the_scale_holds_all_values() {
        let scale = Scale::of(0.2, 35.0);
        assert!((scale.low - -1.0).abs() < 1e-9 && (scale.high - 2.0).abs() < 1e-9);
        assert!(scale.share(0.2) > 0.0 && scale.share(35.0) < 1.0 && scale.share(100.0) > 0.99);
    }
}
