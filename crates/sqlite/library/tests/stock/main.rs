//! Goal: the loadable extension does on the distribution's SQLite what the library does on the
//! bundled one, and no statement, connection or crash there leaves plaintext behind or serves rows
//! that were never committed together.
//!
//! Method: the Python scripts beside this file, run with the distribution's Python
//! (`/usr/bin/python3`, which has the distribution's SQLite) and `/usr/bin/sqlite3`, each in a
//! directory of its own. A host that cannot load extensions fails the tests with the package to
//! install.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod memory;

use std::path::Path;
use std::process::{Command, Output};

use strongroom_testing_support::product::sqlite_extension;

const PYTHON: &str = "/usr/bin/python3";
const SHELL: &str = "/usr/bin/sqlite3";

/// The host has what the scripts need.
fn check_host() {
    for (path, package) in [(PYTHON, "python3"), (SHELL, "sqlite3")] {
        assert!(
            Path::new(path).exists(),
            "{path} is needed: apt install {package}"
        );
    }
    let code = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let output = Command::new(PYTHON).args(["-c", code]).output().unwrap();
    assert!(
        output.status.success(),
        "{PYTHON} cannot load SQLite extensions: apt install python3 libpython3-stdlib libsqlite3-0\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn run(script: &str) {
    check_host();
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(PYTHON);
    let output = python(&mut command, script, scratch.path())
        .output()
        .unwrap();
    checked(script, &output);
}

/// Appends a script to a command that ends with the Python interpreter, and sets the working
/// directory and the environment that every script needs.
fn python<'a>(command: &'a mut Command, script: &str, scratch: &Path) -> &'a mut Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stock");
    command
        .arg(scripts.join(script))
        .current_dir(&scripts)
        .env("STRONGROOM_EXT", sqlite_extension())
        .env("STRONGROOM_SCRATCH", scratch)
        .env("STRONGROOM_LOG", "off")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("STRONGROOM_KEYRING")
        .env_remove("STRONGROOM_ATTACH_KEY_COMMAND")
}

/// The script has run tests, and none of them failed.
fn checked(script: &str, output: &Output) {
    let (out, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{}\n{out}\n{errors}",
        output.status
    );
    assert!(out.contains("ok test_"), "{script} ran no test:\n{out}");
}

#[test]
fn keys() {
    run("keys.py");
}

#[test]
fn statements() {
    run("statements.py");
}

#[test]
fn processes() {
    run("processes.py");
}

#[test]
fn super_journal() {
    run("super_journal.py");
}

#[test]
fn plain_by_mistake() {
    run("plain_by_mistake.py");
}

#[test]
fn plain_copies() {
    run("plain_copies.py");
}

#[test]
fn past_the_vfs() {
    run("past_the_vfs.py");
}

#[test]
fn integrity() {
    run("integrity.py");
}

#[test]
fn no_memory() {
    run("no_memory.py");
}

#[test]
fn shared_cache() {
    run("shared_cache.py");
}

#[test]
fn lower_vfs() {
    run("lower_vfs.py");
}

#[test]
fn without_the_vfs() {
    run("without_the_vfs.py");
}
