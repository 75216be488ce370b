//! Goal: from a machine with PostgreSQL, the extension's files and the command to a confidential
//! table by `strongroom columns setup`, run twice, and the commands that it says are left to do, as
//! they are written.
//!
//! Method: the real command, zone, server and proxy on a machine of the test's own, which only root
//! can have. What setup refuses is in `crates/cli/tests/it/columns_setup.rs`.

use strongroom_columns_testing::installation;
use strongroom_testing_support::machine::{can_be_made, run_script};

const SCRIPT: &str = r#"
installed_extension "$INSTALLATION"
a_cluster
sql -c 'CREATE ROLE app LOGIN' -c 'CREATE DATABASE shop OWNER app'
sed -i '1i local shop app trust' /etc/postgresql/15/main/pg_hba.conf
setup() { strongroom columns setup --database shop --example-table people > /mnt/said; }
# The commands below the line that has this text.
commands() { sed -n "/$1/,/^  [0-9]/p" /mnt/said | sed -n 's/^       //p'; }
there_is() { for _ in {1..100}; do [ -S "$1" ] && return; sleep 0.1; done; return 1; }

setup
bash -eu -c "$(commands 'start the zone' | head -1)"
bash -eu -c "exec $(commands 'start the zone' | tail -1)" 2>/mnt/zone.log & started+=($!)
there_is /run/strongroom/zone
bash -eu -c "$(commands 'restart the server')"
[ "$(commands 'run this command again')" = 'strongroom columns setup --database shop --example-table people' ]
setup
grep -q '^made  *extension strongroom_columns in database shop' /mnt/said
grep -q '^made  *table public.people in database shop' /mnt/said
grep -q '^there  *zone: it serves' /mnt/said

# The application's side, whose user is asked for nothing here.
mkdir -m 700 /mnt/proxy; (umask 077; head -c 32 /dev/urandom > /mnt/proxy/root.key)
proxy=$(commands 'on the application' | sed -n 's#127.0.0.1:6432#/mnt/proxy/.s.PGSQL.5432#p')
strongroom keyring init --provider file:/mnt/proxy/root.key >/dev/null
strongroom key create columns >/dev/null
$proxy 2>/mnt/proxy.log & started+=($!)
there_is /mnt/proxy/.s.PGSQL.5432
app() { psql -XAtq -v ON_ERROR_STOP=1 -h /mnt/proxy -U app shop -c "$1"; }
app "INSERT INTO people VALUES (1, 'Ada Lovelace', 1000.50, '1815-12-10'), (2, 'Alan Turing', 2000.25, '1912-06-23')"
app 'CREATE INDEX ON people (name)'
[ "$(app "SELECT name, salary * 2 FROM people WHERE born < date '1900-01-01'")" = 'Ada Lovelace|2001.00' ]
sql -d shop -c 'SELECT name FROM people' | grep -q '^sr1:'
if sql -d shop -c 'SELECT sum(salary) FROM people' 2>/dev/null; then exit 1; fi
sql -d shop -c CHECKPOINT
! grep -rqa Lovelace /var/lib/postgresql /var/lib/strongroom-zone /var/log/postgresql

setup
grep -q '^Nothing was changed' /mnt/said
"#;

#[test]
fn setup_leads_to_a_confidential_table() {
    if can_be_made() {
        let installation = installation();
        run_script(SCRIPT, &[("INSTALLATION", installation.as_path())]).succeeded();
    }
}
