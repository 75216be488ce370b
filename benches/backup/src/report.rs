//! The result: as tables for people, as JSON for programs.
//!
//! Must not: round in anybody's favour, or hide a spread.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use strongroom_benches::Failure;
use strongroom_benches::machine::Machine;
use strongroom_benches::report::{duration, mebibytes};
use strongroom_benches::stats::penalty;

use crate::peers::Tool;
use crate::run::Line;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// The tools, as they call themselves.
    pub(crate) versions: Vec<String>,
    pub(crate) rounds: u32,
    /// Bytes of the tables' files.
    pub(crate) source_bytes: u64,
    pub(crate) lines: Vec<Line>,
}

/// A table's title, its compression and threads, and which tools are in it.
const HEAD: &str = "| who | protection | compression | threads | backup | CPU | server's CPU | memory | size | restore | CPU | memory | spread |\n\
                    |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|";

impl Report {
    /// As Markdown.
    pub(crate) fn markdown(&self) -> Result<String, Failure> {
        let mut out = self.preamble()?;
        let mut kinds: Vec<(bool, Option<u8>)> = Vec::new();
        for line in &self.lines {
            let kind = (of_directory(line), line.peer.level);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.sort();
        for (directory, level) in kinds {
            let from = if directory {
                "the directory"
            } else {
                "the server"
            };
            let compression = level.map_or_else(
                || "not compressed".to_owned(),
                |level| format!("compressed, ours with zstd {level}"),
            );
            writeln!(out, "\n**From {from}, {compression}**\n\n{HEAD}")?;
            let of_kind =
                |line: &&Line| (of_directory(line), line.peer.level) == (directory, level);
            for line in self.lines.iter().filter(of_kind) {
                writeln!(out, "{}", row(line))?;
            }
        }
        out.push_str(&self.costs()?);
        Ok(out)
    }

    fn preamble(&self) -> Result<String, Failure> {
        let machine = &self.machine;
        let mut out = String::new();
        writeln!(out, "- {}", machine.shown())?;
        writeln!(
            out,
            "- Strongroom {}, {}",
            machine.strongroom,
            self.versions.join(", ")
        )?;
        writeln!(
            out,
            "- Load average of one minute: {:.2} before, {:.2} after",
            machine.load_before, machine.load_after
        )?;
        writeln!(
            out,
            "- {} rounds; tables and indexes {}",
            self.rounds,
            mebibytes(self.source_bytes)
        )?;
        Ok(out)
    }

    /// What encryption costs: each sealed line beside the plain one that differs in nothing else.
    fn costs(&self) -> Result<String, Failure> {
        let mut out = String::new();
        for sealed in self.lines.iter().filter(|line| line.peer.sealed) {
            let plain = self.lines.iter().find(|line| {
                !line.peer.sealed
                    && (line.peer.tool, line.peer.level, line.peer.threads)
                        == (sealed.peer.tool, sealed.peer.level, sealed.peer.threads)
            });
            let Some(plain) = plain else { continue };
            if out.is_empty() {
                writeln!(
                    out,
                    "\n**What encryption costs**\n\n| who | threads | backup | CPU | size | restore | CPU |\n\
                     |---|---:|---:|---:|---:|---:|---:|"
                )?;
            }
            let more = |of: fn(&Line) -> f64| penalty(of(plain), of(sealed));
            writeln!(
                out,
                "| {}, {} | {} | {} | {} | {} | {} | {} |",
                who(sealed.peer.tool, true),
                sealed.peer.compression(),
                sealed.peer.threads,
                more(|line| line.backup.median()),
                more(|line| line.backup_cpu.median()),
                size_penalty(plain.stored_bytes, sealed.stored_bytes),
                more(|line| line.restore.median()),
                more(|line| line.restore_cpu.median()),
            )?;
        }
        Ok(out)
    }
}

fn of_directory(line: &Line) -> bool {
    matches!(line.peer.tool, Tool::Directory | Tool::Restic)
}

fn who(tool: Tool, sealed: bool) -> &'static str {
    match (tool, sealed) {
        (Tool::Server | Tool::Directory, _) => "strongroom",
        (Tool::PgBackRest, _) => "pgBackRest",
        (Tool::Pipe, true) => "pg_basebackup, zstd, age",
        (Tool::Pipe, false) => "pg_basebackup, zstd",
        (Tool::Restic, _) => "restic",
        (Tool::Zstd, _) => "zstd alone, a file",
    }
}

fn row(line: &Line) -> String {
    let peer = &line.peer;
    let server = match peer.tool {
        Tool::Server | Tool::PgBackRest | Tool::Pipe => duration(line.server_cpu.median()),
        _ => "-".to_owned(),
    };
    format!(
        "| {} | {} | {} | {} | {} | {} | {server} | {} | {} | {} | {} | {} | {:.0} / {:.0} % |",
        who(peer.tool, peer.sealed),
        peer.protection(),
        peer.compression(),
        peer.threads,
        duration(line.backup.median()),
        duration(line.backup_cpu.median()),
        mebibytes(line.backup_peak_bytes),
        mebibytes(line.stored_bytes),
        duration(line.restore.median()),
        duration(line.restore_cpu.median()),
        mebibytes(line.restore_peak_bytes),
        line.backup.spread() * 100.0,
        line.restore.spread() * 100.0,
    )
}

/// As [`penalty`], of sizes, to a thousandth.
fn size_penalty(plain: u64, sealed: u64) -> String {
    if plain == 0 {
        return "-".to_owned();
    }
    let thousandths = ((sealed as f64 / plain as f64 - 1.0) * 100_000.0 - 1e-6).ceil();
    let thousandths = if thousandths == 0.0 { 0.0 } else { thousandths };
    format!("{:+.3} %", thousandths / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::size_penalty;
    use strongroom_benches::stats::penalty;

    #[test]
    fn penalties_are_rounded_up() {
        assert_eq!(penalty(1.0, 1.0301), "+3.1 %");
        assert_eq!(penalty(1.0, 0.98), "-2.0 %");
        assert_eq!(penalty(0.0, 1.0), "-");
        assert_eq!(size_penalty(100_000, 100_050), "+0.050 %");
        assert_eq!(size_penalty(1_000_000, 1_000_001), "+0.001 %");
        assert_eq!(size_penalty(100_000, 99_990), "-0.010 %");
        assert_eq!(size_penalty(0, 1), "-");
    }
}
