//! The result: a table for people, JSON for programs.
//!
//! Must not: round a ratio in the VFS's favour, hide a spread, or show a figure without what it was
//! compared with.

use std::fmt::Write as _;

use serde::Serialize;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::report::{duration, mebibytes};
use strongroom_benches::stats::Samples;

use crate::engine::Engine;
use crate::growth::Grown;
use crate::instructions::Counts;

/// One of the figures of a size.
type Figure = fn(&Grown) -> f64;

/// One workload's rounds.
#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    /// Operations of one round; figures are for one.
    pub(crate) operations: u32,
    pub(crate) operation: &'static str,
    /// The amounts are bytes, not seconds.
    pub(crate) bytes: bool,
    /// Empty for an engine that does not take part.
    pub(crate) samples: Vec<(&'static str, Samples)>,
}

impl Line {
    fn of(&self, engine: Engine) -> Option<&Samples> {
        let (_, samples) = self
            .samples
            .iter()
            .find(|(name, _)| *name == engine.name())?;
        (samples.rounds() > 0).then_some(samples)
    }

    /// Median by stock's median.
    pub(crate) fn ratio(&self, engine: Engine) -> Option<f64> {
        let stock = self.of(Engine::Stock)?.median();
        (stock > 0.0).then_some(self.of(engine)?.median() / stock)
    }

    fn cell(&self, engine: Engine) -> String {
        let Some(samples) = self.of(engine) else {
            return "-".to_owned();
        };
        let each = samples.median() / f64::from(self.operations.max(1));
        let shown = if self.bytes {
            format!("{:.1} KiB", each / 1024.0)
        } else {
            duration(each)
        };
        match self.ratio(engine) {
            Some(ratio) if engine != Engine::Stock => format!("{shown} ({ratio:.2})"),
            _ => shown,
        }
    }

    /// The largest spread of any engine, in per cent.
    fn spread(&self) -> f64 {
        let spreads = self.samples.iter().map(|(_, samples)| samples.spread());
        spreads.fold(0.0, f64::max) * 100.0
    }

    /// Name and unit.
    pub(crate) fn title(&self) -> String {
        if self.operation.is_empty() {
            self.name.clone()
        } else {
            format!("{}, per {}", self.name, self.operation)
        }
    }
}

/// A whole run.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    pub(crate) scale: f64,
    /// Each driver's version of SQLite and compiler.
    pub(crate) about: Vec<(&'static str, String)>,
    /// Sizes of the database files in bytes.
    pub(crate) sizes: Vec<(&'static str, u64)>,
    pub(crate) lines: Vec<Line>,
    pub(crate) grown: Vec<Grown>,
    pub(crate) counts: Vec<Counts>,
}

impl Report {
    /// As Markdown.
    pub(crate) fn markdown(&self, engines: &[Engine]) -> Result<String, Failure> {
        let mut out = String::new();
        let machine = &self.machine;
        writeln!(out, "- {}", machine.shown())?;
        writeln!(out, "- Strongroom {}", machine.strongroom)?;
        for (driver, about) in &self.about {
            writeln!(out, "- {driver}: SQLite {about}")?;
        }
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|(name, bytes)| format!("{name} {}", mebibytes(*bytes)))
            .collect();
        writeln!(
            out,
            "- {} rounds; TPC-H scale {}; databases: {}",
            self.rounds,
            self.scale,
            sizes.join(", ")
        )?;
        writeln!(
            out,
            "- Load average of one minute: {:.2} before, {:.2} after",
            machine.load_before, machine.load_after
        )?;
        let mut group = "";
        for line in &self.lines {
            if line.group != group {
                group = line.group;
                write!(
                    out,
                    "\n**{group}**\n\n{}",
                    head("workload", engines, "spread")
                )?;
            }
            write!(out, "| {} |", line.title())?;
            for engine in engines {
                write!(out, " {} |", line.cell(*engine))?;
            }
            writeln!(out, " {:.0} % |", line.spread())?;
        }
        if !self.grown.is_empty() {
            self.growth(&mut out, engines)?;
        }
        if !self.counts.is_empty() {
            out.push('\n');
            out.push_str(&crate::instructions::markdown(&self.counts, engines)?);
        }
        Ok(out)
    }

    fn growth(&self, out: &mut String, engines: &[Engine]) -> Result<(), Failure> {
        write!(out, "\n**By size of the database**\n\n")?;
        out.push_str(&head("size, work", engines, ""));
        let works: [(&str, Figure); 2] = [
            ("scan", |grown| grown.scan),
            ("one random read", |grown| grown.read),
        ];
        let mut sizes: Vec<u32> = self.grown.iter().map(|grown| grown.mebibytes).collect();
        sizes.dedup();
        for size in sizes {
            for (name, of) in works {
                write!(out, "| {size} MiB, {name} |")?;
                for engine in engines {
                    let found = self
                        .grown
                        .iter()
                        .find(|grown| grown.mebibytes == size && grown.engine == engine.name());
                    write!(
                        out,
                        " {} |",
                        found.map_or_else(|| "-".to_owned(), |grown| duration(of(grown)))
                    )?;
                }
                out.push_str(" |\n");
            }
        }
        Ok(())
    }
}

fn head(first: &str, engines: &[Engine], last: &str) -> String {
    let titles: Vec<&str> = engines.iter().map(|engine| engine.title()).collect();
    format!(
        "| {first} | {} | {last} |\n|---|{}---:|\n",
        titles.join(" | "),
        "---:|".repeat(engines.len())
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Line;
    use crate::engine::Engine;
    use std::time::Duration;
    use strongroom_benches::stats::Samples;

    pub(crate) fn line() -> Line {
        let samples = [
            (Engine::Stock, 10),
            (Engine::Gcm, 12),
            (Engine::SqlCipher, 35),
        ];
        Line {
            group: "g",
            name: "w".to_owned(),
            operations: 10,
            operation: "read",
            bytes: false,
            samples: samples
                .map(|(engine, milliseconds)| {
                    let mut rounds = Samples::default();
                    rounds.push(Duration::from_millis(milliseconds));
                    rounds.push(Duration::from_millis(milliseconds + 2));
                    (engine.name(), rounds)
                })
                .into(),
        }
    }

    #[test]
    fn a_cell_shows_one_operation_and_the_ratio_of_medians() {
        let line = line();
        assert_eq!(line.cell(Engine::Stock), "1.10 ms");
        assert_eq!(line.cell(Engine::Gcm), "1.30 ms (1.18)");
        assert_eq!(line.cell(Engine::SqlCipher), "3.60 ms (3.27)");
        assert_eq!(line.cell(Engine::McAegis), "-");
        assert!((line.spread() - 2.0 / 11.0 * 100.0).abs() < 1e-9);
    }
}
