//! Goal: what opens a keyring through the command opens it everywhere: for a PostgreSQL server,
//! whose library has no clients.
//!
//! Method: a real token (`SoftHSM`), the real command and library, a real server.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::process::Command;

use instance::{Place, Run, run};

/// A place with a token in it, and the provider for its key.
fn with_token() -> (Place, String) {
    let place = Place::new();
    let tokens = place.path("tokens");
    run(place.program("mkdir").arg(&tokens)).succeeded();
    place.write(
        "hsm.conf",
        &format!(
            "directories.tokendir = {}\nlog.level = ERROR\n",
            tokens.display()
        ),
    );
    place.write("aes", "0123456789abcdef0123456789abcdef");
    place.write("pin", "1234");
    let util = |arguments: &[&str]| {
        let mut util = place.program("softhsm2-util");
        run(on(&place, util.args(arguments))).succeeded();
    };
    util(&[
        "--init-token",
        "--free",
        "--label",
        "t",
        "--pin",
        "1234",
        "--so-pin",
        "5678",
    ]);
    util(&[
        "--import", "aes", "--aes", "--token", "t", "--label", "root", "--id", "01", "--pin",
        "1234",
    ]);
    let module = [
        "/usr/lib/softhsm/libsofthsm2.so",
        "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    ];
    let module = module
        .iter()
        .find(|path| std::path::Path::new(path).exists());
    let module = module.expect("`make deps-test` installs softhsm2");
    let pin = place.path("pin");
    let provider = format!(
        "pkcs11:token=t;object=root?module-path={module}&pin-source=file:{}",
        pin.display()
    );
    (place, provider)
}

fn on<'a>(place: &Place, command: &'a mut Command) -> &'a mut Command {
    command.env("SOFTHSM2_CONF", place.path("hsm.conf"))
}

fn strongroom(place: &Place, arguments: &[&str]) -> Run {
    let ring = place.path("ring");
    let arguments = [&["--keyring", ring.to_str().unwrap()], arguments].concat();
    run(on(place, &mut place.command(&arguments)))
}

#[test]
fn a_servers_keyring_is_opened_by_a_token() {
    let (place, provider) = with_token();
    strongroom(&place, &["keyring", "init", "--provider", &provider]).succeeded();
    strongroom(&place, &["key", "create", "app"]).succeeded();
    let status = strongroom(&place, &["keyring", "status"]).succeeded();
    assert!(
        status.contains("pkcs11:token=t;object=root?") && !status.contains("blob="),
        "{status}"
    );

    let made = [
        "pg",
        "initdb",
        "-D",
        "data",
        "--key-id",
        "app",
        "--",
        "-k",
        "--no-sync",
    ];
    strongroom(&place, &made).succeeded();
    let options = place.options();
    let start = [
        "pg", "start", "-D", "data", "-l", "log", "--", "-o", &options,
    ];
    strongroom(&place, &start).succeeded();
    assert_eq!(place.sql("select 6 * 7"), "42");
    strongroom(&place, &["pg", "stop", "-D", "data"]).succeeded();

    // The library alone does not know how, and says who does.
    let unattended = place.start_unattended();
    assert_ne!(unattended.code, 0);
    let said = place.log() + &unattended.err;
    assert!(
        said.contains("SR-2100") && said.contains("pkcs11"),
        "{said}"
    );

    place.write("pin", "4321");
    let refused = strongroom(&place, &start);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(
        refused.err.contains("SR-2102") && !refused.err.contains("4321"),
        "{}",
        refused.err
    );
    place.write("pin", "1234");
    strongroom(&place, &start).succeeded();
    assert_eq!(place.sql("select 6 * 7"), "42");
    strongroom(&place, &["pg", "stop", "-D", "data"]).succeeded();
}

#[test]
fn a_root_key_is_not_printed_for_people() {
    let place = Place::new();
    for arguments in [
        &["--provider-fetch"][..],
        &["--provider-fetch", "3"],
        &["--provider-fetch", "x", "y"],
    ] {
        assert_eq!(place.strongroom(arguments).code, 2, "{arguments:?}");
    }
    let unknown = place.strongroom(&["--provider-fetch", "99", "x"]);
    assert!(
        unknown.out.is_empty() && unknown.err.contains("SR-2020"),
        "{}",
        unknown.err
    );
    // What it is for: the same key, in the form that the rule for material reads.
    place.write("root", "a passphrase\n");
    let root = place.path("root");
    let printed = place.strongroom(&["--provider-fetch", "3", root.to_str().unwrap()]);
    assert_eq!(printed.succeeded(), "a passphrase");
}
