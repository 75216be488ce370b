//! What does not start: another key, no key, no shield. And that the attempt changes nothing.
//!
//! Must not: take a refusal for one if a byte of the data directory changed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};

use strongroom_benches::Failure;
use strongroom_benches::postgres::Server;

use super::instances::{Instances, ran, succeeded};
use strongroom_tour::checks::{Checks, Found, found};

/// On the stopped, sealed instance.
pub(super) fn run(instances: &mut Instances<'_>, checks: &mut Checks) -> Result<(), Failure> {
    checks.heading("Without the key or without the shield")?;
    checks.check("pg start with another key", || {
        unchanged(instances, || {
            let mut command = instances.command(&["pg", "start", "-D"]);
            command.arg("--key-file").arg(&instances.other_key);
            let ran = ran(command)?;
            found(ran.refused(3, "SR-2002"), ran.shown())
        })
    })?;
    checks.check("pg start with the key out of reach", || {
        let away = instances.key.with_extension("away");
        rename(&instances.key, &away)?;
        let outcome = unchanged(instances, || {
            let ran = ran(instances.command(&["pg", "start", "-D"]))?;
            found(
                ran.code == Some(3) && ran.stderr.contains("error[SR-"),
                ran.shown(),
            )
        });
        rename(&away, &instances.key)?;
        outcome
    })?;
    checks.check("pg_ctl start, the shield not preloaded", || {
        unchanged(instances, || {
            let said = without_shield(instances)?;
            // To it the control file is noise.
            let line = "database files are incompatible with server";
            found(said.contains(line), format!("\"{line}\""))
        })
    })?;
    checks.check("pg_controldata, and pg controldata", || {
        let mut bare = instances.sealed.program("pg_controldata");
        bare.arg("-D").arg(instances.sealed.data());
        let bare = ran(bare)?;
        let warned = bare.stdout.contains("CRC checksum does not match")
            || bare.stderr.contains("CRC checksum does not match");
        let ran = instances.succeed(&["pg", "controldata", "-D"])?;
        let line = |name: &str| ran.stdout.lines().find_map(|line| line.strip_prefix(name));
        let state = line("Database cluster state:").map(str::trim);
        let fingerprint = line("Data encryption fingerprint:").map_or("", str::trim);
        let holds = warned && state == Some("shut down") && !fingerprint.is_empty();
        let short = fingerprint.get(..16).unwrap_or(fingerprint);
        found(holds, format!("CRC error; fingerprint {short}..."))
    })?;
    checks.check("pg_ctl start, the shield preloaded, unattended", || {
        let mut command = instances.sealed.own_program("pg_ctl");
        command
            .args(["start", "-w", "-D"])
            .arg(instances.sealed.data());
        command.arg("-l").arg(instances.sealed.log());
        succeeded(command)?;
        instances.sealed_server = Some(Server::adopt(&instances.sealed)?);
        let count = instances
            .sealed
            .psql("postgres", "SELECT count(*) FROM notes;")?;
        instances.stop()?;
        found(
            count == "20000",
            format!("{count} rows; the key from strongroom.conf's file"),
        )
    })
}

/// What the log says after an attempt to start stock PostgreSQL on the sealed files.
fn without_shield(instances: &Instances<'_>) -> Result<String, Failure> {
    let log = instances.sealed.data().with_extension("bare.log");
    let mut command = instances.sealed.program("pg_ctl");
    command
        .args(["start", "-w", "-D"])
        .arg(instances.sealed.data());
    command.arg("-l").arg(&log);
    if ran(command)?.code == Some(0) {
        return Err("it started".into());
    }
    Ok(std::fs::read_to_string(log)?)
}

/// Runs `attempt`; the data directory must be what it was.
fn unchanged(
    instances: &Instances<'_>,
    attempt: impl FnOnce() -> Result<Found, Failure>,
) -> Result<Found, Failure> {
    let data = instances.sealed.data();
    let before = state(data)?;
    let outcome = attempt()?;
    let after = state(data)?;
    let differing: Vec<String> = before
        .iter()
        .filter(|(path, hash)| after.get(*path) != Some(hash))
        .map(|(path, _)| path)
        .chain(after.keys().filter(|path| !before.contains_key(*path)))
        .map(|path| path.display().to_string())
        .collect();
    if differing.is_empty() {
        Ok(outcome)
    } else {
        Err(format!("changed: {}", differing.join(", ")).into())
    }
}

/// Every file with a hash of its bytes.
fn state(directory: &Path) -> Result<BTreeMap<PathBuf, u64>, Failure> {
    let mut files = BTreeMap::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            } else {
                let mut hasher = DefaultHasher::new();
                hasher.write(&std::fs::read(entry.path())?);
                files.insert(entry.path(), hasher.finish());
            }
        }
    }
    Ok(files)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a demonstration's key is put aside for a moment; nothing is to survive a crash"
)]
fn rename(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::rename(from, to)
}
