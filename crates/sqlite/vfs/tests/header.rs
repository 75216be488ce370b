//! Goal: the sealing VFS's copy of SQLite's interface agrees with the headers of the SQLite that is
//! installed.
//!
//! Method: a C program, written here from the sealing VFS's own tables, prints every constant and
//! the index of every entry of `sqlite3_api_routines`; the test compares. The headers' version is
//! printed when something differs. A constant that the installed headers do not have fails the test
//! unless it is listed in `NOT_IN_EVERY_HEADER`.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use strongroom_sqlite_vfs::{CONSTANTS, ROUTINES};

/// Constants that newer headers than those of 3.37 define. None of the table's is, at present.
const NOT_IN_EVERY_HEADER: &[&str] = &[];

fn program() -> String {
    let mut text = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <sqlite3ext.h>\nint main(void){\n",
    );
    text.push_str("printf(\"version %d\\n\", SQLITE_VERSION_NUMBER);\n");
    for (name, _) in CONSTANTS {
        writeln!(
            text,
            "#ifdef {name}\nprintf(\"{name} %ld\\n\", (long){name});\n#endif"
        )
        .unwrap();
    }
    for (name, _) in ROUTINES {
        writeln!(
            text,
            "printf(\"{name} %zu\\n\", offsetof(struct sqlite3_api_routines, {name})/sizeof(void(*)(void)));"
        )
        .unwrap();
    }
    for (name, kind) in [
        ("sqlite3_vfs", "vfs"),
        ("sqlite3_io_methods", "io"),
        ("sqlite3_module", "module"),
    ] {
        writeln!(text, "printf(\"sizeof_{kind} %zu\\n\", sizeof({name}));").unwrap();
    }
    text.push_str("return 0;}\n");
    text
}

/// Name to value, as the C compiler sees them.
fn of_headers(directory: &Path) -> BTreeMap<String, i64> {
    let source = directory.join("constants.c");
    let binary = directory.join("constants");
    strongroom_keyring::durable::replace(&source, program().as_bytes(), 0o600).unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .output();
    let built = built.expect("a C compiler is needed: apt install gcc libsqlite3-dev");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success(),
        "the headers are needed: apt install libsqlite3-dev\n{errors}"
    );
    let run = Command::new(&binary).output().unwrap();
    assert!(run.status.success());
    let text = String::from_utf8(run.stdout).unwrap();
    text.lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn constants_and_routines_are_those_of_the_installed_headers() {
    let directory = std::env::temp_dir().join(format!("strongroom-header-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let found = of_headers(&directory);
    std::fs::remove_dir_all(&directory).unwrap();
    let version = found["version"];
    let mut wrong = Vec::new();
    for (name, value) in CONSTANTS {
        match found.get(*name) {
            None if NOT_IN_EVERY_HEADER.contains(name) => {}
            None => wrong.push(format!("{name}: not in the headers of {version}")),
            Some(theirs) if *theirs == i64::from(*value) => {}
            Some(theirs) => wrong.push(format!(
                "{name}: {value} here, {theirs} in the headers of {version}"
            )),
        }
    }
    for (name, index) in ROUTINES {
        let theirs = found[*name];
        if theirs != i64::try_from(*index).unwrap() {
            wrong.push(format!(
                "{name}: index {index} here, {theirs} in the headers of {version}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        CONSTANTS.len() > 40 && ROUTINES.len() > 30,
        "the tables have been emptied"
    );
    // The sealing VFS's structures are private; their sizes follow from their fields, which are all
    // word-sized or paired ints.
    assert_eq!(found["sizeof_vfs"], 168, "sqlite3_vfs of {version}");
    assert_eq!(found["sizeof_io"], 152, "sqlite3_io_methods of {version}");
    assert!(found["sizeof_module"] <= 200, "sqlite3_module of {version}");
}
