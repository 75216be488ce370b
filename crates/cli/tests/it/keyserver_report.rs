//! `strongroom keyserver report`: what a node's objects are found to be, and that a real server is
//! told of them.
//!
//! Method: the real binary, as node and as server, over real TLS.

use crate::common;

use common::{Place, keyserver};
use serde_json::Value;

fn place() -> Place {
    let place = Place::new();
    place.with_key();
    place
        .run(&["keyring", "export", "--out", "export", "--key-env", "ROOT"])
        .succeeded();
    place.plain_database("plain.db", 100);
    place
        .run(&["sqlite", "encrypt", "plain.db", "app.db", "--key-id", "app"])
        .succeeded();
    place
}

const DRY: [&str; 4] = ["keyserver", "report", "--dry-run", "--json"];

#[test]
fn objects_are_told_by_their_headers_and_the_catalogue() {
    let place = place();
    let json = place.run(&[&DRY[..], &["app.db"]].concat()).json();
    assert_eq!(json["sent"], false);
    assert!(json["error"].is_null());
    let object = &json["objects"][0];
    assert_eq!(object["kind"], "sqlite");
    assert_eq!(object["cipher"], "aes-256-gcm");
    assert_eq!(
        (object["key_id"].as_str(), object["key_version"].as_u64()),
        (Some("app"), Some(1))
    );
    assert!(object["name"].as_str().unwrap().ends_with("/app.db"));
    assert_eq!(object["backed_up"], Value::Null);
    let inspected = place.run(&["inspect", "app.db", "--json"]).json();
    assert_eq!(object["object_id"], inspected["header"]["object_id"]);
    assert_eq!(object["created"], inspected["header"]["created_unix_s"]);
    // A backup and its verification are known from the catalogue.
    place
        .run(&[
            "backup",
            "create",
            "app.db",
            "--to",
            "medium",
            "--key-id",
            "app",
            "--source-key-id",
            "app",
        ])
        .succeeded();
    place
        .run(&["backup", "verify", "medium", "--key-id", "app"])
        .succeeded();
    let run = place.run(&[&DRY[..], &["app.db", "medium", "--verified"]].concat());
    let json = run.json();
    let (database, medium) = (&json["objects"][0], &json["objects"][1]);
    assert!(database["backed_up"].as_u64() >= database["created"].as_u64());
    assert!(database["verified"].as_u64() >= database["backed_up"].as_u64());
    assert_eq!(
        (medium["kind"].as_str(), medium["key_id"].as_str()),
        (Some("backup"), Some("app"))
    );
    assert!(medium["backed_up"].as_u64().is_some() && medium["verified"].as_u64().is_some());
}

#[test]
fn what_cannot_be_reported_does_not_keep_the_rest_back() {
    let place = place();
    let paths = ["plain.db", "app.db", "absent", "keyring"];
    let run = place.run(&[&DRY[..], &paths].concat());
    let json = run.json();
    assert_eq!(json["error"]["code"], "SR-3001");
    let objects = json["objects"].as_array().unwrap();
    let codes: Vec<Option<&str>> = objects
        .iter()
        .map(|one| one["error"]["code"].as_str())
        .collect();
    assert_eq!(
        codes,
        [Some("SR-3001"), None, Some("SR-1006"), Some("SR-1001")]
    );
    for code in ["SR-3001", "SR-1006", "SR-1001"] {
        assert_eq!(
            run.err.matches(&format!("error[{code}]")).count(),
            1,
            "{}",
            run.err
        );
    }
    run.failed(4, "SR-3001");
    // Without a server to ask, nothing is said to be done.
    place
        .run(&["keyserver", "report", "app.db", "--node", "absent.toml"])
        .failed(2, "SR-8400");
}

#[test]
fn a_server_keeps_what_a_later_report_leaves_out() {
    let place = place();
    let _server = keyserver::started(&place, "server");
    let report = [
        "keyserver",
        "report",
        "--node",
        "server/admin.toml",
        "--json",
        "app.db",
    ];
    let sent = place.run(&[&report[..], &["--verified"]].concat());
    let sent = sent.json();
    assert_eq!(sent["sent"], true);
    let verified = &sent["objects"][0]["verified"];
    assert!(verified.as_u64().is_some(), "{sent}");
    let again = place.run(&report).json();
    assert_eq!(again["objects"][0]["verified"], Value::Null);
    let path = place.path("server/admin.toml");
    let client = strongroom_keys_client::Node::load(&path).unwrap().client();
    let kept = client
        .call(
            &strongroom_keys_client::Method::GET,
            "/v1/objects",
            None,
            true,
        )
        .unwrap();
    let object = &kept["objects"][0];
    assert_eq!(&object["verified"], verified, "{kept}");
    assert_eq!(object["object_id"], sent["objects"][0]["object_id"]);
    assert_eq!(object["node"], "admin");
}
