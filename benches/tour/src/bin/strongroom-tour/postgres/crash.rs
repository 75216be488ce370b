//! A power cut: every process of both servers gets SIGKILL while clients write; then recovery.
//!
//! Must not: count a commit that the server has not told its client of.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use strongroom_benches::Failure;
use strongroom_benches::postgres::{Cluster, PSQL};
use strongroom_benches::stats::timed;

use super::canary;
use super::instances::{BALANCES, Instances, Workplace, shown_balances, succeeded};
use strongroom_tour::checks::{Checks, found};

/// Clients that write at the moment of the cut.
const CLIENTS: u32 = 2;
/// Commits of which each client must have been told by then.
const COMMITS_MIN: usize = 100;
/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most inserts of a client.
const INSERTS: u32 = 200_000;

/// What was known before the cut.
pub(super) struct Left {
    /// Numbers whose commit a client was told of.
    told: BTreeSet<u64>,
}

/// Plants the canaries, lets clients write, and cuts the power.
pub(super) fn cut(
    instances: &mut Instances<'_>,
    workplace: &Workplace,
    checks: &mut Checks,
) -> Result<Left, Failure> {
    let mut left = Left {
        told: BTreeSet::new(),
    };
    checks.check("kill -9 of all processes while clients write", || {
        let mut open = Vec::new();
        for cluster in [&instances.plain, &instances.sealed] {
            canary::plant(cluster)?;
            open.push(spilling(cluster)?);
        }
        let create = "CREATE TABLE ledger (id bigint PRIMARY KEY);";
        instances.sealed.psql("postgres", create)?;
        let mut clients = (0..CLIENTS)
            .map(|number| Client::start(&instances.sealed, workplace, number))
            .collect::<Result<Vec<_>, _>>()?;
        wait_for(&clients)?;
        let sealed = instances.sealed_server.take().ok_or("no server")?;
        let processes = sealed.kill()?;
        instances.plain_server.take().ok_or("no server")?.kill()?;
        for client in &mut clients {
            client.session.wait()?;
            left.told.extend(client.told()?);
        }
        for mut session in open {
            session.wait()?;
        }
        let count = left.told.len();
        found(
            count >= COMMITS_MIN && processes > 5,
            format!("{processes} processes; clients knew of {count} commits"),
        )
    })?;
    Ok(left)
}

/// A session with a sort that has spilled, open until its server ends.
fn spilling(cluster: &Cluster<'_>) -> Result<Child, Failure> {
    let mut command = cluster.program("psql");
    command.args(["-X", "-q", "-d", "postgres", "-c", canary::SPILL]);
    command.args(["-c", "SELECT pg_sleep(600)"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn()?;
    let begin = Instant::now();
    while !canary::has_spilled(cluster) {
        if begin.elapsed() > PATIENCE {
            return Err("the sort did not spill".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(child)
}

/// A client that inserts a row in each transaction and writes down which were committed.
struct Client {
    session: Child,
    log: PathBuf,
}

impl Client {
    fn start(cluster: &Cluster<'_>, workplace: &Workplace, number: u32) -> Result<Self, Failure> {
        let (script, log) = (
            workplace.path(&format!("client{number}.sql")),
            workplace.path(&format!("client{number}.log")),
        );
        let mut text = String::new();
        for insert in 0..INSERTS {
            let id = insert * CLIENTS + number;
            // RETURNING is told to the client with the commit, not before.
            writeln!(text, "INSERT INTO ledger VALUES ({id}) RETURNING id;")?;
        }
        File::create(&script)?.write_all(text.as_bytes())?;
        let mut command = cluster.program("psql");
        command.args(PSQL).args(["-d", "postgres"]);
        command.stdin(File::open(&script)?);
        command.stdout(File::create(&log)?).stderr(Stdio::null());
        let session = command.spawn()?;
        Ok(Self { session, log })
    }

    fn told(&self) -> Result<BTreeSet<u64>, Failure> {
        whole_lines(&self.log)
    }
}

/// The numbers in a file, but for a last line without an end.
fn whole_lines(path: &Path) -> Result<BTreeSet<u64>, Failure> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole.lines().map(str::parse).collect::<Result<_, _>>()?)
}

/// Until the clients were told of enough commits.
fn wait_for(clients: &[Client]) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let mut count = 0;
        for client in clients {
            count += client.told()?.len();
        }
        if count >= COMMITS_MIN {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("{count} commits in {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts the sealed server again and looks for what was committed.
pub(super) fn recover(
    instances: &mut Instances<'_>,
    left: &Left,
    checks: &mut Checks,
) -> Result<(), Failure> {
    checks.heading("Recovery of the sealed instance")?;
    checks.check("pg start", || {
        let log = instances.sealed.log();
        let before = std::fs::read_to_string(&log)?.len();
        let (taken, ()) = timed(|| instances.start())?;
        let text = std::fs::read_to_string(&log)?;
        let said = text.get(before..).unwrap_or_default();
        let recovered =
            said.contains("automatic recovery in progress") && said.contains("redo done");
        let seconds = taken.as_secs_f64();
        found(recovered, format!("{seconds:.1} s; its log tells of redo"))
    })?;
    checks.check("every commit that a client was told of", || {
        let listed = instances
            .sealed
            .psql("postgres", "SELECT id FROM ledger;")?;
        let present: BTreeSet<u64> = listed.lines().map(str::parse).collect::<Result<_, _>>()?;
        let missing = left.told.difference(&present).count();
        // A commit may have been durable, and its client not told yet: one for each.
        let more = present.difference(&left.told).count();
        let text = format!("{} of {} there", left.told.len() - missing, left.told.len());
        let bound = usize::try_from(CLIENTS)?;
        found(missing == 0 && !left.told.is_empty() && more <= bound, text)
    })?;
    checks.check("pgbench's balances", || {
        shown_balances(&instances.sealed.psql("postgres", BALANCES)?)
    })?;
    checks.check("the prepared transaction", || {
        let sql = "SELECT count(*) FROM kept; COMMIT PREPARED 'canary-prepared-5e1d'; SELECT count(*) FROM kept;";
        let said = instances.sealed.psql("postgres", sql)?;
        found(said == "0\n1", "committed now, and its row is there")
    })?;
    checks.check("pg stop; pg run -- pg_checksums --check", || {
        instances.stop()?;
        let mut command = instances.command(&["pg", "run", "-D"]);
        command.args(["--", "pg_checksums", "--check", "-D"]);
        command.arg(instances.sealed.data());
        let ran = succeeded(command)?;
        let field = |name: &str| {
            let line = ran.stdout.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let (blocks, bad) = (field("Blocks scanned:"), field("Bad checksums:"));
        let text = format!("{} blocks, {} bad", blocks.unwrap_or(0), bad.unwrap_or(0));
        found(
            blocks.is_some_and(|blocks| blocks > 1000) && bad == Some(0),
            text,
        )
    })
}
