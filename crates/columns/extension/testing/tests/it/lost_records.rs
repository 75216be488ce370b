//! Goal: a zone that reads a log out of which someone took a record, in which they exchanged two,
//! or changed one, does not go on as if nothing were: recovery stops with SR-8012 and nobody reads
//! a value; and with the log as it was, everything is there.
//!
//! Method: the records are changed in the files of a server that was killed, with check sums that
//! PostgreSQL finds right. One connection makes all of them, so that they are one chain (L2). The
//! last record of a chain is the one that no other names: its values are missing then, each with an
//! error.

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::wal::Record;

const ROWS: u32 = 8;

/// A killed server and zone whose log has `ROWS` records of one connection, behind the last
/// checkpoint of both.
fn scene() -> (Owner, Server, Vec<Record>) {
    let (mut owner, server) = start_all("autovacuum = off\nfull_page_writes = off");
    drop(owner.rows("create table t (id int primary key, n enc_int8, note enc_text) using strongroom; insert into t values (0, 0, 'before')"));
    // A new life: the zone makes a checkpoint when it hears of it.
    server.stop();
    server.start_again();
    owner.wait_for("select n from t", "0");
    let begin = server.rows("checkpoint; select pg_current_wal_insert_lsn()");
    let rows: Vec<String> = (1..=ROWS)
        .map(|id| format!("insert into t values ({id}, {}, 'row {id}');", 1000 + id))
        .collect();
    drop(owner.rows(&rows.join("\n")));
    let end = server.rows("select pg_current_wal_flush_lsn()");
    owner.kill_zone();
    let positions = server.redo_positions(&begin, &end);
    server.kill();
    let records: Vec<Record> = positions
        .into_iter()
        .map(|position| server.read_record(position))
        .collect();
    let rows = usize::try_from(ROWS).expect("a small number");
    assert!(records.len() >= rows, "a record for each row");
    let records = records.split_at(records.len() - rows).1.to_vec();
    (owner, server, records)
}

fn expected(ids: std::ops::RangeInclusive<u32>) -> String {
    let rows: Vec<String> = ids
        .map(|id| format!("{id}|{}|row {id}", 1000 + id))
        .collect();
    rows.join("\n")
}

const ASK: &str = "select id, n, note from t where id > 0 order by id";

/// Begins both; whether the server's log comes to say this, in ten seconds.
fn begins_and_says(owner: &mut Owner, server: &Server, what: &str) -> bool {
    owner.start_zone();
    server.start_again();
    owner.start_proxy(server.socket());
    let begun = std::time::Instant::now();
    while begun.elapsed().as_secs() < 20 {
        if server.log_text().contains(what) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    false
}

/// With the log changed: recovery stops, nobody reads a value. With the log as it was: everything
/// is there.
fn found(change: impl FnOnce(&[Record]) -> Vec<Record>) {
    let (mut owner, server, records) = scene();
    for changed in change(&records) {
        server.write_record(&changed);
    }
    assert!(
        begins_and_says(&mut owner, &server, "(SR-8012)"),
        "{}",
        server.log_tail()
    );
    for _ in 0..3 {
        let answer = server.run(ASK);
        assert!(
            answer.messages.contains("57P03"),
            "{}{}",
            answer.rows,
            answer.messages
        );
        let written = server.run("insert into t select 99, n, note from t");
        assert!(written.messages.contains("57P03"), "{}", written.messages);
    }
    assert_eq!(
        server.rows("select count(*) from t"),
        (ROWS + 1).to_string(),
        "plain columns and rows are as ever"
    );
    owner.kill_zone();
    server.kill();
    for record in &records {
        server.write_record(record);
    }
    owner.start_zone();
    server.start_again();
    owner.start_proxy(server.socket());
    owner.wait_for_log(ASK, &expected(1..=ROWS), &server);
}

#[test]
fn a_record_that_was_taken_out_is_found() {
    found(|records| records.get(3).map(Record::as_noop).into_iter().collect());
}

#[test]
fn several_records_that_were_taken_out_are_found() {
    found(|records| records.iter().take(5).map(Record::as_noop).collect());
}

#[test]
fn a_record_that_was_changed_is_found_by_the_next_one() {
    found(|records| {
        records
            .get(4)
            .map(Record::with_damage)
            .into_iter()
            .collect()
    });
}

#[test]
fn two_records_that_were_exchanged_are_found() {
    found(|records| {
        let pair = records.iter().enumerate().find_map(|(at, one)| {
            let other = records.iter().skip(at + 1);
            let mut other = other.filter(|other| other.length() == one.length());
            other.next().map(|other| (one, other))
        });
        let (one, other) = pair.expect("two records of one length");
        vec![one.with_content_of(other), other.with_content_of(one)]
    });
}

#[test]
fn a_record_that_was_replaced_by_an_older_one_is_found() {
    found(|records| {
        let pair = records.iter().skip(2).zip(records);
        let mut pair = pair.filter(|(late, early)| late.length() == early.length());
        let (late, early) = pair.next().expect("two records of one length");
        vec![late.with_content_of(early)]
    });
}

/// Nobody names the end of the log: what it had is an error where it is read, never another value,
/// and everything else is there.
#[test]
fn a_last_record_that_was_taken_out_leaves_errors_and_no_other_values() {
    let (mut owner, server, records) = scene();
    let last = records.last().expect("records");
    server.write_record(&last.as_noop());
    owner.start_zone();
    server.start_again();
    owner.start_proxy(server.socket());
    let before = format!("{ASK} limit {}", ROWS - 1);
    owner.wait_for_log(&before, &expected(1..=ROWS - 1), &server);
    let answer = owner.run(&format!("select n from t where id = {ROWS}"));
    assert!(
        answer.messages.contains("SR001"),
        "{}{}",
        answer.rows,
        answer.messages
    );
    // New values do not take the place of those that are missing.
    drop(owner.rows("insert into t select g, 7, 'new' from generate_series(100, 300) g"));
    let answer = owner.run(&format!("select n from t where id = {ROWS}"));
    assert!(
        answer.messages.contains("SR001"),
        "{}{}",
        answer.rows,
        answer.messages
    );
}
