//! Goal: a passphrase that is typed starts a server without standing in any argument, environment
//! or file.
//!
//! Method: the real command on a pseudo-terminal of its own; then a look at what the server's
//! process shows.

use crate::common::on_terminal;
use crate::instance;

use std::fs;
use std::time::Duration;

use instance::Place;

const PASSPHRASE: &str = "correct horse battery staple";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command on a terminal, types each line after its prompt, and returns exit code and
/// everything shown.
fn on_a_terminal(place: &Place, arguments: &[&str], lines: &[&str]) -> (i32, String) {
    let mut session = on_terminal::session_by(place.program("setsid"));
    session
        .arg(place.binary())
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("LC_ALL", "C.UTF-8");
    let mut lines = lines.iter();
    let (code, shown) = on_terminal::run(session, PATIENCE, |last| {
        let asks = last.contains("assphrase") && last.ends_with(": ");
        asks.then(|| (*lines.next().expect("asked once more than expected")).to_owned())
    });
    assert!(lines.next().is_none(), "not asked often enough: {shown:?}");
    (code, shown)
}

#[test]
fn asked_once_and_handed_on_by_nothing_that_others_see() {
    let place = Place::new();
    let initdb = ["pg", "initdb", "-D", "data", "--ask", "--", "--no-sync"];
    let (code, shown) = on_a_terminal(&place, &initdb, &[PASSPHRASE, PASSPHRASE]);
    assert_eq!(code, 0, "{shown}");
    assert!(
        shown.contains("passphrase, fingerprint") && shown.contains("SR-7020"),
        "{shown}"
    );
    assert!(!shown.contains("horse"), "no echo");
    let kept = fs::read_to_string(place.path("data/strongroom.conf")).unwrap();
    assert!(kept.lines().all(|line| line.starts_with('#')), "{kept}");

    // Nobody is there to be asked.
    let unattended = place.start_unattended();
    assert_ne!(unattended.code, 0);
    assert!(
        place.log().starts_with("strongroom: SR-2001: "),
        "{}",
        place.log()
    );
    place.start(&["--ask"]).ended_with(2, "SR-1004");

    let options = place.options();
    let start = [
        "pg", "start", "-D", "data", "--ask", "-l", "log", "--", "-o", &options,
    ];
    let (code, shown) = on_a_terminal(&place, &start, &["wrong"]);
    assert_eq!(code, 3, "{shown}");
    assert!(shown.contains("error[SR-2002]"), "{shown}");
    let (code, shown) = on_a_terminal(&place, &start, &[PASSPHRASE]);
    assert_eq!(code, 0, "{shown}\n{}", place.log());
    assert_eq!(place.sql("select 1"), "1");

    let pid = place.pid("data").unwrap();
    let process = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap();
    for name in ["environ", "cmdline"] {
        let bytes = process(name);
        assert!(!bytes.windows(5).any(|part| part == b"horse"), "{name}");
    }
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let memory = open
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().contains("memfd:strongroom"));
    assert_eq!(
        memory.count(),
        0,
        "the server has closed what it got the passphrase from"
    );
    let children = place.sql(
        "create table e (l text); copy e from program 'ls -l /proc/self/fd; env'; \
                              select string_agg(l, ' ') from e",
    );
    assert!(
        !children.contains("memfd") && !children.contains("STRONGROOM_PG_KEY"),
        "{children}"
    );
    place.stop();
    let (code, shown) = on_a_terminal(
        &place,
        &["pg", "controldata", "-D", "data", "--ask"],
        &[PASSPHRASE],
    );
    assert!(
        code == 0 && shown.contains("Data encryption key:                  passphrase"),
        "{shown}"
    );
}

#[test]
fn a_keyring_that_somebody_has_to_open_is_not_for_servers() {
    let place = Place::new();
    let keyring = |verb: &[&'static str]| [&["--keyring", "keys"], verb].concat();
    let init = keyring(&["keyring", "init", "--provider", "passphrase"]);
    let (code, shown) = on_a_terminal(&place, &init, &[PASSPHRASE, PASSPHRASE]);
    assert_eq!(code, 0, "{shown}");
    let create = keyring(&["key", "create", "app"]);
    let (code, shown) = on_a_terminal(&place, &create, &[PASSPHRASE]);
    assert_eq!(code, 0, "{shown}");
    let initdb = keyring(&["pg", "initdb", "-D", "data", "--key-id", "app"]);
    let (code, shown) = on_a_terminal(&place, &initdb, &[]);
    assert!(code == 2 && shown.contains("error[SR-1004]"), "{shown}");
    assert!(!place.path("data").exists());
}
