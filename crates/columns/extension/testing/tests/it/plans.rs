//! Goal: the planner knows how many rows a range of a confidential column keeps, and what is asked
//! ahead of a scan changes no answer.
//!
//! Method: a table of many pages has each value twice, confidential and in clear, and is changed
//! while scans stand on it; conditions on both must agree for every row. Estimates are read from
//! EXPLAIN.

use std::path::Path;

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

const ROWS: u32 = 20_000;

/// A table with confidential columns and the same values beside them.
fn made() -> (Owner, Server, Client) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), "");
    let _made = server.rows("create extension strongroom_columns");
    owner.start_proxy(server.socket());
    let mut client = owner.connect().expect("a connection");
    let _made = client
        .query(
            "create table t (id int primary key, i enc_int4, n enc_numeric, s enc_text, d enc_date, d2 enc_date, \
             pi int, pn numeric, ps text, pd date, pd2 date) using strongroom",
        )
        .expect("the table is made");
    for from in (1..=ROWS).step_by(500) {
        let rows: Vec<String> = (from..from + 500).map(row).collect();
        let _filled = client
            .query(&format!("insert into t values {}", rows.join(",")))
            .expect("rows are stored");
    }
    let _analyzed = client.query("analyze t").expect("it is analyzed");
    (owner, server, client)
}

fn row(id: u32) -> String {
    let mixed = id.wrapping_mul(2_654_435_761) >> 8;
    let (i, n, d) = (mixed % 1000, mixed % 777, mixed % 365);
    let values = format!(
        "{i}, {n}.25, 'text {}', date '2024-01-01' + {d}, date '2024-01-01' + {}",
        mixed % 50,
        mixed % 331
    );
    if id.is_multiple_of(97) {
        format!("({id}, null, null, null, null, null, null, null, null, null, null)")
    } else {
        format!("({id}, {values}, {values})")
    }
}

fn one(client: &mut Client, sql: &str) -> String {
    let rows = client.rows(sql).expect("it is answered");
    let first = rows.into_iter().flatten().flatten().next();
    first.unwrap_or_default()
}

/// Conditions, on the confidential columns and on the others.
const CONDITIONS: &[(&str, &str)] = &[
    ("i < 100", "pi < 100"),
    (
        "i >= 100 and i < 250 and n <= 400.25 and d > date '2024-03-01'",
        "pi >= 100 and pi < 250 and pn <= 400.25 and pd > date '2024-03-01'",
    ),
    (
        "s in ('text 3', 'text 4') and d < d2",
        "ps in ('text 3', 'text 4') and pd < pd2",
    ),
    ("s like '%7' and i <> 500", "ps like '%7' and pi <> 500"),
    (
        "d between date '2024-05-01' and date '2024-06-01' or i = 7",
        "pd between date '2024-05-01' and date '2024-06-01' or pi = 7",
    ),
];

fn check_conditions(client: &mut Client, when: &str) {
    for (confidential, plain) in CONDITIONS {
        let sql =
            format!("select count(*) from t where ({confidential}) is distinct from ({plain})");
        assert_eq!(one(client, &sql), "0", "{when}: {confidential}");
        let counts = ["i", "pi"].map(|by| {
            let condition = if by == "i" { confidential } else { plain };
            one(
                client,
                &format!(
                    "select count(*) from (select {by} from t where {condition} group by {by}) g"
                ),
            )
        });
        assert_eq!(counts[0], counts[1], "{when}: groups of {confidential}");
    }
}

#[test]
fn what_is_asked_ahead_changes_no_answer() {
    let (owner, _server, mut client) = made();
    check_conditions(&mut client, "as filled");
    let mut other = owner.connect().expect("a connection");
    for _ in 0..3 {
        // Rows go and come while a scan stands in the middle of the table; it does not see it, and
        // the pages ahead have changed.
        let _begun = client
            .query(
                "begin; declare c cursor for select id, pi from t where i < 500 and s <> 'text 9'",
            )
            .expect("a cursor");
        let mut seen = client.rows("fetch 2000 from c").expect("rows");
        let _changed = other
            .query(
                "delete from t where id % 7 = 0; update t set i = i + 1, pi = pi + 1 where id % 5 = 0; \
                 insert into t select id + 1000000 * (select 1 + max(id) / 1000000 from t), i, n, s, d, d2, pi, pn, ps, pd, pd2 from t where id % 11 = 0",
            )
            .expect("rows change");
        seen.extend(client.rows("fetch all from c").expect("rows"));
        let _ended = client.query("commit").expect("the cursor ends");
        assert!(seen.len() > 5000);
        for row in &seen {
            let value: i32 = row[1]
                .as_deref()
                .unwrap_or_default()
                .parse()
                .expect("a number");
            assert!(value < 500, "{row:?}");
        }
        check_conditions(&mut other, "after changes");
        let _vacuumed = other.query("vacuum t").expect("it is vacuumed");
        check_conditions(&mut client, "after VACUUM");
    }
}

#[test]
fn scans_that_take_turns_keep_their_answers_apart() {
    let (_owner, _server, mut client) = made();
    // Each fetch takes both scans some pages on; what one asked ahead is answered while the other
    // asks.
    let _begun = client
        .query(
            "begin; declare a cursor for select id, pi from t where i < 120; \
             declare b cursor for select id, pi from t where i >= 880",
        )
        .expect("two cursors");
    let (mut low, mut high) = (Vec::new(), Vec::new());
    loop {
        let before = low.len() + high.len();
        low.extend(client.rows("fetch 7 from a").expect("rows"));
        high.extend(client.rows("fetch 7 from b").expect("rows"));
        if low.len() + high.len() == before {
            break;
        }
    }
    let _ended = client.query("commit").expect("they end");
    let number = |row: &Vec<Option<String>>| -> i32 {
        let text = row[1].as_deref().unwrap_or_default();
        text.parse().expect("a number")
    };
    assert!(low.iter().all(|row| number(row) < 120));
    assert!(high.iter().all(|row| number(row) >= 880));
    let counts = ["pi < 120", "pi >= 880"].map(|condition| {
        one(
            &mut client,
            &format!("select count(*) from t where {condition}"),
        )
    });
    assert_eq!([low.len().to_string(), high.len().to_string()], counts);
}

#[test]
fn ranges_are_estimated_by_some_rows() {
    let (_owner, server, mut client) = made();
    let estimated = |client: &mut Client, condition: &str| -> f64 {
        let lines = client
            .rows(&format!("explain select * from t where {condition}"))
            .expect("a plan");
        let text = lines[0][0].clone().unwrap_or_default();
        let (_, rows) = text.split_once(" rows=").expect("rows");
        let number: String = rows.chars().take_while(char::is_ascii_digit).collect();
        number.parse().expect("a number")
    };
    for (condition, part) in [
        ("i < 100", 0.1),
        ("i >= 900", 0.1),
        ("500 > i", 0.5),
        ("d >= date '2024-07-01'", 0.5),
    ] {
        let rows = estimated(&mut client, condition);
        let expected = f64::from(ROWS) * part;
        assert!(
            (expected / 2.0..expected * 2.0).contains(&rows),
            "{condition}: {rows} rows"
        );
    }
    let _off = client
        .query("set strongroom.estimates = off")
        .expect("a setting");
    let rows = estimated(&mut client, "i < 100");
    assert!(
        (f64::from(ROWS) * 0.32..f64::from(ROWS) * 0.34).contains(&rows),
        "{rows}"
    );
    // Who has no session gets a plan too. An envelope is a constant that only the zone can read.
    let mut operator = Client::connect(server.socket()).expect("a connection");
    let envelope = one(&mut operator, "select i from t where id = 1");
    let rows = estimated(&mut operator, &format!("i < '{envelope}'"));
    assert!(
        (f64::from(ROWS) * 0.32..f64::from(ROWS) * 0.34).contains(&rows),
        "{rows}"
    );
    assert!(Path::new(server.socket()).exists());
}
