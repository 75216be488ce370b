//! Forty backups: four algorithms and none, compressed and not, from disk and from memory, to disk
//! and to memory. The experiment with which SQL Server's backup encryption was first measured.
//!
//! Invariants: rounds are interleaved, and who begins rotates; everything is restored and compared
//! in the first round.
//!
//! Must not: leave anything behind but figures.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::machine::Machine;
use strongroom_benches::postgres::failed;
use strongroom_benches::report::{duration, mebibytes};
use strongroom_benches::stats::median;
use strongroom_benches::{Failure, note};
use tempfile::TempDir;

use crate::measured::{self, Used};
use crate::options::Options;
use crate::{compare, run, source};

/// The algorithms, in the order of the table and the chart.
pub(crate) const ALGORITHMS: [&str; 5] =
    ["none", "aes-128", "aes-192", "aes-256", "triple-des-3key"];
/// The two kinds of places.
pub(crate) const PLACES: [&str; 2] = ["disk", "memory"];
/// Threads of each backup.
const THREADS: &str = "2";

/// One of the forty.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) algorithm: String,
    pub(crate) compressed: bool,
    pub(crate) from: String,
    pub(crate) to: String,
    /// In seconds, one of each round.
    pub(crate) wall_s: Vec<f64>,
    pub(crate) cpu_s: Vec<f64>,
    pub(crate) stored_bytes: u64,
}

/// All of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Matrix {
    /// Processor, kernel, file system: for people.
    pub(crate) machine: String,
    pub(crate) rounds: u32,
    pub(crate) source_bytes: u64,
    pub(crate) cells: Vec<Cell>,
}

impl Cell {
    /// The middle one of the rounds, in seconds.
    pub(crate) fn wall(&self) -> f64 {
        median(&self.wall_s)
    }

    fn is(&self, algorithm: &str, compressed: bool, from: &str, to: &str) -> bool {
        self.algorithm == algorithm
            && self.compressed == compressed
            && self.from == from
            && self.to == to
    }
}

impl Matrix {
    /// The cell of this name.
    pub(crate) fn cell(
        &self,
        algorithm: &str,
        compressed: bool,
        from: &str,
        to: &str,
    ) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.is(algorithm, compressed, from, to))
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> Result<String, Failure> {
        let mut out = String::new();
        writeln!(out, "- {}", self.machine)?;
        writeln!(
            out,
            "- {} rounds; {} in 8 files; {THREADS} threads; compressed: zstd 3",
            self.rounds,
            mebibytes(self.source_bytes)
        )?;
        for compressed in [false, true] {
            let title = if compressed {
                "Compressed"
            } else {
                "Not compressed"
            };
            writeln!(
                out,
                "\n**{title}**\n\n| algorithm | disk to disk | disk to memory | memory to disk | memory to memory | CPU | size | size against none |\n\
                 |---|---:|---:|---:|---:|---:|---:|---:|"
            )?;
            for algorithm in ALGORITHMS {
                writeln!(out, "{}", self.row(algorithm, compressed))?;
            }
        }
        Ok(out)
    }

    fn row(&self, algorithm: &str, compressed: bool) -> String {
        let mut shown = format!("| {algorithm} |");
        for from in PLACES {
            for to in PLACES {
                let wall = self.cell(algorithm, compressed, from, to).map(Cell::wall);
                shown.push_str(&format!(
                    " {} |",
                    wall.map_or_else(|| "-".to_owned(), duration)
                ));
            }
        }
        let [disk, _] = PLACES;
        let stored = |algorithm| {
            self.cell(algorithm, compressed, disk, disk)
                .map(|cell| cell.stored_bytes)
        };
        let cpu = self
            .cell(algorithm, compressed, disk, disk)
            .map(|cell| median(&cell.cpu_s));
        let [own, plain] = [stored(algorithm), stored("none")].map(Option::unwrap_or_default);
        let more = if plain == 0 {
            "-".to_owned()
        } else {
            format!("{:+.3} %", (own as f64 / plain as f64 - 1.0) * 100.0)
        };
        shown.push_str(&format!(
            " {} | {} | {more} |",
            cpu.map_or_else(|| "-".to_owned(), duration),
            mebibytes(own)
        ));
        shown
    }
}

/// Where one kind of place is.
struct Spot {
    name: &'static str,
    directory: TempDir,
}

impl Spot {
    fn source(&self) -> PathBuf {
        self.directory.path().join("source")
    }
}

/// All rounds; the result.
pub(crate) fn run(options: &Options) -> Result<Matrix, Failure> {
    let machine = Machine::here(&options.report.directory);
    let beside = std::env::current_exe()?.with_file_name("strongroom");
    let strongroom = std::env::var_os("STRONGROOM_BIN").map_or(beside, PathBuf::from);
    let [disk, memory] = PLACES;
    let mut spots = Vec::new();
    for (name, directory) in [(disk, &options.report.directory), (memory, &options.memory)] {
        let directory = tempfile::Builder::new()
            .prefix("strongroom-bench-")
            .tempdir_in(directory.canonicalize()?)?;
        let spot = Spot { name, directory };
        source::directory(&spot.source(), options.size_mb.saturating_mul(1_000_000))?;
        spots.push(spot);
    }
    let first = spots.first().ok_or("no places")?;
    let key = first.directory.path().join("bench.key");
    new_key_file(&key)?;
    let source_bytes = compare::size_of(&first.source())?;
    let mut cells = cells();
    for round in 0..options.rounds {
        note(&format!("round {}", round + 1));
        let count = cells.len();
        for turn in 0..count {
            // Neighbours differ in algorithm, so a slow minute hits all of them.
            let cell = cells.get_mut((usize::try_from(round)? * 7 + turn) % count);
            let cell = cell.ok_or("no such cell")?;
            once(cell, &spots, &strongroom, &key, round == 0).map_err(|error| {
                format!(
                    "{} from {} to {}: {error}",
                    cell.algorithm, cell.from, cell.to
                )
            })?;
        }
    }
    let here = format!("{} and memory", machine.shown());
    Ok(Matrix {
        machine: here,
        rounds: options.rounds,
        source_bytes,
        cells,
    })
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for compressed in [false, true] {
        for from in PLACES {
            for to in PLACES {
                for algorithm in ALGORITHMS {
                    cells.push(Cell {
                        algorithm: algorithm.to_owned(),
                        compressed,
                        from: from.to_owned(),
                        to: to.to_owned(),
                        wall_s: Vec::new(),
                        cpu_s: Vec::new(),
                        stored_bytes: 0,
                    });
                }
            }
        }
    }
    cells
}

fn once(
    cell: &mut Cell,
    spots: &[Spot],
    strongroom: &Path,
    key: &Path,
    restored: bool,
) -> Result<(), Failure> {
    let spot = |name: &str| {
        spots
            .iter()
            .find(|spot| spot.name == name)
            .ok_or("no such place")
    };
    let (from, to) = (spot(&cell.from)?, spot(&cell.to)?);
    let medium = to.directory.path().join("medium");
    let mut create: Vec<&str> = vec!["--threads", THREADS, "--compression"];
    create.push(if cell.compressed { "zstd:3" } else { "none" });
    let sealed = cell.algorithm != "none";
    if sealed {
        create.extend(["--algorithm", &cell.algorithm]);
    } else {
        create.push("--no-encryption");
    }
    if cell.algorithm == "triple-des-3key" {
        create.push("--allow-legacy");
    }
    run::settle()?;
    let used: Used = {
        let account = to.directory.path().join("account");
        let mut parent = Command::new(std::env::current_exe()?);
        parent.arg(measured::WORD).arg(&account).arg(strongroom);
        parent.args(["backup", "create"]).arg(from.source());
        parent.arg("--to").arg(&medium).args(&create);
        if sealed {
            parent.arg("--key-file").arg(key);
        }
        measured::run(&mut parent, &account)?
    };
    cell.wall_s.push(used.wall_s);
    cell.cpu_s.push(used.cpu_s);
    cell.stored_bytes = compare::size_of(&medium)?;
    if restored {
        let back = to.directory.path().join("restored");
        let mut restore = Command::new(strongroom);
        restore
            .args(["backup", "restore"])
            .arg(&medium)
            .arg("--to")
            .arg(&back);
        if sealed {
            restore.arg("--key-file").arg(key);
        }
        let output = restore.output()?;
        if !output.status.success() {
            return Err(failed("restore", &output));
        }
        compare::same_trees(&from.source(), &back)?;
        fs::remove_dir_all(back)?;
    }
    Ok(fs::remove_dir_all(medium)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ALGORITHMS, Cell, Matrix, cells};

    /// Forty cells with times that differ.
    pub(crate) fn matrix() -> Matrix {
        let mut cells = cells();
        for (index, cell) in (1_u32..).zip(&mut cells) {
            let seconds = f64::from(index);
            cell.wall_s = vec![seconds + 100.0, seconds, seconds - 0.5];
            cell.cpu_s = vec![seconds];
            cell.stored_bytes = if cell.algorithm == "none" {
                100_000
            } else {
                100_025
            };
        }
        Matrix {
            machine: "a machine & its <disk>".to_owned(),
            rounds: 3,
            source_bytes: 1 << 20,
            cells,
        }
    }

    #[test]
    fn there_are_forty_and_each_has_its_place() {
        let matrix = matrix();
        assert_eq!(matrix.cells.len(), 40);
        let of = |algorithm| {
            matrix
                .cell(algorithm, true, "memory", "disk")
                .map(Cell::wall)
        };
        assert_eq!(ALGORITHMS.map(of), [31.0, 32.0, 33.0, 34.0, 35.0].map(Some));
        let table = matrix.markdown().unwrap();
        assert!(
            table.contains(
                "| aes-192 | 3.00 s | 8.00 s | 13.0 s | 18.0 s | 3.00 s | 0.0 MiB | +0.025 % |"
            ),
            "{table}"
        );
        let json = serde_json::to_vec(&matrix).unwrap();
        let read: Matrix = serde_json::from_slice(&json).unwrap();
        assert_eq!(read.markdown().unwrap(), table);
    }
}
