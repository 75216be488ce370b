//! The two peers: a plain server, and a server with zone and proxy.
//!
//! Must not: give one of them a setting that the other does not get.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use strongroom_benches::Failure;
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::{Server, psql_command, tpch};

use crate::measured::{QueryTimes, Sizes};

/// Settings of both servers, beside those of the test servers (which do not sync).
const SETTINGS: &str = "shared_buffers = '512MB'\nmax_wal_size = '8GB'\ncheckpoint_timeout = '1h'";
/// The query that is run after a kill.
const FIRST: &str = "select count(*), sum(s_acctbal) from supplier";
/// The longest time that a backend may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time that a recovery may take.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(600);

/// Both peers, loaded.
pub(crate) struct Peers {
    owner: Owner,
    server: Server,
    plain: Server,
    memory: u32,
}

impl Peers {
    /// Starts and loads both; returns the times of loading.
    ///
    /// # Errors
    /// The error of psql.
    pub(crate) fn start(scale: f64, memory: u32) -> Result<(Self, [Duration; 2]), Failure> {
        let mut owner = Owner::new();
        owner.start_zone_with(memory, &[]);
        let server = Server::start(&owner.zone_socket(), SETTINGS);
        let plain = Server::start(Path::new("/nowhere"), SETTINGS);
        run(server.socket(), "create extension strongroom_columns")?;
        owner.start_proxy(server.socket());
        run(plain.socket(), &tpch::schema(false))?;
        run(&owner.path("proxy"), &tpch::schema(true))?;
        let mut load = [Duration::ZERO; 2];
        for (host, took) in [plain.socket(), &owner.path("proxy")]
            .into_iter()
            .zip(&mut load)
        {
            let begin = Instant::now();
            tpch::load(host, scale);
            *took = begin.elapsed();
        }
        for host in [plain.socket(), server.socket()] {
            run(host, "vacuum; checkpoint")?;
        }
        let peers = Self {
            owner,
            server,
            plain,
            memory,
        };
        Ok((peers, load))
    }

    /// Runs a query on the plain server; returns its times, and its rows in order.
    ///
    /// # Errors
    /// The error of psql.
    pub(crate) fn plain(&self, query: &str) -> Result<(QueryTimes, Vec<String>), Failure> {
        let before = children(&self.plain)?;
        let (wall, rows) = timed(self.plain.socket(), query)?;
        let server = children(&self.plain)?.saturating_sub(before);
        let taken = QueryTimes {
            wall,
            server,
            zone: Duration::ZERO,
        };
        Ok((taken, rows))
    }

    /// A query through the proxy.
    ///
    /// # Errors
    /// The error of psql.
    pub(crate) fn ours(&self, query: &str) -> Result<(QueryTimes, Vec<String>), Failure> {
        let (before, zone_before) = (children(&self.server)?, self.zone()?);
        let (wall, rows) = timed(&self.owner.path("proxy"), query)?;
        let taken = QueryTimes {
            wall,
            server: children(&self.server)?.saturating_sub(before),
            zone: self.zone()?.saturating_sub(zone_before),
        };
        Ok((taken, rows))
    }

    /// The plan of a query through the proxy, with what was counted while it was executed.
    ///
    /// # Errors
    /// The error of psql.
    pub(crate) fn plan(&self, query: &str) -> Result<String, Failure> {
        let explained = format!("explain (analyze, costs off) {query}");
        run(&self.owner.path("proxy"), &explained)
    }

    /// The zone's own processor time.
    fn zone(&self) -> Result<Duration, Failure> {
        ticks(self.owner.zone_pid(), &[13, 14])
    }

    /// How large everything is. Ends the zone in order, so that all values are in its files.
    ///
    /// # Errors
    /// What psql or the system said.
    pub(crate) fn sizes(&mut self) -> Result<Sizes, Failure> {
        let tables = "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace";
        let size = |host: &Path| -> Result<u64, Failure> { Ok(run(host, tables)?.trim().parse()?) };
        self.owner.stop_zone();
        Ok(Sizes {
            plain: size(self.plain.socket())?,
            ours: size(self.server.socket())?,
            zone: bytes_below(&self.owner.path("zone"))?,
        })
    }

    /// Kills everything after some changes, starts it again, and says how long the first answer
    /// took: plain, ours.
    ///
    /// # Errors
    /// No right answer in time.
    pub(crate) fn recover(&mut self) -> Result<[Duration; 2], Failure> {
        let change = "update orders set o_shippriority = o_shippriority + 1; update supplier set s_acctbal = s_acctbal + 1";
        let proxy = self.owner.path("proxy");
        run(self.plain.socket(), change)?;
        run(&proxy, change)?;
        let expected = run(self.plain.socket(), FIRST)?;

        let begin = Instant::now();
        self.plain.crash_and_start();
        until(self.plain.socket(), &expected)?;
        let plain = begin.elapsed();

        self.owner.kill_zone();
        let begin = Instant::now();
        self.owner.start_zone_with(self.memory, &[]);
        self.server.crash_and_start();
        until(&proxy, &expected)?;
        Ok([plain, begin.elapsed()])
    }
}

/// Asks until the right answer comes: while the log is being read an error is right.
fn until(host: &Path, expected: &str) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let answer = run(host, FIRST);
        if answer.as_ref().is_ok_and(|rows| rows == expected) {
            return Ok(());
        }
        if begin.elapsed() > RECOVERY_TIMEOUT {
            return Err(format!("no recovery: {answer:?}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs SQL that must succeed; its rows.
fn run(host: &Path, sql: &str) -> Result<String, Failure> {
    let said = strongroom_columns_testing::psql(host, sql);
    if said.messages.contains("ERROR") || said.messages.contains("FATAL") {
        return Err(said.messages.into());
    }
    Ok(said.rows)
}

/// Runs a query with psql's clock on.
fn timed(host: &Path, query: &str) -> Result<(Duration, Vec<String>), Failure> {
    let started = psql_command(host)
        .arg("--set=ON_ERROR_STOP=1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut psql = started?;
    let mut input = psql.stdin.take().ok_or("psql has no input")?;
    input.write_all(format!("\\timing on\n{query};\n").as_bytes())?;
    drop(input);
    let output = psql.wait_with_output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let (rows, time) = text.rsplit_once("Time: ").ok_or("psql told no time")?;
    let milliseconds: f64 = time.split(' ').next().unwrap_or_default().parse()?;
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    // Rows that the query's ORDER BY leaves open may come in any order.
    rows.sort_unstable();
    Ok((Duration::from_secs_f64(milliseconds / 1000.0), rows))
}

/// Processor time of all backends of a server that have ended, workers and autovacuum included.
fn children(server: &Server) -> Result<Duration, Failure> {
    let file = server.data().join("postmaster.pid");
    let text = std::fs::read_to_string(file)?;
    let pid = text.lines().next().unwrap_or_default().trim().parse()?;
    // psql is gone before its backend is.
    let begin = Instant::now();
    while has_clients(pid) {
        if begin.elapsed() > EXIT_TIMEOUT {
            return Err("a backend does not end".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ticks(pid, &[15, 16])
}

/// Whether a server has backends of clients, or ones that have ended and for which it has not
/// waited yet: their time does not count before.
fn has_clients(pid: u32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().any(|child| {
        let title = std::fs::read_to_string(format!("/proc/{child}/cmdline"));
        title.is_ok_and(|title| title.is_empty() || title.contains("[local]"))
    })
}

/// The sum of these fields of `/proc/PID/stat` (proc(5)), counted from 0, which are in clock ticks.
fn ticks(pid: u32, fields: &[usize]) -> Result<Duration, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')').ok_or("a process without a name")?;
    let all: Vec<&str> = rest.split_whitespace().collect();
    let mut sum = 0;
    for field in fields {
        // The first two fields are before the name's end.
        let field = all.get(field - 2).ok_or("a process without times")?;
        sum += field.parse::<u64>()?;
    }
    Ok(Duration::from_millis(
        sum * 1000 / rustix::param::clock_ticks_per_second(),
    ))
}

fn bytes_below(directory: &Path) -> Result<u64, Failure> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() {
            bytes_below(&entry.path())?
        } else {
            about.len()
        };
    }
    Ok(sum)
}
