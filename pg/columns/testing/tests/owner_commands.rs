//! Goal: what the owner and the operator do with confidential columns beside SQL: the status, values in clear by right, columns that
//! are converted.
//!
//! Method: the real command against a real server; a conversion is killed again and again while other sessions write.

use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

fn begin(options: &[&str]) -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), "");
    assert_eq!(server.rows("create extension strongroom_columns"), "");
    owner.start_proxy_with(server.socket(), options);
    (owner, server)
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn convert(owner: &Owner, arguments: &[&str]) -> Output {
    let mut command = owner.columns();
    command.arg("convert").args(arguments).arg("--proxy");
    let output = command.arg(owner.proxy_listener()).output();
    output.expect("the command can be run")
}

/// The proxy's address.
fn proxy(owner: &Owner) -> std::path::PathBuf {
    owner.proxy_socket().join(".s.PGSQL.5432")
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

fn is_in_a_file(directory: &Path, what: &str) -> bool {
    let output = std::process::Command::new("grep")
        .args(["--recursive", "--quiet", "--text", what])
        .arg(directory)
        .status();
    output.expect("grep can be run").success()
}

#[test]
fn the_status_has_figures_and_no_values() {
    let (owner, server) = begin(&[]);
    drop(owner.rows(
        "create table staff (id int, name enc_text) using strongroom;
        insert into staff values (1, 'canary-lovelace'), (2, 'canary-turing');
        select id from staff where name = 'canary-turing'",
    ));
    let status = |json: bool| {
        let mut command = owner.columns();
        command.arg("status").arg("--server");
        command.arg(server.socket().join(".s.PGSQL.5432"));
        if json {
            command.arg("--json");
        }
        let output = command.output().expect("the command can be run");
        assert!(output.status.success(), "{}", messages(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (text, json) = (status(false), status(true));
    for line in ["partitions   1", "values       2", "TICKET"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.contains("staff"), "{text}");
    assert!(!text.contains("canary") && !json.contains("canary"));
    let told = |name: &str| json.contains(name);
    assert!(
        told("\"table\": \"staff\"") && told("\"truths\": 2"),
        "{json}"
    );
    // A user that is not pg_monitor's learns nothing.
    drop(server.rows("create role nobody login"));
    let mut command = owner.columns();
    command.args(["status", "--user", "nobody", "--server"]);
    let output = command.arg(server.socket().join(".s.PGSQL.5432")).output();
    let output = output.expect("the command can be run");
    assert_eq!(output.status.code(), Some(6), "{}", messages(&output));
}

#[test]
fn a_password_is_proved_and_not_sent() {
    let server = Server::start(
        Path::new("/nowhere"),
        "password_encryption = 'scram-sha-256'",
    );
    drop(server.rows(
        "create extension strongroom_columns; create role clerk login in role pg_monitor password 'open, sesame: a password longer than a hash has bytes, grüße';
        set password_encryption = 'md5'; create role old login password 'x'",
    ));
    let rules = "local all clerk scram-sha-256\nlocal all old md5\nlocal all all trust\n";
    let path = server.data().join("pg_hba.conf");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .expect("the server's rules");
    std::io::Write::write_all(&mut file, rules.as_bytes()).expect("the rules are written");
    drop(server.rows("select pg_reload_conf(), pg_sleep(0.5)"));
    let owner = Owner::new();
    let ask = |user: &str, password: &str| {
        let file = owner.path("password");
        let mut made = std::fs::File::create(&file).expect("a file of our own");
        std::io::Write::write_all(&mut made, password.as_bytes()).expect("a file of our own");
        let mut command = owner.columns();
        command.args(["status", "--user", user, "--password-file"]);
        command.arg(file).arg("--server");
        let output = command.arg(server.socket().join(".s.PGSQL.5432")).output();
        messages(&output.expect("the command can be run"))
    };
    let right = "open, sesame: a password longer than a hash has bytes, grüße\n";
    // Behind the login there is no zone.
    assert!(
        ask("clerk", right).contains("SQLSTATE 08001"),
        "{}",
        ask("clerk", right)
    );
    let wrong = ask("clerk", "open, sesame");
    assert!(wrong.contains("SQLSTATE 28P01"), "{wrong}");
    let old = ask("old", "x");
    assert!(old.contains("use scram-sha-256"), "{old}");
}

const CLEAR: &[(&str, &str)] = &[
    ("enc_bool", "true"),
    ("enc_int4", "-2147483648"),
    ("enc_int8", "9007199254740993"),
    ("enc_float8", "-0.1"),
    ("enc_numeric", "12345678901234567890.10"),
    ("enc_text", "grüße, O'Brien \\"),
    ("enc_bytea", "\\x00ff"),
    ("enc_date", "1815-12-10"),
    ("enc_timestamp", "infinity"),
    ("enc_timestamptz", "2020-02-29 23:59:59.999999+00"),
    ("enc_interval", "1 mon 2 days 03:04:05.5"),
];

#[test]
fn values_in_clear_take_a_right_of_their_own() {
    let (mut owner, server) = begin(&[]);
    drop(owner.rows(
        "create table t (id int, v enc_int4, s enc_text) using strongroom; insert into t values (1, 42, 'x'), (2, 43, null);
        create table plain (id int, v int, s text); insert into plain values (3, 44, 'y')",
    ));
    let out = "select id, strongroom_columns.declassify(v), strongroom_columns.declassify(s) from t order by id";
    let into = "insert into t select id, strongroom_columns.classify(v), strongroom_columns.classify(s) from plain";
    let probe = "select t.id from t, plain where t.v < strongroom_columns.classify(plain.v)";
    for sql in [out, into, probe] {
        for said in [owner.run(sql), server.run(sql)] {
            assert!(
                said.messages.contains("SR-8006"),
                "{sql}: {}",
                said.messages
            );
            assert_eq!(said.rows, "");
        }
    }
    owner.start_proxy_with(server.socket(), &["--declassify"]);
    assert_eq!(owner.rows(out), "1|42|x\n2|43|");
    drop(owner.rows(into));
    assert_eq!(owner.rows("select id, v, s from t where id = 3"), "3|44|y");
    assert_eq!(owner.rows(probe), "1\n2");
    assert_eq!(
        owner.rows("select id from t where strongroom_columns.declassify(v) > 42 order by id"),
        "2\n3"
    );
    // Without a session of the owner's nobody has the right, whatever the last one had.
    assert!(server.run(out).messages.contains("SR-8006"));
    for (confidential, value) in CLEAR {
        let plain = &confidential[4..];
        let value = value.replace('\'', "''");
        let sql = format!(
            "set timezone = 'UTC'; select strongroom_columns.declassify(strongroom_columns.classify('{value}'::{plain})) is not distinct from '{value}'::{plain}"
        );
        assert_eq!(owner.rows(&sql), "t", "{confidential}");
    }
    // Explicit only.
    for sql in [
        "insert into plain select id, v, s from t",
        "update t set v = (select v from plain)",
        "create table other as select id from plain where v = (select v from t limit 1)",
    ] {
        let said = server.run(sql);
        let refused = ["42804", "42883"]
            .iter()
            .any(|state| said.messages.contains(state));
        assert!(refused, "{sql}: {}", said.messages);
    }
    let contexts = "select count(*), count(*) filter (where castcontext <> 'e') from pg_cast c join pg_type t on t.oid = c.castsource
        join pg_type u on u.oid = c.casttarget where t.typname like 'enc\\_%' <> (u.typname like 'enc\\_%')";
    assert_eq!(server.rows(contexts), "22|0");
}

#[test]
fn a_column_is_converted_there_and_back() {
    let (owner, server) = begin(&[]);
    drop(server.rows(
        "create table staff (id int primary key, name text unique, salary numeric(12,2) not null, born date, note text);
        comment on column staff.salary is 'a month''s';
        create index by_salary on staff (salary desc nulls last, id);
        insert into staff select i, 'canary-' || i, i * 1.25, date '1900-01-01' + i, case when i % 3 > 0 then 'note-' || i end
            from generate_series(1, 1500) i",
    ));
    let ask = "select id, name, salary, born, note from staff order by id";
    let before = server.rows(ask);
    let said = convert(&owner, &["staff", "salary", "--to-confidential"]);
    assert_eq!(said.status.code(), Some(6));
    assert!(messages(&said).contains("--rewrite"), "{}", messages(&said));
    for (column, arguments) in [
        ("salary", "--rewrite"),
        ("name", ""),
        ("note", ""),
        ("born", ""),
    ] {
        let mut all = vec!["staff", column, "--to-confidential"];
        all.extend((!arguments.is_empty()).then_some(arguments));
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
        "born|enc_date|f|\nid|integer|t|\nname|enc_text|f|\nnote|enc_text|f|\nsalary|enc_numeric(12,2)|t|a month's"
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
fn what_cannot_be_converted_is_refused_with_its_reason() {
    let (owner, server) = begin(&[]);
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
    let direct = command.arg(server.socket().join(".s.PGSQL.5432")).output();
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
        .arg(owner.proxy_listener())
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
    let (owner, server) = begin(&[]);
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
                    // A statement that was under way when the columns were exchanged meets another type than the proxy
                    // knew, and fails with its transaction: nothing else may.
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
        kills.0 = kill_until_done(owner, &["t", "v", "--to-confidential"]);
        kills.1 = kill_until_done(owner, &["t", "v", "--to-plain"]);
        kills.1 += kill_until_done(owner, &["t", "v", "--to-confidential"]);
    });
    let shadow = server.rows("select id, v from shadow order by id");
    assert_eq!(owner.rows("select id, v from t order by id"), shadow);
    assert!(kills.0 > 0 && kills.1 > 0, "nothing was killed: {kills:?}");
    assert!(writes.into_inner() > 10, "nobody wrote");
    assert!(server.rows("select v from t limit 1").starts_with("sr1:"));
    let failed = failed.into_inner();
    assert!(failed < 100, "{failed} statements have failed");
    println!("kills {kills:?}, statements that failed {failed}");
}

/// Lets the writers stop, also when a test has failed.
struct End<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
    }
}

#[test]
fn a_recorded_query_is_replayed_without_the_zone() {
    let mut owner = Owner::new();
    let key = owner.path("record.key");
    std::io::Write::write_all(
        &mut std::fs::File::create_new(&key).expect("a key file"),
        b"a key for records, not for values",
    )
    .expect("a key file");
    let key = key.to_str().expect("UTF-8");
    owner.start_zone_with(64, &["--record-key-file", key]);
    let server = Server::start(&owner.zone_socket(), "max_parallel_workers_per_gather = 0");
    assert_eq!(server.rows("create extension strongroom_columns"), "");
    owner.start_proxy(server.socket());
    drop(owner.rows(
        "create table t (id int, name enc_text, v enc_int4) using strongroom;
        insert into t values (1, 'canary-one', 30), (2, 'canary-two', 10), (3, 'canary-three', 20), (4, 'canary-four', 10), (5, null, 5)",
    ));
    let query = |limit: &str| {
        format!(
            "select id, name, v * 2, sum(v) over (order by v, id) from t where v >= {limit} order by v desc, id"
        )
    };
    let said = owner.rows(&format!(
        "set strongroom.record = 'slow-query'; {}; reset strongroom.record; select count(*) from t where v > 0",
        query("10")
    ));
    let expected =
        "1|canary-one|60|70\n3|canary-three|40|40\n2|canary-two|20|10\n4|canary-four|20|20\n5";
    assert_eq!(said, expected);
    let record = owner.path("zone").join("records/slow-query.record");
    assert!(!is_in_a_file(&owner.path("zone"), "canary"));
    for refused in [
        "set strongroom.record = 'slow-query'; select v from t",
        "set strongroom.record = '../slow'; select v from t",
    ] {
        let said = owner.run(refused);
        assert!(
            said.messages.contains("SR-8124"),
            "{refused}: {}",
            said.messages
        );
    }
    let nobody = server.run("create role nobody; set role nobody; set strongroom.record = 'x'");
    assert!(nobody.messages.contains("42501"), "{}", nobody.messages);
    // A query without constants can be asked for by an operator as it is.
    let plain = "select id, name, v + v from t where v <> (select max(v) from t) order by v, id";
    let expected = owner.rows(&format!(
        "set strongroom.record = 'plain'; {plain}; reset strongroom.record; select 'end' from t where v > 0 and id = 1"
    ));
    let expected = expected.strip_suffix("\nend").expect("the last answer");
    owner.kill_zone();
    let replay = |record: &Path, key: &str| {
        let mut command = owner.columns();
        command.arg("replay").arg(record).arg("--socket");
        command.arg(owner.path("replay.sock"));
        command.args(["--user", "postgres", "--key-file", key]);
        command
    };
    let plain_record = owner.path("zone").join("records/plain.record");
    let mut replaying = Replaying::start(replay(&plain_record, key), &owner.path("replay.sock"));
    let socket = owner.path("replay.sock");
    let socket = socket.display();
    let again = server.run(&format!("set strongroom.zone = '{socket}'; {plain}"));
    let shape = |rows: &str| {
        let ids = rows.lines().filter_map(|row| row.split('|').next());
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(again.messages, "");
    assert_eq!(
        shape(&again.rows),
        shape(expected),
        "same rows in the same order"
    );
    assert!(!again.rows.contains("canary") && again.rows.contains("sr1:"));
    for departing in [
        "select id from t order by v desc, id",
        "insert into t select * from t",
        "select upper(name) from t",
    ] {
        let said = server.run(&format!("set strongroom.zone = '{socket}'; {departing}"));
        assert!(
            said.messages.contains("SR-8125"),
            "{departing}: {}",
            said.messages
        );
    }
    replaying.end();
    // Another key, a changed byte, a cut record: nothing is served.
    let other = owner.path("zone.key");
    let mut bytes = std::fs::read(&plain_record).expect("the record");
    let middle = bytes.len() - 100;
    bytes[middle] ^= 1;
    let (changed, cut) = (owner.path("changed.record"), owner.path("cut.record"));
    let write = |path: &Path, bytes: &[u8]| {
        let mut file = std::fs::File::create_new(path).expect("a file of our own");
        std::io::Write::write_all(&mut file, bytes).expect("a file of our own");
    };
    write(&changed, &bytes);
    write(&cut, &bytes[..4096]);
    for (record, key, code) in [
        (&record, other.to_str().expect("UTF-8"), 3),
        (&changed, key, 4),
        (&cut, key, 4),
    ] {
        let output = replay(record, key)
            .output()
            .expect("the command can be run");
        assert_eq!(output.status.code(), Some(code), "{}", messages(&output));
    }
}

/// A replay that is served.
struct Replaying(Child);

impl Replaying {
    fn start(mut command: std::process::Command, socket: &Path) -> Self {
        let mut child = command.spawn().expect("the command can be run");
        for _ in 0..600 {
            if socket.exists() {
                return Self(child);
            }
            assert!(child.try_wait().expect("a child").is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
        let replaying = Self(child);
        drop(replaying);
        panic!("the replay does not begin")
    }

    fn end(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        self.end();
    }
}
