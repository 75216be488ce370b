//! Goal: a restored set is a cluster that starts and has the data, tablespaces included; what
//! PostgreSQL's own programs say of it; nothing startable is left by a restore that fails. Method:
//! real servers.
use crate::common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{key, options, put, verified};
use strongroom_backup::{
    CreateOptions, Created, Error, LocalStore, PostgresSource, RestoreOptions, Source as _, create,
    list, open_set, restore,
};
use strongroom_format::code;
use strongroom_keyring::Opener;
use strongroom_testing_support::postgres::{Room, Server, free_port, installed, stop_in, verify};

fn filled(room: &Room) -> Server<'_> {
    let server = Server::started(room, &installed(), "");
    let space = room.directory("space");
    server.sql(&format!(
        "CREATE TABLESPACE elsewhere LOCATION '{}'",
        space.display()
    ));
    server.sql(
        "CREATE TABLE a AS SELECT n, repeat('CANARY-91ab', 20) FROM generate_series(1, 50000) n; \
         CREATE TABLE b TABLESPACE elsewhere AS SELECT n, md5(n::text) FROM generate_series(1, 20000) n",
    );
    server
}

fn backed_up(
    server: &Server<'_>,
    store: &LocalStore,
    options: &CreateOptions<'_>,
) -> Result<Created, Error> {
    let shown = format!("port={}", server.port);
    let mut source = PostgresSource::new(server.config(), shown, String::from("it's ours"), false);
    create(store, &mut source, options, &mut |_| {})
}

fn restored(store: &LocalStore, opener: &Opener, to: &Path) -> Result<(), Error> {
    let options = RestoreOptions {
        to: to.to_path_buf(),
        tablespaces: None,
        threads: 2,
        recovery: None,
        // Run by root, the files have to be the server's user's for its programs.
        kept: strongroom_backup::Kept {
            owners: strongroom_backup::Owners::OfSet,
            ..strongroom_backup::Kept::default()
        },
        sealing: None,
        delta: None,
        stop: None,
    };
    let set = open_set(store, None, Some(opener))?;
    restore(&set, &options, &mut |_| {}).map(drop)
}

#[test]
fn a_restored_set_is_the_cluster() {
    let room = Room::new();
    let server = filled(&room);
    let store = LocalStore::new(&room.at("medium"));
    let opener = key();
    let striped = CreateOptions {
        stripes: Some(2),
        ..options(Some(&opener))
    };
    let created = backed_up(&server, &store, &striped).unwrap();
    let facts = created.description.postgres.unwrap();
    let system = server.sql("SELECT system_identifier FROM pg_control_system()");
    assert_eq!(facts.system_identifier, system);
    assert!(
        facts.manifest && facts.segment_size_bytes == 16 << 20 && facts.server_version >= 150_000
    );
    assert_eq!(facts.tablespaces.len(), 1);
    verified(&store, None, Some(&opener)).unwrap();
    // Work goes on after the backup, and is not in it.
    server.sql("DELETE FROM a");

    let data = room.at("restored");
    restored(&store, &opener, &data).unwrap();
    let spaces = room.at("restored.tablespaces");
    assert_eq!(fs::read_dir(&spaces).unwrap().count(), 1);
    verify(&server, &data);
    let port = free_port();
    server.start_in(&data, port);
    let counted = server.sql_at(
        port,
        "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b), (SELECT sum(length(repeat)) FROM a)",
    );
    // The restored server writes into its own tablespace.
    server.sql_at(port, "DROP TABLE b");
    stop_in(&server.bin, &data, "fast");
    assert_eq!(counted, "50000|20000|11000000");
    assert_eq!(server.sql("SELECT count(*) FROM b"), "20000");
    // Nothing of the content is on the medium.
    for (path, (_, bytes, ..)) in common::picture(&room.at("medium")) {
        let found = bytes.windows(11).any(|window| window == b"CANARY-91ab");
        assert!(!found, "{}", path.display());
    }
}

#[test]
fn who_shows_progress_is_told_how_much_there_is() {
    let room = Room::new();
    let server = filled(&room);
    let store = LocalStore::new(&room.at("medium"));
    let total = Arc::new(AtomicU64::new(0));
    let shown = String::new();
    let mut source = PostgresSource::new(server.config(), shown, String::from("label"), false);
    source.note_total(Arc::clone(&total));
    let mut at_first = None;
    let made = create(&store, &mut source, &options(None), &mut |_| {
        at_first.get_or_insert_with(|| total.load(Ordering::Relaxed));
    })
    .unwrap();
    // The server's estimate, before the first file came. It leaves out the log and the manifest.
    let (total, size) = (at_first.unwrap(), made.description.backup_size_bytes);
    assert!(total > size / 3 && total < size * 2, "{total} of {size}");
}

#[test]
fn a_server_that_goes_away_leaves_no_set() {
    let room = Room::new();
    let server = filled(&room);
    let store = LocalStore::new(&room.at("medium"));
    let opener = key();
    let shown = String::new();
    let mut source = PostgresSource::new(server.config(), shown, String::from("label"), false);
    let mut stopped = false;
    let failed = create(&store, &mut source, &options(Some(&opener)), &mut |bytes| {
        if bytes > 1_000_000 && !stopped {
            stopped = true;
            server.stop("immediate");
        }
    });
    assert!(stopped);
    assert_eq!(failed.unwrap_err().code(), &code::BACKUP_SERVER);
    assert_eq!(list(&store).unwrap().sets.len(), 0);
    assert_eq!(fs::read_dir(room.at("medium/data")).unwrap().count(), 0);
    server.start();
    backed_up(&server, &store, &options(Some(&opener))).unwrap();
    verified(&store, None, Some(&opener)).unwrap();
}

#[test]
fn a_restore_that_is_cut_off_cannot_be_started() {
    let room = Room::new();
    let server = filled(&room);
    let store = LocalStore::new(&room.at("medium"));
    let opener = key();
    backed_up(&server, &store, &options(Some(&opener))).unwrap();
    // Beside it lies the server's manifest.
    let mut objects = fs::read_dir(room.at("medium/data")).unwrap();
    let family = objects
        .find_map(|entry| {
            Some(entry.unwrap().path()).filter(|path| path.extension() == Some("0".as_ref()))
        })
        .unwrap();
    let mut bytes = fs::read(&family).unwrap();
    // The very last segment: by then every file has been written.
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    put(&family, &bytes);
    let data = room.at("restored");
    let refused = restored(&store, &opener, &data).unwrap_err();
    assert_eq!(refused.code(), &code::SEGMENT);
    assert!(!data.exists() && !room.at("restored.tablespaces").join("1").exists());
    let left: Vec<_> = fs::read_dir(room.at(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("partial")),
        "{left:?}"
    );
}
