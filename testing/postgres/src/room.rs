//! A test's own directory, and how programs run in it: as the user `postgres` when the test runs as
//! root, because PostgreSQL refuses root.
//!
//! Must not: put a key on a command line.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use strongroom_testing_support::account::{self, give};
use strongroom_testing_support::key::raw_key;
use strongroom_testing_support::product::{self, SHIELD};
use strongroom_testing_support::random::Random;

/// A directory that is removed with it.
#[derive(Debug)]
pub struct Room {
    directory: tempfile::TempDir,
    library: PathBuf,
    command: PathBuf,
    /// The copies that the link `bin` leads to.
    product: Arc<tempfile::TempDir>,
}

impl Room {
    /// A new, empty room.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix(&format!("sr-{name}-"))
            .tempdir();
        let directory = directory.expect("a temporary directory");
        let product = product::side_by_side(product::command());
        let room = Self {
            library: product.path().join(SHIELD),
            command: product.path().join("strongroom"),
            product,
            directory,
        };
        give(room.path(), 0o755);
        symlink(room.product.path(), room.at("bin")).expect("a link in a new directory");
        room
    }

    /// The room itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The file `name` in it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The preload library.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Takes a library without optimisation, in which a call that is passed on leaves a frame on
    /// the stack, and without what only a debugger needs: strace would read it for each process.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn trace_library(&mut self) {
        let plain = product::shield_for_development();
        self.library = self.at(SHIELD);
        fs::copy(plain, &self.library).expect("the library can be copied");
        give(&self.library, 0o755);
        // Without strip(1) it is only slower.
        drop(Command::new("strip").arg(&self.library).status());
    }

    /// A new directory of PostgreSQL's user.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir(&path).expect("a new directory");
        give(&path, 0o700);
        path
    }

    /// A new file of PostgreSQL's user.
    ///
    /// # Panics
    /// When it cannot be written.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's file, which nothing depends on after a crash"
    )]
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).expect("a file can be written");
        give(path, 0o600);
    }

    /// A file with a new raw key.
    #[must_use]
    pub fn key(&self, name: &str, random: &mut Random) -> PathBuf {
        let path = self.at(&format!("{name}.key"));
        self.put(&path, raw_key(random).as_bytes());
        path
    }

    /// `strongroom pg`, as PostgreSQL's user.
    #[must_use]
    pub fn strongroom(&self) -> Command {
        let mut command = self.command(&self.command);
        command
            .env("STRONGROOM_SHIELD_LIB", &self.library)
            .arg("pg");
        command
    }

    /// `strongroom backup`, as PostgreSQL's user, with a keyring in the room.
    #[must_use]
    pub fn backup(&self) -> Command {
        let mut command = self.command(&self.command);
        command.env("STRONGROOM_KEYRING", self.at("keyring"));
        // Names PostgreSQL's programs to the command where a test does not.
        command.env_remove("PG_BINDIR").arg("backup");
        command
    }

    /// A program that runs in the room as PostgreSQL's user, with nothing of the test's environment
    /// that concerns PostgreSQL or the shield.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = account::command(program);
        command.current_dir(self.path());
        command.env("HOME", self.path()).env("PGUSER", "postgres");
        command
            .env("PGOPTIONS", "")
            .env("LC_ALL", "C")
            .env_remove("PGDATA");
        command
    }
}
