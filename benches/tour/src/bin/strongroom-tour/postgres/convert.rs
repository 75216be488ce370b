//! A new data key, and both ways between plain and sealed, in place.
//!
//! Must not: take a command's word for it: the server reads the rows, and the files are searched.

use strongroom_benches::Failure;
use strongroom_benches::postgres::{Cluster, Server};
use strongroom_benches::stats::timed;

use super::canary;
use super::instances::{BALANCES, Instances, balanced, succeeded};
use strongroom_tour::checks::{Checks, found};

/// On both instances; the servers are stopped at the end.
pub(super) fn run(mut instances: Instances<'_>, checks: &mut Checks) -> Result<(), Failure> {
    checks.heading("New data key, there and back")?;
    checks.check("pg rotate", || {
        let file = instances.sealed.data().join("global/pg_control");
        let before = std::fs::read(&file)?;
        let (taken, _) = timed(|| instances.succeed(&["pg", "rotate", "-D"]))?;
        let changed = std::fs::read(&file)? != before;
        instances.start()?;
        let balances = instances.sealed.psql("postgres", BALANCES)?;
        instances.stop()?;
        let seconds = taken.as_secs_f64();
        found(
            changed && balanced(&balances),
            format!("{seconds:.1} s; every row is there"),
        )
    })?;
    let Instances {
        plain, sealed, key, ..
    } = instances;
    checks.check("pg decrypt; stock PostgreSQL on the result", || {
        let mut command = sealed.strongroom(&["pg", "decrypt", "-D"]);
        command.arg(sealed.data());
        let (taken, _) = timed(|| succeeded(command))?;
        let opened = sealed.now_sealed(false);
        let balances = read(&opened)?;
        let seconds = taken.as_secs_f64();
        found(
            balanced(&balances),
            format!("{seconds:.1} s; every row is there"),
        )
    })?;
    checks.check("pg encrypt of the plain instance", || {
        // It was cut off: recovery first, for only a stopped instance can be sealed.
        let before = read(&plain)?;
        let clear = canary::anywhere(&plain)?;
        let mut command = plain.strongroom(&["pg", "encrypt", "--key-file"]);
        command.arg(&key).arg("-D").arg(plain.data());
        let (taken, _) = timed(|| succeeded(command))?;
        let left = canary::anywhere(&plain)?;
        let after = read(&plain.now_sealed(true))?;
        let seconds = taken.as_secs_f64();
        found(
            clear > 0 && left == 0 && before == after && balanced(&after),
            format!("{seconds:.1} s; known texts: {clear} before, {left} after"),
        )
    })
}

/// Starts its server, reads pgbench's balances, stops it.
fn read(cluster: &Cluster<'_>) -> Result<String, Failure> {
    let (server, _) = Server::start(cluster)?;
    let balances = cluster.psql("postgres", BALANCES)?;
    server.stop()?;
    Ok(balances)
}
