//! Rounds of all peers on one server.
//!
//! Invariants: rounds are interleaved, and who begins rotates; a round counts only if what was
//! restored is what was backed up (B2); every place is new.
//!
//! Must not: leave anything behind but figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::machine::Machine;
use strongroom_benches::postgres::{Account, Cluster, Place, Server, Tools, failed};
use strongroom_benches::stats::Samples;
use strongroom_benches::{Failure, note};
use tempfile::TempDir;

use crate::measured::{self, Used};
use crate::options::Options;
use crate::peers::{self, Lab, Peer, Step, Tool};
use crate::report::Report;
use crate::{compare, source};

/// A peer's rounds.
#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) peer: Peer,
    /// The clock's and the processors' time of the program and all that it started.
    pub(crate) backup: Samples,
    pub(crate) backup_cpu: Samples,
    /// Processor time of the server's processes meanwhile.
    pub(crate) server_cpu: Samples,
    pub(crate) restore: Samples,
    pub(crate) restore_cpu: Samples,
    /// The most of all rounds, in bytes.
    pub(crate) backup_peak_bytes: u64,
    pub(crate) restore_peak_bytes: u64,
    /// What it stored, in bytes, in the last round.
    pub(crate) stored_bytes: u64,
}

impl Line {
    fn new(peer: Peer) -> Self {
        Self {
            peer,
            backup: Samples::default(),
            backup_cpu: Samples::default(),
            server_cpu: Samples::default(),
            restore: Samples::default(),
            restore_cpu: Samples::default(),
            backup_peak_bytes: 0,
            restore_peak_bytes: 0,
            stored_bytes: 0,
        }
    }
}

/// All rounds; the result.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut machine = Machine::here(&options.report.directory);
    let directory = tempfile::Builder::new()
        .prefix("strongroom-bench-")
        .tempdir_in(options.report.directory.canonicalize()?)?;
    let place = Place::make(&Tools::find()?, Account::here()?, directory.path())?;
    note("loading the server");
    let bytes = options.size_mb.saturating_mul(1_000_000);
    let (cluster, server) = source::server(&place, &directory.path().join("source"), bytes)?;
    let lab = lab(&place, &cluster, &directory)?;
    let workshop = Workshop {
        directory: directory.path(),
        helper: helper(&place, directory.path())?,
        cluster: &cluster,
        server: &server,
        lab,
    };
    let source_bytes = compare::size_of(&workshop.lab.tables())?;
    let wanted = |peer: &Peer| peer.name().contains(&options.only);
    let mut lines: Vec<Line> = peers::all()
        .into_iter()
        .filter(wanted)
        .map(Line::new)
        .collect();
    for round in 0..options.rounds {
        let count = lines.len();
        for turn in 0..count {
            let index = (usize::try_from(round)? * 7 + turn) % count;
            let line = lines.get_mut(index).ok_or("no such peer")?;
            note(&format!("round {}: {}", round + 1, line.peer.name()));
            workshop
                .once(line)
                .map_err(|error| format!("{}: {error}", line.peer.name()))?;
        }
    }
    server.stop()?;
    machine.finished();
    let mut versions = vec![format!("PostgreSQL {}", place.tools.version()?)];
    versions.extend(other_versions());
    Ok(Report {
        machine,
        versions,
        rounds: options.rounds,
        source_bytes,
        lines,
    })
}

struct Workshop<'a> {
    directory: &'a Path,
    /// This program, where the server's user can run it.
    helper: PathBuf,
    cluster: &'a Cluster<'a>,
    server: &'a Server,
    lab: Lab,
}

impl Workshop<'_> {
    /// One round: prepare, back up, restore, compare.
    fn once(&self, line: &mut Line) -> Result<(), Failure> {
        let area = tempfile::Builder::new()
            .prefix("round-")
            .tempdir_in(self.directory)?;
        self.give(area.path())?;
        let (medium, restored) = (area.path().join("medium"), area.path().join("restored"));
        let own_directory = !matches!(line.peer.tool, Tool::Server | Tool::Directory);
        if own_directory {
            fs::create_dir(&medium)?;
            self.give(&medium)?;
        }
        if let Some(step) = line.peer.prepare(&self.lab, &medium) {
            let output = fitted(&mut self.cluster.other_program(&step.program), &step).output()?;
            if !output.status.success() {
                return Err(failed("prepare", &output));
            }
        }
        settle()?;
        let before = self.server.processor_time()?;
        let used = self.measured(&line.peer.backup(&self.lab, &medium))?;
        let server = self.server.processor_time()?.saturating_sub(before);
        line.stored_bytes = compare::size_of(&medium)?;
        if line.peer.tool == Tool::PgBackRest {
            fs::create_dir(&restored)?;
            self.give(&restored)?;
        }
        settle()?;
        let restore = self.measured(&line.peer.restore(&self.lab, &medium, &restored))?;
        let (expected, found) = line.peer.compared(&self.lab, &restored);
        if line.peer.tool == Tool::Zstd {
            if !compare::same_bytes(&expected, &found)? {
                return Err("other bytes".into());
            }
        } else {
            compare::same_trees(&expected, &found)?;
        }
        line.add(used, server, restore);
        Ok(())
    }

    fn give(&self, path: &Path) -> Result<(), Failure> {
        Account::here()?.own(path)
    }

    fn measured(&self, step: &Step) -> Result<Used, Failure> {
        let account = self.directory.join("account");
        let mut parent = self.cluster.other_program(&self.helper);
        parent.arg(measured::WORD).arg(&account).arg(&step.program);
        measured::run(fitted(&mut parent, step), &account)
    }
}

impl Line {
    fn add(&mut self, backup: Used, server: Duration, restore: Used) {
        let [wall, cpu] = backup.times();
        self.backup.push(wall);
        self.backup_cpu.push(cpu);
        self.server_cpu.push(server);
        let [wall, cpu] = restore.times();
        self.restore.push(wall);
        self.restore_cpu.push(cpu);
        self.backup_peak_bytes = self.backup_peak_bytes.max(backup.peak_bytes);
        self.restore_peak_bytes = self.restore_peak_bytes.max(restore.peak_bytes);
    }
}

fn fitted<'c>(command: &'c mut Command, step: &Step) -> &'c mut Command {
    command.args(&step.arguments);
    command.envs(step.environment.iter().map(|(name, value)| (name, value)))
}

/// Nothing is left to be written from before.
pub(crate) fn settle() -> Result<(), Failure> {
    let status = Command::new("sync").status()?;
    if status.success() {
        Ok(())
    } else {
        Err("sync failed".into())
    }
}

/// This program, where PostgreSQL's user can run it.
fn helper(place: &Place, directory: &Path) -> Result<PathBuf, Failure> {
    let above = place.tools.strongroom.parent().unwrap_or(directory);
    let helper = above.join("bench");
    fs::copy(std::env::current_exe()?, &helper)?;
    Ok(helper)
}

fn lab(place: &Place, cluster: &Cluster<'_>, directory: &TempDir) -> Result<Lab, Failure> {
    let key = directory.path().join("bench.key");
    new_key_file(&key)?;
    place.account.own(&key)?;
    let identity = directory.path().join("age.key");
    let told = |command: &mut Command| -> Result<String, Failure> {
        let output = command.output()?;
        if !output.status.success() {
            return Err(failed("age-keygen", &output));
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let keygen = || cluster.other_program(Path::new("age-keygen"));
    told(keygen().arg("-o").arg(&identity))?;
    let recipient = told(keygen().arg("-y").arg(&identity))?;
    let sockets = cluster.psql("postgres", "SHOW unix_socket_directories;")?;
    let archives = directory.path().join("archive");
    let mut base = cluster.program("pg_basebackup");
    base.args(["-F", "t", "-X", "fetch", "-c", "fast", "-D"]);
    let output = base.arg(&archives).output()?;
    if !output.status.success() {
        return Err(failed("pg_basebackup", &output));
    }
    Ok(Lab {
        strongroom: place.tools.strongroom.clone(),
        bin: place.tools.bin.clone(),
        sockets: PathBuf::from(sockets),
        data: cluster.data().to_path_buf(),
        key,
        identity,
        recipient,
        archive: archives.join("base.tar"),
    })
}

/// What the other tools call themselves.
fn other_versions() -> Vec<String> {
    let ask = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = text.lines().next()?.trim_matches(['*', ' ']).to_owned();
        let words: Vec<&str> = first.split_whitespace().take(3).collect();
        Some(words.join(" "))
    };
    let zstd = ask("zstd", "-V").map(|_| {
        let output = Command::new("zstd").arg("-V").output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let version = text.and_then(|text| {
            let word = text.split_whitespace().find(|word| word.starts_with('v'));
            word.map(|word| word.trim_matches(['v', ',']).to_owned())
        });
        format!("zstd {}", version.unwrap_or_default())
    });
    let age = ask("age", "--version").map(|version| format!("age {version}"));
    [
        ask("pgbackrest", "version"),
        ask("restic", "version"),
        zstd,
        age,
    ]
    .into_iter()
    .flatten()
    .collect()
}
