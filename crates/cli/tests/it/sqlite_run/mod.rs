//! `strongroom sqlite run`: real programs that know nothing of the sealing VFS work on sealed
//! databases, and write no plain ones; and what other products have encrypted is told apart from
//! plain databases.
//!
//! Method: the real command and the preloaded library, with the distribution's sqlite3 shell and
//! Python, and Datasette, sqlite-utils, litecli and apsw from `PyPI` in an environment of their own
//! (`make deps-test`; `STRONGROOM_SQLITE_TOOLS` names another). What they leave is searched for
//! plaintext and opened without the key.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;
use crate::common::on_terminal;

mod children;
mod foreign;
mod keys;
mod refusals;
mod tools;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use common::{Place, Run};
use strongroom_testing_support::product;

const SHELL: &str = "/usr/bin/sqlite3";
const PYTHON: &str = "/usr/bin/python3";
const NEEDLE: &str = "CANARY-TEXT";

/// The command, with the libraries that `run` needs beside it: built now unless `STRONGROOM_EXT`
/// says that they are.
fn libraries() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        if std::env::var_os("STRONGROOM_EXT").is_some() {
            return;
        }
        let packages = ["strongroom-sqlite-extension", "strongroom-sqlite-run"];
        product::built(&packages, "libstrongroom_sqlite_run.so");
    });
}

/// The environment with the tools from `PyPI`.
fn tools() -> PathBuf {
    let usual = || product::target().join("sqlite-tools");
    let found = std::env::var_os("STRONGROOM_SQLITE_TOOLS").map_or_else(usual, PathBuf::from);
    let python = found.join("bin/python");
    assert!(python.exists(), "{}: make deps-test", python.display());
    found
}

fn tool(name: &str) -> String {
    tools().join("bin").join(name).display().to_string()
}

/// A place with a keyring, its key `app`, and the libraries.
fn place() -> Place {
    libraries();
    let place = Place::new();
    place.with_key();
    place
}

fn run(place: &Place, options: &[&str], program: &[&str]) -> Run {
    place.run(&[&["sqlite", "run"], options, &["--"], program].concat())
}

const APP: [&str; 2] = ["--key-id", "app"];

/// The file is a sealed database, and nothing of the rows can be read in it.
#[track_caller]
fn is_sealed(place: &Place, name: &str) {
    let bytes = place.read(name);
    assert!(bytes.len() > 4096, "{name}: {} bytes", bytes.len());
    assert!(strongroom_format::header::is_sealed(&bytes), "{name}");
    no_plaintext(place, name);
}

#[track_caller]
fn no_plaintext(place: &Place, name: &str) {
    let bytes = place.read(name);
    let found = bytes
        .windows(NEEDLE.len())
        .any(|window| window == NEEDLE.as_bytes());
    assert!(!found, "plaintext in {name}");
}

/// The shell of another process, without the sealing VFS, cannot read it.
#[track_caller]
fn is_locked(place: &Place, name: &str) {
    let output = Command::new(SHELL)
        .arg(place.path(name))
        .arg("select count(*) from sqlite_schema")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("not a database"), "{said}");
}
