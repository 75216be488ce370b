//! PostgreSQL in the guest: a cluster unpacked on /mnt, load by pgbench, and a ledger whose entries
//! are called out on the console when, and only when, they are committed.
//!
//! Must not: be asked for more than emulated hardware can do; loads are small, what is checked is
//! that nothing is lost.

use crate::machine::Machine;

const SOCKET: &str = "-h /tmp -U postgres";

/// Entries that were called out: `committed:NUMBER.`
const CALLED: &str = "committed:";

/// Unpacks a cluster to /mnt/pg.
pub fn unpack(machine: &mut Machine) {
    machine.must("set -e; mkdir -p /mnt/pg; tar -C /mnt/pg -xf /usr/share/cluster.tar; chown -R postgres:postgres /mnt/pg; chmod 700 /mnt/pg; sync");
}

/// Starts the server, which recovers first where it has to.
pub fn start(machine: &mut Machine) {
    machine.must(&as_postgres("/usr/lib/postgresql/bin/pg_ctl -D /mnt/pg -w -t 1000 -l /mnt/pg/log start >/dev/null || { tail /mnt/pg/log; exit 1; }"));
}

/// Stops the server as an administrator does.
pub fn stop(machine: &mut Machine) {
    machine.must(&as_postgres(
        "/usr/lib/postgresql/bin/pg_ctl -D /mnt/pg -w -t 1000 -m fast stop >/dev/null",
    ));
}

/// Makes the tables of pgbench, and the ledger.
pub fn prepare(machine: &mut Machine) {
    machine.must(&format!(
        "/usr/lib/postgresql/bin/pgbench {SOCKET} -i -q postgres 2>&1"
    ));
    query(machine, "create table ledger (entry bigint primary key)");
}

/// Starts pgbench and a writer to the ledger, from this entry on; both run until the server or the
/// machine ends. They take breath: the machine has one processor, and what is tested beside them
/// needs it too. Entries are made as they are written: a file of them all takes minutes.
pub fn load(machine: &mut Machine, first: u64) {
    machine.must(&format!(
        "(/usr/lib/postgresql/bin/pgbench {SOCKET} -n -c 2 -R 15 -T 100000 postgres >/run/pgbench 2>&1 &)
         (seq {first} 1000000 | sed \"s/.*/insert into ledger select & from pg_sleep(0.05) returning '{CALLED}' || entry || '.';/\" |
            /usr/lib/postgresql/bin/psql {SOCKET} -X -qAt -f - postgres >/dev/ttyS0 2>/dev/null &)"
    ));
}

/// Runs pgbench for so many seconds and returns what it said.
pub fn bench(machine: &mut Machine, seconds: u32, clients: u32) -> String {
    machine.must(&format!(
        "/usr/lib/postgresql/bin/pgbench {SOCKET} -n -c {clients} -T {seconds} postgres 2>&1"
    ))
}

/// A query's answer.
pub fn query(machine: &mut Machine, sql: &str) -> String {
    let script = format!(
        "/usr/lib/postgresql/bin/psql {SOCKET} -X -qAt -v ON_ERROR_STOP=1 postgres 2>&1 <<'END'\n{sql};\nEND"
    );
    machine.must(&script).trim().to_owned()
}

/// The entries that the console called out.
#[must_use]
pub fn called_out(machine: &Machine) -> Vec<u64> {
    let console = machine.console();
    let pieces = console.split(CALLED).skip(1);
    pieces
        .filter_map(|piece| piece.split_once('.')?.0.parse().ok())
        .collect()
}

/// Checks that every entry that was called out is there, and that pgbench's sums agree. Returns the
/// last entry.
///
/// # Panics
/// When something is lost.
pub fn check(machine: &mut Machine, called: &[u64]) -> u64 {
    let kept: Vec<u64> = query(machine, "select entry from ledger order by 1")
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    let lost: Vec<&u64> = called
        .iter()
        .filter(|entry| kept.binary_search(entry).is_err())
        .collect();
    assert!(lost.is_empty(), "committed and lost: {lost:?}");
    let sums = query(
        machine,
        "select (select sum(abalance) from pgbench_accounts) = coalesce((select sum(delta) from pgbench_history), 0)
            and (select sum(tbalance) from pgbench_tellers) = (select sum(bbalance) from pgbench_branches)
            and (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)",
    );
    assert_eq!(sums, "t", "pgbench's sums");
    kept.last().copied().unwrap_or(0)
}

fn as_postgres(script: &str) -> String {
    format!("su postgres -s /bin/sh -c '{script}'")
}
