//! Goal: logical replication of a confidential table: what left one zone sealed is a value in the
//! other, for whoever replicates without being able to read.
//!
//! Method: two servers, each with a zone of its own; the owner's keyring is the same. Rows are
//! compared through the proxies. What does not work has to fail in words, and go on when its cause
//! is gone.

use std::time::Duration;

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

const TABLE: &str = "create table t (id int primary key, a enc_int4(ordered), b enc_text, n enc_numeric, d enc_timestamptz) using strongroom";
const ASK: &str = "select * from t order by id";

/// One side: a zone, a server, a proxy.
fn side(owner: &mut Owner) -> Server {
    owner.start_zone();
    let server = Server::start(
        &owner.zone_socket(),
        "wal_level = logical\nautovacuum = off\nwal_retrieve_retry_interval = 200ms",
    );
    drop(server.rows("create extension strongroom_columns"));
    owner.start_proxy_deriving(server.socket());
    // The zone gets the keys with the first session.
    drop(owner.rows(TABLE));
    server
}

struct Pair {
    owner: Owner,
    publisher: Server,
    other: Owner,
    subscriber: Server,
    /// The zone has a key while a session has it, or a column has values under it.
    session: Option<Client>,
}

fn pair() -> Pair {
    let mut owner = Owner::new();
    let publisher = side(&mut owner);
    let mut other = Owner::with_files_of(&owner, &["keyring", "root.key"]);
    let subscriber = side(&mut other);
    drop(publisher.rows("create publication p for table t"));
    let session = other.connect().ok();
    assert!(session.is_some(), "a connection");
    Pair {
        owner,
        publisher,
        other,
        subscriber,
        session,
    }
}

impl Pair {
    fn subscribe(&self, options: &str) {
        drop(self.subscriber.rows(&format!(
            "create subscription s connection 'host={} user=postgres dbname=postgres' publication p {options}",
            self.publisher.socket().display()
        )));
    }

    /// Waits until the other side has the same rows.
    fn wait(&self) {
        let expected = self.owner.rows(ASK);
        self.other.wait_for_log(ASK, &expected, &self.subscriber);
    }
}

fn fill(owner: &Owner) {
    drop(owner.rows(
        "insert into t select g, 1, 'from the beginning', 1.50, '2020-02-29 12:00:00+00' from generate_series(1, 50) g;
         update t set a = a + 41 where id = 7; update t set b = null, n = null where id = 8",
    ));
}

fn changes(pair: &Pair) {
    let owner = &pair.owner;
    drop(owner.rows(
        "update t set a = a + 1, n = n * 2 where id <= 10; delete from t where id between 20 and 29;
         insert into t values (100, -5, 'later', 0.00, null), (101, null, '', -12345678901234567890.5, '1999-12-31 23:59:59.999+00');
         begin; insert into t values (102, 1, 'never', 1, null); rollback;
         begin; update t set b = 'twice' where id = 100; update t set b = b || ' changed' where id = 100; commit",
    ));
    pair.wait();
    assert_eq!(
        pair.other.rows("select a, b from t where id = 100"),
        "-5|twice changed"
    );
    // A primary key that changes; a table that is emptied and filled again.
    drop(owner.rows("update t set id = 500 where id = 100; truncate t; insert into t values (1, 1, 'again', 1, null)"));
    pair.wait();
    fill_more(owner);
    pair.wait();
}

fn fill_more(owner: &Owner) {
    drop(
        owner.rows(
            "insert into t select g, 3, 'more', 2.25, null from generate_series(1000, 1400) g",
        ),
    );
}

#[test]
fn rows_go_from_zone_to_zone() {
    let pair = pair();
    fill(&pair.owner);
    pair.subscribe("");
    pair.wait();
    changes(&pair);
    drop(pair.subscriber.rows("create index on t (a)"));
    assert_eq!(
        pair.other
            .rows("set enable_seqscan = off; select count(*) from t where a = 3"),
        "401"
    );
    // Who replicates reads nothing of it.
    let answer = pair.subscriber.run("select sum(a) from t");
    assert!(answer.messages.contains("42501"), "{}", answer.rows);
}

#[test]
fn rows_go_in_binary_form() {
    let pair = pair();
    fill(&pair.owner);
    pair.subscribe("with (binary = true, streaming = true)");
    pair.wait();
    changes(&pair);
}

#[test]
fn replication_goes_on_after_the_end_of_either_zone_and_either_server() {
    let mut pair = pair();
    fill(&pair.owner);
    pair.subscribe("");
    pair.wait();
    // From here on nobody of the owner's is connected to the other side but to look.
    pair.session = None;
    for round in 0..4 {
        match round {
            0 => pair.other.kill_zone(),
            1 => pair.owner.kill_zone(),
            2 => pair.subscriber.kill(),
            _ => pair.publisher.kill(),
        }
        if round != 1 && round != 3 {
            drop(pair.owner.rows(&format!(
                "insert into t values ({}, 6, 'meanwhile', 0.5, null)",
                2000 + round
            )));
        }
        std::thread::sleep(Duration::from_millis(1500));
        match round {
            0 => pair.other.start_zone(),
            1 => pair.owner.start_zone(),
            2 => pair.subscriber.start_again(),
            _ => pair.publisher.start_again(),
        }
        pair.owner.wait_for("select count(a + 0) > 0 from t", "t");
        drop(pair.owner.rows(&format!(
            "insert into t values ({}, 7, 'after', 0.5, null)",
            3000 + round
        )));
        pair.wait();
    }
}

/// What the walsender has not read yet when it is swept, dropped or rewritten.
#[test]
fn a_subscriber_that_lags_gets_what_was_there() {
    let pair = pair();
    fill(&pair.owner);
    pair.subscribe("");
    pair.wait();
    drop(pair.subscriber.rows("alter subscription s disable"));
    drop(
        pair.owner
            .rows("update t set a = a + 1; delete from t where id > 25"),
    );
    drop(pair.publisher.rows("vacuum t; reindex table t"));
    for _ in 0..4 {
        drop(pair.publisher.rows("select strongroom_columns.sweep('t')"));
    }
    drop(
        pair.owner
            .rows("insert into t values (70, 70, 'behind the sweep', 0, null)"),
    );
    drop(pair.subscriber.rows("alter subscription s enable"));
    pair.wait();
    drop(pair.subscriber.rows("alter subscription s disable"));
    drop(pair.owner.rows("insert into t values (80, 80, 'before it was emptied', 0, null); truncate t; insert into t values (81, 81, 'after it was', 0, null)"));
    drop(pair.subscriber.rows("alter subscription s enable"));
    pair.wait();
    assert_eq!(pair.other.rows("select a, b from t"), "81|after it was");
}

/// A column that has values of its own takes those of the same name's, and none of another lineage
/// without a session.
#[test]
fn a_table_with_rows_of_its_own_takes_those_of_its_name() {
    let pair = pair();
    drop(
        pair.other
            .rows("insert into t values (1, 1, 'of its own', 1, null)"),
    );
    drop(
        pair.owner
            .rows("insert into t values (2, 2, 'replicated', 2, null)"),
    );
    pair.subscribe("");
    let both = "1|of its own\n2|replicated";
    let ask = "select id, b from t order by id";
    pair.other.wait_for_log(ask, both, &pair.subscriber);
}

/// The subscriber's table had another name when its rows were stored.
#[test]
fn a_table_with_rows_of_another_name_takes_none() {
    let pair = pair();
    let renamed = TABLE.replace("table t", "table u");
    drop(pair.other.rows(&format!(
        "drop table t; {renamed}; insert into u values (1, 1, 'of its own', 1, null); alter table u rename to t"
    )));
    drop(
        pair.owner
            .rows("insert into t values (2, 2, 'replicated', 2, null)"),
    );
    pair.subscribe("");
    pair.subscriber.wait_in_log("SR-8006");
    assert_eq!(pair.other.rows("select id, b from t"), "1|of its own");
    // Emptied, it gets a partition without a lineage.
    drop(pair.subscriber.rows("truncate t"));
    pair.wait();
}

/// Without a key the old row is looked for by comparing all columns, which columns that are
/// comparable without a session allow.
#[test]
fn a_full_replica_identity_finds_rows_by_comparable_columns() {
    let pair = pair();
    let table = "create table v (id int, a enc_int4(ordered), e enc_text(equality), note text) using strongroom";
    for owner in [&pair.owner, &pair.other] {
        drop(owner.rows(table));
    }
    drop(
        pair.publisher
            .rows("alter table v replica identity full; alter publication p add table v"),
    );
    let rows: Vec<String> = (1..=300)
        .map(|n| format!("({}, {}, 'mail {}', 'row {n}')", n % 3, n % 10, n % 50))
        .collect();
    drop(pair.owner.rows(&format!(
        "insert into v values {}, (9, null, null, 'nothing'), (9, null, null, 'nothing')",
        rows.join(", ")
    )));
    pair.subscribe("");
    let ask = "select id, a, e, note from v order by note, id, a";
    let wait = || {
        let expected = pair.owner.rows(ask);
        pair.other.wait_for_log(ask, &expected, &pair.subscriber);
    };
    wait();
    for change in [
        "update v set a = a + 1 where note = 'row 77'",
        "update v set e = 'another' where a = 3 and id = 1",
        "update v set note = 'changed' where e = 'mail 7'",
        "delete from v where e = 'mail 9' and a = 9",
        // One of two rows that are the same.
        "delete from v where ctid = (select max(ctid) from v where note = 'nothing')",
        "update v set e = null, a = null where id = 2",
        "delete from v where e is null",
    ] {
        drop(pair.owner.rows(change));
        wait();
    }
    assert!(!pair.subscriber.log_text().contains("SR-8006"));
}

/// With an opaque column comparing takes a session.
#[test]
fn a_full_replica_identity_with_opaque_columns_is_refused() {
    let pair = pair();
    drop(pair.publisher.rows("alter table t replica identity full"));
    drop(pair.subscriber.rows("alter table t drop constraint t_pkey"));
    fill(&pair.owner);
    pair.subscribe("");
    pair.wait();
    drop(pair.owner.rows("update t set a = a + 1 where id = 3"));
    pair.subscriber.wait_in_log("SR-8006");
}
