//! Goal: errors of computing are where PostgreSQL has them: an exception block catches those of its
//! own statements and no others, and what it caught does not come back (R2).
//!
//! Method: functions in PL/pgSQL over confidential columns, beside the same over plain ones. The
//! operations are posted: where their errors are told is this extension's doing.

use std::path::Path;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::start_all;

/// A table whose computations fail in one row or the other. ENC is the type's prefix.
const TABLE: &str = "create table t (id int primary key, a ENCint4, b ENCint4, n ENCnumeric, s ENCtext) USING_;
    insert into t values (1, 10, 0, 1.5, 'one'), (2, 2147483647, 3, 2.5, 'two'), (3, 30, 5, 3.5, 'three');";

/// Functions that fail in one way or the other. The proxy lets none through whose body has a
/// constant; none of these meets a confidential value.
const FUNCTIONS: &str = "create table told (id int, what text);
    create function divided(x ENCint4, y ENCint4) returns ENCint4 language plpgsql as $$
        begin return x / y; exception when division_by_zero then return x; end $$;
    create function goes_on() returns void language plpgsql as $$
        declare r record; q ENCint4;
        begin
            for r in select * from t order by id loop
                begin
                    q := r.a / r.b;
                    perform q + q;
                    if q = q then insert into told values (r.id, 'above'); end if;
                exception
                    when division_by_zero then
                        insert into told values (r.id, 'by zero');
                        -- In the same statement the zone computes on.
                        if r.a = r.a then insert into told values (r.id, 'and on'); end if;
                    when numeric_value_out_of_range then insert into told values (r.id, 'overflow');
                end;
            end loop;
        end $$;
    create function swallows() returns int language plpgsql as $$
        begin perform 1; return 1; exception when others then return 2; end $$;
    create function fails_inside() returns int language plpgsql as $$
        declare q ENCint4; x ENCint4; z ENCint4;
        begin
            select a, b into x, z from t where id = 1;
            begin
                q := x / z;
                raise exception 'of its own';
            exception when raise_exception then
                return 5;
            end;
        end $$;
    create function nested() returns text language plpgsql as $$
        declare q ENCint4; x ENCint4; z ENCint4;
        begin
            select a, b into x, z from t where id = 1;
            begin
                q := x / z;
                begin
                    perform 1;
                exception when division_by_zero then return 'the inner one';
                end;
                perform q is null;
                return 'none';
            exception when division_by_zero then return 'the outer one';
            end;
        end $$;
    create function catches() returns void language plpgsql as $$
        begin perform a / b from t; exception when division_by_zero then raise exception sqlstate 'XX123'; end $$;
    create function inserts() returns void language plpgsql as $$
        begin insert into t select 9, a + a, b, n, s from t where id = 2; exception when others then null; end $$;
    create function updates() returns void language plpgsql as $$
        begin update t set a = a + b; exception when numeric_value_out_of_range then update t set b = b - b; end $$;
    grant all on told to public;";

/// Statements whose answers, or whose errors' SQLSTATE, are alike.
const ALIKE: &[&str] = &[
    "select id, divided(a, b) from t order by id",
    "select id, divided(b, a - a) from t order by id",
    "select goes_on(); select * from told order by id, what",
    "select nested()",
    "select id, a / b from t where id = 1",
    "select swallows() from t where id = 1 and a / b > 0",
    "select (select a / b from t where id = 1), swallows()",
    "select sum(a / b), swallows() from t",
    "begin; savepoint s; select a / b from t; rollback to s; select a + 1 from t where id = 1; commit",
    "select id from t where a / (b + 1) > 0 order by id",
    "select catches()",
    "select inserts(); select count(*), sum(n) from t",
    "select updates(); select id, a, b from t order by id",
    "update t set a = 5 where id = 2; select updates(); select id, a, b from t order by id",
];

fn state(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("ERROR:  ")?;
    rest.get(..5)
}

#[test]
fn exception_blocks_catch_what_is_theirs() {
    let (owner, server) = start_all("");
    let plain = Server::start(Path::new("/nowhere"), "");
    let table = |prefix: &str, using: &str| TABLE.replace("ENC", prefix).replace("USING_", using);
    drop(owner.rows(&table("enc_", "using strongroom")));
    drop(server.rows(&FUNCTIONS.replace("ENC", "enc_")));
    drop(plain.rows(&table("", "")));
    drop(plain.rows(&FUNCTIONS.replace("ENC", "")));
    for sql in ALIKE {
        let (said, expected) = (owner.run(sql), plain.run(sql));
        assert_eq!(said.rows, expected.rows, "{sql}: {}", said.messages);
        assert_eq!(state(&said.messages), state(&expected.messages), "{sql}");
    }
    // A computation whose error nobody had asked for when its block was rolled back for another
    // reason: PostgreSQL has raised it before.
    assert_eq!(owner.rows("select fails_inside()"), "5");
    assert_eq!(
        state(&plain.run("select fails_inside()").messages),
        Some("22012")
    );
}

/// Rows of long texts go together as far as the data area goes.
#[test]
fn long_values_are_stored_in_parts() {
    let (owner, server) = start_all("");
    drop(owner.rows("create table long (id int, b enc_text) using strongroom; insert into long values (1, 'sixteen letters.')"));
    for _ in 0..14 {
        drop(owner.rows("update long set b = b || b"));
    }
    for _ in 0..4 {
        drop(owner.rows("insert into long select id, b || 'y' from long"));
    }
    let lengths = "select count(*), min(length(b)), max(length(b)), count(distinct b) from long";
    assert_eq!(owner.rows(lengths), "16|262144|262148|5");
    let copied = "create table copy (like long) using strongroom; insert into copy select * from long; analyze copy";
    drop(owner.rows(copied));
    assert_eq!(
        owner.rows(&lengths.replace("long", "copy")),
        "16|262144|262148|5"
    );
    assert_eq!(
        owner.rows("select count(*) from (select b from long order by b) o"),
        "16"
    );
    drop(server);
}
