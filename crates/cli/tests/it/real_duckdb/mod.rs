//! DuckDB itself, in the versions that `make deps-test` installs, and databases that it wrote.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, which is what it is for"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of this module"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{Place, Run};

/// The versions that are there.
pub(crate) const VERSIONS: [&str; 3] = ["1.4.4", "1.5.5", "2.0.0"];
/// The key of most tests. It is valid Base64, and DuckDB takes it so.
pub(crate) const OLD: &str = "asdf";
/// The one that follows it.
pub(crate) const NEW: &str = "bmV3IGtleSBvZiAzMiBieXRlcyBpbiBCYXNlNjQgISE=";

/// The interpreter that has this version of DuckDB.
fn python(version: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_strongroom"));
    let usual = || beside.ancestors().nth(2).unwrap().join("duckdb");
    let all = std::env::var_os("STRONGROOM_DUCKDB").map_or_else(usual, PathBuf::from);
    let python = all.join(version).join("bin/python");
    assert!(python.exists(), "no {}: make deps-test", python.display());
    python
}

fn command(place: &Place, version: &str, arguments: &[&str]) -> Command {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/real_duckdb/driver.py");
    let mut command = Command::new(python(version));
    command
        .arg(driver)
        .args(arguments)
        .current_dir(place.path(""));
    command
}

/// Has DuckDB do something; its answer, or why it refused.
pub(crate) fn ask(place: &Place, version: &str, arguments: &[&str]) -> Result<Value, String> {
    let answer = answered(command(place, version, arguments));
    match answer.get("refused") {
        Some(why) => Err(why.as_str().unwrap().to_owned()),
        None => Ok(answer.get("done").unwrap_or(&answer).clone()),
    }
}

/// The last line that DuckDB's process wrote.
fn answered(mut command: Command) -> Value {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8_lossy(&output.stdout);
    let line = out.lines().last().unwrap_or_else(|| panic!("{err}"));
    serde_json::from_str(line).unwrap()
}

/// DuckDB in a process of its own that has said that it is ready; it ends when its input does.
pub(crate) fn holding(place: &Place, version: &str, arguments: &[&str]) -> Child {
    use std::io::Read as _;
    let mut child = command(place, version, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 4];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    assert_eq!(&ready, b"true");
    child
}

/// A directory with the two keys in files, and `app.db` as this DuckDB writes it.
pub(crate) fn place(version: &str, options: &str, rows: &str) -> Place {
    let place = Place::new();
    place.write("old", OLD);
    place.write("new", NEW);
    ask(&place, version, &["make", "app.db", OLD, options, rows]).unwrap();
    place
}

/// `strongroom verify app.db` with the key in that file.
pub(crate) fn verify(place: &Place, key: &str) -> Run {
    place.run(&["verify", "app.db", "--key-file", key, "--json"])
}

/// `strongroom duckdb rekey app.db`, from one key to the other.
pub(crate) fn rekey(place: &Place, from: &str, to: &str) -> Run {
    let keys = ["--key-file", from, "--new-key-file", to];
    place.run(&[&["duckdb", "rekey", "app.db"], &keys[..]].concat())
}

/// The run failed with this code.
#[track_caller]
pub(crate) fn failed(run: &Run, code: &str) {
    assert!(
        run.err.contains(code),
        "not {code}: {} {}",
        run.code,
        run.err
    );
    assert_ne!(run.code, 0);
}
