//! What is refused, so that no plain database is written unnoticed.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::sqlite_run::{APP, NEEDLE, PYTHON, SHELL, is_sealed, place, run, tool};

#[test]
fn a_plain_database_is_opened_only_when_that_is_said() {
    let place = place();
    place.plain_database("plain.db", 10);
    let before = place.read("plain.db");
    let refused = run(
        &place,
        &APP,
        &[SHELL, "plain.db", "insert into t values(11, 'x')"],
    );
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("SR-2284"), "{}", refused.err);
    assert_eq!(place.read("plain.db"), before);
    let attached = run(&place, &APP, &[SHELL, "new.db", "attach 'plain.db' as p"]);
    assert!(attached.err.contains("SR-2284"), "{}", attached.err);
    let allowed = [&APP[..], &["--existing-plain"]].concat();
    let sql = format!(
        "attach 'new.db' as n; create table n.t as select * from t; insert into n.t values(11, '{NEEDLE}'); select count(*) from t"
    );
    let read = run(&place, &allowed, &[SHELL, "plain.db", &sql]);
    assert_eq!(read.succeeded(), "10\n");
    is_sealed(&place, "new.db");
    // Past the sealing VFS there is no database either.
    let past = run(
        &place,
        &APP,
        &[SHELL, "file:past.db?vfs=unix", "create table t(a)"],
    );
    assert!(past.err.contains("SR-2283"), "{}", past.err);
    assert!(!place.path("past.db").exists());
}

#[test]
fn programs_that_the_guard_cannot_be_put_into_are_not_started() {
    let place = place();
    let copy = |from: &str, name: &str, mode: u32| {
        let path = place.path(name);
        std::fs::copy(from, &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let special = copy(SHELL, "special", 0o4755);
    let text = place.write("text", "no program").display().to_string();
    let script = place.write("script", "#!/usr/bin/env -S busybox sh\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    let own = env!("CARGO_BIN_EXE_strongroom");
    for (program, why) in [
        ("/bin/busybox", "static"),
        (special.as_str(), "set-user-ID"),
        (own, "an SQLite of its own"),
        (text.as_str(), "neither a program nor a script"),
        (script.as_str(), "static"),
    ] {
        let refused = run(&place, &APP, &[program, "true"]);
        assert_eq!(refused.code, 6, "{program}: {}", refused.err);
        assert!(refused.err.contains("SR-2285"), "{}", refused.err);
        assert!(refused.err.contains(why), "{program}: {}", refused.err);
    }
    let missing = run(&place, &APP, &["no-such-program"]);
    assert!(missing.err.contains("SR-1006"), "{}", missing.err);
}

#[test]
fn a_part_with_an_sqlite_of_its_own_is_named() {
    let place = place();
    let code = format!(
        "import apsw\n\
         c = apsw.Connection('own.db')\n\
         c.execute('create table t(a)')\n\
         c.execute(\"insert into t values('{NEEDLE}')\")\n"
    );
    let done = run(&place, &APP, &[&tool("python"), "-c", &code]);
    let sealed = strongroom_format::header::is_sealed(&place.read("own.db"));
    assert!(!sealed && done.err.contains("SR-2287"), "{}", done.err);
    assert!(done.err.contains("apsw"), "{}", done.err);
    // Functions of the shared library that a program looks up by itself.
    let code = "import ctypes\n\
        l = ctypes.CDLL('libsqlite3.so.0')\n\
        c = ctypes.c_void_p()\n\
        print(l.sqlite3_open(b'looked-up.db', ctypes.byref(c)))\n";
    let done = run(&place, &APP, &[&tool("python"), "-c", code]);
    assert!(done.err.contains("SR-2287"), "{}", done.err);
    // A program without one is not spoken of.
    let quiet = run(&place, &APP, &[&tool("python"), "-c", "import sqlite3"]);
    assert_eq!(quiet.err, "");
}

#[test]
fn without_the_guard_nothing_is_opened() {
    let place = place();
    let libraries = std::path::Path::new(env!("CARGO_BIN_EXE_strongroom"));
    let library = libraries.with_file_name("libstrongroom_sqlite_run.so");
    // The extension does not lie beside the copy.
    let alone = place.path("alone.so");
    std::fs::copy(library, &alone).unwrap();
    let mut command = place.command();
    let output = command
        .env("STRONGROOM_SQLITE_RUN_LIB", &alone)
        .args([
            "sqlite",
            "run",
            "--key-id",
            "app",
            "--",
            SHELL,
            "new.db",
            "create table t(a)",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("SR-2286"),
        "{said}"
    );
    assert!(!place.path("new.db").exists());
    // A variable that is not understood is no reason to write a plain database.
    let output = Command::new(SHELL)
        .current_dir(place.path("."))
        .env(
            "LD_PRELOAD",
            libraries.with_file_name("libstrongroom_sqlite_run.so"),
        )
        .env("STRONGROOM_SQLITE_DEFAULT", "key-id app")
        .args(["new.db", "create table t(a)"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("SR-6009"),
        "{said}"
    );
    let made = std::fs::read(place.path("new.db")).unwrap_or_default();
    assert!(made.is_empty());
}

#[test]
fn a_second_sqlite_library_and_a_second_guard_are_refused() {
    let place = place();
    let extension = std::path::Path::new(env!("CARGO_BIN_EXE_strongroom"));
    let extension = extension.with_file_name("libstrongroom_sqlite.so");
    let copy = place.path("copy.so");
    std::fs::copy(&extension, &copy).unwrap();
    let code = format!(
        "import sqlite3\n\
         def tried(path):\n\
         \x20   db = sqlite3.connect(':memory:')\n\
         \x20   db.enable_load_extension(True)\n\
         \x20   try:\n\
         \x20       db.execute('select load_extension(?, ?)', (path, 'sqlite3_strongroomsqlite_init'))\n\
         \x20       print('loaded')\n\
         \x20   except sqlite3.OperationalError as error:\n\
         \x20       print(error)\n\
         tried('{}')\n\
         tried('{}')\n",
        extension.display(),
        copy.display()
    );
    let done = run(&place, &APP, &[PYTHON, "-c", &code]);
    let (first, second) = done.out.split_once('\n').unwrap();
    assert_eq!(first, "loaded", "{}", done.err);
    assert!(second.contains("SR-2289"), "{second}");
    let code = "import sqlite3\nsqlite3.connect('one.db').execute('create table t(a)')\n\
        from sqlcipher3 import dbapi2\ndbapi2.connect('two.db').execute('create table t(a)')\n";
    let done = run(&place, &APP, &[&tool("python"), "-c", code]);
    assert!(done.err.contains("SR-2274"), "{}", done.err);
    is_sealed(&place, "one.db");
    assert!(!place.path("two.db").exists());
}

#[test]
fn a_program_that_clears_its_environment_opens_no_database() {
    let place = place();
    let clears = "import os, sqlite3\nos.environ.clear()\nsqlite3.connect('clear.db').execute('create table t(a)')";
    let refused = run(&place, &APP, &[PYTHON, "-c", clears]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("SR-2285"), "{}", refused.err);
    assert!(!place.path("clear.db").exists());
    // A child that keeps the library and not the variable.
    let child = [
        "/usr/bin/env",
        "-u",
        "STRONGROOM_SQLITE_DEFAULT",
        SHELL,
        "child.db",
        "create table t(a)",
    ];
    let refused = run(&place, &APP, &child);
    assert!(refused.err.contains("SR-2285"), "{}", refused.err);
    assert!(!place.path("child.db").exists());
    // Cleared after the first database: the key is known by then.
    let later = "import os, sqlite3\nsqlite3.connect('one.db').execute('create table t(a)')\nos.environ.clear()\nsqlite3.connect('two.db').execute('create table t(a)')";
    run(&place, &APP, &[PYTHON, "-c", later]).succeeded();
    is_sealed(&place, "two.db");
}

#[test]
fn a_key_is_registered_for_a_path_only() {
    let place = place();
    for path in ["'file:uri.db'", "''", "null"] {
        let sql = format!("select strongroom_key_id({path}, 'app')");
        let refused = run(&place, &APP, &[SHELL, ":memory:", &sql]);
        assert_ne!(refused.code, 0, "{path}: {}", refused.out);
    }
}

#[test]
fn a_pipe_is_not_waited_for() {
    let place = place();
    let made = Command::new("mkfifo").arg(place.path("pipe")).status();
    assert!(made.unwrap().success());
    for verb in ["encrypt", "decrypt"] {
        place
            .run(&["sqlite", verb, "pipe", "out.db", "--key-id", "app"])
            .failed(2, "SR-1007");
    }
}
