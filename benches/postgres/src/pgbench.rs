//! pgbench: filling its tables, running its transactions.
//!
//! Must not: count pgbench's own start or its connections.

use std::time::{Duration, Instant};

use strongroom_benches::Failure;
use strongroom_benches::postgres::{Cluster, failed};

/// What pgbench is to run.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) database: &'static str,
    /// Built-in scripts with their weights.
    pub(crate) scripts: &'static [&'static str],
    /// Whether a commit waits for the disk.
    pub(crate) synchronous: bool,
}

/// `pgbench -i`: creates the tables, fills them, vacuums them, makes the primary keys.
pub(crate) fn initialise(
    cluster: &Cluster<'_>,
    database: &str,
    scale: u32,
) -> Result<Duration, Failure> {
    let mut command = cluster.program("pgbench");
    command.args(["-i", "-q", "-s", &scale.to_string(), database]);
    let begin = Instant::now();
    let output = command.output()?;
    let taken = begin.elapsed();
    if output.status.success() {
        Ok(taken)
    } else {
        Err(failed("pgbench -i", &output))
    }
}

/// Runs a fixed number of transactions; which rows they choose follows from `seed`.
pub(crate) fn run(
    cluster: &Cluster<'_>,
    run: Run,
    clients: u32,
    transactions: u32,
    seed: u32,
) -> Result<Duration, Failure> {
    let mut command = cluster.program("pgbench");
    let (clients, transactions) = (clients.to_string(), transactions.to_string());
    command.args(["-n", "-c", &clients, "-j", &clients, "-t", &transactions]);
    command.args(["--random-seed", &seed.to_string()]);
    for script in run.scripts {
        command.args(["-b", script]);
    }
    if !run.synchronous {
        command.env("PGOPTIONS", "-c synchronous_commit=off");
    }
    let output = command.arg(run.database).output()?;
    if !output.status.success() {
        return Err(failed("pgbench", &output));
    }
    measured(&String::from_utf8(output.stdout)?)
        .ok_or_else(|| "pgbench did not do all its transactions".into())
}

/// Transactions by transactions per second; `None` unless all were done.
fn measured(said: &str) -> Option<Duration> {
    let after = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let (done, wanted) = after("number of transactions actually processed: ")?.split_once('/')?;
    let failed = after("number of failed transactions: ");
    if done != wanted || failed.is_some_and(|count| !count.starts_with("0 ")) {
        return None;
    }
    let done: f64 = done.parse().ok()?;
    let per_second: f64 = after("tps = ")?.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(done / per_second).ok()
}

#[cfg(test)]
mod tests {
    use super::measured;

    const SAID: &str = "scaling factor: 1\n\
        number of transactions per client: 200\n\
        number of transactions actually processed: 400/400\n\
        number of failed transactions: 0 (0.000%)\n\
        latency average = 0.070 ms\n\
        initial connection time = 3.9 ms\n\
        tps = 800.000000 (without initial connection time)\n";

    #[test]
    fn a_run_counts_if_all_of_it_was_done() {
        assert!((measured(SAID).unwrap().as_secs_f64() - 0.5).abs() < 1e-9);
        assert!(measured(&SAID.replace("400/400", "399/400")).is_none());
        assert!(measured(&SAID.replace(": 0 (0", ": 1 (0")).is_none());
        assert!(measured("").is_none());
    }
}
