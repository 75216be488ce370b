//! Goal: `strongroom columns setup` makes what a server's machine needs and nothing else, twice is
//! once, a library that the server loads stays loaded, and nothing that somebody has planted is
//! followed, taken over or overwritten.
//!
//! Method: the real command as root on a machine of the test's own, whose cluster is one of
//! Debian's. In the place of the extension the server loads another library, so that it restarts
//! for real; crates/columns/extension/testing/tests/it/machine.rs goes all the way with the
//! extension itself. Only root can do this, and without root the tests say so.

use std::path::Path;

use strongroom_testing_support::machine::{can_be_made, run_script};

/// What the scripts have: `same` remembers everything that setup could touch, and compares it;
/// `refused CODE TEXT COMMAND...` runs a command that must fail and change nothing.
const HELPERS: &str = r#"
everything() {
    { find /etc /var/lib/strongroom-zone* /run/strongroom -path /etc/postgresql/15/main/pg_\* -prune -o \
        -printf '%p %y %u %g %m %s %T@ %i %l\n' 2>/dev/null || true; } | sort
}
same() { everything > /mnt/now; diff "$1" /mnt/now >&2; }
refused() {
    local code=$1 text=$2; shift 2
    everything > /mnt/before
    if "$@" >/mnt/said 2>&1; then echo "not refused: $*" >&2; cat /mnt/said >&2; exit 1; fi
    grep -qF "error[$code]" /mnt/said && grep -qF -- "$text" /mnt/said || { cat /mnt/said >&2; exit 1; }
    same /mnt/before
}
setup() { strongroom columns setup "$@"; }
said() { grep -qF -- "$1" /mnt/said || { echo "not said: $1" >&2; cat /mnt/said >&2; exit 1; }; }
stand_in_extension
"#;

/// Runs a script on a machine of its own; it has to succeed.
#[track_caller]
fn on_a_machine(script: &str) {
    if can_be_made() {
        let nothing: &[(&str, &Path)] = &[];
        run_script(&format!("{HELPERS}\n{script}"), nothing).succeeded();
    }
}

#[test]
fn one_command_makes_all_and_twice_is_once() {
    on_a_machine(
        r#"
a_cluster
sql -c 'CREATE DATABASE shop'
everything > /mnt/begin
setup --database shop --dry-run > /mnt/said
same /mnt/begin
said 'would make  key /etc/strongroom/zone.key'
said 'pg_ctlcluster 15 main restart'

(umask 077; setup --database shop) > /mnt/said
said 'made        user strongroom-zone'
said 'strongroom columns setup --database shop'
said 'strongroom columns proxy --listen 127.0.0.1:6432 --server /run/postgresql/.s.PGSQL.5432'
what() { stat -c '%F %a %U %G %s' "$@"; }
[ "$(what /etc/strongroom/zone.key)" = 'regular file 400 strongroom-zone strongroom-zone 32' ]
[ "$(what /var/lib/strongroom-zone | cut -d' ' -f1-4)" = 'directory 700 strongroom-zone strongroom-zone' ]
[ "$(stat -c '%a %U' /etc/systemd/system/strongroom-zone.service)" = '644 root' ]
[ "$(stat -c '%a %U' /etc/postgresql/15/main/conf.d/strongroom_columns.conf)" = '644 postgres' ]
[ "$(stat -c '%a %U' /etc/strongroom)" = '755 root' ]
[ "$(getent passwd strongroom-zone | cut -d: -f6,7)" = /var/lib/strongroom-zone:/usr/sbin/nologin ]
# The key is shown by nothing that the command says.
! grep -qF "$(base64 -w0 /etc/strongroom/zone.key | cut -c1-20)" /mnt/said
! grep -qiF "$(od -An -tx1 /etc/strongroom/zone.key | tr -d ' \n' | cut -c1-16)" /mnt/said
sha256sum /etc/strongroom/zone.key > /mnt/key
[ -z "$(find /etc /var/lib -name '.*tmp' -newer /mnt/begin; find /var/lib -maxdepth 1 -name '.strongroom*')" ]
systemd-analyze verify /etc/systemd/system/strongroom-zone.service 2>/mnt/judged || true
! grep -F strongroom-zone.service /mnt/judged >&2

everything > /mnt/once
setup --database shop > /mnt/said
same /mnt/once
said 'Nothing was changed'
pg_ctlcluster 15 main restart
[ "$(sql -c 'SHOW shared_preload_libraries')" = strongroom_columns ]
[ "$(sql -c "SHOW strongroom.zone")" = /run/strongroom/zone ]
setup --database shop > /mnt/said
said 'made        extension strongroom_columns in database shop'
! grep -q restart /mnt/said
setup --database shop > /mnt/said
said 'Nothing was changed'
same /mnt/once
sha256sum --quiet -c /mnt/key
"#,
    );
}

#[test]
fn with_systemd_the_zone_is_started_and_serves() {
    on_a_machine(
        r#"
a_cluster
mkdir -p /run/systemd/system
# Does what the unit says, as far as the zone needs it.
cat > /mnt/systemctl <<'END'
#!/bin/bash
echo "$*" >> /mnt/asked
unit=/etc/systemd/system/strongroom-zone.service
case $1 in
    is-enabled) [ -e /mnt/enabled ] ;;
    enable)
        [ ! -e /mnt/broken ] || { echo 'Job failed.' >&2; exit 1; }
        touch /mnt/enabled; install -d -o strongroom-zone -m 755 /run/strongroom
        command=$(sed -n 's/^ExecStart=//p' $unit)
        setsid runuser -u strongroom-zone -- $command >/mnt/zone.log 2>&1 &
        echo $! > /mnt/zone ;;
esac
END
chmod 755 /mnt/systemctl; mount --bind /mnt/systemctl /usr/bin/systemctl
touch /mnt/broken
if setup > /mnt/said 2>&1; then exit 1; fi
said 'error[SR-8129]'; said 'Job failed.'; said 'made        key /etc/strongroom/zone.key'
rm /mnt/broken
setup > /mnt/said
started+=("$(cat /mnt/zone)")
said 'made        zone: the service is enabled and serves'
said 'systemctl restart postgresql@15-main'
grep -qx 'daemon-reload' /mnt/asked && grep -qx 'enable --now strongroom-zone.service' /mnt/asked
everything > /mnt/once; : > /mnt/asked
setup > /mnt/said
said 'there       zone: the service is enabled and serves'
said 'Nothing was changed'
same /mnt/once
! grep -v is-enabled /mnt/asked
kill -- "-$(cat /mnt/zone)"
"#,
    );
}

#[test]
fn libraries_that_the_server_loads_stay_and_later_lines_are_named() {
    on_a_machine(
        r#"
a_cluster
main=/etc/postgresql/15/main
loaded() { sql -c 'SHOW shared_preload_libraries'; }
cat >> $main/postgresql.conf <<'END'
shared_preload_libraries = 'passwordcheck'    # an earlier one does not count
END
as_pg tee $main/conf.d/a.conf >/dev/null <<'END'
shared_preload_libraries = '"auto_explain", pg_stat_statements'
auto_explain.log_min_duration = '-1'
END
# The line behind the include wins over everything that is included.
refused SR-8126 "sets shared_preload_libraries later than $main/conf.d/strongroom_columns.conf" setup
grep -qF "write there: shared_preload_libraries = 'passwordcheck, strongroom_columns'" /mnt/said
sed -i '/passwordcheck/d' $main/postgresql.conf
as_pg tee $main/conf.d/z.conf >/dev/null <<<"shared_preload_libraries = passwordcheck"
refused SR-8126 "$main/conf.d/z.conf sets shared_preload_libraries later" setup
rm $main/conf.d/z.conf
setup > /mnt/said
pg_ctlcluster 15 main restart
[ "$(loaded)" = '"auto_explain", pg_stat_statements, strongroom_columns' ]

# What is added elsewhere later is not lost.
as_pg tee $main/conf.d/a.conf >/dev/null <<<"shared_preload_libraries = 'passwordcheck,auto_explain'"
setup > /mnt/said
said "shared_preload_libraries = '\"auto_explain\", pg_stat_statements, strongroom_columns, passwordcheck'"
pg_ctlcluster 15 main restart
[ "$(loaded)" = '"auto_explain", pg_stat_statements, strongroom_columns, passwordcheck' ]

# ALTER SYSTEM wins over all files; what the refusal says to do is enough.
sql -c "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements', 'auto_explain'"
refused SR-8126 'postgresql.auto.conf sets shared_preload_libraries' setup
statement=$(sed -n 's/.*in SQL: \(ALTER SYSTEM .*\))$/\1/p' /mnt/said)
sql -c "$statement"
setup > /mnt/said
pg_ctlcluster 15 main restart
[ "$(loaded)" = 'pg_stat_statements, auto_explain, strongroom_columns' ]
setup > /mnt/said; said 'Nothing was changed'

sql -c "ALTER SYSTEM SET strongroom.zone = '/run/other/zone'"
refused SR-8126 'sets strongroom.zone to "/run/other/zone", another zone' setup
"#,
    );
}

#[test]
fn a_server_without_an_include_directory_gets_one_line() {
    on_a_machine(
        r#"
mkdir /mnt/pg; chown postgres /mnt/pg; chmod 755 /mnt
as_pg /usr/lib/postgresql/15/bin/initdb -A peer --no-sync -D "/mnt/pg/it's" >/dev/null
ctl() { as_pg /usr/lib/postgresql/15/bin/pg_ctl -D "/mnt/pg/it's" -l /mnt/pg/log -w "$@" >/dev/null; }
echo "listen_addresses = ''
unix_socket_directories = '/run/postgresql'
shared_preload_libraries = 'auto_explain'" >> "/mnt/pg/it's/postgresql.conf"
ctl start; trap 'ctl -m immediate stop' EXIT
file="/mnt/pg/it's/postgresql.conf"
cp -a "$file" /mnt/former
setup > /mnt/said
said "runuser -u postgres -- /usr/lib/postgresql/15/bin/pg_ctl -D '/mnt/pg/it'\''s' restart"
cmp -n "$(stat -c %s /mnt/former)" "$file" /mnt/former
[ "$(stat -c '%a %U' "$file")" = "$(stat -c '%a %U' /mnt/former)" ]
[ "$(grep -c "^include = '/mnt/pg/it''s/strongroom_columns.conf'" "$file")" = 1 ]
ctl restart
[ "$(sql -c 'SHOW shared_preload_libraries')" = 'auto_explain, strongroom_columns' ]
everything > /mnt/once; cp "$file" /mnt/former
setup > /mnt/said; said 'Nothing was changed'
same /mnt/once; cmp "$file" /mnt/former
echo '# mine' | as_pg tee -a "/mnt/pg/it's/strongroom_columns.conf" >/dev/null
setup > /mnt/said; said 'Nothing was changed'
"#,
    );
}

#[test]
fn what_is_there_and_does_not_fit_is_refused_and_kept() {
    on_a_machine(
        r#"
a_cluster
key=/etc/strongroom/zone.key state=/var/lib/strongroom-zone unit=/etc/systemd/system/strongroom-zone.service
refused SR-8127 'needs root' as_pg "$(command -v strongroom)" columns setup
refused SR-8122 'database "absent" does not exist' setup --database absent
refused SR-1001 '--database' setup --example-table t
refused SR-5001 /nowhere setup --server /nowhere
sql -c 'CREATE ROLE plain LOGIN'
sed -i '1i local all plain trust' /etc/postgresql/15/main/pg_hba.conf; pg_ctlcluster 15 main reload; sleep 1
refused SR-8126 'lets plain in, who is no superuser' setup --user plain
mv /usr/lib/postgresql/15/lib/strongroom_columns.so /mnt/
refused SR-8128 /usr/lib/postgresql/15/lib/strongroom_columns.so setup
mv /mnt/strongroom_columns.so /usr/lib/postgresql/15/lib/

# A key and a directory of somebody else, before and after the zone's user is there.
for turn in before after; do
    echo secret > $key; chown nobody $key
    refused SR-8126 "$key belongs to user 65534" setup; rm $key
    mkdir -m 700 $state; chown nobody $state
    refused SR-8126 "$state belongs to user 65534" setup; rmdir $state
    ln -s /etc/shadow $key; refused SR-8126 "$key is no file of its own" setup; rm $key
    ln /etc/shadow $key 2>/dev/null || { cp /etc/shadow /etc/other; ln /etc/other $key; }
    refused SR-8126 "$key is no file of its own" setup; rm $key
    ln -s /etc $state; refused SR-8126 "$state is no directory" setup; rm $state
    [ $turn = after ] || useradd --system strongroom-zone
done
: > $key; chown strongroom-zone $key; refused SR-8126 'is empty' setup; rm $key
echo secret > $key; chown strongroom-zone $key; chmod 640 $key
refused SR-8126 'has the mode 0640' setup; rm $key
mkdir -m 750 $state; chown strongroom-zone $state
refused SR-8126 'has the mode 0750' setup; rmdir $state
printf '[Service]\nExecStart=/bin/true\n' > $unit
refused SR-8126 "$unit is not the unit of this server" setup; rm $unit

# Directories in which others could exchange what root makes.
chmod 777 /etc/strongroom; refused SR-6020 'others may write to /etc/strongroom' setup
chmod 755 /etc/strongroom; chown nobody /etc/strongroom
refused SR-6020 "/etc/strongroom: a part of it belongs to user 65534" setup; chown root /etc/strongroom
mkdir /mnt/bin; cp "$(command -v strongroom)" /mnt/bin/; chown nobody /mnt/bin
refused SR-6020 '/mnt/bin/strongroom: a part of it belongs to user 65534' /mnt/bin/strongroom columns setup
chown root /mnt/bin; chmod 700 /mnt/bin
refused SR-8126 'cannot execute it' /mnt/bin/strongroom columns setup; rm -r /mnt/bin

# A store whose key is lost gets no other one.
mkdir -m 700 $state; touch $state/strongroom.header; chown -R strongroom-zone $state
refused SR-8126 "$key is not there, and $state has a store" setup; rm -r $state

# All the same, a key that was there before is used as it is.
echo secret > $key; chown strongroom-zone $key; chmod 400 $key
setup > /mnt/said; said "there       key $key"
[ "$(cat $key)" = secret ]
"#,
    );
}

#[test]
fn root_writes_nothing_through_what_the_servers_user_has_planted() {
    on_a_machine(
        r#"
a_cluster
conf=/etc/postgresql/15/main/conf.d
printf '# secret of root\n' > /etc/victim.conf; chmod 644 /etc/victim.conf; mkdir /etc/victim.d
as_pg ln -s /etc/victim.conf $conf/strongroom_columns.conf
refused SR-5001 "$conf/strongroom_columns.conf" setup
[ "$(cat /etc/victim.conf)" = '# secret of root' ]
rm $conf/strongroom_columns.conf
as_pg mkfifo $conf/strongroom_columns.conf
refused SR-8126 "$conf/strongroom_columns.conf is named by the configuration and cannot be read" setup
rm $conf/strongroom_columns.conf

# A directory that is root's, by a link, by an include and by what the server says.
as_pg mv $conf /etc/postgresql/15/main/kept; as_pg ln -s /etc/victim.d $conf
refused SR-8126 "$conf belongs to user 0, not to the server's user: put these lines" setup
rm $conf; as_pg mv /etc/postgresql/15/main/kept $conf
echo "include_dir '/etc/victim.d'" | as_pg tee -a /etc/postgresql/15/main/postgresql.conf >/dev/null
refused SR-8126 '/etc/victim.d belongs to user 0' setup
[ -z "$(ls /etc/victim.d)" ]
sed -i '$d' /etc/postgresql/15/main/postgresql.conf
# Root reads with the server's user's rights, too.
echo "shared_preload_libraries = 'canary'" > /etc/secret.conf; chmod 600 /etc/secret.conf
echo "include_if_exists '/etc/secret.conf'" | as_pg tee -a /etc/postgresql/15/main/postgresql.conf >/dev/null
refused SR-8126 '/etc/secret.conf is named by the configuration and cannot be read' setup
! grep -q canary /mnt/said
sed -i '$d' /etc/postgresql/15/main/postgresql.conf

# What the server's user has chosen does not reach the terminal as it is.
printf "shared_preload_libraries = 'auto_explain, \033[31mred'\n" | as_pg tee $conf/a.conf >/dev/null
setup --dry-run > /mnt/said; said 'would make  settings'
! grep -q "$(printf '\033')" /mnt/said
rm $conf/a.conf

# Somebody else listens where the server should.
cat > /mnt/listen.py <<'END'
import os, socket, time
s = socket.socket(socket.AF_UNIX); s.bind('/mnt/open/socket'); os.chmod('/mnt/open/socket', 0o777); s.listen()
time.sleep(60)
END
mkdir -m 1777 /mnt/open; chmod 644 /mnt/listen.py
python3 /mnt/listen.py & started+=($!)
for wait in 1 2 3 4 5 6 7 8 9; do [ -S /mnt/open/socket ] && break; sleep 0.2; done
refused SR-8126 "/mnt/open/socket is root's: no PostgreSQL server listens there" setup --server /mnt/open/socket
"#,
    );
}
