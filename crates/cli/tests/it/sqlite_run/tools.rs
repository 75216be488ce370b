//! The tools themselves.

use crate::sqlite_run::{APP, NEEDLE, PYTHON, SHELL, is_locked, is_sealed, place, run, tool};

#[test]
fn the_shell_makes_and_reads_a_sealed_database() {
    let place = place();
    let sql = format!("create table t(a, b); insert into t values(1, '{NEEDLE}')");
    run(&place, &APP, &[SHELL, "new.db", &sql]).succeeded();
    is_sealed(&place, "new.db");
    is_locked(&place, "new.db");
    let read = run(&place, &APP, &[SHELL, "new.db", "select a, b from t"]);
    assert_eq!(read.succeeded(), format!("1|{NEEDLE}\n"));
    // Databases that SQL names, with commands of the shell too.
    let script = format!(
        ".open other.db\ncreate table o(x);\ninsert into o values('{NEEDLE}');\n\
         attach 'new.db' as n;\nselect count(*) from n.t;\nvacuum into 'copy.db';\n.backup 'backup.db'\n"
    );
    place.write("script.sql", script);
    let done = run(&place, &APP, &[SHELL, ":memory:", ".read script.sql"]);
    assert_eq!(done.succeeded(), "1\n");
    for name in ["other.db", "copy.db"] {
        is_sealed(&place, name);
    }
    assert!(!holds_plaintext(&place, "backup.db"));
    // What the command itself makes of it is the same database.
    let own = [
        "sqlite",
        "shell",
        "new.db",
        "--key-id",
        "app",
        "-c",
        "select b from t",
    ];
    assert!(place.run(&own).succeeded().contains(NEEDLE));
}

fn holds_plaintext(place: &crate::common::Place, name: &str) -> bool {
    let path = place.path(name);
    path.exists()
        && std::fs::read(path)
            .unwrap()
            .windows(NEEDLE.len())
            .any(|window| window == NEEDLE.as_bytes())
}

#[test]
fn what_new_databases_are_like_can_be_said() {
    let place = place();
    let options = [
        "--key-id",
        "app",
        "--page-size",
        "8192",
        "--freshness",
        "--cipher",
        "gcm",
    ];
    run(&place, &options, &[SHELL, "new.db", "create table t(a)"]).succeeded();
    let header = place.run(&["inspect", "new.db", "--json"]).succeeded();
    assert!(header.contains("\"page_size\": 8192"), "{header}");
    let verified = place.run(&["verify", "new.db", "--key-id", "app"]);
    assert!(verified.succeeded().contains("holds"));
}

/// The backup API copies pages as they are, so that the pages of a database in memory need the
/// bytes that a sealed one reserves.
#[test]
fn a_database_in_memory_is_backed_up_into_a_sealed_one() {
    let place = place();
    let rows = format!(
        "create table t(a); with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) \
         insert into t select i || '{NEEDLE}' from n"
    );
    let count = "select count(*) from t";
    let larger = [&APP[..], &["--page-size", "8192"]].concat();
    for (options, main, name) in [
        (&APP[..], ":memory:", "memory.db"),
        (&APP[..], "", "temporary.db"),
        (&larger[..], ":memory:", "larger.db"),
    ] {
        let saved = format!(".backup {name}");
        run(&place, options, &[SHELL, main, &rows, &saved]).succeeded();
        is_sealed(&place, name);
        assert_eq!(
            run(&place, &APP, &[SHELL, name, count]).succeeded(),
            "3000\n"
        );
        let checked = run(&place, &APP, &[SHELL, name, "pragma integrity_check"]);
        assert_eq!(checked.succeeded(), "ok\n");
        // And back, into what has the other page size too.
        for options in [&APP[..], &larger] {
            let restored = format!(".restore {name}");
            let read = run(&place, options, &[SHELL, ":memory:", &restored, count]);
            assert_eq!(read.succeeded(), "3000\n");
        }
    }
    let code = format!(
        "import sqlite3\n\
         c = sqlite3.connect(':memory:')\n\
         c.executescript(\"create table t(a); insert into t values('{NEEDLE}')\")\n\
         c.backup(sqlite3.connect('python.db'))\n"
    );
    run(&place, &APP, &[PYTHON, "-c", &code]).succeeded();
    is_sealed(&place, "python.db");
    // Where plain databases are opened too, a copy into one of them goes on being possible.
    place.plain_database("plain.db", 10);
    let plain = [&APP[..], &["--existing-plain"]].concat();
    run(
        &place,
        &plain,
        &[SHELL, ":memory:", &rows, ".backup plain.db"],
    )
    .succeeded();
    let read = run(&place, &plain, &[SHELL, "plain.db", count]);
    assert_eq!(read.succeeded(), "3000\n");
}

#[test]
fn python_needs_no_line_of_code_and_no_extensions() {
    let place = place();
    // A script with a `#!` line, which starts another Python: both have the sealing VFS, and
    // neither ever loads an extension.
    let script = format!(
        "#!{PYTHON}\n\
         import sqlite3, subprocess, sys\n\
         db = sqlite3.connect('new.db')\n\
         db.execute('create table if not exists t(a)')\n\
         db.execute(\"insert into t values('{NEEDLE}')\")\n\
         db.commit()\n\
         print(db.execute('select encrypted, key_id from strongroom_databases()').fetchall())\n\
         if len(sys.argv) == 1:\n    subprocess.run([sys.argv[0], 'again'], check=True)\n"
    );
    let path = place.write("script.py", script);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let done = run(&place, &APP, &["./script.py"]);
    assert_eq!(done.succeeded(), "[(1, 'app:1')]\n[(1, 'app:1')]\n");
    is_sealed(&place, "new.db");
}

#[test]
fn sqlite_utils_datasette_and_litecli() {
    let place = place();
    let rows = format!("[{{\"id\": 1, \"name\": \"{NEEDLE}\"}}]");
    place.write("rows.json", rows);
    let insert = ["insert", "app.db", "t", "rows.json", "--pk", "id"];
    run(
        &place,
        &APP,
        &[&[tool("sqlite-utils").as_str()], &insert[..]].concat(),
    )
    .succeeded();
    is_sealed(&place, "app.db");
    is_locked(&place, "app.db");
    let rows = run(
        &place,
        &APP,
        &[&tool("sqlite-utils"), "rows", "app.db", "t"],
    );
    assert!(rows.succeeded().contains(NEEDLE));
    let page = ["app.db", "--get", "/app/t.json?_shape=array"];
    let page = run(
        &place,
        &APP,
        &[&[tool("datasette").as_str()], &page[..]].concat(),
    );
    assert!(page.succeeded().contains(NEEDLE));
    let query = ["app.db", "-e", "select name from t"];
    let query = run(
        &place,
        &APP,
        &[&[tool("litecli").as_str()], &query[..]].concat(),
    );
    assert!(query.succeeded().contains(NEEDLE));
    is_sealed(&place, "app.db");
    // Without the sealing VFS, none of them reads it.
    let output = std::process::Command::new(tool("sqlite-utils"))
        .args(["rows", "app.db", "t"])
        .current_dir(place.path("."))
        .output()
        .unwrap();
    assert!(!output.status.success());
}

/// The three functions that open a database, in a program of C that configures its SQLite first.
#[test]
fn every_function_that_opens_is_replaced() {
    let place = place();
    let source = format!(
        "#include <sqlite3.h>\n\
         static int fill(sqlite3 *db) {{\n\
         \x20   return sqlite3_exec(db, \"create table t(a); insert into t values('{NEEDLE}')\", 0, 0, 0)\n\
         \x20       || sqlite3_close(db);\n\
         }}\n\
         int main(void) {{\n\
         \x20   static const unsigned short name[] = {{'t', 'w', 'o', '.', 'd', 'b', 0}};\n\
         \x20   int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;\n\
         \x20   sqlite3 *db;\n\
         \x20   if (sqlite3_config(SQLITE_CONFIG_URI, 1)) return 1;\n\
         \x20   if (sqlite3_open(\"one.db\", &db) || fill(db)) return 2;\n\
         \x20   if (sqlite3_open16(name, &db) || fill(db)) return 3;\n\
         \x20   return sqlite3_open_v2(\"three.db\", &db, flags, 0) || fill(db) ? 4 : 0;\n\
         }}\n"
    );
    place.write("opens.c", source);
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-o", "opens", "opens.c", "-lsqlite3"]);
    assert!(
        compiler
            .current_dir(place.path("."))
            .status()
            .unwrap()
            .success()
    );
    run(&place, &APP, &["./opens"]).succeeded();
    for name in ["one.db", "two.db", "three.db"] {
        is_sealed(&place, name);
    }
}

/// Databases that are opened by several threads at once.
#[test]
fn threads_and_uris() {
    let place = place();
    let code = format!(
        "import sqlite3, threading\n\
         def work(n):\n\
         \x20   db = sqlite3.connect('file:n%d.db?mode=rwc' % n, uri=True)\n\
         \x20   db.execute('create table t(a)')\n\
         \x20   db.execute(\"insert into t values('{NEEDLE}')\")\n\
         \x20   db.commit()\n\
         \x20   db.close()\n\
         threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n\
         [thread.start() for thread in threads]\n\
         [thread.join() for thread in threads]\n"
    );
    run(&place, &APP, &[PYTHON, "-c", &code]).succeeded();
    for n in 0..8 {
        is_sealed(&place, &format!("n{n}.db"));
    }
}
