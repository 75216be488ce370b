//! Goal: the operator of the server - superuser, root on its machine, editor of its files - learns
//! no value, and makes no wrong value of identifiers that he moves about.
//!
//! Method: known values go through everything, then the server's files, log, and the memory of
//! every one of its processes are searched, and the zone's files, core dumps included; the smuggle
//! attack with and without a ticket; identifiers copied in the table's file while the server is
//! down. The last ones look into the file by themselves: the tables have rows of fixed length.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all, start_all_deriving};
use strongroom_columns_testing::processes::{contains, search_memory};

/// A word of eight bytes that nothing else has: odd, and without zeros.
const NUMBER: i64 = 0x5a3c_96e1_7b2d_48f1;
/// A number with more digits than fit the word.
const DIGITS: &str = "7391826450918273645.1928374655";

/// The values as they may stand in memory or in a file.
fn needles() -> Vec<Vec<u8>> {
    let mut needles = vec![
        b"canary-lovelace".to_vec(),
        b"CANARY-LOVELACE".to_vec(),
        DIGITS.as_bytes().to_vec(),
        NUMBER.to_string().into_bytes(),
        NUMBER.to_le_bytes().to_vec(),
        NUMBER.swap_bytes().to_le_bytes().to_vec(),
    ];
    // PostgreSQL's NUMERIC on disk, and as it is sent: groups of four digits, of two bytes each.
    let groups: [u16; 5] = [739, 1826, 4509, 1827, 3645];
    needles.push(
        groups
            .iter()
            .flat_map(|group| group.to_le_bytes())
            .collect(),
    );
    needles.push(
        groups
            .iter()
            .flat_map(|group| group.swap_bytes().to_le_bytes())
            .collect(),
    );
    needles
}

fn files(below: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(below) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Files below a directory that hold a needle; how many bytes were looked at.
fn search_files(below: &Path) -> (Vec<(PathBuf, usize)>, u64) {
    let (mut all, mut found, mut looked) = (Vec::new(), Vec::new(), 0);
    if below.is_file() {
        all.push(below.to_owned());
    }
    files(below, &mut all);
    for path in all {
        let bytes = std::fs::read(&path).unwrap_or_default();
        looked += u64::try_from(bytes.len()).unwrap_or(0);
        for (which, needle) in needles().iter().enumerate() {
            if contains(&bytes, needle) {
                found.push((path.clone(), which));
            }
        }
    }
    (found, looked)
}

/// What an application does with the values.
fn everything() -> String {
    format!(
        "create table t (id int primary key, name enc_text(ordered), l enc_int8(ordered), n enc_numeric(ordered), b enc_bytea) using strongroom;
         insert into t select g, 'filler ' || 'x', 5, 1.5, 'abc' from generate_series(2, 300) g;
         insert into t values (1, 'canary-lovelace', {NUMBER}, {DIGITS}, 'canary-lovelace');
         create index on t (name); create index on t (l); create index on t (n);
         select * from t where name = 'canary-lovelace';
         select upper(name), name || '!', length(name), substring(name from 1 for 20) from t where l = {NUMBER};
         select l + 0, l - 0, n + 0, n * 1 from t where n = {DIGITS};
         select name, count(*), sum(n), max(l) from t group by name order by name desc;
         select distinct name from t; select string_agg(name, ', ') from t;
         select a.id from t a join t b on a.name = b.name and a.l = b.l where a.id = 1;
         select id, rank() over (order by n, name) from t;
         update t set name = name, l = l, n = n where id = 1; update t set name = upper(name) || 'x' where id = 1;
         update t set name = 'canary-lovelace' where id = 1; delete from t where name = 'nobody canary-lovelace';
         insert into t values (1, 'canary-lovelace', 1, 1, 'x');
         select l / 0 from t where id = 1; select l * l * l from t where id = 1;
         create temporary table temporary using strongroom as select * from t;
         analyze t; vacuum t;"
    )
}

#[test]
fn values_are_nowhere_in_the_server() {
    let (owner, server) = start_all_deriving(
        "shared_buffers = 16MB\nlog_statement = all\nlog_min_messages = debug1\nlog_error_verbosity = verbose\nwork_mem = 64kB\nmax_connections = 30",
    );
    let said = owner.run(&everything());
    assert!(
        said.rows.contains("canary-lovelace") && said.rows.contains(DIGITS),
        "{}{}",
        said.rows,
        said.messages
    );
    let errors: Vec<&str> = said
        .messages
        .lines()
        .filter(|line| line.contains("ERROR"))
        .collect();
    let expected = ["22012", "22003", "23505"];
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(
        expected.iter().all(|state| said.messages.contains(state)),
        "{errors:?}"
    );
    // Connections that stay: one with a transaction and a cursor, one idle, one operator's.
    let mut client = owner.connect().expect("a connection");
    for sql in [
        "begin",
        "declare c cursor with hold for select name, l, n from t order by name",
        "fetch 5 from c",
        "select max(name), max(n), max(l) from t",
    ] {
        let _done = client.query(sql).expect(sql);
    }
    let bound = client.execute(
        "select id from t where name = $1 and l = $2",
        &[Some("canary-lovelace"), Some(&NUMBER.to_string())],
    );
    assert_eq!(bound.expect("the row is found").rows.len(), 1);
    let operator = server.rows("select name, l, n from t where id = 1; copy t to stdout");
    assert!(operator.contains("sr1:"));
    let _kept = server.rows("checkpoint");
    let processes = server.processes();
    assert!(processes.len() > 6, "{processes:?}");
    for (process, title) in &processes {
        let (found, looked) = search_memory(*process, &needles());
        // A backend whose client has just left may be gone by now.
        let lives = Path::new(&format!("/proc/{process}")).exists();
        assert!(
            looked > 1 << 20 || !lives,
            "the memory of {title} was not read"
        );
        assert!(found.is_empty(), "in {title}: {found:?}");
    }
    // The proxy is the data owner's: there they are, or this test does not look.
    let proxy = owner.proxy_process().expect("the proxy runs");
    assert!(
        !search_memory(proxy, &needles()).0.is_empty(),
        "the search finds nothing at all"
    );
    drop(client);
    for place in [
        server.data(),
        server.log(),
        owner.path("zone"),
        owner.path("zone.log"),
        owner.path("proxy.log"),
    ] {
        let (found, _looked) = search_files(&place);
        assert!(found.is_empty(), "{found:?}");
    }
    let (_, looked) = search_files(&server.data());
    assert!(looked > 10 << 20, "the server's files were not read");
}

#[test]
fn a_core_of_the_zone_or_of_a_backend_has_no_value() {
    let (owner, server) = start_all_deriving("");
    let said = owner.run(&everything());
    assert!(said.rows.contains("canary-lovelace"), "{}", said.messages);
    let zone = owner.zone_process().expect("the zone runs");
    let core = owner.path("core");
    let dumped = std::process::Command::new("gcore")
        .arg("-o")
        .arg(&core)
        .arg(zone.to_string())
        .output();
    let dumped = dumped.expect("gcore can be run: install gdb");
    let path = owner.path(&format!("core.{zone}"));
    // The kernel refuses a debugger, or what it gets has no locked memory in it.
    if path.exists() {
        assert_eq!(search_files(&path).0, [], "in the core of the zone");
    } else {
        let text = String::from_utf8_lossy(&dumped.stderr).into_owned();
        assert!(!dumped.status.success(), "{text}");
    }
    let (backend, _) = server
        .processes()
        .into_iter()
        .find(|(_, title)| title.contains("strongroom columns"))
        .expect("the worker runs");
    let _dumped = std::process::Command::new("gcore")
        .arg("-o")
        .arg(&core)
        .arg(backend.to_string())
        .output();
    let path = owner.path(&format!("core.{backend}"));
    assert!(path.exists(), "a backend can be dumped");
    assert_eq!(search_files(&path).0, [], "in the core of a backend");
}

fn state(messages: &str) -> Option<&str> {
    let (_, rest) = messages.split_once("ERROR:  ")?;
    rest.get(..5)
}

/// What a database operator tries: known values of nothing, and comparisons with them.
const SMUGGLE: &[&str] = &[
    "select a / a from t",
    "select a - a from t",
    "select a + a from t where id = 1",
    "select id from t where a = a + a",
    "select id from t where a - a = a - a",
    "select count(*) from t where a > (select sum(m.a)::enc_int4 from mine m)",
    "select avg(a), stddev(a) from t",
    "select a from t where a = (select a from t limit 1) + (select a from t offset 1 limit 1)",
    "select case when a > b then 1 else 0 end from t",
    "select t.id from t, mine m where t.a > m.a",
    "select greatest(a, b) from t",
    "select a::enc_text from t",
    "select a::enc_text like '%1%' from t",
    "select string_agg(c, ',') from t",
    "select length(c) from t",
    "update t set a = b + a",
    "insert into mine select a + a from t",
    "insert into mine select a / a from t",
    "with x as (select a as v from t where id = 1) select t.id from t, x where t.a - x.v = x.v - x.v",
];

#[test]
fn an_operator_cannot_smuggle() {
    let (mut owner, server) = start_all("");
    let _made = owner.rows(
        "create table t (id int primary key, a enc_int4(ordered), b enc_int4, c enc_text) using strongroom;
         insert into t values (1, 41, 5, 'one'), (2, 1000, 6, 'two'); create table mine (a enc_int4) using strongroom;
         insert into mine values (1), (2), (4)",
    );
    for sql in SMUGGLE {
        let said = server.run(sql);
        let refused = matches!(
            state(&said.messages),
            Some("42501" | "42883" | "42846" | "42804" | "22P02" | "42601")
        );
        assert!(refused, "{sql}: {}{}", said.rows, said.messages);
    }
    // A constant from an envelope of an opaque column that they have seen. (One of a comparable
    // column's values tells what the stored value tells.)
    let envelope = server.rows("select b from t where id = 1");
    for sql in [
        format!("select id from t where b = '{envelope}'"),
        format!("select id from t where b < '{envelope}'"),
        format!("select id from t where a < '{envelope}'"),
        format!("select id from t where b = any (array['{envelope}'::enc_int4])"),
        format!("select count(*) from t where b in ('{envelope}', '{envelope}')"),
    ] {
        let said = server.run(&sql);
        assert_eq!(
            state(&said.messages),
            Some("42501"),
            "{sql}: {}{}",
            said.rows,
            said.messages
        );
    }
    // He maintains what there is.
    let _kept = server.rows(
        "create index on t (a); reindex table t; vacuum t; analyze t; select id from t order by id",
    );
    // The same with a ticket: that is what it is for, and its budget is the limit.
    assert_eq!(owner.rows("select a / a, a - a from t where id = 1"), "1|0");
    owner.kill_proxy();
    owner.start_proxy_with(server.socket(), &["--comparison-budget", "40"]);
    let mut client = owner.connect().expect("a connection");
    let (mut low, mut high, mut asked) = (0_i64, i64::from(i32::MAX), 0);
    let refused = loop {
        let middle = i64::midpoint(low, high);
        match client.rows(&format!(
            "select count(*) from t where id = 2 and a > {middle}"
        )) {
            Ok(rows) if rows == [[Some("1".to_owned())]] => low = middle + 1,
            Ok(_) => high = middle,
            Err(failure) => break failure,
        }
        asked += 1;
        if low >= high {
            // Found; the next victim costs the same again.
            (low, high) = (0, i64::from(i32::MAX));
        }
        assert!(asked <= 40, "the budget has no end");
    };
    assert_eq!(refused.state(), Some("53400"), "{refused}");
    // A question costs a comparison or two, and those of the sample that its plan is made by.
    assert!((10..=40).contains(&asked), "{asked}");
}

/// Where the identifiers of one column of a table are in its file: each row's first column, and the
/// place of the column's eight bytes. For a table of columns of eight bytes each, without NULLs.
fn places(file: &Path, column: usize) -> Vec<(i64, u64)> {
    let bytes = std::fs::read(file).expect("the table's file");
    let word = |page: &[u8], at: usize| -> usize {
        let two = page.get(at..at + 2).and_then(|two| two.first_chunk::<2>());
        two.map_or(0, |two| usize::from(u16::from_le_bytes(*two)))
    };
    let mut found = Vec::new();
    for (number, page) in bytes.chunks(8192).enumerate() {
        // bufpage.h: line pointers from byte 24 to pd_lower; 15 bits of offset, 2 of state, 15 of
        // length. htup_details.h: t_hoff at 22.
        let lower = word(page, 12);
        for pointer in (24..lower).step_by(4) {
            let offset = word(page, pointer) & 0x7fff;
            let state = word(page, pointer) >> 15 | (word(page, pointer + 2) & 1) << 1;
            if state != 1 {
                continue;
            }
            let start = offset + usize::from(page.get(offset + 22).copied().unwrap_or(0));
            let key = page
                .get(start..start + 8)
                .and_then(|eight| eight.first_chunk::<8>());
            let key = key.map_or(0, |eight| i64::from_le_bytes(*eight));
            let place = number * 8192 + start + column * 8;
            found.push((key, u64::try_from(place).unwrap_or(u64::MAX)));
        }
    }
    found
}

struct Edited {
    server: Server,
    owner: Owner,
}

impl Edited {
    fn file(&self, table: &str) -> PathBuf {
        let path = self
            .server
            .rows(&format!("select pg_relation_filepath('{table}')"));
        self.server.data().join(path)
    }
}

fn read(file: &Path, at: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    let open = std::fs::File::open(file).expect("the table's file");
    open.read_exact_at(&mut bytes, at)
        .expect("the identifier is there");
    bytes
}

fn write(file: &Path, at: u64, bytes: [u8; 8]) {
    let open = std::fs::File::options()
        .write(true)
        .open(file)
        .expect("the table's file");
    open.write_all_at(&bytes, at)
        .expect("the identifier is replaced");
}

#[test]
fn identifiers_that_were_moved_are_found() {
    let (owner, server) = start_all("");
    let stack = Edited { server, owner };
    let (owner, server) = (&stack.owner, &stack.server);
    let _made = owner.rows(
        "create table t (id bigint, a enc_int4(ordered), b enc_int4, c enc_text) using strongroom;
         create table other (id bigint, a enc_int4, b enc_int4, c enc_text) using strongroom;
         insert into t values (1, 11, 12, 'x'), (2, 21, 22, 'y'), (3, 31, 32, 'z'), (4, 41, 42, 'w'), (5, 51, 52, 'v'), (6, 61, 62, 'u');
         insert into other values (1, 71, 72, 'q'); checkpoint",
    );
    let (file, foreign) = (stack.file("t"), stack.file("other"));
    let place = |key: i64, column: usize| {
        let all = places(&file, column);
        all.iter()
            .find(|(found, _)| *found == key)
            .map(|(_, place)| *place)
            .expect("the row is in the file")
    };
    server.stop();
    let elsewhere = places(&foreign, 1)
        .first()
        .map(|(_, place)| *place)
        .expect("the other table's row");
    // Row 1: another column of the same kind. Row 2: another table. Row 3: another kind. Row 4: a
    // generation that is none. Row 5: an ephemeral of some session. Row 6: a number of no value.
    write(&file, place(1, 1), read(&file, place(1, 2)));
    write(&file, place(2, 1), read(&foreign, elsewhere));
    write(&file, place(3, 1), read(&file, place(3, 3)));
    let fid = u64::from_le_bytes(read(&file, place(4, 1)));
    write(&file, place(4, 1), (fid + (1 << 40)).to_le_bytes());
    write(&file, place(5, 1), (fid | 1 << 63).to_le_bytes());
    write(&file, place(6, 1), (fid + (1 << 16)).to_le_bytes());
    server.start_again();
    owner.wait_for("select count(b + 0) from t", "6");
    for id in 3..=6 {
        let expected = if id == 3 { "42804" } else { "SR001" };
        for sql in [
            "select a from t",
            "select a + 0 from t",
            "update t set b = a + 1",
        ] {
            let said = owner.run(&format!("begin; {sql} where id = {id}; rollback"));
            assert_eq!(
                state(&said.messages),
                Some(expected),
                "{sql}, {id}: {}{}",
                said.rows,
                said.messages
            );
        }
    }
    for id in 1..=6 {
        // Without a ticket none of them is compared with a value of the column.
        let said = server.run(&format!(
            "select count(*) from t x, t y where x.id = {id} and y.id = 2 and x.b < y.a"
        ));
        assert!(said.messages.contains("ERROR"), "{id}: {}", said.rows);
    }
    // The value of another column of the table is not shown as this one's. In a computation it is
    // not found, nor is one of another table: docs/concepts/columns.md says so.
    let said = owner.run("select a from t where id = 1");
    assert!(said.messages.contains("SR-8108"), "{}", said.messages);
    assert_eq!(owner.rows("select a + 0 from t where id = 1"), "12");
    assert_eq!(owner.rows("select a from t where id = 2"), "71");
    let index = server.run("create index on t (a)");
    assert!(
        index.messages.contains("ERROR"),
        "an index over foreign identifiers"
    );
    // The server lives, and rows that were left alone are as they were.
    assert_eq!(owner.rows("select sum(b) from t"), "222");
}
