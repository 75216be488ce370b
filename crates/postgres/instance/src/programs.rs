//! Where PostgreSQL's programs and the preload library are.
//!
//! Must not: start a server; believe a directory that holds no `postgres`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_format::code;
use strongroom_format::postgres::MAJORS;
use strongroom_keyring::Error;
use strongroom_launch::library;

/// The library's file name.
pub(crate) const LIBRARY: &str = "libstrongroom_shield.so";
/// The variable that names the library.
const LIBRARY_VARIABLE: &str = "STRONGROOM_SHIELD_LIB";
/// Where packages put PostgreSQL: the parts of the path before and after the major version.
const LAYOUTS: &[(&str, &str)] = &[("/usr/lib/postgresql/", "/bin"), ("/usr/pgsql-", "/bin")];

/// Returns the absolute directory of PostgreSQL's programs, of version `major` if that is known:
/// `named`, or what `PG_BINDIR` names, or the first that fits of `pg_config` and the directories of
/// packages. Runs `postgres --version` in each to find out.
///
/// A directory that was named is used or refused, never replaced by another one.
///
/// # Errors
/// SR-7016 when there is none, or the named one has no `postgres` of that version; SR-5001 without
/// a working directory.
pub fn find(named: Option<PathBuf>, major: Option<u32>) -> Result<PathBuf, Error> {
    let variable = std::env::var_os("PG_BINDIR").filter(|value| !value.is_empty());
    if let Some(named) = named.or_else(|| variable.map(PathBuf::from)) {
        return match version(&named) {
            Some(found) if major.is_none_or(|major| major == found) => {
                std::path::absolute(&named).map_err(|e| Error::on_path(&named, e))
            }
            Some(found) => {
                let shown = named.display();
                let wanted = major.unwrap_or(found);
                let detail = format!("{shown} has version {found}, the instance is of {wanted}");
                Err(Error::new(&code::PG_PROGRAMS, detail))
            }
            None => {
                let detail = format!("no postgres in {}", named.display());
                Err(Error::new(&code::PG_PROGRAMS, detail))
            }
        };
    }
    let fits = |directory: &PathBuf| {
        version(directory).is_some_and(|found| major.is_none_or(|major| major == found))
    };
    pg_config()
        .into_iter()
        .chain(packaged())
        .find(fits)
        .ok_or_else(|| {
            let detail = major.map(|major| format!("version {major}"));
            Error::new(&code::PG_PROGRAMS, detail.unwrap_or_default())
        })
}

/// Runs `pg_config --bindir`, and returns the directory that it prints. `None` when it cannot be
/// run, fails, or prints no absolute path.
fn pg_config() -> Option<PathBuf> {
    let mut command = Command::new("pg_config");
    let text = output(command.arg("--bindir"))?;
    let path = PathBuf::from(text.trim());
    path.is_absolute().then_some(path)
}

/// Iterates over the directories that packages use, of the newest version first, whether or not
/// they exist.
fn packaged() -> impl Iterator<Item = PathBuf> {
    MAJORS.rev().flat_map(|major| {
        let path =
            move |(before, after): &(&str, &str)| PathBuf::from(format!("{before}{major}{after}"));
        LAYOUTS.iter().map(path)
    })
}

/// Runs `postgres --version` with the program in `bindir`, and returns the major version that it
/// prints. `None` when there is no such program, or it fails or prints something else.
fn version(bindir: &Path) -> Option<u32> {
    let mut command = Command::new(bindir.join("postgres"));
    let text = output(command.arg("--version"))?;
    // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1); 18beta1, 18devel.
    let number = text.split_whitespace().nth(2)?;
    let digits = number.find(|c: char| !c.is_ascii_digit());
    number.get(..digits.unwrap_or(number.len()))?.parse().ok()
}

/// Runs a command to its end without the shield, and returns what it wrote to standard output.
/// `None` when it cannot be run, fails, or writes what is not UTF-8.
fn output(command: &mut Command) -> Option<String> {
    let command = command
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = command.output().ok().filter(|out| out.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Returns the path of the preload library: the one that `STRONGROOM_SHIELD_LIB` names, else beside
/// the command, else where packages put it.
///
/// # Errors
/// SR-7017 when there is none.
pub fn library() -> Result<PathBuf, Error> {
    library::find(LIBRARY, LIBRARY_VARIABLE, &code::PG_SHIELD)
}
