//! Goal: a sealed instance lives as a plain one does: made, started, asked, stopped, started
//! unattended.
//!
//! Method: the real command, the real library and a real PostgreSQL, started by the test.

use crate::instance;

use std::fs;
use std::process::Command;

use instance::{KEY, OTHER, Place, is_root, run};

#[test]
fn from_initdb_to_an_unattended_start() {
    let place = Place::new();
    let command = format!("echo encryptionkey={KEY}");
    let made = place.strongroom(&[
        "pg",
        "initdb",
        "-D",
        "data",
        "--key-command",
        &command,
        "--",
        "-k",
        "--no-sync",
    ]);
    assert!(
        made.err.contains("warning[SR-7019]"),
        "losing the key is spoken of: {}",
        made.err
    );
    let last = made.succeeded().lines().last().unwrap().to_owned();
    assert!(
        last.starts_with("sealed instance data: aes-256-xts, raw key, fingerprint "),
        "{last}"
    );
    let kept = fs::read_to_string(place.path("data/strongroom.conf")).unwrap();
    assert!(
        kept.contains(&format!("\nkey_command = {command}\n")),
        "{kept}"
    );

    place.start(&[]).succeeded();
    place.sql("create table t as select i, 'canary row ' || i as v from generate_series(1, 1000) i; checkpoint");
    let status = place
        .strongroom(&["pg", "status", "-D", "data"])
        .succeeded();
    let pid = place.pid("data").unwrap();
    assert!(
        status.contains(&format!("running, process {pid}\n")),
        "{status}"
    );
    place
        .strongroom(&["pg", "start", "-D", "data"])
        .ended_with(6, "SR-7008");
    place
        .strongroom(&["pg", "restart", "-D", "data", "-l", "log"])
        .succeeded();
    assert_ne!(place.pid("data"), Some(pid));
    assert_eq!(place.sql("select count(*) from t"), "1000");
    place.stop();
    // As pg_ctl, which fails too, but in words of its own.
    let stop = ["pg", "stop", "-D", "data"];
    let told = place.strongroom(&stop).ended_with(5, "SR-7027");
    assert!(told.contains("no server is running"), "{told}");
    place.write("data/postmaster.pid", "999999999\n");
    let told = place.strongroom(&stop).ended_with(5, "SR-7027");
    assert!(told.contains("postmaster.pid is left over"), "{told}");
    if is_root() {
        // After a crash and a reboot the number may be another user's process: PostgreSQL starts,
        // and so do we.
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        place.write("data/postmaster.pid", &format!("{}\n", other.id()));
        place.strongroom(&stop).ended_with(5, "SR-7027");
        place.start(&[]).succeeded();
        place.stop();
        other.kill().unwrap();
        other.wait().unwrap();
    } else {
        fs::remove_file(place.path("data/postmaster.pid")).unwrap();
    }
    assert!(!place.holds("data", b"canary row"));
    runs_unattended(&place);
}

/// With nothing in the environment but the library.
fn runs_unattended(place: &Place) {
    place.start_unattended().succeeded();
    assert_eq!(
        place.sql("select count(*) from t where v = 'canary row ' || i"),
        "1000"
    );
    // What the server hands to its children tells nothing of the shield or of keys.
    let told = place.sql(
        "create table e (l text); copy e from program 'env'; select string_agg(l, ' ') from e",
    );
    assert!(
        !told.contains("LD_PRELOAD") && !told.contains("STRONGROOM_PG_KEY"),
        "{told}"
    );
    place.plain("pg_ctl", &["stop", "-D", "data"]).succeeded();
    let checked = [
        "pg",
        "run",
        "-D",
        "data",
        "--",
        "pg_checksums",
        "--check",
        "-D",
        "data",
    ];
    assert!(
        place
            .strongroom(&checked)
            .succeeded()
            .contains("Bad checksums:  0")
    );
}

#[test]
fn every_source_of_a_key_starts_the_server() {
    let place = Place::new();
    let make = |options: &[&str], variables: &[(&str, &str)]| {
        drop(fs::remove_dir_all(place.path("data")));
        let first = ["pg", "initdb", "-D", "data", "--cipher", "aes-128-xts"];
        let all = [&first, options, &["--", "--no-sync"]].concat();
        let mut command = place.command(&all);
        run(command.envs(variables.iter().copied())).succeeded()
    };
    let starts = |options: &[&str], variables: &[(&str, &str)]| {
        let server = place.options();
        let first = ["pg", "start", "-D", "data", "-l", "log"];
        let last = ["--", "-o", &server];
        let mut command = place.command(&[&first, options, &last].concat());
        run(command.envs(variables.iter().copied())).succeeded();
        assert_eq!(place.sql("select 1"), "1");
        place.stop();
    };
    assert!(make(&[], &[("PGENCRYPTIONKEY", KEY)]).contains("aes-128-xts"));
    starts(&[], &[("PGENCRYPTIONKEY", KEY)]);
    starts(&["--key-file", "key"], &[]);
    place.start_unattended();
    assert!(
        place
            .log()
            .ends_with("set the variable for this process only\n"),
        "{}",
        place.log()
    );

    make(&["--key-env", "MINE"], &[("MINE", "a passphrase")]);
    starts(&[], &[("MINE", "a passphrase")]);
    starts(
        &["--key-env", "YOURS"],
        &[("YOURS", "a passphrase"), ("PGENCRYPTIONKEY", OTHER)],
    );

    place.write("root", KEY);
    let keyring = ["--keyring", "keys"];
    let provider = format!("file:{}", place.path("root").display());
    place
        .strongroom(&[&keyring[..], &["keyring", "init", "--provider", &provider]].concat())
        .succeeded();
    place
        .strongroom(&[&keyring[..], &["key", "create", "app"]].concat())
        .succeeded();
    let made = make(&["--keyring", "keys", "--key-id", "app"], &[]);
    assert!(made.contains("key app, version 1"), "{made}");
    starts(&[], &[]);
    starts(&["--keyring", "keys", "--key-id", "app"], &[]);
}

#[test]
fn controldata_and_status_say_what_seals_the_instance() {
    let place = Place::with_instance();
    let shown = place
        .strongroom(&["pg", "controldata", "-D", "data"])
        .succeeded();
    let plain = place.preloaded("pg_controldata", &["data"]).succeeded();
    assert!(
        shown.starts_with(&plain),
        "pg_controldata's own words come first"
    );
    let added: Vec<&str> = shown[plain.len()..].lines().collect();
    assert_eq!(added.len(), 3, "{shown}");
    let value = |line: &str| line[38..].to_owned();
    assert!(added[0].starts_with("Data encryption fingerprint:"));
    assert_eq!(
        added[1],
        "Data encryption cipher:               aes-256-xts"
    );
    assert_eq!(added[2], "Data encryption key:                  raw key");

    let status = place.strongroom(&["pg", "status", "-D", "data", "--json", "--plaintext"]);
    let status: serde_json::Value = serde_json::from_str(&status.succeeded()).unwrap();
    assert_eq!(status["header"]["fingerprint"], value(added[0]));
    assert_eq!(status["sealed"], true);
    assert_eq!(status["pid"], serde_json::Value::Null);
    assert_eq!(
        status["key_source"],
        format!("file:{}", place.path("key").display())
    );
    let mut listed: Vec<&str> = status["plaintext"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|class| class["files"].as_array().unwrap())
        .map(|name| name.as_str().unwrap())
        .collect();
    listed.sort_unstable();
    let expected = [
        "PG_VERSION",
        "base/1/PG_VERSION",
        "base/4/PG_VERSION",
        "base/5/PG_VERSION",
        "pg_hba.conf",
        "pg_ident.conf",
        "postgresql.auto.conf",
        "postgresql.conf",
        "strongroom.conf",
        "strongroom.header",
    ];
    assert_eq!(listed, expected);
    let text = place
        .strongroom(&["pg", "status", "-D", "data", "--plaintext"])
        .succeeded();
    for name in expected {
        assert!(text.contains(name), "{name} not in {text}");
    }
    let inspected = place.strongroom(&["inspect", "data"]).succeeded();
    assert!(
        inspected.contains("header of a sealed PostgreSQL instance"),
        "{inspected}"
    );
}

/// What a newer release of PostgreSQL may write: a file of a name that the table of files does not
/// have.
#[test]
fn a_file_of_a_kind_that_nobody_knows_is_sealed_and_reported() {
    let place = Place::with_instance();
    let script = "printf 'canary of a newer release' > plain; cp plain data/pg_twophase/newer.kind; \
                  cat data/pg_twophase/newer.kind";
    let program = ["pg", "run", "-D", "data", "--", "/bin/sh", "-c", script];
    let read_back = place.strongroom(&program).succeeded();
    assert_eq!(read_back, "canary of a newer release");
    assert!(!place.holds("data", b"canary of a newer"));

    let status = |more: &[&str]| {
        let arguments = [&["pg", "status", "-D", "data", "--plaintext"], more].concat();
        place.strongroom(&arguments).succeeded()
    };
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!(
        json["unknown"],
        serde_json::json!(["pg_twophase/newer.kind"])
    );
    let text = status(&[]);
    assert!(text.contains("does not know") && text.contains("pg_twophase/newer.kind"));
}

#[test]
fn a_program_under_the_shield_is_itself() {
    let place = Place::with_instance();
    let shell = |script: &str| {
        place.strongroom(&["pg", "run", "-D", "data", "--", "/bin/sh", "-c", script])
    };
    let ended = shell("echo \"$0\"; echo to stderr >&2; exit 7");
    assert_eq!(
        (ended.code, ended.out.as_str(), ended.err.as_str()),
        (7, "/bin/sh\n", "to stderr\n")
    );
    // What it starts sees the instance unsealed; what nobody shields does not.
    let sealed = fs::read(place.path("data/global/pg_control")).unwrap();
    shell("cp data/global/pg_control copy").succeeded();
    let copy = fs::read(place.path("copy")).unwrap();
    assert_eq!(copy.len(), sealed.len());
    assert_ne!(copy[..512], sealed[..512]);
    let version = u32::from_le_bytes(copy[8..12].try_into().unwrap());
    assert!(
        (1300..2000).contains(&version),
        "pg_control_version {version}"
    );
    // Two instances, each with a key of its own: one given, one from the other's configuration.
    let other = [
        "pg",
        "initdb",
        "-D",
        "second",
        "--key-file",
        "other",
        "--",
        "--no-sync",
    ];
    place.strongroom(&other).succeeded();
    let both = [
        "pg",
        "run",
        "-D",
        "data",
        "-D",
        "second",
        "--key-file",
        "key",
        "--",
        "/bin/sh",
        "-c",
        "pg_controldata data >one && pg_controldata second >two && (grep -L WARNING one two || true)",
    ];
    let mut command = place.command(&both);
    command.env(
        "PATH",
        format!(
            "{}:/usr/bin:/bin:/usr/sbin:/sbin",
            instance::bindir().display()
        ),
    );
    assert_eq!(run(&mut command).succeeded(), "one\ntwo\n");
    place
        .strongroom(&["pg", "run", "-D", "data", "--", "nonexistent"])
        .ended_with(2, "SR-1006");
}

#[test]
fn a_base_backup_is_sealed_under_a_key_of_its_own() {
    let place = Place::with_instance();
    place.start(&[]).succeeded();
    place
        .sql("create table t as select i, 'canary row ' || i as v from generate_series(1, 1000) i");
    let header = [
        "pg",
        "initdb",
        "-D",
        "copy",
        "--header-only",
        "--key-file",
        "other",
    ];
    place.strongroom(&header).succeeded();
    let socket = place.path("").display().to_string();
    let port = place.sql("show port");
    place
        .strongroom(&[
            "pg",
            "run",
            "-D",
            "copy",
            "--",
            "pg_basebackup",
            "-D",
            "copy",
            "-h",
            &socket,
            "-p",
            &port,
            "-c",
            "fast",
            "--no-sync",
        ])
        .succeeded();
    place.stop();
    assert!(!place.holds("copy", b"canary row"));
    let fingerprint = |data: &str| {
        let shown = place
            .strongroom(&["pg", "controldata", "-D", data])
            .succeeded();
        shown
            .lines()
            .find(|line| line.starts_with("Data encryption fingerprint"))
            .unwrap()
            .to_owned()
    };
    assert_ne!(fingerprint("data"), fingerprint("copy"));
    fs::remove_dir_all(place.path("data")).unwrap();
    let moved = Command::new("mv")
        .arg(place.path("copy"))
        .arg(place.path("data"))
        .status();
    assert!(moved.unwrap().success());
    place.start(&[]).succeeded();
    assert_eq!(
        place.sql("select count(*) from t where v = 'canary row ' || i"),
        "1000"
    );
    place.stop();
}

#[test]
fn an_instance_can_take_over_another_ones_data_key() {
    let place = Place::with_instance();
    let options = [
        "pg",
        "initdb",
        "-D",
        "next",
        "--copy-key-from",
        "data",
        "--",
        "--no-sync",
    ];
    place.strongroom(&options).succeeded();
    let header = |data: &str| fs::read(place.path(data).join("strongroom.header")).unwrap();
    assert_eq!(header("data"), header("next"));
    let wrong = [
        "pg",
        "initdb",
        "-D",
        "third",
        "--copy-key-from",
        "data",
        "--key-file",
        "other",
    ];
    place.strongroom(&wrong).ended_with(3, "SR-2002");
    assert!(!place.path("third").exists());
}

#[test]
fn root_is_refused_as_postgresql_refuses_it() {
    if !is_root() {
        return;
    }
    let place = Place::with_instance();
    let before = place.everything("data");
    let data = place.path("data").display().to_string();
    let key = place.path("key").display().to_string();
    let new = place.path("new").display().to_string();
    for arguments in [
        &["pg", "initdb", "-D", &new, "--key-file", &key][..],
        &["pg", "start", "-D", &data],
        &["pg", "stop", "-D", &data],
        &["pg", "restart", "-D", &data],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongroom"));
        run(command.args(arguments)).ended_with(2, "SR-7015");
    }
    assert!(!place.path("new").exists());
    assert_eq!(before, place.everything("data"));
    let mut status = Command::new(env!("CARGO_BIN_EXE_strongroom"));
    run(status.args(["pg", "status", "-D", &data])).succeeded();
}

/// The version of Debian's package whose programs are tested.
fn installed_version() -> String {
    let bindir = instance::bindir();
    let version = bindir.parent().and_then(std::path::Path::file_name);
    let version = version.and_then(std::ffi::OsStr::to_str);
    version.expect("/usr/lib/postgresql/VERSION/bin").to_owned()
}

#[test]
fn a_cluster_of_debian_starts_with_the_lines_that_service_prints() {
    let place = Place::new();
    let (data, socket) = (place.path("data"), place.path("").display().to_string());
    let root = place.path("etc");
    let pg = |program: &str, arguments: &[&str]| {
        let mut command = place.program(program);
        run(command.args(arguments).env("PG_CLUSTER_CONF_ROOT", &root))
    };
    let version = &installed_version();
    let log = place.path("log").display().to_string();
    pg(
        "pg_createcluster",
        &[
            version,
            "sealed",
            "-d",
            data.to_str().unwrap(),
            "-s",
            &socket,
            "-l",
            &log,
            "--start-conf=manual",
            "--",
            "--no-sync",
            "--auth-local=trust",
        ],
    )
    .succeeded();
    let unsealed = ["pg", "service", "-D", "data"];
    place.strongroom(&unsealed).ended_with(6, "SR-7004");
    place
        .strongroom(&["pg", "encrypt", "-D", "data", "--key-file", "key"])
        .succeeded();
    let mut service = place.command(&unsealed);
    let printed = run(service.env("PG_CLUSTER_CONF_ROOT", &root)).succeeded();
    let line = printed
        .lines()
        .find(|line| line.starts_with("LD_PRELOAD = '"))
        .unwrap();
    // 0 would let cores go to a program (core(5)).
    assert!(printed.contains("\nLimitCORE=1\n"), "{printed}");
    assert!(
        printed.contains(&format!(
            "postgresql@{version}-sealed.service.d/strongroom.conf"
        )),
        "{printed}"
    );

    let started = pg("pg_ctlcluster", &[version, "sealed", "start"]);
    assert_ne!(started.code, 0, "without the shield it must not start");
    let environment = root.join(version).join("sealed/environment");
    let text = format!("{}\n{line}\n", fs::read_to_string(&environment).unwrap());
    place.write(
        environment
            .strip_prefix(place.path(""))
            .unwrap()
            .to_str()
            .unwrap(),
        &text,
    );
    pg("pg_ctlcluster", &[version, "sealed", "start"]).succeeded();
    pg("pg_ctlcluster", &[version, "sealed", "restart"]).succeeded();
    let status = place
        .strongroom(&["pg", "status", "-D", "data"])
        .succeeded();
    assert!(status.contains("running, process"), "{status}");
    pg("pg_ctlcluster", &[version, "sealed", "stop"]).succeeded();
    // The cluster's configuration leads to the data as well, as to `postgres` without the library.
    let configuration = root.join(version).join("sealed").display().to_string();
    let second = place.path("second.log").display().to_string();
    let start = ["-D", &configuration, "-w", "-s", "-l", &second, "start"];
    place.preloaded("pg_ctl", &start).succeeded();
    let stop = ["-D", &configuration, "-w", "-s", "stop"];
    place.plain("pg_ctl", &stop).succeeded();
}

#[test]
fn verify_finds_what_is_authenticated_and_says_what_is_not() {
    let place = Place::with_instance();
    place.start(&[]).succeeded();
    place.sql("select pg_create_physical_replication_slot('s', true)");
    place.stop();
    let text = place.strongroom(&["verify", "data"]).succeeded();
    assert!(text.contains("not checked: relations"), "{text}");
    let of_status = text.lines().find(|line| line.contains("status file"));
    let of_status = of_status.unwrap();
    // Their blocks have no tags.
    assert!(!of_status.contains("authentic"), "{of_status}");
    place
        .strongroom(&["verify", "data", "--key-file", "other"])
        .ended_with(3, "SR-2002");
    place
        .strongroom(&["verify", "data/strongroom.header"])
        .ended_with(4, "SR-3007");
    let state = place.path("data/pg_replslot/s/state");
    let mut bytes = fs::read(&state).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    place.overwrite("data/pg_replslot/s/state", &bytes);
    let run = place.strongroom(&["verify", "data", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(result["ok"], false);
    assert_eq!(result["bad"][0]["file"], "pg_replslot/s/state");
    assert_eq!(result["checked"][0]["kind"], "container");
    run.ended_with(4, "SR-7001");
}
