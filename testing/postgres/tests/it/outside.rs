//! Goal: what the server itself writes outside of its data directory is in clear, as the
//! documentation says, whatever way it goes; what programs that it starts copy is sealed; and
//! `strongroom pg status --plaintext` lists the settings by which it goes there.
//!
//! Method: a sealed server writes a known string out in every way that it has. A way that a test
//! finds sealed is as wrong as one that it finds in clear: whoever relies on the documentation
//! would lose a backup.
#![expect(
    clippy::too_many_lines,
    reason = "a scenario is read from top to bottom"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::{Found, files_of};
use strongroom_testing_support::process::{checked, patiently};

const CANARY: &str = "CANARYoutside";

/// Whether the string can be read in what is there.
fn readable(path: &Path) -> bool {
    let needles = [String::from(CANARY)];
    let found = Found::search(&[path.to_owned()], &needles, &needles);
    assert!(found.bytes > 0, "{} holds nothing", path.display());
    !found.hits.is_empty()
}

fn wait(what: &str, limit: u64, condition: impl FnMut() -> bool) {
    assert!(patiently(Duration::from_secs(limit), condition), "{what}");
}

#[test]
fn what_the_server_writes_elsewhere_is_in_clear_and_listed() {
    let room = Room::new("outside");
    let mut random = Random::new(seed());
    let protection = Protection::Sealed {
        key: room.key("main", &mut random),
        cipher: "aes-256-xts",
    };
    let a = Instance::create(&room, &Programs::installed(), "a", protection);
    let [by_library, by_command, copies, objects, backup, logs] =
        ["library", "command", "copies", "objects", "backup", "logs"]
            .map(|name| room.directory(name));
    let at = |path: &Path| path.display().to_string();
    a.configure(&format!(
        "archive_mode = on\narchive_command = 'cp %p {}/%f'\nlogging_collector = on\nlog_directory = '{}'\n\
         log_statement = all\n",
        at(&by_command),
        at(&logs)
    ));
    a.start();
    a.sql(&format!(
        "create table t as select '{CANARY}' || i as x from generate_series(1, 2000) i; select lo_from_bytea(77, '{CANARY}');
         copy t to '{0}/copied'; copy t to program 'cat > {0}/piped'; select lo_export(77, '{1}/exported');",
        at(&copies),
        at(&objects)
    ));
    let archived = |directory: &Path| {
        let begun = files_of(directory).len();
        a.sql(&format!(
            "insert into t values ('{CANARY}last'); select pg_switch_wal()"
        ));
        let directory = directory.to_owned();
        // basic_archive writes under a name of its own first.
        let whole = move || {
            let files = files_of(&directory);
            files.len() > begun && files.iter().all(|name| !name.starts_with("archtemp"))
        };
        wait("nothing is archived", 60, whole);
    };
    archived(&by_command);
    let target = at(&by_library);
    a.configure(&format!(
        "archive_command = ''\narchive_library = 'basic_archive'\nbasic_archive.archive_directory = '{target}'\n"
    ));
    a.sql(&format!("alter system set log_directory = '{}'", at(&logs)));
    a.sql("select pg_reload_conf()");
    archived(&by_library);
    let mut program = a.client("pg_basebackup");
    let option = format!("--target=server:{}/of", at(&backup));
    checked(program.args([&option, "-X", "fetch", "-c", "fast"]));

    for (name, path) in [
        ("COPY TO", &copies),
        ("lo_export", &objects),
        ("pg_basebackup --target=server", &backup),
        ("basic_archive", &by_library),
        ("the server log", &logs),
    ] {
        assert!(readable(path), "{name} is documented to be in clear");
    }
    for name in ["copied", "piped"] {
        let text = std::fs::read_to_string(copies.join(name)).expect("what COPY wrote");
        assert_eq!(text.lines().count(), 2000, "{name}");
    }
    assert!(
        !readable(&by_command),
        "an archive made by cp is documented to be sealed"
    );

    let listed = |instance: &Instance<'_>| {
        let mut status = instance.strongroom("status");
        checked(status.arg("-D").arg(instance.data()).arg("--plaintext"))
    };
    let shown = listed(&a);
    for wanted in [
        format!("basic_archive.archive_directory = '{target}'\n"),
        format!("log_directory = '{}'\n", at(&logs)),
        String::from("in clear\n"),
        format!("in {}/postgresql.auto.conf\n", at(a.data())),
    ] {
        assert!(shown.contains(&wanted), "{wanted} is not in {shown}");
    }
    a.stop();

    // Back within the data directory there is nothing to list.
    a.configure("log_directory = 'log'\narchive_library = ''\n");
    a.start();
    a.sql("alter system reset all");
    a.sql("select pg_reload_conf()");
    let shown = listed(&a);
    assert!(
        shown.contains("nothing by its configuration files\n"),
        "{shown}"
    );
    let inside = PathBuf::from(a.data()).join("log");
    wait("no log", 60, || !files_of(&inside).is_empty());
}
