//! The SQL shell without a terminal: `-c`, scripts, output modes, dot-commands.
//!
//! Method: plain databases made here, the real binary, its output and its exit code. Sealed ones:
//! sqlite.rs.

use crate::common;

use common::{Place, Run};

const SAMPLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v REAL, b BLOB);
INSERT INTO t VALUES (1, 'Ünïcode 日本', 1.5, x'00ff'), (2, NULL, -1e300, NULL),
  (3, 'a\"b,c' || char(10) || 'd', 0.1, x'');";

fn sample() -> Place {
    let place = Place::new();
    place.plain_database("a.db", 0);
    shell(&place, &["-c", "DROP TABLE t", "-c", SAMPLE]).succeeded();
    place
}

fn shell(place: &Place, arguments: &[&str]) -> Run {
    place.run(&[&["sqlite", "shell", "a.db"], arguments].concat())
}

fn script(place: &Place, text: &str) -> Run {
    place.run_with(&["sqlite", "shell", "a.db"], text)
}

#[test]
fn table_mode() {
    let place = sample();
    let out = shell(&place, &["-c", "SELECT * FROM t"]).succeeded();
    assert_eq!(
        out,
        "id | name         | v       | b\n\
         ---+--------------+---------+--------\n \
         1 | Ünïcode 日本 |     1.5 | x'00ff'\n \
         2 | NULL         | -1e+300 | NULL\n \
         3 | a\"b,c\\nd     |     0.1 | x''\n"
    );
    let out = shell(
        &place,
        &["-c", ".headers off\n.nullvalue -\nSELECT NULL, 'x'"],
    )
    .succeeded();
    assert_eq!(out, "- | x\n");
    // Terminal escapes and direction marks in data are shown, not obeyed.
    let out = shell(&place, &["-c", ".headers off\nSELECT char(27, 0x202e, 9)"]).succeeded();
    assert_eq!(out, "\\u{1b}\\u{202e}\\t\n");
}

#[test]
fn a_table_of_many_rows_is_complete() {
    let place = Place::new();
    place.plain_database("a.db", 2500);
    let out = shell(&place, &["-c", "SELECT id FROM t ORDER BY id DESC"]).succeeded();
    let rows: Vec<u32> = out
        .lines()
        .skip(2)
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert!(rows.into_iter().eq((1..=2500).rev()));
}

#[test]
fn csv_mode_is_rfc_4180() {
    let place = sample();
    let out = shell(&place, &["--mode", "csv", "-c", "SELECT * FROM t"]).succeeded();
    assert_eq!(
        out,
        "id,name,v,b\r\n1,Ünïcode 日本,1.5,x'00ff'\r\n2,,-1e+300,\r\n3,\"a\"\"b,c\nd\",0.1,x''\r\n"
    );
    let out = shell(&place, &["--mode", "csv", "-c", "SELECT 1 AS a WHERE 0"]).succeeded();
    assert_eq!(out, "a\r\n");
}

#[test]
fn json_mode() {
    let place = sample();
    let run = shell(&place, &["--mode", "json", "-c", "SELECT * FROM t"]);
    let expected = serde_json::json!([
        {"id": 1, "name": "Ünïcode 日本", "v": 1.5, "b": "00ff"},
        {"id": 2, "name": null, "v": -1e300, "b": null},
        {"id": 3, "name": "a\"b,c\nd", "v": 0.1, "b": ""},
    ]);
    assert_eq!(run.json(), expected);
    let sql = "SELECT 1 AS a, 2 AS a, 9223372036854775807 AS big, 9e999 AS inf";
    let run = shell(&place, &["--mode", "json", "-c", sql]);
    assert_eq!(
        run.out,
        "[{\"a\":1,\"a:1\":2,\"big\":9223372036854775807,\"inf\":\"Inf\"}]\n"
    );
    let run = shell(
        &place,
        &["--mode", "json", "-c", "SELECT 1 WHERE 0; SELECT 2 AS b"],
    );
    assert_eq!(run.out, "[]\n[{\"b\":2}]\n");
}

/// Why a pragma is refused is said, also where the statement names a key; the key is not.
#[test]
fn the_reason_for_a_refused_pragma_is_shown() {
    let place = sample();
    let refused = shell(&place, &["-c", "PRAGMA hexkey = '5ec2e7'"]).failed(2, "SR-2280");
    assert!(refused.contains("PRAGMA key"), "{refused}");
    assert!(!refused.contains("5ec2e7"), "{refused}");
    let run = script(&place, "PRAGMA key = '5ec2e7';\n");
    let refused = run.failed(6, "SR-6006");
    assert!(!refused.contains("5ec2e7"), "{refused}");
}

#[test]
fn a_script_stops_at_its_first_error() {
    let place = sample();
    let run = script(&place, "SELECT 1 AS a;\n\nSELECT\n nope;\nSELECT 2 AS b;\n");
    assert_eq!(run.out, "a\n-\n1\n");
    let err = run.failed(2, "SR-1005");
    assert!(
        err.contains("(standard input, line 3: no such column: nope)"),
        "{err}"
    );

    let run = shell(
        &place,
        &["-c", "SELECT 1 AS a; SELEC 2", "-c", "SELECT 3 AS c"],
    );
    assert_eq!(run.out, "a\n-\n1\n");
    assert!(
        run.failed(2, "SR-1005")
            .contains("(-c, line 1: near \"SELEC\": syntax error)")
    );

    shell(
        &place,
        &[
            "-c",
            "INSERT INTO t(id) VALUES (9); INSERT INTO t(id) VALUES (9)",
        ],
    )
    .failed(2, "SR-1005");
    shell(&place, &["-c", ".frobnicate"]).failed(2, "SR-1001");
    shell(&place, &["-c", ".mode xml"]).failed(2, "SR-1001");
    shell(&place, &["-c", ".tables a b"]).failed(2, "SR-1001");
}

#[test]
fn statements_may_span_lines_and_lack_the_last_semicolon() {
    let place = sample();
    let text = ".headers off\nSELECT 'a;\n.quit\n'\n;SELECT 2; SELECT 3;\n-- remark;\nSELECT 4";
    assert_eq!(script(&place, text).succeeded(), "a;\\n.quit\\n\n2\n3\n4\n");
    assert_eq!(script(&place, "").succeeded(), "");
    assert_eq!(
        script(&place, "SELECT 1 AS a;\r\n.quit\r\nSELECT nope;\r\n").succeeded(),
        "a\n-\n1\n"
    );
}

#[test]
fn the_schema_can_be_listed() {
    let place = sample();
    let text = "CREATE VIEW w AS SELECT 1; CREATE INDEX i ON t(name); CREATE TABLE \"o\"\"dd\"(x);
ATTACH ':memory:' AS m; CREATE TABLE m.inside(x);
.tables
.tables t%
.indexes
.schema w
.databases";
    let out = script(&place, text).succeeded();
    let (names, databases) = out.split_once("name").unwrap();
    assert_eq!(
        names,
        "o\"dd\nt\nw\nm.inside\nt\ni\nCREATE VIEW w AS SELECT 1;\n"
    );
    assert!(
        databases.contains("main | /") && databases.contains("m    | (none)"),
        "{databases}"
    );
    assert!(
        script(&place, ".help\n")
            .succeeded()
            .contains("\n.import [--skip N] FILE TABLE\n")
    );
}

#[test]
fn a_dump_makes_the_same_database_again() {
    let place = sample();
    let more = "CREATE TABLE g(a, b AS (a * 2)); INSERT INTO g VALUES (21);
CREATE TABLE q(x TEXT); INSERT INTO q VALUES ('it''s'), (CAST(x'00ff' AS TEXT)), ('.quit');
CREATE TABLE n(x); INSERT INTO n VALUES (-9223372036854775807 - 1), (9e999), (-9e999), (1.0), (5e-324);
CREATE TABLE c(i INTEGER PRIMARY KEY AUTOINCREMENT, x UNIQUE); INSERT INTO c VALUES (41, 'x');
CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES ('hello world');
CREATE TABLE w(k PRIMARY KEY) WITHOUT ROWID; INSERT INTO w VALUES ('k');
CREATE VIEW v AS SELECT * FROM g; CREATE INDEX ix ON t(name);
CREATE TRIGGER tr AFTER INSERT ON w BEGIN INSERT INTO g VALUES (1); END;
ANALYZE;";
    script(&place, more).succeeded();
    let dump = script(&place, ".dump\n").succeeded();
    rusqlite::Connection::open(place.path("b.db"))
        .unwrap()
        .execute_batch("VACUUM")
        .unwrap();
    place
        .run_with(&["sqlite", "shell", "b.db"], &dump)
        .succeeded();
    assert_eq!(
        place
            .run_with(&["sqlite", "shell", "b.db"], ".dump\n")
            .succeeded(),
        dump
    );
    let check = "PRAGMA integrity_check; SELECT body FROM f WHERE f MATCH 'hello'; \
                 SELECT typeof(x), hex(x) FROM q; SELECT typeof(x), x FROM n; SELECT b FROM g;\
                 INSERT INTO c(x) VALUES ('next') RETURNING i;";
    let of = |name| {
        place
            .run(&["sqlite", "shell", name, "-c", check])
            .succeeded()
    };
    let (before, after) = (of("a.db"), of("b.db"));
    assert_eq!(before, after);
    assert!(
        after.contains("hello world") && after.ends_with("i\n--\n42\n"),
        "{after}"
    );

    let part = script(&place, ".dump q\n").succeeded();
    assert!(
        part.contains("CREATE TABLE q") && !part.contains("CREATE TABLE g"),
        "{part}"
    );
}

#[test]
fn csv_can_be_imported() {
    let place = sample();
    place.write("in.csv", "name,note\r\nAda,\"a, b\"\r\nBob,\"x\ny\"\r\n");
    let out = script(&place, ".import in.csv people\nSELECT * FROM people;").succeeded();
    assert_eq!(out, "name | note\n-----+-----\nAda  | a, b\nBob  | x\\ny\n");
    let out = script(
        &place,
        ".import --skip 1 in.csv people\nSELECT count(*) AS n FROM people;",
    );
    assert_eq!(out.succeeded(), "n\n-\n4\n");
    // A row of another length: nothing is imported.
    place.write("bad.csv", "1,2\n3\n");
    let err = script(&place, ".import bad.csv people\n").failed(2, "SR-1005");
    assert!(
        err.contains("line 2 has 1 fields, the table has 2; nothing was imported"),
        "{err}"
    );
    script(&place, ".import bad.csv fresh\n").failed(2, "SR-1005");
    let out = script(&place, "SELECT count(*) AS n FROM people;\n.tables\n").succeeded();
    assert_eq!(out, "n\n-\n4\npeople\nt\n");
    place.write("latin.csv", b"a,b\n\xe9,1\n");
    script(&place, ".import latin.csv people\n").failed(2, "SR-1005");
    script(&place, ".import gone.csv people\n").failed(2, "SR-1006");
}

#[test]
fn the_open_database_is_not_read_as_text() {
    // Opening and closing it once more would drop the locks of the whole process.
    let place = sample();
    std::fs::hard_link(place.path("a.db"), place.path("same.db")).unwrap();
    for line in [
        ".read a.db",
        ".read same.db",
        ".import a.db t",
        ".read ./a.db",
    ] {
        let err = script(&place, &format!("{line}\n")).failed(2, "SR-1003");
        assert!(err.contains("open in this shell"), "{err}");
    }
    let err = script(
        &place,
        "PRAGMA journal_mode = wal; CREATE TABLE w(x);\n.read a.db-shm\n",
    );
    err.failed(2, "SR-1003");
}

#[test]
fn output_goes_to_new_files_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = sample();
    let text = ".mode csv\n.output o.csv\nSELECT 1 AS a;\n.output\nSELECT 2 AS b;";
    assert_eq!(script(&place, text).succeeded(), "b\r\n2\r\n");
    assert_eq!(place.read("o.csv"), b"a\r\n1\r\n");
    let mode = std::fs::metadata(place.path("o.csv"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    script(&place, ".output o.csv\n").failed(6, "SR-1002");
    script(&place, ".output a.db\n").failed(6, "SR-1002");
    assert_eq!(place.read("o.csv"), b"a\r\n1\r\n");
}

#[test]
fn files_can_be_read_and_may_not_nest_for_ever() {
    let place = sample();
    place.write("s.sql", "SELECT 1 AS a;\n.quit\nSELECT nope;\n");
    assert_eq!(
        script(&place, ".read s.sql\nSELECT 2 AS b;").succeeded(),
        "a\n-\n1\nb\n-\n2\n"
    );
    place.write("bad.sql", "SELECT 1 AS a;\nSELECT nope;\n");
    let err = script(&place, "\n.read bad.sql\n").failed(2, "SR-1005");
    assert!(
        err.contains("standard input, line 2: bad.sql, line 2: no such column"),
        "{err}"
    );
    place.write("loop.sql", ".read loop.sql\n");
    assert!(
        script(&place, ".read loop.sql\n")
            .failed(2, "SR-1001")
            .contains("nested too deeply")
    );
}

#[test]
fn read_only_is_read_only() {
    let place = sample();
    let before = place.read("a.db");
    shell(&place, &["--read-only", "-c", "DELETE FROM t"]).failed(5, "SR-5001");
    let out = shell(
        &place,
        &["--read-only", "-c", "SELECT count(*) AS n FROM t"],
    )
    .succeeded();
    assert_eq!(out, "n\n-\n3\n");
    assert!(place.read("a.db") == before);
}

#[test]
fn a_missing_database_is_not_made_by_a_typing_error() {
    let place = Place::new();
    shell(&place, &["-c", "SELECT 1"]).failed(2, "SR-1006");
    place
        .run(&["sqlite", "shell", "file:a.db", "-c", "SELECT 1"])
        .failed(5, "SR-5001");
    assert!(place.names().is_empty());
    let out = place
        .run(&["sqlite", "shell", ":memory:", "-c", "SELECT 1 AS a"])
        .succeeded();
    assert_eq!(out, "a\n-\n1\n");
}

#[test]
fn a_key_in_a_statement_is_not_repeated_in_an_error() {
    let place = sample();
    for sql in [
        "PRAGMA key 'hunter2'",
        "SELECT strongroom_key('hunter2' 'x')",
    ] {
        let run = shell(&place, &["-c", sql]);
        assert!(!run.err.contains("hunter2"), "{}", run.err);
        run.failed(2, "SR-1005");
    }
}

#[test]
fn a_busy_database_is_an_operating_error() {
    let place = sample();
    let other = rusqlite::Connection::open(place.path("a.db")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let text = "PRAGMA busy_timeout = 1;\nSELECT * FROM t;";
    script(&place, text).failed(5, "SR-6010");
}

#[test]
fn the_timer_speaks_on_standard_error() {
    let place = sample();
    let run = script(&place, ".timer on\nSELECT 1 AS a;");
    assert!(
        run.err.starts_with("time: 0.") && run.err.ends_with(" s\n"),
        "{}",
        run.err
    );
    assert_eq!(run.succeeded(), "a\n-\n1\n");
}
