//! Goal: rows that were read before their table was emptied, dropped or rewritten can be used for
//! as long as PostgreSQL allows it, and their values go from the zone afterwards.
//!
//! Method: a session keeps rows in a cursor, in a procedure's variable, in a replication slot;
//! another one takes the table away. The rows must be what they were, and the number of the zone's
//! partitions must fall to that of the tables there are, by itself.

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::{Server, must};

const PARTITIONS: &str = "select (strongroom_columns.status()->'store'->>'partitions')::int";

fn begin(settings: &str) -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let settings = format!("autovacuum = off\nstrongroom.sweep_interval = 0\n{settings}");
    let server = Server::start(&owner.zone_socket(), &settings);
    drop(server.rows("create extension strongroom_columns"));
    owner.start_proxy_deriving(server.socket());
    (owner, server)
}

/// Makes a table of three rows.
fn make(owner: &Owner, name: &str) {
    drop(owner.rows(&format!(
        "create table {name} (id int, code enc_int4(ordered), word enc_text) using strongroom;
         insert into {name} values (1, 10, 'one'), (2, 20, 'two'), (3, 30, 'three')"
    )));
}

/// A session with a cursor that is kept, over a table that is made for it; the first row is
/// fetched.
fn holding(owner: &Owner, table: &str) -> Client {
    make(owner, table);
    let mut session = must(owner.connect(), "a connection");
    let declare = format!(
        "begin; declare c cursor with hold for select id, code, word from {table} order by id; commit"
    );
    drop(must(session.query(&declare), "a cursor"));
    assert_eq!(fetch(&mut session, "1"), "1|10|one");
    session
}

/// The rows that are fetched from the cursor, a line each.
fn fetch(session: &mut Client, count: &str) -> String {
    let rows = must(session.rows(&format!("fetch {count} from c")), "rows");
    let texts = rows.iter().map(|row| {
        let fields = row.iter().map(|field| field.as_deref().unwrap_or("NULL"));
        fields.collect::<Vec<&str>>().join("|")
    });
    texts.collect::<Vec<String>>().join("\n")
}

#[test]
fn a_cursor_that_is_kept_outlives_its_table() {
    let (owner, server) = begin("");
    let ends = [
        ("emptied", "truncate emptied"),
        ("dropped", "drop table dropped"),
        (
            "rewritten",
            "alter table rewritten add column more float default random()",
        ),
        (
            "replaced",
            "begin; drop table replaced; create table replaced (id int, code enc_int4(ordered), word enc_text) using strongroom; commit",
        ),
    ];
    for (table, end) in ends {
        let mut session = holding(&owner, table);
        drop(owner.rows(end));
        assert_eq!(fetch(&mut session, "all"), "2|20|two\n3|30|three", "{end}");
        drop(owner.rows(&format!("drop table if exists {table}")));
        drop(must(session.query("close c"), "closed"));
        server.wait_for(PARTITIONS, "0");
    }
    // By the session that has the cursor, and with nobody else's statement in between.
    let mut session = holding(&owner, "own");
    drop(must(session.query("truncate own"), "emptied"));
    assert_eq!(fetch(&mut session, "all"), "2|20|two\n3|30|three");
    drop(must(session.query("drop table own"), "dropped"));
    drop(session);
    server.wait_for(PARTITIONS, "0");
}

#[test]
fn a_table_that_nothing_reads_goes_at_once() {
    let (owner, server) = begin("");
    for end in ["truncate t; drop table t", "drop table t"] {
        make(&owner, "t");
        drop(owner.rows(end));
        assert_eq!(server.rows(PARTITIONS), "0", "{end}");
    }
    // A temporary table is its session's own: others' cursors keep nothing of it.
    let mut other = holding(&owner, "kept");
    let mut session = must(owner.connect(), "a connection");
    for _ in 0..3 {
        let temporary = "begin; create temp table x (a enc_int4) using strongroom on commit drop;
             insert into x values (1); commit";
        drop(must(session.query(temporary), "a temporary table"));
        assert_eq!(server.rows(PARTITIONS), "1");
    }
    assert_eq!(fetch(&mut other, "1"), "2|20|two");
}

#[test]
fn variables_outlive_what_was_undone() {
    let (owner, server) = begin("");
    drop(owner.rows(
        "create table t (id int, code enc_int4) using strongroom; insert into t values (1, 10)",
    ));
    drop(server.rows(
        "create procedure undone() language plpgsql as $$
         declare v enc_int4;
         begin
            begin
                create temp table x using strongroom as select code from t;
                select code into v from x;
                raise exception 'undo';
            exception when raise_exception then null;
            end;
            insert into t values (2, v);
            create table y using strongroom as select code from t where id = 1;
            select code into v from y;
            commit;
            drop table y;
            commit;
            insert into t values (3, v);
         end $$",
    ));
    drop(owner.rows("call undone()"));
    assert_eq!(
        owner.rows("select id, code from t order by id"),
        "1|10\n2|10\n3|10"
    );
    server.wait_for(PARTITIONS, "1");
}

#[test]
fn a_slot_that_has_decoded_it_keeps_nothing_of_a_table() {
    let (owner, server) = begin("wal_level = logical");
    make(&owner, "t");
    drop(server.rows("select pg_create_logical_replication_slot('s', 'test_decoding')"));
    make(&owner, "u");
    drop(owner.rows("drop table u"));
    // Longer than it takes where no slot is.
    drop(server.rows("select pg_sleep(4)"));
    assert_eq!(server.rows(PARTITIONS), "2");
    drop(server.rows("select pg_replication_slot_advance('s', pg_current_wal_lsn())"));
    // The sweep that separates before from after has ended by then, or the slot is asked again.
    drop(owner.rows("truncate t"));
    drop(
        server.rows(
            "select pg_sleep(2); select pg_replication_slot_advance('s', pg_current_wal_lsn())",
        ),
    );
    server.wait_for(PARTITIONS, "0");
    drop(server.rows("select pg_drop_replication_slot('s')"));
}

#[test]
fn what_is_retired_survives_the_zone_and_goes_with_the_server() {
    let (mut owner, server) = begin("");
    let mut session = holding(&owner, "t");
    drop(owner.rows("truncate t"));
    // The store has it as retired, by the log.
    owner.kill_zone();
    owner.start_zone();
    owner.wait_for("insert into t values (4, 40, 'four') returning code", "40");
    assert_eq!(server.rows(PARTITIONS), "2");
    // A session with a cursor that is kept is told that the zone was gone until it closes the
    // cursor, which may have values that were in the zone's memory only.
    for _ in 0..2 {
        let failure = session.rows("select max(code) from t").err();
        let state = failure.as_ref().and_then(|failure| failure.state());
        assert_eq!(state, Some("08006"), "{failure:?}");
    }
    assert_eq!(server.rows(PARTITIONS), "2");
    // No cursor survives the server.
    server.crash_and_start();
    server.wait_for(PARTITIONS, "1");
    owner.kill_zone();
    owner.start_zone();
    server.wait_for(PARTITIONS, "1");
    owner.wait_for("select code from t", "40");
}
