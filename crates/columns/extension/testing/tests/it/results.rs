//! Goal: the client takes for a value of an answer only what the zone has sealed for its session,
//! once and in its place; and every way in which rows reach a client keeps that order.
//!
//! Method: server, zone and proxy, all real, and between proxy and server a relay that does what a
//! server's operator can: changes the rows on their way.

use std::io::{BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_benches_oltp::wire::{Answer, Client, Field};
use strongroom_columns_testing::owner::start_all;
use strongroom_postgres_wire::{self as wire, Builder, Fields, Message, append};
use tempfile::TempDir;

/// What the operator does to the rows of the next answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trick {
    Nothing,
    /// Exchanges the first two rows.
    ExchangeRows,
    /// Exchanges the first two fields of each row.
    ExchangeFields,
    /// Sends the second row in the place of the first, too.
    Repeat,
    /// Keeps the body of the last row.
    Keep(Vec<u8>),
    /// Sends this body in the place of each row.
    Replace(Vec<u8>),
    /// Says that the one column is an `int4`, and that its value is this one.
    MakeUp(&'static str),
}

/// The relay's directory, and what it does.
struct Relay {
    directory: TempDir,
    trick: Arc<Mutex<Trick>>,
}

impl Relay {
    /// Begins to relay connections to the server with this directory.
    fn to(server: &Path) -> Self {
        let directory = TempDir::new().expect("a directory of our own");
        let listener = UnixListener::bind(directory.path().join(".s.PGSQL.5432"));
        let listener = listener.expect("a socket of our own");
        let trick = Arc::new(Mutex::new(Trick::Nothing));
        let (target, tricks) = (server.join(".s.PGSQL.5432"), Arc::clone(&trick));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let server = UnixStream::connect(&target).expect("a server");
                relay(client, server, &tricks);
            }
        });
        Self { directory, trick }
    }

    fn trick(&self) -> MutexGuard<'_, Trick> {
        self.trick.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last answer to a statement, of whose rows this is made on the way, or why it is none;
    /// and what has become of the trick. The connection is one whose session is open: the proxy's
    /// own queries have rows too.
    fn played(&self, client: &mut Client, trick: Trick, sql: &str) -> (String, Trick) {
        *self.trick() = trick;
        let said = match client.query(sql) {
            Ok(answers) => answers.last().map(all_rows).unwrap_or_default(),
            Err(failure) => format!("{failure:?}"),
        };
        let trick = std::mem::replace(&mut *self.trick(), Trick::Nothing);
        (said, trick)
    }
}

/// The rows of an answer, as psql writes them.
fn all_rows(answer: &Answer) -> String {
    let fields = |row: &Vec<Field>| {
        let texts = row.iter().map(|field| field.as_deref().unwrap_or_default());
        texts.collect::<Vec<_>>().join("|")
    };
    answer
        .rows
        .iter()
        .map(fields)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Relays one connection in two threads.
fn relay(client: UnixStream, server: UnixStream, tricks: &Arc<Mutex<Trick>>) {
    let (mut from_client, mut to_server) = (
        client.try_clone().expect("a socket"),
        server.try_clone().expect("a socket"),
    );
    std::thread::spawn(move || {
        let _copied = std::io::copy(&mut from_client, &mut to_server);
        let _ended = to_server.shutdown(std::net::Shutdown::Both);
    });
    let tricks = Arc::clone(tricks);
    std::thread::spawn(move || {
        let _ended = relay_answers(server, client, &tricks);
    });
}

/// Relays the server's messages; those of rows as the trick says.
fn relay_answers(
    server: UnixStream,
    mut client: UnixStream,
    tricks: &Mutex<Trick>,
) -> std::io::Result<()> {
    let mut server = BufReader::new(server);
    let mut held: Option<Vec<u8>> = None;
    while let Some(Message { tag, body }) = wire::read(&mut server)? {
        let mut trick = tricks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = Vec::new();
        match (tag, &mut *trick) {
            (b'D', Trick::ExchangeRows | Trick::Repeat) if held.is_none() => {
                held = Some(body);
                continue;
            }
            (b'D', Trick::ExchangeRows) => {
                append(&mut out, b'D', &body);
                append(&mut out, b'D', &held.take().unwrap_or_default());
                *trick = Trick::Nothing;
            }
            (b'D', Trick::Repeat) => {
                append(&mut out, b'D', &body);
                append(&mut out, b'D', &body);
                *trick = Trick::Nothing;
            }
            (b'D', Trick::ExchangeFields) => append_exchanged(&mut out, &body),
            (b'D', Trick::Keep(kept)) => {
                kept.clone_from(&body);
                append(&mut out, b'D', &body);
            }
            (b'D', Trick::Replace(other)) => append(&mut out, b'D', other),
            (b'D', Trick::MakeUp(text)) => append(&mut out, b'D', &row_of(text)),
            (b'T', Trick::MakeUp(_)) => append_plain_description(&mut out, &body),
            _ => append(&mut out, tag, &body),
        }
        drop(trick);
        client.write_all(&out)?;
    }
    Ok(())
}

/// Appends a row with its first two fields in each other's place.
fn append_exchanged(out: &mut Vec<u8>, body: &[u8]) {
    let mut fields = Fields(body);
    let count = fields.count().unwrap_or_default();
    let mut values: Vec<_> = (0..count).filter_map(|_| fields.value()).collect();
    if values.len() > 1 {
        values.swap(0, 1);
    }
    let mut message = Builder::new(out, b'D');
    message.count(values.len());
    for value in values {
        message.value(value);
    }
    message.end();
}

/// Appends the description of a row of one column, whose type is `int4`.
fn append_plain_description(out: &mut Vec<u8>, body: &[u8]) {
    let mut fields = Fields(body);
    let (count, name) = (fields.count().unwrap_or_default(), fields.string());
    let (origin, _type, rest) = (fields.bytes(6), fields.oid(), fields.bytes(8));
    let mut message = Builder::new(out, b'T');
    message.count(count).string(name.unwrap_or_default());
    message.bytes(origin.unwrap_or_default()).oid(23);
    message.bytes(rest.unwrap_or_default()).end();
}

/// The body of a row of one field in text.
fn row_of(text: &str) -> Vec<u8> {
    let mut message = Vec::new();
    let mut row = Builder::untagged(&mut message);
    row.count(1).value(Some(text.as_bytes()));
    // Behind the length.
    message.split_off(4)
}

const MADE: &str = "create table t (id int, a enc_int4, b enc_int4, c enc_text) using strongroom;
    insert into t values (1, 10, 11, 'one'), (2, 20, 21, 'two'), (3, 30, null, 'three')";

#[test]
fn answers_that_an_operator_has_changed_are_refused() {
    let (mut owner, server) = start_all("");
    let relay = Relay::to(server.socket());
    owner.start_proxy(relay.directory.path());
    assert_eq!(owner.rows(MADE), "");
    let whole = "select a, b, c from t order by id";
    let honest = "10|11|one\n20|21|two\n30||three";
    assert_eq!(owner.rows(whole), honest);
    let refused = "no answer to this statement";
    let connect = || {
        let mut client = owner.connect().expect("a connection");
        let _ready = client.query("select 1").expect("an answer");
        client
    };
    for (trick, sql) in [
        (Trick::ExchangeRows, whole),
        (Trick::Repeat, whole),
        (Trick::ExchangeFields, "select sum(a), sum(b) from t"),
    ] {
        let (said, _) = relay.played(&mut connect(), trick.clone(), sql);
        assert!(said.contains(refused), "{trick:?}: {said}");
    }
    let (said, _) = relay.played(&mut connect(), Trick::Nothing, whole);
    assert_eq!(said, honest);
    // A sum of before: of the session that asked for it, and of another one.
    let sum = "select sum(a) from t";
    let mut session = connect();
    let (first, kept) = relay.played(&mut session, Trick::Keep(Vec::new()), sum);
    assert_eq!(first, "60");
    let Trick::Keep(kept) = kept else {
        unreachable!("the trick stays what it was");
    };
    assert_eq!(owner.rows("update t set a = a + 1"), "");
    for client in [&mut connect(), &mut session] {
        let (again, _) = relay.played(client, Trick::Replace(kept.clone()), sum);
        assert!(again.contains(refused), "{again}");
    }
    // What anybody may have sealed.
    let dumped = server.rows("select a from t where id = 1");
    let one = "select a from t limit 1";
    let (said, _) = relay.played(&mut connect(), Trick::Replace(row_of(&dumped)), one);
    assert!(said.contains(refused), "{said}");
    assert_eq!(owner.rows(sum), "63");
    // A value that the server has made up, which is no envelope at all.
    for sql in [
        sum,
        one,
        "select max(a) from t",
        "select a + b from t where id = 1",
    ] {
        let (said, _) = relay.played(&mut connect(), Trick::MakeUp("7"), sql);
        assert!(said.contains("SR-8108"), "{sql}: {said}");
    }
    let count = "select count(*) from t";
    let (said, _) = relay.played(&mut connect(), Trick::MakeUp("7"), count);
    assert_eq!(said, "7", "the server's word, as the concept says");
}

/// Attack: one column's values as another's.
#[test]
fn a_column_s_values_are_not_another_s() {
    let (owner, server) = start_all("");
    assert_eq!(owner.rows(MADE), "");
    let others = "create table other (a enc_int4, b enc_int4(ordered)) using strongroom;
        insert into other values (7, 8)";
    assert_eq!(owner.rows(others), "");
    assert_eq!(owner.rows("select a, b from other"), "7|8");
    // The catalog says of one column that it is the other, and whoever reads it does so first.
    for table in ["t", "other"] {
        let exchange = format!(
            "alter table {table} rename a to x; alter table {table} rename b to a; alter table {table} rename x to b"
        );
        assert_eq!(server.rows(&exchange), "");
        let forgotten = owner
            .columns()
            .args(["pins", "--forget", &format!("public.{table}")])
            .status();
        assert!(forgotten.is_ok_and(|status| status.success()));
    }
    for sql in [
        "select a from t",
        "select b, a from other",
        "select coalesce(a, 5) from other",
        "select x from (select b as x from other union select b from other) y",
        "begin; declare k cursor for select id, a from t; fetch all from k",
        "prepare k as select id, a from t; execute k",
        "prepare k (int) as select b from other where $1 = 1; begin; execute k (1)",
        "begin; declare k binary cursor with hold for select b from other; commit; fetch 1 from k",
        "copy t (b) to stdout",
        "copy (select b from other) to stdout (format binary)",
    ] {
        let said = owner.run(sql);
        assert!(
            said.messages.contains("SR-8108"),
            "{sql}: {}{}",
            said.rows,
            said.messages
        );
    }
    // What was renamed on purpose, its owner says; and other names are no one's.
    assert_eq!(owner.rows("select c from t where id = 1"), "one");
    assert_eq!(owner.rows("alter table t rename c to note"), "");
    assert_eq!(owner.rows("select note from t where id = 1"), "one");
    let mut owner = owner;
    let adopted = [
        "--adopt",
        "public.t.a=public.t.b",
        "--adopt",
        "public.t.b=public.t.a",
    ];
    owner.start_proxy_with(server.socket(), &adopted);
    assert_eq!(owner.rows("select b, a from t where id = 1"), "10|11");
}

/// Statements that send confidential values to the client, each in a way of its own, and their
/// rows.
const WAYS: &[(&str, &str)] = &[
    (
        "select a, a, b, a from t order by id",
        "10|10|11|10\n20|20|21|20\n30|30||30",
    ),
    (
        "select c, array[a, b], c, a, array_agg(a) over () from t where id < 3 order by id",
        "one|{10,11}|one|10|{10,20}\ntwo|{20,21}|two|20|{10,20}",
    ),
    (
        "insert into t values (4, 40, 41, 'four') returning c, a, b",
        "four|40|41",
    ),
    ("update t set b = a where id = 4 returning b, a", "40|40"),
    (
        "with d as (delete from t where id = 4 returning *) select c, a from d",
        "four|40",
    ),
    (
        "begin; declare k scroll cursor for select c, a from t order by id; fetch 2 from k; fetch backward 1 from k; commit",
        "one|10\ntwo|20\none|10",
    ),
    (
        "begin; declare k cursor for select c from t order by id; close k;
         declare k cursor for select a, c from t order by id; fetch 1 from k; rollback",
        "10|one",
    ),
    (
        "begin; declare k cursor for select c from t order by id; rollback;
         begin; declare k cursor for select id, a from t order by id; fetch 1 from k; rollback",
        "1|10",
    ),
    (
        "begin; declare k cursor for select c from t order by id; savepoint s; declare l cursor for select id from t;
         rollback to s; fetch 1 from k; declare l cursor for select a from t order by id; fetch 1 from l; rollback",
        "one\n10",
    ),
    (
        "begin; declare h cursor with hold for select a, c from t order by id; commit; fetch all from h; close h",
        "10|one\n20|two\n30|three",
    ),
    (
        "copy t (c, b, a) to stdout",
        "one\t11\t10\ntwo\t21\t20\nthree\t\\N\t30",
    ),
    (
        "copy (select c, a, c from t order by id) to stdout (format csv)",
        "one,10,one\ntwo,20,two\nthree,30,three",
    ),
    (
        "prepare p as select c, a from t order by id limit 1; execute p; execute p",
        "one|10\none|10",
    ),
    (
        "create function f(out x enc_text, out y enc_int4) language sql as 'select c, a from t order by id'; select * from f(); drop function f",
        "one|10",
    ),
    (
        "create procedure r(inout x enc_text, inout y enc_int4) language sql as 'select c, a from t order by id'; call r(null, null); drop procedure r",
        "one|10",
    ),
    (
        "table t order by id limit 1; select c, sum(a) from t group by c order by c; values (1)",
        "1|10|11|one\none|10\nthree|30\ntwo|20\n1",
    ),
];

#[test]
fn every_way_to_the_client_keeps_the_order() {
    let (owner, server) = start_all("");
    assert_eq!(owner.rows(MADE), "");
    for (sql, rows) in WAYS {
        let said = owner.run(sql);
        assert_eq!(said.rows, *rows, "{sql}: {}", said.messages);
    }
    // What the server keeps for itself is of no session: a file comes back as a dump does.
    let file = server.data().join("kept.txt");
    let file = file.display();
    for copied in ["t", "(select * from t)"] {
        let function = format!(
            "create or replace function keep() returns void language plpgsql as
             $$ begin copy {copied} to '{file}'; end $$"
        );
        assert_eq!(server.rows(&function), "");
        assert_eq!(owner.rows("select keep()"), "");
        let back = format!(
            "create table back (like t) using strongroom; copy back from '{file}'; select count(*) from back"
        );
        assert_eq!(server.rows(&back), "3", "{copied}");
        let values = owner.rows("select a, b, c from back order by id");
        assert_eq!(values, "10|11|one\n20|21|two\n30||three");
        assert_eq!(server.rows("drop table back"), "");
    }
}
