//! Goal: whoever owns what root is pointed at may exchange it at any time, and gets nothing of
//! root's by that.
//!
//! Method: PostgreSQL's user exchanges configurations, links and whole directories, some thousand
//! times each second, while root runs every command that reads or writes there, for some seconds
//! (`STRONGROOM_ROOT_RACE_S` sets for how long). Afterwards nothing of root's has changed, to the
//! nanosecond, and nothing that was planted ran as root.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use instance::root::{can_be_tried, library, owner, planted, ran_as, root_place, state};
use instance::{Place, give_unchanged, run};
use tempfile::TempDir;

/// The commands, a line each. `DATA`, `RING`, `SEALED` and `KEY` are the other user's; `UNITS` is
/// root's.
const COMMANDS: &str = "\
    verify DATA
    pg controldata -D DATA
    pg run -D DATA -- true
    pg rotate -D DATA --slots-only
    pg rotate -D DATA --slots-only --key-file KEY --new-key-file KEY
    pg status -D DATA
    pg service -D DATA --install --unit-dir UNITS
    inspect DATA
    --keyring RING keyring status
    --keyring RING key list
    --keyring RING key rotate app
    --keyring RING verify UNITS/sealed.db --key-id app
    sqlite shell SEALED --key-file KEY -c vacuum
    sqlite shell SEALED --key-id app --keyring RING -c vacuum";

fn exchanger(place: &Place, victim: &Path) -> Child {
    place.write("exchange.py", include_str!("instance/exchange.py"));
    let mut command = place.program("python3");
    command
        .arg(place.path("exchange.py"))
        .arg(place.path(".").canonicalize().unwrap())
        .arg(victim)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// An instance, a keyring, a database and a cluster of PostgreSQL's user.
fn theirs() -> Place {
    let place = Place::with_instance();
    let provider = format!("command:{}", planted(&place));
    let commands: &[&[&str]] = &[
        &[
            "--keyring",
            "ring",
            "keyring",
            "init",
            "--provider",
            &provider,
        ],
        &["--keyring", "ring", "key", "create", "app"],
        &[
            "sqlite",
            "shell",
            "sealed.db",
            "--key-file",
            "key",
            "-c",
            "create table t(a)",
        ],
    ];
    for command in commands {
        place.strongroom(command).succeeded();
    }
    for path in ["etc", "etc/15", "etc/15/main"] {
        fs::create_dir(place.path(path)).unwrap();
        give_unchanged(&place.path(path));
    }
    let line = format!("data_directory = '{}'\n", place.path("data").display());
    place.write("etc/15/main/postgresql.conf", &line);
    drop(ran_as(&place));
    place
}

/// What is root's, at which links lead: files with names that are looked for, and something like an
/// instance.
fn roots(place: &Place) -> TempDir {
    let victim = root_place();
    let at = |name: &str| victim.path().join(name);
    for name in ["file", "strongroom.conf", "environment"] {
        fs::copy("/etc/hostname", at(name)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::create_dir_all(at("instance/main")).unwrap();
    fs::create_dir(at("main")).unwrap();
    fs::copy(place.path("data/PG_VERSION"), at("instance/PG_VERSION")).unwrap();
    victim
}

#[test]
fn exchanging_everything_meanwhile_gets_nothing_of_roots() {
    if !can_be_tried() {
        return;
    }
    let named = std::env::var("STRONGROOM_ROOT_RACE_S").ok();
    let seconds = named.and_then(|text| text.parse().ok()).unwrap_or(12);
    let place = theirs();
    let victim = roots(&place);
    let units = root_place();
    fs::copy(place.path("sealed.db"), units.path().join("sealed.db")).unwrap();
    let before = state(victim.path());
    let mut text = COMMANDS.to_owned();
    for (name, path) in [
        ("DATA", "data"),
        ("RING", "ring"),
        ("SEALED", "sealed.db"),
        ("KEY", "key"),
    ] {
        text = text.replace(name, place.path(path).to_str().unwrap());
    }
    text = text.replace("UNITS", units.path().to_str().unwrap());

    let mut racer = exchanger(&place, victim.path());
    let begun = Instant::now();
    let mut runs = 0_u32;
    while begun.elapsed() < Duration::from_secs(seconds) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let mut command = place.as_is(&words);
            command
                .current_dir("/")
                .env("PG_CLUSTER_CONF_ROOT", place.path("etc"))
                .env("STRONGROOM_SHIELD_LIB", library(&place))
                .env("STRONGROOM_KEY_COMMAND_TIMEOUT", "5");
            drop(run(&mut command));
            runs += 1;
        }
    }
    fs::File::create(place.path("stop")).unwrap();
    assert!(racer.wait().unwrap().success());
    let exchanges = fs::read_to_string(place.path("count")).unwrap();
    eprintln!("{runs} commands, {exchanges} exchanges");
    let after = state(victim.path());
    assert_eq!(after, before, "something of root's was touched");
    let users = ran_as(&place);
    assert!(!users.is_empty(), "nothing that was planted ran at all");
    assert!(users.iter().all(|user| *user == owner(&place)), "{users:?}");
    assert!(exchanges.parse::<u64>().unwrap() > 1000, "{exchanges}");
}
