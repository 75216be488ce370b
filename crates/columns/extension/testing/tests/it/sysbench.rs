//! Goal: sysbench's own OLTP scripts, which know nothing of us, run through the proxy on
//! confidential columns without an error.
//!
//! Method: the program sysbench (1.0, PostgreSQL's driver) with every script it comes with; the
//! tables it expects are made beforehand with confidential types. Afterwards the rows are what
//! sysbench says it has written. `STRONGROOM_SYSBENCH_SECONDS` is how long each script runs.

use std::process::Command;

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::owner::{Owner, start_all_deriving};
use strongroom_columns_testing::{print_line, seconds, seed};

const ROWS: u32 = 500;
/// Characters of sysbench's `c` and `pad`.
const LENGTHS: [usize; 2] = [119, 59];
/// Scripts that leave as many rows as there were, then those that do not.
const SCRIPTS: [&str; 10] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_update_index",
    "oltp_update_non_index",
    "select_random_points",
    "select_random_ranges",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_insert",
    "oltp_delete",
];

/// Groups of eleven digits, as sysbench makes them.
fn text(random: &mut fastrand::Rng, length: usize) -> String {
    let digits = (0..length).map(|at| if at % 12 == 11 { '-' } else { random.digit(10) });
    digits.collect()
}

fn load(client: &mut Client, random: &mut fastrand::Rng) {
    client
        .query("create table sbtest1 (id serial primary key, k enc_int4(ordered), c enc_text, pad enc_text) using strongroom")
        .expect("the table is made");
    let lines = (1..=ROWS).map(|id| {
        let [c, pad] = LENGTHS.map(|length| text(random, length));
        format!("{id}\t{}\t{c}\t{pad}\n", random.u32(1..=ROWS))
    });
    let lines: Vec<String> = lines.collect();
    client
        .copy_in("copy sbtest1 from stdin", lines)
        .expect("the table is filled");
    client
        .query("create index k_1 on sbtest1 (k); select setval('sbtest1_id_seq', 1000000); analyze sbtest1")
        .expect("the index is made");
}

/// Runs a script; transactions a second.
fn run(owner: &Owner, script: &str) -> String {
    let time = seconds("STRONGROOM_SYSBENCH_SECONDS", 3).as_secs();
    let mut command = Command::new("sysbench");
    command.arg(script).args([
        "--db-driver=pgsql",
        "--pgsql-port=5432",
        "--pgsql-user=postgres",
        "--pgsql-db=postgres",
    ]);
    command.arg(format!(
        "--pgsql-host={}",
        owner.proxy_directory().display()
    ));
    command.args([
        "--threads=4",
        "--tables=1",
        "--range_size=20",
        "--rand-type=uniform",
    ]);
    command
        .arg(format!("--table-size={ROWS}"))
        .arg(format!("--time={time}"))
        .arg("run");
    let output = command.output().expect("sysbench is installed");
    let (out, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && !out.contains("FATAL"),
        "{script}: {out}{errors}"
    );
    let line = |name: &str| {
        out.lines()
            .find(|line| line.trim().starts_with(name))
            .unwrap_or_default()
    };
    // What sysbench ignores by itself is deadlocks and the like; anything else ends it.
    let count: u64 = line("transactions:")
        .split_whitespace()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(0);
    assert!(count > 0, "{script}: {out}");
    line("transactions:").trim().to_owned()
}

#[test]
fn sysbench_runs_its_scripts_on_confidential_columns() {
    let mut random = fastrand::Rng::with_seed(seed());
    let (owner, _server) = start_all_deriving("max_connections = 40");
    let mut client = owner.connect().expect("a connection");
    load(&mut client, &mut random);
    for script in SCRIPTS {
        print_line(&format!("{script}: {}", run(&owner, script)));
        if script == "oltp_write_only" {
            assert_eq!(owner.rows("select count(*) from sbtest1"), ROWS.to_string());
        }
        let wrong = "select count(*) from sbtest1 where length(c) <> 119 or length(pad) <> 59 or k is null or c not like '___________-%'";
        assert_eq!(owner.rows(wrong), "0", "{script}");
    }
    let both = owner.rows("set enable_seqscan = off; select count(*) from sbtest1 where k > -2000000000; set enable_seqscan = on; select count(*) from sbtest1");
    let counts: Vec<&str> = both.lines().collect();
    assert_eq!(counts.first(), counts.last(), "by index and by scan");
}
