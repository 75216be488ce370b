//! Goal: a column is made confidential, or plain, while its table is used, whatever ends the
//! command and whatever others write.
//!
//! Method: the real command against a real server; a conversion is killed again and again while
//! other sessions write what a plain table is told too.

use std::process::{Child, Output, Stdio};
use std::time::Duration;

use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::print_line;
use strongroom_columns_testing::setup::{address, is_in_a_file, messages, start_all_with};

/// A table with what a conversion has to make again.
const STAFF: &str = "create table staff (id int primary key, name text unique, salary numeric(12,2) not null, born date, note text);
        comment on column staff.salary is 'a month''s';
        create index by_salary on staff (salary desc nulls last, id);
        insert into staff select i, 'canary-' || i, i * 1.25, date '1900-01-01' + i, case when i % 3 > 0 then 'note-' || i end
            from generate_series(1, 1500) i";

fn convert(owner: &Owner, arguments: &[&str]) -> Output {
    let mut command = owner.columns();
    command.arg("convert").args(arguments).arg("--proxy");
    let output = command.arg(owner.proxy_socket()).output();
    output.expect("the command can be run")
}

fn converted(owner: &Owner, arguments: &[&str]) -> String {
    let output = convert(owner, arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        messages(&output)
    );
    messages(&output)
}

#[test]
fn a_column_is_converted_there_and_back() {
    let (owner, server) = start_all_with(&[], &[]);
    drop(server.rows(STAFF));
    let ask = "select id, name, salary, born, note from staff order by id";
    let before = server.rows(ask);
    let said = convert(
        &owner,
        &["staff", "salary", "--to-confidential", "--ordered"],
    );
    assert_eq!(said.status.code(), Some(6));
    assert!(messages(&said).contains("--rewrite"), "{}", messages(&said));
    for (column, arguments) in [
        ("salary", &["--ordered", "--rewrite"][..]),
        ("name", &["--ordered"]),
        ("note", &[]),
        ("born", &[]),
    ] {
        let mut all = vec!["staff", column, "--to-confidential"];
        all.extend(arguments);
        let said = converted(&owner, &all);
        assert!(said.contains("VACUUM (FULL"), "{said}");
    }
    assert_eq!(owner.rows(ask), before);
    assert!(
        server
            .rows("select name from staff limit 1")
            .starts_with("sr1:")
    );
    let shape = "select attname, format_type(atttypid, atttypmod), attnotnull, col_description(attrelid, attnum) from pg_attribute
        where attrelid = 'staff'::regclass and attnum > 0 and not attisdropped order by attname";
    assert_eq!(
        server.rows(shape),
        "born|enc_date|f|\nid|integer|t|\nname|enc_text(ordered)|f|\nnote|enc_text|f|\nsalary|enc_numeric(12,2,ordered)|t|a month's"
    );
    let indexes = "select indexrelid::regclass, indisunique, indisvalid, pg_get_indexdef(indexrelid) like '%(salary DESC NULLS LAST, id)'
        from pg_index where indrelid = 'staff'::regclass order by indexrelid::regclass::text";
    let had = "by_salary|f|t|t\nstaff_name_key|t|t|f\nstaff_pkey|t|t|f";
    assert_eq!(server.rows(indexes), had);
    assert_eq!(
        server.rows("select tgname from pg_trigger where tgrelid = 'staff'::regclass"),
        ""
    );
    let twice = owner.run("insert into staff (id, name, salary) values (9999, 'canary-7', 1)");
    assert!(twice.messages.contains("23505"), "{}", twice.messages);
    let missing = owner.run("insert into staff (id, name) values (9999, 'canary-x')");
    assert!(missing.messages.contains("23502"), "{}", missing.messages);
    assert_eq!(
        owner.rows("select id from staff where salary = 12.50"),
        "10"
    );
    drop(server.rows("vacuum full staff; checkpoint"));
    let heap = server.rows("select pg_relation_filepath('staff')");
    let heap = server.data().join(heap);
    assert!(
        !is_in_a_file(&heap, "canary-"),
        "the rewritten table has a plain value"
    );
    let again = converted(&owner, &["staff", "salary", "--to-confidential"]);
    assert!(again.contains("nothing to be done"), "{again}");
    for column in ["salary", "name", "note", "born"] {
        drop(converted(&owner, &["staff", column, "--to-plain"]));
    }
    assert_eq!(server.rows(ask), before);
    assert_eq!(server.rows(indexes), had);
    assert!(
        server
            .rows(shape)
            .contains("salary|numeric(12,2)|t|a month's")
    );
}

#[test]
fn a_column_of_class_equality_gets_its_indexes() {
    let (owner, server) = start_all_with(&[], &[]);
    drop(server.rows(
        "create table people (id int primary key, mail text, code text unique, card numeric(8,2)) using strongroom;
         create unique index people_mail on people (mail); create index people_both on people (id desc, mail);
         create unique index people_two on people (mail, card);
         insert into people select i, 'p' || i || '@example.org', i, i from generate_series(1, 300) i",
    ));
    let indexes = "select replace(pg_get_indexdef(indexrelid), 'public.', '') from pg_index
        where indrelid = 'people'::regclass order by indexrelid::regclass::text";
    let had = server.rows(indexes);
    drop(converted(
        &owner,
        &["people", "mail", "--to-confidential", "--equality"],
    ));
    let keyed = had
        .replace("(mail)", "(mail enc_text_equality_ops)")
        .replace(", mail)", ", mail enc_text_equality_ops)")
        .replace("(mail, ", "(mail enc_text_equality_ops, ");
    assert_ne!(keyed, had);
    assert_eq!(server.rows(indexes), keyed);
    // A second column of an index that has one of class equality.
    drop(converted(
        &owner,
        &["people", "card", "--to-confidential", "--equality"],
    ));
    let both = keyed.replace(", card)", ", card enc_numeric_equality_ops)");
    assert_ne!(both, keyed);
    assert_eq!(server.rows(indexes), both);
    drop(converted(&owner, &["people", "card", "--to-plain"]));
    assert_eq!(server.rows(indexes), keyed);
    assert_eq!(
        owner
            .rows("set enable_seqscan = off; select id from people where mail = 'p77@example.org'"),
        "77"
    );
    let twice = owner.run("insert into people (id, mail) values (999, 'p77@example.org')");
    assert!(twice.messages.contains("23505"), "{}", twice.messages);
    // A constraint names no operator class.
    let refused = convert(
        &owner,
        &["people", "code", "--to-confidential", "--equality"],
    );
    let said = messages(&refused);
    assert!(
        said.contains("the unique constraint people_code_key"),
        "{said}"
    );
    assert_eq!(refused.status.code(), Some(6));
    drop(converted(&owner, &["people", "mail", "--to-plain"]));
    assert_eq!(server.rows(indexes), had);
}

#[test]
fn what_cannot_be_converted_is_refused_with_its_reason() {
    let (owner, server) = start_all_with(&[], &[]);
    drop(server.rows(
        "create table other (id int primary key) using strongroom;
        create table t (id int primary key, d int default 5, q int, g int generated always as (q * 2) stored, c int check (c > 0),
            f int references other, v int, x int, p point, z char(3), l int, w int) using strongroom;
        create view seen as select v from t;
        create index computed on t ((x + 1)); create index partial on t (w) where w > 3;
        create table parts (id int, v int) partition by range (id)",
    ));
    for (table, column, reason) in [
        ("t", "id", "constraint t_pkey"),
        ("t", "d", "default"),
        ("t", "g", "generated"),
        ("t", "q", "column g of table"),
        ("t", "c", "constraint t_c_check"),
        ("t", "f", "constraint t_f_fkey"),
        ("t", "v", "view public.seen"),
        ("t", "x", "index computed"),
        ("t", "w", "index partial"),
        ("t", "p", "no confidential type for point"),
        ("t", "z", "no confidential type for character(3)"),
        ("parts", "v", "partitions"),
        ("t", "nothing", "no column"),
        ("nothing", "v", "no table"),
    ] {
        let output = convert(&owner, &[table, column, "--to-confidential"]);
        let said = messages(&output);
        assert_eq!(output.status.code(), Some(6), "{table}.{column}: {said}");
        assert!(
            said.contains("SR-8121") && said.contains(reason),
            "{table}.{column}: {said}"
        );
    }
    // Not the proxy: values would be envelopes. What was begun is given up again.
    let mut command = owner.columns();
    command.args(["convert", "t", "l", "--to-confidential", "--proxy"]);
    let direct = command.arg(address(server.socket())).output();
    let direct = direct.expect("the command can be run");
    assert!(
        messages(&direct).contains("envelopes"),
        "{}",
        messages(&direct)
    );
    let other = convert(&owner, &["t", "l", "--abandon"]);
    assert!(other.status.success(), "{}", messages(&other));
    let left = "select count(*) from pg_attribute where attrelid = 't'::regclass and attname like 'strongroom~%' and not attisdropped";
    assert_eq!(server.rows(left), "0");
}

fn start(owner: &Owner, arguments: &[&str]) -> Child {
    let log = std::fs::File::create(owner.path("convert.log")).expect("a log");
    let mut command = owner.columns();
    command.arg("convert").args(arguments).arg("--proxy");
    let started = command
        .arg(owner.proxy_socket())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    started.expect("the command can be run")
}

/// Kills a conversion until one comes to its end; how often.
fn kill_until_done(owner: &Owner, arguments: &[&str]) -> u32 {
    let mut killed = 0;
    loop {
        let mut child = start(owner, arguments);
        std::thread::sleep(Duration::from_millis(200 + u64::from(killed) * 120));
        if let Some(ended) = child.try_wait().expect("a child") {
            let log = std::fs::read_to_string(owner.path("convert.log")).unwrap_or_default();
            assert!(ended.success(), "{arguments:?} after {killed} kills: {log}");
            return killed;
        }
        child.kill().expect("a child");
        child.wait().expect("a child");
        killed += 1;
        assert!(killed < 200, "{arguments:?} comes to no end");
    }
}

#[test]
fn a_conversion_that_is_killed_goes_on_and_loses_nothing_of_what_others_write() {
    let (owner, server) = start_all_with(&[], &[]);
    drop(server.rows(
        "create table t (id int primary key, v text, n int) using strongroom;
        create table shadow (id int primary key, v text);
        create index on t (v);
        insert into t select i, 'v' || i, 0 from generate_series(1, 6000) i; insert into shadow select id, v from t",
    ));
    let done = std::sync::atomic::AtomicBool::new(false);
    let writes = std::sync::atomic::AtomicU32::new(0);
    let failed = std::sync::atomic::AtomicU32::new(0);
    let mut kills = (0, 0);
    std::thread::scope(|scope| {
        let (owner, done, writes, failed) = (&owner, &done, &writes, &failed);
        for writer in 0..2 {
            scope.spawn(move || {
                let mut round = 0;
                // An application through the proxy: plain and confidential are alike to it.
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    round += 1;
                    let (id, fresh) = (1 + (round * 37 + writer * 2503) % 6000, 20000 + round * 2 + writer);
                    let sql = format!(
                        "begin; update t set v = 'w{writer}-{round}', n = n + 1 where id = {id}; update shadow set v = 'w{writer}-{round}' where id = {id}; commit;
                        begin; insert into t (id, v, n) values ({fresh}, 'f{fresh}', 0); insert into shadow values ({fresh}, 'f{fresh}'); commit;
                        begin; delete from t where id = {id} and id % 7 = 0; delete from shadow where id = {id} and id % 7 = 0; commit;
                        update t set n = n + 1 where id = {id} + 1;"
                    );
                    let said = owner.run(&sql);
                    // A statement that was under way when the columns were exchanged meets another
                    // type than the proxy knew, and fails with its transaction: nothing else may.
                    let errors = said.messages.lines().filter(|line| line.contains("ERROR"));
                    for error in errors {
                        let expected = ["22P02", "25P02", "42804", "SR101"];
                        assert!(
                            expected.iter().any(|state| error.contains(state)),
                            "{}",
                            said.messages
                        );
                        failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    assert!(!said.messages.contains("FATAL"), "{}", said.messages);
                    writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
        let _end = End(done);
        kills.0 = kill_until_done(owner, &["t", "v", "--to-confidential", "--ordered"]);
        kills.1 = kill_until_done(owner, &["t", "v", "--to-plain"]);
        kills.1 += kill_until_done(owner, &["t", "v", "--to-confidential", "--ordered"]);
    });
    let shadow = server.rows("select id, v from shadow order by id");
    assert_eq!(owner.rows("select id, v from t order by id"), shadow);
    assert!(kills.0 > 0 && kills.1 > 0, "nothing was killed: {kills:?}");
    assert!(writes.into_inner() > 10, "nobody wrote");
    assert!(server.rows("select v from t limit 1").starts_with("sr1:"));
    let failed = failed.into_inner();
    assert!(failed < 100, "{failed} statements have failed");
    print_line(&format!("kills {kills:?}, statements that failed {failed}"));
}

/// Lets the writers stop, also when a test has failed.
struct End<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
    }
}
