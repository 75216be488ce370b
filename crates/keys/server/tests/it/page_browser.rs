//! The fleet page in a real browser: Chromium, driven by Playwright, with and without scripts,
//! against a real server over mutual TLS.
//!
//! `make test-keyserver` installs what it needs. `STRONGROOM_SCREENSHOTS` names the directory of
//! the screenshots.
//!
//! Must not: run as part of `make test`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]

use crate::page::server;

use std::process::Command;

use server::{Credentials, Running, peer, saved, volume};
use strongroom_keys_server::records::{Report, Role};

const DAY: u64 = 86_400;
const HOSTILE: &str = "</th><script>document.title='owned'</script><img src=//127.0.0.1:9/x onerror=alert(1)>\u{200b}\"'";

/// Objects of every kind and condition, by three nodes.
fn report_all(running: &Running) {
    let nodes: Vec<Credentials> = (0..3)
        .map(|n| running.enrolled(&format!("db-{n}.example"), Role::Node))
        .collect();
    let service = running.service();
    for key in ["volumes", "databases"] {
        service.create_key(&peer(&nodes[0]), key, None).unwrap();
    }
    let now = strongroom_keys_server::now();
    for n in 0..240_u64 {
        let kind = ["volume", "sqlite", "instance", "backup"][usize::try_from(n % 4).unwrap()];
        let age = n * 37 % 400;
        let report = Report {
            kind: kind.to_owned(),
            name: format!("/srv/{kind}/data-{n:03}"),
            cipher: if kind == "volume" {
                "aes-xts-plain64"
            } else {
                "aes-256-gcm"
            }
            .to_owned(),
            key_id: if kind == "volume" {
                "volumes"
            } else {
                "databases"
            }
            .to_owned(),
            created: now - (age + 1) * DAY,
            rotated: (n % 3 == 0).then(|| now - age * DAY / 2),
            backed_up: (n % 5 != 0).then(|| now - n % 30 * 3600),
            verified: (kind != "volume" && n % 7 != 0).then(|| now - n % 40 * DAY),
            ..volume("")
        };
        let node = &nodes[usize::try_from(n % 3).unwrap()];
        running.report(node, &format!("{n:032x}"), &report);
    }
    running.report(&nodes[1], &"f".repeat(32), &volume(HOSTILE));
    let mut plain = volume("/srv/not-sealed");
    "none".clone_into(&mut plain.cipher);
    running.report(&nodes[2], &"e".repeat(32), &plain);
    let mut ahead = volume("/srv/clock-of-next-century");
    ahead.verified = Some(now + 40_000 * DAY);
    running.report(&nodes[2], &"d".repeat(32), &ahead);
    service
        .disable_key(&peer(&running.admin()), "databases")
        .unwrap();
}

#[test]
#[ignore = "needs Chromium, Node and Playwright: make test-keyserver"]
fn a_browser_shows_it_without_complaint() {
    let modules = std::env::var_os("STRONGROOM_NODE_MODULES");
    let modules = modules
        .unwrap_or_else(|| panic!("STRONGROOM_NODE_MODULES is not set: make test-keyserver"));
    let sealed = Running::sealed();
    let empty = Running::open();
    let running = Running::open();
    report_all(&running);
    let directory = running.directory.path();
    let shots = std::env::var_os("STRONGROOM_SCREENSHOTS")
        .map_or_else(|| directory.join("shots"), Into::into);
    std::fs::create_dir_all(&shots).unwrap();
    saved(directory, "viewer", &running.enrolled("ops", Role::Viewer));
    saved(
        directory,
        "node",
        &running.enrolled("db-9.example", Role::Node),
    );
    saved(
        empty.directory.path(),
        "viewer",
        &empty.enrolled("ops", Role::Viewer),
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/page/browser.cjs");
    let done = Command::new("node")
        .arg(script)
        .env("NODE_PATH", &modules)
        .env("FLEET", running.address.port().to_string())
        .env("FLEET_FILES", directory)
        .env("EMPTY", empty.address.port().to_string())
        .env("EMPTY_FILES", empty.directory.path())
        .env("SEALED", sealed.address.port().to_string())
        .env("SHOTS", &shots)
        .output()
        .unwrap();
    let told = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(done.status.success(), "{told}");
    assert!(told.contains("all checks passed"), "{told}");
}
