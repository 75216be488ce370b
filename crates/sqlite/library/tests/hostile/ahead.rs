//! Scans read ahead: what they see is their snapshot and nothing later, whoever writes meanwhile,
//! in every journal mode.

use std::path::Path;

use rusqlite::Connection;

use crate::support::{connect, run};

const ROWS: usize = 4000;

/// A table of some 600 pages in order of its rows, each row with generation 0; connections with
/// next to no cache, so that every scan reads the file.
fn made(path: &Path, journal: &str) -> Connection {
    let connection = reader(path);
    run(
        &connection,
        &format!(
            "PRAGMA journal_mode={journal}; PRAGMA wal_autocheckpoint=0;
             CREATE TABLE t(a INTEGER PRIMARY KEY, g INTEGER, pad BLOB);
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<{ROWS})
             INSERT INTO t SELECT x, 0, randomblob(120) FROM n; PRAGMA wal_checkpoint(truncate)"
        ),
    );
    connection
}

fn reader(path: &Path) -> Connection {
    let connection = connect(path);
    run(&connection, "PRAGMA cache_size=8");
    connection
}

fn next_generation(connection: &Connection) {
    run(connection, "UPDATE t SET g = g + 1");
}

/// Generations that a scan sees; `between` runs when it is half done.
fn scan(connection: &Connection, between: &mut dyn FnMut()) -> Vec<i64> {
    let mut statement = connection
        .prepare("SELECT g, pad FROM t ORDER BY a")
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut seen = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        seen.push(row.get(0).unwrap());
        if seen.len() == ROWS / 2 {
            between();
        }
    }
    seen
}

fn all(generation: i64) -> Vec<i64> {
    vec![generation; ROWS]
}

#[test]
fn a_scan_sees_its_snapshot_while_others_commit_and_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let writer = made(&path, "wal");
    let scanning = reader(&path);
    for round in 0..4 {
        let before = 2 * round;
        let seen = scan(&scanning, &mut || {
            next_generation(&writer);
            run(&writer, "PRAGMA wal_checkpoint(passive)");
            next_generation(&writer);
            run(&writer, "PRAGMA wal_checkpoint(passive)");
        });
        assert_eq!(seen, all(before), "round {round}");
        // The next one begins where the log left off, then where the checkpoint did.
        assert_eq!(scan(&scanning, &mut || {}), all(before + 2));
        run(&writer, "PRAGMA wal_checkpoint(truncate)");
        assert_eq!(scan(&scanning, &mut || {}), all(before + 2));
    }
}

#[test]
fn a_second_scan_sees_what_was_written_since_the_first() {
    for journal in ["delete", "truncate", "persist", "memory", "wal"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let writer = made(&path, journal);
        let scanning = reader(&path);
        for generation in 0..3 {
            assert_eq!(scan(&scanning, &mut || {}), all(generation), "{journal}");
            next_generation(&writer);
        }
        // Rows and pages go, and the file with them.
        run(&writer, &format!("DELETE FROM t WHERE a > {}", ROWS / 8));
        run(
            &writer,
            "PRAGMA wal_checkpoint(truncate); VACUUM; PRAGMA wal_checkpoint(truncate)",
        );
        assert_eq!(scan(&scanning, &mut || {}).len(), ROWS / 8, "{journal}");
    }
}

#[test]
fn a_connection_sees_what_it_wrote_itself_within_a_scan() {
    for journal in ["delete", "wal"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let connection = made(&path, journal);
        run(&connection, "BEGIN");
        // With eight pages of cache, changed pages are written to the file in the middle of the
        // transaction.
        for generation in 1..4 {
            next_generation(&connection);
            assert_eq!(scan(&connection, &mut || {}), all(generation), "{journal}");
        }
        run(&connection, "ROLLBACK");
        assert_eq!(scan(&connection, &mut || {}), all(0), "{journal}");
        // Rows before and behind the scan's place, in turns.
        let mut changed = 0;
        let mut statement = connection.prepare("SELECT a FROM t ORDER BY a").unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let at: i64 = row.get(0).unwrap();
            let place = at - 1 - (at % 200);
            changed += connection
                .execute("UPDATE t SET g = 7 WHERE a = ?1 AND g <> 7", [place])
                .unwrap();
        }
        drop(rows);
        drop(statement);
        let seen = scan(&connection, &mut || {});
        assert_eq!(
            seen.iter().filter(|g| **g == 7).count(),
            changed,
            "{journal}"
        );
    }
}
