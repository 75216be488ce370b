//! Requests that a page of another site makes a browser send with an administrator's certificate:
//! none of them has an effect.
//!
//! Method: the requests as a browser sends them, byte for byte, to every path of `openapi.json`
//! that changes something, and the state of the server afterwards. `foreign_browser.rs` does the
//! same with a real browser.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use common::{Answer, Client, Identity, Installation, Running, request};
use serde_json::{Value, json};

/// The headers by which a browser tells what page it acts for. A form of an old browser tells
/// nothing, but has a form's type.
const STEERED: [&str; 9] = [
    "Origin: https://evil.example\r\nContent-Type: application/json\r\n",
    "Origin: null\r\nContent-Type: application/json\r\n",
    // No page is of this origin: the fleet page has another one.
    "Origin: https://localhost\r\nContent-Type: application/json\r\n",
    "Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n",
    "Sec-Fetch-Site: same-site\r\nContent-Type: application/json\r\n",
    "Content-Type: text/plain\r\n",
    "Content-Type: application/x-www-form-urlencoded\r\n",
    "Content-Type: application/json, text/plain\r\n",
    "",
];

fn sent(client: &mut Client, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}");
    let bytes = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    client.send(bytes.as_bytes()).unwrap();
    client.answer().unwrap()
}

/// More room than a test needs. Limits have tests of their own.
fn unhurried(installation: &Installation) {
    installation.edit(|text| text.replace("client_burst = 200", "client_burst = 10000"));
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let installation = Installation::with_provider();
    unhurried(&installation);
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    running.node(&installation, "db-1");
    assert_eq!(admin.post("/v1/keys", &json!({"name": "k"})).status, 201);
    let before = admin.get("/v1/nodes").text();
    let grant = json!({"node": "db-1", "key": "k"}).to_string();
    let renewal = json!({"csr": request("x").1}).to_string();
    let destroy = json!({"after_seconds": 0}).to_string();
    for headers in STEERED {
        for (path, body) in [
            ("/v1/grants", grant.as_str()),
            ("/v1/renew", &renewal),
            ("/v1/keys/k/destroy", &destroy),
            ("/v1/keys/k/disable", ""),
            ("/v1/keys/k/rotate", ""),
            ("/v1/seal", ""),
        ] {
            let answer = sent(&mut admin, "POST", path, headers, body);
            assert!(
                [403, 415].contains(&answer.status),
                "{path} {headers}: {}",
                answer.text()
            );
            assert!(!answer.headers.contains_key("access-control-allow-origin"));
        }
        let preflight = sent(&mut admin, "OPTIONS", "/v1/grants", headers, "");
        assert!([403, 405].contains(&preflight.status));
    }
    assert_eq!(admin.get("/v1/grants").json()["grants"], json!([]));
    assert_eq!(admin.get("/v1/nodes").text(), before);
    let key = admin.get("/v1/keys/k").json();
    assert_eq!(key["state"], "active");
    assert_eq!(key["versions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn every_address_that_changes_something_wants_a_type_and_no_page() {
    let installation = Installation::with_provider();
    unhurried(&installation);
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    let description: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
    let mut tried = 0;
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method == "get" {
                continue;
            }
            tried += 1;
            let method = method.to_uppercase();
            let content = operation["requestBody"]["content"].as_object();
            let kind = content.and_then(|kinds| kinds.keys().next()).unwrap();
            let fits = format!("Content-Type: {kind}\r\n");
            let path = path
                .replace("{name}", "no-such")
                .replace("{id}", &"0".repeat(32));
            for headers in [
                "",
                "Content-Type: text/plain\r\n",
                "Content-Type: multipart/form-data; boundary=x\r\n",
            ] {
                let answer = sent(&mut admin, &method, &path, headers, "{}");
                answer.refused(415, "SR-8451");
            }
            for origin in [
                "Origin: https://evil.example",
                "Origin: null",
                "Sec-Fetch-Site: cross-site",
            ] {
                let headers = format!("{fits}{origin}\r\n");
                sent(&mut admin, &method, &path, &headers, "{}").refused(403, "SR-8450");
            }
        }
    }
    assert!(tried >= 19, "{tried}");
}

#[test]
fn a_page_of_another_site_reads_nothing_but_a_person_may() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let node = running.node(&installation, "db-1");
    let mut client = running.client(Some(&node));
    assert_eq!(client.post("/v1/keys", &json!({"name": "k"})).status, 201);
    let material = "/v1/keys/k/versions/1/material";
    let rows = |running: &Running| {
        let rows = running
            .admin(&installation)
            .get("/v1/audit?limit=5000")
            .json();
        rows["rows"].as_array().map(Vec::len)
    };
    let before = rows(&running);
    for headers in [
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: image\r\n",
        "Origin: null\r\n",
    ] {
        sent(&mut client, "GET", material, headers, "").refused(403, "SR-8450");
    }
    assert_eq!(rows(&running), before, "nothing was delivered");
    let typed = sent(
        &mut client,
        "GET",
        "/v1/keys",
        "Sec-Fetch-Site: none\r\n",
        "",
    );
    assert_eq!(typed.status, 200);
    assert_eq!(typed.headers["cross-origin-resource-policy"], "same-origin");
}

/// A node with two certificates tries to become another client by having its older key certified
/// for that one.
#[test]
fn no_public_key_is_ever_certified_for_two_names() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    let token = |node: &str| json!({"node": node, "role": "node", "expires_seconds": 600});
    let made = |admin: &mut Client, node: &str| {
        let made = admin.post("/v1/tokens", &token(node)).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (old_key, old_request) = request("evil");
    let first = made(&mut admin, "evil");
    let enrolled = running
        .client(None)
        .post("/v1/enroll", &json!({"token": first, "csr": old_request}));
    assert_eq!(enrolled.status, 201, "{}", enrolled.text());
    let old = Identity {
        certificate: enrolled.json()["certificate"].as_str().unwrap().to_owned(),
        key: old_key,
    };
    let (new_key, new_request) = request("evil");
    let renewed = running
        .client(Some(&old))
        .post("/v1/renew", &json!({"csr": new_request}));
    assert_eq!(renewed.status, 201);
    let new = Identity {
        certificate: renewed.json()["certificate"].as_str().unwrap().to_owned(),
        key: new_key,
    };
    // With its first use the older one ends.
    assert_eq!(running.client(Some(&new)).get("/v1/keys").status, 200);
    running
        .client(Some(&old))
        .get("/v1/keys")
        .refused(403, "SR-8421");
    // The older key is nobody's now, and stays evil's all the same: renewed by others, enrolled by
    // others, and after a revocation.
    admin
        .post("/v1/renew", &json!({"csr": old_request}))
        .refused(400, "SR-8429");
    let other = made(&mut admin, "db-2");
    let taken = json!({"token": other, "csr": old_request});
    running
        .client(None)
        .post("/v1/enroll", &taken)
        .refused(400, "SR-8429");
    assert_eq!(admin.delete("/v1/nodes/evil").status, 204);
    running
        .client(None)
        .post("/v1/enroll", &taken)
        .refused(400, "SR-8429");
    running
        .client(Some(&old))
        .get("/v1/keys")
        .refused(403, "SR-8421");
    let again = made(&mut admin, "evil");
    let back = json!({"token": again, "csr": old_request});
    assert_eq!(running.client(None).post("/v1/enroll", &back).status, 201);
    // The same key, and still not the same certificate: only the newest counts.
    running
        .client(Some(&old))
        .get("/v1/keys")
        .refused(403, "SR-8421");
}
