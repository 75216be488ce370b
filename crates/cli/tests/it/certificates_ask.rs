//! A certificate's export asks for its passphrase twice on the terminal, and its restoration once;
//! volumes that are unlocked as the system starts ask nobody on behalf of a keyring.
//!
//! Method: the real binary on a pseudo-terminal that controls it; the test types a line after each
//! prompt.

use crate::common;
use crate::common::on_terminal;

use std::process::Command;
use std::time::Duration;

use common::{Place, ROOT};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command on a terminal and types each line after its prompt; exit code and everything
/// shown.
fn on_a_terminal(place: &Place, arguments: &[&str], lines: &[&str]) -> (i32, String) {
    let mut session = on_terminal::session();
    session
        .arg(env!("CARGO_BIN_EXE_strongroom"))
        .args(["--keyring", "keyring"])
        .args(arguments)
        .current_dir(place.path(""));
    let mut lines = lines.iter();
    let (code, shown) = on_terminal::run(session, PATIENCE, |last| {
        let asks = last.ends_with(": ");
        asks.then(|| (*lines.next().expect("asked once more than expected")).to_owned())
    });
    assert!(lines.next().is_none(), "not asked often enough: {shown:?}");
    (code, shown)
}

#[test]
fn the_passphrase_is_asked_for_twice_and_once() {
    let place = Place::new();
    place.write("root.key", ROOT);
    place
        .run(&["keyring", "init", "--provider", "file:root.key"])
        .succeeded();
    place.run(&["cert", "create", "backup"]).succeeded();

    let export = ["cert", "export", "backup", "--out", "b.p12"];
    place.run(&export).failed(2, "SR-1004");
    let entries = ["on paper", "on papre", "on paper", "on paper"];
    let (code, shown) = on_a_terminal(&place, &export, &entries);
    assert_eq!(code, 0, "{shown}");
    assert!(
        shown.contains("Passphrase for the export of backup: "),
        "{shown}"
    );
    assert!(
        shown.contains("The two entries differ.") && !shown.contains("pap"),
        "{shown}"
    );
    assert!(shown.contains("read back and proved to open"), "{shown}");

    std::fs::remove_file(place.path("keyring")).unwrap();
    place
        .run(&["keyring", "init", "--provider", "file:root.key"])
        .succeeded();
    let restore = ["cert", "restore", "b.p12"];
    let (code, shown) = on_a_terminal(&place, &restore, &["in the sand"]);
    assert!(code == 3 && shown.contains("SR-2030"), "{shown}");
    let (code, shown) = on_a_terminal(&place, &restore, &["on paper"]);
    assert!(
        code == 0 && shown.contains("certificate backup restored"),
        "{shown}"
    );
    assert!(shown.contains("Passphrase of b.p12: "), "{shown}");
}

/// The private key of this keyring's provider has a passphrase, which is asked for unless something
/// else is said. As the system starts there is a terminal, and nobody at it: the question had no
/// time limit.
#[test]
fn as_the_system_starts_a_keyring_asks_nobody() {
    let place = Place::new();
    place.with_key();
    let create = ["volume", "create", "v", "--key-id", "app", "--size", "20M"];
    place
        .run(&[&create[..], &["--no-recovery"]].concat())
        .succeeded();
    let openssl = |arguments: &str| {
        let ran = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(place.path(""))
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
    };
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=ops",
    );
    openssl("pkcs12 -export -inkey key.pem -in cert.pem -out ops.p12 -passout pass:secret");
    std::fs::remove_file(place.path("keyring")).unwrap();
    let at = |name: &str| place.path(name).display().to_string();
    let provider = format!(
        "certificate:file={};public={}",
        at("ops.p12"),
        at("cert.pem")
    );
    place
        .run(&["keyring", "init", "--provider", &provider])
        .succeeded();
    let (code, shown) = on_a_terminal(&place, &["key", "create", "app"], &["secret"]);
    assert!(
        code == 0 && shown.contains("Passphrase of the private key"),
        "{shown}"
    );
    place.write(
        "table",
        "[[volume]]\nname = \"x\"\ndevice = \"v\"\nopeners = [\"keyring\"]\n",
    );
    let unlock = ["volume", "unlock", "--no-prompt", "--table", "table"];
    let (code, shown) = on_a_terminal(&place, &unlock, &[]);
    assert!(code == 3 && shown.contains("SR-8336"), "{shown}");
    assert!(shown.contains("prompts are switched off"), "{shown}");
    assert!(!shown.contains("Passphrase"), "{shown}");
}
