//! A machine of a test's own, as far as files go: a mount namespace in which `/etc`, `/var/lib`,
//! `/run` and PostgreSQL's directories can be changed, and are gone with the test. Scripts run in
//! it as root, with a cluster of Debian's postgresql-common.
//!
//! Invariant: whatever a script starts ends with it, because it has a process namespace of its own.
//! Servers, and what is in `started`, are stopped in order before that.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{Run, run};
use crate::{account, product};

/// What every script begins with.
const PRELUDE: &str = r#"
set -eEu -o pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
mount -t tmpfs -o mode=755 tmpfs /mnt
over() {
    local upper=/mnt/upper$1 work=/mnt/work$1; mkdir -p "$upper" "$work"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$upper,workdir=$work" "$1"
}
for place in /etc /var/lib /usr/lib/postgresql /usr/share/postgresql; do over "$place"; done
mount -t tmpfs -o mode=755 tmpfs /run
for place in /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql; do
    mkdir -p "$place"; mount -t tmpfs -o mode=755 tmpfs "$place"; chown postgres:postgres "$place"
done
rm -rf /etc/strongroom /var/lib/strongroom-zone /etc/systemd/system/strongroom-zone.service
mkdir -p /etc/strongroom /mnt/home; chmod 755 /etc/strongroom
export LC_ALL=C.UTF-8 HOME=/mnt/home PGHOST=/run/postgresql PGUSER=postgres
cd /mnt
started=()
end_all() {
    # Debian's programs would ask a systemd that a script has made believe in.
    rm -rf /run/systemd
    pg_lsclusters -h | while read -r version name _; do pg_ctlcluster -m immediate "$version" "$name" stop || true; done
    for process in "${started[@]}"; do kill "$process" && wait "$process" || true; done
}
trap end_all EXIT
as_pg() { runuser -u postgres -- "$@"; }
sql() { as_pg psql -XAtq -v ON_ERROR_STOP=1 "$@"; }
# The extension as it was installed into another copy of PostgreSQL 15.
installed_extension() {
    [ "$1" = /usr ] || cp "$1/lib/postgresql/15/lib/strongroom_columns.so" /usr/lib/postgresql/15/lib/
    [ "$1" = /usr ] || cp "$1"/share/postgresql/15/extension/strongroom_columns* /usr/share/postgresql/15/extension/
}
# The cluster main, which listens at its socket only.
a_cluster() {
    pg_createcluster 15 main -o "listen_addresses= " -- -A peer --no-sync >/dev/null
    pg_ctlcluster 15 main start
}
"#;

/// Functions for scripts: one installs the command where only root can exchange it, because a unit
/// that root makes names no other; one puts a library that the server can load in the place of the
/// extension's, with a control file and a script, where the real ones are not built.
pub const INSTALLATIONS: &str = r#"
an_installed_command() {
    local built; built=$(command -v strongroom)
    mount -t tmpfs -o mode=755 tmpfs /usr/local/bin
    install -m 755 "$built" /usr/local/bin/strongroom
    export PATH=/usr/local/bin:$PATH
}
stand_in_extension() {
    local lib=/usr/lib/postgresql/15/lib share=/usr/share/postgresql/15/extension
    cp "$lib/passwordcheck.so" "$lib/strongroom_columns.so"
    printf "default_version = '0.1'\nrelocatable = false\n" > "$share/strongroom_columns.control"
    echo "CREATE DOMAIN enc_text AS text;" > "$share/strongroom_columns--0.1.sql"
}
"#;

/// Whether such a machine can be made: only root can mount. Says when not.
#[expect(clippy::print_stderr, reason = "a test that is not done says so")]
pub fn can_be_made() -> bool {
    if !account::is_root() {
        eprintln!("skipped: only root can have a machine of its own");
    }
    account::is_root()
}

/// Runs a script of bash on a machine of its own, with the command `strongroom` in `PATH`, and
/// these variables.
pub fn run_script(script: &str, variables: &[(&str, &Path)]) -> Run {
    let command = product::command();
    let mut path = command
        .parent()
        .unwrap_or_else(|| Path::new("/"))
        .as_os_str()
        .to_owned();
    path.push(OsStr::new(":/usr/sbin:/usr/bin:/sbin:/bin"));
    let mut shell = Command::new("unshare");
    shell
        .args(["--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c"])
        .arg(format!(
            "{PRELUDE}{INSTALLATIONS}an_installed_command\n{script}"
        ))
        .env_clear()
        .env("PATH", path)
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    run(&mut shell)
}
