//! The description for programs says what the server does: address by address, and under requests made from it.
//!
//! Method: the description beside the source of the router; then schemathesis, which makes requests from the description, well formed
//! and not, and holds every answer against it.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::{Place, Running};
use serde_json::{Value, json};

fn description() -> Value {
    serde_json::from_str(include_str!("../openapi.json")).unwrap()
}

/// `GET /healthz` and so on, of the description.
fn described() -> BTreeSet<String> {
    let description = description();
    let paths = description["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        item.as_object()
            .unwrap()
            .keys()
            .map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    operations.collect()
}

#[test]
fn every_address_is_described_and_every_description_has_an_address() {
    let source = include_str!("../src/http/routes.rs");
    let (_, rest) = source.split_once("Router::new()").unwrap();
    let (table, _) = rest.split_once(".fallback(").unwrap();
    let mut routed = BTreeSet::new();
    for route in table.split(".route(").skip(1) {
        let path = route.split('"').nth(1).unwrap();
        for method in ["get", "post", "put", "delete"] {
            if route.contains(&format!("{method}(")) {
                routed.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    assert!(routed.len() > 25, "{routed:?}");
    assert_eq!(routed, described());
}

#[test]
fn the_specification_names_every_address() {
    let page = include_str!("../../../docs/spec/keyserver.md");
    for operation in described() {
        let (_, path) = operation.split_once(' ').unwrap();
        // Names in braces are said in words there; the beginning is enough.
        let start = path.split('{').next().unwrap();
        assert!(page.contains(start), "{operation}");
    }
}

#[test]
fn what_anybody_may_ask_is_marked() {
    let place = Place::with_provider();
    let running = Running::open(&place);
    let description = description();
    let mut nobody = running.client(None);
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let path = path
                .replace("{name}", "a")
                .replace("{id}", &"0".repeat(32))
                .replace("{version}", "1");
            // A body that is well formed as JSON and nothing else: what needs a certificate says so before or after it looks.
            let body = (method != "get").then_some(b"{}".as_slice());
            let answer = nobody.ask(&method.to_uppercase(), &path, body);
            let open = operation["security"] == json!([]);
            let asked_for_one = answer.status == 401;
            if open {
                assert!(!asked_for_one, "{method} {path}");
            } else {
                assert!(
                    asked_for_one || answer.status == 400,
                    "{method} {path}: {}",
                    answer.text()
                );
            }
        }
    }
}

/// Where `make test-keyserver` puts it; else wherever it is found.
fn schemathesis() -> Command {
    Command::new(
        std::env::var_os("STRONGROOM_SCHEMATHESIS").unwrap_or_else(|| "schemathesis".into()),
    )
}

#[test]
#[ignore = "needs schemathesis and a minute: make test-keyserver"]
fn schemathesis_finds_nothing() {
    let place = Place::with_provider();
    // Requests come as fast as they are made.
    place.edit(|text| {
        text.replace("client_per_second = 100", "client_per_second = 1000000")
            .replace("client_burst = 200", "client_burst = 1000000")
    });
    let running = Running::open(&place);
    let mut admin = running.admin(&place);
    for name in ["a", "k"] {
        assert_eq!(admin.post("/v1/keys", &json!({"name": name})).status, 201);
    }
    let token =
        json!({"node": "other", "role": "node", "may_create": true, "expires_seconds": 600});
    running.enrol(&place, &token);
    let url = format!("https://127.0.0.1:{}", running.address.port());
    let file = |name: &str| place.path(name).display().to_string();
    let description = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let ended = schemathesis()
        .current_dir(place.directory.path())
        .arg("run")
        .arg(&description)
        .args(["--url", &url, "--tls-verify", &file("authority.pem")])
        .args(["--request-cert", &file("admin.pem"), "--request-cert-key", &file("admin.key")])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "30", "--max-time", "120"])
        .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection"])
        // It would seal the server, or make its own certificate end: what comes after would be refused.
        .args(["--exclude-operation-id", "seal", "--exclude-operation-id", "renew"])
        .args(["--request-timeout", "60", "--generation-deterministic", "--no-color", "--warnings", "off"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
