//! Goal: Debian's `pg_upgradecluster` takes a sealed cluster to another major version, by a dump
//! and by `pg_upgrade`, and the new cluster is sealed, under a data key of its own or that of the
//! old cluster. What would make a cluster in clear or of noise is refused.
//!
//! Method: Debian's own programs, by root, in a mount namespace in which the places of clusters are
//! empty file systems of memory and `/usr/lib/postgresql` holds the installed version and 16 (see
//! `packages`) beside each other. Servers listen on a socket only. Tables are in the dump alone:
//! servers of the packages need not know every option of the installed version's columns.

use std::process::Command;

use strongroom_testing_postgres::packages;
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_support::account::other_user;

/// `$OLD` is the installed version, `$BIN` has command and library, `$NEW` is the installation of
/// 16, `$METHOD` what
/// `pg_upgradecluster` is told, `$ASK` the question, and `$HEADER` the options of the new header.
/// Everything that fails ends it.
const SCRIPT: &str = r#"
set -eu -o pipefail
for place in /etc/postgresql /etc/postgresql-common /etc/strongroom /etc/systemd/system /var/lib/postgresql /var/log/postgresql /run/postgresql; do
    mkdir -p "$place"; mount -t tmpfs -o mode=755 tmpfs "$place"
done
chown postgres:postgres /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql
mkdir /etc/strongroom/installed; mount --bind /usr/lib/postgresql /etc/strongroom/installed
mount -t tmpfs -o mode=755 tmpfs /usr/lib/postgresql
mkdir "/usr/lib/postgresql/$OLD"; mount --bind "/etc/strongroom/installed/$OLD" "/usr/lib/postgresql/$OLD"
ln -s "$NEW" /usr/lib/postgresql/16
echo "listen_addresses = ''" > /etc/postgresql-common/createcluster.conf
head -c 32 /dev/urandom > /etc/strongroom/key; chmod 600 /etc/strongroom/key; chown postgres /etc/strongroom/key
export PG_CLUSTER_CONF_ROOT=/etc/postgresql PATH="$BIN:$PATH" LC_ALL=C.UTF-8 HOME=/etc/strongroom
data=/var/lib/postgresql library=$BIN/libstrongroom_shield.so
trap 'pg_lsclusters -h | while read -r version name _; do pg_ctlcluster -m immediate "$version" "$name" stop || true; done' EXIT
ask() { runuser -u postgres -- psql -X -h /run/postgresql -p 5432 -Atc "$1" postgres; }

runuser -u postgres -- "$BIN/strongroom" pg initdb -D "$data/$OLD/main" --header-only --key-file /etc/strongroom/key
# The port is named: Debian's program takes another one where some server listens on 5432.
LD_PRELOAD=$library pg_createcluster --port 5432 "$OLD" main -o ssl=off -- --data-checksums
strongroom pg service -D "$data/$OLD/main" --install
pg_ctlcluster "$OLD" main start
ask "$MAKE; checkpoint"
echo "== without the library"
if pg_upgradecluster -v 16 $METHOD "$OLD" main 2>&1; then exit 1; fi
test ! -e "$data/16"
echo "== with it"
runuser -u postgres -- "$BIN/strongroom" pg initdb -D "$data/16/main" --header-only --key-file /etc/strongroom/key $HEADER
echo "LD_PRELOAD = '$library'" >> /etc/postgresql-common/environment
LD_PRELOAD=$library pg_upgradecluster -v 16 $METHOD "$OLD" main 2>&1
echo "== upgraded"
ask "show server_version"
echo "answer: $(ask "$ASK")"
ask checkpoint
pg_ctlcluster 16 main stop
if grep -rqa CANARYdebian "$data" /etc/postgresql; then echo "in clear"; exit 1; fi
strongroom pg status -D "$data/16/main"
strongroom pg run -D "$data/16/main" -- pg_checksums --check -D "$data/16/main"
echo "== done"
"#;

/// One upgrade; what the script said.
fn upgraded(
    room: &Room,
    to: &Programs,
    method: &str,
    header: &str,
    make: &str,
    ask: &str,
) -> String {
    let old = Programs::installed().major().to_string();
    let new = to.directory().parent().expect("an installation");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", SCRIPT])
        .env_remove("STRONGROOM_SHIELD_LIB")
        .envs([
            ("OLD", old.as_str()),
            ("METHOD", method),
            ("HEADER", header),
        ])
        .envs([("MAKE", make), ("ASK", ask)])
        .env("NEW", new)
        .env("BIN", room.library().parent().expect("a directory"))
        .output()
        .expect("unshare");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(
        output.status.success() && said.contains("== done"),
        "{method}: {said}"
    );
    said
}

#[test]
fn pg_upgradecluster_makes_a_sealed_cluster() {
    if other_user().is_none()
        || Command::new("pg_upgradecluster")
            .arg("--help")
            .output()
            .is_err()
    {
        eprintln!("skipped: needs root, and Debian's postgresql-common");
        return;
    }
    let room = Room::new("debian");
    let Some(programs) = packages::programs(&room, 16) else {
        return;
    };
    let copied = format!(
        "--copy-key-from /var/lib/postgresql/{}/main",
        Programs::installed().major()
    );
    let table =
        "create table t as select n, 'CANARYdebian' || n as v from generate_series(1, 1000) n";
    let of_table = "select count(*) || md5(string_agg(v, '' order by n)) from t";
    let large = "select lo_from_bytea(4711, 'CANARYdebian'); create role r";
    let of_large =
        "select convert_from(lo_get(4711), 'UTF8') || (select count(*) from pg_database)";
    for (method, header, make, ask) in [
        ("-m dump", "", table, of_table),
        ("-m upgrade", "", large, of_large),
        ("-m upgrade", copied.as_str(), large, of_large),
        ("-m link", copied.as_str(), large, of_large),
    ] {
        let said = upgraded(&room, &programs, method, header, make, ask);
        let expected = match make == table {
            true => "answer: 1000",
            false => "answer: CANARYdebian3",
        };
        assert!(said.contains(expected), "{method}: {said}");
        assert!(said.contains("\n16."), "{method}: {said}");
        assert!(
            said.contains("Invalid pg_controldata output"),
            "{method}: {said}"
        );
        assert!(said.contains("Bad checksums:  0"), "{method}: {said}");
    }
}
