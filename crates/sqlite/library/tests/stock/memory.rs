//! Goal: the extension uses no memory that it has given back, writes behind the end of none and
//! loses none, whatever order a program closes its connections in.
//!
//! Method: the scripts of this directory and `memory.c` under valgrind, and `memory.c` compiled
//! with the address sanitizer, whose allocator the extension then uses too. The extension itself is
//! not compiled with it, so that the sanitizer sees leaks, memory that is freed twice, and calls of
//! the C library, but not each access. No report is suppressed. Values that were never written are
//! not asked for: docs/internals/findings.md, "Open".
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use strongroom_testing_support::product::sqlite_extension;

use crate::{PYTHON, check_host, checked, python};

/// What the usual run does not run.
const OTHER_SCRIPTS: [&str; 5] = [
    "keys.py",
    "plain_by_mistake.py",
    "processes.py",
    "statements.py",
    "super_journal.py",
];
/// Of the same, those that do their work in processes that they start.
const WITH_CHILDREN: [&str; 2] = ["lower_vfs.py", "without_the_vfs.py"];

const VALGRIND: [&str; 8] = [
    "valgrind",
    "--quiet",
    "--undef-value-errors=no",
    "--error-exitcode=99",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
    "--num-callers=30",
];

/// Runs a script under valgrind. Python takes its memory from the C library, so that valgrind sees
/// each piece. Processes that the script starts are watched only when `options` ask for it.
fn watched(script: &str, options: &[&str]) {
    check_host();
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(VALGRIND[0]);
    command.args(&VALGRIND[1..]).args(options).arg(PYTHON);
    python(&mut command, script, scratch.path()).env("PYTHONMALLOC", "malloc");
    checked(script, &command.output().unwrap());
}

/// Compiles `memory.c` into `directory` and gives the path of the program.
fn compiled(directory: &Path, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stock/memory.c");
    let program = directory.join("memory");
    let output = Command::new("cc")
        .args(["-g", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg("-o")
        .args([&program, &source])
        .args(["-lsqlite3", "-lpthread"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    program
}

/// Runs the compiled program: under `tool` unless that is empty, and with the mistake on purpose
/// that `mistake` names, if any.
fn program(tool: &[&str], program: &Path, mistake: Option<&str>) -> Output {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = match tool.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    command
        .arg(sqlite_extension())
        .arg(scratch.path())
        .args(mistake)
        .env("STRONGROOM_LOG", "off")
        .env_remove("STRONGROOM_KEYRING")
        .output()
        .unwrap()
}

/// Compiles `memory.c` with `options` and runs it under `tool`. The tool has to report nothing, and
/// then each of the two mistakes that the program makes when it is told to.
fn program_and_its_mistakes(tool: &[&str], options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let built = compiled(directory.path(), options);
    let output = program(tool, &built, None);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(out.contains("memory: every result is right"), "{output:?}");
    for (mistake, words) in [
        ("leak", ["definitely lost", "detected memory leaks"]),
        ("use-after-free", ["Invalid read", "heap-use-after-free"]),
    ] {
        let output = program(tool, &built, Some(mistake));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{mistake} passed: {output:?}");
        assert!(words.iter().any(|word| errors.contains(word)), "{errors}");
    }
}

#[test]
fn a_program_with_many_connections_under_valgrind() {
    program_and_its_mistakes(&VALGRIND, &[]);
}

#[test]
fn a_program_with_many_connections_under_the_address_sanitizer() {
    program_and_its_mistakes(&[], &["-fsanitize=address"]);
}

#[test]
fn shared_caches_under_valgrind() {
    watched("shared_cache.py", &[]);
}

#[test]
fn shutdown_and_loading_again_under_valgrind() {
    watched("past_the_vfs.py", &[]);
}

#[test]
#[ignore = "takes minutes: make test-sqlite-memory"]
fn every_other_script_under_valgrind() {
    for script in OTHER_SCRIPTS {
        watched(script, &[]);
    }
    for script in WITH_CHILDREN {
        watched(script, &["--trace-children=yes"]);
    }
}
