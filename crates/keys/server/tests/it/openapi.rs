//! `openapi.json` describes what the server does, for every path.
//!
//! Method: the description is compared with the source of the router, and with responses to clients
//! without a certificate. `schemathesis.rs` generates requests from it.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::collections::BTreeSet;

use common::{Installation, Running};
use serde_json::{Value, json};

fn description() -> Value {
    serde_json::from_str(include_str!("../../openapi.json")).unwrap()
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
    let source = include_str!("../../src/http/routes.rs");
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
    let page = include_str!("../../../../../docs/spec/keyserver.md");
    for operation in described() {
        let (_, path) = operation.split_once(' ').unwrap();
        // Names in braces are said in words there; the beginning is enough.
        let start = path.split('{').next().unwrap();
        assert!(page.contains(start), "{operation}");
    }
}

#[test]
fn what_anybody_may_ask_is_marked() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let description = description();
    let mut nobody = running.client(None);
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let path = path
                .replace("{name}", "a")
                .replace("{id}", &"0".repeat(32))
                .replace("{version}", "1");
            // A body that is well formed as JSON and nothing else: what needs a certificate says so
            // before or after it looks.
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
