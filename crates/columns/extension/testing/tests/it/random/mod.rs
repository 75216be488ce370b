//! Goal: a statement says the same of confidential columns as of plain ones: the same rows, the
//! same SQLSTATE.
//!
//! Method: random statements over all types, from a seed that is printed, against a plain server
//! and through the proxy; changes are compared by what is in the table afterwards, and mostly
//! rolled back. What is refused by design (SQLSTATE `SR1xx`, `0A000`) is counted and may be a small
//! share only; anything else that differs fails the test, but for two things that are no promise of
//! PostgreSQL's either: which of its errors a statement ends with when it has several - expressions
//! and rows have no order - and whether an error among constants comes for no row at all, because
//! the planner met it. A run is the same number of statements from the same seed;
//! `STRONGROOM_SQL_SECONDS` makes it last so long, from a new seed or that of `STRONGROOM_SEED`.

mod expressions;
mod generator;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use generator::{Generator, Statement};
use strongroom_benches_oltp::wire::{Client, Failure, Field};
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::{Server, must, print_line, seconds, seed};
use values::{COLUMNS, name};

/// At most one statement in so many may be refused by design.
const REFUSED_SHARE: usize = 20;
/// Differences that are shown before the test gives up.
const SHOWN: usize = 8;
/// Statements of a run that has no time, and their seed.
const STATEMENTS: usize = 4000;
const SEED: u64 = 7;
/// Of the statements that fail, at most one in so many may do so with another of its errors.
const OTHER_ERROR_SHARE: usize = 10;
/// Rows of each table.
const ROWS: u32 = 50;
/// Columns that have an index, each with its table.
const INDEXED: [(&str, &str); 5] = [("t", "i"), ("t", "n"), ("t", "d"), ("u", "s"), ("u", "k")];

type Rows = Vec<Vec<Field>>;

fn define(table: &str, confidential: bool) -> String {
    let columns = COLUMNS.iter().map(|(column, of)| {
        let prefix = if confidential { "enc_" } else { "" };
        let ordered = confidential && INDEXED.contains(&(table, *column));
        let modifier = if ordered { "(ordered)" } else { "" };
        format!("{column} {prefix}{}{modifier}", name(*of))
    });
    let columns: Vec<String> = columns.collect();
    let method = if confidential {
        " using strongroom"
    } else {
        ""
    };
    format!(
        "create table {table} (id int primary key, g int, tid int, {}){method}",
        columns.join(", ")
    )
}

/// Both tables with the same rows; some have indexes, so that plans differ.
fn fill(generator: &mut Generator, clients: &mut [&mut Client; 2]) {
    for table in ["t", "u"] {
        for (client, confidential) in clients.iter_mut().zip([false, true]) {
            let _made = client
                .query(&define(table, confidential))
                .expect("the table is made");
        }
        for id in 1..=ROWS {
            let values = COLUMNS.iter().map(|(_, of)| {
                let null = generator.random.u32(0..6) == 0;
                if null {
                    "NULL".to_owned()
                } else {
                    generator.literal(*of)
                }
            });
            let values: Vec<String> = values.collect();
            let sql = format!(
                "insert into {table} values ({id}, {}, {}, {})",
                id % 5,
                ROWS - id + 3,
                values.join(", ")
            );
            for client in clients.iter_mut() {
                let _row = must(client.query(&sql), &sql);
            }
        }
    }
    for client in clients.iter_mut() {
        let _made = client
            .query("create index on t (i); create index on u (s); create index on u (k); create index on t (n, d)")
            .expect("indexes are made");
    }
}

/// What a statement said: rows, or an SQLSTATE with its message.
fn ask(client: &mut Client, statement: &Statement) -> Result<Rows, (String, String)> {
    let rows = if statement.parameters.is_empty() {
        client.rows(&statement.sql)
    } else {
        let parameters: Vec<Option<&str>> = statement
            .parameters
            .iter()
            .map(|text| Some(text.as_str()))
            .collect();
        client
            .execute(&statement.sql, &parameters)
            .map(|answer| answer.rows)
    };
    let mut rows = rows.map_err(|failure| match failure {
        Failure::Server { state, message } => (state, message),
        // What follows fails then, with this statement's text.
        Failure::Lost(error) => ("lost".to_owned(), error.to_string()),
    })?;
    if statement.merges {
        for field in rows.iter_mut().flatten().flatten() {
            *field = shortest(field);
        }
    }
    if !statement.ordered {
        rows.sort();
    }
    Ok(rows)
}

/// A number without zeros at its end: which of equal numbers stands for them all - 0 and 0.00 - is
/// up to the plan.
fn shortest(field: &str) -> String {
    let number = field.contains('.')
        && field
            .chars()
            .all(|one| matches!(one, '0'..='9' | '.' | '-'));
    let field = if number {
        field.trim_end_matches('0').trim_end_matches('.')
    } else {
        field
    };
    if field == "-0" {
        "0".to_owned()
    } else {
        field.to_owned()
    }
}

/// Runs a statement in a transaction; a change is followed by a look at the whole table.
fn answer(
    client: &mut Client,
    statement: &Statement,
    keep: bool,
) -> Result<Rows, (String, String)> {
    let changes = !statement.sql.starts_with("SELECT") && !statement.sql.starts_with("WITH");
    if !changes {
        return ask(client, statement);
    }
    let _begun = must(client.query("begin"), &statement.sql);
    let said = ask(client, statement).map(|mut rows| {
        let table = client.rows("select * from t order by id");
        rows.extend(must(table, &statement.sql));
        rows
    });
    let end = if keep && said.is_ok() {
        "commit"
    } else {
        "rollback"
    };
    let _ended = must(client.query(end), &statement.sql);
    said
}

/// Whether this is an error of computing: a data exception.
fn is_of_computing(state: &str) -> bool {
    state.starts_with("22")
}

/// Whether the planner alone fails with this error: it folds constants, also those that no row
/// would ask for.
fn fails_at_planning(client: &mut Client, statement: &Statement, state: &str) -> bool {
    let explained = Statement {
        sql: format!("explain {}", statement.sql),
        parameters: statement.parameters.clone(),
        ..*statement
    };
    matches!(ask(client, &explained), Err((found, _)) if found == state)
}

fn is_refusal(state: &str) -> bool {
    state.starts_with("SR1") || state == "0A000"
}

fn first_difference(one: &Rows, two: &Rows) -> String {
    let pair = one.iter().zip(two).find(|(one, two)| one != two);
    pair.map_or_else(
        || format!("{} rows, {} rows", one.len(), two.len()),
        |(one, two)| format!("plain {one:?}\n  confidential {two:?}"),
    )
}

/// What a run found.
#[derive(Default)]
struct Tally {
    alike: usize,
    failed_alike: usize,
    failed_otherwise: usize,
    failed_at_planning: usize,
    refused: BTreeMap<String, (usize, String)>,
    different: Vec<String>,
}

impl Tally {
    fn refused(&mut self, statement: &Statement, state: String, message: &str) {
        let first = format!("{}: {message}", statement.sql);
        self.refused.entry(state).or_insert((0, first)).0 += 1;
    }

    fn differs(&mut self, statement: &Statement, how: &str) {
        self.different.push(format!("{}\n  {how}", statement.sql));
    }

    fn check(&self, seed: u64) {
        print_line(&format!(
            "{} alike, {} failed alike, {} with another of their errors, {} at planning, refused by design {:#?}",
            self.alike,
            self.failed_alike,
            self.failed_otherwise,
            self.failed_at_planning,
            self.refused
        ));
        let different = self.different.join("\n");
        assert!(different.is_empty(), "seed {seed}\n{different}");
        let refusals: usize = self.refused.values().map(|(count, _)| count).sum();
        assert!(
            refusals * REFUSED_SHARE <= self.alike,
            "{refusals} refused of {}",
            self.alike
        );
        assert!(
            self.alike > 100 && self.failed_alike > 0,
            "the statements are no test"
        );
        let otherwise = self.failed_otherwise + self.failed_at_planning;
        assert!(
            otherwise * OTHER_ERROR_SHARE <= self.failed_alike,
            "{otherwise} of {} errors differ",
            self.failed_alike
        );
    }
}

/// Asks both servers the same, and notes what they say.
fn compare(
    statement: &Statement,
    plain: &mut Client,
    confidential: &mut Client,
    keep: bool,
    tally: &mut Tally,
) {
    let expected = answer(plain, statement, keep);
    let found = answer(confidential, statement, keep);
    match (expected, found) {
        (Ok(one), Ok(two)) if one == two => tally.alike += 1,
        (Err((one, _)), Err((two, _))) if one == two => tally.failed_alike += 1,
        (_, Err((state, message))) if is_refusal(&state) => {
            tally.refused(statement, state, &message);
            // What was kept at the plain server is not here: nothing of it stays.
            assert!(!keep, "{}", statement.sql);
        }
        (Err((one, _)), Err((two, _))) if is_of_computing(&one) && is_of_computing(&two) => {
            tally.failed_otherwise += 1;
        }
        (Err((state, _)), Ok(_))
            if is_of_computing(&state) && fails_at_planning(plain, statement, &state) =>
        {
            // What was kept here is not at the plain server.
            assert!(!keep, "{}", statement.sql);
            tally.failed_at_planning += 1;
        }
        (Ok(one), Ok(two)) => tally.differs(statement, &first_difference(&one, &two)),
        (one, two) => {
            let counts = [one, two].map(|said| said.map(|rows| rows.len()));
            tally.differs(statement, &format!("plain, confidential {counts:?}"));
        }
    }
}

#[test]
fn statements_say_the_same() {
    let timed = std::env::var_os("STRONGROOM_SQL_SECONDS").is_some();
    let repeated = std::env::var_os("STRONGROOM_SEED").is_some();
    let seed = if timed || repeated { seed() } else { SEED };
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), "");
    let _made = server.rows("create extension strongroom_columns");
    owner.start_proxy_deriving(server.socket());
    let reference = Server::start(Path::new("/nowhere"), "");
    let mut plain = Client::connect(reference.socket()).expect("a connection");
    let mut confidential = owner.connect().expect("a connection");
    let mut generator = Generator::new(seed);
    fill(&mut generator, &mut [&mut plain, &mut confidential]);

    let (begun, time) = (Instant::now(), seconds("STRONGROOM_SQL_SECONDS", 0));
    let mut tally = Tally::default();
    for number in 0_usize.. {
        let ended = if timed {
            begun.elapsed() >= time
        } else {
            number == STATEMENTS
        };
        if ended || tally.different.len() == SHOWN {
            break;
        }
        let statement = generator.statement();
        // The tables must not grow without end, nor become empty.
        let keep = generator.random.u32(0..30) == 0 && statement.sql.starts_with("UPDATE");
        compare(&statement, &mut plain, &mut confidential, keep, &mut tally);
    }
    tally.check(seed);
}
