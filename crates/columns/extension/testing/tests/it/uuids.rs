//! Goal: confidential uuid columns do what PostgreSQL's do.
//!
//! Method: the same statements on a plain table at a server and on a confidential one through the
//! proxy must answer alike, also the errors; parameters, arrays of them, COPY and ordered columns.

use std::path::Path;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::start_all;

use crate::alike;

const ROWS: &str = "insert into t values
    (1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
    (2, '{A0EEBC999C0B4EF8BB6D6BB9BD380A12}', '00000000-0000-0000-0000-000000000001'),
    (3, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff'),
    (4, null, '7fffffff-ffff-ffff-ffff-ffffffffffff')";

/// Statements whose answers must be alike.
const ALIKE: &[&str] = &[
    "select * from t order by id",
    "select id from t where k = 'A0EEBC999C0B4EF8BB6D6BB9BD380A11' order by id",
    "select id from t where k <> uuid 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' order by id",
    "select id from t where k in ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', '00000000-0000-0000-0000-000000000000')",
    "select id from t where k = any('{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12,\"{a0eebc999c0b4ef8bb6d6bb9bd380a11}\"}') order by id",
    "select id from t where k = any('{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12}'::uuid[])",
    "select id from t where o between '00000000-0000-0000-0000-000000000001' and '7fffffff-ffff-ffff-ffff-ffffffffffff' order by o",
    "select id from t where o < 'a0000000-0000-0000-0000-000000000000' order by o desc",
    "select id, o > k, o <= k from t order by id",
    "select distinct k from t order by k nulls first",
    "select k, count(*) from t group by k order by count(*) desc, k",
    "select count(k), count(distinct k) from t",
    "select array_agg(k order by id) from t",
    "select id, k::text, upper(k::text)::uuid = k from t order by id",
    "select a.id, b.id from t a join t b on a.k = b.k and a.id < b.id",
    "select id, coalesce(k, '00000000-0000-0000-0000-000000000002'), nullif(k, o), greatest(k, o), least(k, o) from t order by id",
    "select id from t where k is not distinct from null",
    "update t set k = '00000000-0000-0000-0000-000000000003' where o = '7fffffff-ffff-ffff-ffff-ffffffffffff' returning id, k",
    "copy (select id, k, o from t order by id) to stdout",
    "copy (select id, k from t order by id) to stdout (format csv)",
];

/// Statements that must fail alike, by SQLSTATE.
const FAIL: &[(&str, &str)] = &[
    (
        "insert into t values (5, null, 'ffffffff-ffff-ffff-ffff-ffffffffffff')",
        "23505",
    ),
    ("insert into t values (5, 'no uuid', null)", "22P02"),
    (
        "select id from t where k = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1'",
        "22P02",
    ),
    ("select (k::text || 'x')::uuid from t", "22P02"),
    ("select max(k) from t", "42883"),
    ("select k + k from t", "42883"),
];

#[test]
fn uuids_are_postgresqls() {
    let (owner, server) = start_all("");
    let plain = Server::start(Path::new("/nowhere"), "");
    let _plain = plain.rows(&format!(
        "create table t (id int primary key, k uuid, o uuid unique); {ROWS}"
    ));
    let _made = owner.rows(&format!(
        "create table t (id int primary key, k enc_uuid, o enc_uuid(ordered) unique) using strongroom; {ROWS}"
    ));
    alike::answers(&owner, &plain, ALIKE);
    alike::errors(&owner, &plain, FAIL);
    let mut client = owner.connect().expect("a connection");
    let conditions = [
        ("k = $1", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "2"),
        ("k = $1::uuid", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}", "2"),
        (
            "k = any($1)",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12,NULL}",
            "1",
        ),
        (
            "k <> all($1::uuid[])",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12}",
            "3",
        ),
        ("o > $1", "80000000-0000-0000-0000-000000000000", "2"),
    ];
    alike::counts(&mut client, "t", &conditions);
    let _copied = owner.rows("copy t from stdin;\n7\ta0eebc999c0b4ef8bb6d6bb9bd380a17\t\\N\n\\.\n");
    let last = "select k from t where id = 7";
    assert_eq!(owner.rows(last), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a17");
    // The order of the ordered column needs no session, and is that of the values.
    let order = "set enable_seqscan = off; select id from t where o is not null order by o";
    assert_eq!(server.rows(order), "2\n4\n1\n3");
    let said = server.run("select a.k < b.k from t a join t b on a.id < b.id");
    assert!(said.messages.contains("SR-8006"), "{}", said.messages);
}

#[test]
fn a_plain_uuid_column_becomes_confidential() {
    let (owner, server) = start_all("");
    let made = "create table u (id int primary key, k uuid); insert into u values
        (1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'), (2, null)";
    let _made = server.rows(made);
    let mut command = owner.columns();
    command.args([
        "convert",
        "u",
        "k",
        "--to-confidential",
        "--ordered",
        "--rewrite",
        "--proxy",
    ]);
    let done = command
        .arg(owner.proxy_socket())
        .output()
        .expect("it can be run");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let told = "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'u'::regclass and attname = 'k'";
    assert_eq!(server.rows(told), "enc_uuid(ordered)");
    let rows = "1|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\n2|";
    assert_eq!(owner.rows("select id, k from u order by id"), rows);
}
