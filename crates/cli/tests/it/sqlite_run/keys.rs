//! Where the key comes from, and where it does not go.

use std::time::Duration;

use crate::sqlite_run::{APP, NEEDLE, PYTHON, SHELL, is_sealed, on_terminal, place, run};

const MAKE: &str = "create table t(a); insert into t values('CANARY-TEXT')";

#[test]
fn every_source_of_a_key_opens_what_it_sealed() {
    let place = place();
    place.write("key", crate::common::ROOT);
    // The command keeps what it delivers in a plain database of its own.
    let store = rusqlite::Connection::open(place.path("store.db")).unwrap();
    let sql = format!(
        "create table c(k); insert into c values('{}')",
        crate::common::ROOT
    );
    store.execute_batch(&sql).unwrap();
    drop(store);
    let command = format!("{SHELL} store.db 'select k from c'");
    let sources: [&[&str]; 5] = [
        &["--key-command", command.as_str()],
        &APP,
        &["--key-env", "ROOT"],
        &["--key-file", "key"],
        &["--key-command", "cat key"],
    ];
    for (number, source) in sources.iter().enumerate() {
        let name = format!("{number}.db");
        run(&place, source, &[SHELL, &name, MAKE]).succeeded();
        is_sealed(&place, &name);
        let read = run(&place, source, &[SHELL, &name, "select a from t"]);
        assert_eq!(read.succeeded(), format!("{NEEDLE}\n"));
    }
    // Another key, and none.
    let other = run(
        &place,
        &["--key-env", "ROOT"],
        &[SHELL, "1.db", "select a from t"],
    );
    assert!(other.err.contains("SR-2002"), "{}", other.err);
    let none = run(&place, &[], &[SHELL, "1.db"]);
    assert!(none.err.contains("SR-2041"), "{}", none.err);
    let missing = run(&place, &["--key-id", "nobody"], &[SHELL, "new.db", MAKE]);
    assert!(missing.err.contains("SR-2003"), "{}", missing.err);
    assert!(!place.path("new.db").exists());
}

#[test]
fn a_uri_and_a_registered_key_come_before_the_default() {
    let place = place();
    let script = "\
        attach 'file:own.db?key_env=ROOT' as own; create table own.t(a);\n\
        select strongroom_key_id('registered.db', 'app');\n\
        attach 'registered.db' as r; create table r.t(a);\n\
        attach 'default.db' as d; create table d.t(a);\n\
        attach 'file:copy.db?allow_plaintext=1' as c; create table c.t(a);\n\
        select name, key_id from strongroom_databases() where name <> 'main' order by name;\n";
    place.write("key", "another secret, in words");
    place.write("script.sql", script);
    let keys = ["--key-file", "key"];
    let done = run(&place, &keys, &[SHELL, "main.db", ".read script.sql"]);
    assert_eq!(done.succeeded(), "ok\nc|\nd|passphrase\nown|raw\nr|app:1\n");
}

#[test]
fn what_was_typed_is_in_no_argument_and_no_environment() {
    let place = place();
    let secret = "a passphrase that was typed";
    let code = "import sqlite3, subprocess, sys\n\
        db = sqlite3.connect('typed.db')\n\
        db.execute('create table if not exists t(a)')\n\
        shown = open('/proc/self/environ', 'rb').read() + open('/proc/self/cmdline', 'rb').read()\n\
        print('seen' if b'was typed' in shown else 'not seen')\n\
        print('kind:', db.execute('select key_id from strongroom_databases()').fetchone()[0])\n";
    for _ in 0..2 {
        place.write("typed.py", code);
        let arguments = ["sqlite", "run", "--ask", "--", PYTHON, "typed.py"];
        let session = place.under(on_terminal::session(), &arguments);
        let (exit, shown) = on_terminal::run(session, Duration::from_secs(60), |line| {
            line.contains("Passphrase").then(|| format!("{secret}\n"))
        });
        assert_eq!(exit, 0, "{shown}");
        assert!(
            shown.contains("not seen") && shown.contains("kind: passphrase"),
            "{shown}"
        );
    }
    is_sealed(&place, "typed.db");
}

/// For programs with an SQLite of their own that load the extension: no URI, and a key that is
/// rotated meanwhile.
#[test]
fn a_key_of_the_keyring_is_named_by_path() {
    let place = place();
    let extension = std::path::Path::new(env!("CARGO_BIN_EXE_strongroom"));
    let extension = extension.with_file_name("libstrongroom_sqlite.so");
    let code = format!(
        "import sqlite3, subprocess, sys\n\
         loader = sqlite3.connect(':memory:')\n\
         loader.enable_load_extension(True)\n\
         loader.load_extension('{}')\n\
         register = lambda name, key: loader.execute('select strongroom_key_id(?, ?)', (name, key)).fetchone()[0]\n\
         def key_of(name):\n\
         \x20   db = sqlite3.connect(name)\n\
         \x20   db.execute('create table if not exists t(a)')\n\
         \x20   return db.execute('select key_id from strongroom_databases()').fetchone()[0]\n\
         print(register('one.db', 'app'), key_of('one.db'))\n\
         subprocess.run([sys.argv[1], 'key', 'rotate', 'app'], check=True, capture_output=True)\n\
         print(register('two.db', 'app'), key_of('two.db'), key_of('one.db'))\n\
         try:\n\
         \x20   register('three.db', 'nobody')\n\
         except sqlite3.OperationalError as error:\n\
         \x20   print(error)\n\
         print(loader.execute(\"select strongroom_forget('one.db')\").fetchone()[0])\n",
        extension.display()
    );
    place.write("named.py", code);
    let mut python = std::process::Command::new(PYTHON);
    python.arg("named.py");
    let output = place.under(python, &[]).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..2], ["ok app:1", "ok app:2 app:1"], "{err}");
    assert!(lines[2].contains("SR-2003") && lines[3] == "ok", "{out}");
    is_sealed(&place, "one.db");
    is_sealed(&place, "two.db");
}

/// A program under `sqlite run` that was there before its key was rotated.
#[test]
fn a_rotated_key_is_seen_by_a_program_that_runs() {
    let place = place();
    let code = "import sqlite3, subprocess, sys\n\
        def key_of(name):\n\
        \x20   db = sqlite3.connect(name)\n\
        \x20   db.execute('create table if not exists t(a)')\n\
        \x20   return db.execute('select key_id from strongroom_databases()').fetchone()[0]\n\
        print(key_of('one.db'))\n\
        subprocess.run([sys.argv[1], 'key', 'rotate', 'app'], check=True, capture_output=True)\n\
        print(key_of('two.db'), key_of('one.db'))\n\
        subprocess.run([sys.argv[1], 'sqlite', 'rekey', 'one.db', '--key-id', 'app', '--new-key-id', 'app',\n\
        \x20              '--slots-only'], check=True, capture_output=True)\n\
        print(key_of('one.db'))\n";
    place.write("rotated.py", code);
    let own = env!("CARGO_BIN_EXE_strongroom");
    let out = run(&place, &APP, &[PYTHON, "rotated.py", own]).succeeded();
    assert_eq!(out, "app:1\napp:2 app:1\napp:2\n");
}
