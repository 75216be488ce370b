//! Goal: confidential columns of times of day and of intervals do what PostgreSQL's `time` and
//! `interval` do.
//!
//! Method: the same statements on a plain table at a server and on a confidential one through the
//! proxy must answer alike, also the errors; parameters, COPY, the proxy's clock, ordered columns.

use std::path::Path;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::start_all;

use crate::alike;

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
    alike::answers(&owner, &plain, ALIKE);
    alike::errors(&owner, &plain, FAIL);
    let mut client = owner.connect().expect("a connection");
    let conditions = [
        ("c = $1", "08:15:00.000", "1"),
        ("c >= $1::time", "8:15", "3"),
        ("c = any($1)", "{08:15:00,24:00:00,NULL}", "2"),
        ("o + interval '1 hour' = $1", "00:59:59.999999", "1"),
    ];
    alike::counts(&mut client, "t", &conditions);
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

const SPANS: &str = "insert into t values
    (1, '1 year 2 mons -3 days 04:05:06.789', '1 mon', '2024-01-31 12:00:00'),
    (2, '30 days', '00:00:00', '2024-02-29 00:00:00'),
    (3, '1 mon', '-1 day', '1999-12-31 23:59:59.5'),
    (4, '-00:00:00.000001', '24:00:00', null),
    (5, null, '1 day', '2000-01-01 00:00:00')";

/// Statements on columns of intervals whose answers must be alike.
const SPANS_ALIKE: &[&str] = &[
    "select * from t order by id",
    "select id from t where d = '1 mon' or e = interval '24 hours' order by id",
    "select id from t where d = interval '720' hour order by id",
    "select id from t where d between '-1 day' and '2 mons' order by d, id",
    "select id from t where e in ('1 day', '1 mon') order by e desc, id",
    "select id from t where e = any('{24:00:00,\"1 mon\"}') order by id",
    "select id, d < e, d <> e, coalesce(d, e), greatest(d, e), least(d, '1 hour') from t order by id",
    "select min(d), max(e), count(d), count(distinct e), sum(d), avg(e) from t",
    "select count(*) from t group by e order by 1, min(id)",
    "select id, at + d, at - e, at + e * 2 from t order by id",
    "select id, d + e, d - e, -e, e * 1.5, e / 4 from t order by id",
    "select id, extract(epoch from d), extract(month from d), date_part('day', e) from t order by id",
    "select id, date_trunc('month', d), e::time, d::text from t order by id",
    "select a.id, b.id from t a join t b on a.d = b.d order by a.id, b.id",
    "select array_agg(e order by id) from t",
    "update t set d = '2 hours' where e = '00:00' returning id, d",
    "update t set e = e + interval '1 hour' where id = 4 returning e",
    "insert into t (id, e) select id + 10, at - '2024-01-01' from t where id = 1 returning e",
    "copy (select id, d, e from t order by id) to stdout",
    "copy (select id, e from t order by id) to stdout (format csv)",
];

#[test]
fn intervals_are_postgresqls() {
    let (owner, server) = start_all("");
    let plain = Server::start(Path::new("/nowhere"), "");
    let _plain = plain.rows(&format!(
        "create table t (id int primary key, d interval, e interval default '2 days', at timestamp); {SPANS}"
    ));
    let _made = owner.rows(&format!(
        "create table t (id int primary key, d enc_interval, e enc_interval default '2 days', at enc_timestamp) using strongroom; {SPANS}"
    ));
    alike::answers(&owner, &plain, SPANS_ALIKE);
    let fail = [
        ("insert into t (id, d) values (20, '1 fortnight')", "22007"),
        (
            "insert into t (id, d) values (20, '200000000 years')",
            "22008",
        ),
        (
            "select d + '2000-01-01'::timestamp from t where d = 'x'",
            "22007",
        ),
        ("update t set d = d * 1e300", "22008"),
    ];
    alike::errors(&owner, &plain, &fail);
    let mut client = owner.connect().expect("a connection");
    let conditions = [
        ("d = $1", "2 hours", "1"),
        ("e >= $1::interval", "P1D", "4"),
        ("at + e > $1", "2024-02-28 00:00", "2"),
    ];
    alike::counts(&mut client, "t", &conditions);
    let _copied = owner.rows("copy t (id, d) from stdin;\n7\t@ 1 day ago\n\\.\n");
    assert_eq!(
        owner.rows("select d, e from t where id = 7"),
        "-1 days|2 days"
    );
    // They are opaque, and stay what they are through ends of both.
    server.fails("select id from t order by d", "SR-8006");
    owner.fails("create index on t (d)", "an index on an opaque column");
    let before = owner.rows("select * from t order by id");
    server.kill();
    server.start_again();
    owner.wait_for("select * from t order by id", &before);
    // A plain column of them becomes confidential.
    let made = "create table u (id int primary key, d interval); insert into u values (1, '1 mon'), (2, null)";
    let _made = server.rows(made);
    let mut convert = owner.columns();
    convert.args(["convert", "u", "d", "--to-confidential", "--rewrite"]);
    let converted = convert.arg("--proxy").arg(owner.proxy_socket()).status();
    assert!(converted.is_ok_and(|status| status.success()));
    assert_eq!(
        owner.rows("select id, d + '1 day', pg_typeof(d) from u order by id"),
        "1|1 mon 1 day|enc_interval\n2||enc_interval"
    );
}
