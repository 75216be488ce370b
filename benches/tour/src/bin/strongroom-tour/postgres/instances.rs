//! Two instances with the same work, one of them sealed, and how their programs are run.
//!
//! Must not: run a server that the tour has not made, or leave one running.

use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_benches::Failure;
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::postgres::{Account, Cluster, Place, Server, Tools};
use strongroom_benches::report::duration;
use strongroom_benches::stats::timed;
use tempfile::TempDir;

use crate::command::Ran;
use strongroom_tour::checks::{Checks, Found, found};

/// pgbench's scale.
pub(crate) const SCALE: &str = "2";

/// Settings of both instances.
pub(crate) const SETTINGS: [(&str, &str); 6] = [
    ("shared_buffers", "16MB"),
    ("work_mem", "64kB"),
    ("max_prepared_transactions", "4"),
    ("shared_preload_libraries", "pg_stat_statements"),
    ("autovacuum", "off"),
    ("max_parallel_workers_per_gather", "0"),
];

/// pgbench's balances: four sums that are equal as long as no transaction is lost or torn.
pub(crate) const BALANCES: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts),
    (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(bbalance) FROM pgbench_branches),
    (SELECT sum(delta) FROM pgbench_history), (SELECT count(*) FROM pgbench_history);";

/// Two instances and their servers.
pub(crate) struct Instances<'place> {
    pub(crate) plain: Cluster<'place>,
    pub(crate) sealed: Cluster<'place>,
    pub(crate) plain_server: Option<Server>,
    pub(crate) sealed_server: Option<Server>,
    /// Opens the sealed one; strongroom.conf names it.
    pub(crate) key: PathBuf,
    /// Opens nothing.
    pub(crate) other_key: PathBuf,
}

/// Where the data directories are, and the programs.
pub(crate) struct Workplace {
    pub(crate) directory: TempDir,
    pub(crate) place: Place,
}

impl Workplace {
    pub(crate) fn prepare(out: &Path, tools: &Tools) -> Result<Self, Failure> {
        let account = Account::here()?;
        let out = out.canonicalize()?;
        let mut named = tempfile::Builder::new();
        named.prefix("postgres-");
        let directory = if account.reaches(&out) {
            named.tempdir_in(&out)?
        } else {
            named.tempdir()?
        };
        let place = Place::make(tools, account, directory.path())?;
        Ok(Self { directory, place })
    }

    /// The programs, who runs them, and their sockets.
    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// The `strongroom` command, where PostgreSQL's user reaches it.
    pub(crate) fn strongroom(&self) -> &Path {
        &self.place.tools.strongroom
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn key_file(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        new_key_file(&path)?;
        self.place.account.own(&path)?;
        Ok(path)
    }
}

impl<'place> Instances<'place> {
    pub(crate) fn make(workplace: &'place Workplace) -> Result<Self, Failure> {
        let (key, other_key) = (workplace.key_file("key")?, workplace.key_file("other-key")?);
        let named = key.to_str().ok_or("the path is not UTF-8")?;
        let seal = ["--cipher", "aes-256-xts", "--key-file", named];
        let make = |name: &str, seal: Option<&[&str]>| {
            let options = ["--data-checksums"];
            Cluster::initdb(
                &workplace.place,
                &workplace.path(name),
                seal,
                &options,
                &SETTINGS,
            )
        };
        Ok(Self {
            plain: make("plain", None)?,
            sealed: make("sealed", Some(&seal))?,
            plain_server: None,
            sealed_server: None,
            key,
            other_key,
        })
    }

    /// Starts both and gives both the same work.
    pub(crate) fn begin(&mut self, checks: &mut Checks) -> Result<(), Failure> {
        checks.check("pg initdb; pg start; pg status", || {
            self.plain_server = Some(Server::start(&self.plain)?.0);
            self.start()?;
            let status = self.succeed(&["pg", "status", "--json", "-D"])?;
            let status: serde_json::Value = serde_json::from_str(&status.stdout)?;
            let of = |name: &str| status["header"][name].as_str().unwrap_or_default();
            let (cipher, fingerprint) = (of("cipher"), of("fingerprint"));
            let holds = status["sealed"] == true && status["pid"].is_u64();
            let short = fingerprint.get(..8).unwrap_or_default();
            let text = format!("running; {cipher}, fingerprint {short}...");
            found(holds && cipher == "aes-256-xts", text)
        })?;
        checks.check("pgbench, the same transactions on both", || {
            let (plain, first) = timed(|| pgbench(&self.plain))?;
            let (sealed, second) = timed(|| pgbench(&self.sealed))?;
            let shown = [plain, sealed].map(|taken| duration(taken.as_secs_f64()));
            let text = format!("{} plain, {} sealed; same balances", shown[0], shown[1]);
            found(first == second && balanced(&first), text)
        })
    }

    /// `pg start` on the sealed one, with the key that strongroom.conf names.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        let mut command = self.command(&["pg", "start", "-D"]);
        command.arg("-l").arg(self.sealed.log());
        succeeded(command)?;
        self.sealed_server = Some(Server::adopt(&self.sealed)?);
        Ok(())
    }

    /// `pg stop`.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        self.succeed(&["pg", "stop", "-D"])?;
        let server = self.sealed_server.take().ok_or("no server")?;
        server.was_stopped()
    }

    /// The command on the sealed instance; `arguments` end in `-D`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.sealed.strongroom(arguments);
        command.arg(self.sealed.data());
        command
    }

    pub(crate) fn succeed(&self, arguments: &[&str]) -> Result<Ran, Failure> {
        succeeded(self.command(arguments))
    }
}

/// Runs it; what it said, whether it succeeded or not. A server that it starts must not hold its
/// output open.
pub(crate) fn ran(mut command: Command) -> Result<Ran, Failure> {
    Ok(command.output()?.into())
}

pub(crate) fn succeeded(command: Command) -> Result<Ran, Failure> {
    ran(command)?.succeeded()
}

/// Fills pgbench's tables and runs its transactions; the balances afterwards.
pub(crate) fn pgbench(cluster: &Cluster<'_>) -> Result<String, Failure> {
    for options in [
        &["-i", "-q", "-s", SCALE][..],
        &["-n", "-c", "2", "-t", "150", "--random-seed", "7"][..],
    ] {
        let mut command = cluster.program("pgbench");
        command.args(options).arg("postgres");
        succeeded(command)?;
    }
    cluster.psql("postgres", BALANCES)
}

/// Whether the four sums are one, and there are transactions.
pub(crate) fn balanced(balances: &str) -> bool {
    let fields: Vec<&str> = balances.split('|').collect();
    let [accounts, tellers, branches, history, count] = fields[..] else {
        return false;
    };
    let equal = accounts == tellers && tellers == branches && branches == history;
    equal && count.parse().is_ok_and(|count: u64| count > 0)
}

/// For a line of the tour: whether the balances are right.
pub(crate) fn shown_balances(balances: &str) -> Result<Found, Failure> {
    let count = balances.rsplit('|').next().unwrap_or_default();
    let words = if balanced(balances) {
        "balanced"
    } else {
        "NOT BALANCED"
    };
    found(
        balanced(balances),
        format!("{count} transactions of pgbench, {words}"),
    )
}
