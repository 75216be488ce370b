//! Goal: no administrator erases a key by mistake, or alone where two are required; unknown clients
//! cannot fill the audit log; and no text changes how the text beside it is displayed.
//!
//! Method: a real server in this process, real TLS.
use crate::common;

use common::{Installation, Running};
use serde_json::json;

#[test]
fn two_administrators_have_a_key_destroyed_and_what_needs_it_is_counted() {
    let installation = Installation::with_provider();
    installation
        .edit(|text| text.replace("destroy_administrators = 1", "destroy_administrators = 2"));
    let running = Running::open(&installation);
    let node = running.node(&installation, "db-1");
    let mut node = running.client(Some(&node));
    let mut admin = running.admin(&installation);
    let token = json!({"node": "boss", "role": "admin", "expires_seconds": 600});
    let second = running.enrol(&installation, &token);
    let mut second = running.client(Some(&second));
    assert_eq!(node.post("/v1/keys", &json!({"name": "k"})).status, 201);
    let report = json!({"kind": "volume", "name": "/dev/vdb", "cipher": "aes", "key_id": "k", "key_version": 1, "created": 1});
    for object in ["a", "b"] {
        let path = format!("/v1/objects/{}", object.repeat(32));
        let body = report.to_string();
        assert_eq!(node.ask("PUT", &path, Some(body.as_bytes())).status, 204);
    }
    let needs = admin.get("/v1/keys/k/needs").json();
    assert_eq!(
        (&needs["objects"], &needs["complete"]),
        (&2.into(), &true.into())
    );
    assert_eq!(needs["named"][0]["name"], "/dev/vdb");
    assert_eq!(needs["nodes"], json!(["db-1"]));

    let destroy = "/v1/keys/k/destroy";
    // The same one twice is still one.
    for _ in 0..2 {
        let asked = admin.post(destroy, &json!({})).json();
        assert_eq!(
            (&asked["state"], &asked["destroy_asked_by"]),
            (&"active".into(), &"admin".into())
        );
    }
    // A node is not the second: whoever enrols clients has as many nodes as he likes.
    node.post(destroy, &json!({})).refused(403, "SR-8422");
    assert_eq!(node.material("k", "1").len(), 44);
    assert_eq!(
        second.post(destroy, &json!({})).json()["state"],
        "destroy-pending"
    );
    assert_eq!(
        second.post("/v1/keys/k/restore", &json!({})).json()["state"],
        "disabled"
    );
    assert_eq!(
        second.post(destroy, &json!({})).json()["state"],
        "disabled",
        "it begins anew"
    );
}

/// A revoked machine that asks again and again, with long names, does not fill the log; it is named
/// there.
#[test]
fn a_revoked_certificate_is_named_in_the_log_and_does_not_fill_it() {
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let mut admin = running.admin(&installation);
    let revoked = running.node(&installation, "stolen-7");
    assert_eq!(admin.delete("/v1/nodes/stolen-7").status, 204);
    let rows = |admin: &mut common::Client| {
        let rows = admin.get("/v1/audit?limit=5000").json();
        rows["rows"].as_array().unwrap().clone()
    };
    let before = rows(&mut admin).len();
    let mut stranger = running.client(Some(&revoked));
    let path = format!("/v1/keys/{}/rotate", "x".repeat(20_000));
    for _ in 0..100 {
        stranger.post(&path, &json!({})).refused(403, "SR-8421");
    }
    let after = rows(&mut admin);
    assert_eq!(after.len(), before + 1, "one row in a minute");
    let row = after.last().unwrap();
    assert!(row.to_string().len() < 1000, "{row}");
    let detail = row["detail"].as_str().unwrap();
    assert!(
        detail.contains("certificate ") && detail.ends_with(" of stolen-7"),
        "{detail}"
    );
}

#[test]
fn what_reorders_text_is_refused_and_the_store_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let installation = Installation::with_provider();
    let running = Running::open(&installation);
    let node = running.node(&installation, "n");
    let mut node = running.client(Some(&node));
    for mark in ["\u{202e}", "\u{2028}", "\u{2066}", "\u{7}"] {
        let object = json!({"device": format!("a{mark}b")});
        let body = json!({"name": "k", "object": object});
        node.post("/v1/keys", &body).refused(400, "SR-8429");
    }
    for file in ["keys.db", "keys.db-wal"] {
        let about = std::fs::metadata(installation.path(file)).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{file}");
    }
}
