//! Goal: confidential columns of times of day do what PostgreSQL's `time` does.
//!
//! Method: the same statements on a plain table at a server and on a confidential one through the
//! proxy must answer alike, also the errors; parameters, COPY, the proxy's clock, ordered columns.

use std::path::Path;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::start_all;

const ROWS: &str = "insert into t values
    (1, '08:15', '08:15', '2024-02-29', '2024-02-29 23:59:59.5', '2024-07-01 22:30:00+00'),
    (2, '24:00:00', '00:00:00', '1999-12-31', '1969-07-20 20:17:40', '2024-01-01 00:00:00+00'),
    (3, '12:34:56.789', '23:59:59.999999', null, null, null),
    (4, null, '12:00:00', '2000-01-01', '2000-01-01 12:00:00', null)";

/// Statements whose answers must be alike.
const ALIKE: &[&str] = &[
    "select * from t order by id",
    "select id from t where c = '8:15' or c = time '24:00' order by id",
    "select id from t where c between '08:00' and '13:00' order by c",
    "select id from t where c in ('08:15:00', '12:34:56.789') order by c desc",
    "select id from t where c = any('{08:15,24:00:00}') order by id",
    "select id from t where o > time '11:00' - interval '1 hour' order by o",
    "select id, c < o, c <> o from t order by id",
    "select min(c), max(o), count(c), count(distinct c) from t",
    "select sum(o), avg(o) from t",
    "select c, count(*) from t group by c order by c nulls last",
    "select distinct extract(hour from o) from t order by 1",
    "select id, c + interval '20 hours', c - interval '1 day 9 hours', interval '90 minutes' + c from t order by id",
    "select id, c - o, o - c from t order by id",
    "select id, c - time '01:00' from t order by id",
    "select id, d + c, c + d from t order by id",
    "select id, d + time '06:30' from t order by id",
    "select id, date '2024-02-28' + c from t order by id",
    "select id, extract(second from c), extract(epoch from c), date_part('minute', c) from t order by id",
    "select id, date_trunc('hour', c), date_trunc('minute', c)::time from t order by id",
    "select id, ts::time, tz::time from t order by id",
    "select id, (tz at time zone 'Asia/Kolkata')::time from t order by id",
    "select id, c::text, c::interval, (c - o)::time from t order by id",
    "select id, coalesce(c, '00:01'), greatest(c, o), least(c, '10:00') from t order by id",
    "select a.id, b.id from t a join t b on a.c = b.c order by a.id",
    "select array_agg(c order by id) from t",
    "update t set c = '07:00' where o = '12:00' returning id, c",
    "copy (select id, c from t order by id) to stdout",
    "copy (select id, c from t order by id) to stdout (format csv)",
];

/// Statements that must fail alike, by SQLSTATE.
const FAIL: &[(&str, &str)] = &[
    (
        "insert into t (id, o) values (5, '23:59:59.999999')",
        "23505",
    ),
    ("insert into t (id, c) values (5, '24:00:01')", "22008"),
    ("select id from t where c = '12:60'", "22008"),
    ("select extract(day from c) from t", "0A000"),
    ("select c + c from t", "42"),
    ("select date '294276-12-31' + c from t", "22008"),
    ("select date '5000000-01-01' + c from t", "22008"),
];

#[test]
fn times_are_postgresqls() {
    let (owner, server) = start_all("timezone = 'Europe/Rome'");
    let plain = Server::start(Path::new("/nowhere"), "timezone = 'Europe/Rome'");
    let _plain = plain.rows(&format!(
        "create table t (id int primary key, c time, o time unique, d date, ts timestamp, tz timestamptz); {ROWS}"
    ));
    let _made = owner.rows(&format!(
        "create table t (id int primary key, c enc_time, o enc_time(ordered) unique, d enc_date, ts enc_timestamp, tz enc_timestamptz) using strongroom; {ROWS}"
    ));
    for sql in ALIKE {
        assert_eq!(owner.rows(sql), plain.rows(sql), "{sql}");
    }
    for (sql, state) in FAIL {
        for said in [plain.run(sql), owner.run(sql)] {
            let found = said.messages.contains(&format!("ERROR:  {state}"));
            assert!(found, "{sql}: {}", said.messages);
        }
    }
    let mut client = owner.connect().expect("a connection");
    let mut found = |sql: &str, value: &str| {
        let found = client.execute(sql, &[Some(value)]).expect(sql);
        found.text(0, 0).to_owned()
    };
    for (condition, value, count) in [
        ("c = $1", "08:15:00.000", "1"),
        ("c >= $1::time", "8:15", "3"),
        ("c = any($1)", "{08:15:00,24:00:00,NULL}", "2"),
        ("o + interval '1 hour' = $1", "00:59:59.999999", "1"),
    ] {
        let sql = format!("select count(*) from t where {condition}");
        assert_eq!(found(&sql, value), count, "{sql}");
    }
    let _copied = owner.rows("copy t (id, c) from stdin;\n7\t17:00:00.25\n\\.\n");
    assert_eq!(
        owner.rows("select c from t where id = 7"),
        "17:00:00.25",
        "after COPY"
    );
    // The order of the ordered column needs no session, and is that of the values.
    let order = "set enable_seqscan = off; select id from t where o is not null order by o";
    assert_eq!(server.rows(order), "2\n1\n4\n3");
}

#[test]
fn the_proxys_clock_tells_the_time_of_day() {
    let (owner, server) = start_all("timezone = 'Asia/Kolkata'");
    let _made = owner.rows(
        "create table t (id int, c enc_time, at enc_timestamptz) using strongroom;
         insert into t values (1, localtime, now())",
    );
    let shown = owner.rows("select c, at::time from t");
    let (told, of_timestamp) = shown.split_once('|').expect("two columns");
    let near = format!(
        "select abs(extract(epoch from time '{told}' - time '{of_timestamp}')) < 1, abs(extract(epoch from localtime - time '{told}')) between 0 and 60"
    );
    assert_eq!(server.rows(&near), "t|t");
    assert_eq!(
        owner.rows("select count(*) from t where c = localtime"),
        "0"
    );
    // A precision would have to be checked for each value.
    let said = owner.run("create table limited (c enc_time(3)) using strongroom");
    assert!(said.messages.contains("ERROR"), "{}", said.messages);
}
