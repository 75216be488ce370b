//! What is installed beside the command: systemd accepts the units, a shell accepts the scripts.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"))
        .canonicalize()
        .unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

#[test]
fn systemd_accepts_the_units() {
    let room = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(packaging().join("systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with('#'), "{name} says what it is for");
        // The command need not be installed where this is tested.
        let text = text.replace("/usr/bin/strongroom", "/bin/true");
        let copy = room.path().join(name.replace('@', "@x."));
        #[expect(clippy::disallowed_methods, reason = "a test's file")]
        fs::write(&copy, text).unwrap();
        let said = run(Command::new("systemd-analyze")
            .arg("verify")
            .arg("--man=no")
            .arg(&copy));
        let about: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("strongroom"))
            .collect();
        assert!(about.is_empty(), "{about:?}");
    }
}

/// What a line of a unit says.
fn unit(name: &str, key: &str) -> String {
    let text = fs::read_to_string(packaging().join("systemd").join(name)).unwrap();
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let (_, value) = lines.find(|(there, _)| *there == key).unwrap();
    value.to_owned()
}

/// With fifteen minutes, systemd killed the command before it had tried the third volume, whose
/// passphrase somebody would have typed.
#[test]
fn systemd_does_not_end_the_unlocking_before_its_own_times_are_over() {
    let unit = |key| unit("strongroom-volumes.service", key);
    assert_eq!(unit("TimeoutStartSec"), "infinity");
    assert!(unit("ExecStart").contains("volume unlock --at-boot"));
}

/// Two instances of the unit would want one mapping name otherwise, and the second area would stay
/// without encryption.
#[test]
fn each_swap_area_has_a_mapping_of_its_own() {
    let started = unit("strongroom-swap@.service", "ExecStart");
    assert!(
        started.ends_with("volume swap --name-by-device %f"),
        "{started}"
    );
}

#[test]
fn shells_accept_the_scripts() {
    let scripts = [
        "initramfs-tools/hooks/strongroom",
        "initramfs-tools/scripts/local-top/strongroom",
        "initramfs-tools/conf.d/strongroom",
    ];
    let mut command = Command::new("shellcheck");
    command.args(scripts.map(|script| packaging().join(script)));
    command.arg(packaging().join("cryptsetup-token/link"));
    for script in ["/guest/init.sh", "/guest/harness.sh"] {
        command.arg(format!("{}{script}", env!("CARGO_MANIFEST_DIR")));
    }
    run(&mut command);
    for script in &scripts[..2] {
        let said = run(Command::new("sh")
            .arg(packaging().join(script))
            .arg("prereqs"));
        assert!(said.trim().is_empty() || said.trim() == "udev", "{said}");
    }
}

#[test]
#[ignore = "builds the plugin with all that it is made of: make test-volume"]
fn the_plugin_exports_what_cryptsetup_looks_for_and_nothing_of_the_openssl_inside_it() {
    let said = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(strongroom_testing_vm::place::plugin()));
    let mut names: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    names.sort_unstable();
    let version = "CRYPTSETUP_TOKEN_1.0";
    let wanted = [
        "buffer_free",
        "dump",
        "open",
        "open_pin",
        "validate",
        "version",
    ]
    .map(|name| format!("cryptsetup_token_{name}@@{version}"));
    let expected: Vec<&str> = std::iter::once(version)
        .chain(wanted.iter().map(String::as_str))
        .collect();
    assert_eq!(names, expected);
}
