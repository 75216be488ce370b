//! Goal: clusters of Debian's postgresql-common work with sealed instances: their configuration is
//! in a directory below `/etc/postgresql`, and the data directory has no `postgresql.conf`.
//!
//! Method: Debian's own programs, run as an administrator runs them, on clusters whose
//! configuration, data, log and socket lie below the test's own directory (`PG_CLUSTER_CONF_ROOT`).
//! Servers listen on a socket only.

use crate::instance;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use instance::{Place, Run, bindir, run};

/// The server's ports, which name its sockets in the place.
const PRIMARY: &str = "5501";
const SECOND: &str = "5502";

/// The version of Debian's package whose programs are tested.
fn version() -> String {
    let bindir = bindir();
    let version = bindir.parent().and_then(std::path::Path::file_name);
    let version = version.and_then(std::ffi::OsStr::to_str);
    version.expect("/usr/lib/postgresql/VERSION/bin").to_owned()
}

/// One of Debian's programs, as root when root runs the test, with what a login has in its
/// environment.
fn debian(place: &Place, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .env("PG_CLUSTER_CONF_ROOT", place.path("etc"))
        .stdin(Stdio::null());
    command
}

/// `pg_ctlcluster VERSION NAME ACTION`.
fn control(place: &Place, name: &str, action: &str) -> Run {
    run(debian(place, "pg_ctlcluster").args([&version(), name, action]))
}

/// `pg_createcluster VERSION NAME` for the data directory of that name.
fn create(place: &Place, name: &str, port: &str) -> Command {
    let text = |name: &str| place.path(name).display().to_string();
    let mut command = debian(place, "pg_createcluster");
    command
        .args([&version(), name, "-d", &text(name), "-s", &text("")])
        .args(["-l", &text(&format!("{name}.log")), "-p", port])
        // A blank: an empty value would mean the usual one.
        .args(["--start-conf=manual", "-o", "listen_addresses= "]);
    command
}

/// Where the configuration of a cluster lies.
fn etc(place: &Place, name: &str) -> PathBuf {
    place.path("etc").join(version()).join(name)
}

/// `strongroom pg ...` as whoever runs the test, which in earnest is root.
fn as_administrator(place: &Place, arguments: &[&str]) -> Run {
    let mut command = place.as_is(arguments);
    run(command.env("PG_CLUSTER_CONF_ROOT", place.path("etc")))
}

/// `strongroom` as PostgreSQL's user.
fn as_owner(place: &Place, arguments: &[&str]) -> Run {
    let mut command = place.command(arguments);
    run(command.env("PG_CLUSTER_CONF_ROOT", place.path("etc")))
}

/// Names the library in the cluster's environment, as the guide does.
fn install(place: &Place, name: &str) {
    let data = place.path(name).display().to_string();
    let units = place.path("units").display().to_string();
    let words = [
        "pg",
        "service",
        "-D",
        &data,
        "--install",
        "--unit-dir",
        &units,
    ];
    as_administrator(place, &words).succeeded();
}

#[track_caller]
fn sql(place: &Place, port: &str, statement: &str) -> String {
    let socket = place.path("").display().to_string();
    let words = ["-X", "-h", &socket, "-p", port, "-Atqc", statement];
    let answer = place.plain("psql", &[&words[..], &["postgres"]].concat());
    answer.succeeded().trim().to_owned()
}

/// What `pg_lsclusters` says of a cluster.
fn listed(place: &Place, name: &str) -> String {
    let out = run(&mut debian(place, "pg_lsclusters")).succeeded();
    let line = out.lines().find(|line| line.contains(&format!(" {name} ")));
    line.unwrap_or_default().to_owned()
}

/// A sealed cluster `main` with a table, that runs.
fn running() -> Place {
    let place = Place::new();
    let words = ["pg", "initdb", "-D", "main", "--key-file", "key", "--"];
    let words = [&words[..], &["--data-checksums", "--no-sync"]].concat();
    place.strongroom(&words).succeeded();
    run(&mut create(&place, "main", PRIMARY)).succeeded();
    install(&place, "main");
    control(&place, "main", "start").succeeded();
    sql(
        &place,
        PRIMARY,
        "create table t as select generate_series(1, 1000) n",
    );
    place
}

#[test]
fn a_sealed_directory_becomes_a_cluster() {
    let place = running();
    assert!(!place.path("main/postgresql.conf").exists());
    assert!(listed(&place, "main").contains(" online "));
    control(&place, "main", "reload").succeeded();
    control(&place, "main", "restart").succeeded();
    assert_eq!(sql(&place, PRIMARY, "select count(*) from t"), "1000");
    control(&place, "main", "stop").succeeded();
    assert!(listed(&place, "main").contains(" down "));

    // The command finds the configuration where pg_lsclusters does.
    as_owner(&place, &["pg", "start", "-D", "main", "-l", "main.log"]).succeeded();
    assert_eq!(sql(&place, PRIMARY, "select count(*) from t"), "1000");
    let hba = sql(&place, PRIMARY, "show hba_file");
    assert_eq!(
        hba,
        etc(&place, "main")
            .join("pg_hba.conf")
            .display()
            .to_string()
    );
    assert!(listed(&place, "main").contains(" online "));
    as_owner(&place, &["pg", "restart", "-D", "main", "-l", "main.log"]).succeeded();
    assert_eq!(sql(&place, PRIMARY, "select count(*) from t"), "1000");
    let status = as_owner(&place, &["pg", "status", "-D", "main"]).succeeded();
    assert!(status.contains("running, process"), "{status}");
    // A server that pg_ctlcluster has started is restarted with all its options.
    control(&place, "main", "restart").succeeded();
    let words = ["pg", "restart", "-D", "main", "-l", "main.log"];
    as_owner(&place, &words).succeeded();
    let option = "select setting from pg_settings where name = 'config_file'";
    let file = etc(&place, "main").join("postgresql.conf");
    assert_eq!(sql(&place, PRIMARY, option), file.display().to_string());
    // Options that replace those of the last start do not lose the configuration.
    let words = [&words[..], &["--", "-o", "-c work_mem=7MB"]].concat();
    as_owner(&place, &words).succeeded();
    assert_eq!(sql(&place, PRIMARY, "show work_mem"), "7MB");
    as_owner(&place, &["pg", "stop", "-D", "main"]).succeeded();
}

#[test]
fn where_the_configuration_lies_is_found_or_asked_for() {
    let place = running();
    control(&place, "main", "stop").succeeded();
    fs::remove_file(place.path("main/postmaster.opts")).unwrap();
    // What the server writes elsewhere is known before its first start.
    let name = format!("etc/{}/main/postgresql.conf", version());
    let file = place.path(&name);
    let mut text = fs::read_to_string(&file).unwrap();
    text.push_str("logging_collector = on\nlog_directory = '/var/log/elsewhere'\n");
    place.write(&name, &text);
    let plaintext = ["pg", "status", "-D", "main", "--plaintext"];
    let told = as_owner(&place, &plaintext).succeeded();
    assert!(
        told.contains("log_directory = '/var/log/elsewhere'"),
        "{told}"
    );
    place.write(&name, &text.replace("logging_collector", "# "));

    // Two clusters have the directory: which one is not for the command to choose.
    let copy = etc(&place, "copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(&file, copy.join("postgresql.conf")).unwrap();
    let start = ["pg", "start", "-D", "main", "-l", "main.log"];
    let told = as_owner(&place, &start).ended_with(2, "SR-7033");
    let version = version();
    let both = format!("clusters {version}/copy and {version}/main have this directory");
    assert!(told.contains(&both), "{told}");
    let named = file.display().to_string();
    let words = [&start[..], &["--config-file", &named]].concat();
    as_owner(&place, &words).succeeded();
    assert_eq!(sql(&place, PRIMARY, "select count(*) from t"), "1000");
    as_owner(&place, &["pg", "stop", "-D", "main"]).succeeded();
    // A server goes by data_directory: it would run on another instance.
    place.write("other.conf", "data_directory = '/nowhere'\n");
    let words = [&start[..], &["--config-file", "other.conf"]].concat();
    let told = as_owner(&place, &words).ended_with(2, "SR-7033");
    assert!(told.contains("other.conf is of /nowhere"), "{told}");

    fs::remove_dir_all(place.path("etc")).unwrap();
    let told = as_owner(&place, &start).ended_with(2, "SR-7033");
    assert!(told.contains("no cluster in"), "{told}");
    let words = [&start[..], &["--config-file", "nowhere"]].concat();
    as_owner(&place, &words).ended_with(2, "SR-1006");
}

#[test]
fn pg_createcluster_makes_a_sealed_cluster_under_the_library() {
    let place = Place::new();
    let words = ["pg", "initdb", "-D", "new", "--header-only"];
    let words = [&words[..], &["--key-file", "key"]].concat();
    place.strongroom(&words).succeeded();
    let header = fs::read(place.path("new/strongroom.header")).unwrap();
    // Without the library initdb sees the header, and writes nothing.
    let refused = run(&mut create(&place, "new", PRIMARY));
    assert_ne!(refused.code, 0, "{}{}", refused.out, refused.err);
    assert!(!place.path("new/PG_VERSION").exists());
    assert_eq!(
        fs::read(place.path("new/strongroom.header")).unwrap(),
        header
    );

    let library = place.product().join("libstrongroom_shield.so");
    run(create(&place, "new", PRIMARY).env("LD_PRELOAD", library)).succeeded();
    assert!(etc(&place, "new").join("pg_hba.conf").exists());
    install(&place, "new");
    control(&place, "new", "start").succeeded();
    sql(
        &place,
        PRIMARY,
        "create table t as select 'a canary that nobody may read' v; checkpoint",
    );
    control(&place, "new", "stop").succeeded();
    assert!(!place.holds("new", b"a canary that nobody may read"));
    // Debian's configuration as ever: only the server's user comes in without a password.
    let hba = fs::read_to_string(etc(&place, "new").join("pg_hba.conf")).unwrap();
    assert!(
        hba.contains("scram-sha-256") && !hba.contains("trust\n"),
        "{hba}"
    );
}

#[test]
fn a_replica_is_made_and_promoted() {
    let place = running();
    run(&mut create(&place, "replica", SECOND)).succeeded();
    // As in the guide: what Debian's command has put there is thrown away.
    fs::remove_dir_all(place.path("replica")).unwrap();
    let words = ["pg", "initdb", "-D", "replica", "--header-only"];
    let words = [&words[..], &["--key-file", "other"]].concat();
    place.strongroom(&words).succeeded();
    let source = format!("host={} port={PRIMARY}", place.path("").display());
    let words = ["pg", "run", "-D", "replica", "--", "pg_basebackup"];
    let words = [
        &words[..],
        &["-D", "replica", "-R", "-c", "fast", "-d", &source],
    ]
    .concat();
    place.strongroom(&words).succeeded();
    assert!(!place.path("replica/postgresql.conf").exists());
    install(&place, "replica");
    control(&place, "replica", "start").succeeded();
    assert!(listed(&place, "replica").contains(" online,recovery "));
    assert_eq!(sql(&place, SECOND, "select count(*) from t"), "1000");

    // Debian's command reads the control file without the library.
    let refused = control(&place, "replica", "promote");
    assert!(refused.err.contains("corrupt"), "{}", refused.err);
    let data = place.path("replica").display().to_string();
    let promote = ["pg", "promote", "-D", &data];
    let wrong = [&promote[..], &["--key-file", "key"]].concat();
    as_owner(&place, &wrong).ended_with(3, "SR-2002");
    assert_eq!(sql(&place, SECOND, "select pg_is_in_recovery()"), "t");
    // Root acts as the directory's owner.
    as_administrator(&place, &promote).succeeded();
    assert_eq!(sql(&place, SECOND, "select pg_is_in_recovery()"), "f");
    assert!(!listed(&place, "replica").contains("recovery"));
    sql(&place, SECOND, "insert into t values (0)");

    // Once more, by Debian's command under the shield.
    control(&place, "replica", "stop").succeeded();
    as_owner(&place, &promote).ended_with(5, "SR-7027");
    place.write("replica/standby.signal", "");
    control(&place, "replica", "start").succeeded();
    let version = version();
    let words = ["pg", "run", "-D", &data, "--", "pg_ctlcluster"];
    let words = [&words[..], &[&version, "replica", "promote"]].concat();
    as_administrator(&place, &words).succeeded();
    assert_eq!(sql(&place, SECOND, "select pg_is_in_recovery()"), "f");
    control(&place, "replica", "stop").succeeded();
    control(&place, "main", "stop").succeeded();
}

#[test]
fn a_restored_cluster_is_registered() {
    let place = running();
    let source = format!("host={} port={PRIMARY}", place.path("").display());
    place.write("medium.key", instance::OTHER);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(place.path("medium.key"), mode).unwrap();
    let key = ["--key-file", "medium.key"];
    let words = ["backup", "create", &source, "--to", "medium"];
    place.strongroom(&[&words[..], &key].concat()).succeeded();
    control(&place, "main", "stop").succeeded();
    for (name, more) in [
        ("clear", &[][..]),
        ("sealed", &["--sealed", "--instance-key-file", "other"]),
    ] {
        let words = ["backup", "restore", "medium", "--to", name];
        place
            .strongroom(&[&words[..], &key, more].concat())
            .succeeded();
        assert!(!place.path(name).join("postgresql.conf").exists());
        let before = place.everything(name);
        // Debian's program moves three files, which are not in the set: they lay elsewhere.
        let refused = run(&mut create(&place, name, SECOND));
        assert_ne!(refused.code, 0, "{}", refused.out);
        assert!(before == place.everything(name), "{name} was changed");
        drop(fs::remove_dir_all(etc(&place, name)));
        for file in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
            let text = fs::read_to_string(etc(&place, "main").join(file)).unwrap();
            let kept = text
                .lines()
                .filter(|line| !line.starts_with("data_directory"));
            let text: Vec<&str> = kept.collect();
            place.write(&format!("{name}/{file}"), &(text.join("\n") + "\n"));
        }
        run(&mut create(&place, name, SECOND)).succeeded();
        if !more.is_empty() {
            install(&place, name);
        }
        control(&place, name, "start").succeeded();
        assert_eq!(
            sql(&place, SECOND, "select count(*) from t"),
            "1000",
            "{name}"
        );
        let data = sql(&place, SECOND, "show data_directory");
        assert_eq!(data, place.path(name).display().to_string());
        control(&place, name, "stop").succeeded();
    }
}
