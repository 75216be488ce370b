//! The result of a benchmark: as a table for people, as JSON for programs.
//!
//! Must not: round a ratio in the VFS's favour, or hide a spread.

use std::fmt::Write as _;

use serde::Serialize;

use crate::Failure;
use crate::machine::Machine;
use crate::stats::Samples;
use crate::variant::Variant;

/// One workload's rounds.
#[derive(Serialize)]
pub struct Line {
    /// The sort of work: the table's sections.
    pub group: &'static str,
    /// The workload.
    pub name: String,
    /// How many operations one round is; figures are shown for one of them.
    pub operations: u32,
    /// What one operation is; empty when a round is one.
    pub operation: &'static str,
    /// The rounds of stock, GCM and CTR, in this order.
    pub samples: [Samples; 3],
}

impl Line {
    /// Without rounds.
    #[must_use]
    pub fn new(
        group: &'static str,
        name: impl Into<String>,
        operations: u32,
        operation: &'static str,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            operations,
            operation,
            samples: Default::default(),
        }
    }

    /// The rounds of `variant`.
    #[must_use]
    pub fn of(&self, variant: Variant) -> &Samples {
        let [stock, gcm, ctr] = &self.samples;
        match variant {
            Variant::Stock => stock,
            Variant::Gcm => gcm,
            Variant::Ctr => ctr,
        }
    }

    /// Adds a round of `variant`.
    pub fn push(&mut self, variant: Variant, duration: std::time::Duration) {
        let [stock, gcm, ctr] = &mut self.samples;
        match variant {
            Variant::Stock => stock,
            Variant::Gcm => gcm,
            Variant::Ctr => ctr,
        }
        .push(duration);
    }

    /// Median of `variant` by median of stock; 0 when stock has none.
    #[must_use]
    pub fn ratio(&self, variant: Variant) -> f64 {
        let stock = self.of(Variant::Stock).median();
        if stock > 0.0 {
            self.of(variant).median() / stock
        } else {
            0.0
        }
    }

    fn shown(&self, variant: Variant) -> String {
        duration(self.of(variant).median() / f64::from(self.operations.max(1)))
    }

    fn row(&self) -> String {
        let spreads =
            Variant::ALL.map(|variant| format!("{:.0}", self.of(variant).spread() * 100.0));
        let unit = if self.operation.is_empty() {
            String::new()
        } else {
            format!(", per {}", self.operation)
        };
        format!(
            "| {}{unit} | {} | {} | {:.2} | {} | {:.2} | {} % |",
            self.name,
            self.shown(Variant::Stock),
            self.shown(Variant::Gcm),
            self.ratio(Variant::Gcm),
            self.shown(Variant::Ctr),
            self.ratio(Variant::Ctr),
            spreads.join(" / "),
        )
    }
}

/// A whole run.
#[derive(Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// Rounds of each workload.
    pub rounds: u32,
    /// TPC-H scale factor.
    pub scale: f64,
    /// Page cache of each connection, in KiB.
    pub cache_kib: u32,
    /// Sizes of the database files, in bytes: stock, GCM, CTR.
    pub database_bytes: [u64; 3],
    /// The workloads.
    pub lines: Vec<Line>,
}

impl Report {
    /// As one JSON object. All durations are in seconds, for a whole round.
    ///
    /// # Errors
    /// None that can be provoked.
    pub fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = self.preamble();
        let mut group = "";
        for line in &self.lines {
            if line.group != group {
                group = line.group;
                let head = format!(
                    "\n**{group}**\n\n| workload | stock | GCM | GCM / stock | CTR | CTR / stock | spread |\n\
                     |---|---:|---:|---:|---:|---:|---:|\n"
                );
                out.push_str(&head);
            }
            out.push_str(&line.row());
            out.push('\n');
        }
        out
    }

    fn preamble(&self) -> String {
        let machine = &self.machine;
        let mut out = String::new();
        let [stock, gcm, ctr] = self.database_bytes.map(mebibytes);
        let lines = [
            format!("- {}", machine.shown()),
            format!(
                "- Strongroom {}, SQLite {} (bundled, both sides)",
                machine.strongroom, machine.sqlite
            ),
            format!(
                "- {} rounds; TPC-H scale {}; page cache {} KiB; database {stock} stock, {gcm} GCM, {ctr} CTR",
                self.rounds, self.scale, self.cache_kib
            ),
            format!(
                "- Load average of one minute: {:.2} before, {:.2} after",
                machine.load_before, machine.load_after
            ),
        ];
        for line in lines {
            // Writing to a String cannot fail.
            let written = writeln!(out, "{line}");
            assert!(written.is_ok(), "formatting into a string");
        }
        out
    }
}

/// Three significant digits and a unit.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "µs"),
    };
    let places = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.places$} {unit}")
}

/// A size for people.
#[must_use]
pub fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::{Line, duration, mebibytes};
    use crate::variant::Variant;
    use std::time::Duration;

    #[test]
    fn durations_have_three_digits() {
        assert_eq!(duration(1.234), "1.23 s");
        assert_eq!(duration(0.012_34), "12.3 ms");
        assert_eq!(duration(0.000_123_4), "123 µs");
        assert_eq!(mebibytes(3 << 19), "1.5 MiB");
    }

    #[test]
    fn a_row_shows_one_operation_and_the_ratio_of_medians() {
        let mut line = Line::new("g", "w", 10, "read");
        for milliseconds in [10, 20, 30] {
            line.push(Variant::Stock, Duration::from_millis(milliseconds));
            line.push(Variant::Gcm, Duration::from_millis(milliseconds + 5));
            line.push(Variant::Ctr, Duration::from_millis(2 * milliseconds));
        }
        assert_eq!(
            line.row(),
            "| w, per read | 2.00 ms | 2.50 ms | 1.25 | 4.00 ms | 2.00 | 100 / 80 / 100 % |"
        );
    }
}
