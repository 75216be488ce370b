//! Goal: values that nothing refers to are freed, and no other ever is.
//!
//! Method: a table with an index is changed, vacuumed and swept; what the sweep and the store count
//! must be what the rows say, and every look-up by index must find what it found before. Readers
//! with old snapshots, cursors that are kept, writers that go on, kills in the middle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::{Server, must};

fn begin() -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    // Nothing but the tests sweeps or vacuums.
    let settings = "autovacuum = off\nstrongroom.sweep_interval = 0\nstrongroom.sweep_delay = 0";
    let server = Server::start(&owner.zone_socket(), settings);
    drop(server.rows("create extension strongroom_columns"));
    owner.start_proxy_deriving(server.socket());
    (owner, server)
}

/// Makes a table with so many rows, `code` being `id`, and an index on `code`.
fn fill(owner: &Owner, rows: u32) {
    drop(owner.rows(
        "create table t (id int primary key, note int, code enc_int4(ordered)) using strongroom",
    ));
    let mut count = rows.min(500);
    let values: Vec<String> = (1..=count).map(|id| format!("({id}, 0, {id})")).collect();
    drop(owner.rows(&format!("insert into t values {}", values.join(", "))));
    while count < rows {
        let more = count.min(rows - count);
        drop(owner.rows(&format!(
            "insert into t select id + {count}, 0, code + {count} from t where id <= {more}"
        )));
        count += more;
    }
    drop(owner.rows("create index t_code on t (code)"));
}

/// Values in the store, and in quarantine.
fn counts(server: &Server) -> (u64, u64) {
    let sql = "select s->'store'->>'values', s->'store'->>'quarantine' from strongroom_columns.status() s";
    let rows = server.rows(sql);
    let (values, held) = rows.split_once('|').expect("two fields");
    let number = |text: &str| text.parse().expect("a number");
    (number(values), number(held))
}

/// What a sweep says: quarantined, freed, values left.
fn sweep(server: &Server) -> (u64, u64, u64) {
    let rows = server.rows(
        "select s->>'quarantined', s->>'freed', s->>'values' from strongroom_columns.sweep('t') s",
    );
    let fields: Vec<u64> = rows
        .split('|')
        .map(|text| text.parse().expect("a number"))
        .collect();
    let [quarantined, freed, values] = fields.as_slice() else {
        unreachable!("three fields: {rows}")
    };
    (*quarantined, *freed, *values)
}

fn wait_until(path: &std::path::Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed().as_secs() < 60, "{}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A `psql` command that says that it is there and waits for a file.
fn pause(owner: &Owner, there: &str, go: &str) -> String {
    let (there, go) = (owner.path(there), owner.path(go));
    format!(
        "\\! touch {}; while [ ! -e {} ]; do sleep 0.02; done\n",
        there.display(),
        go.display()
    )
}

fn touch(owner: &Owner, name: &str) {
    drop(std::fs::File::create(owner.path(name)).expect("a file of our own"));
}

#[test]
fn what_was_deleted_is_freed_and_every_look_up_still_works() {
    let (owner, server) = begin();
    let rows = 50_000;
    fill(&owner, rows);
    assert_eq!(counts(&server), (rows.into(), 0));
    assert_eq!(sweep(&server), (0, 0, rows.into()));
    drop(owner.rows("delete from t where id % 2 = 1"));
    // Nobody has taken the old versions away yet: nothing is garbage.
    assert_eq!(sweep(&server), (0, 0, rows.into()));
    drop(server.rows("vacuum t; vacuum t;"));
    let look = "set enable_seqscan = off; set enable_bitmapscan = off;
        select id from t where code = 31; select id from t where code = 32;
        select count(*), min(id), max(id) from t where code between 1000 and 2001;
        select id from t where code < 10 order by code;
        select id from t order by code desc limit 3;";
    let before = owner.rows(look);
    assert_eq!(before, "32\n501|1000|2000\n2\n4\n6\n8\n50000\n49998\n49996");
    let (quarantined, freed, _) = sweep(&server);
    assert_eq!(freed, 0, "one sweep frees nothing");
    // A leaf has an even number of rows, so every high key and pivot is one of the deleted: that
    // they are found is what this is about.
    assert!((20_000..25_000).contains(&quarantined), "{quarantined}");
    assert_eq!(owner.rows(look), before);
    let (again, freed, left) = sweep(&server);
    assert_eq!(
        (again, freed, left),
        (0, quarantined, u64::from(rows) - quarantined)
    );
    assert_eq!(counts(&server), (left, 0));
    assert_eq!(owner.rows(look), before);
    let inserts =
        "insert into t select id - 1, 1, code - 1 from t where id % 2 = 0 and id <= 20000";
    drop(owner.rows(inserts));
    assert_eq!(owner.rows("select count(*) from t a where not exists (select from t b where b.code = a.code and b.id = a.id)"), "0");
    // Without old pages in the index everything goes.
    drop(server.rows("reindex table t"));
    sweep(&server);
    sweep(&server);
    assert_eq!(counts(&server), (35_000, 0));
    assert_eq!(owner.rows("set enable_seqscan = off; select id from t where code in (31, 32, 20000, 20001, 50000) order by id"), "31\n32\n20000\n50000");
}

#[test]
fn an_old_snapshot_keeps_its_values() {
    let (owner, server) = begin();
    fill(&owner, 2000);
    let ask = "select count(*), sum(code) from t;\n";
    let before = owner.rows(ask);
    let reader = format!(
        "begin isolation level repeatable read;\n{ask}{}{ask}commit;\n{ask}",
        pause(&owner, "there", "go")
    );
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| owner.rows(&reader));
        wait_until(&owner.path("there"));
        drop(owner.rows("update t set code = code + 1"));
        for _ in 0..3 {
            drop(server.rows("vacuum t"));
            assert_eq!(sweep(&server), (0, 0, 4000));
        }
        touch(&owner, "go");
        let after = owner.rows(ask);
        assert_ne!(before, after);
        let seen = reading.join().expect("the reader does not panic");
        assert_eq!(seen, format!("{before}\n{before}\n{after}"));
    });
    drop(server.rows("vacuum t; reindex table t"));
    assert_eq!(sweep(&server).0, 2000);
    assert_eq!(sweep(&server), (0, 2000, 2000));
}

#[test]
fn a_cursor_that_is_kept_keeps_its_values_and_may_store_them_again() {
    let (owner, server) = begin();
    fill(&owner, 100);
    drop(server.rows("create function again() returns void language plpgsql as $$
        declare v enc_int4; k refcursor := 'c'; begin fetch from k into v; insert into t values (1000, 0, v); end $$"));
    let session = format!(
        "declare c cursor with hold for select code from t order by id;\n{}fetch 2 from c;\n\
         select again();\nclose c;\n",
        pause(&owner, "there", "go")
    );
    std::thread::scope(|scope| {
        let holding = scope.spawn(|| owner.run(&session));
        wait_until(&owner.path("there"));
        drop(owner.rows("delete from t"));
        drop(server.rows("vacuum t; reindex table t"));
        assert_eq!(sweep(&server), (100, 0, 100));
        for _ in 0..3 {
            assert_eq!(sweep(&server), (0, 0, 100), "someone may hold them");
        }
        touch(&owner, "go");
        let said = holding.join().expect("the session does not panic");
        assert_eq!(said.rows.trim(), "1\n2", "{}", said.messages);
        assert!(!said.messages.contains("ERROR"), "{}", said.messages);
    });
    assert_eq!(owner.rows("select id, code from t"), "1000|3");
    sweep(&server);
    assert_eq!(sweep(&server).2, 1, "what was stored again stays");
    assert_eq!(owner.rows("select id, code from t"), "1000|3");
}

/// A zone that is started anew does not know of sweeps that found nothing. The next ones must not
/// pass for those: what began after them has read nothing that the next ones find.
#[test]
fn a_cursor_keeps_its_values_whichever_sweeps_the_zone_knows_of() {
    let (mut owner, server) = begin();
    fill(&owner, 100);
    for _ in 0..5 {
        assert_eq!(sweep(&server), (0, 0, 100));
    }
    owner.kill_zone();
    owner.start_zone();
    owner.wait_for("select sum(code) from t", "5050");
    let mut session = must(owner.connect(), "a connection");
    let declare = "declare c cursor with hold for select code from t order by id";
    drop(must(session.query(declare), "a cursor"));
    drop(owner.rows("delete from t"));
    drop(server.rows("vacuum t; reindex table t"));
    assert_eq!(sweep(&server), (100, 0, 100));
    for _ in 0..3 {
        assert_eq!(sweep(&server), (0, 0, 100), "the cursor has them");
    }
    let rows = must(session.rows("fetch 2 from c"), "rows");
    assert_eq!(rows.len(), 2);
    drop(session);
    sweep(&server);
    assert_eq!(sweep(&server).2, 0);
}

#[test]
fn what_was_undone_is_freed_and_what_is_shared_is_not() {
    let (owner, server) = begin();
    fill(&owner, 1000);
    drop(owner.rows("begin; insert into t select id + 5000, 0, code + 5000 from t; savepoint a; update t set code = code + 1; rollback"));
    // An old version goes; the new one has its identifier.
    drop(owner.rows("update t set note = 1"));
    drop(server.rows("vacuum t; reindex table t"));
    sweep(&server);
    sweep(&server);
    assert_eq!(counts(&server), (1000, 0));
    drop(owner.rows(
        "begin; insert into t select id + 9000, 0, code + 9000 from t; prepare transaction 'p'",
    ));
    for _ in 0..3 {
        assert_eq!(
            sweep(&server),
            (0, 0, 2000),
            "the prepared transaction's stay"
        );
    }
    drop(server.rows("commit prepared 'p'"));
    assert_eq!(
        owner.rows("select count(*), sum(code), sum(note) from t"),
        "2000|10001000|1000"
    );
    assert_eq!(
        server.rows("select (strongroom_columns.status()->'store'->>'partitions')::int"),
        "1"
    );
    let partitions = PARTITIONS;
    drop(owner.rows("begin; truncate t; insert into t values (1, 1, 1); rollback"));
    assert_eq!(
        (server.rows(partitions), counts(&server).0),
        ("1".into(), 2000)
    );
    drop(owner.rows("begin; truncate t; insert into t values (1, 1, 1); commit"));
    assert_eq!(
        (server.rows(partitions), counts(&server).0),
        ("1".into(), 1)
    );
    drop(owner.rows("drop table t"));
    assert_eq!(
        (server.rows(partitions), counts(&server).0),
        ("0".into(), 0)
    );
}

/// Who may sweep what.
#[test]
fn a_sweep_is_its_owner_s() {
    let (owner, server) = begin();
    fill(&owner, 10);
    let refused = |sql: &str, state: &str| {
        let said = server.run(sql);
        assert!(said.messages.contains(state), "{sql}: {}", said.messages);
    };
    drop(server.rows("create role stranger; create table plain (a int); create temp table own (c enc_int4) using strongroom"));
    refused(
        "set role stranger; select strongroom_columns.sweep('t')",
        "42501",
    );
    refused("select strongroom_columns.sweep('plain')", "42809");
    refused("select strongroom_columns.sweep('t_code')", "42809");
    assert_eq!(
        server.rows("select strongroom_columns.sweep('t') is null"),
        "f"
    );
}

/// Writers, readers by index and vacuum go on while one sweep follows the other.
#[test]
fn sweeps_disturb_nobody() {
    let (owner, server) = begin();
    fill(&owner, 3000);
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (owner, over) = (&owner, &over);
            scope.spawn(move || {
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    let sql = format!(
                        "update t set code = code + 3000 where id % 2 = {part} and id % 7 = {round} % 7;
                         update t set note = note + 1 where id % 2 = {part} and id % 5 = {round} % 5;
                         begin; delete from t where id % 2 = {part} and id % 11 = {round} % 11; rollback;
                         set enable_seqscan = off; select count(*) from t where code > {round} and id % 2 = {part};"
                    );
                    assert_eq!(owner.rows(&sql).trim(), "1500");
                }
            });
        }
        let (mut sweeps, mut freed) = (0, 0);
        while begun.elapsed() < Duration::from_secs(10) {
            drop(server.rows("vacuum t"));
            let (_, more, _) = sweep(&server);
            sweeps += 1;
            freed += more;
        }
        over.store(true, Ordering::Relaxed);
        assert!(sweeps > 3 && freed > 100, "{sweeps} sweeps freed {freed}");
    });
    drop(server.rows("vacuum t; reindex table t"));
    sweep(&server);
    assert_eq!(sweep(&server).2, 3000);
    // Three thousand is all that codes were raised by.
    let rows = owner.rows("select id, code from t");
    let differs = rows.lines().find(|row| {
        let (id, code) = row.split_once('|').expect("two fields");
        let number = |text: &str| text.parse::<u32>().expect("a number") % 3000;
        number(id) != number(code)
    });
    assert_eq!(differs, None);
}

/// Kills of the zone, of the server, of both, while it is swept: nothing that is referred to is
/// lost.
#[test]
fn kills_in_the_middle_lose_nothing() {
    let (mut owner, server) = begin();
    fill(&owner, 2000);
    let ask = "set enable_seqscan = off; select count(*), sum(code) from t where code > 0";
    for round in 0..6 {
        drop(owner.rows(&format!("update t set code = code + 1 where id % 3 = {round} % 3; delete from t where id % 40 = {round}")));
        let before = owner.rows(ask);
        std::thread::scope(|scope| {
            let sweeping = scope.spawn(|| {
                // Fails when it is killed.
                drop(server.run("vacuum t; set strongroom.sweep_delay = 1; select strongroom_columns.sweep('t');\nselect strongroom_columns.sweep('t');\nselect strongroom_columns.sweep('t');"));
            });
            std::thread::sleep(Duration::from_millis(40 * round));
            if round % 3 != 1 {
                owner.kill_zone();
                owner.start_zone();
            }
            if round % 3 != 0 {
                server.crash_and_start();
            }
            drop(sweeping.join());
        });
        let begun = Instant::now();
        while owner.run(ask).rows != before {
            let said = owner.run(ask);
            assert!(
                begun.elapsed().as_secs() < 60,
                "round {round}: {}{}",
                said.rows,
                said.messages
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let rows: u64 = owner
        .rows("select count(*) from t")
        .parse()
        .expect("a number");
    drop(server.rows("vacuum t; reindex table t"));
    sweep(&server);
    sweep(&server);
    assert_eq!(counts(&server), (rows, 0));
}

const PARTITIONS: &str = "select (strongroom_columns.status()->'store'->>'partitions')::int";

/// Makes a database with two confidential tables that have a value each.
fn make_database(owner: &Owner, server: &Server, name: &str) {
    drop(server.rows(&format!(
        "create database {name}; \\c {name}\ncreate extension strongroom_columns"
    )));
    drop(owner.rows(&format!(
        "\\c {name}\ncreate table t (a enc_int4) using strongroom; create table u (a enc_int4) using strongroom;
         insert into t values (5); insert into u values (6)"
    )));
}

#[test]
fn a_dropped_database_leaves_nothing_in_the_zone() {
    let (owner, server) = begin();
    fill(&owner, 10);
    make_database(&owner, &server, "shop");
    make_database(&owner, &server, "other");
    assert_eq!(server.rows(PARTITIONS), "5");
    let (values, _) = counts(&server);
    // A drop that fails takes nothing.
    let said = server.run("begin; drop database shop; commit");
    assert!(said.messages.contains("25001"), "{}", said.messages);
    assert_eq!(server.rows(PARTITIONS), "5");
    assert_eq!(server.rows("drop database shop with (force)"), "");
    assert_eq!(server.rows(PARTITIONS), "3");
    assert_eq!(counts(&server).0, values - 2);
    let rest = owner.rows("\\c other\nselect t.a, u.a from t, u");
    assert_eq!(rest.lines().last(), Some("5|6"));
    assert_eq!(owner.rows("select sum(code) from t"), "55");
}

#[test]
fn what_was_dropped_while_the_zone_was_away_is_reclaimed() {
    let (mut owner, server) = begin();
    fill(&owner, 10);
    make_database(&owner, &server, "shop");
    assert_eq!(server.rows(PARTITIONS), "3");
    owner.stop_zone();
    assert_eq!(server.rows("drop database shop with (force)"), "");
    owner.start_zone();
    server.stop();
    server.start_again();
    server.wait_for(PARTITIONS, "1");
    owner.wait_for("select sum(code) from t", "55");
    // The log says so, too.
    owner.kill_zone();
    owner.start_zone();
    server.wait_for(PARTITIONS, "1");
}

/// The zone frees at once; what has removed the last row with a value may be in the server's memory
/// only, and is lost with it.
#[test]
fn what_a_sweep_has_freed_no_crash_of_the_server_brings_back() {
    let mut owner = Owner::new();
    owner.start_zone();
    // Nothing but a commit, and the worker once a second, writes the log while its writer is
    // stopped.
    let settings = "autovacuum = off\nstrongroom.sweep_interval = 0\nstrongroom.sweep_delay = 0\nwal_writer_delay = 10s";
    let server = Server::start(&owner.zone_socket(), settings);
    drop(server.rows("create extension strongroom_columns"));
    owner.start_proxy_deriving(server.socket());
    drop(owner.rows("create table t (id int, code enc_int4) using strongroom"));
    let values: Vec<String> = (1..=200).map(|id| format!("({id}, {id})")).collect();
    let insert = format!("insert into t values {}", values.join(", "));
    for round in 0..8 {
        drop(owner.rows(&insert));
        server.suspend("walwriter");
        let freed = server.rows(
            "set synchronous_commit = off; delete from t where id % 2 = 1; vacuum (truncate off) t;
             select from strongroom_columns.sweep('t');
             select s->>'freed' from strongroom_columns.sweep('t') s",
        );
        // In later rounds with what the round before has left.
        let count = freed
            .lines()
            .last()
            .and_then(|line| line.parse::<u32>().ok());
        assert!(count >= Some(100), "round {round}: {freed}");
        server.kill();
        server.start_again();
        owner.wait_for(
            "select count(*) = count(*) filter (where code > 0) from t",
            "t",
        );
        drop(owner.rows("delete from t; vacuum t"));
    }
}
