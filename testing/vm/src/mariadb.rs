//! MariaDB in the guest: a directory of databases unpacked on /mnt, and sysbench's loads.
//!
//! Must not: be asked for more than emulated hardware can do; wait for a server without bound.

use crate::machine::Machine;

const SOCKET: &str = "/tmp/mariadb.sock";

/// The log is small, so that a disk of the tests has room; every commit is written through, which
/// is the server's default.
const SETTINGS: &str = "--no-defaults --user=mysql --datadir=/mnt/mariadb --socket=/tmp/mariadb.sock --pid-file=/run/mariadb.pid \
    --skip-networking --innodb-buffer-pool-size=16M --innodb-log-file-size=8M --lc-messages-dir=/usr/share/mysql";

/// Rows of the one table: what the buffer pool holds a part of.
const ROWS: u32 = 20_000;

/// Unpacks the directory of databases to /mnt/mariadb.
pub fn unpack(machine: &mut Machine) {
    machine.must("set -e; mkdir -p /mnt/mariadb; tar -C /mnt/mariadb -xf /usr/share/mariadb.tar; chown -R mysql:mysql /mnt/mariadb; chmod 700 /mnt/mariadb; sync");
}

/// Starts the server, which recovers first where it has to, and waits until it answers.
pub fn start(machine: &mut Machine) {
    machine.must(&format!(
        "touch /run/mariadb.pid; chown mysql /run/mariadb.pid
         (mariadbd {SETTINGS} >/run/mariadb.log 2>&1 &)
         n=0
         until mariadb --no-defaults --socket={SOCKET} -e 'select 1' >/dev/null 2>&1; do
            n=$((n + 1)); [ $n -lt 600 ] || {{ tail /run/mariadb.log; exit 1; }}
            sleep 0.5
         done"
    ));
}

/// Stops the server as an administrator does.
pub fn stop(machine: &mut Machine) {
    machine.must(&format!(
        "mariadb --no-defaults --socket={SOCKET} -e shutdown
         n=0
         while [ -e /run/mariadb.pid ]; do
            n=$((n + 1)); [ $n -lt 600 ] || {{ tail /run/mariadb.log; exit 1; }}
            sleep 0.5
         done"
    ));
}

/// Makes sysbench's table.
pub fn prepare(machine: &mut Machine) {
    machine.must(&format!(
        "mariadb --no-defaults --socket={SOCKET} -e 'create database sbtest'; {}",
        sysbench("prepare")
    ));
}

/// Runs sysbench's mixed transactions for so many seconds. Returns transactions a second.
///
/// # Panics
/// When sysbench does not say.
pub fn bench(machine: &mut Machine, seconds: u32, threads: u32) -> f64 {
    let said = machine.must(&sysbench(&format!(
        "--time={seconds} --threads={threads} run"
    )));
    // transactions:      123    (12.30 per sec.)
    let rate = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("transactions:"))
        .and_then(|rest| rest.split('(').nth(1)?.split(' ').next()?.parse().ok());
    rate.expect("sysbench says how many transactions")
}

fn sysbench(what: &str) -> String {
    format!(
        "sysbench /usr/share/sysbench/oltp_read_write.lua --db-driver=mysql --mysql-socket={SOCKET} --mysql-user=root --mysql-db=sbtest \
         --tables=1 --table-size={ROWS} --rand-seed=7 {what} 2>&1"
    )
}
