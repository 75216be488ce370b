//! Arrays as constants and parameters, and functions that tell the time.

use super::{becomes, planned, refused, shop, stays};
use crate::sql::plan;

#[test]
fn arrays_become_arrays_of_the_confidential_type() {
    becomes(
        "SELECT id FROM p WHERE name = ANY('{a,b}')",
        "SELECT id FROM p WHERE name = ANY($1)",
        &["1={a,b}"],
    );
    becomes(
        "SELECT id FROM p WHERE name = ANY('{a,b}'::varchar[])",
        "SELECT id FROM p WHERE name = ANY($1::enc_text[])",
        &["1={a,b}"],
    );
    becomes(
        "SELECT id FROM p WHERE age <> ALL($1::int[])",
        "SELECT id FROM p WHERE age <> ALL($1::enc_int4[])",
        &[],
    );
    becomes(
        "SELECT id FROM p WHERE name = ANY(ARRAY['a', $1]::text[])",
        "SELECT id FROM p WHERE name = ANY(ARRAY[$2::enc_text, $1]::enc_text[])",
        &["2=a"],
    );
    becomes(
        "SELECT id FROM p, unnest('{1,2}'::int[]) u WHERE age = u",
        "SELECT id FROM p, unnest($1::enc_int4[]) u WHERE age = u",
        &["1={1,2}"],
    );
    // The type of a column, as an application's own SQL names it.
    becomes(
        "INSERT INTO p (id, name) SELECT * FROM unnest('{1}'::int[], ('{a}')::enc_text(ordered)[])",
        "INSERT INTO p (id, name) SELECT * FROM unnest('{1}'::int[], $1::enc_text[])",
        &["1={a}"],
    );
    becomes(
        "INSERT INTO p (id, name) SELECT u.i, u.n FROM unnest('{1}'::int[], '{12:00}'::time[], '{a}'::enc_text[]) u(i, t, n)",
        "INSERT INTO p (id, name) SELECT u.i, u.n FROM unnest('{1}'::int[], '{12:00}'::time[], $1::enc_text[]) u(i, t, n)",
        &["1={a}"],
    );
    becomes(
        "SELECT unnest(ARRAY[1, $1]::enc_int4[])",
        "SELECT unnest(ARRAY[$2::enc_int4, $1]::enc_int4[])",
        &["2=1"],
    );
    stays("SELECT id FROM p WHERE id = ANY('{1,2}'::int[]) AND id = ANY($1::int[])");
    refused("SELECT id FROM p WHERE name = ANY('{a,b}'::varchar(1)[])");
    refused("SELECT id FROM p WHERE name = ANY('{a,b}'::inet[])");
}

#[test]
fn each_array_of_unnest_is_a_column_of_its_own() {
    becomes(
        "INSERT INTO p (id, name, age) SELECT * FROM unnest('{1}'::int[], '{a}'::text[], $1::int[])",
        "INSERT INTO p (id, name, age) SELECT * FROM unnest('{1}'::int[], $2::enc_text[], $1::enc_int4[])",
        &["2={a}"],
    );
    becomes(
        "INSERT INTO p (id, name) SELECT u.o, u.n FROM unnest('{a}'::text[]) WITH ORDINALITY u(n, o) WHERE u.o > 7",
        "INSERT INTO p (id, name) SELECT u.o, u.n FROM unnest($1::enc_text[]) WITH ORDINALITY u(n, o) WHERE u.o > 7",
        &["1={a}"],
    );
    becomes(
        "UPDATE p SET name = u.n FROM unnest($1::int[], $2::text[]) u(i, n) WHERE u.i = p.id",
        "UPDATE p SET name = u.n FROM unnest($1::int[], $2::enc_text[]) u(i, n) WHERE u.i = p.id",
        &[],
    );
    // The names of rows' fields are not known: every column may be any of them.
    let plans = plan(
        "INSERT INTO p (id, name) SELECT * FROM unnest($1::q[], '{a}'::text[])",
        &shop(),
        0,
    );
    assert!(plans.is_err() || !plans.unwrap()[0].sql.contains("{a}"));
}

#[test]
fn the_proxys_clock_counts_beside_confidential_values() {
    becomes(
        "SELECT id FROM p WHERE at < now() AND born <= CURRENT_DATE",
        "SELECT id FROM p WHERE at < $1::enc_timestamptz AND born <= $2::enc_date",
        &["1=now()", "2=CURRENT_DATE"],
    );
    becomes(
        "INSERT INTO p (id, at) VALUES (1, statement_timestamp())",
        "INSERT INTO p (id, at) VALUES (1, $1::enc_timestamptz)",
        &["1=statement_timestamp()"],
    );
    becomes(
        "SELECT id FROM p WHERE at > now() - interval '1 day'",
        "SELECT id FROM p WHERE at > $1::enc_timestamptz - $2::enc_interval",
        &["1=now()", "2=1 day"],
    );
    stays("INSERT INTO plain (n) VALUES (now())");
    stays("SELECT now(), CURRENT_DATE FROM p");
    stays("SELECT id FROM plain WHERE n < now() - interval '1 day'");
    // A schema's own function is not the clock.
    assert!(
        planned("SELECT id FROM p WHERE at < other.now()")
            .1
            .is_empty()
    );
    refused("CREATE VIEW w AS SELECT id FROM p WHERE at < now()");
    refused("ALTER TABLE p ALTER at SET DEFAULT now()");
}

#[test]
fn uuids_and_times_of_day_become_parameters() {
    let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    becomes(
        &format!("SELECT id FROM hours WHERE badge = '{uuid}'::uuid OR badge IN ('{uuid}', $1)"),
        "SELECT id FROM hours WHERE badge = $2::enc_uuid OR badge IN ($3, $1)",
        &[&format!("2={uuid}"), &format!("3={uuid}")],
    );
    becomes(
        &format!("SELECT id FROM hours WHERE badge = ANY('{{{uuid}}}'::uuid[])"),
        "SELECT id FROM hours WHERE badge = ANY($1::enc_uuid[])",
        &[&format!("1={{{uuid}}}")],
    );
    becomes(
        "SELECT id FROM hours WHERE opens < LOCALTIME AND opens > '08:00'",
        "SELECT id FROM hours WHERE opens < $1::enc_time AND opens > $2",
        &["1=LOCALTIME", "2=08:00"],
    );
    becomes(
        "SELECT opens + interval '1 hour' FROM hours WHERE opens > time '23:30' + interval '1 hour'",
        "SELECT opens + $2::enc_interval FROM hours WHERE opens > $1::enc_time",
        &["1=00:30:00", "2=1 hour"],
    );
    becomes(
        "SELECT opens + (date '2024-02-29' + time '06:00')::date FROM hours",
        "SELECT opens + $1::enc_timestamp::enc_date FROM hours",
        &["1=2024-02-29 06:00:00"],
    );
    stays("SELECT id FROM plain WHERE n < LOCALTIME");
    refused("SELECT id FROM hours WHERE opens = '08:00:00.5'::time(0)");
}

#[test]
fn a_precision_of_a_time_is_not_dropped() {
    for of in ["time(0)", "timestamp(3)", "timestamptz(0)", "interval hour"] {
        let _refusal = refused(&format!("SELECT at::{of} FROM p"));
    }
    let _planned = planned("SELECT name::varchar(3), salary::numeric(8, 2), at::time FROM p");
}

#[test]
fn documents_become_parameters() {
    becomes(
        "SELECT id FROM hours WHERE doc = '{\"a\":1}'::jsonb OR doc IN ('[]', $1)",
        "SELECT id FROM hours WHERE doc = $2::enc_jsonb OR doc IN ($3, $1)",
        &["2={\"a\":1}", "3=[]"],
    );
    becomes(
        "INSERT INTO hours (id, doc) VALUES (1, '{}'), (2, NULL), (3, $1::jsonb)",
        "INSERT INTO hours (id, doc) VALUES (1, $2), (2, NULL), (3, $1::enc_jsonb)",
        &["2={}"],
    );
    becomes(
        "SELECT doc::text, (doc::text || ' ')::jsonb FROM hours",
        "SELECT doc::enc_text, (doc::enc_text || $1)::enc_jsonb AS jsonb FROM hours",
        &["1= "],
    );
    becomes(
        "SELECT doc -> 'a' -> 0 ->> 'b' FROM hours WHERE doc ->> 'c' = 'd' AND doc ? 'e'",
        "SELECT doc -> $4::enc_text -> $5::enc_int4 ->> $6::enc_text FROM hours WHERE doc ->> $1::enc_text = $2 AND doc ? $3",
        &["1=c", "2=d", "3=e", "4=a", "5=0", "6=b"],
    );
    becomes(
        "SELECT (doc ->> 'n')::int4 FROM hours WHERE doc @> '{\"a\":1}' AND '[]'::jsonb <@ doc",
        "SELECT (doc ->> $3::enc_text)::enc_int4 AS int4 FROM hours WHERE doc @> $1 AND $2::enc_jsonb <@ doc",
        &["1={\"a\":1}", "2=[]", "3=n"],
    );
    stays("SELECT n::jsonb -> 'a', '{}'::jsonb FROM plain WHERE n @> '[]'::jsonb");
    stays("SELECT jsonb_build_object('a', n) FROM plain");
    // The server would see the place.
    refused("SELECT doc[5] FROM hours");
    refused("SELECT id FROM hours WHERE doc['a'][$1] = '1'");
    // The server would write envelopes, or see the document.
    refused("SELECT to_jsonb(doc) FROM hours");
    refused("SELECT jsonb_build_object('a', doc) FROM hours");
    refused("SELECT id FROM hours WHERE doc = '{}'::json");
}
