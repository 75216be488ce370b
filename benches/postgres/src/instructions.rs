//! Instructions instead of time, for a machine whose times are noise: one process at a time,
//! `postgres --single`.
//!
//! The counter is perf's, of instructions in user mode; where the processor does not let it count,
//! valgrind's cachegrind. Neither counts the kernel, whose part of the work is the same with and
//! without the shield: a penalty in instructions is larger than the one in time.
//! Must not: count the start and the end of the process: a run without the statement is subtracted.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use strongroom_benches::machine::Machine;
use strongroom_benches::postgres::failed;
use strongroom_benches::stats::penalty;
use strongroom_benches::{Failure, note};

use crate::options::Options;
use crate::peer::{Node, Peer};
use crate::report::preamble;
use crate::setup::{self, Workshop};

/// Rows of `items`: 10 MB.
const ROWS: u32 = 100_000;
/// Settings of the single process: neither the table nor the sort fits.
const SMALL: [&str; 3] = [
    "shared_buffers=1MB",
    "work_mem=1MB",
    "maintenance_work_mem=1MB",
];
const DATABASE: &str = "postgres";

/// What is counted.
struct Work {
    name: &'static str,
    /// Statements that are not counted, one in a line.
    before: &'static str,
    /// `{rows}` stands for the file with the rows of `items`.
    sql: &'static str,
}

const WORKS: [Work; 6] = [
    Work {
        name: "COPY into a table",
        before: "DROP TABLE IF EXISTS made\nCREATE TABLE made (LIKE items)\n",
        sql: "COPY made FROM '{rows}'",
    },
    Work {
        name: "CREATE TABLE AS",
        before: "DROP TABLE IF EXISTS made\n",
        sql: "CREATE TABLE made AS SELECT * FROM items",
    },
    Work {
        name: "CREATE INDEX",
        before: "DROP INDEX IF EXISTS by_note\n",
        sql: "CREATE INDEX by_note ON items (note)",
    },
    Work {
        name: "sequential scan out of shared_buffers",
        before: "",
        sql: "SELECT count(*), sum(grp), max(length(note)) FROM items",
    },
    Work {
        name: "20 000 rows by index, out of shared_buffers",
        before: "SET enable_hashjoin = off\nSET enable_mergejoin = off\nSET enable_bitmapscan = off\n",
        sql: "SELECT sum(grp) FROM generate_series(1, 20000) AS g JOIN items ON id = (g * 7919) % 100000 + 1",
    },
    Work {
        name: "sort that spills",
        before: "DROP INDEX IF EXISTS by_note\n",
        sql: "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY note) AS n, * FROM items) AS s",
    },
];

/// Who counts.
#[derive(Clone, Copy)]
enum Counter {
    Perf,
    Cachegrind,
}

impl Counter {
    /// perf if the processor lets it, else cachegrind.
    fn find(directory: &Path) -> Result<Self, Failure> {
        for counter in [Self::Perf, Self::Cachegrind] {
            let file = directory.join("counter.probe");
            let (program, options) = counter.prefix(&file);
            let ran = Command::new(program).args(options).arg("true").output();
            let counted = counter.read(&file).is_some_and(|count| count > 0);
            if file.exists() {
                std::fs::remove_file(&file)?;
            }
            if ran.is_ok_and(|output| output.status.success()) && counted {
                return Ok(counter);
            }
        }
        Err("neither perf nor valgrind can count instructions here".into())
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf stat, instructions:u",
            Self::Cachegrind => "valgrind, cachegrind",
        }
    }

    /// The program and its options, before the program that it counts; the result goes to `file`.
    fn prefix(self, file: &Path) -> (&'static str, Vec<String>) {
        let file = file.display();
        match self {
            Self::Perf => {
                let options = ["stat", "-x,", "-e", "instructions:u", "-o"].map(str::to_owned);
                let mut options = options.to_vec();
                options.extend([file.to_string(), "--".to_owned()]);
                ("perf", options)
            }
            Self::Cachegrind => {
                let options = ["--tool=cachegrind", "--cache-sim=no"].map(str::to_owned);
                let mut options = options.to_vec();
                options.push("--cachegrind-out-file=/dev/null".to_owned());
                options.push(format!("--log-file={file}"));
                ("valgrind", options)
            }
        }
    }

    /// The number in the result.
    fn read(self, file: &Path) -> Option<u64> {
        let text = std::fs::read_to_string(file).ok()?;
        match self {
            // "1234,,instructions:u,..."
            Self::Perf => {
                let line = text.lines().find(|line| line.contains("instructions"))?;
                line.split(',').next()?.parse().ok()
            }
            // "==1== I   refs:      1,234,567"
            Self::Cachegrind => {
                let line = text.lines().find(|line| line.contains("refs:"))?;
                let (_, number) = line.rsplit_once(':')?;
                number.trim().replace(',', "").parse().ok()
            }
        }
    }
}

/// The instructions of one piece of work.
#[derive(Serialize)]
pub(crate) struct Counts {
    name: &'static str,
    /// The rounds of plain, AES-256-XTS and AES-128-XTS, in this order.
    rounds: [Vec<u64>; 3],
}

/// A whole run.
#[derive(Serialize)]
pub(crate) struct Counted {
    machine: Machine,
    postgres: String,
    counter: &'static str,
    rows: u32,
    lines: Vec<Counts>,
}

/// Makes three instances and counts on each.
pub(crate) fn count(options: &Options) -> Result<Counted, Failure> {
    let mut machine = Machine::here(&options.report.directory);
    let workshop = Workshop::open(options)?;
    let counter = Counter::find(&workshop.path(""))?;
    let mut nodes = workshop.nodes(options)?;
    for node in &mut nodes {
        setup::items(node, DATABASE, ROWS)?;
        setup::look_at_disk(node, DATABASE)?;
        node.cluster
            .psql(DATABASE, "CREATE UNIQUE INDEX ON items (id);")?;
        if node.peer == Peer::Plain {
            setup::export(node, DATABASE, &workshop.rows())?;
        }
        node.stop()?;
    }
    let mut lines = Vec::new();
    for work in WORKS.iter().filter(|work| options.workloads.has(work.name)) {
        note(work.name);
        let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..options.rounds() {
            for (node, counts) in nodes.iter().zip(&mut rounds) {
                counts.push(one(node, counter, work, &workshop)?);
            }
        }
        lines.push(Counts {
            name: work.name,
            rounds,
        });
    }
    machine.finished();
    Ok(Counted {
        machine,
        postgres: workshop.place.tools.version()?,
        counter: counter.name(),
        rows: ROWS,
        lines,
    })
}

/// The statement's instructions: those of a run with it, without those of a run without.
fn one(
    node: &Node<'_>,
    counter: Counter,
    work: &Work,
    workshop: &Workshop,
) -> Result<u64, Failure> {
    let file = workshop.path("instructions");
    let input = workshop.path("input.sql");
    let run = |script: String| -> Result<u64, Failure> {
        let mut command = single(node, counter, &file);
        put(&input, &script)?;
        let output = command.stdin(std::fs::File::open(&input)?).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() || said.contains("ERROR:") {
            return Err(failed(work.name, &output));
        }
        let count = counter.read(&file).ok_or("nothing was counted")?;
        std::fs::remove_file(&file)?;
        Ok(count)
    };
    let without = run(work.before.to_owned())?;
    let sql = work.sql.replace("{rows}", &workshop.rows());
    let with = run(format!("{}{sql}\n", work.before))?;
    Ok(with.saturating_sub(without))
}

fn single(node: &Node<'_>, counter: Counter, file: &Path) -> Command {
    let server = node.cluster.program("postgres");
    let (program, options) = counter.prefix(file);
    let mut command = node.cluster.other_program(Path::new(program));
    node.cluster.shield(&mut command);
    command.args(options).arg(server.get_program());
    command.arg("--single").arg("-D").arg(node.cluster.data());
    for setting in SMALL {
        command.args(["-c", setting]);
    }
    command.arg(DATABASE);
    command
}

fn put(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = std::fs::File::create(path)?;
    Ok(std::io::Write::write_all(&mut file, text.as_bytes())?)
}

impl Counted {
    /// As Markdown.
    pub(crate) fn markdown(&self) -> Result<String, Failure> {
        let mut out = preamble(&self.machine, &self.postgres)?;
        writeln!(out, "- Counted by {}; {} rows", self.counter, self.rows)?;
        writeln!(
            out,
            "\n| instructions in user mode | plain | AES-256-XTS | penalty | AES-128-XTS | penalty |\n\
             |---|---:|---:|---:|---:|---:|"
        )?;
        for line in &self.lines {
            let [plain, aes256, aes128] = line.rounds.each_ref().map(|rounds| middle(rounds));
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                line.name,
                millions(plain),
                millions(aes256),
                penalty(plain, aes256),
                millions(aes128),
                penalty(plain, aes128),
            )?;
        }
        Ok(out)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of instructions is shown to three digits"
)]
fn middle(rounds: &[u64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0) as f64
}

fn millions(count: f64) -> String {
    format!("{:.1} M", count / 1e6)
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn both_counters_are_understood() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |counter: Counter, text: &str| {
            super::put(file.path(), text).unwrap();
            counter.read(file.path())
        };
        let perf = "# started\n\n123456,,instructions:u,1000,100.00,,\n";
        assert_eq!(read(Counter::Perf, perf), Some(123_456));
        let refused = "<not supported>,,instructions:u,0,100.00,,\n";
        assert_eq!(read(Counter::Perf, refused), None);
        let cachegrind = "==7== Command: true\n==7== \n==7== I   refs:      1,234,567\n";
        assert_eq!(read(Counter::Cachegrind, cachegrind), Some(1_234_567));
    }
}
