//! What schedulers and monitoring systems get of backups: progress in JSON, metrics for Prometheus,
//! units for systemd.
//!
//! Method: the real binary; what it writes is parsed as its readers parse it.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, noise};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

fn place() -> Place {
    let place = Place::new();
    place.with_key();
    fs::create_dir_all(place.path("tree")).unwrap();
    place.write("tree/file", vec![3; 2_000_000]);
    place
}

const CREATE: [&str; 7] = [
    "backup", "create", "tree", "--to", "medium", "--key-id", "app",
];

/// The lines that are JSON objects.
fn lines(err: &str) -> Vec<Value> {
    let objects = err.lines().filter(|line| line.starts_with('{'));
    objects
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn progress_is_told_to_who_asks() {
    let place = place();
    place.plain_database("db", 1000);
    let silent = place.run(&CREATE);
    assert!(lines(&silent.err).is_empty(), "{}", silent.err);
    silent.succeeded();
    let json = ["--progress", "json"];
    let run = place.run(&[&CREATE[..], &json, &["--json"]].concat());
    let last = lines(&run.err).pop().unwrap();
    assert_eq!(last["operation"], "create");
    assert_eq!(last["bytes_done"], 2_000_000);
    // What a directory holds is not known before it is read.
    assert_eq!(last["bytes_total"], Value::Null);
    assert_eq!(last["seconds_left"], Value::Null);
    assert!(last["bytes_per_s"].as_u64().unwrap() > 0);
    assert_eq!(run.json()["position"], 2);
    let database = [
        "backup", "create", "db", "--to", "medium", "--key-id", "app",
    ];
    let size = fs::metadata(place.path("db")).unwrap().len();
    let run = place.run(&[&database[..], &json].concat());
    let last = lines(&run.err).pop().unwrap();
    assert_eq!(last["bytes_done"], last["bytes_total"]);
    assert_eq!(last["bytes_total"], size);
    assert_eq!(last["seconds_left"], 0);
    run.succeeded();
    let usual = ["--set", "1", "--key-id", "app", "--progress", "json"];
    for verb in [
        &["verify", "medium"][..],
        &["restore", "medium", "--to", "out"],
    ] {
        let run = place.run(&[&["backup"][..], verb, &usual].concat());
        let last = lines(&run.err).pop().unwrap();
        assert_eq!(last["operation"], verb[0]);
        assert_eq!(last["bytes_total"], 2_000_000);
        run.succeeded();
    }
}

/// Runs a command on a terminal; what appeared there.
fn on_terminal(place: &Place, arguments: &[&str]) -> String {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let size = Winsize {
        ws_row: 50,
        ws_col: 200,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&near, size).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = File::options().read(true).write(true).open(name).unwrap();
    let mut command = place.command();
    command
        .args(arguments)
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(Stdio::from(far));
    let mut child = command.spawn().unwrap();
    // Holds the far side too: the terminal would never end.
    drop(command);
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    let mut screen = File::from(near);
    // A terminal ends with an error when its far side is closed.
    while let Ok(length @ 1..) = screen.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..length]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&seen).into_owned()
}

/// Runs a backup on a terminal until it has been long work, which begins with a second: `grow`
/// makes its source larger, by how often it has grown. What appeared there.
fn long_work(place: &Place, arguments: &[&str], grow: impl Fn(usize)) -> String {
    for times in 1..=8 {
        grow(times);
        let begun = Instant::now();
        let seen = on_terminal(place, arguments);
        if begun.elapsed() > Duration::from_secs(3) {
            return seen;
        }
    }
    unreachable!("no work is long on this machine")
}

#[test]
fn on_a_terminal_long_work_has_a_bar() {
    let place = place();
    // Slow on purpose.
    let slow = ["--compression", "zstd:19", "--threads", "1"];
    let directory = [&CREATE[..], &slow].concat();
    let grow = |times| drop(place.write("tree/noise", noise(6_000_000_usize << times, 3)));
    let seen = long_work(&place, &directory, grow);
    for part in ["backing up ", " MiB of an unknown total  ", "iB/s"] {
        assert!(seen.contains(part), "{part:?} not in {seen:?}");
    }
    let database = [
        "backup", "create", "db", "--to", "medium", "--key-id", "app",
    ];
    let grow = |times| {
        drop(fs::remove_file(place.path("db")));
        drop(place.plain_database("db", 150_000_u32 << times));
    };
    let seen = long_work(&place, &[&database[..], &slow].concat(), grow);
    for part in ["backing up ", " MiB of ", "iB/s", "s left"] {
        assert!(seen.contains(part), "{part:?} not in {seen:?}");
    }
    let quiet = ["--progress", "none"];
    let seen = on_terminal(&place, &[&directory[..], &quiet].concat());
    assert!(!seen.contains("backing up"), "{seen:?}");
}

/// Metric and labels, and the value.
fn metrics(place: &Place) -> BTreeMap<String, u64> {
    let text = String::from_utf8(place.read("metrics/strongroom.prom")).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn metrics_tell_how_the_last_runs_went() {
    let place = place();
    fs::create_dir(place.path("metrics")).unwrap();
    let told = ["--metrics", "metrics/strongroom.prom"];
    place.run(&[&CREATE[..], &told].concat()).succeeded();
    let medium = place.path("medium").display().to_string();
    let name = |metric: &str, operation: &str| {
        format!("strongroom_backup_{metric}{{operation=\"{operation}\",medium=\"{medium}\"}}")
    };
    let first = metrics(&place);
    let of = |all: &BTreeMap<String, u64>, metric: &str, operation: &str| {
        all.get(&name(metric, operation)).copied()
    };
    assert_eq!(of(&first, "runs_total", "create"), Some(1));
    assert_eq!(of(&first, "failures_total", "create"), Some(0));
    assert_eq!(of(&first, "size_bytes", "create"), Some(2_000_000));
    let stored = of(&first, "stored_bytes", "create").unwrap();
    assert!(stored > 0 && stored < 2_000_000);
    let succeeded = of(&first, "last_success_timestamp_seconds", "create");
    assert!(succeeded.unwrap() > 1_600_000_000);
    let about = fs::metadata(place.path("metrics/strongroom.prom")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o644);

    let verify = [
        "backup", "verify", "medium", "--key-id", "app", "--set", "9",
    ];
    place
        .run(&[&verify[..], &told].concat())
        .failed(2, "SR-7107");
    let plain = [
        "backup",
        "create",
        "tree",
        "--to",
        "medium",
        "--no-encryption",
    ];
    place
        .run(&[&plain[..], &told].concat())
        .failed(6, "SR-7104");
    place.write("00000002.history", "1\t0/300");
    let push = [
        "backup",
        "wal-push",
        "00000002.history",
        "--to",
        "medium",
        "--key-id",
        "app",
    ];
    let run = place.run(&[&push[..], &told].concat());
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let then = metrics(&place);
    assert_eq!(of(&then, "runs_total", "create"), Some(2));
    assert_eq!(of(&then, "failures_total", "create"), Some(1));
    assert_eq!(of(&then, "last_run_success", "create"), Some(0));
    assert_eq!(of(&then, "last_run_exit_code", "create"), Some(6));
    assert_eq!(
        of(&then, "last_success_timestamp_seconds", "create"),
        succeeded
    );
    assert_eq!(of(&then, "size_bytes", "create"), Some(2_000_000));
    assert_eq!(of(&then, "last_run_exit_code", "verify"), Some(2));
    assert_eq!(of(&then, "last_success_timestamp_seconds", "verify"), None);
    assert_eq!(of(&then, "size_bytes", "wal-push"), Some(7));
    assert_eq!(fs::read_dir(place.path("metrics")).unwrap().count(), 1);

    // What cannot be written is a warning.
    let run = place.run(&[&CREATE[..], &["--metrics", "no/such/place.prom"]].concat());
    assert!(run.err.contains("warning[SR-7153]"), "{}", run.err);
    run.succeeded();
}

#[test]
fn systemd_accepts_the_units() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let place = Place::new();
    let names = ["backup", "renew"]
        .iter()
        .flat_map(|unit| ["service", "timer"].map(|kind| format!("strongroom-{unit}.{kind}")));
    for name in names.clone() {
        let text = fs::read_to_string(units.join(&name)).unwrap();
        // The command need not be installed where this runs; all else is as it is.
        let text = text.replace("/usr/bin/strongroom", env!("CARGO_BIN_EXE_strongroom"));
        place.write(&name, text);
    }
    let verify = Command::new("systemd-analyze")
        .arg("verify")
        .arg("--man=no")
        .args(names.map(|name| place.path(&name)))
        .output();
    let Ok(output) = verify else {
        println!("not tested: there is no systemd-analyze");
        return;
    };
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert!(!err.contains("strongroom-"), "{err}");
}

/// What they need not do, systemd keeps them from. The two units that map volumes keep the
/// privilege for device-mapper; that they still work is tested by starting a whole Debian
/// (`testing/vm/tests/debian.rs`).
#[test]
fn systemd_confines_the_services() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let names = ["backup", "keyserver", "renew", "report", "swap@", "volumes"];
    for name in names {
        let unit = units.join(format!("strongroom-{name}.service"));
        let judged = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--threshold=30", "--no-pager"])
            .arg(&unit)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&judged.stdout);
        assert!(judged.status.success(), "{said}");
        assert!(said.contains("Overall exposure level"), "{said}");
        let text = fs::read_to_string(&unit).unwrap();
        let ends = text.contains("Type=notify") || text.contains("TimeoutStartSec=");
        assert!(ends, "{name} may run without limit");
    }
}

/// The options of the units are the command's.
#[test]
fn the_units_commands_are_parsed() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let text = fs::read_to_string(units.join("strongroom-backup.service")).unwrap();
    let text = text.replace("\\\n", " ");
    let place = Place::new();
    let mut commands = 0;
    for line in text.lines() {
        let Some(command) = line.strip_prefix("ExecStart=/usr/bin/strongroom ") else {
            continue;
        };
        let arguments: Vec<String> = words(command);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let run = place.run(&arguments);
        // It fails for want of a keyring, a server, a medium; not for its arguments.
        assert!(!run.err.contains("SR-1001"), "{command}: {}", run.err);
        commands += 1;
    }
    assert_eq!(commands, 3);
}

/// Words and quoted words.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    parts
        .flat_map(|(at, part)| {
            if at % 2 == 1 {
                vec![part.to_owned()]
            } else {
                part.split_whitespace().map(str::to_owned).collect()
            }
        })
        .collect()
}
