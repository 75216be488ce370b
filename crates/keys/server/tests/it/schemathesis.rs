//! The interface as `openapi.json` describes it, tested by Schemathesis: every operation, by an
//! administrator and by a node, with valid and invalid requests. No response may be a server error
//! or differ from the description.
//!
//! `make test-keyserver` installs it. Must not: run as part of `make test`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]

use crate::page::server;

use std::process::Command;

use server::{Running, saved};
use strongroom_keys_server::records::Role;

#[test]
#[ignore = "needs Schemathesis: make test-keyserver"]
fn the_interface_is_as_it_is_described() {
    let running = Running::open();
    let directory = running.directory.path();
    saved(directory, "node", &running.enrolled("db-1", Role::Node));
    let url = format!("https://localhost:{}", running.api.port());
    for who in ["node", "admin"] {
        let done = Command::new("schemathesis")
            .args(["run", &format!("{url}/openapi.json"), "--max-examples", "20"])
            // An administrator would end the trial with it. Sealing has tests of its own.
            .args(["--exclude-path", "/v1/seal", "--mode", "all", "--workers", "2"])
            .args(["--max-time", "60", "--phases", "examples,coverage,fuzzing,stateful"])
            .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"])
            .args(["--checks", "response_schema_conformance,unsupported_method"])
            .args(["--seed", "1", "--no-color", "--tls-verify"])
            .arg(directory.join("authority.pem"))
            .arg("--request-cert")
            .arg(directory.join(format!("{who}.pem")))
            .arg("--request-cert-key")
            .arg(directory.join(format!("{who}.key")))
            .current_dir(directory)
            .output();
        let done =
            done.unwrap_or_else(|error| panic!("schemathesis: {error}: make test-keyserver"));
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success(),
            "{who}: {told}{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
}
