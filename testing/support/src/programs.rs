//! Where PostgreSQL's programs are: in the directory that a variable names, else in that of the
//! newest server below /usr/lib/postgresql.

use std::fs;
use std::path::{Path, PathBuf};

/// The programs under test: `STRONGROOM_TEST_PG_BIN`, or the newest.
pub fn installed() -> PathBuf {
    named("STRONGROOM_TEST_PG_BIN")
}

/// The programs that the command finds, too: `PG_BINDIR`, or the newest.
pub fn bindir() -> PathBuf {
    named("PG_BINDIR")
}

/// The programs that a variable names, or the newest.
fn named(variable: &str) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named
        .or_else(newest)
        .expect("PostgreSQL's server is needed: apt install postgresql")
}

/// The programs of the newest server that Debian's packages brought.
pub fn newest() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let found = versions.flatten().filter_map(|entry| {
        let major: u32 = entry.file_name().to_str()?.parse().ok()?;
        let bin = entry.path().join("bin");
        bin.join("postgres").exists().then_some((major, bin))
    });
    found.max().map(|(_, bin)| bin)
}

/// One of the programs in a directory. A client that is not there is the newest server's: packages
/// of servers alone lack the clients, and those of another version do for most things.
pub fn program(bin: &Path, name: &str) -> PathBuf {
    let here = bin.join(name);
    if here.exists() {
        return here;
    }
    newest().map_or(here, |newest| newest.join(name))
}
