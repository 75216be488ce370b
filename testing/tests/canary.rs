//! Goal: nothing that was put into a sealed database can be read in any file that the process
//! leaves or holds open.
//!
//! Method: for each surface (a table, an index, a journal, a sort, ...) a worker runs statements
//! that carry a string of that surface's own, and is stopped again and again while they run: after
//! a number of steps of SQLite's machine and before any file is removed or cut. At every stop, at
//! the end, and after the process has gone, every file in its directory and every nameless file
//! among its descriptors is searched. The same is done with a plain database on SQLite's own VFS,
//! where the string has to be found in the kind of file that the surface is about: a search that
//! finds nothing there would prove nothing here. Both on the bundled SQLite and on the
//! distribution's with the loadable extension.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::print_stdout,
    clippy::use_debug,
    reason = "seeds and counts are for whoever runs it"
)]

use std::process::Command;

use strongroom_testing::driver::Worker;
use strongroom_testing::random::{Random, seed};
use strongroom_testing::scan::{Found, Place};
use strongroom_testing::setup::{Room, extension, python};

/// Something that SQLite writes.
struct Surface {
    name: &'static str,
    /// Where the string has to be found when the database is plain.
    place: Place,
    /// Statements before the search begins.
    before: &'static [&'static str],
    /// Statements that are stopped and searched.
    during: &'static [&'static str],
}

/// `@` stands for the surface's string. Rows of 600 bytes, 4 MB in all, make sorts and transient
/// tables spill.
const ROWS: &str = "INSERT INTO t SELECT x, printf('%d @ %.*c', (x*7919)%7001, 560, 'f') FROM \
    (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<7000) SELECT x FROM n)";
const TABLE: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)";
const FEW: &str = "INSERT INTO t SELECT x, printf('%d @ %.*c', x, 300, 'f') FROM \
    (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<500) SELECT x FROM n)";
const SMALL: &str = "PRAGMA cache_size=5";
const ON_DISK: &str = "PRAGMA temp_store=file";
/// Changes every row, with a cache so small that pages and journal go to disk meanwhile.
const CHANGE: &str = "UPDATE t SET b=replace(b, '@', 'gone')";

const SURFACES: &[Surface] = &[
    Surface {
        name: "table",
        place: Place::Main,
        before: &[TABLE],
        during: &[FEW],
    },
    Surface {
        name: "index",
        place: Place::Main,
        before: &[
            "CREATE TABLE t(a INTEGER PRIMARY KEY)",
            "CREATE INDEX i ON t('@' || a)",
        ],
        during: &["INSERT INTO t VALUES(1),(2),(3)"],
    },
    Surface {
        name: "overflow",
        place: Place::Main,
        before: &[TABLE],
        during: &["INSERT INTO t VALUES(1, printf('%.*c@%.*c', 70000, 'x', 70000, 'y'))"],
    },
    Surface {
        name: "withoutrowid",
        place: Place::Main,
        before: &["CREATE TABLE t(a TEXT PRIMARY KEY, b) WITHOUT ROWID"],
        during: &["INSERT INTO t VALUES('@', 1)"],
    },
    Surface {
        name: "fulltext",
        place: Place::Main,
        before: &["CREATE VIRTUAL TABLE t USING fts5(b, content='')"],
        during: &["INSERT INTO t(rowid, b) VALUES(1, 'before @ after')"],
    },
    Surface {
        name: "blob",
        place: Place::Main,
        before: &["CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)"],
        during: &["INSERT INTO t VALUES(1, CAST('@' AS BLOB))"],
    },
    Surface {
        name: "schema",
        place: Place::Main,
        before: &[TABLE],
        during: &[
            "CREATE VIEW v AS SELECT '@'",
            "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT '@'; END",
        ],
    },
    Surface {
        name: "statistics",
        place: Place::Main,
        before: &[
            "CREATE TABLE t(a INTEGER PRIMARY KEY)",
            "CREATE INDEX i ON t('@' || a)",
        ],
        during: &["INSERT INTO t VALUES(1),(2),(3)", "ANALYZE"],
    },
    Surface {
        name: "log",
        place: Place::Wal,
        before: &[
            "PRAGMA journal_mode=wal",
            "PRAGMA wal_autocheckpoint=0",
            TABLE,
        ],
        during: &[FEW, "UPDATE t SET b=b||'more'"],
    },
    Surface {
        name: "logspill",
        place: Place::Wal,
        before: &["PRAGMA journal_mode=wal", SMALL, TABLE],
        during: &["BEGIN", FEW, "UPDATE t SET b=b||'more'", "ROLLBACK"],
    },
    Surface {
        name: "journaldelete",
        place: Place::Journal,
        before: &["PRAGMA journal_mode=delete", SMALL, TABLE, FEW],
        during: &["BEGIN", CHANGE, "COMMIT"],
    },
    Surface {
        name: "journaltruncate",
        place: Place::Journal,
        before: &["PRAGMA journal_mode=truncate", SMALL, TABLE, FEW],
        during: &["BEGIN", CHANGE, "COMMIT"],
    },
    Surface {
        name: "journalpersist",
        place: Place::Journal,
        before: &["PRAGMA journal_mode=persist", SMALL, TABLE, FEW],
        during: &["BEGIN", CHANGE, "COMMIT"],
    },
    Surface {
        name: "journaldrop",
        place: Place::Journal,
        before: &[
            "PRAGMA journal_mode=persist",
            SMALL,
            TABLE,
            FEW,
            "ALTER TABLE t ADD COLUMN c TEXT",
        ],
        during: &[
            "ALTER TABLE t DROP COLUMN b",
            "ALTER TABLE t RENAME COLUMN c TO d",
        ],
    },
    Surface {
        name: "savepoint",
        place: Place::Temp,
        before: &[ON_DISK, SMALL, TABLE, FEW],
        during: &[
            "BEGIN",
            "UPDATE t SET b=b||'1'",
            "SAVEPOINT s",
            CHANGE,
            "ROLLBACK TO s",
            "COMMIT",
        ],
    },
    Surface {
        name: "statement",
        place: Place::Temp,
        before: &[ON_DISK, SMALL, TABLE, "CREATE UNIQUE INDEX u ON t(b)", FEW],
        during: &[
            "BEGIN",
            "UPDATE t SET b=b||'1'",
            "UPDATE t SET b=b||'2'",
            "COMMIT",
        ],
    },
    Surface {
        name: "sort",
        place: Place::Temp,
        before: &[ON_DISK, SMALL, TABLE, ROWS],
        during: &["SELECT a, b FROM t ORDER BY b"],
    },
    Surface {
        name: "createindex",
        place: Place::Temp,
        before: &[ON_DISK, SMALL, TABLE, ROWS],
        during: &["CREATE INDEX i ON t(b)"],
    },
    Surface {
        name: "temptable",
        place: Place::Temp,
        before: &[ON_DISK, TABLE, ROWS],
        during: &[
            "PRAGMA temp.cache_size=5",
            "CREATE TEMP TABLE x AS SELECT * FROM t",
            "UPDATE x SET b=b||'1'",
        ],
    },
    Surface {
        name: "materialised",
        place: Place::Temp,
        before: &[ON_DISK, SMALL, TABLE, ROWS],
        during: &[
            "WITH m AS MATERIALIZED (SELECT a, b FROM t) SELECT count(*) FROM m x JOIN m y USING(a)",
        ],
    },
    Surface {
        name: "union",
        place: Place::Temp,
        before: &[ON_DISK, SMALL, TABLE, ROWS],
        during: &["SELECT count(*) FROM (SELECT b FROM t UNION SELECT b||'x' FROM t)"],
    },
    Surface {
        name: "vacuum",
        place: Place::Temp,
        before: &[ON_DISK, SMALL, TABLE, ROWS, "DELETE FROM t WHERE a%3=0"],
        during: &["VACUUM"],
    },
    Surface {
        name: "autovacuum",
        place: Place::Journal,
        before: &[
            TABLE,
            "PRAGMA auto_vacuum=2",
            "VACUUM",
            "PRAGMA journal_mode=persist",
            SMALL,
            FEW,
            "DELETE FROM t WHERE a<300",
        ],
        during: &["PRAGMA incremental_vacuum"],
    },
    Surface {
        name: "vacuuminto",
        place: Place::Main,
        before: &[TABLE, FEW],
        during: &["VACUUM INTO 'file:$copy.db$'"],
    },
    Surface {
        name: "superjournal",
        place: Place::Super,
        before: &[
            "PRAGMA journal_mode=persist",
            TABLE,
            "ATTACH 'file:$@.db$' AS o",
            "CREATE TABLE o.t(a)",
        ],
        during: &[
            "BEGIN",
            "INSERT INTO t VALUES(1, 'x')",
            "INSERT INTO o.t VALUES(1)",
            "COMMIT",
        ],
    },
];

/// Which SQLite the worker runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Host {
    Bundled,
    Stock,
}

fn start(host: Host, room: &Room) -> Worker {
    let command = match host {
        Host::Bundled => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
            command.arg("session");
            command
        }
        Host::Stock => {
            let mut command = Command::new(python());
            command
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/worker.py"))
                .arg(extension());
            command
        }
    };
    Worker::start(command, room.path()).unwrap()
}

/// `@` becomes the string, `$name$` the rest of the URI of a database of the same kind.
fn filled(statement: &str, needle: &str, room: &Room, sealed: bool) -> String {
    let text = statement.replace('@', needle);
    let Some((before, rest)) = text.split_once('$') else {
        return text;
    };
    let (name, after) = rest.split_once('$').unwrap();
    let uri = if sealed {
        room.sealed_uri(name, "")
    } else {
        room.plain_uri(name)
    };
    format!("{before}{}{after}", uri.strip_prefix("file:").unwrap())
}

/// Runs the surface's statements and searches for its string all along.
fn exercise(
    host: Host,
    surface: &Surface,
    sealed: bool,
    needle: &str,
    random: &mut Random,
) -> Found {
    let room = Room::new(random).unwrap();
    let mut worker = start(host, &room);
    let uri = if sealed {
        room.sealed_uri("a.db", "")
    } else {
        room.plain_uri("a.db")
    };
    worker.ask(&format!("open {uri}")).unwrap();
    for statement in surface.before {
        worker
            .ask(&format!("sql {}", filled(statement, needle, &room, sealed)))
            .unwrap();
    }
    let mut found = Found::default();
    let mut search = |pid: u32| {
        found
            .search_directory(room.path(), needle.as_bytes())
            .unwrap();
        found.search_process(pid, needle.as_bytes()).unwrap();
    };
    // VACUUM copies a row in a few steps, and stops copying tables row by row where it can.
    let steps = if surface.name == "vacuum" {
        3000
    } else {
        30_000
    };
    worker.ask(&format!("every {steps}")).unwrap();
    worker.ask("removals 1").unwrap();
    for statement in surface.during {
        let request = format!("sql {}", filled(statement, needle, &room, sealed));
        worker.ask_with(&request, &mut search).unwrap();
        search(worker.id());
    }
    worker.ask("removals 0").unwrap();
    worker.ask("every 0").unwrap();
    worker.finish().unwrap();
    found
        .search_directory(room.path(), needle.as_bytes())
        .unwrap();
    found
}

fn all_surfaces(host: Host, surfaces: &[Surface]) {
    let seed = seed();
    println!("{host:?}: STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    for surface in surfaces {
        // Without the hook before removals, a super-journal cannot be caught.
        if host == Host::Stock && surface.place == Place::Super {
            continue;
        }
        let needle = format!("needle{}{}", surface.name, random.text(8));
        let plain = exercise(host, surface, false, &needle, &mut random);
        assert!(
            plain.in_place(surface.place),
            "{}: the search is blind: {plain:?}",
            surface.name
        );
        let sealed = exercise(host, surface, true, &needle, &mut random);
        // The names of files are not secret; what a super-journal says of them is.
        assert!(
            sealed.hits.is_empty(),
            "{}: {:?}",
            surface.name,
            sealed.hits
        );
        assert!(
            sealed.seen.contains(&surface.place),
            "{}: nothing was there: {:?}",
            surface.name,
            sealed.seen
        );
        println!(
            "{host:?} {}: {} bytes searched in {:?}",
            surface.name, sealed.bytes, sealed.seen
        );
    }
}

#[test]
fn surfaces_on_the_bundled_sqlite() {
    all_surfaces(Host::Bundled, SURFACES);
}

#[test]
fn surfaces_on_the_distributions_sqlite() {
    all_surfaces(Host::Stock, SURFACES);
}

/// The trap: temporary files go through the connection's VFS, not through the attached database's.
#[test]
fn attached_to_a_connection_on_another_vfs() {
    for host in [Host::Bundled, Host::Stock] {
        let mut random = Random::new(seed());
        let needle = format!("needleattach{}", random.text(8));
        let room = Room::new(&mut random).unwrap();
        let mut worker = start(host, &room);
        worker
            .ask(&format!("open {}", room.sealed_uri("a.db", "")))
            .unwrap();
        for statement in [TABLE, ROWS] {
            worker
                .ask(&format!("sql {}", statement.replace('@', &needle)))
                .unwrap();
        }
        worker
            .ask(&format!("open {}", room.plain_uri("plain.db")))
            .unwrap();
        worker.ask(&format!("sql {ON_DISK}")).unwrap();
        worker.ask("sql CREATE TABLE own(a)").unwrap();
        worker.ask("every 30000").unwrap();
        let mut found = Found::default();
        let attach = format!(
            "sql ATTACH '{}&vfs=strongroom' AS s",
            room.sealed_uri("a.db", "")
        );
        let statements = [
            attach.as_str(),
            "sql SELECT b FROM s.t ORDER BY b",
            "sql CREATE TEMP TABLE x AS SELECT * FROM s.t",
            "sql INSERT INTO own SELECT b FROM s.t",
        ];
        let mut refused = 0;
        for statement in statements {
            let answer = worker.ask_with(statement, |pid| {
                found.search_process(pid, needle.as_bytes()).unwrap();
            });
            refused += u32::from(answer.is_err());
            found
                .search_directory(room.path(), needle.as_bytes())
                .unwrap();
            found
                .search_process(worker.id(), needle.as_bytes())
                .unwrap();
        }
        assert_eq!(
            refused, 4,
            "{host:?}: the attached database is of no use to that connection"
        );
        assert!(found.hits.is_empty(), "{host:?}: {:?}", found.hits);
        assert!(found.seen.contains(&Place::Main));
        // Through the VFS the same statements work, so it was not the statements that failed.
        worker.ask("every 0").unwrap();
        worker
            .ask(&format!("open file:{}", room.at("second.db").display()))
            .unwrap();
        worker.ask(&attach).unwrap();
        worker
            .ask("sql CREATE TEMP TABLE x AS SELECT * FROM s.t")
            .unwrap();
        worker.finish().unwrap();
    }
}

/// What goes wrong is said on standard error: the code, the place, but neither contents nor keys.
#[test]
fn the_log_of_errors() {
    for host in [Host::Bundled, Host::Stock] {
        let mut random = Random::new(seed());
        let needle = format!("needlelog{}", random.text(8));
        let room = Room::new(&mut random).unwrap();
        let mut worker = start(host, &room);
        let open = format!("open {}", room.sealed_uri("a.db", ""));
        worker.ask(&open).unwrap();
        for statement in [TABLE, FEW] {
            worker
                .ask(&format!("sql {}", statement.replace('@', &needle)))
                .unwrap();
        }
        let twice = worker
            .ask(&format!("sql INSERT INTO t VALUES(1, '{needle}')"))
            .unwrap_err();
        assert!(twice.to_string().contains("UNIQUE"), "{twice}");
        worker.ask("open file::memory:").unwrap();
        let mut bytes = std::fs::read(room.at("a.db")).unwrap();
        bytes[4096 + 3 * 4096 + 100] ^= 1;
        room.put("a.db", &bytes).unwrap();
        worker.ask(&open).unwrap();
        assert!(worker.ask("sql SELECT sum(length(b)) FROM t").is_err());
        let wrong = room
            .sealed_uri("a.db", "")
            .replace("keys/first", "keys/second");
        assert!(worker.ask(&format!("open {wrong}")).is_err());
        worker.finish().unwrap();
        let log = std::fs::read_to_string(room.at("stderr")).unwrap();
        assert!(
            log.contains("SR-4001") && log.contains("SR-2002"),
            "{host:?}: {log}"
        );
        let mut secrets = vec![needle];
        secrets.extend(
            ["first", "second"]
                .map(|key| std::fs::read_to_string(room.at("keys").join(key)).unwrap()),
        );
        for secret in secrets {
            assert!(!log.contains(&secret), "{host:?}: {log}");
        }
    }
}
