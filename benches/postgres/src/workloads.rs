//! The workloads: each makes ready outside the clock, works under it, and returns what its peers
//! must return too.
//!
//! Must not: begin with pages of an earlier workload still to be written: there is a checkpoint and
//! a `sync` before each clock.

use std::time::Duration;

use strongroom_benches::Failure;
use strongroom_benches::postgres::Server;

use crate::options::{Options, Sizes};
use crate::peer::Node;
use crate::pgbench::{self, Run};
use crate::report::Line;
use crate::setup::{BULK, LARGE, SMALL};

/// Rows of the table whose log is replayed, for each unit of the scale.
const CRASH_ROWS: u32 = 40_000;
/// A statement that is to spill writes at least this many bytes to temporary files.
const SPILL_MIN: u64 = 8 << 20;

/// One write for three reads.
const ONE_TO_THREE: &[&str] = &["select-only@3", "simple-update@1"];

/// One round of one peer.
pub(crate) struct Round {
    /// How long it took.
    pub(crate) taken: Duration,
    /// Processor time of the server's processes meanwhile.
    pub(crate) processor: Duration,
    /// What its peers must return too.
    pub(crate) result: String,
}

/// What a workload does.
#[derive(Clone, Copy)]
enum Work {
    /// `pgbench -i`.
    Bulk,
    /// pgbench's transactions; so many times fewer than the option says.
    Pgbench(Run, u32),
    /// One statement.
    Sql(Statement),
    /// Recovery of a server that was killed.
    Crash,
}

/// A statement in the large database.
#[derive(Clone, Copy)]
struct Statement {
    /// Outside the clock, in a session of its own.
    prepare: &'static str,
    /// In the statement's session, before the clock.
    settings: &'static str,
    /// `{rows}` stands for the file with the rows of `items`.
    sql: &'static str,
    /// What the peers must agree on.
    check: &'static str,
    spills: bool,
}

/// A workload.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    group: &'static str,
    pub(crate) name: &'static str,
    work: Work,
}

const FIVE: &str = "pgbench";
const SINGLE: &str = "One process";
const CRASH: &str = "After a crash";

/// Every workload, in the table's order.
pub(crate) fn all() -> Vec<Workload> {
    let run = |database, scripts, synchronous| Run {
        database,
        scripts,
        synchronous,
    };
    let read = &["select-only"][..];
    let pgbench = [
        ("read-only, in shared_buffers", run(SMALL, read, true), 1),
        (
            "read-only, out of shared_buffers",
            run(LARGE, read, true),
            1,
        ),
        (
            "read-write 1:3, in shared_buffers",
            run(SMALL, ONE_TO_THREE, true),
            4,
        ),
        (
            "read-write 1:3, out of shared_buffers",
            run(LARGE, ONE_TO_THREE, true),
            4,
        ),
        (
            "read-write 1:3, out of shared_buffers, synchronous_commit=off",
            run(LARGE, ONE_TO_THREE, false),
            2,
        ),
    ];
    let mut all = vec![Workload {
        group: FIVE,
        name: "bulk insert (pgbench -i)",
        work: Work::Bulk,
    }];
    all.extend(pgbench.map(|(name, run, fewer)| Workload {
        group: FIVE,
        name,
        work: Work::Pgbench(run, fewer),
    }));
    all.extend(STATEMENTS.map(|(name, statement)| Workload {
        group: SINGLE,
        name,
        work: Work::Sql(statement),
    }));
    all.push(Workload {
        group: CRASH,
        name: "start after kill -9, to the first connection",
        work: Work::Crash,
    });
    all
}

const STATEMENTS: [(&str, Statement); 6] = [
    (
        "COPY into a table",
        Statement {
            prepare: "DROP TABLE IF EXISTS made; CREATE TABLE made (LIKE items);",
            settings: "",
            sql: "COPY made FROM '{rows}'",
            check: "SELECT count(*), sum(grp), min(note), max(note) FROM made",
            spills: false,
        },
    ),
    (
        "CREATE TABLE AS",
        Statement {
            prepare: "DROP TABLE IF EXISTS made;",
            settings: "",
            sql: "CREATE TABLE made AS SELECT * FROM items",
            check: "SELECT count(*), sum(grp), min(note), max(note) FROM made",
            spills: false,
        },
    ),
    (
        "CREATE INDEX",
        Statement {
            prepare: "DROP INDEX IF EXISTS by_note;",
            settings: "",
            sql: "CREATE INDEX by_note ON items (note)",
            check: "SELECT count(*), max(relpages) FROM pg_class WHERE relname = 'by_note'",
            spills: true,
        },
    ),
    (
        "sequential scan out of shared_buffers",
        Statement {
            prepare: "",
            settings: "",
            sql: "SELECT count(*), sum(grp), max(length(note)) FROM items",
            check: "SELECT count(*), sum(grp) FROM items",
            spills: false,
        },
    ),
    (
        "sort that spills",
        Statement {
            prepare: "DROP INDEX IF EXISTS by_note;",
            settings: "",
            sql: "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY note) AS n, * FROM items) AS s",
            check: "SELECT count(*) FROM items",
            spills: true,
        },
    ),
    (
        "hash aggregate that spills",
        Statement {
            prepare: "DROP INDEX IF EXISTS by_note;",
            settings: "SET enable_sort = off;",
            sql: "SELECT count(*), max(n) FROM (SELECT note, count(*) AS n FROM items GROUP BY note) AS s",
            check: "SELECT count(*) FROM items",
            spills: true,
        },
    ),
];

impl Workload {
    /// Its line of the table, without rounds.
    pub(crate) fn line(&self, options: &Options) -> Line {
        let (operations, operation) = match self.work {
            Work::Pgbench(_, fewer) => {
                let each = options.transactions / fewer;
                (each.saturating_mul(options.clients), "transaction")
            }
            _ => (1, ""),
        };
        Line::new(self.group, self.name, operations, operation)
    }

    /// One round of one peer.
    pub(crate) fn once(
        &self,
        node: &mut Node<'_>,
        rows: &str,
        round: u32,
        options: &Options,
        sizes: &mut Sizes,
    ) -> Result<Round, Failure> {
        match self.work {
            Work::Bulk => bulk(node, options.scale),
            Work::Pgbench(run, fewer) => transactions(node, run, fewer, round, options),
            Work::Sql(statement) => single(node, statement, rows),
            Work::Crash => crash(node, options.scale.saturating_mul(CRASH_ROWS), sizes),
        }
    }
}

/// All that was written before is on the disk: the log is checkpointed, and the kernel has nothing
/// left to write.
fn settle(node: &Node<'_>) -> Result<(), Failure> {
    node.cluster.psql("postgres", "CHECKPOINT;")?;
    rustix::fs::sync();
    Ok(())
}

/// Runs what is under the clock, and then what the peers must agree on.
fn measured(
    node: &Node<'_>,
    database: &str,
    work: impl FnOnce() -> Result<Duration, Failure>,
    check: &str,
) -> Result<Round, Failure> {
    let before = node.processor_time()?;
    let taken = work()?;
    let processor = node.processor_time()?.saturating_sub(before);
    Ok(Round {
        taken,
        processor,
        result: node.cluster.psql(database, check)?,
    })
}

fn bulk(node: &Node<'_>, scale: u32) -> Result<Round, Failure> {
    settle(node)?;
    let work = || pgbench::initialise(&node.cluster, BULK, scale);
    let check = "SELECT count(*), sum(bid), max(aid) FROM pgbench_accounts;";
    measured(node, BULK, work, check)
}

fn transactions(
    node: &Node<'_>,
    run: Run,
    fewer: u32,
    round: u32,
    options: &Options,
) -> Result<Round, Failure> {
    // Updates of the round before leave dead rows; each round begins without.
    node.cluster.psql(
        run.database,
        "VACUUM pgbench_accounts; TRUNCATE pgbench_history;",
    )?;
    settle(node)?;
    if run.database == SMALL {
        let warm = "SELECT pg_prewarm(c) FROM (VALUES ('pgbench_accounts'::regclass),
                    ('pgbench_accounts_pkey')) AS t (c);";
        node.cluster.psql(SMALL, warm)?;
    }
    let each = options.transactions / fewer;
    let seed = round.saturating_add(1);
    let work = || pgbench::run(&node.cluster, run, options.clients, each, seed);
    let check = "SELECT sum(abalance), count(*) FROM pgbench_accounts;
                 SELECT count(*), sum(delta), sum(aid) FROM pgbench_history;";
    measured(node, run.database, work, check)
}

fn single(node: &Node<'_>, statement: Statement, rows: &str) -> Result<Round, Failure> {
    if !statement.prepare.is_empty() {
        node.cluster.psql(LARGE, statement.prepare)?;
    }
    let before = spilled(node)?;
    settle(node)?;
    let sql = statement.sql.replace("{rows}", rows);
    let work = || node.cluster.time(LARGE, statement.settings, &sql);
    let done = measured(node, LARGE, work, &format!("{};", statement.check))?;
    if statement.spills && spilled(node)? < before.saturating_add(SPILL_MIN) {
        return Err("the statement did not spill".into());
    }
    Ok(done)
}

/// Bytes of temporary files of the large database, up to now.
fn spilled(node: &Node<'_>) -> Result<u64, Failure> {
    let sql = "SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database();";
    Ok(node.cluster.psql(LARGE, sql)?.parse()?)
}

/// Kills the server with a log of fixed content since the last checkpoint, and starts it.
fn crash(node: &mut Node<'_>, rows: u32, sizes: &mut Sizes) -> Result<Round, Failure> {
    let create = "DROP TABLE IF EXISTS crash; CREATE TABLE crash (id int PRIMARY KEY, note text);";
    node.cluster.psql(LARGE, create)?;
    settle(node)?;
    let position = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn;";
    let begin: u64 = node.cluster.psql(LARGE, position)?.parse()?;
    let work = format!(
        "INSERT INTO crash SELECT i, md5(i::text) || md5((i * 7)::text)
         FROM generate_series(1, {rows}) AS i;
         UPDATE crash SET note = md5(note) WHERE id % 4 = 0;"
    );
    node.cluster.psql(LARGE, &work)?;
    let end: u64 = node.cluster.psql(LARGE, position)?.parse()?;
    sizes.replayed = end.saturating_sub(begin);
    node.server.take().ok_or("no server")?.kill()?;
    rustix::fs::sync();
    let (server, taken) = Server::start(&node.cluster)?;
    node.server = Some(server);
    let check = "SELECT count(*), sum(length(note)), min(note), max(note) FROM crash;";
    Ok(Round {
        taken,
        // All that the new server has done so far.
        processor: node.processor_time()?,
        result: node.cluster.psql(LARGE, check)?,
    })
}
