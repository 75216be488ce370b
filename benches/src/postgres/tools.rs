//! The programs: PostgreSQL's, the `strongroom` command and the shield, where the account can run
//! them.
//!
//! Must not: take PostgreSQL's programs from several versions.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::Failure;

/// The shield's file.
const LIBRARY: &str = "libstrongroom_shield.so";
/// Where Debian puts each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Where the programs are.
#[derive(Clone)]
pub struct Tools {
    /// PostgreSQL's programs.
    pub bin: PathBuf,
    /// The `strongroom` command.
    pub strongroom: PathBuf,
    /// The shield.
    pub shield: PathBuf,
}

impl Tools {
    /// PostgreSQL's: `PG_BINDIR`, `pg_config --bindir`, the newest of Debian's. The command:
    /// `STRONGROOM_BIN`, or the one beside this program. The shield: `STRONGROOM_SHIELD_LIB`, or
    /// the one beside the command.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn find() -> Result<Self, Failure> {
        let named = |variable| std::env::var_os(variable).map(PathBuf::from);
        let bin = named("PG_BINDIR").or_else(configured).or_else(newest);
        let bin = bin.ok_or("no PostgreSQL server programs found; set PG_BINDIR")?;
        let beside = std::env::current_exe()?.with_file_name("strongroom");
        let strongroom = present(named("STRONGROOM_BIN").unwrap_or(beside), "STRONGROOM_BIN")?;
        let beside = strongroom.with_file_name(LIBRARY);
        let shield = named("STRONGROOM_SHIELD_LIB").unwrap_or(beside);
        Ok(Self {
            bin,
            strongroom,
            shield: present(shield, "STRONGROOM_SHIELD_LIB")?,
        })
    }

    /// Copies of the command and the shield in `directory`, which the account can reach. A build
    /// directory it often cannot.
    ///
    /// # Errors
    /// The operating system's.
    pub fn install(&self, directory: &Path) -> Result<Self, Failure> {
        std::fs::create_dir(directory)?;
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory, open.clone())?;
        let put = |from: &Path, name: &str| -> Result<PathBuf, Failure> {
            let path = directory.join(name);
            std::fs::copy(from, &path)?;
            std::fs::set_permissions(&path, open.clone())?;
            Ok(path)
        };
        Ok(Self {
            bin: self.bin.clone(),
            strongroom: put(&self.strongroom, "strongroom")?,
            shield: put(&self.shield, LIBRARY)?,
        })
    }

    /// "15.18 (Debian 15.18-0+deb12u1)".
    ///
    /// # Errors
    /// The server program does not say.
    pub fn version(&self) -> Result<String, Failure> {
        let output = Command::new(self.bin.join("postgres"))
            .arg("--version")
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.trim().strip_prefix("postgres (PostgreSQL) ");
        Ok(version
            .ok_or("postgres --version said something else")?
            .to_owned())
    }
}

fn present(path: PathBuf, variable: &str) -> Result<PathBuf, Failure> {
    path.canonicalize()
        .map_err(|error| format!("{}: {error}; set {variable}", path.display()).into())
}

fn serves(bin: &Path) -> bool {
    bin.join("postgres").exists() && bin.join("initdb").exists()
}

fn configured() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let bin = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    serves(&bin).then_some(bin)
}

fn newest() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let bin = path.join("bin");
        serves(&bin).then_some((version, bin))
    });
    versions
        .max_by_key(|(version, _)| *version)
        .map(|(_, bin)| bin)
}

/// What a program that failed said, in a line.
#[must_use]
pub fn failed(what: &str, output: &Output) -> Failure {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = lines.len().saturating_sub(6);
    let shown = lines.get(last..).unwrap_or_default().join("; ");
    format!("{what}: {}: {shown}", output.status).into()
}
