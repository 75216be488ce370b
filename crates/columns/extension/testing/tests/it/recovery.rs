//! Goal: recovery brings every value that a server's log can show: after crashes with open and
//! prepared transactions, on a standby that is promoted, and at a point in time between two
//! transactions.
//!
//! Method: real servers; a base backup taken under load; a second zone that begins from a copy of
//! the first one's store, made before the backup.

use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::{Server, open_to_all};

const ARCHIVE: &str = "wal_level = replica\nmax_wal_senders = 4\nhot_standby = on";

#[test]
fn index_tuples_of_open_transactions_have_values_after_a_crash() {
    let (mut owner, server) = start_all("");
    let _made = owner.rows(
        "create table t (id int, a enc_int4(ordered), b enc_text(ordered)) using strongroom; create index on t (a); create index on t (b);
         insert into t select g, 500, 'committed' from generate_series(1, 50) g; checkpoint",
    );
    for round in 0..2 {
        let mut open = owner.connect().expect("a connection");
        let _inserted = open
            .query("begin; insert into t select g, 400, 'open' from generate_series(1001, 1200) g")
            .expect("rows are inserted");
        // Another one's commit makes the log durable, the open transaction's index tuples with it.
        let _committed = owner.rows("insert into t values (2000, 600, 'later'); checkpoint");
        if round == 1 {
            owner.kill_zone();
        }
        server.kill();
        if round == 1 {
            owner.start_zone();
        }
        server.start_again();
        let range = "set enable_seqscan = off; set enable_bitmapscan = off;
            select count(*) from t where a > 100 and a < 550; select count(*) from t where b > 'a' and b < 'p'";
        owner.wait_for(range, &format!("50\n{}", 51 + round));
        // New keys go between the leftovers.
        let _more = owner.rows("insert into t values (1, 400, 'open'), (2, 401, 'openly'); delete from t where id in (1, 2) and a < 402; reindex table t; vacuum t");
        assert_eq!(owner.rows(range), format!("50\n{}", 51 + round));
    }
}

#[test]
fn prepared_transactions_keep_their_values() {
    let (mut owner, server) = start_all("");
    let _made = owner.rows("create table t (id int primary key, a enc_int4) using strongroom; insert into t values (1, 10)");
    let prepare = |name: &str, id: u32| {
        let mut client = owner.connect().expect("a connection");
        let sql = format!(
            "begin; insert into t values ({id}, {id}); update t set a = a + 100 where id = {id}; prepare transaction '{name}'"
        );
        let _prepared = client.query(&sql).expect("a transaction is prepared");
    };
    prepare("one", 2);
    prepare("two", 3);
    prepare("three", 4);
    owner.kill_zone();
    server.kill();
    owner.start_zone();
    server.start_again();
    owner.wait_for("select sum(a) from t", "10");
    let _ended = owner.rows("commit prepared 'one'; rollback prepared 'two'");
    assert_eq!(owner.rows("select id, a from t order by id"), "1|10\n2|102");
    server.kill();
    server.start_again();
    owner.wait_for("select id, a from t order by id", "1|10\n2|102");
    let _ended = owner.rows("commit prepared 'three'");
    assert_eq!(owner.rows("select sum(a) from t where a > 50"), "206");
}

/// PostgreSQL writes no log of these tables; of their values there is one all the same.
#[test]
fn unlogged_and_temporary_tables_live_through_an_end_of_the_zone() {
    let (mut owner, server) = start_all("");
    let rows =
        "insert into NAME select g, 7, 'a text that is out of line' from generate_series(1, 200) g";
    let make = |kind: &str, name: &str| {
        let rows = rows.replace("NAME", name);
        format!(
            "create {kind} table {name} (id int, a enc_int4, b enc_text) using strongroom; {rows}"
        )
    };
    drop(owner.rows(&make("unlogged", "u")));
    let mut client = owner.connect().expect("a connection");
    client
        .query(&make("temporary", "w"))
        .expect("a temporary table is made");
    owner.kill_zone();
    owner.start_zone();
    owner.wait_for(
        "select sum(a), min(b), max(b) from u",
        "1400|a text that is out of line|a text that is out of line",
    );
    drop(owner.rows("update u set a = a + 1; vacuum full u"));
    assert_eq!(owner.rows("select sum(a) from u"), "1600");
    // The connection's session with the zone is opened anew, the next time.
    let mut sum = client.query("select sum(a), max(b) from w");
    for _ in 0..20 {
        if sum.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
        sum = client.query("select sum(a), max(b) from w");
    }
    let sum = sum.expect("the temporary table's values are there");
    assert_eq!(sum[0].text(0, 0), "1400");
    assert_eq!(sum[0].text(0, 1), "a text that is out of line");
    drop(client);
    // A crash of the server's empties the one and takes the other away, as it does with any.
    server.kill();
    server.start_again();
    owner.wait_for("select count(*), sum(a) from u", "0|");
    drop(owner.rows(&rows.replace("NAME", "u")));
    assert_eq!(
        owner.rows("select sum(a), count(distinct b) from u"),
        "1400|1"
    );
}

/// Rows are inserted until it is dropped.
fn under_load<R>(owner: &Owner, work: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = owner.connect().expect("a connection");
            let mut id = 100_000;
            while !stop.load(Ordering::Relaxed) {
                let sql = format!("insert into t values ({id}, {id}, 'load')");
                let _row = client.query(&sql).expect("a row is inserted");
                id += 1;
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// A primary with rows, its zone's store copied first and its data directory after, both under
/// load.
fn backed_up(settings: &str) -> (Owner, Server, Owner, Server) {
    let (owner, server) = start_all(&format!("{ARCHIVE}\n{settings}"));
    let _made = owner.rows(
        "create table t (id int primary key, a enc_int4, b enc_text(ordered)) using strongroom; create index on t (b);
         insert into t select g, 1, 'before' from generate_series(1, 200) g",
    );
    // The backup has the log that it needs from here on.
    server.restart_with_checkpoint();
    owner.wait_for("select sum(a) from t", "200");
    let (copied, restored) = under_load(&owner, || {
        let copied = Owner::with_files_of(&owner, &["zone", "keyring", "root.key", "zone.key"]);
        let restored = server.base_backup();
        server.copy_log_to(&restored);
        (copied, restored)
    });
    (owner, server, copied, restored)
}

#[test]
fn a_standby_reads_and_is_promoted() {
    let (mut owner, server, mut other, standby) = backed_up("");
    standby_of(&server, &mut other, &standby, "");
    let _after = owner.rows("insert into t select g, 2, 'after' from generate_series(1001, 1100) g; update t set a = a + 1 where id <= 10");
    // Indexes in a keyed order, which the standby's zone has to have too.
    let names: Vec<String> = (1..=40).map(|n| format!("({n}, 'name {n}')")).collect();
    let _keyed = owner.rows(&format!(
        "create table u (id int, c enc_text(equality)) using strongroom; create unique index on u (c enc_text_equality_ops);
         insert into u values {}",
        names.join(", ")
    ));
    let by_name = "set enable_seqscan = off; select id from u where c in ('name 7', 'name 8', 'name 39', 'name 41') order by id";
    let ask = &format!(
        "select sum(a), count(*), max(b), min(b) from t where id < 100000; set enable_seqscan = off; select count(*) from t where b = 'after'; {by_name}"
    );
    let expected = "410|300|before|after\n100\n7\n8\n39";
    assert_eq!(owner.rows(ask), expected);
    other.wait_for_log(ask, expected, &standby);
    // The primary goes; the standby takes over, writes, and loses its memory too.
    owner.kill_zone();
    server.kill();
    let _promoted = standby.rows("select pg_promote()");
    other.wait_for("insert into t values (5000, 50, 'promoted') on conflict (id) do nothing; select a, b from t where id = 5000", "50|promoted");
    other.kill_zone();
    standby.kill();
    other.start_zone();
    standby.start_again();
    other.wait_for(
        &format!(
            "select a, b from t where id = 5000; select sum(a) from t where id < 5000; {by_name}"
        ),
        "50|promoted\n410\n7\n8\n39",
    );
    let twice = other.run("insert into u values (50, 'name 8')");
    assert!(twice.messages.contains("23505"), "{}", twice.messages);
}

/// A standby of the server, with a zone and a proxy of its own.
fn standby_of(server: &Server, other: &mut Owner, standby: &Server, settings: &str) {
    other.start_zone();
    standby.follow(server, &other.zone_socket(), settings);
    other.start_proxy(standby.socket());
}

/// What a standby shows it can read: a row that its snapshot sees has its values in the zone.
#[test]
fn a_standby_reads_every_row_that_it_shows() {
    let (owner, server, mut other, standby) = backed_up("");
    standby_of(&server, &mut other, &standby, "");
    other.wait_for_log(
        "select count(*) from t where a >= 0 and id < 100000",
        "200",
        &standby,
    );
    let mut client = other.connect().expect("a connection");
    for id in 3001..3021 {
        drop(owner.rows(&format!("insert into t values ({id}, {id}, 'new')")));
        // The row is visible at once, before the worker's next step.
        let begun = std::time::Instant::now();
        while standby.rows(&format!("select count(*) from t where id = {id}")) != "1" {
            assert!(
                begun.elapsed().as_secs() < 60,
                "the standby does not follow"
            );
        }
        let read = client.rows(&format!("select a, b from t where id = {id}"));
        let read = read.unwrap_or_else(|failure| panic!("row {id}: {failure}"));
        let shown: Vec<&str> = read[0]
            .iter()
            .filter_map(|field| field.as_deref())
            .collect();
        assert_eq!(shown, [id.to_string().as_str(), "new"]);
    }
    let copied = standby.rows(
        "copy (select count(*) from t where id < 100000) to stdout; copy t (id) to '/dev/null'",
    );
    assert_eq!(copied, "220");
}

/// Records that only the primary's memory had are lost with it, although its zone has them.
#[test]
fn a_standby_follows_a_primary_that_has_lost_the_end_of_its_log() {
    // Nothing but a commit writes the log.
    let (owner, server, mut other, standby) = backed_up("wal_writer_delay = 10s");
    standby_of(&server, &mut other, &standby, "");
    for round in 1..=3 {
        let mut open = owner.connect().expect("a connection");
        let _lost = open
            .query(&format!(
                "begin; insert into t values ({}, 1, 'lost'); create table u (c enc_text) using strongroom; insert into u values ('lost')",
                7000 + round
            ))
            .expect("rows are inserted");
        server.kill();
        server.start_again();
        owner.wait_for(
            &format!(
                "insert into t values ({}, {round}, 'kept') on conflict (id) do nothing; select count(*) from t where b = 'kept'",
                8000 + round
            ),
            &round.to_string(),
        );
    }
    let _later =
        owner.rows("create table u (c enc_text) using strongroom; insert into u values ('later')");
    other.wait_for_log(
        "select id, a from t where id between 7000 and 9000 order by id; select c from u",
        "8001|1\n8002|2\n8003|3\nlater",
        &standby,
    );
}

/// A standby that was killed is consistent before it has replayed again what its zone has read.
#[test]
fn a_standby_that_was_killed_comes_to_the_position_of_its_zone() {
    let (owner, server, mut other, standby) = backed_up("");
    standby_of(
        &server,
        &mut other,
        &standby,
        // Nothing but the log moves the position from which on it is consistent.
        "strongroom.checkpoint_interval = 100ms\nbgwriter_lru_maxpages = 0",
    );
    // With the zone that it had, and with one that was started anew.
    for (again, before, delay) in [(false, "before", 12), (true, "late", 40)] {
        other.wait_for_log(
            &format!("select max(b) from t where b = '{before}'"),
            before,
            &standby,
        );
        drop(owner.rows("insert into t values (500000, 1, 'late') on conflict do nothing; insert into t select g, 1, 'late' from generate_series(600001, 600100) g on conflict do nothing; update t set a = a + 1 where id = 500000"));
        let end = server.rows("select pg_current_wal_flush_lsn() - '0/0'");
        let durable =
            format!("select (strongroom_columns.status()->'store'->>'position')::numeric >= {end}");
        standby.wait_for(&durable, "t");
        if again {
            other.kill_zone();
        }
        standby.kill();
        drop(std::fs::remove_file(standby.log()));
        if again {
            other.start_zone();
        }
        // It stays before the zone's position for a while: commits are applied late.
        standby.configure(&format!("recovery_min_apply_delay = {delay}s\n"));
        standby.start_again();
        let ask = "select count(*), sum(a) from t where b = 'late'";
        let expected = owner.rows(ask);
        other.wait_for_log(ask, &expected, &standby);
        let said = standby.log_text();
        assert!(!said.contains("SR-8030"), "{}", standby.log_tail());
        assert!(
            said.contains("waiting until this standby has replayed"),
            "{}",
            standby.log_tail()
        );
    }
}

/// Values that the primary has freed stay on the standby for as long as a snapshot sees their rows.
#[test]
fn a_snapshot_of_a_standby_keeps_its_values() {
    let (owner, server, mut other, standby) = backed_up("");
    standby_of(
        &server,
        &mut other,
        &standby,
        "max_standby_streaming_delay = -1",
    );
    other.wait_for_log(
        "select count(*) from t where a >= 0 and id < 100000",
        "200",
        &standby,
    );
    let mut old = other.connect().expect("a connection");
    let ask = "select count(*), min(b), sum(id) from t where id < 100000 and a >= 0";
    let before = old.rows(&format!("begin isolation level repeatable read; {ask}"));
    let before = before.expect("a snapshot");
    for _ in 0..3 {
        drop(owner.rows("update t set a = 7, b = 'changed'"));
        drop(server.rows("vacuum t; select strongroom_columns.sweep('t')"));
    }
    drop(server.rows("select pg_switch_wal()"));
    // Its worker goes on reading the log as far as the standby replays it.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let after = old.rows(ask).expect("the old rows");
    assert_eq!(after, before);
    drop(old.query("commit"));
    other.wait_for_log(
        "select count(*) from t where b = 'changed' and id < 100000",
        "200",
        &standby,
    );
}

#[test]
fn a_point_in_time_between_two_transactions_is_restored() {
    let archive = tempfile::Builder::new()
        .prefix("archive-")
        .tempdir()
        .expect("a directory");
    let settings = format!(
        "archive_mode = on\narchive_command = 'cp %p {}/%f'",
        archive.path().display()
    );
    open_to_all(archive.path());
    let (owner, server, mut other, restored) = backed_up(&settings);
    let _first = owner
        .rows("insert into t values (1, 7, 'x') on conflict (id) do update set a = 7, b = 'first'");
    let target = server.rows("select pg_current_wal_insert_lsn()");
    let _second = owner.rows(
        "update t set a = 8, b = 'second' where id = 1; insert into t values (3000, 1, 'too late')",
    );
    let _kept = server.rows("select pg_switch_wal()");
    server.stop();
    other.start_zone();
    restored.configure(&format!(
        "strongroom.zone = '{}'\narchive_mode = off\nrestore_command = 'cp {}/%f %p'\nrecovery_target_lsn = '{target}'\nrecovery_target_action = promote\n",
        other.zone_socket().display(),
        archive.path().display()
    ));
    restored.make_signal_file("recovery.signal");
    restored.start_again();
    other.start_proxy_deriving(restored.socket());
    other.wait_for_log(
        "select a, b from t where id = 1; select count(*) from t where id = 3000",
        "7|first\n0",
        &restored,
    );
    assert_eq!(
        other.rows("select sum(a) from t where id between 2 and 200"),
        "199"
    );
    // Values may be read before the log's end has been; they may be written after it only.
    other.wait_for(
        "insert into t values (3000, 5, 'another history') returning id",
        "3000",
    );
    let _row = other.rows("update t set b = b || '!' where id = 1");
    other.kill_zone();
    restored.kill();
    other.start_zone();
    restored.start_again();
    other.wait_for(
        "select a, b from t where id in (1, 3000) order by id",
        "7|first!\n5|another history",
    );
}

#[test]
fn an_operator_dumps_and_restores_what_he_cannot_read() {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table t (id int primary key, a enc_int4, b enc_text(ordered)) using strongroom; create index on t (b);
         insert into t values (1, 1, 'canary'), (2, 2, 'canary'), (3, 0, 'canary'), (9, null, null)",
    );
    let dump = server.dump("t");
    assert!(dump.contains("sr1:") && !dump.contains("canary"), "{dump}");
    let _gone = server.rows("drop table t");
    let _back = server.rows(&dump);
    assert_eq!(
        owner.rows("select id, a, b from t order by id"),
        "1|1|canary\n2|2|canary\n3|0|canary\n9||"
    );
}
