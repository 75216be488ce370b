//! Goal: the distribution's `sqlite3` and Python read a remote database with the loaded extension:
//! by a URI, and by a pointer file where only a name can be given. Several processes fill one cache
//! while some of them are killed.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use strongroom_testing_support::product::sqlite_extension;

use crate::nginx::Nginx;
use crate::support::{ROWS, Scratch, body, write};

const PYTHON: &str = "/usr/bin/python3";
const SHELL: &str = "/usr/bin/sqlite3";

fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn uri(scratch: &Scratch, nginx: &Nginx, more: &str) -> String {
    format!(
        "file:/books.db?url={}&http_ca={}&key_file={}{more}",
        escaped(&nginx.url("x.db")),
        escaped(nginx.ca().to_str().unwrap()),
        escaped(scratch.path("key").to_str().unwrap()),
    )
}

/// Runs the shell with the extension loaded.
fn shell(scratch: &Scratch, commands: &[&str], permitted: bool) -> Output {
    let load = format!(".load {}", sqlite_extension().display());
    let mut shell = Command::new(SHELL);
    shell.arg("-batch").arg(":memory:").arg(load);
    shell.args(commands).current_dir(scratch.directory.path());
    shell
        .env_remove("STRONGROOM_KEYRING")
        .env_remove("STRONGROOM_ATTACH_URL");
    if permitted {
        shell.env("STRONGROOM_ATTACH_URL", "1");
    }
    shell.output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn pointer(scratch: &Scratch, nginx: &Nginx, name: &str, more: &str) -> PathBuf {
    let path = scratch.path(name);
    let (url, ca) = (nginx.url("x.db"), nginx.ca());
    let text = format!(
        "strongroom remote database 1\n# books\nurl {url}\nhttp_ca {}\n{more}",
        ca.display()
    );
    write(&path, text.as_bytes());
    path
}

#[test]
fn the_shell_reads_by_uri_and_by_pointer() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let query = "SELECT count(*), sum(length(body)) FROM book; SELECT path, encrypted FROM strongroom_databases()";
    let lengths: usize = (1..=ROWS).map(|id| body(id, 1).len()).sum();
    let expected = format!("{ROWS}|{lengths}");
    let open = format!(".open {}", uri(&scratch, &nginx, ""));
    let output = shell(&scratch, &[&open, query, "DELETE FROM book"], false);
    let (out, errors) = texts(&output);
    assert!(
        out.contains(&expected) && out.contains("|1"),
        "{out}{errors}"
    );
    assert!(errors.contains("readonly database"), "{errors}");
    // A pointer, where there is only a name. It may name the key's id, which needs a keyring; here
    // the URI names the key.
    pointer(&scratch, &nginx, "books.remote", "");
    let open = format!(
        ".open file:books.remote?key_file={}",
        scratch.path("key").display()
    );
    let (out, errors) = texts(&shell(&scratch, &[&open, query], false));
    assert!(out.contains(&expected), "{out}{errors}");
    // Its key, by PRAGMA, after it was opened by its name alone.
    let key = "5a".repeat(32);
    let pragma = format!("PRAGMA key=\"x'{key}'\"");
    let (out, errors) = texts(&shell(
        &scratch,
        &[".open books.remote", &pragma, query],
        false,
    ));
    assert!(out.contains(&expected), "{out}{errors}");
    assert!(!errors.contains(&key), "{errors}");
}

#[test]
fn an_address_in_sql_needs_permission() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let attach = format!("ATTACH '{}' AS far", uri(&scratch, &nginx, ""));
    let count = "SELECT count(*) FROM far.book";
    let (out, errors) = texts(&shell(&scratch, &[".open near.db", &attach, count], false));
    assert!(
        errors.contains("SR-2248") && !out.contains("4000"),
        "{out}{errors}"
    );
    assert!(nginx.logged().is_empty());
    let (out, errors) = texts(&shell(&scratch, &[".open near.db", &attach, count], true));
    assert!(out.contains("4000"), "{out}{errors}");
    // A pointer file was put there by somebody who may write files.
    let path = pointer(&scratch, &nginx, "books.remote", "");
    let attach = format!(
        "ATTACH 'file:books.remote?key_file={}' AS far",
        scratch.path("key").display()
    );
    let (out, errors) = texts(&shell(&scratch, &[".open near.db", &attach, count], false));
    assert!(out.contains("4000"), "{out}{errors}");
    // But by nobody else.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let (out, errors) = texts(&shell(&scratch, &[".open near.db", &attach, count], false));
    assert!(
        errors.contains("SR-2250") && !out.contains("4000"),
        "{out}{errors}"
    );
    // Under another name it is a file of a stranger's, and no database.
    let path = pointer(&scratch, &nginx, "upload.db", "");
    let open = format!(".open {}", path.display());
    nginx.logged();
    let (out, errors) = texts(&shell(
        &scratch,
        &[&open, "SELECT count(*) FROM book"],
        false,
    ));
    assert!(
        errors.contains("not a database") && !out.contains("4000"),
        "{out}{errors}"
    );
    assert!(nginx.logged().is_empty());
    // One that says what is not known is not guessed at.
    let path = pointer(
        &scratch,
        &nginx,
        "odd.remote",
        "key_command cat /etc/passwd\n",
    );
    let open = format!(".open {}", path.display());
    let (_, errors) = texts(&shell(&scratch, &[&open, "SELECT 1 FROM book"], false));
    assert!(errors.contains("SR-2250"), "{errors}");
}

const READER: &str = r"
import sqlite3, sys
extension, uri, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
first = sqlite3.connect(':memory:')
first.enable_load_extension(True)
first.load_extension(extension)
def body(book):
    return f'edition 1 book {book} ' * 90
connection = sqlite3.connect(uri, uri=True)
print('open', flush=True)
count = 0
for book, text in connection.execute('SELECT id, body FROM book ORDER BY id'):
    assert text == body(book), book
    count += 1
assert count == rows, count
try:
    connection.execute('DELETE FROM book')
    assert False
except sqlite3.OperationalError as error:
    assert 'readonly' in str(error), error
print('read', flush=True)
";

fn reader(scratch: &Scratch, uri: &str) -> Command {
    write(&scratch.path("reader.py"), READER.as_bytes());
    let mut command = Command::new(PYTHON);
    command
        .arg(scratch.path("reader.py"))
        .arg(sqlite_extension())
        .arg(uri)
        .arg(ROWS.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn processes_share_a_cache_and_are_killed() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    scratch.publish("x.db", 1);
    let cache = scratch.path("cache");
    let uri = uri(
        &scratch,
        &nginx,
        &format!("&http_cache={}", cache.display()),
    );
    for round in 0..12 {
        let mut killed = reader(&scratch, &uri).spawn().unwrap();
        let other = (round % 4 == 0).then(|| reader(&scratch, &uri).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(120 + 23 * round));
        // It may have ended before.
        drop(killed.kill());
        killed.wait().unwrap();
        if let Some(other) = other {
            let output = other.wait_with_output().unwrap();
            let (out, errors) = texts(&output);
            assert!(
                output.status.success() && out.contains("read"),
                "{out}{errors}"
            );
        }
        if round % 3 == 0 {
            // From the beginning again.
            let removed = std::fs::remove_dir_all(&cache);
            assert!(removed.is_ok() || !cache.exists());
        }
    }
    let two: Vec<_> = (0..2)
        .map(|_| reader(&scratch, &uri).spawn().unwrap())
        .collect();
    for process in two {
        let output = process.wait_with_output().unwrap();
        let (out, errors) = texts(&output);
        assert!(
            output.status.success() && out.contains("read"),
            "{out}{errors}"
        );
    }
    nginx.logged();
    let output = reader(&scratch, &uri).output().unwrap();
    assert!(output.status.success(), "{}", texts(&output).1);
    // Only the open.
    assert_eq!(nginx.logged().len(), 1);
}
