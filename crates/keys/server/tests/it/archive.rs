//! Rows of the audit log are moved into archives: no row is lost when the server is killed after
//! any write, the hash chain continues after the archive, and the alarm comes before the store is
//! full. In sealed SQLite and in etcd.
//!
//! Method: real servers in this process. A server that is killed at a certain commit is simulated
//! by a store that fails from that commit on.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::store::{Hooked, REMOVAL_OF_ROWS};
use common::{Installation, Running};
use serde_json::{Value, json};
use strongroom_keyring::{Keyring, Provider};
use strongroom_keys_server::archive;
use strongroom_keys_server::audit::{Chain, Row};
use strongroom_keys_server::config::Config;
use strongroom_keys_server::init::{NewServer, RootSource, init};
use strongroom_keys_server::keys::{Keys, ROOT_KEY_NAME};
use strongroom_keys_server::paths::AUDIT_CUT;
use strongroom_keys_server::service::{Service, archive_row_detail};
use strongroom_keys_server::store::{self, Store};
use strongroom_testing_support::etcd::Cluster;

fn written(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(bytes).unwrap();
}

/// A server's files; its rows are archived when there are more than ten.
fn installation(store: Option<&Cluster>) -> Installation {
    let installation = match store {
        None => Installation::with_provider(),
        Some(cluster) => {
            let directory = tempfile::tempdir().unwrap();
            written(&directory.path().join("root.key"), &[b'5'; 64]);
            let root = directory.path().join("root.key");
            let provider = Provider::parse(&format!("file:{}", root.display())).unwrap();
            init(&NewServer {
                config: directory.path().join("server.toml"),
                store: cluster.store(),
                names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
                address: "127.0.0.1:0".parse().unwrap(),
                page: None,
                root: RootSource::Provider(provider),
            })
            .unwrap();
            Installation {
                directory,
                shares: Vec::new(),
            }
        }
    };
    installation.edit(|text| {
        text.replace(
            "[audit]\nkeep_days = 90\nkeep_rows = 1000000\n",
            "[audit]\narchive = \"archives\"\nkeep_days = 0\nkeep_rows = 10\n",
        )
    });
    assert!(installation.config().audit.archive.is_some());
    installation
}

impl Installation {
    fn config(&self) -> Config {
        Config::read(&self.path("server.toml")).unwrap()
    }

    fn authority(&self) -> Vec<u8> {
        std::fs::read(self.path("authority.pem")).unwrap()
    }

    fn archives(&self) -> Vec<PathBuf> {
        let Ok(found) = std::fs::read_dir(self.path("archives")) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
        paths.sort();
        paths
    }

    /// A service on the store itself, as another server has it.
    fn service(&self) -> (Arc<Hooked>, Service) {
        let config = self.config();
        let keyring = Keyring::open(&self.path("root.keyring")).unwrap();
        let root = keyring.key(ROOT_KEY_NAME, None).unwrap();
        let keys = Keys::derive(&root, config.server_id().unwrap()).unwrap();
        let store = Hooked::new(store::open(&config, &root, false).unwrap());
        let own: Arc<dyn Store> = Arc::<Hooked>::clone(&store);
        let service = Service::open(own, keys, config.rules()).unwrap();
        (store, service)
    }

    /// The archives and the store's rows are one log without a gap; the number of its rows.
    fn is_whole(&self, store: &dyn Store) {
        let (last, _) = store.last_row().unwrap().unwrap();
        let n = match self.archives().as_slice() {
            [] => 0,
            paths => {
                archive::verify_files(paths, &self.authority())
                    .unwrap()
                    .last
            }
        };
        assert!(n < last, "the last row stays in the store");
        let rows = store.rows(n, 1000).unwrap();
        let numbers: Vec<u64> = rows.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, (n + 1..=last).collect::<Vec<_>>());
    }
}

fn notes(service: &Service, count: usize) {
    for n in 0..count {
        service
            .record_event("-", "note", &format!("n{n}"), "")
            .unwrap();
    }
}

/// The log as the interface tells it: where it begins, and the rows, whose chain is checked.
fn told(running: &Running, installation: &Installation) -> (u64, Vec<Row>) {
    let answer = running.admin(installation).get("/v1/audit?limit=5000");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut answer = answer.json();
    let begins = answer["begins"].clone();
    let after = begins["after"].as_u64().unwrap();
    let rows: Vec<Row> = serde_json::from_value(answer["rows"].take()).unwrap();
    let mut chain = Chain::after(after, begins["hash"].as_str().unwrap());
    for row in &rows {
        chain.verify(row).unwrap();
    }
    if after > 0 {
        let named = archive_row_detail(begins["hash"].as_str().unwrap(), after);
        assert!(
            rows.iter()
                .any(|row| row.action == "archive" && row.detail == named)
        );
    }
    (after, rows)
}

fn rows_go_into_archives(cluster: Option<&Cluster>) {
    let installation = installation(cluster);
    let running = Running::open(&installation);
    let service = running.server.service().unwrap();
    notes(&service, 40);
    let before = told(&running, &installation).1;
    assert!(before.len() > 40);
    let mut admin = running.admin(&installation);
    let answer = admin.post("/v1/audit/archive", &json!({}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let archives = answer.json()["archives"].clone();
    let last = u64::try_from(before.len()).unwrap() - 10;
    assert_eq!(archives[0]["first"], 1);
    assert_eq!(archives[0]["last"], last, "{archives}");
    let (after, rows) = told(&running, &installation);
    assert_eq!(after, last);
    assert_eq!(rows.len(), 11, "ten, and the one that says so");
    assert_eq!(
        (rows[10].action.as_str(), rows[10].actor.as_str()),
        ("archive", "admin")
    );
    // What went out is what was there, byte for byte.
    let paths = installation.archives();
    assert_eq!(paths.len(), 1);
    let text = std::fs::read_to_string(&paths[0]).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let expected: Vec<String> = before
        .iter()
        .take(lines.len())
        .map(|row| serde_json::to_string(row).unwrap())
        .collect();
    assert_eq!(lines, expected);
    let mode = std::fs::metadata(&paths[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // One row is too many now, which is not worth an archive until an administrator says so.
    assert_eq!(
        service.archive_when_due(&installation.config()).unwrap(),
        []
    );
    notes(&service, 12);
    let made = service.archive_when_due(&installation.config()).unwrap();
    assert_eq!((made.len(), made[0].first), (1, last + 1));
    assert_eq!(told(&running, &installation).0, made[0].last);
    // Nobody else than administrators.
    let node = running.node(&installation, "n");
    let denied = running
        .client(Some(&node))
        .post("/v1/audit/archive", &json!({}));
    assert_eq!(denied.status, 403);
    // The server goes on from there when it is started anew.
    drop(service);
    drop(running);
    let running = Running::open(&installation);
    let (after, rows) = told(&running, &installation);
    assert_eq!(after, made[0].last);
    assert_eq!(rows.last().unwrap().action, "unseal");
    let (store, _service) = installation.service();
    installation.is_whole(&*store);
}

fn a_kill_between_two_writes_loses_no_row(cluster: Option<&Cluster>) {
    let installation = installation(cluster);
    let (store, service) = installation.service();
    notes(&service, 30);
    let config = installation.config();
    store.dies_before(AUDIT_CUT);
    service.archive_when_due(&config).unwrap_err();
    assert_eq!(installation.archives().len(), 1, "the archive is there");
    assert_eq!(store.rows(0, 1).unwrap()[0].0, 1, "and so is every row");
    drop(service);
    let (store, service) = installation.service();
    // There are more rows now; the archive that was left is taken as it is, and then another one is
    // made.
    notes(&service, 20);
    store.dies_before(REMOVAL_OF_ROWS);
    service.archive_when_due(&config).unwrap_err();
    assert_eq!(installation.archives().len(), 1, "taken, not made anew");
    assert_eq!(store.rows(0, 1).unwrap()[0].0, 1, "not removed yet");
    drop(service);
    let (store, service) = installation.service();
    let made = service.archive_when_due(&config).unwrap();
    assert_eq!(made.len(), 1);
    assert_eq!(installation.archives().len(), 2);
    let first = store.rows(0, 1).unwrap()[0].0;
    assert_eq!(first, made[0].last + 1, "removed");
    installation.is_whole(&*store);
}

fn an_archive_that_does_not_fit_is_left_alone(cluster: Option<&Cluster>) {
    let installation = installation(cluster);
    let (store, service) = installation.service();
    notes(&service, 30);
    let config = installation.config();
    let refused = |word: &str| {
        let error = service.archive_when_due(&config).unwrap_err();
        assert_eq!(error.code().number, 8456, "{error}");
        assert!(error.detail().contains(word), "{error}");
        assert_eq!(store.rows(0, 1).unwrap()[0].0, 1);
    };
    std::fs::create_dir(installation.path("archives")).unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(installation.path("archives"), open).unwrap();
    refused("nobody else may write");
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(installation.path("archives"), private).unwrap();
    let path = installation.path("archives").join(archive::file_name(1, 9));
    written(&path, b"something else");
    refused("in the way");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    refused("in the way");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(service.archive_when_due(&config).unwrap().len(), 1);
    let (last, _) = store.last_row().unwrap().unwrap();
    assert!(store.forget_rows(last, 10).is_err(), "the last row stays");
    assert!(store.forget_rows(last + 5, 10).is_err());
    installation.is_whole(&*store);
}

#[test]
fn rows_go_into_archives_and_the_chain_holds_across_the_cut() {
    rows_go_into_archives(None);
}

#[test]
fn rows_go_into_archives_from_etcd() {
    rows_go_into_archives(Some(&Cluster::start(1)));
}

#[test]
fn a_kill_between_two_writes_loses_no_row_of_a_sealed_store() {
    a_kill_between_two_writes_loses_no_row(None);
}

#[test]
fn a_kill_between_two_writes_loses_no_row_of_etcd() {
    a_kill_between_two_writes_loses_no_row(Some(&Cluster::start(1)));
}

#[test]
fn what_is_in_the_way_of_an_archive_is_left_alone() {
    an_archive_that_does_not_fit_is_left_alone(None);
}

#[test]
fn what_is_in_the_way_of_an_archive_is_left_alone_with_etcd() {
    an_archive_that_does_not_fit_is_left_alone(Some(&Cluster::start(1)));
}

#[test]
fn young_rows_stay_and_old_ones_go() {
    let installation = installation(None);
    installation.edit(|text| {
        text.replace(
            "keep_days = 0\nkeep_rows = 10",
            "keep_days = 3\nkeep_rows = 0",
        )
    });
    let (store, service) = installation.service();
    notes(&service, 30);
    assert_eq!(
        service.archive_when_due(&installation.config()).unwrap(),
        []
    );
    assert_eq!(store.rows(0, 1).unwrap()[0].0, 1);
}

#[test]
fn a_store_made_before_there_were_archives_takes_them() {
    let installation = installation(None);
    let (store, service) = installation.service();
    notes(&service, 30);
    // The triggers of such a store refuse every removal.
    let id = installation.config().server_id().unwrap();
    let keyring = Keyring::open(&installation.path("root.keyring")).unwrap();
    let key = Keys::derive_store_key(&keyring.key(ROOT_KEY_NAME, None).unwrap(), &id).unwrap();
    let options = strongroom_sqlite::OpenOptions {
        key: Some(strongroom_keyring::KeySource::Given(
            strongroom_keyring::secret_hex(key.expose()).unwrap(),
        )),
        ..strongroom_sqlite::OpenOptions::default()
    };
    let raw = strongroom_sqlite::open(&installation.path("keys.db"), &options).unwrap();
    raw.execute_batch(
        "DROP TRIGGER audit_remains_after_cut; DROP TRIGGER audit_cut_rises; DROP TABLE audit_cut;
        CREATE TRIGGER audit_remains BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;",
    )
    .unwrap();
    drop((store, service));
    let (store, service) = installation.service();
    assert_eq!(
        service
            .archive_when_due(&installation.config())
            .unwrap()
            .len(),
        1
    );
    installation.is_whole(&*store);
    // What is not archived cannot be removed, and a cut does not go back.
    let first = store.rows(0, 1).unwrap()[0].0;
    let refused = raw.execute(
        "DELETE FROM audit WHERE n = ?1",
        [i64::try_from(first).unwrap()],
    );
    assert!(refused.unwrap_err().to_string().contains("only grows"));
    let refused = raw.execute("UPDATE audit_cut SET through = 1000000", []);
    assert!(refused.unwrap_err().to_string().contains("stays"));
}

#[test]
fn rows_reach_syslog_and_a_daemon_that_hangs_delays_nothing() {
    let installation = installation(None);
    let socket = installation.path("log");
    let daemon = UnixDatagram::bind(&socket).unwrap();
    daemon
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    installation.edit(|text| text.replace("[audit]\n", "[audit]\nsyslog = \"log\"\n"));
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    assert_eq!(admin.post("/v1/keys", &json!({"name": "k"})).status, 201);
    let mut bytes = [0; 8192];
    let mut heard = Vec::new();
    while !heard.iter().any(|row: &Row| row.action == "create") {
        let len = daemon.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        assert!(text.starts_with("<85>"), "{text}");
        let (_, json) = text.split_once("]: ").unwrap();
        heard.push(serde_json::from_str(json).unwrap());
    }
    assert_eq!(heard[0].action, "unseal");
    assert_eq!(heard.last().unwrap().subject, "k");
    // Nobody reads any more: the socket's queue is full after some rows.
    let service = running.server.service().unwrap();
    let began = Instant::now();
    notes(&service, 1000);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(admin.get("/v1/keys").status, 200);
}

#[test]
fn the_alarm_comes_before_there_is_no_room() {
    let installation = installation(None);
    installation.edit(|text| text.replace("free_mib = 1024", "free_mib = 0"));
    let running = Running::open(&installation);
    let metrics = |running: &Running| running.admin(&installation).get("/metrics").text();
    let value = |text: &str, name: &str| -> u64 {
        let name = format!("strongroom_keyserver_{name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    };
    let text = metrics(&running);
    assert_eq!(value(&text, "room_alarm"), 0);
    assert!(value(&text, "audit_rows") >= 2 && value(&text, "store_bytes") > 4096);
    assert!(value(&text, "store_free_bytes") > 0);
    let status = running.admin(&installation).get("/v1/status").json();
    assert_eq!(status["room"]["alarms"], json!([]));
    assert_eq!(
        running.client(None).get("/v1/status").json()["room"],
        Value::Null
    );
    let node = running.node(&installation, "n");
    let seen = running.client(Some(&node)).get("/v1/status").json();
    assert_eq!(
        seen["room"],
        Value::Null,
        "a node sees nothing of the log's size"
    );
    drop(running);
    installation.edit(|text| {
        text.replace("free_mib = 0", "free_mib = 900000000")
            .replace("audit_rows = 5000000", "audit_rows = 3")
            .replace("store_mib = 0", "store_mib = 1")
            .replace("store_percent = 70", "store_percent = 1")
    });
    let running = Running::open(&installation);
    assert_eq!(value(&metrics(&running), "room_alarm"), 4);
    let status = running.admin(&installation).get("/v1/status").json();
    let alarms = status["room"]["alarms"].as_array().unwrap();
    assert!(
        alarms[0].as_str().unwrap().contains("MiB free"),
        "{alarms:?}"
    );
}

#[test]
fn an_archive_that_fails_is_an_alarm() {
    let installation = installation(None);
    installation.edit(|text| {
        text.replace("free_mib = 1024", "free_mib = 0")
            .replace("archive = \"archives\"", "archive = \"nowhere/archives\"")
    });
    let running = Running::open(&installation);
    let service = running.server.service().unwrap();
    notes(&service, 30);
    let failed = service
        .archive_when_due(&installation.config())
        .unwrap_err();
    assert_eq!(failed.code().number, 8456);
    let status = running.admin(&installation).get("/v1/status").json();
    let alarm = status["room"]["alarms"][0].as_str().unwrap().to_owned();
    assert!(alarm.contains("could not be archived"), "{alarm}");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a directory is moved away, as by an administrator"
)]
fn archives_do_not_begin_anew_in_another_directory_by_themselves() {
    let installation = installation(None);
    installation.edit(|text| text.replace("free_mib = 1024", "free_mib = 0"));
    let running = Running::open(&installation);
    let service = running.server.service().unwrap();
    let archives = || service.archive_when_due(&installation.config());
    // Nothing was archived so far: the directory is made, and made again.
    assert_eq!(archives().unwrap(), []);
    std::fs::remove_dir_all(installation.path("archives")).unwrap();
    notes(&service, 30);
    assert_eq!(archives().unwrap().len(), 1);
    notes(&service, 30);

    // It is gone; then an empty one is in its place, as where a file system is not mounted.
    let (used, away) = (installation.path("archives"), installation.path("away"));
    std::fs::rename(&used, &away).unwrap();
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&used).unwrap();
        }
        let refused = archives().unwrap_err();
        assert_eq!(refused.code().number, 8456);
        assert!(
            refused.detail().contains("mount its file system"),
            "{refused}"
        );
        assert_eq!(used.exists(), is_there);
        assert_eq!(installation.archives().len(), 0);
        let answer = running
            .admin(&installation)
            .post("/v1/audit/archive", &json!({}));
        answer.refused(409, "SR-8456");
        service.watch_space(&installation.config()).unwrap();
        let status = running.admin(&installation).get("/v1/status").json();
        let alarm = status["room"]["alarms"][0].as_str().unwrap().to_owned();
        assert!(alarm.contains("could not be archived"), "{alarm}");
    }

    // The one of before is back; one that an older server wrote, without the mark, is known too.
    std::fs::remove_dir(&used).unwrap();
    std::fs::rename(&away, &used).unwrap();
    std::fs::remove_file(used.join(".strongroom-archives")).unwrap();
    assert_eq!(archives().unwrap().len(), 1);
    assert!(used.join(".strongroom-archives").exists());
    service.watch_space(&installation.config()).unwrap();
    let status = running.admin(&installation).get("/v1/status").json();
    assert_eq!(status["room"]["alarms"], json!([]));

    // Archives may be moved away, and another directory may be given.
    for path in installation.archives() {
        std::fs::remove_file(path).unwrap();
    }
    notes(&service, 30);
    assert_eq!(archives().unwrap().len(), 1);
    notes(&service, 30);
    std::fs::remove_dir_all(&used).unwrap();
    std::fs::create_dir(&used).unwrap();
    written(&used.join(".strongroom-archives"), b"");
    assert_eq!(archives().unwrap().len(), 1);
}

#[test]
fn a_full_file_system_is_told_of_etcd_by_its_size() {
    let cluster = Cluster::start(1);
    let installation = installation(Some(&cluster));
    let (store, service) = installation.service();
    let space = store.space().unwrap();
    assert!(space.used_bytes > 0, "{space:?}");
    let info = service.space(&installation.config()).unwrap();
    assert_eq!(info.store_bytes, space.used_bytes);
    assert!(info.store_limit_bytes.unwrap() >= 2 << 30);
}
