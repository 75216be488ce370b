//! A host renews its certificate: the real command against the real server, killed at each call
//! that changes a file, with clocks near and behind the end, and with a server that is away.
//!
//! Method: clocks are libfaketime's, kills are strace's.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use common::{Place, Run, keyserver};
use strongroom_testing_support::keyserver::KeyServer;

/// Days that a certificate is valid, unless server.toml says otherwise.
const DAYS: u32 = 1825;

/// A server, and a host that joined it and made a key.
fn joined() -> (Place, KeyServer) {
    let place = Place::new();
    let server = keyserver::started(&place, "a");
    let token = [
        "keyserver",
        "token",
        "db-7",
        "--node",
        "a/admin.toml",
        "--out",
        "token",
        "--may-create",
    ];
    place.run(&token).succeeded();
    let join = [
        "keyserver",
        "join",
        &server.url(),
        "--authority",
        "a/authority.pem",
        "--node",
        "db-7",
        "--token-file",
        "token",
        "--config",
        "etc/node.toml",
    ];
    place.run(&join).succeeded();
    place
        .run(&["keyserver", "create", "k", "--node", "etc/node.toml"])
        .succeeded();
    (place, server)
}

fn renew(place: &Place, more: &[&str]) -> Run {
    place.run(&[&["keyserver", "renew", "--node", "etc/node.toml"], more].concat())
}

/// The same so many days later.
fn renew_later(place: &Place, days: u32, more: &[&str]) -> Run {
    let renew = ["keyserver", "renew", "--node", "etc/node.toml"];
    place.run_at(&format!("+{days}d"), &[&renew[..], more].concat())
}

fn works(place: &Place) {
    let listed = place.run(&["keyserver", "keys", "--node", "etc/node.toml"]);
    assert!(listed.succeeded().contains('k'));
}

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path("etc")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const FILES: [&str; 4] = ["authority.pem", "node.key", "node.pem", "node.toml"];

#[test]
fn it_renews_when_it_is_due_and_asks_nobody_before() {
    let (place, mut server) = joined();
    // The host's clock runs years ahead in what follows: so long the server's own certificate has
    // to count too.
    let config = String::from_utf8(place.read("a/server.toml")).unwrap();
    place.write(
        "a/server.toml",
        config.replace(
            "server_certificate_days = 90",
            "server_certificate_days = 7300",
        ),
    );
    let longer = [
        "keyserver",
        "server-cert",
        "renew",
        "--config",
        "a/server.toml",
    ];
    place.run(&longer).succeeded();
    // The server that runs looks every five seconds.
    std::thread::sleep(std::time::Duration::from_secs(8));
    let (key, certificate) = (place.read("etc/node.key"), place.read("etc/node.pem"));
    let unchanged = || {
        assert_eq!(place.read("etc/node.key"), key);
        assert_eq!(place.read("etc/node.pem"), certificate);
        assert_eq!(names(&place), FILES);
    };
    // A third of its time is left: not a day before.
    let third = DAYS - DAYS / 3;
    let out = renew(&place, &["--if-due"]).succeeded();
    assert!(out.starts_with("not due: it ends at 20"), "{out}");
    renew_later(&place, third - 2, &["--if-due", "--json"]).succeeded();
    unchanged();
    // Ended: no server is asked, and it says what to do.
    let ended = renew_later(&place, DAYS + 1, &["--if-due"]);
    ended.failed(3, "SR-8470");
    unchanged();

    let out = renew_later(&place, third + 1, &["--if-due", "--json"]).succeeded();
    assert!(
        out.contains("\"renewed\": true") || out.contains("\"renewed\":true"),
        "{out}"
    );
    assert_ne!(place.read("etc/node.key"), key);
    assert_ne!(place.read("etc/node.pem"), certificate);
    assert_eq!(names(&place), FILES);
    works(&place);

    // A server that is away: an error, and nothing has changed; but none when there is nothing to
    // do.
    server.stop();
    let text = String::from_utf8(place.read("etc/node.toml")).unwrap();
    place.write(
        "etc/node.toml",
        text.replace("total_timeout_seconds = 60", "total_timeout_seconds = 1"),
    );
    let before = place.read("etc/node.key");
    renew(&place, &["--if-due"]).succeeded();
    renew(&place, &[]).failed(3, "SR-8402");
    assert_eq!(place.read("etc/node.key"), before);
    assert_eq!(names(&place), FILES);
}

#[test]
fn killed_at_any_moment_it_leaves_a_pair_that_works() {
    let (place, _server) = joined();
    let calls = "rename,renameat,renameat2,unlink,unlinkat,fsync";
    for (kills, at) in (1..60).enumerate() {
        if !killed(&place, calls, at) {
            assert!(kills >= 8, "only {kills} moments");
            assert_eq!(
                names(&place),
                FILES,
                "after {kills} kills nothing is left behind"
            );
            return;
        }
        // What a boot does at this moment.
        works(&place);
        // The next run of the timer finishes it, or begins anew.
        renew(&place, &[]).succeeded();
        works(&place);
        assert_eq!(names(&place), FILES, "after the kill at {at}");
    }
    panic!("it came to no end");
}

/// Renews until that call; false when it ended before.
fn killed(place: &Place, calls: &str, at: u32) -> bool {
    let renew = ["keyserver", "renew", "--node", "etc/node.toml"];
    place.killed_at(&["-f"], calls, at, &renew)
}

#[test]
fn a_command_runs_while_the_former_certificate_still_counts() {
    let (place, _server) = joined();
    std::fs::create_dir(place.path("former")).unwrap();
    for name in FILES {
        std::fs::copy(
            place.path("etc").join(name),
            place.path("former").join(name),
        )
        .unwrap();
    }
    let former = ["keyserver", "keys", "--node", "former/node.toml"];
    // It sees the new files; it fails, and the next run goes on from there.
    let failed = renew(
        &place,
        &[
            "--then",
            "cp etc/node.key seen && ! cmp -s etc/node.key former/node.key && exit 3",
        ],
    );
    failed.failed(5, "SR-8471");
    place.run(&former).succeeded();
    let before = place.read("seen");
    let then = ["--if-due", "--then", "cp etc/node.key seen; echo copied"];
    let run = renew(&place, &[&then[..], &["--json"]].concat());
    // What the command prints is no part of the result.
    assert_eq!(run.json()["renewed"], true);
    assert!(run.err.contains("copied"), "{}", run.err);
    run.succeeded();
    assert_eq!(place.read("seen"), before, "no second key was made");
    assert_eq!(place.read("etc/node.key"), before);
    assert_eq!(names(&place), FILES);
    place.run(&former).failed(3, "SR-8421");
    works(&place);
}
