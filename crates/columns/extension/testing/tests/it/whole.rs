//! Goal: the whole works - application, proxy, server, zone - and the server never has a value.
//!
//! Method: the same statements on a plain table at the server and on a confidential one through the
//! proxy must answer alike; an operator without a session is refused; after kills of the zone, of
//! the server and of both every committed row is there; the strings of the table are nowhere in the
//! server's files, its log or the zone's.

use std::path::Path;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

/// Columns of the table, plain and confidential.
const PLAIN: &str = "id int primary key, name text, code int, total bigint, ratio float8, salary numeric, born date, seen timestamp, flag bool";
const CONFIDENTIAL: &str = "id int primary key, name enc_text, code enc_int4(ordered), total enc_int8(ordered), ratio enc_float8, salary enc_numeric(ordered), \
    born enc_date, seen enc_timestamp, flag enc_bool";

/// Rows with strings that are nowhere else.
const ROWS: &str = "insert into t values
    (1, 'canary-lovelace', 7, 70000000000, 1.5, 1000.50, '1815-12-10', '2020-01-01 10:00:00', true),
    (2, 'canary-turing', -3, 80000000000, -2.25, 2000.25, '1912-06-23', '2020-02-29 23:59:59.5', false),
    (3, 'canary-hopper', 7, null, 1e10, 3000.00, '1906-12-09', '2021-07-01 00:00:00', true),
    (4, null, null, -1, null, 0.001, null, null, null),
    (5, 'canary-liskov', 12, 5, 0.125, 123456789012345678901234567890.5, '1939-11-07', '1999-12-31 12:00:00', false);";

/// Statements whose answers must be alike.
const ALIKE: &[&str] = &[
    "select * from t order by id",
    "select name from t where code = 7 order by id",
    "select name from t where salary > 1500 and born < date '1910-01-01'",
    "select id from t where name like 'canary-%l%' order by id",
    "select id from t where name is null",
    "select id from t where born between date '1900-01-01' and date '1920-01-01' order by id",
    "select id from t where code in (7, 12) order by id",
    "select id, code + 1, code * 2, total - 5, ratio / 2, salary * 1.10 from t order by id",
    "select id, salary / 3 from t order by id",
    "select sum(code), sum(total), sum(salary), avg(salary), avg(code), min(born), max(seen), min(name), count(name) from t",
    "select stddev_samp(salary), var_pop(ratio) from t where id < 4",
    "select code, count(*), sum(salary) from t group by code order by code",
    "select count(distinct code) from t",
    "select distinct flag from t order by flag",
    "select name || '!' from t where id = 1",
    "select upper(name), length(name), substring(name from 8 for 3) from t where id = 2",
    "select extract(year from born), extract(month from seen) from t order by id",
    "select id, born + interval '1 month' from t where id < 4 order by id",
    "select case when salary > 1500 then name else 'small' end from t order by id",
    "select coalesce(name, 'nobody') from t order by id",
    "select id from t order by salary desc, id",
    "select id from t order by name, id",
    "select id, row_number() over (order by salary) from t order by id",
    "select a.id, b.id from t a join t b on a.code = b.code and a.id < b.id",
    "select id from t where code = (select max(code) from t)",
    "with x as (select name as n, salary as s from t) select n from x where s < 1500 order by n",
];

/// Statements that must fail alike, by SQLSTATE.
const FAIL: &[&str] = &[
    "select code / 0 from t",
    "select code + 2147483647 from t",
    "select salary / 0 from t",
    "insert into t (id) values (1)",
];

fn state(messages: &str) -> Option<&str> {
    let (_, rest) = messages.split_once("ERROR:  ")?;
    rest.get(..5)
}

/// Whether a file below `directory` holds one of the table's strings.
fn holds_a_string(directory: &Path) -> Option<String> {
    let output = std::process::Command::new("grep")
        .args([
            "--recursive",
            "--files-with-matches",
            "--text",
            "--ignore-case",
            "canary-",
        ])
        .arg(directory)
        .output()
        .expect("grep can be run");
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    (!found.is_empty()).then_some(found)
}

fn begin() -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), "log_statement = all");
    assert_eq!(server.rows("create extension strongroom_columns"), "");
    owner.start_proxy_deriving(server.socket());
    (owner, server)
}

#[test]
fn answers_are_those_of_plain_columns() {
    let (owner, server) = begin();
    let plain = Server::start(Path::new("/nowhere"), "");
    drop(plain.rows(&format!("create table t ({PLAIN}); {ROWS}")));
    drop(owner.rows(&format!(
        "create table t ({CONFIDENTIAL}) using strongroom; {ROWS}"
    )));
    for sql in ALIKE {
        assert_eq!(owner.rows(sql), plain.rows(sql), "{sql}");
    }
    for sql in FAIL {
        let (said, expected) = (owner.run(sql), plain.run(sql));
        let expected = state(&expected.messages);
        assert!(expected.is_some(), "{sql}");
        assert_eq!(state(&said.messages), expected, "{sql}: {}", said.messages);
    }
    let change = "update t set salary = salary + 1, name = 'canary-changed' where code = 7; delete from t where id = 5;
        create index on t (salary); create unique index on t (total); select id, name, salary from t where salary > 1000 order by salary";
    assert_eq!(owner.rows(change), plain.rows(change));

    // An operator: rows as envelopes, and nothing else.
    let rows = server.rows("select name from t where id = 1");
    assert!(
        rows.starts_with("sr1:") && !rows.contains("canary"),
        "{rows}"
    );
    for sql in [
        "select sum(salary) from t",
        "select code + code from t",
        "select upper(name) from t",
    ] {
        let said = server.run(sql);
        assert!(
            said.messages.contains("SR-8006"),
            "{sql}: {}",
            said.messages
        );
    }
    drop(server.rows("reindex table t; vacuum t; analyze t; checkpoint"));
    assert_eq!(holds_a_string(&server.data()), None);
    assert_eq!(holds_a_string(&server.log()), None);
    assert_eq!(holds_a_string(&owner.path("zone")), None);
}

#[test]
fn rows_survive_the_zone_and_the_server() {
    let (mut owner, server) = begin();
    drop(owner.rows(&format!(
        "create table t ({CONFIDENTIAL}) using strongroom; create index on t (code); {ROWS}"
    )));
    let ask = "select id, name, salary from t order by id; select count(*) from t where code > 0";
    let before = owner.rows(ask);
    for round in 0..3 {
        let (zone, server_too) = (round != 1, round != 0);
        if zone {
            owner.kill_zone();
            let said = owner.run("select sum(salary) from t");
            assert!(
                said.messages.contains("ERROR") || said.messages.contains("FATAL"),
                "without a zone: {}",
                said.rows
            );
            // Plain columns do not need it.
            assert_eq!(server.rows("select count(id) >= 5 from t"), "t");
            owner.start_zone();
        }
        if server_too {
            server.crash_and_start();
        }
        let begun = std::time::Instant::now();
        // The log is being read: an error that says so is right for a while.
        while owner.run(ask).rows != before {
            let said = owner.run(ask);
            assert!(
                begun.elapsed().as_secs() < 60,
                "round {round}: {}{}",
                said.rows,
                said.messages
            );
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let insert = format!(
            "insert into t (id, name, code) values ({}, 'canary-{round}', {round}); delete from t where id = {}",
            100 + round,
            100 + round
        );
        drop(owner.rows(&insert));
    }
    assert_eq!(owner.rows(ask), before);
}
