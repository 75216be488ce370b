//! A page of another site in a real browser with an administrator's certificate: Chromium, driven
//! by Playwright.
//!
//! `make test-keyserver` installs what it needs. `foreign.rs` sends the same requests without a
//! browser.
//!
//! Must not: run as part of `make test`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]

use crate::page::server;

use std::process::Command;

use server::{Running, peer};
use strongroom_keys_server::records::{Role, State};

#[test]
#[ignore = "needs Chromium, Node and Playwright: make test-keyserver"]
fn a_page_of_another_site_has_the_browser_change_nothing() {
    let modules = std::env::var_os("STRONGROOM_NODE_MODULES");
    let modules = modules
        .unwrap_or_else(|| panic!("STRONGROOM_NODE_MODULES is not set: make test-keyserver"));
    let running = Running::open();
    let service = running.service();
    let admin = peer(&running.admin());
    running.enrolled("evil", Role::Node);
    service.create_key(&admin, "k", None).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::new(vec!["evil".to_owned()]).unwrap();
    let request = request.serialize_request(&key).unwrap().pem().unwrap();
    let before = service.nodes(&admin, "", 10).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/page/foreign.cjs");
    let done = Command::new("node")
        .arg(script)
        .env("NODE_PATH", &modules)
        .env("API", running.api.port().to_string())
        .env("PAGE", running.address.port().to_string())
        .env("FILES", running.directory.path())
        .env("REQUEST", request)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    let complaints = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}{complaints}");
    // Whoever asks is still the administrator, and nothing has changed.
    let key = service.key(&admin, "k").unwrap();
    assert_eq!(key.state, State::Active, "{told}");
    assert!(service.grants(&admin, "", 10).unwrap().is_empty(), "{told}");
    let after = service.nodes(&admin, "", 10).unwrap();
    let whose = |nodes: &[strongroom_keys_server::service::NodeInfo]| {
        let nodes = nodes.iter();
        nodes
            .map(|node| (node.name.clone(), node.spki.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(whose(&after), whose(&before), "{told}");
    // The requests did come here.
    let withheld = "net::ERR_BLOCKED_BY_RESPONSE.NotSameOrigin";
    for seen in [
        format!("POST /v1/grants {withheld}"),
        format!("POST /v1/renew {withheld}"),
        format!("POST /v1/keys/k/destroy {withheld}"),
        format!("GET /v1/keys/k/versions/1/material {withheld}"),
        "POST /v1/grants 403".to_owned(),
        "POST /v1/keys/k/disable 403".to_owned(),
        "POST /v1/keys/k/disable 405".to_owned(),
    ] {
        assert!(told.contains(&seen), "{seen} in {told}");
    }
}
