//! Goal: confidential jsonb columns do what PostgreSQL's do, or say what they do not.
//!
//! Method: the same statements on a plain table at a server and on a confidential one through the
//! proxy must answer alike, also the errors; parameters and COPY in both forms; what the server
//! keeps is searched for the documents' texts.

use std::path::Path;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::setup::is_in_a_file;

use crate::alike;

const ROWS: &str = r#"insert into t values
    (1, '{"name":"canary Ada","tags":["b","a"],"pay":10.50,"name":"canary Ada Byron"}', '{}'),
    (2, '{"tags": ["b", "a"], "pay": 10.5, "name": "canary Ada Byron"}', '[1, 2]'),
    (3, '"\u00e9\ud83d\ude00\t\"q\""', '[]'),
    (4, null, 'null'),
    (5, '1e3', '[[], {"x": {}}, 1E-2, -0.0]')"#;

/// Statements whose answers must be alike.
const ALIKE: &[&str] = &[
    "select * from t order by id",
    r#"select id from t where j = '{"pay":10.500,"name":"canary Ada Byron","tags":["b","a"]}' order by id"#,
    "select id from t where j <> jsonb '1000' order by id",
    "select id from t where j in ('1000', '\"x\"')",
    "select id from t where j is null",
    "select id from t where o > '[]' order by id",
    "select id, o from t order by o, id",
    "select distinct j from t order by j nulls first",
    "select j, count(*) from t group by j order by count(*) desc, j",
    "select count(j), count(distinct j), count(distinct o) from t",
    "select id, j::text, length(o::text) from t order by id",
    "select id, (o::text || ' ')::jsonb = o from t order by id",
    "select id, coalesce(j, '{\"none\": true}'), nullif(o, '[]') from t order by id",
    "select a.id, b.id from t a join t b on a.j = b.j and a.id < b.id",
    "update t set o = '{\"b\":1,\"a\":[true,false,null]}' where j = '1000.0' returning id, o",
    "update t set j = o where id = 5 returning j",
    "insert into t (id, j) values (6, '[\"canary six\"]') returning j, o",
    "delete from t where j = '[\"canary six\"]' returning id",
    "copy (select id, j, o from t order by id) to stdout",
    "copy (select id, j from t order by id) to stdout (format csv)",
];

/// Statements that must fail alike, by SQLSTATE.
const FAIL: &[(&str, &str)] = &[
    ("insert into t values (7, '{secret', null)", "22P02"),
    (
        "insert into t values (7, '{\"secret\": 01}', null)",
        "22P02",
    ),
    (
        "insert into t values (7, '[\"secret\", \"\\u0000\"]', null)",
        "22P05",
    ),
    ("insert into t values (7, '[1e200000]', null)", "22003"),
    ("select id from t where j = 'secret'", "22P02"),
    (
        "select (j::text || ']')::jsonb from t where id = 1",
        "22P02",
    ),
    ("select max(j) from t", "42883"),
    ("select j + j from t", "42883"),
];

/// The same rows, confidential through the owner's proxy, and plain at another server.
fn with_rows() -> (Owner, Server, Server) {
    let (owner, server) = start_all("");
    let plain = Server::start(Path::new("/nowhere"), "");
    drop(plain.rows(&format!(
        "create table t (id int primary key, j jsonb, o jsonb); {ROWS}"
    )));
    drop(owner.rows(&format!(
        "create table t (id int primary key, j enc_jsonb, o enc_jsonb) using strongroom; {ROWS}"
    )));
    (owner, server, plain)
}

#[test]
fn documents_are_postgresqls() {
    let (owner, server, plain) = with_rows();
    alike::answers(&owner, &plain, ALIKE);
    alike::errors(&owner, &plain, FAIL);
    for (sql, _) in FAIL {
        let said = owner.run(sql).messages;
        let told: Vec<&str> = said
            .lines()
            .filter(|line| !line.starts_with("LINE"))
            .collect();
        assert!(!told.join("\n").contains("secret"), "{sql}: {said}");
    }
    let mut client = owner.connect().expect("a connection");
    let sql = "update t set o = $1 where j = $2 and id < 3 returning o";
    let values = [
        Some("[3.00 ]"),
        Some(r#"{"pay":1.05e1,"tags":["b","a"],"name":"canary Ada Byron"}"#),
    ];
    let done = client.execute(sql, &values).expect(sql);
    assert_eq!((done.text(0, 0), done.text(1, 0)), ("[3.00]", "[3.00]"));
    for (how, state) in [("$1", "22P02"), ("$1::jsonb", "22P02")] {
        let sql = format!("insert into t values (8, {how}, null)");
        let failed = client
            .execute(&sql, &[Some("{secret")])
            .expect_err("no document");
        let said = format!("{failed:?}");
        assert!(said.contains(state) && !said.contains("secret"), "{said}");
    }
    let file = owner.path("documents");
    let copied = format!(
        "\\copy t (id, j) to '{0}' with (format binary)\ntruncate t;\n\\copy t (id, j) from '{0}' with (format binary)\n",
        file.display()
    );
    let before = owner.rows("select id, j from t order by id");
    let _copied = owner.rows(&copied);
    assert_eq!(owner.rows("select id, j from t order by id"), before);
    assert!(
        is_in_a_file(&file, "\u{1}{\"pay\": 10.50, \"name\": "),
        "jsonb's own form"
    );
    let _copied =
        owner.rows("copy t (id, j) from stdin;\n9\t{\"b\":1, \"a\":\"\\\\\\\\n\"}\n\\.\n");
    let nine = "select j from t where id = 9";
    assert_eq!(owner.rows(nine), r#"{"a": "\\n", "b": 1}"#);
    let _checkpoint = server.rows("checkpoint");
    assert!(!is_in_a_file(&server.data(), "canary"));
}

/// Statements on parts of documents whose answers must be alike.
const PARTS: &[&str] = &[
    "select j -> 'name', j ->> 'name', j -> 'tags' -> 1 ->> 0 from t where id < 3 order by id",
    "select (j ->> 'pay')::numeric + 1, length(j ->> 'name') from t where id < 3 order by id",
    "select id from t where id < 3 and j ->> 'name' = 'canary Ada Byron' and j -> 'pay' = '10.5' order by id",
    "select id from t where j ? 'name' order by id",
    "select id, j @> '{\"tags\": [\"a\"]}', '{}' <@ o from t order by id",
    "select id, case when j ? 'name' then j -> 'name' end from t order by id",
    "select j ->> 'name', count(*) from t where j @> '{\"pay\": 10.50}' group by 1",
    "select jsonb_object_field(j, 'pay'), jsonb_array_element_text(j -> 'tags', -1) from t where id = 1",
    "update t set o = j -> 'tags' where id = 1 returning o",
    "select o -> 0 from t where id in (1, 2, 5) order by id",
];

#[test]
fn parts_of_documents_are_postgresqls_or_an_error() {
    let (owner, server, plain) = with_rows();
    for sql in PARTS {
        assert_eq!(owner.rows(sql), plain.rows(sql), "{sql}");
    }
    // What would be NULL.
    for sql in [
        "select j -> 'none' from t where id = 1",
        "select j ->> 0 from t where id = 1",
        "select o -> 7 from t where id = 2",
        "select o ->> 0 from t where id = 4",
    ] {
        assert_eq!(plain.rows(sql), "", "{sql}");
        owner.fails(sql, "0A000");
    }
    let mut client = owner.connect().expect("a connection");
    for (sql, value, expected) in [
        ("select j -> $1::text from t where id = 2", "pay", "10.5"),
        (
            "select j -> 'tags' ->> $1::int from t where id = 2",
            "-2",
            "b",
        ),
        ("select count(*) from t where j ? $1", "tags", "2"),
        (
            "select count(*) from t where j @> $1",
            "{\"pay\": 10.500}",
            "2",
        ),
    ] {
        let found = client.execute(sql, &[Some(value)]).expect(sql);
        assert_eq!(found.text(0, 0), expected, "{sql}");
    }
    // Without a session nothing is told.
    for sql in [
        "select id from t where j @> o",
        "select id from t where j ? (o::enc_text)",
        "select id from t where j -> 0::int4::enc_int4 = o",
        "select id from t where j -> (o::enc_text) = o",
    ] {
        server.fails(sql, "SR-8006");
    }
}

#[test]
fn a_document_is_opaque_and_its_server_learns_nothing() {
    let (owner, server) = start_all("");
    for (sql, message) in [
        (
            "create table r (j enc_jsonb(ordered)) using strongroom",
            "cannot be ordered",
        ),
        (
            "create table r (j enc_jsonb(equality)) using strongroom",
            "class equality",
        ),
        (
            "create table r (j enc_jsonb(10)) using strongroom",
            "modifier",
        ),
    ] {
        server.fails(sql, message);
        owner.fails(sql, message);
    }
    let _made = owner.rows(&format!(
        "create table t (id int primary key, j enc_jsonb, o enc_jsonb) using strongroom; {ROWS}"
    ));
    owner.fails("create index on t (j)", "ERROR");
    owner.fails("create index on t using gin (j)", "ERROR");
    server.fails("select id from t where j = o", "SR-8006");
    server.fails("select id from t order by j", "SR-8006");
    server.fails("select j::enc_text from t", "SR-8006");
    server.fails("select j::jsonb from t", "SR-8006");
    // A client that did not ask for it has no right to declassify.
    owner.fails("select strongroom_columns.declassify(j) from t", "SR-8006");
    let shown = "select pg_typeof(j), format_type(atttypid, atttypmod) from t, pg_attribute
        where id = 1 and attrelid = 't'::regclass and attname = 'j'";
    assert_eq!(server.rows(shown), "enc_jsonb|enc_jsonb");
}

#[test]
fn a_plain_jsonb_column_becomes_confidential() {
    let (owner, server) = start_all("");
    let made = r#"create table u (id int primary key, j jsonb); insert into u values
        (1, '{"b": [1.0], "a": null}'), (2, null), (3, '"x"')"#;
    let _made = server.rows(made);
    let convert = |options: &[&str]| {
        let mut command = owner.columns();
        command.args(["convert", "u", "j", "--to-confidential"]);
        command
            .args(options)
            .arg("--proxy")
            .arg(owner.proxy_socket());
        let done = command.output().expect("it can be run");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.success(), said)
    };
    let (done, said) = convert(&["--ordered", "--rewrite"]);
    assert!(
        !done && said.contains("jsonb cannot have the class ordered"),
        "{said}"
    );
    let (done, said) = convert(&["--rewrite"]);
    assert!(done, "{said}");
    let told = "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'u'::regclass and attname = 'j'";
    assert_eq!(server.rows(told), "enc_jsonb");
    let rows = "1|{\"a\": null, \"b\": [1.0]}\n2|\n3|\"x\"";
    assert_eq!(owner.rows("select id, j from u order by id"), rows);
}
