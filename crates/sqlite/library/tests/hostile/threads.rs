//! Threads of one process: databases created on one while others run statements on connections of
//! their own.

use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_sqlite::{explain, open};

use crate::support::{RAW, clear, options, run};

/// Whether an ATTACH or VACUUM INTO is what opens a file is asked of every connection of the
/// process. A connection that another thread is using must be left alone, also when it was opened
/// without a mutex: its statements come and go.
#[test]
fn creating_databases_beside_busy_connections() {
    let directory = tempfile::tempdir().unwrap();
    let done = AtomicBool::new(false);
    strongroom_sqlite::register().unwrap();
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (directory, done) = (directory.path(), &done);
            scope.spawn(move || {
                let connection =
                    open(&directory.join(format!("{worker}.db")), &options(RAW)).unwrap();
                run(
                    &connection,
                    "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES(0, '')",
                );
                let mut n = 0_u64;
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    // Another statement each time, so that texts and programs are allocated and
                    // freed.
                    let sql = format!("SELECT b||'{n}' FROM t WHERE a={} OR b='{n}'", n % 2);
                    let mut statement = connection.prepare(&sql).map_err(explain).unwrap();
                    let rows = statement
                        .query_map([], |row| row.get::<_, String>(0))
                        .unwrap()
                        .count() as u64;
                    assert_eq!(rows, 1 - n % 2);
                }
            });
        }
        for round in 0..400 {
            let path = directory.path().join(format!("new-{round}.db"));
            run(
                &open(&path, &options(RAW)).unwrap(),
                "PRAGMA synchronous=off; CREATE TABLE t(a)",
            );
            clear(&path);
        }
        done.store(true, Ordering::Relaxed);
    });
}
