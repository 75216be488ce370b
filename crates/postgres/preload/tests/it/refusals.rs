//! Goal: fail closed. A server whose key is missing or wrong, whose header is damaged, or that was
//! told to seal what is not sealed, does not start, says why in one line, and changes nothing.
//!
//! Method: every such start on a real instance, the data directory compared before and after.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Output;

use strongroom_format::header::Cipher;
use support::{Place, Server, binary, check, library, program};

/// Runs `postgres -D` under the shield with more variables; it must end by itself.
fn start(data: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = program("env");
    command.arg(format!("LD_PRELOAD={}", library().display()));
    for (name, value) in variables {
        command.arg(format!("{name}={value}"));
    }
    command.arg(binary("postgres")).arg("-D").arg(data);
    command.args(["-c", "listen_addresses=", "-c", "unix_socket_directories="]);
    command.current_dir("/").output().unwrap()
}

fn state(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = support::files(data)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    all.sort();
    all
}

#[track_caller]
fn refused(data: &Path, variables: &[(&str, &str)], code: &str) {
    let before = state(data);
    let output = start(data, variables);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(code), "{code}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert_eq!(
        state(data),
        before,
        "{code}: a refused start changes nothing"
    );
}

fn write(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::create(path).unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
}

#[test]
fn a_server_without_the_right_key_does_not_start() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes256Xts), "");
    let data = server.data.as_path();
    let wrong = "ab".repeat(32);
    refused(data, &[("PGENCRYPTIONKEY", &wrong)], "SR-2002");
    refused(
        data,
        &[("PGENCRYPTIONKEY", "nonsense nonsense \u{e4}")],
        "SR-20",
    );
    refused(data, &[("STRONGROOM_PG_KEY_FILE", "/nowhere")], "SR-2007");
    refused(data, &[("STRONGROOM_PG_KEY_COMMAND", "exit 3")], "SR-2009");
    refused(
        data,
        &[("STRONGROOM_PG_KEY_COMMAND", "echo garbage")],
        "SR-20",
    );
    let hanging = [
        ("STRONGROOM_PG_KEY_COMMAND", "sleep 60"),
        ("STRONGROOM_KEY_COMMAND_TIMEOUT", "1"),
    ];
    refused(data, &hanging, "SR-2010");
    let conf = data.join("strongroom.conf");
    let kept = std::fs::read(&conf).unwrap();
    write(&conf, b"key_fil = /x\n");
    refused(data, &[], "SR-7");
    std::fs::remove_file(&conf).unwrap();
    refused(data, &[], "SR-2001");
    write(&conf, &kept);
    server.start();
    server.stop();
}

#[test]
fn a_server_with_a_damaged_header_does_not_start() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    let path = server.data.join("strongroom.header");
    let whole = std::fs::read(&path).unwrap();
    write(&path, &whole[..1000]);
    refused(&server.data, &[], "SR-3006");
    write(&path, b"");
    refused(&server.data, &[], "SR-3006");
    let mut changed = whole.clone();
    changed[600] ^= 1;
    write(&path, &changed);
    refused(&server.data, &[], "SR-3003");
    changed = whole.clone();
    changed[0] ^= 1;
    write(&path, &changed);
    refused(&server.data, &[], "SR-3001");
    // Another instance's header under the same key: the control file reads as noise, and PostgreSQL
    // stops there.
    let other = place.sealed("other", Cipher::Aes128Xts);
    write(
        &path,
        &std::fs::read(other.join("strongroom.header")).unwrap(),
    );
    let output = start(&server.data, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("FATAL"), "{said}");
    write(&path, &whole);
    server.start();
    server.stop();
}

#[test]
fn an_unfinished_conversion_and_a_plain_instance_are_refused() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    let state_file = server.data.join("strongroom.convert");
    write(&state_file, b"anything");
    refused(&server.data, &[], "SR-7");
    std::fs::remove_file(&state_file).unwrap();

    let plain = Server::create(&place, place.plain("plain"), "");
    let root = plain.data.display().to_string();
    refused(&plain.data, &[("STRONGROOM_PG_ROOTS", &root)], "SR-7");
    refused(
        &plain.data,
        &[("PGENCRYPTIONKEY", &"5a".repeat(32))],
        "SR-7",
    );
    // Without any of it a plain instance is none of the shield's business.
    let mut ctl = program("env");
    ctl.arg(format!("LD_PRELOAD={}", library().display()));
    ctl.arg(binary("postgres"))
        .args(["-C", "port", "-D"])
        .arg(&plain.data);
    assert_eq!(check(ctl.output().unwrap()).trim(), "5432");
}

#[test]
fn a_version_can_be_asked_for_without_a_key() {
    let mut command = program("env");
    command.arg(format!("LD_PRELOAD={}", library().display()));
    command
        .arg("PGENCRYPTIONKEY=nonsense")
        .arg(binary("postgres"))
        .arg("-V");
    assert!(check(command.output().unwrap()).starts_with("postgres (PostgreSQL)"));
}

#[test]
fn a_version_whose_files_are_not_known_is_refused() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    let path = server.data.join("PG_VERSION");
    let whole = std::fs::read(&path).unwrap();
    for version in ["19\n", "14\n", "9.6\n", "", "fifteen\n"] {
        write(&path, version.as_bytes());
        refused(&server.data, &[], "SR-7011");
    }
    write(&path, &whole);
    server.start();
    server.stop();
}

#[test]
fn settings_that_would_move_data_past_the_shield_are_refused() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    let output = {
        let mut command = program("env");
        command.arg(format!("LD_PRELOAD={}", library().display()));
        command.arg(binary("postgres")).arg("-D").arg(&server.data);
        command.args([
            "-c",
            "listen_addresses=",
            "-c",
            "dynamic_shared_memory_type=mmap",
        ]);
        command
            .args(["-c", "unix_socket_directories="])
            .current_dir("/")
            .output()
            .unwrap()
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("SR-7") && said.contains("dynamic_shared_memory_type"),
        "{said}"
    );
}

/// What a server does after its keys are open, in a program that stops in between.
const LATE: &str = "
import os, sys
here = sys.argv[1]
print(sorted(name for name in os.listdir(here) if 'strongroom' in name))
sys.stdout.flush()
sys.stdin.readline()
try:
    os.open(here + '/postmaster.pid', os.O_CREAT | os.O_EXCL | os.O_RDWR)
except OSError as error:
    print(error.errno)
";

#[test]
fn a_conversion_that_begins_while_a_server_starts_is_seen() {
    use std::io::{BufRead, BufReader, Write};
    let place = Place::new();
    let data = place.sealed("data", Cipher::Aes128Xts);
    write(&data.join("1.strongroom-tmp"), b"left over");
    let mut command = program("env");
    command.arg(format!("LD_PRELOAD={}", library().display()));
    command
        .arg(format!("STRONGROOM_PG_ROOTS={}", data.display()))
        .arg("STRONGROOM_SHIELD_ALL=1");
    command.args(["/usr/bin/python3", "-c", LATE]).arg(&data);
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = command.current_dir("/").spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(
        lines.next().unwrap().unwrap(),
        "[]",
        "own files are not listed"
    );
    write(&data.join("strongroom.convert"), b"begun");
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), libc::EBUSY.to_string());
    drop(input);
    child.wait().unwrap();
    assert!(!data.join("postmaster.pid").exists());
}
