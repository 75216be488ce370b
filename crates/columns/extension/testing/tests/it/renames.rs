//! Goal: when the owner gives columns, tables and schemas other names, their values stay what they
//! were, and applications go on.
//!
//! Method: server, zone and proxy, all real; the statements that migrations of applications run.

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};

/// A table with two ordered columns and an opaque one, and an index.
fn staff() -> (Owner, Server) {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table staff (id int primary key, grade enc_int4(ordered), pay enc_int4(ordered), note enc_text)
             using strongroom;
         create index on staff (grade);
         insert into staff values (1, 3, 30, 'one'), (2, 9, 90, 'two'), (3, 5, 50, 'three')",
    );
    (owner, server)
}

#[test]
fn a_column_is_renamed_and_goes_on() {
    let (mut owner, server) = staff();
    // The connection ends with the statement.
    let _renamed = owner.rows("alter table staff rename grade to level");
    let _stored = owner.rows(
        "update staff set level = 1 where id = 1; insert into staff (id, level) values (4, 2)",
    );
    let by_level = "select id from staff order by level";
    assert_eq!(server.rows(by_level), "1\n4\n3\n2");
    assert_eq!(
        owner.rows("select level, note from staff where level < 3 order by level"),
        "1|one\n2|"
    );
    // In a transaction, also one that is rolled back.
    let _undone = owner.rows(
        "begin;
         alter table staff rename level to rank;
         insert into staff (id, rank) values (5, 4);
         rollback;
         insert into staff (id, level) values (6, 4);
         begin;
         savepoint s;
         alter table staff rename level to rank;
         rollback to s;
         insert into staff (id, level) values (7, 6);
         alter table staff rename level to rank;
         insert into staff (id, rank) values (8, 7);
         commit;
         insert into staff (id, rank) values (9, 8)",
    );
    let by_rank = "select id from staff order by rank";
    assert_eq!(server.rows(by_rank), "1\n4\n6\n3\n7\n8\n9\n2");
    // Another proxy with the same file.
    owner.start_proxy(server.socket());
    let _stored = owner.rows("update staff set rank = 10 where id = 1");
    assert_eq!(server.rows(by_rank), "4\n6\n3\n7\n8\n9\n2\n1");
    let pins = owner.columns().arg("pins").output();
    let pins = pins.expect("the command can be run").stdout;
    let pins = String::from_utf8_lossy(&pins);
    assert!(
        pins.contains("public.staff.rank  has the lineage of postgres.public.staff.grade"),
        "{pins}"
    );
}

/// A column with the former name of another one is a column of its own: neither its values nor
/// the constants that are meant for it are compared with the other's.
#[test]
fn a_former_name_is_given_to_a_new_column() {
    let (owner, server) = staff();
    let _changed = owner.rows(
        "alter table staff rename grade to former;
         alter table staff add grade enc_int4(ordered);
         update staff set grade = 7 where id = 1;
         insert into staff (id, grade, former) values (4, 6, 4)",
    );
    assert_eq!(
        owner.rows("select id, grade, former from staff where former > 3 order by former"),
        "4|6|4\n3||5\n2||9"
    );
    assert_eq!(
        server.rows("select id from staff where grade is not null order by grade"),
        "4\n1"
    );
    for sql in [
        "update staff set former = grade where id = 4",
        "update staff set grade = former where id = 4",
        "select 1 from staff where grade < former",
    ] {
        server.fails(sql, "SR-8006");
    }
    // Columns exchange their names, and read as what they are called now.
    let _exchanged = owner.rows(
        "begin; alter table staff rename grade to x; alter table staff rename pay to grade;
         alter table staff rename x to pay; update staff set grade = 1, pay = 2 where id = 4; commit;
         insert into staff (id, grade, pay) values (5, 31, 8)",
    );
    assert_eq!(
        owner.rows("select id, grade, pay from staff order by id"),
        "1|30|7\n2|90|\n3|50|\n4|1|2\n5|31|8"
    );
}

#[test]
fn tables_partitions_and_schemas_are_renamed_and_go_on() {
    let (owner, server) = staff();
    let _moved = owner.rows(
        "alter table staff rename to people;
         insert into people (id, grade, note) values (4, 4, 'four');
         create schema hr; alter table people set schema hr;
         insert into hr.people (id, grade) values (5, 6);
         alter schema hr rename to personnel;
         insert into personnel.people (id, grade) values (6, 7)",
    );
    let ordered = "select id from personnel.people order by grade";
    assert_eq!(server.rows(ordered), "1\n4\n3\n5\n6\n2");
    assert_eq!(
        owner.rows("select grade, note from personnel.people where grade = 4"),
        "4|four"
    );
    // Partitions have their table's names until they are detached.
    let _parts = owner.rows(
        "create table p (k int, v enc_int4(ordered)) partition by list (k);
         create table p1 partition of p for values in (1) using strongroom;
         create table p2 partition of p for values in (2) using strongroom;
         create index on p (v);
         insert into p values (1, 5), (2, 6);
         alter table p rename v to w; alter table p rename to q; alter table p1 rename to q1;
         insert into q values (1, 4), (2, 7);
         alter table q detach partition p2;
         insert into p2 values (2, 5); insert into q values (1, 6)",
    );
    assert_eq!(owner.rows("select w from q order by w"), "4\n5\n6");
    assert_eq!(owner.rows("select w from p2 order by w"), "5\n6\n7");
    // A table in the former one's place.
    let _made = owner.rows(
        "create table staff (id int, grade enc_int4(ordered)) using strongroom;
         insert into staff values (1, 1)",
    );
    server.fails(
        "insert into staff select id, grade from personnel.people",
        "SR-8006",
    );
    assert_eq!(owner.rows("select grade from staff"), "1");
}
