//! Goal: a real server's file is read by every door of the library as it was written, and nothing
//! is written anywhere.

use std::thread::spawn;
use std::time::{Duration, SystemTime};

use strongroom_sqlite::{OpenOptions, explain, open};

use crate::nginx::Nginx;
use crate::support::{ROWS, Scratch, body, code_of, point, remote, scan, title, write};

#[test]
fn every_row_of_every_page_size_and_journal_mode() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    for (page_size, wal) in [(512, false), (4096, true), (8192, false), (65536, true)] {
        let name = format!("{page_size}.db");
        let path = scratch.publish_as(&name, 3, |options| options.page_size = page_size);
        if wal {
            let connection = open(&path, &scratch.options()).unwrap();
            let mode =
                connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0));
            assert_eq!(mode.unwrap(), "wal");
            connection
                .execute_batch("DELETE FROM book WHERE id=1")
                .unwrap();
            connection
                .execute("INSERT INTO book VALUES(1, ?1, ?2)", (title(1), body(1, 3)))
                .unwrap();
            // The last connection that closes checkpoints and removes the log.
        }
        let connection = scratch.open(&nginx.remote(&name)).unwrap();
        assert_eq!(scan(&connection, 3).unwrap(), ROWS, "{page_size}");
        let check: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(check, "ok");
    }
}

#[test]
fn nothing_can_be_written() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    let before = std::fs::read(scratch.publish("x.db", 1)).unwrap();
    let connection = scratch.open(&nginx.remote("x.db")).unwrap();
    for sql in [
        "DELETE FROM book",
        "INSERT INTO book VALUES(100000, 'a', 'b')",
        "CREATE TABLE other(x)",
        "DROP TABLE book",
        "PRAGMA user_version=5",
        "VACUUM",
        "REINDEX",
        "PRAGMA rekey='0123456789012345678901234567890123456789012345678901234567890123'",
    ] {
        let Err(error) = connection.execute_batch(sql) else {
            panic!("{sql} passed");
        };
        assert!(error.to_string().contains("readonly"), "{sql}: {error}");
        if connection.is_autocommit() {
            continue;
        }
        connection.execute_batch("ROLLBACK").unwrap();
    }
    // Temporary tables and sorts are this connection's own, and sealed as ever.
    connection
        .execute_batch(
            "PRAGMA temp_store=FILE; PRAGMA cache_size=5; CREATE TEMP TABLE copy AS SELECT * FROM book ORDER BY body DESC",
        )
        .unwrap();
    let count: i64 = connection
        .query_row("SELECT count(*) FROM copy", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, ROWS);
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
    assert_eq!(std::fs::read(scratch.path("x.db")).unwrap(), before);
    // Neither a log nor a journal nor a redo copy beside the name.
    let names: Vec<_> = std::fs::read_dir(scratch.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(!std::path::Path::new("/strongroom-remote").exists());
}

#[test]
fn a_copy_of_it_can_be_made() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let connection = scratch.open(&nginx.remote("x.db")).unwrap();
    let (copy, key) = (scratch.path("copy.db"), scratch.path("key"));
    let uri = format!("file:{}?key_file={}", copy.display(), key.display());
    connection.execute("VACUUM INTO ?1", [uri]).unwrap();
    drop(connection);
    assert_eq!(
        scan(&open(&copy, &scratch.options()).unwrap(), 1).unwrap(),
        ROWS
    );
}

#[test]
fn keys_are_asked_for_as_for_a_local_file() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let remote = nginx.remote("x.db");
    assert_eq!(
        code_of(strongroom_sqlite::open_remote(
            &remote,
            &OpenOptions::default()
        )),
        2001
    );
    write(&scratch.path("wrong"), "5b".repeat(32).as_bytes());
    let wrong = OpenOptions {
        key: Some(strongroom_sqlite::KeySource::File(scratch.path("wrong"))),
        ..OpenOptions::default()
    };
    assert_eq!(
        code_of(strongroom_sqlite::open_remote(&remote, &wrong)),
        2002
    );
}

#[test]
fn who_the_server_is_is_checked() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    // The system does not know the private authority.
    assert_eq!(code_of(scratch.open(&remote(&nginx.url("x.db")))), 2242);
    let mut options = nginx.remote("x.db");
    options.ca = Some(nginx.ca().with_file_name("other.pem"));
    assert_eq!(code_of(scratch.open(&options)), 2242);
    // The certificate is not for this name.
    let mut options = nginx.remote("x.db");
    options.url = format!("https://127.0.0.1:{}/x.db", nginx.port);
    assert_eq!(code_of(scratch.open(&options)), 2242);
    // A file of authorities that is none.
    options.ca = Some(scratch.path("key"));
    assert_eq!(code_of(scratch.open(&options)), 2240);
    // Nobody there.
    assert_eq!(
        code_of(scratch.open(&remote("https://127.0.0.1:1/x.db"))),
        2241
    );
    assert_eq!(
        code_of(scratch.open(&remote("http://cdn.example/x.db"))),
        2253
    );
}

#[test]
fn what_nginx_says_of_other_files() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    assert_eq!(code_of(scratch.open(&nginx.remote("absent.db"))), 2243);
    assert_eq!(code_of(scratch.open(&nginx.remote("moved/x.db"))), 2247);
    // Who does not ask for compression gets none, even where it is on.
    let connection = scratch.open(&nginx.remote("packed/x.db")).unwrap();
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
    // One version only.
    let mut pinned = nginx.remote("x.db");
    pinned.etag = Some("\"other\"".to_owned());
    assert_eq!(code_of(scratch.open(&pinned)), 2246);
}

#[test]
fn a_file_replaced_under_a_transaction() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let connection = scratch.open(&nginx.remote("x.db")).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    assert_eq!(point(&connection, 17).unwrap(), body(17, 1));
    // Replaced as publishing does it: by a rename.
    let new = std::fs::read(scratch.publish("new.db", 2)).unwrap();
    let path = scratch.path("x.db");
    strongroom_keyring::durable::replace(&path, &new, 0o644).unwrap();
    // nginx makes its ETag of length and time, which it knows in whole seconds:
    // docs/guides/remote.md.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(10))
        .unwrap();
    let error = scan(&connection, 1).unwrap_err();
    assert_eq!(error.code().number, 2246, "{error}");
    assert_eq!(
        scan(&scratch.open(&nginx.remote("x.db")).unwrap(), 2).unwrap(),
        ROWS
    );
}

#[test]
fn several_readers_at_once() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let mut remote = nginx.remote("x.db");
    remote.cache = Some(scratch.path("cache"));
    let key = scratch.path("key");
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (remote, key) = (remote.clone(), key.clone());
            spawn(move || {
                let options = OpenOptions {
                    key: Some(strongroom_sqlite::KeySource::File(key)),
                    ..OpenOptions::default()
                };
                let connection = strongroom_sqlite::open_remote(&remote, &options).unwrap();
                for id in (number + 1..ROWS).step_by(97) {
                    assert_eq!(point(&connection, id).unwrap(), body(id, 1));
                }
                scan(&connection, 1).unwrap()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), ROWS);
    }
}

#[test]
fn one_connection_reads_remote_and_local_databases() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let local = scratch.publish("local.db", 2);
    let connection = scratch.open(&nginx.remote("x.db")).unwrap();
    let uri = format!(
        "file:{}?mode=ro&key_file={}",
        local.display(),
        scratch.path("key").display()
    );
    connection.execute("ATTACH ?1 AS near", [uri]).unwrap();
    let same: i64 = connection
        .query_row(
            "SELECT count(*) FROM book JOIN near.book AS other USING(id, title)",
            [],
            |row| row.get(0),
        )
        .map_err(explain)
        .unwrap();
    assert_eq!(same, ROWS);
}
