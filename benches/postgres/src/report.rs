//! The result: as tables for people, as JSON for programs.
//!
//! Must not: round a penalty in the shield's favour, or hide a spread.

use std::fmt::Write as _;

use serde::Serialize;
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::report::{duration, mebibytes};
use strongroom_benches::stats::{Samples, penalty};

use crate::options::{Options, Sizes};
use crate::peer::Peer;
use crate::workloads::Round;

/// A processor time below this, in seconds, says nothing: it is counted in hundredths.
const PROCESSOR_MIN: f64 = 0.2;

/// One workload's rounds.
#[derive(Serialize)]
pub(crate) struct Line {
    /// The sort of work: the table's sections.
    pub(crate) group: &'static str,
    /// The workload.
    pub(crate) name: &'static str,
    /// How many operations one round is; figures are shown for one of them.
    operations: u32,
    /// What one operation is; empty when a round is one.
    operation: &'static str,
    /// The rounds of plain, AES-256-XTS and AES-128-XTS, in this order.
    samples: [Samples; 3],
    /// Processor time of the servers' processes in these rounds.
    processor: [Samples; 3],
}

impl Line {
    /// Without rounds.
    pub(crate) fn new(
        group: &'static str,
        name: &'static str,
        operations: u32,
        operation: &'static str,
    ) -> Self {
        Self {
            group,
            name,
            operations,
            operation,
            samples: Default::default(),
            processor: Default::default(),
        }
    }

    fn of(&self, peer: Peer) -> &Samples {
        one(&self.samples, peer)
    }

    /// Adds a round of `peer`.
    pub(crate) fn push(&mut self, peer: Peer, round: &Round) {
        let [plain, aes256, aes128] = self.samples.each_mut();
        let [plain_work, aes256_work, aes128_work] = self.processor.each_mut();
        let (samples, processor) = match peer {
            Peer::Plain => (plain, plain_work),
            Peer::Aes256 => (aes256, aes256_work),
            Peer::Aes128 => (aes128, aes128_work),
        };
        samples.push(round.taken);
        processor.push(round.processor);
    }

    /// In time, and in processor time.
    fn penalties(&self, peer: Peer) -> [String; 2] {
        let median = |samples, peer| one(samples, peer).median();
        let time = penalty(self.of(Peer::Plain).median(), self.of(peer).median());
        let plain = median(&self.processor, Peer::Plain);
        let processor = if plain < PROCESSOR_MIN {
            "-".to_owned()
        } else {
            penalty(plain, median(&self.processor, peer))
        };
        [time, processor]
    }

    fn row(&self) -> String {
        let shown = |peer| duration(self.of(peer).median() / f64::from(self.operations.max(1)));
        let spreads = Peer::ALL.map(|peer| format!("{:.0}", self.of(peer).spread() * 100.0));
        let unit = if self.operation.is_empty() {
            String::new()
        } else {
            format!(", per {}", self.operation)
        };
        let [aes256, aes256_work] = self.penalties(Peer::Aes256);
        let [aes128, aes128_work] = self.penalties(Peer::Aes128);
        format!(
            "| {}{unit} | {} | {} | {aes256} | {aes256_work} | {} | {aes128} | {aes128_work} | {} % |",
            self.name,
            shown(Peer::Plain),
            shown(Peer::Aes256),
            shown(Peer::Aes128),
            spreads.join(" / "),
        )
    }
}

fn one(samples: &[Samples; 3], peer: Peer) -> &Samples {
    let [plain, aes256, aes128] = samples;
    match peer {
        Peer::Plain => plain,
        Peer::Aes256 => aes256,
        Peer::Aes128 => aes128,
    }
}

/// A whole run.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Where it ran.
    pub(crate) machine: Machine,
    /// What was run, as `postgres --version` tells.
    pub(crate) postgres: String,
    /// Rounds of each workload.
    pub(crate) rounds: u32,
    /// pgbench's scale.
    pub(crate) scale: u32,
    /// Its clients.
    pub(crate) clients: u32,
    /// `shared_buffers`, in MiB.
    pub(crate) shared_buffers: u32,
    /// Sizes that explain the figures.
    pub(crate) sizes: Sizes,
    /// The workloads.
    pub(crate) lines: Vec<Line>,
}

impl Report {
    /// As one JSON object. All durations are in seconds, for a whole round.
    pub(crate) fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> Result<String, Failure> {
        let mut out = preamble(&self.machine, &self.postgres)?;
        let Sizes {
            large,
            small,
            replayed,
        } = self.sizes;
        writeln!(
            out,
            "- {} rounds; shared_buffers {} MiB; pgbench scale {}, {} clients; databases {} and {}",
            self.rounds,
            self.shared_buffers,
            self.scale,
            self.clients,
            mebibytes(large),
            mebibytes(small),
        )?;
        if replayed > 0 {
            writeln!(
                out,
                "- Replayed after kill -9: {} of WAL",
                mebibytes(replayed)
            )?;
        }
        let mut group = "";
        for line in &self.lines {
            if line.group != group {
                group = line.group;
                writeln!(
                    out,
                    "\n**{group}**\n\n| workload | plain | AES-256-XTS | penalty | in CPU | AES-128-XTS | penalty | in CPU | spread |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|---:|"
                )?;
            }
            writeln!(out, "{}", line.row())?;
        }
        Ok(out)
    }
}

/// The machine and the versions.
pub(crate) fn preamble(machine: &Machine, postgres: &str) -> Result<String, Failure> {
    let mut out = String::new();
    writeln!(out, "- {}", machine.shown())?;
    writeln!(
        out,
        "- Strongroom {}, PostgreSQL {postgres}",
        machine.strongroom
    )?;
    writeln!(
        out,
        "- Load average of one minute: {:.2} before, {:.2} after",
        machine.load_before, machine.load_after
    )?;
    Ok(out)
}

impl Sizes {
    /// Those that are known before the first round.
    pub(crate) fn of(node: &crate::peer::Node<'_>) -> Result<Self, Failure> {
        let size = |database: &str| -> Result<u64, Failure> {
            let sql = format!("SELECT pg_database_size('{database}');");
            Ok(node.cluster.psql("postgres", &sql)?.parse()?)
        };
        Ok(Self {
            large: size(crate::setup::LARGE)?,
            small: size(crate::setup::SMALL)?,
            replayed: 0,
        })
    }
}

impl Report {
    /// Of a run that is over.
    pub(crate) fn of(
        machine: Machine,
        postgres: String,
        sizes: Sizes,
        lines: Vec<Line>,
        options: &Options,
    ) -> Self {
        Self {
            machine,
            postgres,
            rounds: options.rounds(),
            scale: options.scale,
            clients: options.clients,
            shared_buffers: options.shared_buffers,
            sizes,
            lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Line;
    use crate::peer::Peer;
    use crate::workloads::Round;
    use std::time::Duration;
    use strongroom_benches::stats::penalty;

    #[test]
    fn a_penalty_is_rounded_up() {
        assert_eq!(penalty(1.0, 1.0301), "+3.1 %");
        assert_eq!(penalty(1.0, 0.98), "-2.0 %");
        assert_eq!(penalty(1.0, 0.9999), "+0.0 %");
        assert_eq!(penalty(0.0, 1.0), "-");
    }

    #[test]
    fn a_row_shows_one_operation_and_the_penalties_of_medians() {
        let mut line = Line::new("g", "w", 10, "read");
        let mut push = |peer, taken, processor| {
            let round = Round {
                taken: Duration::from_millis(taken),
                processor: Duration::from_millis(processor),
                result: String::new(),
            };
            line.push(peer, &round);
        };
        for milliseconds in [10, 20, 30] {
            push(Peer::Plain, milliseconds, 1000);
            push(Peer::Aes256, milliseconds + 5, 1010);
            push(Peer::Aes128, 2 * milliseconds, 1000);
        }
        assert_eq!(
            line.row(),
            "| w, per read | 2.00 ms | 2.50 ms | +25.0 % | +1.0 % | 4.00 ms | +100.0 % | +0.0 % \
             | 100 / 80 / 100 % |"
        );
    }
}
