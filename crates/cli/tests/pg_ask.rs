//! Goal: a passphrase that is typed starts a server without standing in any argument, environment or file.
//!
//! Method: the real command on a pseudo-terminal of its own; then a look at what the server's process shows.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, which is what it is for"
)]

mod instance;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use instance::Place;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const PASSPHRASE: &str = "correct horse battery staple";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command on a terminal, types each line after its prompt, and returns exit code and everything shown.
fn on_a_terminal(place: &Place, arguments: &[&str], lines: &[&str]) -> (i32, String) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = File::options().read(true).write(true).open(name).unwrap();
    let end = || Stdio::from(far.try_clone().unwrap());
    let inner = place.command(arguments);
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "--wait"])
        .arg(inner.get_program())
        .args(inner.get_args());
    command
        .current_dir(place.path(""))
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("LC_ALL", "C.UTF-8");
    let mut child = command
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    drop(command);
    let mut near = File::from(near);
    let mut shown = String::new();
    let mut lines = lines.iter();
    let deadline = Instant::now() + PATIENCE;
    let mut answered = 0;
    loop {
        assert!(Instant::now() < deadline, "nothing more after {shown:?}");
        let mut polled = [PollFd::new(&near, PollFlags::IN)];
        let wait = Timespec::try_from(Duration::from_millis(50)).unwrap();
        if poll(&mut polled, Some(&wait)).unwrap() > 0 {
            let mut buffer = [0; 4096];
            let length = near.read(&mut buffer).unwrap_or(0);
            shown.push_str(&String::from_utf8_lossy(&buffer[..length]));
        } else if child.try_wait().unwrap().is_some() {
            break;
        }
        let last = shown[answered..].lines().last().unwrap_or_default();
        if last.contains("assphrase") && last.ends_with(": ") {
            answered = shown.len();
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("asked once more: {shown:?}"));
            near.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(lines.next().is_none(), "not asked often enough: {shown:?}");
    (status.code().unwrap_or(-1), shown)
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
    place.start(&["--ask"]).failed(2, "SR-1004");

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
