//! What a program under `strongroom sqlite run` starts: it has the sealing VFS too, whatever
//! environment it is given, or it is told that it has none.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::common::ROOT;
use crate::common::{Place, Run};
use crate::sqlite_run::{APP, NEEDLE, PYTHON, SHELL, is_sealed, place, run};

/// A key that needs nothing of the environment.
const FILE: [&str; 2] = ["--key-file", "key"];

/// An SQL statement that makes a table with a row which can be looked for.
fn make() -> String {
    format!("create table t(a); insert into t values('{NEEDLE}')")
}

/// Every database that was made is sealed; `made` are all of them.
#[track_caller]
fn are_sealed(place: &Place, made: &[&str], done: &Run) {
    for name in made {
        let path = place.path(name);
        assert!(path.exists(), "{name}: {}\n{}", done.out, done.err);
        is_sealed(place, name);
    }
}

#[test]
fn a_child_with_an_environment_of_its_own_has_the_guard() {
    let place = place();
    place.write("key", ROOT);
    let sql = make();
    let cleared = ["/usr/bin/env", "-i", SHELL, "env.db", &sql];
    let done = run(&place, &FILE, &cleared);
    are_sealed(&place, &["env.db"], &done);
    let code = format!(
        "import os, subprocess\n\
         shell, sql = '{SHELL}', \"{sql}\"\n\
         subprocess.run([shell, 'subprocess.db', sql], env={{}}, check=True)\n\
         subprocess.run([shell, 'session.db', sql], env={{'A': 'b'}}, start_new_session=True, check=True)\n\
         subprocess.run([shell, 'preload.db', sql], env={{'LD_PRELOAD': ''}}, check=True)\n\
         os.waitpid(os.posix_spawn(shell, [shell, 'spawn.db', sql], {{}}), 0)\n\
         os.waitpid(os.posix_spawnp('sqlite3', [shell, 'spawnp.db', sql], {{}}), 0)\n\
         os.spawnve(os.P_WAIT, shell, [shell, 'execve.db', sql], {{}})\n\
         if os.fork() == 0: os.execvpe('sqlite3', [shell, 'execvpe.db', sql], {{}})\n\
         os.wait()\n\
         if os.fork() == 0: os.execve(os.open(shell, os.O_RDONLY), [shell, 'fexecve.db', sql], {{}})\n\
         os.wait()\n\
         subprocess.run(['/bin/sh', '-c', 'exec env -i sqlite3 nested.db \"$0\"', sql], env={{'PATH': '/usr/bin'}}, check=True)\n\
         path = os.environ['PATH']\n\
         os.environ.clear()\n\
         os.environ['PATH'] = path\n\
         os.system(f'sqlite3 system.db \"{{sql}}\"')\n"
    );
    let done = run(&place, &FILE, &[PYTHON, "-c", &code]);
    let made = [
        "subprocess.db",
        "session.db",
        "preload.db",
        "spawn.db",
        "spawnp.db",
        "execve.db",
        "execvpe.db",
        "fexecve.db",
        "nested.db",
        "system.db",
    ];
    are_sealed(&place, &made, &done);
    assert_eq!(done.code, 0, "{}", done.err);
}

/// Functions with any number of arguments, which lie in registers and on the stack.
#[test]
fn every_function_of_c_that_starts_a_program_puts_the_guard_in() {
    let place = place();
    place.write("key", ROOT);
    let source = format!(
        "#define _GNU_SOURCE\n\
         #include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         #define SHELL \"{SHELL}\"\n\
         #define SQL \"{}\"\n\
         static char *empty[] = {{\"A=b\", NULL}};\n\
         #define IN_CHILD(call) do {{ if (fork() == 0) {{ call; perror(\"exec\"); _exit(1); }} wait(NULL); }} while (0)\n\
         int main(void) {{\n\
         char *args[] = {{SHELL, \"execv.db\", SQL, NULL}};\n\
         char *named[] = {{SHELL, \"execvp.db\", SQL, NULL}};\n\
         IN_CHILD(execle(SHELL, SHELL, \"execle.db\", SQL, (char *)NULL, empty));\n\
         clearenv();\n\
         setenv(\"PATH\", \"/usr/bin:/bin\", 1);\n\
         IN_CHILD(execl(SHELL, SHELL, \"execl.db\", SQL, (char *)NULL));\n\
         IN_CHILD(execl(SHELL, SHELL, \"-batch\", \"-bail\", \"-noheader\", \"-list\", \"-nofollow\", \"execl-many.db\", SQL, (char *)NULL));\n\
         IN_CHILD(execlp(\"sqlite3\", \"sqlite3\", \"execlp.db\", SQL, (char *)NULL));\n\
         IN_CHILD(execv(SHELL, args));\n\
         IN_CHILD(execvp(\"sqlite3\", named));\n\
         IN_CHILD(execl(\"/no/such/program\", \"x\", (char *)NULL));\n\
         FILE *pipe = popen(\"sqlite3 popen.db \\\"\" SQL \"\\\"\", \"r\");\n\
         return pclose(pipe);\n\
         }}\n",
        make()
    );
    let source = place.write("starts.c", source);
    let built = Command::new("cc")
        .arg("-o")
        .arg(place.path("starts"))
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    let done = run(&place, &FILE, &["./starts"]);
    let made = [
        "execle.db",
        "execl.db",
        "execl-many.db",
        "execlp.db",
        "execv.db",
        "execvp.db",
        "popen.db",
    ];
    are_sealed(&place, &made, &done);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(done.err.matches("No such file").count(), 1, "{}", done.err);
}

#[test]
fn a_child_with_an_sqlite_of_its_own_is_told_or_not_started() {
    let place = place();
    // A program that holds the constant of every SQLite, and is linked to none.
    let mut bytes = std::fs::read("/bin/true").unwrap();
    bytes.extend_from_slice(b"SQLite format 3\0");
    let own = place.write("own", bytes);
    let script = place.write("script", format!("#!{}\n", own.display()));
    let special = place.path("special");
    std::fs::copy(SHELL, &special).unwrap();
    for (path, mode) in [(&own, 0o755), (&script, 0o755), (&special, 0o4755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for name in ["./own", "./script", "./special"] {
        let child = ["/bin/sh", "-c", &format!("{name} true; echo went on")];
        let told = run(&place, &APP, &child);
        assert_eq!(told.code, 0, "{}", told.err);
        assert!(told.err.contains("SR-2287"), "{name}: {}", told.err);
        assert!(
            told.err.contains(&name[1..]) || name == "./script",
            "{}",
            told.err
        );
        let mut command = place.command();
        command
            .env("STRONGROOM_SQLITE_NEVER_PLAIN", "1")
            .args(["sqlite", "run", "--key-id", "app", "--"])
            .args(child);
        let refused = command.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("SR-2285"), "{name}: {said}");
        assert_eq!(String::from_utf8_lossy(&refused.stdout), "went on\n");
    }
    let found = format!(
        "PATH=.:$PATH own true; {PYTHON} -c \"import os; os.execvp('./own', ['own', 'true'])\""
    );
    let told = run(&place, &APP, &["/bin/sh", "-c", &found]);
    assert_eq!(told.err.matches("SR-2287").count(), 2, "{}", told.err);
    // Programs without an SQLite are not spoken of, nor is the command itself.
    let command = env!("CARGO_BIN_EXE_strongroom");
    let quiet = format!("true; ls >&2 /dev/null; busybox true; {command} --version");
    let quiet = run(&place, &APP, &["/bin/sh", "-c", &quiet]);
    assert_eq!(quiet.err, "/dev/null\n");
}

/// A program that is named by a descriptor, or relative to one; and one in `PATH` behind a
/// directory of the same name, or without a `PATH`.
#[test]
fn a_child_is_looked_at_however_it_is_named() {
    let place = place();
    let mut bytes = std::fs::read("/bin/true").unwrap();
    bytes.extend_from_slice(b"SQLite format 3\0");
    let own = place.write("own", &bytes);
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(place.path("first/own")).unwrap();
    std::fs::create_dir_all(place.path("below")).unwrap();
    let source = format!(
        "#define _GNU_SOURCE\n\
         #include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         #include <sys/wait.h>\n#include <unistd.h>\n\
         int main(int count, char **given) {{\n\
         char *args[] = {{\"own\", NULL}};\n\
         int file = open(\"own\", O_RDONLY), directory = open(\"below\", O_RDONLY | O_DIRECTORY);\n\
         switch (atoi(given[1])) {{\n\
         case 0: fexecve(file, args, environ); break;\n\
         case 1: execveat(file, \"\", args, environ, AT_EMPTY_PATH); break;\n\
         case 2: execveat(directory, \"../own\", args, environ, 0); break;\n\
         case 3: execveat(AT_FDCWD, \"own\", args, environ, 0); break;\n\
         case 4: execveat(-1, \"{}\", args, environ, 0); break;\n\
         case 5: setenv(\"PATH\", \"first:.\", 1); execvp(\"own\", args); break;\n\
         case 6: execveat(-1, \"own\", args, environ, 0); break;\n\
         case 7: execveat(file, \"\", args, environ, 0); break;\n\
         }}\n\
         perror(\"exec\"); return 9; }}\n",
        own.display()
    );
    let source = place.write("starts.c", source);
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(place.path("starts")).arg(source);
    assert!(cc.status().unwrap().success());
    for case in 0..8 {
        let told = run(&place, &APP, &["./starts", &case.to_string()]);
        // The last two do not name a program, and the kernel says so.
        let starts = case < 6;
        assert_eq!(
            told.code,
            if starts { 0 } else { 9 },
            "{case}: {}",
            told.err
        );
        assert_eq!(told.err.contains("SR-2287"), starts, "{case}: {}", told.err);
        let mut command = place.command();
        command
            .env("STRONGROOM_SQLITE_NEVER_PLAIN", "1")
            .args(["sqlite", "run", "--key-id", "app", "--"])
            .args(["./starts", &case.to_string()]);
        let refused = command.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(9), "{case}: {said}");
        assert_eq!(said.contains("SR-2285"), starts, "{case}: {said}");
    }
}

#[test]
fn what_is_meant_to_be_outside_stays_there() {
    let place = place();
    let sql = make();
    let outside = [
        "env",
        "-i",
        "STRONGROOM_SQLITE_OUTSIDE=1",
        SHELL,
        "out.db",
        &sql,
    ];
    run(&place, &APP, &outside).succeeded();
    let bytes = place.read("out.db");
    assert!(bytes.starts_with(b"SQLite format 3\0"));
}

/// `vfs=unix` is refused for files, and what a database in memory has no room for is a file.
#[test]
fn nothing_of_a_database_in_memory_is_written_past_the_vfs() {
    let place = place();
    let code = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1], uri=True)\n\
        db.execute('pragma cache_size=5')\n\
        db.execute('pragma temp_store=file')\n\
        db.execute(sys.argv[2])\n\
        db.executemany('insert into t values(?)', (('CANARY-TEXT' * 100,) for _ in range(5000)))\n\
        print(db.execute('select count(*) from (select * from t order by a || random())').fetchone()[0])\n";
    let table = "create table t(a)";
    let temporary = "create temp table t(a)";
    for (name, table) in [
        ("file::memory:?vfs=unix", temporary),
        ("file::memory:?vfs=unix-excl", temporary),
        ("file:?vfs=unix", table),
        ("file:?vfs=unix-none", temporary),
    ] {
        let refused = run(&place, &APP, &[PYTHON, "-c", code, name, table]);
        assert_ne!(refused.code, 0, "{name}: {}", refused.out);
        assert!(refused.err.contains("SR-2283"), "{name}: {}", refused.err);
    }
    for (name, table) in [(":memory:", temporary), ("", table), ("new.db", temporary)] {
        let done = run(&place, &APP, &[PYTHON, "-c", code, name, table]);
        assert_eq!(done.succeeded(), "5000\n");
    }
}
