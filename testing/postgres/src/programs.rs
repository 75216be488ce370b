//! Which PostgreSQL is tested.
//!
//! `STRONGROOM_TEST_PG_BIN` names the directory of the binaries; else the newest below
//! /usr/lib/postgresql is taken. `STRONGROOM_TEST_PG_NEWER` names one of a newer major version, for
//! the core of the tests on it; else 18 is put together from packages (see `packages`). Collections
//! of server binaries without `psql` are fine: clients come from the first.

use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testing_support::programs;

use crate::packages;
use crate::room::Room;

/// The binaries of one version.
#[derive(Clone, Debug)]
pub struct Programs {
    bin: PathBuf,
    major: u32,
}

impl Programs {
    /// The version under test.
    ///
    /// # Panics
    /// When there is none: these tests are about nothing else.
    #[must_use]
    pub fn installed() -> Self {
        Self::at(programs::installed())
    }

    /// A newer version with its programs and modules: what the environment names, else 18 from
    /// packages. `None`, and a line on standard error, when it cannot be had.
    #[must_use]
    pub fn newer(room: &Room) -> Option<Self> {
        match std::env::var_os("STRONGROOM_TEST_PG_NEWER") {
            Some(bin) => Some(Self::at(PathBuf::from(bin))),
            None => packages::complete(room),
        }
    }

    /// The binaries of this directory.
    ///
    /// # Panics
    /// When there is no server in it.
    #[must_use]
    pub fn at(bin: PathBuf) -> Self {
        let said = Command::new(bin.join("postgres")).arg("--version").output();
        let said = said.expect("postgres --version");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let major = said
            .split(|c: char| !c.is_ascii_digit())
            .find_map(|digits| digits.parse().ok())
            .expect("a version number");
        Self { bin, major }
    }

    /// The major version.
    #[must_use]
    pub const fn major(&self) -> u32 {
        self.major
    }

    /// Where the binaries are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.bin
    }

    /// Whether this collection has the program.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.bin.join(name).exists()
    }

    /// The program; a client that is missing here is taken from the installed version.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        programs::program(&self.bin, name)
    }

    /// Whether the extension or loadable module is there.
    #[must_use]
    pub fn has_module(&self, name: &str) -> bool {
        let told = Command::new(self.bin.join("pg_config"))
            .arg("--pkglibdir")
            .output();
        let directory = told.map_or_else(
            |_| self.bin.join("../lib/postgresql"),
            |out| PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()),
        );
        directory.join(format!("{name}.so")).exists()
    }
}
