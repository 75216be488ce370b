//! Goal: the commands in the README and the guides work as they are written, in their order.
//!
//! Method: each page's blocks of commands are run by bash in one empty directory, with a terminal
//! on which every question is answered, and with empty file systems of memory in the places that
//! the pages name (`/etc/strongroom`, `/mnt`, `/srv`, `/root`, ...), in a mount namespace of the
//! test's own. Where a page shows output, it has to be the output. A block that is not run says
//! why, in the page: `transcripts/page.rs`.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;
use crate::common::on_terminal;
mod page;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::Place;
use page::{Block, Fate, Step, blocks, steps};
use strongroom_testing_support::machine::INSTALLATIONS;
use strongroom_testing_support::product;

/// What is typed at every question.
const PASSPHRASE: &str = "correct horse battery staple";
/// Longest run of one page.
const PATIENCE: Duration = Duration::from_secs(180);

/// What every page's script begins with. The server is one of the installed PostgreSQL, on a socket
/// only.
const PRELUDE: &str = r#"
set -eu -o pipefail
for place in /etc/strongroom /mnt /srv /root /run/postgresql /var/lib/strongroom; do
    mkdir -p "$place"; mount -t tmpfs -o mode=755 tmpfs "$place"
done
mkdir -p /mnt/backups /mnt/safe
chmod 711 "$OUT" "$WORK"
export HOME=/root LC_ALL=C.UTF-8 PGHOST=/run/postgresql PGUSER=postgres
cd "$WORK"
cp "$EXTENSION" . 2>/dev/null || true
run_as() {
    local home="$WORK/$1"; [ -d "$home" ] || { cp -r "$WORK/." "/srv/$1"; mv "/srv/$1" "$home"; chown -R "$1" "$home"; }
    (cd "$home" && exec runuser -u "$1" -- env HOME="$home" bash -eu -o pipefail -c "$2")
}
a_postgresql_server() {
    local programs; programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
    mkdir server; chown postgres server /run/postgresql
    runuser -u postgres -- "$programs/initdb" -A trust -D "$WORK/server" >/dev/null
    runuser -u postgres -- "$programs/pg_ctl" -D "$WORK/server" -l "$WORK/server/log" -w \
        -o "-c listen_addresses='' -k /run/postgresql" start >/dev/null
    trap 'runuser -u postgres -- "'"$programs"'/pg_ctl" -D "$WORK/server" -m immediate stop >/dev/null' EXIT
}
# Users that a page adds are gone with the namespace.
an_etc_to_throw_away() {
    mkdir /mnt/etc; mount -t tmpfs tmpfs /mnt/etc; mkdir /mnt/etc/upper /mnt/etc/work
    mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/etc/upper,workdir=/mnt/etc/work /etc
    for place in /etc/strongroom /run/strongroom; do mkdir -p "$place"; mount -t tmpfs -o mode=755 tmpfs "$place"; done
}
debians_postgresql() {
    for place in /etc/postgresql /etc/postgresql-common /etc/systemd/system /var/lib/postgresql /var/log/postgresql /usr/lib/strongroom; do
        mkdir -p "$place"; mount -t tmpfs -o mode=755 tmpfs "$place"
    done
    chown postgres:postgres /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql
    cp "$LIBRARY" /usr/lib/strongroom/
    # Servers listen on a socket only.
    echo "listen_addresses = ''" > /etc/postgresql-common/createcluster.conf
    # No service manager is here, nor one that Debian's programs are to tell of clusters.
    export PG_CLUSTER_CONF_ROOT=/etc/postgresql
    systemctl() { [ "$*" = daemon-reload ]; }
    trap 'pg_lsclusters -h | while read -r version name _; do pg_ctlcluster -m immediate "$version" "$name" stop || true; done' EXIT
}
# Debian's cluster main, which could load the extension: another library stands for it.
a_server_for_columns() {
    local place; for place in /var/lib /usr/lib/postgresql /usr/share/postgresql; do
        mkdir -p "/mnt/over$place" "/mnt/work$place"
        mount -t overlay overlay -o "lowerdir=$place,upperdir=/mnt/over$place,workdir=/mnt/work$place" "$place"
    done
    rm -rf /var/lib/strongroom-zone
    debians_postgresql; an_installed_command; stand_in_extension
    pg_createcluster 15 main -- -A peer >/dev/null; pg_ctlcluster 15 main start
    systemctl() { [ "$*" = 'restart postgresql@15-main' ] && pg_ctlcluster 15 main restart; }
}
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README and every page below docs/start and docs/guides.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![repository().join("README.md")];
    let mut directories = vec![
        repository().join("docs/start"),
        repository().join("docs/guides"),
    ];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let mut unsaid = String::new();
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        for block in blocks(&text) {
            let reason_is_missing = match &block.fate {
                Fate::Run(_) => false,
                Fate::NotRun(reason) => reason.trim().is_empty() || !names_what_is_there(reason),
                Fate::Unsaid => true,
            };
            if reason_is_missing {
                let first = &block.text[0];
                let _ = writeln!(unsaid, "{}:{}: {first}", path.display(), block.line);
            }
        }
    }
    assert!(
        unsaid.is_empty(),
        "commands that are neither run nor say why not (tests/it/transcripts/page.rs has the form):\n{unsaid}"
    );
}

/// Whether every test that a reason names by its path is in the repository.
fn names_what_is_there(reason: &str) -> bool {
    let paths = reason
        .split([' ', ',', ';'])
        .filter(|word| word.starts_with("crates/") || word.starts_with("testing/"));
    // A `*` stands for several files of one beginning; its directory is looked for.
    paths.into_iter().all(|path| match path.contains('*') {
        true => repository().join(path).parent().is_some_and(Path::exists),
        false => repository().join(path).exists(),
    })
}

#[test]
fn the_commands_of_the_pages_work() {
    let only = std::env::var("STRONGROOM_PAGE").unwrap_or_default();
    let mut failures = String::new();
    let mut ran = 0;
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut chosen = blocks(&text);
        chosen.retain(|block| matches!(block.fate, Fate::Run(_)));
        if chosen.is_empty() || !path.to_string_lossy().contains(&only) {
            continue;
        }
        ran += chosen.len();
        if let Some(failure) = what_failed(&chosen) {
            let _ = writeln!(failures, "{}: {failure}", path.display());
        }
    }
    assert!(ran > 0, "no page has a block that is run");
    assert!(failures.is_empty(), "{failures}");
}

/// Runs the blocks of one page. `None` when all is as the page says.
fn what_failed(chosen: &[Block]) -> Option<String> {
    let place = Place::new();
    let (script, all) = script(chosen);
    let script = place.write("script", script);
    let work = place.path("work");
    std::fs::create_dir(&work).unwrap();
    let command = Path::new(env!("CARGO_BIN_EXE_strongroom"));
    let commands = command.parent().unwrap_or(command);
    let search = std::env::var("PATH").unwrap();
    let mut session = on_terminal::session();
    session.arg("unshare");
    if !rustix::process::geteuid().is_root() {
        session.args(["--user", "--map-root-user"]);
    }
    session
        .args(["--mount", "--propagation", "private", "bash"])
        .arg(script)
        .env("PATH", format!("{}:/usr/bin:{search}", commands.display()))
        .env("WORK", &work)
        .env("OUT", place.path(""))
        .env("EXTENSION", product::sqlite_extension())
        .env("LIBRARY", product::shield())
        // The command finds it where it is installed.
        .env_remove("STRONGROOM_SHIELD_LIB")
        .env_remove("STRONGROOM_KEYRING");
    let (code, screen) = on_terminal::run(session, PATIENCE, |last| {
        last.ends_with(": ").then(|| PASSPHRASE.to_owned())
    });
    let output =
        |at: usize| std::fs::read_to_string(place.path(&format!("out.{at}"))).unwrap_or_default();
    for (at, (line, step)) in all.iter().enumerate() {
        if !place.path(&format!("ended.{at}")).exists() {
            return Some(format!(
                "line {line} failed: {}\n{}\nterminal:\n{}",
                step.command,
                output(at),
                screen
            ));
        }
        let shown = step.shown.as_deref().unwrap_or_default();
        if !shown.is_empty() && !is_as_shown(shown, &output(at)) {
            return Some(format!(
                "line {line}, output of {}\nshown:\n{}\nis:\n{}",
                step.command,
                shown.join("\n"),
                output(at)
            ));
        }
    }
    (code != 0).then(|| format!("the script failed: {screen}"))
}

/// The script of a page, and its steps with the lines of the page they come from.
fn script(chosen: &[Block]) -> (String, Vec<(usize, Step)>) {
    let mut script = format!("{PRELUDE}{INSTALLATIONS}");
    let mut all = Vec::new();
    for block in chosen {
        for shell in &block.before {
            let _ = writeln!(script, "{shell}");
        }
        for step in steps(block) {
            let at = all.len();
            if let Some(host) = &step.host {
                let _ = writeln!(script, "mkdir -p /root/{host}; export HOME=/root/{host}");
            }
            // A command whose output is shown may fail, if that is what the page shows.
            let may_fail = step.shown.as_ref().is_some_and(|shown| !shown.is_empty());
            let or = if may_fail { " || true" } else { "" };
            let typed = step.typed.join("\n");
            let run = match &block.fate {
                Fate::Run(Some(user)) => format!("run_as {user} {}", quoted(&step.command)),
                _ => format!("{{ {}\n}}", step.command),
            };
            let _ = writeln!(
                script,
                "{run} >\"$OUT/out.{at}\" 2>&1 <<'TYPED'{or}\n{typed}\nTYPED\n: >\"$OUT/ended.{at}\""
            );
            all.push((block.line, step));
        }
    }
    (script, all)
}

/// One word of the shell's language.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether the output is what the page shows. A shown line `...` stands for any number of lines.
fn is_as_shown(shown: &[String], output: &str) -> bool {
    let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
    let mut rest = lines.as_slice();
    let mut skipping = false;
    for line in shown {
        if line.trim() == "..." {
            skipping = true;
            continue;
        }
        let found = match skipping {
            true => rest.iter().position(|is| *is == line.trim_end()),
            false => (rest.first() == Some(&line.trim_end())).then_some(0),
        };
        let Some(found) = found else { return false };
        rest = &rest[found + 1..];
        skipping = false;
    }
    skipping || rest.is_empty()
}
