//! Goal: whoever types something wrong at a key server's commands is told what is wrong, with a
//! code of its own and advice that can be followed, before anything is made. Method: mistakes that
//! newcomers make, typed against the real command and the real server.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::process::Command;
use std::time::Instant;

use common::{Place, Run, keyserver};
use strongroom_testing_support::keyserver::KeyServer;

/// Options by which three custodians get shares, of which two open the server.
const SHARES: [&str; 6] = [
    "--shares",
    "3",
    "--threshold",
    "2",
    "--shares-out",
    "shares",
];

/// A command of the administrator of the server in `a`.
fn admin(place: &Place, arguments: &[&str]) -> Run {
    let node = ["--node", "a/admin.toml"];
    place.run(&[&["keyserver"][..], arguments, &node].concat())
}

/// Runs the command in a session that has no terminal, whatever the tests are run on.
fn without_terminal(place: &Place, arguments: &[&str]) -> Run {
    let mut setsid = Command::new("setsid");
    setsid.arg("--wait");
    let output = place.under(setsid, arguments).output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `keyserver init` in the directory `s`.
fn init(place: &Place, more: &[&str]) -> Run {
    drop(std::fs::create_dir(place.path("s")));
    let store = ["keyserver", "init", "--store", "s/keys.db"];
    place.run(&[&store[..], more].concat())
}

#[test]
fn a_server_gets_names_only_that_its_clients_can_use() {
    let place = Place::new();
    let root = ["--root-provider", "env:ROOT"];
    for (name, instead) in [
        ("https://keys.example.org", "write keys.example.org"),
        ("keys.example.org:8443", "write keys.example.org"),
        ("[::1]:8443", "write ::1"),
        ("", "it is empty"),
        ("*.x", "a pattern"),
        ("a_b", "letters, digits and hyphens"),
        ("two words", "letters, digits and hyphens"),
    ] {
        // The first name is fine: every one is looked at.
        let names = ["--name", "keys", "--name", name];
        let told = init(&place, &[&names[..], &root].concat()).failed(2, "SR-8412");
        assert!(told.contains(instead), "{name}: {told}");
        init(&place, &[&names[..], &SHARES].concat()).failed(2, "SR-8412");
    }
    assert!(std::fs::read_dir(place.path("s")).unwrap().next().is_none());
    assert!(!place.path("shares").exists());

    init(&place, &[&["--name", "keys"][..], &root].concat()).succeeded();
    let config = place.read("s/server.toml");
    let certificate = place.read("s/server.pem");
    let renew = [
        "keyserver",
        "server-cert",
        "renew",
        "--config",
        "s/server.toml",
    ];
    let more = |name| place.run(&[&renew[..], &["--name", name]].concat());
    more("https://keys-b").failed(2, "SR-8412");
    assert!(config == place.read("s/server.toml"));
    assert!(certificate == place.read("s/server.pem"));
    more("keys-b").succeeded();

    // A further server, whose configuration somebody has written.
    let text = String::from_utf8(config).unwrap();
    let text = text.replace("names = [\"keys\"]", "names = [\"https://keys-c\"]");
    let text = text.replace("\"server.", "\"server-c.");
    assert!(text.contains("https://keys-c") && text.contains("server-c.key"));
    place.write("s/server-c.toml", text);
    let issue = ["keyserver", "server-cert", "issue", "--config"];
    let issue = [&issue[..], &["s/server-c.toml"]].concat();
    place.run(&issue).failed(2, "SR-8412");
    assert!(!place.path("s/server-c.key").exists());
}

#[test]
fn a_share_that_could_not_be_kept_is_not_made() {
    let place = Place::new();
    std::fs::create_dir(place.path("shares")).unwrap();
    place.write("shares/share-2.txt", "of another server");
    let told = init(&place, &[&["--name", "keys"][..], &SHARES].concat()).failed(6, "SR-1002");
    assert!(told.contains("share-2.txt"), "{told}");
    assert!(!place.path("s/keys.db").exists() && !place.path("shares/share-1.txt").exists());
    assert_eq!(place.read("shares/share-2.txt"), b"of another server");
}

#[test]
fn nobody_waits_in_silence_for_a_server_that_does_not_run() {
    let place = Place::new();
    let mut server = keyserver::started(&place, "a");
    let url = server.url();
    let token = ["token", "db-7", "--out", "token"];
    admin(&place, &token).succeeded();
    let join = ["keyserver", "join", &url, "--authority", "a/authority.pem"];
    let about = [
        "--node",
        "db-7",
        "--token-file",
        "token",
        "--config",
        "n/node.toml",
    ];
    let told = place.run(&[&join[..], &about].concat());
    let note = told.err.clone();
    told.succeeded();
    // The timer that is installed does not look at this configuration.
    let config = place.path("n/node.toml");
    let config = std::fs::canonicalize(config).unwrap();
    let command = format!("keyserver renew --if-due --node {}", config.display());
    assert!(note.contains(&command), "{note}");
    assert!(!note.contains("enable --now"), "{note}");
    let renew = ["keyserver", "renew", "--if-due", "--node"];
    let renew = [&renew[..], &[config.to_str().unwrap()]].concat();
    place.run(&renew).succeeded();

    server.stop();
    // By whoever sits in front of it, at once; by default a call has 60 seconds.
    let began = Instant::now();
    let anybody = ["--server", &url, "--authority", "a/authority.pem"];
    let anybody = [&["keyserver", "status"][..], &anybody].concat();
    for told in [
        admin(&place, &["keys"]),
        admin(&place, &["status"]),
        admin(&place, &["revoke", "db-7"]),
        place.run(&anybody),
    ] {
        let told = told.failed(3, "SR-8409");
        assert!(told.contains("refused"), "{told}");
    }
    assert!(began.elapsed().as_secs() < 50, "{:?}", began.elapsed());
    let other = [
        "--node",
        "other",
        "--token-file",
        "token",
        "--config",
        "o/node.toml",
    ];
    place
        .run(&[&join[..], &other].concat())
        .failed(3, "SR-8409");
    assert!(!place.path("o/node.toml").exists());

    // By what a unit runs, for as long as its configuration says, and not in silence.
    let text = String::from_utf8(place.read("n/node.toml")).unwrap();
    let text = text.replace("total_timeout_seconds = 60", "total_timeout_seconds = 6");
    place.write("n/node.toml", text);
    let told = place
        .run(&["keyserver", "renew", "--node", "n/node.toml"])
        .failed(3, "SR-8402");
    let note = format!(
        "note: waiting for the key server at {}, for 6 s at most",
        server.url()
    );
    assert_eq!(told.matches(&note).count(), 1, "{told}");
}

/// An address without `https://`, wherever one is given.
#[track_caller]
fn bare_addresses_are_refused(place: &Place, server: &KeyServer) {
    let bare = server.address();
    let bare = bare.as_str();
    let authority = ["--authority", "a/authority.pem"];
    let status = ["keyserver", "status", "--server", bare];
    let told = place
        .run(&[&status[..], &authority].concat())
        .failed(2, "SR-8408");
    assert!(told.contains("https://keys.example.org:8443"), "{told}");
    let join = [
        "keyserver",
        "join",
        bare,
        "--node",
        "n",
        "--token-file",
        "new",
    ];
    let config = ["--config", "n/node.toml"];
    place
        .run(&[&join[..], &authority, &config].concat())
        .failed(2, "SR-8408");
    assert!(!place.path("n").exists());
    let glass = ["keyserver", "break-glass", "admin-2", "--server", bare];
    let more = ["--config", "a/server.toml", "--out", "glass"];
    place
        .run(&[&glass[..], &more].concat())
        .failed(2, "SR-8408");
    assert!(!place.path("glass").exists());
}

#[test]
fn what_is_not_there_or_not_an_address_is_told_as_that() {
    let place = Place::new();
    let server = keyserver::started(&place, "a");
    // Tokens.
    let id = "0".repeat(64);
    for nothing in [&id[..], "nothing", "a b", &id[1..]] {
        let told = admin(&place, &["tokens", "--withdraw", nothing]).failed(2, "SR-8459");
        assert!(!told.contains("grant"), "{told}");
    }
    place.write("there", "before");
    admin(&place, &["token", "n", "--out", "there"]).failed(6, "SR-1002");
    admin(&place, &["token", "n", "--out", "no/there"]).failed(2, "SR-1006");
    assert_eq!(place.read("there"), b"before");
    let left = admin(&place, &["tokens"]).succeeded();
    assert_eq!(left.lines().count(), 1, "a token was made: {left}");
    admin(&place, &["token", "n", "--out", "new"]).succeeded();
    let left = admin(&place, &["tokens"]).succeeded();
    let id = left.split_whitespace().last().unwrap();
    admin(&place, &["tokens", "--withdraw", id]).succeeded();
    admin(&place, &["tokens", "--withdraw", id]).failed(2, "SR-8459");

    // Keys, and grants of them, to those who may know what there is.
    for act in ["disable", "enable", "rotate", "restore"] {
        let told = admin(&place, &[act, "nokey"]).failed(2, "SR-8454");
        assert!(told.contains("keyserver create"), "{act}: {told}");
    }
    admin(&place, &["destroy", "nokey", "--confirm", "nokey"]).failed(2, "SR-8454");
    let told = admin(&place, &["ungrant", "admin", "nokey"]).failed(2, "SR-8444");
    assert!(told.contains("nokey to admin"), "{told}");
    let told = admin(&place, &["token", "two words"]).failed(2, "SR-2013");
    assert!(told.contains("two words"), "{told}");

    bare_addresses_are_refused(&place, &server);

    // Archives.
    std::fs::create_dir(place.path("archive")).unwrap();
    let verify = ["keyserver", "audit", "verify"];
    let told = place
        .run(&[&verify[..], &["archive"]].concat())
        .failed(2, "SR-1001");
    assert!(told.contains("archive/audit-*.jsonl"), "{told}");
    let told = place
        .run(&[&verify[..], &["archive/none.jsonl"]].concat())
        .failed(2, "SR-1006");
    assert!(told.contains("none.jsonl"), "{told}");
    place.write("archive/audit-1.jsonl", "{}\n");
    let mut without = place.command();
    without.env("STRONGROOM_NODE", "none.toml");
    without.args(verify).arg("archive/audit-1.jsonl");
    let told = String::from_utf8(without.output().unwrap().stderr).unwrap();
    assert!(told.contains("error[SR-8400]"), "{told}");
    assert!(told.contains("give --authority FILE"), "{told}");
}

#[test]
fn without_a_terminal_the_option_is_named_that_the_command_has() {
    let place = Place::new();
    let name = ["--name", "127.0.0.1", "--address", "127.0.0.1:1"];
    init(&place, &[&name[..], &SHARES].concat()).succeeded();
    let share = ["shares/share-1.txt", "shares/share-2.txt"];
    let glass = ["keyserver", "break-glass", "admin-2"];
    let out = ["--config", "s/server.toml", "--out", "glass"];
    let glass = [&glass[..], &out].concat();
    let unseal = ["keyserver", "unseal", "--node", "s/admin.toml"];
    let token = ["keyserver", "join", "https://127.0.0.1:1", "--node", "n"];
    let join = ["--authority", "s/authority.pem", "--config", "n/node.toml"];
    let join = [&token[..], &join].concat();
    let keyring = ["keyring", "init", "--provider", "passphrase"];
    for (arguments, named) in [
        (&glass[..], "give --share-file FILE 2 times"),
        (&unseal, "give --share-file FILE"),
        (&join, "give --token-file FILE or --token-env VAR"),
        (&keyring, "give another --provider, as env:VAR"),
    ] {
        let told = without_terminal(&place, arguments).failed(2, "SR-1004");
        assert!(told.contains(named), "{arguments:?}: {told}");
    }

    // A file that holds nothing, or something else.
    place.write("empty", "");
    place.write("binary", [0xff, 0xfe]);
    for file in ["empty", "binary"] {
        let with = [&unseal[..], &["--share-file", file]].concat();
        let told = place.run(&with).failed(3, "SR-2042");
        assert!(told.contains(&format!("file:{file}")), "{told}");
    }
    // Too few shares are not wrong shares.
    let one = [&glass[..], &["--share-file", share[0]]].concat();
    let told = place.run(&one).failed(3, "SR-8410");
    assert!(told.contains("1 of the 2"), "{told}");
    place.write("wrong", "strongroom-share-1-00");
    let wrong = [&one[..], &["--share-file", "wrong"]].concat();
    place.run(&wrong).failed(3, "SR-8432");
    let both = [&one[..], &["--share-file", share[1]]].concat();
    place.run(&both).succeeded();
}
