//! No plaintext of a confidential value leaves the proxy: every byte that it sends is recorded by a
//! server of the test's own, which also lies about types.
//!
//! Method: the server knows the protocol and the catalog's answer, says of every parameter what the
//! test wants it to say, and keeps what it gets. Values are then looked for in clear, and found
//! sealed.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use postgres::{Client, NoTls};
use strongroom_columns_proxy::proxy::Address;
use support::proxy_pinned;

const ENC_TEXT: u32 = 90_001;
const ENC_INT4: u32 = 90_002;
const ENC_DATE: u32 = 90_003;
const ENC_NUMERIC: u32 = 90_004;

/// What the fake server says of parameters.
type Types = fn(sql: &str, number: usize) -> u32;

struct Fake {
    recorded: Arc<Mutex<Vec<u8>>>,
    directory: PathBuf,
    port: u16,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

impl Fake {
    fn start(name: &str, types: Types) -> Self {
        Self::start_pinned(name, types, &[])
    }

    fn start_pinned(name: &str, types: Types, pinned: &[&str]) -> Self {
        let directory =
            std::env::temp_dir().join(format!("strongroom-fake-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("server");
        let listener = UnixListener::bind(&socket).unwrap();
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&recorded);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let record = Arc::clone(&record);
                std::thread::spawn(move || serve(stream.unwrap(), &record, types));
            }
        });
        let port = proxy_pinned(Address::Unix(socket), &directory, pinned);
        Self {
            recorded,
            directory,
            port,
        }
    }

    fn connect(&self) -> Client {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> Result<Client, postgres::Error> {
        let host = self.directory.display();
        Client::connect(
            &format!("host={host} port={} user=u dbname=d", self.port),
            NoTls,
        )
    }

    fn was_sent(&self, bytes: &[u8]) -> bool {
        let recorded = self.recorded.lock().unwrap();
        recorded.windows(bytes.len()).any(|window| window == bytes)
    }

    #[track_caller]
    fn assert_clean(&self, canaries: &[&[u8]]) {
        let recorded = self.recorded.lock().unwrap();
        assert!(recorded.len() > 100);
        for canary in canaries {
            let found = recorded
                .windows(canary.len())
                .any(|window| window == *canary);
            assert!(
                !found,
                "{:?} went to the server",
                String::from_utf8_lossy(canary)
            );
        }
    }
}

fn message(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    out.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    out.extend_from_slice(body);
}

fn read(stream: &mut UnixStream, len: usize, record: &Mutex<Vec<u8>>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).ok()?;
    record.lock().unwrap().extend_from_slice(&bytes);
    Some(bytes)
}

fn catalog_rows(out: &mut Vec<u8>, lies: bool) {
    let oid = |oid: u32| oid.to_string();
    let mut rows: Vec<[String; 6]> = Vec::new();
    let mut add = |fields: [&str; 6]| rows.push(fields.map(str::to_owned));
    for (name, number) in [
        ("enc_text", ENC_TEXT),
        ("enc_int4", ENC_INT4),
        ("enc_date", ENC_DATE),
        ("enc_numeric", ENC_NUMERIC),
    ] {
        add(["t", "s", name, &oid(number), &oid(number + 100), ""]);
    }
    for (at, (name, number)) in [
        ("id", 23),
        ("name", ENC_TEXT),
        ("age", if lies { 23 } else { ENC_INT4 }),
        ("born", ENC_DATE),
        ("pay", ENC_NUMERIC),
        ("note", 25),
    ]
    .iter()
    .enumerate()
    {
        add(["r", "public", "p", &format!("{at:05}"), name, &oid(*number)]);
    }
    for row in rows {
        let mut body = 6_u16.to_be_bytes().to_vec();
        for field in row {
            body.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            body.extend_from_slice(field.as_bytes());
        }
        message(out, b'D', &body);
    }
}

/// Answers as a server would that makes every statement.
#[expect(
    clippy::unwrap_in_result,
    reason = "a test that panics has failed; None is the end of the stream"
)]
fn serve(mut stream: UnixStream, record: &Mutex<Vec<u8>>, types: Types) -> Option<()> {
    let length = read(&mut stream, 4, record)?;
    let length = u32::from_be_bytes(length.try_into().unwrap());
    read(&mut stream, usize::try_from(length).unwrap() - 4, record)?;
    let mut out = Vec::new();
    message(&mut out, b'R', &[0; 4]);
    message(&mut out, b'K', &[0; 8]);
    message(&mut out, b'Z', b"I");
    let mut sql = String::new();
    let (mut failed, mut lies) = (false, false);
    loop {
        stream.write_all(&out).ok()?;
        out.clear();
        let tag = read(&mut stream, 1, record)?[0];
        let length = u32::from_be_bytes(read(&mut stream, 4, record)?.try_into().unwrap());
        let body = read(&mut stream, usize::try_from(length).unwrap() - 4, record)?;
        let mut strings = body
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned());
        match tag {
            b'S' => {
                failed = false;
                message(&mut out, b'Z', b"I");
            }
            _ if failed => {}
            b'Q' => {
                let text = strings.next().unwrap();
                lies |= text.contains("from_now_on_lies");
                if text.contains("strongroom_refused") {
                    message(&mut out, b'E', b"SERROR\0VERROR\0C42601\0Msyntax error\0\0");
                } else {
                    complete(&mut out, &text, lies);
                }
                message(&mut out, b'Z', b"I");
            }
            b'P' => {
                strings.next();
                sql = strings.next().unwrap();
                if sql.contains("strongroom_refused") {
                    failed = true;
                    message(&mut out, b'E', b"SERROR\0VERROR\0C42601\0Msyntax error\0\0");
                } else {
                    message(&mut out, b'1', &[]);
                }
            }
            b'D' => {
                if body[0] == b'S' {
                    let count = (1..50)
                        .rev()
                        .find(|number| sql.contains(&format!("${number}")))
                        .unwrap_or(0);
                    let mut described = u16::try_from(count).unwrap().to_be_bytes().to_vec();
                    for number in 1..=count {
                        described.extend_from_slice(&types(&sql, number).to_be_bytes());
                    }
                    message(&mut out, b't', &described);
                }
                message(&mut out, b'n', &[]);
            }
            b'B' => message(&mut out, b'2', &[]),
            b'E' => complete(&mut out, &sql, lies),
            b'C' => message(&mut out, b'3', &[]),
            b'X' => return Some(()),
            _ => {}
        }
    }
}

/// The rows of a statement, if it reads the catalog, and its end.
fn complete(out: &mut Vec<u8>, sql: &str, lies: bool) {
    if sql.contains("pg_extension") {
        catalog_rows(out, lies);
    }
    message(out, b'C', b"SELECT 0\0");
}

/// What a server with the extension says: the type in the cast, or what the test's statements have
/// in that place.
fn honest(sql: &str, number: usize) -> u32 {
    for (name, oid) in [
        ("enc_text", ENC_TEXT),
        ("enc_int4", ENC_INT4),
        ("enc_date", ENC_DATE),
        ("enc_numeric", ENC_NUMERIC),
    ] {
        if sql.contains(&format!("${number}::s.{name}")) {
            return oid;
        }
    }
    match sql {
        _ if sql.starts_with("INSERT INTO p VALUES") => {
            [23, ENC_TEXT, ENC_INT4, ENC_DATE, ENC_NUMERIC, 25][number - 1]
        }
        _ if sql.contains("age") => ENC_INT4,
        _ => ENC_TEXT,
    }
}

const CANARIES: &[&[u8]] = &[
    b"Alice",
    b"4711",
    b"1999-12-31",
    b"815.25",
    &[0, 0, 0x12, 0x67],
];

const STATEMENTS: &[&str] = &[
    "SELECT id FROM p WHERE name = 'Alice'",
    "SELECT id FROM p WHERE name LIKE '%Alice%' /* Alice */ -- Alice",
    "SELECT id FROM p WHERE name IN ('Alice', 'Alice2') AND born < date '1999-12-31'",
    "INSERT INTO p (id, name) VALUES (1, 'Alice'), (2, 'Alice')",
    "UPDATE p SET name = 'Alice' WHERE name = 'Alice4711'",
    "SELECT id FROM p WHERE pay * 1.5 > 815.25",
    "BEGIN; DELETE FROM p WHERE name = 'Alice'; COMMIT",
    "SELECT name FROM p UNION ALL SELECT 'Alice'",
    "WITH a AS (SELECT 'Alice' AS x) SELECT 1 FROM a, p WHERE x = name",
    "SELECT CASE WHEN name = 'Alice' THEN 1 ELSE 0 END FROM p",
    "EXPLAIN SELECT 1 FROM p WHERE name = 'Alice'",
    "SELEC 'Alice' FROM p",
    "SELECT id FROM p WHERE name = 'Alice",
    "COPY (SELECT 1 FROM p WHERE name = 'Alice') TO STDOUT",
    "PREPARE s AS SELECT 1 FROM p WHERE name = 'Alice'",
    "EXECUTE s('Alice', 4711)",
    "DO $$ BEGIN PERFORM 1 FROM p WHERE name = 'Alice'; END $$",
    "CREATE VIEW w AS SELECT 1 FROM p WHERE name = 'Alice'",
    "ALTER TABLE p ALTER name SET DEFAULT 'Alice'",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1 FROM p WHERE name = ''Alice'''",
    "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM unnest(ARRAY['Alice%']) u(pat) WHERE name LIKE pat)",
    "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM pg_class WHERE name = 'Alice')",
    "INSERT INTO p(name) SELECT * FROM unnest(ARRAY['Alice'])",
    "INSERT INTO p SELECT * FROM json_populate_recordset(NULL::p, '[{\"name\": \"Alice\"}]')",
    "SELECT 1 FROM p NATURAL JOIN (VALUES ('Alice')) v(name)",
    "SELECT 1 FROM p JOIN (VALUES ('Alice')) v(name) USING (name)",
    "SELECT * FROM unnest(ARRAY['Alice']) UNION SELECT name FROM p",
    "SELECT substring(name FROM 'Alice'), left(name, 'Alice') FROM p",
    "SELECT sum(age) OVER (ORDER BY age RANGE 4711 PRECEDING) FROM p",
    "UPDATE p SET (id, name) = (SELECT * FROM generate_series(1, 1), unnest(ARRAY['Alice']))",
    "WITH p AS (SELECT 1) UPDATE p SET name = 'Alice'",
    "SELECT * FROM somewhere_else WHERE whatever = 'Alice'",
    "INSERT INTO somewhere_else VALUES ('Alice', 4711)",
];

#[test]
fn constants_do_not_reach_an_honest_server() {
    let fake = Fake::start("honest", honest);
    let mut sql = fake.connect();
    let mut done = 0;
    for statement in STATEMENTS {
        done += u32::from(sql.simple_query(statement).is_ok());
    }
    assert!(done >= 10, "{done}");
    fake.assert_clean(CANARIES);
}

#[test]
fn constants_do_not_reach_a_server_that_calls_everything_plain() {
    let lies: [(&str, Types); 3] = [("text", |_, _| 25), ("int", |_, _| 23), ("none", |_, _| 0)];
    for (name, types) in lies {
        let fake = Fake::start(name, types);
        let mut sql = fake.connect();
        let mut refused = 0;
        for statement in STATEMENTS {
            if let Err(error) = sql.simple_query(statement) {
                refused += u32::from(error.code().unwrap().code() == "SR101");
            }
        }
        assert!(refused >= 12, "{refused}");
        fake.assert_clean(CANARIES);
    }
}

#[test]
fn parameters_are_sealed_in_text_and_binary() {
    let fake = Fake::start("parameters", honest);
    let mut sql = fake.connect();
    let statement = sql.prepare("SELECT id FROM p WHERE name = $1").unwrap();
    assert_eq!(
        statement.params(),
        [postgres::types::Type::TEXT],
        "the client sees the base type"
    );
    sql.execute(&statement, &[&"Alice"]).unwrap();
    let statement = sql
        .prepare_typed(
            "SELECT id FROM p WHERE age = $1",
            &[postgres::types::Type::INT4],
        )
        .unwrap();
    sql.execute(&statement, &[&4711_i32]).unwrap();
    fake.assert_clean(CANARIES);
    // The envelopes are there: version 1, the kinds, sealed by a client, in the binary form.
    let recorded = fake.recorded.lock().unwrap();
    for kind in [[1, 6, 1, 0], [1, 2, 1, 0]] {
        assert!(recorded.windows(4).any(|window| window == kind), "{kind:?}");
    }
}

#[test]
fn parameters_do_not_reach_a_server_that_calls_them_plain() {
    let fake = Fake::start("liar", |_, _| 25);
    let mut sql = fake.connect();
    let statement = sql.prepare("SELECT id FROM p WHERE name = $1").unwrap();
    let error = sql.execute(&statement, &[&"Alice"]).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "SR102");
    fake.assert_clean(CANARIES);
}

#[test]
fn plain_constants_are_left_alone() {
    let fake = Fake::start("plain", honest);
    fake.connect()
        .simple_query("SELECT id FROM p WHERE id = 4711 AND note = 'Alice'")
        .unwrap();
    let recorded = fake.recorded.lock().unwrap();
    assert!(recorded.windows(5).any(|window| window == b"Alice"));
}

/// The server calls a pinned column plain from the start: no session.
#[test]
fn a_server_that_calls_a_pinned_column_plain_gets_no_session() {
    let fake = Fake::start_pinned("pinned", honest, &["public.p.name", "public.p.note"]);
    let error = fake.try_connect().err().unwrap();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "SR106");
    assert!(error.message().contains("public.p.note"), "{error}");
    // A relation that the server does not name would get everything in clear by another name.
    let fake = Fake::start_pinned("unnamed", honest, &["public.p.name", "public.other.x"]);
    let error = fake.try_connect().err().unwrap();
    assert_eq!(error.code().unwrap().code(), "SR106");
    let fake = Fake::start_pinned("agreed", honest, &["public.p.name", "public.p.pay"]);
    fake.connect().simple_query("SELECT id FROM p").unwrap();
}

/// The server begins to lie while a session is open: the session sends it nothing any more.
#[test]
fn a_server_that_begins_to_call_a_pinned_column_plain_gets_nothing_more() {
    let pinned = ["public.p.age"];
    for (name, then) in [
        ("later", "SELECT id FROM p WHERE age = 4711"),
        ("other", "SELECT id AS never_sent FROM p"),
    ] {
        let fake = Fake::start_pinned(name, honest, &pinned);
        let mut sql = fake.connect();
        sql.simple_query("SELECT id FROM p WHERE age = 4711")
            .unwrap();
        sql.simple_query("ALTER TABLE from_now_on_lies ADD x int")
            .unwrap();
        for _ in 0..2 {
            let error = sql.simple_query(then).unwrap_err();
            assert_eq!(error.code().unwrap().code(), "SR106", "{name}");
            let error = sql.prepare(then).unwrap_err();
            assert_eq!(error.code().unwrap().code(), "SR106", "{name}");
        }
        assert!(!fake.was_sent(b"never_sent"));
        fake.assert_clean(CANARIES);
    }
    // The lie is found with the statement that names something that is not known.
    let fake = Fake::start_pinned("unknown", honest, &pinned);
    let mut sql = fake.connect();
    sql.simple_query("SET from_now_on_lies.x TO 1").unwrap();
    let error = sql
        .simple_query("SELECT 1 AS never_sent FROM not_known")
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "SR106");
    assert!(!fake.was_sent(b"never_sent"));
}
